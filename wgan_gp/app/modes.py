"""A function for each mode that uses a saved run: sample, evaluate and export."""

from __future__ import annotations

import posixpath
import typing
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from ..data.data_record import warn_of_other_data
from ..errors import reason
from ..inference import export, sample_files
from ..inference.sampling import Sampler
from ..run_directory.files import (
    check_inside,
    check_new_file,
    write_output,
)
from ..runtime.devices import default_device, find_platform
from .connection import connect_for_inference
from .exported import write_export
from .library import Library
from .run_errors import explaining_errors
from .saved_run import SavedRun, find_checkpoint, find_run, restore

if typing.TYPE_CHECKING:
    from ..evaluation.examples import Examples


def use(mode: str, path: str, given: Mapping[str, Any]) -> None:
    """Runs a mode that uses a saved run; see `Config.mode`.

    Args:
      mode: A member of SAVED_RUN_MODES.
      path: The run directory.
      given: The settings of the command line; see `find_run`.

    Raises:
      UserError: If the run or its checkpoint does not exist, or the settings do not fit the run.
    """
    modes = {"sample": _sample, "export": _export, "evaluate": _evaluate}
    saved = find_run(path, given, Library(), mode)
    with explaining_errors(saved.config):
        modes[mode](saved)


def _sample(saved: SavedRun) -> None:
    """Writes samples in the format of --sample_format and prints their path."""
    sample_files.check(saved.config, saved.spec)
    conditions = sample_files.read_conditions(saved.config, saved.spec)
    checkpoint = find_checkpoint(saved)
    run = restore(saved, checkpoint, connect_for_inference(saved.config))
    path = sample_files.write(
        saved.config, saved.directory, run.sampler, run.iteration, saved.spec, conditions
    )
    print(path)


def _export(saved: SavedRun) -> None:
    """Writes the generator as a SavedModel and a Keras file, and prints their path.

    The export uses one device of this machine, regardless of the devices of training.
    """
    output = saved.config.output
    folder = output or saved.directory.exported
    if output is None:
        check_inside(saved.directory.path, folder)
    export.check(folder, f"--output={output}" if output else folder)
    checkpoint = find_checkpoint(saved)
    one = default_device(find_platform(saved.config))
    write_export(folder, saved, restore(saved, checkpoint, one))
    print(folder)


def _evaluate(saved: SavedRun) -> None:
    """Evaluates samples, prints a table and records the metrics in the run directory."""
    # These import SciPy and scikit-learn, for which the other modes should not wait.
    from ..evaluation import closest, results  # noqa: PLC0415
    from ..evaluation.evaluator import open_evaluator  # noqa: PLC0415
    from ..evaluation.examples import Examples  # noqa: PLC0415

    config, directory = saved.config, saved.directory
    for path in (directory.evaluations, directory.evaluation):
        check_inside(directory.path, path)
    if config.closest:
        closest.check(saved.spec, f"--closest={config.closest}")
        if config.output is not None:
            check_new_file(config.output, ".png", "--closest")
    checkpoint = find_checkpoint(saved)
    devices = connect_for_inference(config)
    run = restore(saved, checkpoint, devices)
    # Without --conditioning: a conditional run may be compared with images that have no labels.
    dataset = saved.find_dataset()
    examples = Examples(dataset, devices.strategy, config.batch_size)
    evaluator = open_evaluator(config, devices, run.sampler, examples, directory)
    is_chief = devices.cluster.is_chief
    if is_chief:
        warn_of_other_data(directory, dataset.fingerprint())
    values = evaluator.evaluate()
    if is_chief:
        print(results.table(run.iteration, values, evaluator.metadata), flush=True)
        try:  # a run in a read-only directory can be evaluated, too
            results.record(directory, run.iteration, values, evaluator.metadata)
        except (tf.errors.OpError, OSError) as error:
            logging.warning(
                f"--model_dir={directory.path} cannot be written ({reason(error)}), so "
                "these metrics are not recorded there"
            )
    if config.closest:
        _write_closest(saved, run.sampler, examples, run.iteration, is_chief=is_chief)


def _write_closest(
    saved: SavedRun, sampler: Sampler, examples: Examples, iteration: int, *, is_chief: bool
) -> None:
    """Writes a picture of samples and the training images closest to them, and prints its path."""
    from ..evaluation import closest  # noqa: PLC0415

    config, directory = saved.config, saved.directory
    path = config.output or posixpath.join(directory.evaluations, f"closest-ckpt-{iteration}.png")
    if config.output is None:
        check_inside(directory.path, path)
    count = max(config.closest, min(closest.MOST_SAMPLES, config.evaluate_samples))
    text, picture = closest.compare(sampler.sample(count), examples, config.closest)
    if is_chief:
        write_output(path, tf.io.encode_png(picture).numpy())
        print(f"{text}\n{path}")
