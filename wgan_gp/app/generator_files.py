"""The files of an export from which `wgan_gp.load` builds the networks again.

They may come from another person. They contain no code and no path, and every value is checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import posixpath
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import tensorflow as tf

from .. import losses
from ..config import PYTHON, Config
from ..data.data_record import DataRecord
from ..data.frames import restore_types
from ..data.spec import DataSpec
from ..errors import UserError, explaining, naming, shorten
from ..inference import weights
from ..inference.sampling import Sampler, samples_in_units
from ..inference.scoring import Scorer, score_in_units
from ..run_directory.files import convert_file_errors
from ..run_directory.json_files import read_object, to_text
from ..run_directory.typed_json import load_dataclass
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices, find_platform
from .build import generator_builder, make_sampler, network_builder
from .library import Library
from .saved_run import RestoredRun, SavedRun
from .user_code import loading
from .user_code.network_checks import find_user_networks
from .user_code.user_networks import UserNetworks

CONFIG, DATA = "config.json", "data.json"
WEIGHTS, CRITIC = "generator.npz", "critic.npz"
_REMEDY = "export or download it again"
# What only the critic needs; "model" has another value for it.
_CRITIC_SETTINGS = {"model", "critic_normalization", "critic_pooling", "minibatch_stddev"}
# The settings from which the generator is built, and the seed of its samples.
_SETTINGS = {
    "seed",
    "model",
    *(
        field.name
        for field in dataclasses.fields(Config)
        if field.metadata["kind"] == "networks" and field.name not in _CRITIC_SETTINGS
    ),
}


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


def files_of(saved: SavedRun, run: RestoredRun) -> dict[str, bytes | str]:
    """Returns the content of the files of a run's generator, by name.

    Args:
      saved: The run.
      run: Its networks.
    """
    config = saved.config
    own = find_user_networks(config, saved.library.models)
    # Not the path of the file
    name = PYTHON if "generator" in own else config.generator_model or config.model
    settings = {name: getattr(config, name) for name in sorted(_SETTINGS)}
    settings |= {"model": name, "generator_model": name}
    of_critic = {name: getattr(config, name) for name in sorted(_CRITIC_SETTINGS)}
    of_critic["model"] = PYTHON if "critic" in own else config.model
    # The fingerprint of the data does not concern other people, nor do all of its conditions.
    conditions = None if saved.spec.conditions is None else saved.spec.conditions.recorded()
    record = DataRecord(dataclasses.replace(saved.spec, conditions=conditions), size=saved.size)
    return {
        CONFIG: to_text({**settings, "critic": of_critic}),
        DATA: to_text(record),
        WEIGHTS: weights.pack(run.state.sampling_generator),
        CRITIC: weights.pack(run.state.critic),
    }


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
    config_path, data_path = posixpath.join(folder, CONFIG), posixpath.join(folder, DATA)
    config, of_critic = _read_config(folder, config_path, seed)
    spec = load_dataclass(DataRecord, _read(folder, data_path), data_path, _REMEDY).spec
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
    devices = Devices(tf.distribute.get_strategy(), SINGLE_PROCESS, find_platform(config))

    def restore(build: Callable[[], Any], name: str, *, is_own: bool) -> Any:
        # A graph that is not executed has the shapes of the weights, but takes no memory, so that a
        # file cannot ask for it. The caller's own network may need eager execution.
        place = contextlib.nullcontext() if is_own else tf.Graph().as_default()
        with naming(config_path), explaining("the network"), place:
            specs = weights.specs_of(build())
        arrays = weights.read(posixpath.join(folder, name), specs, _REMEDY)
        network = build()
        weights.assign(network, arrays)
        return network

    with naming(config_path), explaining("the network"):
        build = generator_builder(config, devices, spec, models)
    generator = restore(build, WEIGHTS, is_own=config.model == PYTHON)
    sampler = make_sampler(config, devices, generator, spec)

    def open_scorer() -> Scorer:
        build = network_builder(of_critic, devices, spec, models)
        critic = restore(lambda: build()[1], CRITIC, is_own=bool(own))
        score = losses.score
        return Scorer(sampler, critic, score, labeled_critic=of_critic.critic_takes_labels)

    network = getattr(generator, "network", generator)
    return LoadedGenerator(network, sampler, spec, open_scorer)


def _read_config(folder: str, path: str, seed: int | None) -> tuple[Config, Config]:
    """Returns the configurations of a generator and its critic, of which only settings are read."""
    content = _read(folder, path)
    of_critic = content.get("critic")
    if not isinstance(of_critic, dict) or not isinstance(of_critic.get("model"), str):
        raise UserError(
            f"{path} is not that of an export",
            "give a folder that --mode=export wrote, such as exported/ in the run directory",
        )
    settings = {name: value for name, value in content.items() if name in _SETTINGS}
    config = load_dataclass(Config, settings, path, _REMEDY)
    if None in (config.model, config.generator_width) or config.model != config.generator_model:
        raise UserError(f"{path} does not describe a generator", _REMEDY)
    for name in _CRITIC_SETTINGS & set(of_critic):
        settings[name] = of_critic[name]
    critic = load_dataclass(Config, settings, path, _REMEDY)
    return (config if seed is None else dataclasses.replace(config, seed=seed)), critic


def _read(folder: str, path: str) -> dict[str, Any]:
    with convert_file_errors(path, "read", "check the path"):
        content = read_object(path, remedy=_REMEDY)
    if content is None:
        raise UserError(
            f"{folder} contains no generator ({posixpath.basename(path)} is missing)",
            "give a folder that --mode=export wrote",
        )
    return content


def _user_networks(model: Any) -> UserNetworks:
    """Returns the networks of the user; a function or a network is the generator alone."""
    if isinstance(model, str):
        model = loading.load_code("model", model).module
    elif not isinstance(model, ModuleType):
        model = SimpleNamespace(generator=model)
    return UserNetworks("wgan_gp.load", model)
