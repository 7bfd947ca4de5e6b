"""The file of --sweep, read and checked before the first run starts."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ...config import Config, as_text, has_flag
from ...config.settings import check, expand_home
from ...data.datasets import BUILT_IN, FILE_DATASETS, Dataset
from ...errors import UserError, naming, reason, shorten
from ..library import Registry
from ..resolve import resolve

# The metrics of an evaluation whose best value is known, by the kind of data.
MINIMIZED = {
    "images": ("fid", "kid"),
    "points": ("wasserstein",),
    "arrays": (
        *("feature_wasserstein", "feature_wasserstein_largest", "kolmogorov_smirnov"),
        *("kolmogorov_smirnov_largest", "correlation_error", "spectrum_error"),
        "autocorrelation_error",
    ),
}
MAXIMIZED = {
    "images": (
        *("precision", "recall", "coverage", "inception_score", "confidence"),
        *("class_accuracy", "smallest_class"),
    ),
    "points": ("modes_covered", "high_quality_share"),
    "arrays": ("synthetic_trained_accuracy", "synthetic_trained_r2"),
}
_MAXIMIZED = [*itertools.chain(*MAXIMIZED.values())]
RANKING = [*itertools.chain(*MINIMIZED.values()), *_MAXIMIZED]

_KEYS = ("flags", "settings", "seeds", "rank_by", "goal", "rungs", "reduction_factor")
_OF_SWEEP = ("mode", "model_dir", "stop_step", "sweep", "sweep_parallel")  # the sweep sets these
_OF_DATA = ("dataset", "split", "image_size", "image_channels", "num_classes", "scaling", "invalid")
# Training depends on these, although the run may be resumed with other values.
_INITIAL_WEIGHTS = ("restore", "restore_from")
# These may change on a resume, but not within a sweep: metrics would not be comparable.
_OF_METRICS = (
    *("steps_per_loop", "summary_interval", "evaluate_samples", "feature_extractor"),
    *("sample_seed", *_INITIAL_WEIGHTS),
)
_FIELDS = {field.name: field for field in dataclasses.fields(Config) if has_flag(field)}
_MAX_RUNS = 1000


@dataclasses.dataclass(frozen=True)
class SeedRun:
    """The run of a candidate with a seed, in a folder such as "penalty_weight=10,seed=0".

    `flags` are the settings that are given; `config` has all settings.
    """

    name: str
    flags: Mapping[str, Any]
    config: Config

    def arguments(self, stop_step: int) -> list[str]:
        """Returns the command line that trains the run to an iteration and evaluates it."""
        flags = {**self.flags, "stop_step": stop_step}
        if not self.config.evaluate_interval:
            flags["evaluate_interval"] = self.config.train_steps  # only when training stops
        return [f"--{name}={as_text(value)}" for name, value in flags.items() if value is not None]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Values of settings that a sweep compares with others, and a run for each seed."""

    name: str
    values: Mapping[str, Any]
    runs: tuple[SeedRun, ...]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep as its file and the command line describe it.

    Attributes:
      candidates: The candidates, in the order of the file.
      rank_by: The metric that ranks them, such as "fid".
      maximize: Whether a larger value of it is better.
      rungs: The iterations at which candidates may be pruned, ascending.
      reduction_factor: The ratio of two rungs, and of the candidates that reach and pass a rung.
      description: What must not change when the sweep continues: the content of the file, and the
        flags on which the metrics of all runs depend.
    """

    candidates: tuple[Candidate, ...]
    rank_by: str
    maximize: bool
    rungs: tuple[int, ...]
    reduction_factor: int
    description: Mapping[str, Any]

    def changes(self, saved: Mapping[str, Any]) -> list[str]:
        """Returns the differences from the description of the sweep that was started before."""
        now = self.description
        return [
            f"{name}: {shorten(as_text(saved.get(name)))} -> {shorten(as_text(now.get(name)))}"
            for name in {**saved, **now}
            if saved.get(name) != now.get(name)
        ]


def read(config: Config, given: Mapping[str, Any], models: Registry) -> Sweep:
    """Returns the sweep that --sweep describes.

    The names and values are checked first, then the networks and the files of the data. A dataset
    of tensorflow-datasets, which may have to be downloaded, and user code are checked when a run
    starts.

    Args:
      config: The configuration of the command line.
      given: The settings that the command line sets, by name. They apply to all runs.
      models: The networks of the project.

    Raises:
      UserError: If the file is not valid, or a run is not possible.
    """
    if "://" in config.run_directory:
        raise UserError(
            f"--model_dir={config.run_directory} is not a local folder",
            "--mode=sweep keeps its state in a database on one machine: give a local folder",
        )
    with naming(f"--sweep={config.sweep}"):
        content = _load(str(config.sweep))
        fixed = _fixed_flags(content, given)
        config.check_parallel(fixed.get("tpu"))
        sweep = _expand(content, fixed, config.run_directory)
        _check_networks_and_data(sweep, models)
        return sweep


def _load(path: str) -> dict[str, Any]:
    """Returns the content of the file, an object with the known keys."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{_shown(name)} appears twice", "give it once")
        return dict(pairs)

    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file, object_pairs_hook=unique)
    except OSError as error:
        raise UserError(f"it cannot be read ({error.strerror})", "give a JSON file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"it is not JSON ({shorten(reason(error))})", "correct it") from None
    if not isinstance(content, dict):
        raise UserError("it is not a JSON object", f"give an object with {_list(_KEYS)}")
    for name in content:
        if name not in _KEYS:
            raise UserError(f"{_shown(name)} is unknown", f"use {_list(_KEYS)}")
    return content


def _fixed_flags(content: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of all runs: "flags" of the file, and the command line before it."""
    flags = content.get("flags", {})
    if not isinstance(flags, dict):
        raise UserError('"flags" is not an object', 'give names and values, as {"batch_size": 32}')
    for name, value in flags.items():
        _check_name("flags", name)
        if isinstance(value, list | dict):
            raise UserError(f'"flags" has several values of {name}', 'move them to "settings"')
        _check_value("flags", name, value)
    if "stop_step" in given:
        raise UserError(
            f"--stop_step={given['stop_step']} is set by the sweep itself",
            'omit it, or give --train_steps or "rungs"',
        )
    fixed = _with_homes(flags) | {each: given[each] for each in given if each not in _OF_SWEEP}
    if "seeds" in content and "seed" in fixed:
        raise UserError('--seed and "seeds" contradict each other', "omit one of them")
    return fixed


def _check_name(key: str, name: str) -> None:
    if name not in _FIELDS:
        raise UserError(
            f'"{key}" contains {_shown(name)}, which is not a flag', "train.py --help lists them"
        )
    if name in _OF_SWEEP:
        raise UserError(f'"{key}" contains {name}, which the sweep itself sets', "omit it")
    if name == "seed":
        raise UserError(f'"{key}" contains seed', 'give "seeds": [0, 1]')


def _check_value(key: str, name: str, value: Any) -> Any:
    """Returns a value as a configuration has it, such as 1.0 for "1"."""
    with naming(f'"{key}"'):
        return check(_FIELDS[name], value)


def _expand(content: Mapping[str, Any], fixed: dict[str, Any], folder: str) -> Sweep:
    """Returns the sweep of a file.

    Args:
      content: The content of the file.
      fixed: The settings of all runs; see `_fixed_flags`.
      folder: The folder of the sweep.
    """
    rank_by, maximize = _metric(content)
    seeds = content.get("seeds", [fixed.get("seed", 0)])
    if not _are_integers(seeds) or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f'"seeds" is {_shown(seeds)}', "give a list of different whole numbers")
    values = _values(content, fixed, len(seeds))
    varied = list(dict.fromkeys(itertools.chain(*values)))
    compared = [*filter(None, [fixed.get("compare")]), *varied, f"evaluation/{rank_by}"]
    fixed["compare"] = ",".join(compared)
    candidates = tuple(_candidate(each, fixed, seeds, folder) for each in values)
    first = candidates[0].runs[0].config
    flags = {
        f"--{name}": getattr(first, name)
        for name, field in _FIELDS.items()
        if name in _OF_METRICS or not field.metadata["changeable_on_resume"]
        if name not in (*varied, "seed")
    }
    factor = content.get("reduction_factor", 2)
    if type(factor) is not int or factor < 2:
        raise UserError(f'"reduction_factor" is {_shown(factor)}', "give a whole number above 1")
    return Sweep(
        candidates=candidates,
        rank_by=rank_by,
        maximize=maximize,
        rungs=_rungs(content.get("rungs", []), factor, candidates),
        reduction_factor=factor,
        description={name: content.get(name) for name in _KEYS if name != "flags"} | flags,
    )


def _metric(content: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns the metric that ranks the candidates, and whether a larger value is better."""
    name, goal = content.get("rank_by"), content.get("goal")
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name, re.ASCII):
        raise UserError(
            '"rank_by" is missing or is not the name of a metric',
            f"give a metric of --mode=evaluate: {_list(RANKING)}",
        )
    if goal not in (None, "minimize", "maximize"):
        raise UserError(f'"goal" is {_shown(goal)}', "use minimize or maximize")
    if goal is None and name not in RANKING:
        raise UserError(
            f'the best value of "rank_by": {_shown(name)} is not known',
            'add "goal": "minimize" or "maximize", or use another metric, such as fid',
        )
    return name, goal == "maximize" or (goal is None and name in _MAXIMIZED)


def _values(content: Mapping[str, Any], fixed: Mapping[str, Any], seeds: int) -> list[dict]:
    """Returns the values of each candidate, by the name of the setting."""
    found: Any = content.get("settings")
    for name, values in found.items() if isinstance(found, dict) else ():
        if not isinstance(values, list) or not values:
            raise UserError(
                f'"settings" has no list of values of {shorten(name)}',
                'give a list, or move a single value to "flags"',
            )
    is_list = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    if not found or not (isinstance(found, dict) or (is_list and any(found))):
        raise UserError(
            '"settings" is missing or is not a grid of values',
            'give {"penalty_weight": [1, 10]}, or a list such as [{"penalty_weight": 1}]',
        )
    # Counted first: a grid of five long lists would not fit into memory.
    if (len(found) if is_list else math.prod(map(len, found.values()))) * seeds > _MAX_RUNS:
        raise UserError(f"it has more than {_MAX_RUNS} runs", "give fewer settings or seeds")
    for name in dict.fromkeys(itertools.chain(*found) if is_list else found):
        _check_varied(name, fixed)
    if not is_list:
        grid = itertools.product(*found.values())
        found = [dict(zip(found, values, strict=True)) for values in grid]
    checked = list[dict[str, Any]]()
    for each in found:
        now = {name: _check_value("settings", name, value) for name, value in each.items()}
        if now in checked:
            raise UserError(f'"settings" contains {_name_of(each)} twice', "give it once")
        checked.append(now)
    return [_with_homes(each) for each in found]


def _check_varied(name: str, fixed: Mapping[str, Any]) -> None:
    """Raises UserError unless a sweep can compare runs with different values of a setting."""
    _check_name("settings", name)
    problem, remedy = None, 'move it to "flags"'
    if name in _OF_DATA:
        problem = "which changes the data that samples are compared with"
    elif _FIELDS[name].metadata["changeable_on_resume"] and name not in _INITIAL_WEIGHTS:
        problem = "on which the result of training does not depend"
    elif name in fixed:
        problem, remedy = f"but --{name}={as_text(fixed[name])} is fixed", "omit one of them"
    if problem:
        raise UserError(f'"settings" contains {name}, {problem}', remedy)


def _candidate(
    values: Mapping[str, Any], fixed: Mapping[str, Any], seeds: Sequence[int], folder: str
) -> Candidate:
    """Returns a candidate; raises UserError if its configuration is not valid."""
    name, runs = _name_of(values), []
    for seed in seeds:
        run = quote(f"{name},seed={seed}", safe=",=+")  # "/" would create a folder in the folder
        if len(run) > 200:
            raise UserError(f"the name of {shorten(name)} is too long", "set fewer flags")
        flags = {**fixed, **values, "seed": seed, "model_dir": f"{folder.rstrip('/')}/{run}"}
        with naming(f"run {run}"):
            config = Config(**flags)
            if config.restore_from is not None and config.restore is None:
                raise UserError(
                    f"--restore_from={config.restore_from} continues that run at its iteration, "
                    "but the runs of a sweep start at iteration 0",
                    "add --restore=generator, critic or both",
                )
        runs.append(SeedRun(run, flags, config))
    return Candidate(name, values, tuple(runs))


def _rungs(rungs: Any, factor: int, candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """Returns the rungs; raises UserError unless every run can stop at them."""
    if not _are_integers(rungs) or not all(rung > 0 for rung in rungs):
        raise UserError(f'"rungs" is {_shown(rungs)}', "give a list of iterations")
    for before, after in itertools.pairwise(rungs):
        if after != factor * before:
            raise UserError(
                f"the rung {after} is not {factor} times the rung {before}",
                f'use {factor * before}, or another "reduction_factor"',
            )
    for rung, candidate in itertools.product(rungs, candidates):
        config = candidate.runs[0].config
        if rung >= config.train_steps:
            raise UserError(
                f"the rung {rung} is not below --train_steps={config.train_steps}",
                "give fewer iterations",
            )
        if rung % (steps := config.steps_per_loop):
            raise UserError(
                f"the rung {rung} is not a multiple of --steps_per_loop={steps}",
                f"use {-(-rung // steps) * steps}",
            )
    return tuple(rungs)


def _check_networks_and_data(sweep: Sweep, models: Registry) -> None:
    """Raises UserError if a run does not fit its data, or the data has no such metric."""
    datasets: dict[str, Dataset] = {}  # a sweep has one dataset, with or without its labels
    for candidate in sweep.candidates:
        run, config = candidate.runs[0], candidate.runs[0].config
        known = config.dataset in BUILT_IN or config.dataset in FILE_DATASETS
        if not known or {config.model, config.generator_model} - {None, *models}:
            continue
        with naming(f"run {run.name}"):
            _, dataset = resolve(config, models, dataset=datasets.get(config.conditioning))
        datasets[config.conditioning] = dataset
        kinds = _kinds(config, len(dataset.spec.example_shape))
        usable = [name for kind in kinds for name in MINIMIZED[kind] + MAXIMIZED[kind]]
        if sweep.rank_by in RANKING and sweep.rank_by not in usable:
            raise UserError(
                f'"rank_by" is {_shown(sweep.rank_by)}, but evaluations of {kinds[0]}, as '
                f"--dataset={shorten(config.dataset)} has, do not contain it",
                f"use {_list(usable)}",
            )


def _kinds(config: Config, rank: int) -> list[str]:
    """Returns the kinds of metrics that evaluations of examples of a rank may contain."""
    if rank < 3 or config.feature_extractor == "none":
        return ["points" if rank == 1 and config.dataset in BUILT_IN else "arrays"]
    if config.feature_extractor or config.dataset in BUILT_IN:
        return ["images"]
    return ["images", "arrays"]  # measurements in the shape of images are evaluated as arrays


def _are_integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _with_homes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings in which ~ at the beginning of a path is replaced by the home directory."""
    return {
        name: expand_home(name, value) if _FIELDS[name].metadata["path"] and value else value
        for name, value in values.items()
    }


def _name_of(values: Mapping[str, Any]) -> str:
    """Returns the name of a candidate, such as "penalty_weight=10,n_critic=5"."""
    texts = {name: "default" if each is None else as_text(each) for name, each in values.items()}
    return ",".join(f"{name}={text}" for name, text in texts.items()) or "defaults"


def _shown(value: Any) -> str:
    """Returns a value as the file spells it, for messages."""
    return shorten(json.dumps(value))


def _list(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
