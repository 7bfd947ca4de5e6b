"""Writes samples as an image, a folder of images or an archive of arrays (--mode=sample)."""

import io
import posixpath
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from .config import Config
from .data.registry import Kind
from .errors import UserError
from .files import check_new_folder, convert_file_errors, write_atomic
from .pictures import image_grid, point_plot, to_pixels
from .run_directory import RunDirectory
from .sampling import GRID_SIDE, Sampler, grid_columns, interpolations

ENDINGS = {"grid": ".png", "interpolation": ".png", "png": "", "npz": ".npz"}
REMEDY = "make room there, or give an --output that you may write to"


def check(config: Config, kind: Kind) -> None:
    """Checks the settings of --mode=sample, before anything is restored.

    Args:
      config: The configuration of the run.
      kind: The shape and the number of classes of its data.

    Raises:
      UserError: If the class does not exist, the format does not fit the data, or --output
        cannot be written or exists already.
    """
    if config.sample_class is not None and config.sample_class >= kind.classes:
        asked = f"--sample_class={config.sample_class}"
        if not kind.classes:
            raise UserError(
                f"{asked}: the run in --model_dir={config.run_directory} knows no classes",
                "omit it",
            )
        raise UserError(
            f"{asked} is beyond the {kind.classes} classes of the run",
            f"give 0 to {kind.classes - 1}",
        )
    if config.sample_format == "png" and len(kind.example_shape) == 1:
        raise UserError(
            "--sample_format=png writes a picture of each sample, but the run's are points",
            "use grid, which plots them, or npz",
        )
    if config.output is not None:
        _check_output(config.output, config.sample_format)


def _check_output(path: str, sample_format: str) -> None:
    flag, ending = f"--output={path}", ENDINGS[sample_format]
    if not path.endswith(ending):
        raise UserError(
            f"{flag} does not end in {ending}, as --sample_format={sample_format} does",
            f"give a file {ending}",
        )
    with convert_file_errors(flag, "read", REMEDY):
        if not ending:  # the folder must not mix images of different runs
            check_new_folder(flag, path)
        elif tf.io.gfile.isdir(path):
            raise UserError(f"{flag} is a folder", "give a file")
        elif tf.io.gfile.exists(path):
            raise UserError(f"{flag} exists already", "give a new file, or delete that one")


def write(config: Config, kind: Kind, sampler: Sampler, iteration: int) -> str:
    """Draws and writes the samples, and returns the path of the file or folder.

    Args:
      config: The configuration of the run, which passed `check`.
      kind: The shape and the number of classes of its data.
      sampler: Draws the samples.
      iteration: The number of iterations of training done.

    Raises:
      UserError: If the samples cannot be written.
    """
    path = config.output or posixpath.join(
        RunDirectory(config.run_directory).sampled, _default_name(config, iteration)
    )
    if config.sample_format == "npz":
        files = iter([(path, _archive(config, sampler, iteration))])
    elif config.sample_format == "png":
        files = _pictures(_samples(config, sampler), path)
    else:
        files = iter([(path, _png(_overview(config, kind, sampler)))])
    with convert_file_errors(path, "written", REMEDY):
        folder = path if config.sample_format == "png" else posixpath.dirname(path)
        if folder:
            tf.io.gfile.makedirs(folder)
        for name, content in files:
            write_atomic(name, content)
    return path


def _default_name(config: Config, iteration: int) -> str:
    """Returns a name that is unique to the samples, so that only equal samples are overwritten."""
    parts = ["ckpt", iteration, "seed", config.sampling_seed]
    if config.sample_class is not None:
        parts += ["class", config.sample_class]
    parts += [config.sample_format, config.num_samples]
    return "-".join(map(str, parts)) + ENDINGS[config.sample_format]


def _samples(config: Config, sampler: Sampler) -> np.ndarray:
    return sampler.sample(config.num_samples, config.sample_class, show_progress=True)


def _overview(config: Config, kind: Kind, sampler: Sampler) -> np.ndarray:
    """Returns all samples in one image, uint8 `[H, W, C]`."""
    if config.sample_format == "interpolation":
        rows, columns = -(-config.num_samples // GRID_SIDE), GRID_SIDE
        samples = interpolations(sampler, rows, columns, config.sample_class)
    else:
        columns = grid_columns(sampler.classes if config.sample_class is None else 0)
        samples = _samples(config, sampler)
    return point_plot(samples) if len(kind.example_shape) == 1 else image_grid(samples, columns)


def _pictures(samples: np.ndarray, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yields the path and the content of a PNG file for each sample."""
    # disable=None shows a progress bar only if stderr is a terminal.
    numbers = tqdm.tqdm(range(len(samples)), unit="file", delay=1, leave=False, disable=None)
    for number in numbers:
        yield posixpath.join(folder, f"{number:05d}.png"), _png(to_pixels(samples[number]))


def _png(picture: np.ndarray) -> bytes:
    return tf.io.encode_png(picture).numpy()


def _archive(config: Config, sampler: Sampler, iteration: int) -> bytes:
    """Returns an .npz of samples, latents, seed, iteration and, for a conditional run, labels."""
    latents, labels = sampler.noise(config.num_samples, config.sample_class)
    arrays: dict[str, Any] = {
        "samples": _samples(config, sampler),
        "latents": latents,
        "seed": np.int64(config.sampling_seed),
        "iteration": np.int64(iteration),
        **({"labels": labels} if sampler.classes else {}),
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()
