"""The plan of a sweep: its trials, and the rungs at which settings may stop."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...config import Config, as_text
from ...data.datasets import BUILT_IN, FILE_DATASETS, Dataset
from ...errors import UserError, naming, shorten
from ..library import Registry
from ..resolve import resolve
from . import sweep_file

# Settings that may change on a resume, but not within a sweep: figures would not be comparable.
_OF_FIGURES: tuple[str, ...] = (
    "steps_per_loop",
    "summary_interval",
    "evaluate_samples",
    "feature_extractor",
)
_OF_FIGURES += ("sample_seed", *sweep_file.INITIAL_WEIGHTS)
# The settings on which the figures of a trial depend.
_FIXED = tuple(
    name
    for name, field in sweep_file.FIELDS.items()
    if name in _OF_FIGURES or not field.metadata["changeable_on_resume"]
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run of a sweep: a setting with a seed.

    Attributes:
      name: The name of its folder, such as "penalty_weight=10,seed=0".
      setting: The name of the setting, such as "penalty_weight=10".
      seed: The seed.
      config: The configuration.
      flags: The settings that differ from the defaults, by name.
    """

    name: str
    setting: str
    seed: int
    config: Config
    flags: Mapping[str, Any]

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Returns the differences from a config.json on which the figures depend.

        A setting whose value follows from others where it is None is then not compared.
        """
        values = {name: getattr(self.config, name) for name in _FIXED}
        now = {name: value for name, value in values.items() if value is not None or _keeps(name)}
        return _changed_flags({name: saved[name] for name in now if name in saved}, now)

    def arguments(self, stop_step: int) -> list[str]:
        """Returns the command line that trains the trial to an iteration and evaluates it."""
        flags = {**self.flags, "stop_step": stop_step}
        if not self.config.evaluate_interval:
            flags["evaluate_interval"] = self.config.train_steps  # only when training stops
        return [f"--{name}={as_text(value)}" for name, value in flags.items() if value is not None]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep as its file and the command line describe it.

    Attributes:
      settings: The names of the settings, in the order of the file.
      trials: One trial for each setting and seed.
      rank_by: The figure that ranks the settings, such as "fid".
      maximize: Whether a larger figure is better.
      rungs: The iterations at which settings may stop, ascending.
      keep: The share of the settings that goes on after a rung.
      description: What must not change when the sweep continues: the content of the file, and the
        flags on which the figures of all trials depend.
    """

    settings: tuple[str, ...]
    trials: tuple[Trial, ...]
    rank_by: str
    maximize: bool
    rungs: tuple[int, ...]
    keep: float
    description: Mapping[str, Mapping[str, Any]]

    def changes(self, saved: Mapping[str, Any]) -> list[str]:
        """Returns the differences from an earlier description.

        Args:
          saved: The content of sweep.json; empty if there is none.
        """
        file, flags = self.description["file"], self.description["flags"]
        before = saved.get("file") or file
        return [
            f"{name}: {shorten(str(before.get(name)))} -> {shorten(str(file.get(name)))}"
            for name in {**before, **file}
            if before.get(name) != file.get(name)
        ] + _changed_flags(saved.get("flags") or flags, flags)

    def trials_of(self, setting: str) -> list[Trial]:
        """Returns the trials of a setting, one for each seed."""
        return [trial for trial in self.trials if trial.setting == setting]


def _keeps(name: str) -> bool:
    """Returns True if a setting that is None stays so, and does not follow from others."""
    return name in _OF_FIGURES or name in ("beta_2_end", "schedule_steps")


def _changed_flags(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the flags that differ, such as "--batch_size: 16 -> 32".

    A flag that is missing, from a version before it was added, had its default.
    """
    defaults = {name: field.default for name, field in sweep_file.FIELDS.items()}
    pairs = {
        name: [each.get(name, defaults.get(name)) for each in (before, now)]
        for name in {**before, **now}
    }
    return [
        f"--{name}: {shorten(as_text(old))} -> {shorten(as_text(new))}"
        for name, (old, new) in pairs.items()
        if old != new
    ]


def read(config: Config, given: Mapping[str, Any], models: Registry) -> Sweep:
    """Returns the sweep that --sweep describes, without importing TensorFlow.

    Args:
      config: The configuration of the command line.
      given: The settings that the command line sets, by name. They apply to all trials.
      models: The package of networks.

    Raises:
      UserError: If the file is not valid, or a trial is not possible.
    """
    with naming(f"--sweep={config.sweep}"):
        return _read(config, given, models)


def _read(config: Config, given: Mapping[str, Any], models: Registry) -> Sweep:
    content = sweep_file.load(str(config.sweep))
    fixed = sweep_file.fixed_flags(content, given)
    config.check_parallel(fixed.get("tpu"))
    settings = sweep_file.settings(content, fixed)
    seeds = sweep_file.seeds(content, fixed)
    rank_by, maximize = sweep_file.figure(content)
    sweep_file.check_count(len(settings) * len(seeds))
    varied = list(dict.fromkeys(itertools.chain(*settings)))
    compared = [*filter(None, [fixed.get("compare")]), *varied, f"evaluation/{rank_by}"]
    fixed["compare"] = ",".join(compared)
    trials = [
        _trial(values, {**fixed, **values, "seed": seed}, config.run_directory, models)
        for values, seed in itertools.product(settings, seeds)
    ]
    _check_names(trials)
    return Sweep(
        settings=tuple(dict.fromkeys(trial.setting for trial in trials)),
        trials=tuple(trials),
        rank_by=rank_by,
        maximize=maximize,
        rungs=_rungs(content.get("rungs", []), trials),
        keep=sweep_file.share_kept(content),
        description=_description(content, {*varied, "seed"}, trials[0].config),
    )


def _description(
    content: Mapping[str, Any], varied: set[str], config: Config
) -> dict[str, dict[str, Any]]:
    """Returns the keys of the file, and the flags on which the figures of all trials depend."""
    keys = {name: content.get(name) for name in sweep_file.KEYS if name != "flags"}
    flags = {name: getattr(config, name) for name in _FIXED if name not in varied}
    return {"file": keys, "flags": flags}


def _trial(
    values: Mapping[str, Any], flags: dict[str, Any], folder: str, models: Registry
) -> Trial:
    """Returns a trial.

    Args:
      values: The values of the setting, by name.
      flags: All settings of the trial that are given, by name.
      folder: The folder of the sweep.
      models: The package of networks.

    Raises:
      UserError: If the run is not possible.
    """
    setting = sweep_file.name_of(values)
    # "/" would create a folder in the folder.
    name = re.sub(r"[^\w.,=+-]", "-", f"{setting},seed={flags['seed']}", flags=re.ASCII)
    if len(name) > 200:
        raise UserError(
            f"the name of the setting {shorten(setting)} is too long", "set fewer flags"
        )
    flags = {**flags, "model_dir": f"{folder.rstrip('/')}/{name}"}
    with naming(f"trial {setting},seed={flags['seed']}"):
        config = Config(**flags)
        if config.restore_from is not None and config.restore is None:
            raise UserError(
                f"--restore_from={config.restore_from} continues that run at its iteration, but "
                "trials start at iteration 0",
                "add --restore=generator, critic or both",
            )
        if config.dataset in BUILT_IN and _has_built_in_networks(config, models):
            resolve(config, models)  # reads no file
    return Trial(name, setting, flags["seed"], config, flags)


def check_files(sweep: Sweep, path: str, models: Registry) -> None:
    """Checks the trials that have not started and whose data is in files.

    `read` does not open files. A dataset of tensorflow-datasets, which may have to be downloaded,
    and the user's own code are checked when a trial starts.

    Args:
      sweep: The sweep.
      path: The value of --sweep, for messages.
      models: The package of networks.

    Raises:
      UserError: If a trial is not possible.
    """
    from ...run_directory.directory import RunDirectory  # noqa: PLC0415

    datasets: dict[str, Dataset] = {}  # a sweep has one dataset, with or without its labels
    for setting in sweep.settings:
        trial = sweep.trials_of(setting)[0]
        config = trial.config
        if config.dataset not in FILE_DATASETS or not _has_built_in_networks(config, models):
            continue
        directory = RunDirectory(config.run_directory)
        with directory.convert_file_errors("read"):
            if directory.saved_config() is not None:
                continue
        with naming(f"--sweep={path}: trial {setting},seed={trial.seed}"):
            found = datasets.get(config.conditioning)
            datasets[config.conditioning] = resolve(config, models, dataset=found)[1]


def _has_built_in_networks(config: Config, models: Registry) -> bool:
    return {None, *models}.issuperset({config.model, config.generator_model})


def _check_names(trials: Sequence[Trial]) -> None:
    """Raises UserError if two trials would have the same folder."""
    seen: dict[str, Trial] = {}
    for trial in trials:
        other = seen.setdefault(trial.name, trial)
        if other is not trial:
            raise UserError(
                f"the settings {shorten(other.setting)} and {shorten(trial.setting)} would have "
                f"the same folder {shorten(trial.name)}",
                "rename a file that they name",
            )


def _rungs(rungs: Any, trials: Sequence[Trial]) -> tuple[int, ...]:
    """Returns the rungs; raises UserError unless every trial can stop at them."""
    valid = isinstance(rungs, list) and all(type(each) is int and each > 0 for each in rungs)
    if not valid or any(after <= before for before, after in itertools.pairwise(rungs)):
        raise UserError(
            f'"rungs" is {sweep_file.shown(rungs)}', "give an ascending list of iterations"
        )
    for rung, trial in itertools.product(rungs, trials):
        total, steps = trial.config.train_steps, trial.config.steps_per_loop
        if rung >= total:
            raise UserError(
                f"the rung {rung} is not below --train_steps={total}", "give fewer iterations"
            )
        if rung % steps:
            below, above = rung // steps * steps, (rung // steps + 1) * steps
            raise UserError(
                f"the rung {rung} is not a multiple of --steps_per_loop={steps}",
                f"use {below} or {above}" if below else f"use {above}",
            )
    return tuple(rungs)
