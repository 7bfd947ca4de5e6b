"""Writes samples as an image, a folder of images or an archive of arrays (--mode=sample)."""

import io
import posixpath
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from ..config import OutputSettings
from ..data.datasets import DataSpec
from ..errors import UserError
from ..run_directory.directory import RunDirectory
from ..run_directory.files import check_new_folder, convert_file_errors, write_atomic
from .images import image_grid, point_plot, to_pixels
from .sampling import GRID_SIDE, Sampler, grid_columns, interpolations

ENDINGS = {"grid": ".png", "interpolation": ".png", "png": "", "npz": ".npz"}
REMEDY = "free disk space or check the permissions, or give another --output"


def check(settings: OutputSettings, spec: DataSpec, directory: RunDirectory) -> None:
    """Checks the settings of --mode=sample, before anything is restored.

    Args:
      settings: The settings of the samples.
      spec: The shape and the number of classes of the run's data.
      directory: The directory of the run.

    Raises:
      UserError: If the class does not exist, the format does not fit the data, or --output
        cannot be written or exists already.
    """
    if settings.sample_class is not None and settings.sample_class >= spec.classes:
        asked = f"--sample_class={settings.sample_class}"
        if not spec.classes:
            raise UserError(
                f"{asked}: the run in --model_dir={directory.path} is unconditional",
                "omit it",
            )
        raise UserError(
            f"{asked} is beyond the {spec.classes} classes of the run",
            f"give 0 to {spec.classes - 1}",
        )
    if settings.sample_format == "png" and len(spec.example_shape) == 1:
        raise UserError(
            "--sample_format=png writes an image per sample, but this run generates points",
            "use grid, which plots the points, or npz",
        )
    if settings.output is not None:
        _check_output(settings.output, settings.sample_format)


def _check_output(path: str, sample_format: str) -> None:
    flag, ending = f"--output={path}", ENDINGS[sample_format]
    if not path.endswith(ending):
        raise UserError(
            f"{flag} does not end in {ending}, which --sample_format={sample_format} requires",
            f"give a file name that ends in {ending}",
        )
    with convert_file_errors(flag, "read", REMEDY):
        if not ending:  # the folder must not mix images of different runs
            check_new_folder(flag, path)
        elif tf.io.gfile.isdir(path):
            raise UserError(f"{flag} is a folder", "give the name of a file")
        elif tf.io.gfile.exists(path):
            raise UserError(f"{flag} already exists", "give another file name, or delete the file")


def write(
    settings: OutputSettings, directory: RunDirectory, sampler: Sampler, iteration: int
) -> str:
    """Draws and writes the samples, and returns the path of the file or folder.

    Args:
      settings: The settings of the samples, which passed `check`.
      directory: The directory of the run, where the samples are written unless --output is given.
      sampler: Draws the samples.
      iteration: The number of iterations of training done.

    Raises:
      UserError: If the samples cannot be written.
    """
    path = settings.output or posixpath.join(
        directory.sampled, _default_name(settings, sampler.seed, iteration)
    )
    if settings.sample_format == "npz":
        files = iter([(path, _archive(settings, sampler, iteration))])
    elif settings.sample_format == "png":
        files = _image_files(_samples(settings, sampler), path)
    else:
        files = iter([(path, _png(_overview(settings, sampler)))])
    with convert_file_errors(path, "written", REMEDY):
        folder = path if settings.sample_format == "png" else posixpath.dirname(path)
        if folder:
            tf.io.gfile.makedirs(folder)
        for name, content in files:
            write_atomic(name, content)
    return path


def _default_name(settings: OutputSettings, seed: int, iteration: int) -> str:
    """Returns a name that is unique to the samples, so that only equal samples are overwritten."""
    parts = ["ckpt", iteration, "seed", seed]
    if settings.sample_class is not None:
        parts += ["class", settings.sample_class]
    parts += [settings.sample_format, settings.num_samples]
    return "-".join(map(str, parts)) + ENDINGS[settings.sample_format]


def _samples(settings: OutputSettings, sampler: Sampler) -> np.ndarray:
    return sampler.sample(settings.num_samples, settings.sample_class, show_progress=True)


def _overview(settings: OutputSettings, sampler: Sampler) -> np.ndarray:
    """Returns all samples in one image, uint8 `[H, W, C]`."""
    if settings.sample_format == "interpolation":
        rows, columns = -(-settings.num_samples // GRID_SIDE), GRID_SIDE
        samples = interpolations(sampler, rows, columns, settings.sample_class)
    else:
        columns = grid_columns(sampler.classes if settings.sample_class is None else 0)
        samples = _samples(settings, sampler)
    return point_plot(samples) if samples.ndim == 2 else image_grid(samples, columns)


def _image_files(samples: np.ndarray, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yields the path and the content of a PNG file for each sample."""
    # disable=None shows a progress bar only if stderr is a terminal.
    numbers = tqdm.tqdm(range(len(samples)), unit="file", delay=1, leave=False, disable=None)
    for number in numbers:
        yield posixpath.join(folder, f"{number:05d}.png"), _png(to_pixels(samples[number]))


def _png(image: np.ndarray) -> bytes:
    return tf.io.encode_png(image).numpy()


def _archive(settings: OutputSettings, sampler: Sampler, iteration: int) -> bytes:
    """Returns an .npz of samples, latents, seed, iteration and, labels or conditions."""
    latents, labels = sampler.noise(settings.num_samples, settings.sample_class)
    known = sampler.conditions
    arrays: dict[str, Any] = {
        "samples": _samples(settings, sampler),
        "latents": latents,
        "seed": np.int64(sampler.seed),
        "iteration": np.int64(iteration),
        **({"labels": labels} if sampler.classes else {}),
        **({"conditions": known.restore(labels)} if known is not None else {}),
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()
