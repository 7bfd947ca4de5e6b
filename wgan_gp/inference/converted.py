"""The generator as an ONNX or TFLite file, for programs without TensorFlow."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import UserError, reason
from ..run_directory.files import this_machine

_PACKAGES = ("tf2onnx", "onnx", "onnxruntime")
_OPSET = 17
_COUNTS = (1, 7)  # the numbers of samples that are compared; the number is free in the files
TOLERANCE = 1e-5  # of the largest sample, or of 1
_MOST_NEIGHBORS = 0.01  # share of integers that may differ by 1
_REMEDY = "leave it out of --export_format"

Run = Callable[[list[np.ndarray]], np.ndarray]


def check_installed(formats: Sequence[str]) -> None:
    """Raises UserError if packages are missing with which one of the formats is written."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if "onnx" in formats and missing:
        raise UserError(
            f"--export_format=onnx needs packages that are not installed: {', '.join(missing)}",
            "pip install tf2onnx onnx onnxruntime",
        )


def convert(
    name: str,
    function: Callable,
    exact: Callable,
    inputs: Sequence[np.ndarray],
    *,
    has_levels: bool = False,
) -> bytes:
    """Returns the content of a file of the generator, which computes what TensorFlow computes.

    Args:
      name: The format, "onnx" or "tflite".
      function: A tf.function with one signature, whose result is {"samples": `[B, ...]`}.
      exact: The function to compare with, which may use operations that the format lacks.
      inputs: The arguments of the function with 8 rows or more, for the comparison.
      has_levels: Whether the samples are rounded to integers, of which a few may be neighbors.

    Raises:
      UserError: If the format does not have an operation of the generator, or its program computes
        other samples than TensorFlow: more than 1e-5 of the largest one away, except for neighbors
        of integers.
    """
    try:
        content, run = {"onnx": _to_onnx, "tflite": _to_tflite}[name](function)
        first = 0
        for count in _COUNTS:
            rows = [np.ascontiguousarray(each[first : first + count]) for each in inputs]
            expected = exact(*map(tf.constant, rows))["samples"].numpy()
            found = run(rows)
            first += count
            if found.shape != expected.shape:
                raise ValueError(f"its samples have shape {found.shape}, not {expected.shape}")
            _compare(name, found, expected, has_levels)
    except UserError:
        raise
    # The converters raise exceptions of many types for an operation that they do not know.
    except Exception as error:
        raise UserError(
            f"--export_format={name} cannot express this generator ({reason(error)})", _REMEDY
        ) from error
    return content


def _compare(name: str, found: np.ndarray, expected: np.ndarray, has_levels: bool) -> None:
    errors = np.abs(found.astype(np.float64) - expected)
    error, scale = errors.max(initial=0), max(1.0, np.abs(expected).max(initial=0))
    # A rounding error moves a number that lies between two levels to the other one.
    most = max(1, _MOST_NEIGHBORS * errors.size)
    is_rounding = has_levels and error <= 1 and (errors > 0).sum() <= most
    if not (error <= TOLERANCE * scale or is_rounding):
        raise UserError(
            f"--export_format={name} computes other samples than TensorFlow: they differ by "
            f"{error:.2g}, and the largest one is {scale:.2g}",
            _REMEDY,
        )


def _to_onnx(function: Any) -> tuple[bytes, Run]:
    import onnxruntime  # noqa: PLC0415
    import tf2onnx  # noqa: PLC0415

    specs = function.input_signature
    logger = logging.getLogger("tf2onnx")
    logger.setLevel(logging.ERROR)
    proto, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=_OPSET)
    content = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [spec.name for spec in specs]

    def run(rows: list[np.ndarray]) -> np.ndarray:
        return session.run(["samples"], dict(zip(names, rows, strict=True)))[0]

    return content, run


def _to_tflite(function: Any) -> tuple[bytes, Run]:
    owner = tf.Module()
    owner.weights = list(function.get_concrete_function().graph.variables)
    # Only files made of a SavedModel have a signature, which names the arguments.
    with tempfile.TemporaryDirectory() as folder:
        options = tf.saved_model.SaveOptions(experimental_io_device=this_machine())
        tf.saved_model.save(owner, folder, function, options)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        content = converter.convert()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will replace the interpreter
        interpreter = tf.lite.Interpreter(model_content=content)
    names = [spec.name for spec in function.input_signature]

    def run(rows: list[np.ndarray]) -> np.ndarray:
        signature = interpreter.get_signature_runner()
        return signature(**dict(zip(names, rows, strict=True)))["samples"]

    return content, run
