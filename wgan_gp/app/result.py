"""The result of training, as `wgan_gp.train` returns it."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..data.tables.table import Table
from ..inference import export
from ..inference.sampling import samples_in_units
from ..inference.scoring import Scorer, score_in_units
from ..run_directory.json_files import read_log
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices
from . import saved_run
from .run import Run
from .saved_run_modes import write_export


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of training.

    Attributes:
      run: The run, with its networks and optimizers in `run.state`.
      iteration: The number of iterations done.
      stopped_by: The number of the signal that stopped training, or None if it is complete
        or has reached --stop_step.
    """

    run: Run
    iteration: int
    stopped_by: int | None

    @property
    def generator(self) -> Any:
        """The trained generator: a Keras model, or the network that was passed or a copy of it.

        With --generator_ema_decay, samples are drawn from `run.state.generator_average` instead.
        """
        return _unwrap(self.run.state.generator)

    @property
    def critic(self) -> Any:
        """The trained critic, likewise."""
        return _unwrap(self.run.state.critic)

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The scalars of all summaries of the run, also of those before a resume.

        "step" holds the iterations, `[N]` int64. Each other tag, such as "critic/wasserstein",
        holds `[N]` float64, with NaN where a summary did not contain it.
        """
        lines = [json.loads(line) for _, line in read_log(self.run.directory.metrics).lines]
        tags = dict.fromkeys(
            tag
            for line in lines
            for tag, value in line.items()
            if tag != "step" and isinstance(value, int | float)
        )
        return {
            "step": np.array([line["step"] for line in lines], np.int64),
            **{tag: np.array([line.get(tag, np.nan) for line in lines], float) for tag in tags},
        }

    def sample(self, count: int, label: int | None = None, *, conditions: Any = None) -> Any:
        """Returns samples in the units of the data, `[count, *example_shape]`.

        Pictures and data of Python that are integers are uint8, or uint16 for pictures of 16 bits;
        other data of Python and --dataset=digits are float32, images in [-1, 1]. If the data was
        given as a DataFrame, or is a typed table (--column_types), the samples are a DataFrame,
        with the columns of the data that the networks use.

        Args:
          count: The number of samples. Sample i does not depend on it.
          label: The class of the samples of a conditional run. None returns all classes in turn.
          conditions: Conditions in the units of the data, `[K]` or `[M, K]`, which the samples have
            in turn. None returns samples for conditions of the data.

        Raises:
          UserError: If there is no such class, or the networks take no conditions, or others.
        """
        dataset, sampler = self.run.dataset, self.run.sampler
        units = dataset.spec.units
        samples = samples_in_units(sampler, units, count, label, conditions=conditions)
        if isinstance(units, Table):
            return dataset.with_given_columns(samples)
        if units is None:
            return samples
        _, labels = sampler.noise(count, label, conditions=conditions)
        used = None if sampler.conditions is None else sampler.conditions_of(count, conditions)
        return dataset.as_given(samples, labels if sampler.classes else None, used)

    def score(
        self, examples: Any, labels: Any = None, *, conditions: Any = None, distances: bool = False
    ) -> Any:
        """Returns the critic's scores of examples, `[N]` float32, larger for those that look real.

        Args:
          examples: `[N, ...]` in the units of the data; images are uint8 or in [-1, 1]. For a typed
            table, a DataFrame with the columns of the data.
          labels: The numbers of the classes of a conditional run, `[N]`. Those of a typed table
            are in its columns.
          conditions: The conditions of a run with conditions, `[N, K]`, in the units of the data.
          distances: Whether to return a pair: the scores, and the distances to the nearest sample
            that was found, `[N]` float32. Distances are Euclidean, between examples as the
            networks see them, in the units of --scaling.

        Raises:
          UserError: If the examples are not like those of the data, or labels or conditions are
            missing.
        """
        spec = self.run.dataset.spec
        return score_in_units(
            self._scorer, spec, examples, labels, conditions=conditions, distances=distances
        )

    @functools.cached_property
    def _scorer(self) -> Scorer:
        run = self.run
        return Scorer(
            run.sampler,
            run.state.critic,
            run.library.losses.score,
            labeled_critic=run.config.critic_takes_labels,
        )

    def evaluate(self) -> Mapping[str, float]:
        """Returns the metrics of --mode=evaluate, by tag, such as "evaluation/fid".

        Raises:
          UserError: If the data has no labels and no --feature_extractor is set that suits it.
        """
        return self.run.open_evaluator().evaluate()

    def export(self, folder: str | os.PathLike | None = None) -> str:
        """Writes both networks as --mode=export does, and returns the folder.

        Args:
          folder: The folder, which must be new or empty. Defaults to "exported" in the run
            directory.

        Raises:
          UserError: If the folder is not empty or cannot be written.
        """
        run = self.run
        folder = os.fspath(folder or run.directory.exported)
        export.check(folder, folder)
        config = dataclasses.replace(
            run.config, restore_from=None, restore=None, checkpoint="latest"
        )
        spec, size = run.dataset.spec, run.dataset.count(run.data.size)
        saved = saved_run.SavedRun(config, run.directory, spec, run.library, size)
        restored = saved_run.RestoredRun(run.state, run.sampler, self.iteration)
        # The variables of an export must not be distributed.
        if run.devices.strategy.num_replicas_in_sync > 1:
            one = Devices(tf.distribute.get_strategy(), SINGLE_PROCESS, run.devices.platform)
            restored = saved_run.restore(saved, saved_run.find_checkpoint(saved), one)
        write_export(folder, saved, restored)
        return folder


def _unwrap(network: Any) -> Any:
    return getattr(network, "network", network)
