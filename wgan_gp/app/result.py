"""Trained networks as Python gets them: the result of training, and a loaded export."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import posixpath
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from .. import losses
from ..config import PYTHON
from ..data.frames import restore_types
from ..data.spec import DataSpec
from ..errors import UserError, explaining, naming, shorten
from ..inference import export, weights
from ..inference.sampling import Sampler, samples_in_units
from ..inference.scoring import Scorer, score_in_units
from ..run_directory.json_files import read_log
from ..runtime.devices import default_device, find_platform
from . import exported, saved_run
from .build import generator_builder, make_sampler, network_builder
from .library import Library
from .run import Run
from .user_code import loading
from .user_code.user_networks import UserNetworks


class TrainedNetworks:
    """Trained networks, which draw samples and score examples in the units of the data.

    Attributes:
      sampler: Draws samples.
      spec: The properties of the data.
      scorer: Scores normalized examples.
    """

    sampler: Any
    spec: Any
    scorer: Any

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
        samples = samples_in_units(
            self.sampler, self.spec.units, count, label, conditions=conditions
        )
        return self._as_given(samples, count, label, conditions)

    def _as_given(self, samples: Any, count: int, label: int | None, conditions: Any) -> Any:
        """Returns samples in the form in which the data was given, if it is known."""
        return samples if self.spec.table is None else restore_types(samples, self.spec.types)

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
        return score_in_units(
            self.scorer, self.spec, examples, labels, conditions=conditions, distances=distances
        )


@dataclasses.dataclass(frozen=True)
class LoadedGenerator(TrainedNetworks):
    """A trained generator, as `wgan_gp.load` returns it.

    Attributes:
      generator: A Keras model, or the network that was passed.
      sampler: Draws its samples. Those of a table of numbers are an array.
      spec: The properties of the data that it was trained on.
      open_scorer: Loads the critic, when it is first needed.
    """

    generator: Any
    sampler: Sampler
    spec: DataSpec
    open_scorer: Callable[[], Scorer]

    @functools.cached_property
    def scorer(self) -> Scorer:
        return self.open_scorer()


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
            one = default_device(run.devices.platform)
            restored = saved_run.restore(saved, saved_run.find_checkpoint(saved), one)
        exported.write_export(folder, saved, restored)
        return folder


def load(
    folder: str, library: Library, model: Any = None, seed: int | None = None
) -> LoadedGenerator:
    """Returns the networks of an exported folder; see `wgan_gp.load`.

    Args:
      folder: The folder.
      library: The networks, and the parts of the user.
      model: The network of the user, if the generator is one.
      seed: The seed of the samples. Default: that of the export.

    Raises:
      UserError: If the folder contains no generator, a file is damaged, or `model` is missing.
    """
    config_path = posixpath.join(folder, exported.CONFIG)
    config, of_critic, spec = exported.read_settings(folder, seed)
    models, own = library.models, {config.model, of_critic.model} & {PYTHON}
    if config.model == PYTHON and model is None:
        raise UserError(
            f"the generator of {config_path} is code of its author, which a download does not "
            "contain",
            "pass it: wgan_gp.load(..., model=...), a function of the design that returns it, or "
            "the value of --model",
        )
    if own:
        models = models.with_networks({PYTHON: _user_networks(model)})
    elif model is not None:
        raise UserError(
            f"{config_path} describes the network {config.model} of this package, but model= is "
            "given",
            "omit model=",
        )
    for name in (config.model, of_critic.model):
        if name not in models:
            raise UserError(
                f"{config_path} names the network {shorten(repr(name))}, which this version does "
                "not have",
                "use the version that exported it",
            )
    devices = default_device(find_platform(config))

    def restore(build: Callable[[], Any], name: str, *, is_own: bool) -> Any:
        # A graph that is not executed has the shapes of the weights, but takes no memory, so that a
        # file cannot ask for it. The caller's own network may need eager execution.
        place = contextlib.nullcontext() if is_own else tf.Graph().as_default()
        with naming(config_path), explaining("the network"), place:
            specs = weights.specs_of(build())
        arrays = weights.read(posixpath.join(folder, name), specs, exported.REMEDY)
        network = build()
        weights.assign(network, arrays)
        return network

    with naming(config_path), explaining("the network"):
        build = generator_builder(config, devices, spec, models)
    generator = restore(build, exported.WEIGHTS, is_own=config.model == PYTHON)
    sampler = make_sampler(config, devices, generator, spec)

    def open_scorer() -> Scorer:
        build = network_builder(of_critic, devices, spec, models)
        critic = restore(lambda: build()[1], exported.CRITIC, is_own=bool(own))
        score = losses.score
        return Scorer(sampler, critic, score, labeled_critic=of_critic.critic_takes_labels)

    network = getattr(generator, "network", generator)
    return LoadedGenerator(network, sampler, spec, open_scorer)


def _user_networks(model: Any) -> UserNetworks:
    """Returns the networks of the user; a function or a network is the generator alone."""
    if isinstance(model, str):
        model = loading.load_code("model", model).module
    elif not isinstance(model, ModuleType):
        model = SimpleNamespace(generator=model)
    return UserNetworks("wgan_gp.load", model)


def _unwrap(network: Any) -> Any:
    return getattr(network, "network", network)
