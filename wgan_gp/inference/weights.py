"""The weights of a network as an archive of arrays (.npz), which contains no code."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import UserError
from ..run_directory.files import convert_file_errors, read_file

_MOST_HEADER_BYTES = 1024  # of an array in an archive: its header and two entries of the archive


class WeightSpec(NamedTuple):
    """The name of a weight in an archive, its shape and the dtype in which it is stored."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """The number of bytes of the values."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def specs_of(network: Any) -> list[WeightSpec]:
    """Returns the specifications of the weights of a network, in their order."""
    return [_spec(index, weight) for index, weight in enumerate(network.weights)]


def _spec(index: int, weight: Any) -> WeightSpec:
    name = re.sub(r"\W", "_", weight.name.rpartition("/")[2].partition(":")[0])
    dtype = tf.as_dtype(weight.dtype)
    # NumPy itself has no bfloat16.
    stored = np.dtype(np.float32 if dtype == tf.bfloat16 else dtype.as_numpy_dtype)
    return WeightSpec(f"{index:04d}_{name}", tuple(weight.shape), stored)


def pack(network: Any) -> bytes:
    """Returns the archive of the weights of a network."""
    arrays: dict[str, Any] = {
        spec.name: np.asarray(tf.convert_to_tensor(weight)).astype(spec.dtype)
        for spec, weight in zip(specs_of(network), network.weights, strict=True)
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def read(path: str, specs: Sequence[WeightSpec], remedy: str) -> list[np.ndarray]:
    """Returns the arrays of an archive.

    The archive may come from another person, so it is not read before its size fits.

    Args:
      path: The path of the archive.
      specs: The specifications of all its arrays.
      remedy: See `UserError`.

    Raises:
      UserError: If the archive cannot be read, or contains other arrays or values that are not
        finite.
    """
    most = sum(spec.size + _MOST_HEADER_BYTES for spec in specs) + _MOST_HEADER_BYTES
    with convert_file_errors(path, "read", remedy):
        content = read_file(path, most)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.namelist() != [f"{spec.name}.npy" for spec in specs]:
                raise ValueError("it contains other arrays")
            return [_array(archive, spec) for spec in specs]
    # For damaged files, NumPy and zipfile raise exceptions of many types.
    except Exception as error:
        raise UserError(
            f"{path} does not contain the weights of this network ({error})", remedy
        ) from error


def _array(archive: zipfile.ZipFile, spec: WeightSpec) -> np.ndarray:
    """Returns an array of an archive, without giving memory to what its header claims."""
    entry = archive.getinfo(f"{spec.name}.npy")
    if (
        entry.compress_type != zipfile.ZIP_STORED
        or entry.file_size > spec.size + _MOST_HEADER_BYTES
    ):
        raise ValueError(f"{spec.name} is compressed or too large")
    file = io.BytesIO(archive.read(entry))
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{spec.name} has another format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if (shape, dtype) != (spec.shape, spec.dtype) or is_fortran:
        raise ValueError(
            f"{spec.name} is {dtype} {list(shape)}, not {spec.dtype} {list(spec.shape)}"
        )
    array = np.frombuffer(file.read(), dtype).reshape(shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{spec.name} contains NaN or infinity")
    return array


def assign(network: Any, arrays: Sequence[np.ndarray]) -> None:
    """Sets the weights of a network to arrays of the same shapes."""
    for weight, array in zip(network.weights, arrays, strict=True):
        weight.assign(tf.cast(array, weight.dtype))
