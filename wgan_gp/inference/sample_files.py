"""Writes samples as an image, a folder of images or an archive of arrays (--mode=sample)."""

from __future__ import annotations

import csv
import hashlib
import io
import posixpath
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from ..config import SamplingSettings
from ..data.frames import is_table, read_frame, require_package, restore_types
from ..data.pixels import Pixels
from ..data.scaling import Scaling
from ..data.selection import Selection
from ..data.spec import KINDS, DataSpec
from ..data.table import Table
from ..errors import UserError, reason, shorten
from ..run_directory.directory import RunDirectory
from ..run_directory.files import (
    OUTPUT_REMEDY,
    check_inside,
    check_new_file,
    check_new_folder,
    convert_file_errors,
    new_folder,
    write_durable,
    write_output,
)
from .images import to_pixels
from .pictures import GRID_SIDE, column_conditions, grid_columns, overview
from .sampling import Sampler, check_finite, interpolations, restored, selected_samples, transitions

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = {"grid": ".png", "interpolation": ".png", "png": "", "npz": ".npz"}
ENDINGS |= {"npy": ".npy", "csv": ".csv", "parquet": ".parquet"}


def check(settings: SamplingSettings, spec: DataSpec) -> None:
    """Checks the settings of --mode=sample, before anything is restored.

    Args:
      settings: The settings of the samples.
      spec: The shape and the number of classes of the run's data.

    Raises:
      UserError: If the format does not fit the data, or --output cannot be written or exists
        already.
    """
    form, shape = settings.format_of_samples, spec.example_shape
    flag, kind, is_table = f"--sample_format={form}", KINDS[len(shape)], spec.table is not None
    for is_wrong, what, remedy in (
        (
            form == "png" and shape[2:] not in ((1,), (3,)),
            f"{flag} writes gray or color images, but this run generates {kind} of shape "
            f"{list(shape)}",
            f"use grid, which plots the {kind}, or npz",
        ),
        (
            form == "png" and not spec.bounded,
            f"{flag} writes levels from 0 to 255, but the samples of this run have no bounds "
            "(--scaling)",
            "use grid, which rescales them, or npz",
        ),
        (
            form == "parquet" and not is_table,
            f"{flag} is for runs on typed tables (--column_types)",
            "use csv or npz",
        ),
        (
            form in ("npy", "npz") and is_table,
            f"{flag} writes numbers, but the run is on a typed table",
            "use csv or parquet",
        ),
        (
            form == "csv" and len(shape) != 1,
            f"{flag} writes a line of features per sample, but the samples of this run have shape "
            f"{list(shape)}",
            "use npz or npy",
        ),
    ):
        if is_wrong:
            raise UserError(what, remedy)
    if form == "parquet":
        require_package("pyarrow", flag)
    if settings.output is not None and ENDINGS[form]:
        check_new_file(settings.output, ENDINGS[form], flag)
    elif settings.output is not None:
        folder = f"--output={settings.output}"
        with convert_file_errors(folder, "read", OUTPUT_REMEDY):
            # A folder must not mix images of different runs.
            check_new_folder(folder, settings.output)


def read_conditions(
    settings: SamplingSettings, spec: DataSpec
) -> np.ndarray | Selection | int | None:
    """Returns the conditions of --sample_conditions, `[M, K]` in the units of the data, or None.

    Those of a typed table are a selection of its rows, and that of a run with classes is a class.

    Args:
      settings: The settings of the samples.
      spec: The conditions of the run's data.

    Raises:
      UserError: If the networks take no conditions, or others.
    """
    text = settings.sample_conditions
    if text is None:
        return None
    flag = f"--sample_conditions={shorten(text)}"
    if spec.conditions is not None and spec.conditions.columns is not None:
        given = read_frame(
            text if is_table(text) else _row_of(text, flag), flag, spec.conditions.columns.texts
        )
        return spec.conditions.checked(given.frame, flag)
    if spec.table is not None:
        if settings.format_of_samples not in ("csv", "parquet"):
            raise UserError(f"{flag} selects rows of a table", "add --sample_format=csv or parquet")
        return Selection.of(text, spec.table, flag)
    if spec.classes:
        names = [str(name) for name in spec.class_names or ()]
        numbers = list(map(str, range(spec.classes)))
        for known in (numbers, names):  # the number counts if it is also the name of another class
            if text in known:
                return known.index(text)
        raise UserError(
            f"{flag} is none of the {spec.classes} classes of the run",
            f"give 0 to {spec.classes - 1}, or a name: {shorten(', '.join(names)) or 'none'}",
        )
    if spec.conditions is None:
        raise UserError(f"{flag}: the networks of this run take no conditions", "omit it")
    return spec.conditions.checked(_given_numbers(text, flag), flag)


def _row_of(text: str, flag: str) -> bytes:
    """Returns the values of columns, such as "energy=5,particle=pi", as a table of one row."""
    cells = next(csv.reader([text], skipinitialspace=True), [])
    pairs = [cell.partition("=") for cell in cells]
    if not all(sign for _, sign, _ in pairs):
        raise UserError(
            f"{flag} does not give values by column",
            'write "NAME=VALUE,NAME=VALUE", or a table',
        )
    content = io.StringIO()
    names = [name.strip() for name, _, _ in pairs]
    csv.writer(content).writerows([names, [value for _, _, value in pairs]])
    return content.getvalue().encode()


def _given_numbers(text: str, flag: str) -> np.ndarray:
    """Returns the numbers in a table, in a .npy file, or in the value of a flag."""
    if is_table(text):
        return read_frame(text, flag).frame.to_numpy(object)
    try:
        if text.lower().endswith(".npy"):
            with (
                convert_file_errors(flag, "read", "check the path"),
                tf.io.gfile.GFile(text, "rb") as file,
            ):
                return np.load(io.BytesIO(file.read()))
        rows = [[float(cell) for cell in row.split(",")] for row in text.split(";")]
        return np.array(rows if len(rows) > 1 else rows[0])
    except (ValueError, EOFError) as error:  # EOFError: an empty file
        raise UserError(
            f"{flag} cannot be read ({reason(error)})",
            "give numbers separated by commas, several conditions separated by semicolons, or a "
            ".npy file or a table of numbers",
        ) from None


def write(
    settings: SamplingSettings,
    directory: RunDirectory,
    sampler: Sampler,
    iteration: int,
    spec: DataSpec,
    wanted: np.ndarray | Selection | int | None,
) -> str:
    """Draws and writes the samples, and returns the path of the file or folder.

    Args:
      settings: The settings of the samples, which passed `check`.
      directory: The directory of the run, where the samples are written unless --output is given.
      sampler: Draws the samples.
      iteration: The number of iterations of training done.
      spec: The properties of the run's data, in whose units the samples are.
      wanted: The class or the conditions of the samples, in turn; see `read_conditions`. None: all
        classes, or conditions of the data.

    Raises:
      UserError: If the samples cannot be written.
    """
    units = spec.units
    label = wanted if isinstance(wanted, int) else None
    conditions = None if isinstance(wanted, int) else wanted
    _announce_classes(label, spec)
    path = settings.output or posixpath.join(
        directory.sampled, _default_name(settings, sampler.seed, iteration, wanted)
    )
    if settings.output is None:
        check_inside(directory.path, path)
    if isinstance(conditions, Selection):
        samples, share = selected_samples(
            sampler, conditions, settings.num_samples, show_progress=True
        )
        logging.info(f"note: {100 * share:.3g}% of the samples that were drawn meet the conditions")
        write_output(path, _rows(settings, restore_types(samples, spec.types)))
        return path
    form, content = settings.format_of_samples, io.BytesIO()
    if form in ("grid", "interpolation"):
        write_output(path, _png(_overview(settings, sampler, units, conditions, label)))
        return path
    drawn = _samples(settings, sampler, conditions, label)
    if form == "png":
        # disable=None shows a progress bar only if stderr is a terminal.
        images = tqdm.tqdm(drawn, unit="file", delay=1, leave=False, disable=None)
        pixels = spec.pixels
        with convert_file_errors(path, "written", OUTPUT_REMEDY), new_folder(path) as inside:
            for number, image in enumerate(images):
                # A picture has the bits of the data.
                levels = to_pixels(image, spec.scaling) if pixels is None else pixels.restore(image)
                write_durable(posixpath.join(inside, f"{number:05d}.png"), _png(levels))
        return path
    samples = restored(sampler, units, drawn, conditions)
    if form == "npz":
        np.savez(content, **_arrays(settings, sampler, iteration, samples, conditions, label, spec))
    elif form == "npy":
        np.save(content, samples)
    elif isinstance(units, Table):
        content.write(_rows(settings, restore_types(samples, spec.types)))
    else:
        lines = io.StringIO(newline="")
        writer = csv.writer(lines)
        if isinstance(units, Scaling) and units.names is not None:
            writer.writerow(units.names)
        # The shortest text that is the same number in the dtype of the samples.
        writer.writerows([str(value) for value in sample] for sample in samples)
        content.write(lines.getvalue().encode())
    write_output(path, content.getvalue())
    return path


def _rows(settings: SamplingSettings, samples: pd.DataFrame) -> bytes:
    """Returns the rows of a typed table as a file."""
    if settings.format_of_samples == "parquet":
        return samples.to_parquet(index=False)
    return samples.to_csv(index=False).encode()


def _announce_classes(number: int | None, spec: DataSpec) -> None:
    """Prints the names of the classes of the samples, which are chosen by number."""
    if not (spec.classes and spec.class_names) or spec.table is not None:
        return
    if number is not None:
        logging.info(f"note: samples of class {number}, {shorten(spec.class_names[number])}")
        return
    names = ", ".join(f"{index}: {name}" for index, name in enumerate(spec.class_names))
    logging.info(
        f"note: samples of {spec.classes} classes in turn, equally many of each also if the data "
        f"has more of some ({shorten(names)})"
    )


def _default_name(
    settings: SamplingSettings,
    seed: int,
    iteration: int,
    wanted: np.ndarray | Selection | int | None,
) -> str:
    """Returns a name that is unique to the samples, so that only equal samples are overwritten."""
    parts = ["ckpt", iteration, "seed", seed]
    if isinstance(wanted, int):
        parts += ["class", wanted]
    elif wanted is not None:
        if isinstance(wanted, Selection):
            content = repr(wanted.conditions).encode()
        else:
            content = wanted.tobytes()
        parts += ["conditions", hashlib.sha256(content).hexdigest()[:8]]
    parts += [settings.format_of_samples, settings.num_samples]
    return "-".join(map(str, parts)) + ENDINGS[settings.format_of_samples]


def _samples(
    settings: SamplingSettings, sampler: Sampler, conditions: np.ndarray | None, label: int | None
) -> np.ndarray:
    samples = sampler.sample(settings.num_samples, label, conditions=conditions, show_progress=True)
    check_finite(samples)
    return samples


def _overview(
    settings: SamplingSettings,
    sampler: Sampler,
    units: Scaling | Table | Pixels | None,
    conditions: np.ndarray | None,
    label: int | None,
) -> np.ndarray:
    """Returns all samples in one image, uint8 `[H, W, C]`; see `pictures.overview`."""
    rows, columns = -(-settings.num_samples // GRID_SIDE), GRID_SIDE
    if settings.format_of_samples != "interpolation":
        in_turn = sampler.classes if label is None else 0
        columns = grid_columns(in_turn if conditions is None else len(conditions))
        if conditions is None:
            conditions = column_conditions(sampler, columns)
        samples = _samples(settings, sampler, conditions, label)
    elif conditions is not None and len(conditions) > 1:
        samples = transitions(sampler, rows, columns, conditions)
    else:
        samples = interpolations(sampler, rows, columns, label, conditions=conditions)
    check_finite(samples)
    return overview(samples, columns, units=units)


def _png(image: np.ndarray) -> bytes:
    return tf.io.encode_png(image).numpy()


def _arrays(
    settings: SamplingSettings,
    sampler: Sampler,
    iteration: int,
    samples: np.ndarray,
    conditions: np.ndarray | None,
    label: int | None,
    spec: DataSpec,
) -> dict[str, Any]:
    """Returns the samples, latents, seed, iteration, and labels or conditions if there are any.

    The labels are the numbers of classes, whose names are in class_names.
    """
    count = settings.num_samples
    latents, labels = sampler.noise(count, label, conditions=conditions)
    arrays: dict[str, Any] = {
        "samples": samples,
        "latents": latents,
        "seed": np.int64(sampler.seed),
        "iteration": np.int64(iteration),
    }
    if sampler.classes:
        arrays["labels"] = labels
        if spec.class_names:
            arrays["class_names"] = spec.class_names
    if sampler.conditions is not None:
        arrays["conditions"] = sampler.conditions_of(count, conditions)
    return arrays
