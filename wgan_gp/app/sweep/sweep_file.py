"""The file of --sweep, read and checked before the first run starts."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ...config import Config, as_text, has_flag
from ...config.ranking import RANKING, is_maximized, listed, usable_metrics
from ...config.settings import expand_home
from ...data.datasets import DATASETS, Dataset
from ...errors import UserError, naming, reason, shorten
from ...run_directory import schema
from ..library import Registry
from ..resolve import kinds_of_metrics, resolve

_FIELDS = {field.name: field for field in dataclasses.fields(Config) if has_flag(field)}
_OF_SWEEP = ("mode", "model_dir", "sweep", "sweep_parallel")  # flags of the sweep, not of its runs
_OF_DATA = ("holdout", "image_size")  # settings of the data whose defaults depend on networks
_MAX_RUNS = 1000


_is_object = schema.mapping_of(lambda value: True)
_is_grid = schema.mapping_of(schema.list_of(lambda value: True, shortest=1))
_are_objects, _are_integers = schema.list_of(_is_object), schema.list_of(schema.integer())
# The keys of the file: the check of the value, the remedy, and the default; see docs/sweep.md.
_KEYS: dict[str, tuple[schema.Check, str, Any]] = {
    "flags": (_is_object, 'give names and values, such as {"batch_size": 32}', {}),
    "settings": (
        lambda value: bool(value) and (_is_grid(value) or _are_objects(value)),
        'give {"penalty_weight": [1, 10]}, or a list such as [{"penalty_weight": 1}]',
        None,
    ),
    "seeds": (
        lambda value: _are_integers(value) and len(set(value)) == len(value),
        "give a list of different whole numbers",
        [],
    ),
    "rank_by": (schema.identifier, f"give a metric of --mode=evaluate: {listed(RANKING)}", None),
    "goal": (schema.one_of("minimize", "maximize", ""), "use minimize or maximize", ""),
    "rungs": (schema.list_of(schema.integer(1)), "give a list of iterations", []),
    "reduction_factor": (schema.integer(2), "give a whole number above 1", 2),
}


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

    def choices(self, name: str) -> list[Any]:
        """Returns the values that a setting has in candidates."""
        found = [each.values[name] for each in self.candidates if name in each.values]
        return list(dict.fromkeys(found))

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
        of_runs = {name: value for name, value in given.items() if name not in _OF_SWEEP}
        fixed = content["flags"] | of_runs
        config.check_parallel(fixed.get("tpu"))
        sweep = _expand(content, fixed, config.run_directory.rstrip("/"))
        _check_networks_and_data(sweep, models)
        return sweep


def _load(path: str) -> dict[str, Any]:
    """Returns the content of the file: the values of all keys, each of the right form."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file, object_pairs_hook=_unique)
    except OSError as error:
        raise UserError(f"it cannot be read ({error.strerror})", "give a JSON file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"it is not JSON ({shorten(reason(error))})", "correct it") from None
    if not isinstance(content, dict):
        raise UserError("it is not a JSON object", f"give an object with {listed(_KEYS)}")
    for name in content.keys() - _KEYS:
        raise UserError(f"{_shown(name)} is unknown", f"use {listed(_KEYS)}")
    content = {name: content.get(name, default) for name, (_, _, default) in _KEYS.items()}
    for name, (check, remedy, _) in _KEYS.items():
        if not check(content[name]):
            raise UserError(f'"{name}" is {_shown(content[name])}', remedy)
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _expand(content: Mapping[str, Any], fixed: dict[str, Any], folder: str) -> Sweep:
    """Returns the sweep of a file.

    Args:
      content: The content of the file.
      fixed: The settings of all runs.
      folder: The folder of the sweep.
    """
    rank_by, settings = content["rank_by"], content["settings"]
    if not content["goal"] and rank_by not in RANKING:
        raise UserError(
            f'the best value of "rank_by": {_shown(rank_by)} is not known',
            'add "goal": "minimize" or "maximize", or use another metric, such as fid',
        )
    if content["seeds"] and "seed" in fixed:
        raise UserError('--seed and "seeds" contradict each other', "omit one of them")
    seeds = content["seeds"] or [fixed.get("seed", 0)]
    if isinstance(settings, dict):
        grid = itertools.product(*settings.values())
        settings = (dict(zip(content["settings"], each, strict=True)) for each in grid)
    # A grid of five long lists would not fit into memory.
    listed = list(itertools.islice(settings, _MAX_RUNS + 1))
    if len(listed) * len(seeds) > _MAX_RUNS:
        raise UserError(f"it has more than {_MAX_RUNS} runs", "give fewer settings or seeds")
    varied = list(dict.fromkeys(itertools.chain(*listed)))
    _check_names(varied, fixed)
    compared = [*filter(None, [fixed.get("compare")]), *varied, f"evaluation/{rank_by}"]
    fixed = {**fixed, "compare": ",".join(map(str, compared))}
    candidates: dict[tuple, Candidate] = {}  # by their values of the varied settings
    for values in listed:
        candidate = _candidate(values, fixed, seeds, folder)
        config = candidate.runs[0].config
        _check_rungs(content["rungs"], content["reduction_factor"], config)
        key = tuple(getattr(config, name) for name in varied)
        if key in candidates:
            raise UserError(f'"settings" contains {candidate.name} twice', "give it once")
        candidates[key] = candidate
    flags = {
        f"--{name}": getattr(config, name)
        for name, field in _FIELDS.items()
        # Processes may have other paths of the data; the runs check the data itself.
        if field.metadata["affects"] != "nothing" and not field.metadata["per_process"]
        if name not in (*varied, "seed")
    }
    return Sweep(
        candidates=tuple(candidates.values()),
        rank_by=rank_by,
        maximize=content["goal"] == "maximize" or (not content["goal"] and is_maximized(rank_by)),
        rungs=tuple(content["rungs"]),
        reduction_factor=content["reduction_factor"],
        description={name: content[name] for name in _KEYS if name != "flags"} | flags,
    )


def _check_names(varied: Sequence[str], fixed: Mapping[str, Any]) -> None:
    """Raises UserError unless a sweep can compare some settings while others are fixed."""
    for name in (*fixed, *varied):
        affects = _FIELDS[name].metadata["affects"] if name in _FIELDS else None
        problem, remedy = None, 'move it to "flags"'
        if affects is None:
            problem, remedy = "is not a flag", "train.py --help lists them"
        elif name == "stop_early":
            problem = "would end runs of a candidate at different iterations"
            remedy = 'omit it; "rungs" end candidates early'
        elif name in (*_OF_SWEEP, "stop_step") or (name in varied and name == "seed"):
            problem, remedy = "is set by the sweep itself", 'omit it, or give "rungs" or "seeds"'
        elif name in varied and affects == "data":
            problem = "cannot vary, because metrics are comparable only for the same data"
        elif name in varied and affects not in ("networks", "training"):
            problem = "cannot vary, because the result of training does not depend on it"
        elif name in varied and name in fixed:
            problem, remedy = 'is fixed, but "settings" varies it', "omit one of them"
        if problem:
            raise UserError(f"--{shorten(name)} {problem}", remedy)


def _candidate(
    values: Mapping[str, Any], fixed: Mapping[str, Any], seeds: Sequence[int], folder: str
) -> Candidate:
    """Returns a candidate; raises UserError if its configuration is not valid."""
    texts = ("default" if each is None else as_text(each) for each in values.values())
    name, runs = ",".join(map("=".join, zip(values, texts, strict=True))) or "defaults", []
    given = {
        name: expand_home(name, value)
        if _FIELDS[name].metadata["path"] and isinstance(value, str)
        else value
        for name, value in {**fixed, **values}.items()
    }
    for seed in seeds:
        run = quote(f"{name},seed={seed}", safe=",=+")  # "/" would create a folder in the folder
        if len(run) > 200:
            raise UserError(f"the name of {shorten(name)} is too long", "set fewer flags")
        flags: dict[str, Any] = {**given, "seed": seed, "model_dir": f"{folder}/{run}"}
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


def _check_rungs(rungs: Sequence[int], factor: int, config: Config) -> None:
    """Raises UserError unless Optuna can compare runs at the rungs, and a run can stop at them."""
    expected = [rungs[0] * factor**power for power in range(len(rungs))] if rungs else []
    if rungs != expected:
        raise UserError(
            f'"rungs" is {_shown(rungs)}, but each rung is {factor} times the one before',
            f'use {shorten(str(expected))}, or another "reduction_factor"',
        )
    for rung in rungs:
        if rung >= config.train_steps or rung % config.steps_per_loop:
            raise UserError(
                f'"rungs" contains {rung}',
                f"give multiples of --steps_per_loop={config.steps_per_loop} that are below "
                f"--train_steps={config.train_steps}",
            )


def _check_networks_and_data(sweep: Sweep, models: Registry) -> None:
    """Raises UserError if a run does not fit its data, or the data has no such metric."""
    datasets: dict[str, Dataset] = {}  # a sweep has one dataset, with or without its labels
    of_first: dict[str, Any] = {}  # the settings of the data that depend on others
    for candidate in sweep.candidates:
        run, config = candidate.runs[0], candidate.runs[0].config
        if config.dataset not in DATASETS or {config.model, config.generator_model} - {
            None,
            *models,
        }:
            continue
        with naming(f"run {run.name}"):
            resolved, dataset = resolve(config, models, dataset=datasets.get(config.conditioning))
        given = {name: getattr(config, name) for name in _OF_DATA}
        if any(getattr(dataset.settings, name) != value for name, value in given.items()):
            dataset = dataset.with_settings(**given)  # the next candidate may have other defaults
        datasets[config.conditioning] = dataset
        of_first = of_first or {name: getattr(resolved, name) for name in _OF_DATA}
        for name, value in of_first.items():
            if getattr(resolved, name) != value:
                raise UserError(
                    f"run {run.name} would have --{name}={as_text(getattr(resolved, name))}, but "
                    f"the first one has {as_text(value)}, and metrics are comparable only for the "
                    "same data",
                    f'add "{name}" to "flags"',
                )
        kinds = kinds_of_metrics(config, len(dataset.spec.example_shape))
        usable = usable_metrics(kinds)
        if sweep.rank_by in RANKING and sweep.rank_by not in usable:
            raise UserError(
                f'"rank_by" is {_shown(sweep.rank_by)}, but evaluations of {kinds[0]}, as '
                f"--dataset={shorten(config.dataset)} has, do not contain it",
                f"use {listed(usable)}",
            )


def _shown(value: Any) -> str:
    """Returns a value as the file spells it, for messages."""
    return shorten(json.dumps(value))
