"""Checks of what a process printed, and of the results in a run directory."""

from __future__ import annotations

import io
import json
import pathlib
import re
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from tests.helpers.forks import ProcessResult

ROOT = pathlib.Path(__file__).parents[2]
SUMMARY_INTERVAL = 5  # iterations between summaries and between checkpoints
TRAIN_STEPS = 30
# Lines on stderr that are not failures.
EXPECTED_LINES = re.compile(
    r"note: |warning: |training on |resuming after \d+ iterations|\d+/30: "
    r"|\S+/ckpt-\d+: \d+ iterations|fitted a classifier of |all 30 iterations are done"
)

Values = dict[str, Any]  # numbers and arrays by name


def check_process(result: ProcessResult) -> list[str]:
    """Returns the problems with the exit status and the output of a process."""
    if result.status is None:
        return ["timeout"]
    problems = []
    if result.status not in (0, 2):
        problems.append(f"exit status {result.status}")
    if "Traceback" in result.err + result.out:
        return [*problems, f"a traceback through {_last_frame(result.err)}"]
    lines = result.err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if len(errors) != (1 if result.status == 2 else 0):
        problems.append(f"{len(errors)} error lines")
    elif errors and errors[0] != lines.pop():
        problems.append("the error is not the last line")
    if unexpected := [line for line in lines if not EXPECTED_LINES.match(line)]:
        problems.append(f"on stderr: {printable(unexpected[0])[:200]}")
    if long := [line for line in lines + errors if len(line) > 2000]:
        problems.append(f"a line of {len(long[0])} characters")
    return problems


def _last_frame(traceback: str) -> str:
    """Returns the last file and line of this project in a traceback."""
    frames = re.findall(r'File "(.*)", line (\d+), in', traceback)
    own_frames = [
        f"{pathlib.Path(file).relative_to(ROOT)}:{line}"
        for file, line in frames
        if file.startswith(f"{ROOT}/") and "/site-packages/" not in file
    ]
    return own_frames[-1] if own_frames else "no file of this project"


def printable(line: str) -> str:
    """Replaces characters that cannot be printed."""
    return "".join(each if each.isprintable() else "?" for each in line)


def _read_samples(path: pathlib.Path, result: ProcessResult) -> Values:
    with np.load(result.out.splitlines()[-1]) as arrays:
        return dict(arrays)


def _read_evaluation(path: pathlib.Path, result: ProcessResult) -> Values:
    return json.loads((path / "evaluation.jsonl").read_bytes().splitlines()[-1])


def _read_export(path: pathlib.Path, result: ProcessResult) -> Values:
    exported = path / "newly_exported"
    values = tensors(exported / "saved_model" / "variables" / "variables")

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            values[f"generator.keras: {name}"] = item[()]

    with zipfile.ZipFile(exported / "generator.keras") as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(weights) as file:
        file.visititems(add)
    return values


# Functions that read the values that a use of a run directory produced.
READ_VALUES: dict[str, Callable[[pathlib.Path, ProcessResult], Values]] = {
    "sample": _read_samples,
    "evaluate": _read_evaluation,
    "export": _read_export,
}


def tensors(checkpoint: pathlib.Path) -> Values:
    """Reads all values of a TensorFlow checkpoint by name."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def compare_values(found: Values, expected: Values) -> list[str]:
    """Returns the number of differences and one example, or an empty list for equal values."""
    names = sorted(found.keys() ^ expected.keys())
    names += [
        name
        for name in found.keys() & expected.keys()
        if not np.array_equal(np.asarray(found[name]), np.asarray(expected[name]))
    ]
    return [f"{len(names)} values differ, such as {names[0]}"] if names else []


def check_resumed(
    path: pathlib.Path, before: pathlib.Path, reference: pathlib.Path, result: ProcessResult
) -> list[str]:
    """Returns the differences between a resumed run and the undamaged run when resumed.

    Args:
      path: The resumed run.
      before: A copy of the run after it was damaged and before it was resumed.
      reference: The undamaged run after it was resumed.
      result: The result of the process that resumed the run.
    """
    started = re.search(r"^resuming after (\d+) iterations$", result.err, re.MULTILINE)
    start = int(started[1]) if started else 0
    problems = []
    for number in range(start + SUMMARY_INTERVAL, TRAIN_STEPS + 1, SUMMARY_INTERVAL):
        saved = pathlib.Path("checkpoints", f"ckpt-{number}")
        if (reference / f"{saved}.index").exists():  # the oldest ones are deleted
            problems += compare_values(tensors(path / saved), tensors(reference / saved))
    for name in ("metrics.jsonl", "evaluation.jsonl"):
        problems += check_lines(name, path, before, reference, start)
    found, expected = curve(path), curve(reference)
    if len(set(found)) < len(found) or not set(found) <= set(expected):
        problems.append("TensorBoard has other values")
    elif {pair for pair in expected if pair[0] > start} > set(found):
        problems.append("TensorBoard lacks values")
    return problems


def check_appended(path: pathlib.Path, before: pathlib.Path) -> list[str]:
    """Returns the lines that a .jsonl file lost when a line was appended.

    An incomplete last line, which a crash leaves, may be lost.
    """
    earlier = before.read_bytes().split(b"\n") if before.is_file() else [b""]
    if not _is_record(earlier[-1]):
        earlier.pop()
    kept = set(path.read_bytes().split(b"\n"))
    damaged = path.with_name(f"{path.name}.damaged")
    if damaged.is_file():
        kept |= set(damaged.read_bytes().split(b"\n"))
    lost = [line for line in earlier if line.strip() and line not in kept]
    return [f"{path.name} has lost {lost[0]!r:.80}"] if lost else []


def check_lines(
    name: str, path: pathlib.Path, before: pathlib.Path, reference: pathlib.Path, start: int
) -> list[str]:
    """Returns the problems with a .jsonl file after a resume.

    A record later than `start` must equal that of the reference. An earlier record, which is not
    computed again, may also be unchanged: a changed digit cannot be detected. Undamaged earlier
    records must not be lost; they may be moved aside with damaged ones.

    Args:
      name: The name of the file.
      path: The resumed run.
      before: A copy of the run after it was damaged and before it was resumed.
      reference: The undamaged run after it was resumed.
      start: The iteration from which the run was resumed.
    """
    expected = {step: values for step, values in _records(reference / name) if step is not None}
    found, earlier = _records(path / name), _records(before / name)
    problems = []
    for step, values in found:
        if step is None:
            problems.append(f"{name} contains a damaged line")
        elif expected.get(step) != values and ((step, values) not in earlier or step > start):
            problems.append(f"{name} has other values after {step} iterations")
    steps = [step for step, _ in found if step is not None]
    if name == "metrics.jsonl" and steps != sorted(set(steps)):
        problems.append(f"{name} has the iterations {steps}")
    if missing := {step for step in expected if step > start} - set(steps):
        problems.append(f"{name} lacks the iterations {sorted(missing)}")
    undamaged = {
        step for step, values in earlier if step is not None and values == expected.get(step)
    }
    aside = {step for step, _ in _records(path / f"{name}.damaged")}
    if lost := {step for step in undamaged if step <= start} - set(steps) - aside:
        problems.append(f"{name} has lost the iterations {sorted(lost)}")
    return problems


def _is_record(line: bytes) -> bool:
    try:
        return "step" in json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return False


def _records(path: pathlib.Path) -> list[tuple[int | None, Values]]:
    """Returns the step and the values of each line; the step of a damaged line is None."""
    records: list[tuple[int | None, Values]] = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            record = json.loads(line)
            step = record.pop("step")
            if any(isinstance(value, (list, dict)) for value in record.values()):
                raise ValueError("a value is not a scalar")
            values = {tag: value for tag, value in record.items() if "throughput" not in tag}
            records.append((step if type(step) is int else None, values))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            records.append((None, {}))
    return records


def differences(one: pathlib.Path, other: pathlib.Path, step: int) -> list[str]:
    """Returns the names of values and files that differ in two runs after `step` iterations."""
    mine, theirs = (tensors(run / "checkpoints" / f"ckpt-{step}") for run in (one, other))
    found = sorted(mine.keys() ^ theirs.keys())
    found += [
        name
        for name in mine.keys() & theirs.keys()
        if not np.array_equal(mine[name], theirs[name], equal_nan=True)
    ]
    for name, read in (("metrics.jsonl", metrics), ("TensorBoard", curve)):
        if read(one) != read(other):
            found.append(name)
    return found


def metrics(model_dir: pathlib.Path) -> list[dict]:
    """Returns the lines of metrics.jsonl without the measurements of speed."""
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    return [
        {tag: value for tag, value in json.loads(line).items() if "throughput" not in tag}
        for line in lines
    ]


def curve(model_dir: pathlib.Path) -> list[tuple[int, float]]:
    """Returns the critic's losses in TensorBoard in the order of writing: (step, value)."""
    return [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for path in sorted((model_dir / "train").glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "critic/loss"
    ]
