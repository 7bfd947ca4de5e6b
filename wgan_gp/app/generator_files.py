"""The files of an export from which `wgan_gp.load` builds the generator again.

They may come from another person. They contain no code and no path, and every value is checked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
from types import ModuleType
from typing import Any

import tensorflow as tf

from ..config import PYTHON, Config, has_flag
from ..data.data_record import DataRecord
from ..data.spec import DataSpec
from ..errors import UserError, explaining, naming, shorten
from ..inference import weights
from ..inference.sampling import Sampler, samples_in_units
from ..run_directory.files import convert_file_errors
from ..run_directory.json_files import read_object, to_text
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices, find_platform
from .build import generator_builder, make_sampler
from .library import Library
from .saved_run import RestoredRun, SavedRun
from .user_code import loading
from .user_code.network_checks import find_user_networks
from .user_code.user_networks import UserNetworks

CONFIG, DATA, WEIGHTS = "config.json", "data.json", "generator.npz"
FILES = (CONFIG, DATA, WEIGHTS)
_FORMAT = 1  # of config.json
_REMEDY = "export or download it again"
# The settings from which the generator is built, and the seed of its samples.
_SETTINGS = {
    "seed",
    *(
        field.name
        for field in dataclasses.fields(Config)
        if has_flag(field)
        and field.metadata["affects"] == "networks"
        and field.metadata["used_by"] != ("critic",)
    ),
}


@dataclasses.dataclass(frozen=True)
class LoadedGenerator:
    """A trained generator, as `wgan_gp.load` returns it.

    Attributes:
      generator: A Keras model, or the network that was passed.
      sampler: Draws its samples.
      spec: The properties of the data that it was trained on.
    """

    generator: Any
    sampler: Sampler
    spec: DataSpec

    def sample(self, count: int, label: int | None = None, *, conditions: Any = None) -> Any:
        """Returns samples as `Result.sample` does; those of a table of numbers are an array."""
        return samples_in_units(self.sampler, self.spec.units, count, label, conditions=conditions)


def files_of(saved: SavedRun, run: RestoredRun) -> dict[str, bytes | str]:
    """Returns the content of the files of a run's generator, by name.

    Args:
      saved: The run.
      run: Its networks.
    """
    config = saved.config
    name = config.generator_model or config.model
    if "generator" in find_user_networks(config, saved.library.models):
        name = PYTHON  # not the path of the file
    settings = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name in _SETTINGS
    }
    settings["seed"] = config.sampling_seed
    # The fingerprint of the data does not concern other people, nor do all of its conditions.
    conditions = None if saved.spec.conditions is None else saved.spec.conditions.recorded()
    record = DataRecord(dataclasses.replace(saved.spec, conditions=conditions), size=saved.size)
    return {
        CONFIG: to_text({**settings, "model": name, "generator_model": name, "format": _FORMAT}),
        DATA: to_text(record.to_dict()),
        WEIGHTS: weights.pack(run.state.sampling_generator),
    }


def load(
    folder: str, library: Library, model: Any = None, seed: int | None = None
) -> LoadedGenerator:
    """Returns the generator of an exported folder; see `wgan_gp.load`.

    Args:
      folder: The folder.
      library: The packages of networks and losses.
      model: The network of the user, if the generator is one.
      seed: The seed of the samples. Default: that of the export.

    Raises:
      UserError: If the folder contains no generator, a file is damaged, or `model` is missing.
    """
    config_path, data_path, weights_path = (posixpath.join(folder, name) for name in FILES)
    config = _read_config(folder, config_path, seed)
    spec = DataRecord.from_dict(_read(folder, data_path), data_path, _REMEDY).spec
    models = library.models
    is_own = config.model == PYTHON
    if is_own:
        models = models.with_networks({PYTHON: _user_network(config_path, model)})
    elif config.model not in models:
        raise UserError(
            f"{config_path} names the network {shorten(repr(config.model))}, which this version "
            "does not have",
            "use the version that exported it",
        )
    elif model is not None:
        raise UserError(
            f"{config_path} describes the network {config.model} of this package, but model= is "
            "given",
            "omit model=",
        )
    devices = Devices(tf.distribute.get_strategy(), SINGLE_PROCESS, find_platform(config))
    with naming(config_path), explaining("the network"):
        build = generator_builder(config, devices, spec, models)
        # A graph that is not executed has the shapes of the weights, but takes no memory, so that
        # a file cannot ask for it. The caller's own network may need eager execution.
        with contextlib.nullcontext() if is_own else tf.Graph().as_default():
            specs = weights.specs_of(build())
    arrays = weights.read(weights_path, specs, _REMEDY)
    generator = build()
    weights.assign(generator, arrays)
    sampler = make_sampler(config, devices, generator, spec)
    return LoadedGenerator(getattr(generator, "network", generator), sampler, spec)


def _read_config(folder: str, path: str, seed: int | None) -> Config:
    """Returns the configuration of a generator, of which only `_SETTINGS` are taken."""
    content = _read(folder, path)
    if content.get("format") != _FORMAT:
        raise UserError(
            f"{path} is not that of an export, or that of a newer version",
            "give a folder that --mode=export wrote, such as exported/ in the run directory",
        )
    settings = {name: value for name, value in content.items() if name in _SETTINGS}
    config = Config.from_dict(settings, origin=path)
    if None in (config.model, config.generator_width) or config.model != config.generator_model:
        raise UserError(f"{path} does not describe a generator", _REMEDY)
    return config if seed is None else dataclasses.replace(config, sample_seed=seed)


def _read(folder: str, path: str) -> dict[str, Any]:
    with convert_file_errors(path, "read", "check the path"):
        content = read_object(path, remedy=_REMEDY)
    if content is None:
        raise UserError(
            f"{folder} contains no generator ({posixpath.basename(path)} is missing)",
            "give a folder that --mode=export wrote",
        )
    return content


def _user_network(path: str, model: Any) -> UserNetworks:
    """Returns the network of the user for a generator that is not of this package.

    Raises:
      UserError: If it is missing.
    """
    if model is None:
        raise UserError(
            f"the generator of {path} is code of its author, which a download does not contain",
            "pass it: wgan_gp.load(..., model=...), a function of the design that returns it, or "
            "the value of --model",
        )
    if isinstance(model, str):
        model = loading.load_network(model).get("generator")
    elif isinstance(model, ModuleType):
        model = getattr(model, "generator", None)
    return UserNetworks("wgan_gp.load", generator=model)
