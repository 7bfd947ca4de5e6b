"""The real images as metrics see them: their features, or statistics of these from a file."""

from __future__ import annotations

import functools
import io
import posixpath
import zipfile
from typing import Any

import numpy as np
import tensorflow as tf

from ..data.sources import listing
from ..errors import UserError, reason, shorten
from ..run_directory.files import file_sha256, read_file, write_output
from . import metrics

_REMEDY = "give a folder of images, or a .npz file of --output, pytorch-fid or clean-fid"
_MOST_BYTES = 2**34  # features of 1,000,000 images have 8 GB
_NAMES = ("mu", "sigma", "feats", "extractor")  # as pytorch-fid and clean-fid; the last is ours
_SYMMETRY = 1e-6  # of the largest value; float32 statistics are this exact
_AGREEMENT = 1e-3  # of the largest value, between moments and features that were rounded
_ENCRYPTED = 1  # a flag of a member of a ZIP file


class Reference:
    """Features of real images, and what the metrics need of them, computed once.

    Args:
      features: `[N, D]`, N >= 2, or None if only their moments are known.
      moments: The moments of the features; by default they are computed.
      extractor: The name of the extractor, or None if a file does not say it.
    """

    def __init__(
        self,
        features: np.ndarray | None,
        moments: metrics.Moments | None = None,
        extractor: str | None = None,
    ):
        if moments is None:
            if features is None:
                raise ValueError("give features or moments")
            moments = metrics.Moments.from_features(features)
        self.features, self.moments, self.extractor = features, moments, extractor

    @functools.cached_property
    def _radii(self) -> np.ndarray:
        assert self.features is not None
        return metrics.squared_radii(self.features)

    def check_extractor(self, origin: str, extractor: str) -> None:
        """Raises UserError if a file names another extractor than that of the samples.

        Args:
          origin: The flag and the file.
          extractor: The `recorded_name` of the extractor of the samples.
        """
        if self.extractor not in (None, extractor):
            raise UserError(
                f"{origin} has features of {shorten(str(self.extractor))}, but those of the "
                f"samples are of {extractor}",
                "use statistics of the same --feature_extractor",
            )

    def compare(self, features: np.ndarray) -> dict[str, float]:
        """Returns the metrics of features `[N, D]` of samples, by name.

        If only moments of the real images are known, the Frechet distance is the only metric.
        """
        moments = metrics.Moments.from_features(features)
        values = {"fid": metrics.frechet_distance(self.moments, moments)}
        if self.features is None:
            return values
        manifold = metrics.manifold_metrics(self.features, features, self._radii)
        return values | {
            "kid": metrics.kernel_distance(self.features, features),
            "kid_deviation": metrics.kernel_distance_deviation(self.features, features),
            "precision": manifold.precision,
            "recall": manifold.recall,
            "density": manifold.density,
            "coverage": manifold.coverage,
        }

    def write(self, path: str) -> None:
        """Writes a file that `read` reads, and pytorch-fid and clean-fid, too.

        Raises:
          UserError: If it cannot be written.
        """
        content = io.BytesIO()
        mean, covariance = self.moments.mean, self.moments.covariance
        arrays: dict[str, Any] = {"mu": mean, "sigma": covariance}
        if self.features is not None:
            arrays["feats"] = self.features
        if self.extractor is not None:
            arrays["extractor"] = np.array(self.extractor)
        np.savez(content, **arrays)
        write_output(path, content.getvalue(), f"--output={path}")


def recorded_name(extractor: str) -> str:
    """Returns the name of an extractor in files of statistics, which names no folder.

    Many extractors are files of one name, so that a part of the hash follows it.

    Args:
      extractor: "inception", or the path of a Keras file or SavedModel, which exists.
    """
    if extractor == "inception":
        return extractor
    files = [extractor]
    if tf.io.gfile.isdir(extractor):
        files = sorted(
            posixpath.join(folder, name)
            for folder, _, names in tf.io.gfile.walk(extractor)
            for name in names
        )
    return f"{posixpath.basename(extractor.rstrip('/'))} {file_sha256(*files)[:16]}"


def read(path: str) -> Reference:
    """Reads the statistics of real images from a .npz file.

    The file has the mean `mu` `[D]` and the covariance `sigma` `[D, D]` of features, as pytorch-fid
    writes it, or the features `feats` `[N, D]`, as clean-fid does for KID, or all three.

    Args:
      path: The file, the value of --reference.

    Raises:
      UserError: If the file is damaged or has other arrays.
    """
    origin = f"--reference={path}"
    with listing.reading(origin):
        listing.check_path(origin, path)
        content = read_file(path, _MOST_BYTES)
    try:
        arrays = _read_arrays(content)
        found = _reference_of(arrays)
    # NumPy and zipfile raise exceptions of many types for damaged files.
    except Exception as error:
        raise UserError(
            f"{origin} is not a file of statistics ({reason(error)})", _REMEDY
        ) from error
    return found


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in _NAMES:
            file = f"{name}.npy"
            if file not in archive.namelist():
                continue
            info = archive.getinfo(file)
            if info.flag_bits & _ENCRYPTED:
                raise ValueError(f"{name} is encrypted")
            if info.file_size > _MOST_BYTES:  # as zipfile inflates no more than this
                raise ValueError(f"{name} declares {info.file_size / 1e9:,.0f} GB")
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


def _reference_of(arrays: dict[str, np.ndarray]) -> Reference:
    _check_values(arrays)
    extractor = str(arrays["extractor"]) if "extractor" in arrays else None
    features, mean, covariance = (arrays.get(name) for name in ("feats", "mu", "sigma"))
    if mean is None and covariance is None and features is not None:
        return Reference(features, extractor=extractor)
    if mean is None or covariance is None:
        raise ValueError("it has neither mu and sigma nor feats")
    size = len(mean)
    if covariance.shape != (size, size) or (features is not None and features.shape[1] != size):
        raise ValueError(f"mu has {size} values, but sigma or feats have others")
    covariance = covariance.astype(np.float64)
    if np.abs(covariance - covariance.T).max() > _SYMMETRY * np.abs(covariance).max():
        raise ValueError("sigma is not symmetric")
    if (np.linalg.eigvalsh(covariance) < -_SYMMETRY * np.trace(covariance)).any():
        raise ValueError("sigma has negative variances in some directions")
    moments = metrics.Moments(mean.astype(np.float64), covariance)
    if features is not None:
        _check_moments(moments, features)
    return Reference(features, moments, extractor)


def _check_moments(moments: metrics.Moments, features: np.ndarray) -> None:
    """Raises ValueError unless the moments are those of the features."""
    found, count = metrics.Moments.from_features(features), len(features)
    deviation = np.sqrt(np.diagonal(found.covariance).max())
    scale = deviation + np.abs(found.mean).max()
    if np.abs(moments.mean - found.mean).max() > _AGREEMENT * scale:
        raise ValueError("mu is not the mean of feats")
    # A covariance may be divided by N or by N - 1.
    differences = (
        np.abs(moments.covariance - factor * found.covariance).max()
        for factor in (1, (count - 1) / count, count / (count - 1))
    )
    if min(differences) > _AGREEMENT * deviation**2 + _SYMMETRY * scale**2:
        raise ValueError("sigma is not the covariance of feats")


def _check_values(arrays: dict[str, np.ndarray]) -> None:
    """Raises ValueError unless the arrays have the right axes and finite values."""
    for name, axes in (("mu", 1), ("sigma", 2), ("feats", 2)):
        values = arrays.get(name)
        if values is None:
            continue
        if values.ndim != axes or not np.issubdtype(values.dtype, np.floating):
            raise ValueError(f"{name} is {values.dtype} {list(values.shape)}")
        if not values.size or not np.isfinite(values).all():
            raise ValueError(f"{name} has no values, or values that are NaN or infinite")
        if name == "feats" and len(values) < 2:
            raise ValueError("feats has fewer than two images")
