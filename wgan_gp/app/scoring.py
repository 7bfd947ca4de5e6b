"""Scores examples with the networks of a saved run (--mode=score)."""

from __future__ import annotations

import collections
import posixpath
from collections.abc import Iterator

import numpy as np

from ..config import Config
from ..data import scored
from ..errors import UserError
from ..inference import score_files
from ..inference.scoring import Scorer, SearchSettings
from ..run_directory.files import check_inside, convert_file_errors
from ..runtime.devices import Devices, connect
from .saved_run import SavedRun, find_checkpoint, restore

_BATCH_SIZE = 128  # examples


def score(saved: SavedRun) -> None:
    """Writes the scores of examples to a CSV file and prints its path.

    Args:
      saved: The run.

    Raises:
      UserError: If the examples cannot be read or do not fit the run, or the file exists already.
    """
    config, directory = saved.config, saved.directory
    if config.output is not None:
        score_files.check_output(config.output)
    else:
        check_inside(directory.path, directory.scored)
    if config.score_data is not None:
        with convert_file_errors(f"--score_data={config.score_data}", "read", "check the path"):
            scored.check_path(config.score_data, is_array=saved.scaling is not None)
    checkpoint = find_checkpoint(saved)
    devices = connect(config)
    run = restore(saved, checkpoint, devices)
    scorer = Scorer(
        run.sampler,
        run.state.sampling_generator,
        run.state.critic,
        saved.library.losses.score,
        devices.strategy,
        SearchSettings(config.score_starts, config.score_steps, config.latent_size),
        config.critic_takes_labels,
    )
    path = config.output or posixpath.join(
        directory.scored, f"ckpt-{run.iteration}-{_data_name(config)}.csv"
    )
    is_chief = devices.cluster.is_chief
    scores = _scores(saved, scorer, _examples(saved, devices))
    if is_chief:
        score_files.write(path, scores)
        print(path)
    else:  # it takes part in the computation on all replicas
        collections.deque(scores, maxlen=0)


def _data_name(config: Config) -> str:
    """Returns the name of the scored data for the name of a file."""
    name = posixpath.basename((config.score_data or config.dataset).rstrip("/"))
    return posixpath.splitext(name)[0] or "examples"


def _examples(saved: SavedRun, devices: Devices) -> Iterator[scored.ExampleBatch]:
    config = saved.config
    if config.score_data is not None:
        with convert_file_errors(f"--score_data={config.score_data}", "read", "check the path"):
            yield from scored.read_path(config.score_data, saved.spec, _BATCH_SIZE, saved.scaling)
        return
    dataset = saved.find_dataset()
    if devices.cluster.is_chief:
        saved.directory.warn_of_other_data(dataset.fingerprint())
    yield from scored.read_dataset(dataset, config.score_examples, _BATCH_SIZE)


def _scores(
    saved: SavedRun, scorer: Scorer, batches: Iterator[scored.ExampleBatch]
) -> Iterator[tuple[scored.ExampleBatch, dict[str, np.ndarray]]]:
    """Yields batches with their scores.

    Raises:
      UserError: If the run is conditional and a batch has no labels of its classes or no
        conditions.
    """
    classes, conditions = saved.spec.classes, saved.spec.conditions
    for batch in batches:
        if classes and (batch.labels is None or not np.all(batch.labels < classes)):
            raise UserError(
                f"--mode=score needs a label from 0 to {classes - 1} for each example, because "
                f"--model_dir={saved.directory.path} is a conditional run",
                "give --score_data a .npz file of examples and labels",
            )
        if conditions is not None and (batch.labels is None or batch.labels.ndim != 2):
            raise UserError(
                f"--mode=score needs {conditions.size} number{'s' if conditions.size > 1 else ''} "
                "as the condition of each example, because "
                f"--model_dir={saved.directory.path} is a run with conditions",
                "give --score_data a .npz file of examples and conditions",
            )
        yield batch, scorer.score(batch.examples, batch.labels, batch_size=_BATCH_SIZE)
