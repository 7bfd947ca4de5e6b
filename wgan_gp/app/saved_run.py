"""A run in its directory: its configuration, and how training and the modes find and restore it.

A run directory may come from another person. Its config.json therefore decides neither which files
and code are read nor where a mode writes; see `of_run` in `config.settings.Kind`.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from ..config import CODE_SETTINGS, PYTHON, Config, as_text
from ..data.data_record import find_record
from ..data.datasets import DATASETS, Dataset, find_dataset
from ..data.spec import DataSpec
from ..errors import UserError, naming, shorten
from ..inference.sampling import Sampler
from ..run_directory.directory import RunDirectory
from ..run_directory.files import is_inside
from ..run_directory.json_files import REMEDY, read_dataclass, read_object
from ..run_directory.typed_json import load_dataclass
from ..runtime.devices import Devices
from ..training import checkpointing
from ..training.checkpoint_files import resolve_restore_path, restore_found, select_checkpoint
from ..training.state import TrainState
from .build import make_sampler, make_state
from .library import Library, Registry
from .user_code import loading

_FIELDS = {field.name: field for field in dataclasses.fields(Config)}
_OPTIONAL = "test_data_dir"  # an evaluation without it has fewer or other metrics
# The names of tensorflow-datasets, without a namespace, which may name a server.
_PREPARED_NAME = re.compile(r"[A-Za-z]\w*(/\w[\w.+-]*)?(:[\d.*]+)?", re.ASCII)


def read_config(directory: RunDirectory) -> Config | None:
    """Returns the configuration with which a run was last started; None without config.json.

    Raises:
      UserError: If the file is not a valid configuration.
    """
    return read_dataclass(Config, directory.config)


def find_config(directory: RunDirectory) -> Config:
    """Returns the configuration of a run.

    Raises:
      UserError: If the directory does not contain a run, or the file is damaged.
    """
    with directory.convert_file_errors("read"):
        content = read_object(directory.config)
    if content is None or "train_steps" not in content:  # an export has a config.json, too
        raise UserError(
            f"--model_dir={directory.path} contains no run (config.json is missing or is not the "
            "configuration of a run)",
            "train a run there, or give the directory of a run",
        )
    return load_dataclass(Config, content, directory.config, REMEDY)


def check_resume(directory: RunDirectory, config: Config) -> Config | None:
    """Checks that training can continue the run in a directory, if there is one.

    Returns:
      The configuration with which the run was last started; None without one.

    Raises:
      UserError: If the run has an incompatible configuration, or if its configuration or its
        checkpoints are missing.
    """
    with directory.convert_file_errors("read"):
        saved = read_config(directory)
        if saved is None and directory.has_checkpoints():
            raise UserError(
                f"{directory.config} is missing, but {directory.checkpoints} contains checkpoints",
                "restore the file, or give another --model_dir",
            )
        if saved is not None:
            if changes := config.differences(saved):
                given = [
                    f"--{name}={as_text(old)}" for name, old in changes.items() if old is not None
                ]
                omitted = [f"--{name}" for name, old in changes.items() if old is None]
                parts = (("give", shlex.join(given)), ("omit", " ".join(omitted)))
                way = " and ".join(f"{verb} {what}" for verb, what in parts if what)
                remedy = f"{way} to continue it, or give another --model_dir"
                raise _other_run(directory, config, changes, remedy)
            if saved.checkpoint_interval:
                directory.check_checkpoints(saved.checkpoint_interval + saved.steps_per_loop)
    directory.checked = config
    return saved


def _other_run(
    directory: RunDirectory, config: Config, changes: Mapping[str, Any], remedy: str
) -> UserError:
    """Returns the error of a configuration that differs from that of the run."""
    listed = "; ".join(
        f"--{name}: {shorten(as_text(old))} -> {shorten(as_text(getattr(config, name)))}"
        for name, old in changes.items()
    )
    return UserError(
        f"--model_dir={directory.path} contains a run with a different configuration ({listed})",
        remedy,
    )


def merge(
    directory: RunDirectory, saved: Config, given: Mapping[str, Any], mode: str, models: Registry
) -> Config:
    """Returns the configuration with which a mode uses a run.

    Args:
      directory: The run directory.
      saved: The configuration of the run.
      given: The settings of the command line. They override those of the run.
      mode: The mode.
      models: The networks.

    Raises:
      UserError: If the mode needs code or a path that `given` does not name, or two settings
        contradict each other.
    """
    _require_named(directory, saved, given, mode, models)
    if "model" in given and saved.generator_model == saved.model:
        given = {"generator_model": given["model"], **given}  # the file may have been moved
    # A name that is none of code has no hash. That of a file which is loaded is recorded later,
    # and a file that the mode does not need is taken for that of the run.
    hashes = {
        f"{name}_sha256": None
        for name in CODE_SETTINGS
        if name in given and not loading.is_reference(str(given[name]))
    }
    with naming(directory.config):
        return Config(**{**saved.of_run, "model_dir": directory.path, **hashes, **given})


def check_use(
    directory: RunDirectory, saved: Config, given: Mapping[str, Any], config: Config
) -> None:
    """Raises UserError if the command line contradicts a run.

    Args:
      directory: The run directory.
      saved: The configuration of the run.
      given: The settings of the command line.
      config: The result of `merge`, with the hashes of the user's files.
    """
    decided = {*saved.of_run, *given} - {"seed"}  # here, it is that of the samples
    changes = {n: old for n, old in config.differences(saved).items() if n in decided}
    if changes:
        raise _other_run(directory, config, changes, "omit these flags")


def _require_named(
    directory: RunDirectory, saved: Config, given: Mapping[str, Any], mode: str, models: Registry
) -> None:
    """Raises UserError if settings that a mode needs name code or a path that are not given."""
    missing = {
        name: getattr(saved, name)
        for name in needed_settings(mode)
        if given.get(name) is None and _must_be_named(saved, name, models)
    }
    if path := missing.pop(_OPTIONAL, None):
        flag = shlex.quote(f"--{_OPTIONAL}={path}")
        logging.warning(
            f"--model_dir={directory.path} was trained with {flag}, which is read only if the "
            "command line names it"
        )
    if not missing:
        return
    first, value = next(iter(missing.items()))
    if value == PYTHON and first in CODE_SETTINGS:
        raise UserError(
            f"--model_dir={directory.path} uses an object that was passed to wgan_gp.train as "
            f"{first}",
            "call wgan_gp.train with it again, and use the result",
        )
    if first in CODE_SETTINGS and loading.is_user_code(first, value, models):
        digest = getattr(saved, f"{first}_sha256")
        described = f" (sha256 {digest[:16]})" if digest else ""
        problem = f"uses code from --{first}={value}{described}, which is imported"
    else:
        problem = f"was trained with --{first}={value}, which is used"
    flags = [shlex.quote(f"--{name}={value}") for name, value in missing.items()]
    raise UserError(
        f"--model_dir={directory.path} {problem} only if the command line names it",
        f"add {' '.join(flags)} if you trust {'it' if len(flags) == 1 else 'them'}",
    )


def _must_be_named(saved: Config, name: str, models: Registry) -> bool:
    """Returns True if the value of a setting names code, a path or a server."""
    value = getattr(saved, name)
    if value is None or (name == "generator_model" and value == saved.model):
        return False
    harmless = _FIELDS[name].metadata["of_run"]
    if isinstance(harmless, tuple):
        return value not in harmless
    if name not in CODE_SETTINGS or loading.is_user_code(name, value, models):
        return True  # a path, or code
    return name == "dataset" and not is_dataset_name(value)


def is_dataset_name(value: str) -> bool:
    """Returns True for a value of --dataset that is neither code, a path nor a server."""
    return value in DATASETS or _PREPARED_NAME.fullmatch(value) is not None


def needed_settings(mode: str) -> tuple[str, ...]:
    """Returns the settings that a mode needs and that may name code or a path.

    Args:
      mode: A member of SAVED_RUN_MODES.
    """
    return tuple(
        name
        for name, field in _FIELDS.items()
        if (field.metadata["path"] or field.metadata["user_code"])
        and mode in field.metadata["needed_by"]
    )


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """A run in its directory, not yet restored.

    Attributes:
      config: The configuration.
      directory: The run directory.
      spec: The properties of the data that it was trained on.
      library: The networks, and the parts of the user.
      size: The number of examples that it was trained on; None if unknown.
      dataset_function: Returns the data of a split, for a dataset of the user; else None.
    """

    config: Config
    directory: RunDirectory
    spec: DataSpec
    library: Library
    size: int | None = None
    dataset_function: Callable[..., Any] | None = None

    def find_dataset(self, conditioning: str = "none") -> Dataset:
        """Finds the dataset of the run.

        Args:
          conditioning: What the labels are used for. Default: nothing.
        """
        dataset = find_dataset(
            self.config,
            conditioning=conditioning,
            devices=self.config,
            function=self.dataset_function,
        )
        dataset.use_recorded(self.spec)
        return dataset


def find_run(
    path: str,
    given: Mapping[str, Any],
    library: Library,
    mode: str = "sample",
) -> SavedRun:
    """Returns a run, without reading its data.

    Args:
      path: The run directory.
      given: The settings of the command line; see `merge`. Code and paths that
        they do not name are never imported or read.
      library: The networks, and the parts of the user.
      mode: The mode that uses the run.

    Raises:
      UserError: If the run does not exist, `given` contradicts its configuration, or code that the
        mode needs is not named or cannot be imported.
    """
    directory = RunDirectory(path)
    saved = find_config(directory)
    record = find_record(directory)
    config = merge(directory, saved, given, mode, library.models)
    code = tuple(name for name in needed_settings(mode) if name in CODE_SETTINGS)
    user_code = loading.load(config, library.models, code)
    config = user_code.record(config)
    loading.warn_of_changes(saved, config)
    check_use(directory, saved, given, config)
    library = user_code.add_to(library)
    return SavedRun(config, directory, record.spec, library, record.size, user_code.dataset)


@dataclasses.dataclass(frozen=True)
class RestoredRun:
    """The networks of a run, restored from a checkpoint.

    Attributes:
      state: The restored state.
      sampler: Draws samples from `state.sampling_generator`.
      iteration: The number of iterations of training done.
    """

    state: TrainState
    sampler: Sampler
    iteration: int


def restore(saved: SavedRun, checkpoint: str, devices: Devices) -> RestoredRun:
    """Restores a checkpoint of a run, or another one if it has been deleted.

    The run may be training, which deletes old checkpoints; see `restore_found`.

    Args:
      saved: The run.
      checkpoint: The path of the checkpoint; see `find_checkpoint`.
      devices: The devices of the networks.

    Raises:
      UserError: See `find_checkpoint` and `Checkpoints.restore`.
    """
    config, directory = saved.config, saved.directory
    state = make_state(config, devices, saved.spec, saved.library.models)
    checkpoints = checkpointing.Checkpoints(state, directory.checkpoints, writes=False)

    def restore_one(path: str) -> int:
        iteration = checkpoints.restore(path)
        logging.info(f"{path}: {iteration} iterations")
        return iteration

    found = iter([checkpoint])
    iteration = restore_found(lambda: next(found, None) or find_checkpoint(saved), restore_one)
    sampler = make_sampler(config, devices, state.sampling_generator, saved.spec)
    return RestoredRun(state, sampler, iteration)


def find_checkpoint(saved: SavedRun) -> str:
    """Returns the path of the checkpoint of --checkpoint, or of the one that --restore_from names.

    Raises:
      UserError: If there is no checkpoint.
    """
    restore_from, which = saved.config.restore_from, saved.config.checkpoint
    origin = f"--model_dir={saved.directory.path}"
    with saved.directory.convert_file_errors("read"):
        path = (
            select_checkpoint(saved.directory.checkpoints, which, origin)
            if restore_from is None
            else resolve_restore_path(restore_from, which)
        )
    if path is None:
        raise UserError(f"{origin} has no checkpoint yet", "train it longer")
    if not is_inside(saved.directory.checkpoints, path):
        raise UserError(
            f"--restore_from={restore_from} is not a checkpoint of {origin}",
            "give its run as --model_dir",
        )
    return path
