"""The result of training, as `wgan_gp.train` returns it."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .. import losses
from ..data.spec import DataSpec
from ..inference import export
from ..inference.sampling import Sampler
from ..inference.scoring import Scorer
from ..run_directory.json_files import read_log
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices
from . import saved_run
from .generator_files import TrainedNetworks
from .run import Run
from .saved_run_modes import write_export


@dataclasses.dataclass(frozen=True)
class Result(TrainedNetworks):
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
        lines = read_log(self.run.directory.metrics).entries
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

    @property
    def sampler(self) -> Sampler:
        return self.run.sampler

    @property
    def spec(self) -> DataSpec:
        return self.run.dataset.spec

    @functools.cached_property
    def scorer(self) -> Scorer:
        run = self.run
        labeled = run.config.critic_takes_labels
        score = losses.score
        return Scorer(run.sampler, run.state.critic, score, labeled_critic=labeled)

    def _as_given(self, samples: Any, count: int, label: int | None, conditions: Any) -> Any:
        samples = super()._as_given(samples, count, label, conditions)
        columns = self.run.dataset.source.columns
        return samples if columns is None else samples.set_axis(columns, axis=1)

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
        spec, size = run.dataset.spec, run.dataset.count(run.data)
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
