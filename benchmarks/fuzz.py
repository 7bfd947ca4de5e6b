"""Damages run directories at random, and uses them.

  python -m benchmarks.fuzz                       300 seeds
  python -m benchmarks.fuzz --first=17 --seeds=1  the seed 17 again

For each seed, one to three random corruptions of a copy of a small run, then one use of it: it is
resumed, sampled, evaluated or exported. The program must either give what the undamaged run gives,
or exit with status 2 and one line that says what is wrong.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import functools
import io
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import unittest.mock
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as the program does, but it comes later

import h5py
import numpy as np
import tensorflow as tf
import tqdm

import train
from benchmarks import kills
from benchmarks.corruptions import corrupt
from benchmarks.forks import Ended, execute

ROOT = pathlib.Path(__file__).parent.parent
DATASETS = ("gaussians_8", "digits")
RUN = ["--model=mlp", "--model_width=4", "--model_depth=1", "--latent_size=4", "--batch_size=16"]
RUN += ["--n_critic=1", "--steps_per_loop=5", "--summary_interval=5", "--checkpoint_interval=5"]
RUN += ["--sample_interval=10", "--evaluate_interval=10", "--evaluate_samples=64"]
RUN += ["--train_steps=30"]
SAVED = (5, 10, 15, 20)  # then it is killed, as it is about to save the fifth
END = 30
KILLED = 99  # exit status

USES: dict[str, list[str]] = {
    "resume": RUN,
    "sample": ["--mode=sample", "--sample_format=npz", "--num_samples=16"],
    "evaluate": ["--mode=evaluate"],
    "export": ["--mode=export", "--output=RUN/newly_exported"],
}
# What the program says where nothing is wrong, or nothing that stops it.
ORDINARY = re.compile(
    r"warning: |training on |resuming after \d+ iterations|\d+/30: |\S+/ckpt-\d+: \d+ iterations"
    r"|fitted a classifier of |all 30 iterations are done"
)

Values = dict[str, Any]  # numbers and arrays by name


def main() -> None:
    """Prints a line for each failure, and exits 1; or that there was none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for copies of what failed")
    given = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # one of its readers is deprecated
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(pathlib.Path(folder), given.keep)
        seeds = range(given.first, given.first + given.seeds)
        failures = 0
        for failure in tqdm.tqdm(fuzz.run(seeds), total=len(seeds), unit="seed", disable=None):
            if failure is not None:
                print(failure, flush=True)
                failures += 1
    print(f"{given.seeds} seeds, {failures} failures; {fuzz.summary()}")
    sys.exit(bool(failures))


class Fuzz:
    """Damages and uses copies of two runs, one of points and one of images.

    Args:
      folder: an empty directory to work in.
      keep: where damaged directories that led to a failure are kept; None: nowhere.
    """

    def __init__(self, folder: pathlib.Path, keep: pathlib.Path | None = None):
        self._folder = folder
        self._keep = keep
        self._endings: collections.Counter[str] = collections.Counter()
        self._expected = functools.cache(self._compute_expected)
        for dataset in DATASETS:
            self._prepare(dataset)

    def run(self, seeds: Iterable[int]) -> Iterable[str | None]:
        """Yields what failed with each seed, in words; None: nothing."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield from pool.map(self.check, seeds)

    def summary(self) -> str:
        """Returns how often each use ended in which way."""
        counts = sorted(self._endings.items())
        return ", ".join(f"{ending}: {count}" for ending, count in counts)

    def check(self, seed: int) -> str | None:
        """Returns what failed with one seed, in words; None: nothing."""
        dice = random.Random(seed)
        dataset, use = dice.choice(["gaussians_8", "gaussians_8", "digits"]), dice.choice([*USES])
        whole, damaged = self._folder / dataset, self._folder / str(seed) / "run"
        shutil.copytree(whole, damaged)
        done = "; ".join(corrupt(damaged, dice) for _ in range(dice.choice([1, 2, 3])))
        before = self._folder / str(seed) / "before"
        shutil.copytree(damaged, before)
        ended = self._use(use, damaged, dataset)
        problems = check_ending(ended)
        if ended.status == 0:
            try:
                problems += self._check_result(dataset, use, damaged, before, ended)
            except Exception as error:  # whatever cannot be read back is a failure
                problems.append(f"its result cannot be read ({type(error).__name__}: {error})")
        self._endings[f"{use} {ended.status}"] += 1
        if problems and self._keep is not None:
            shutil.copytree(before, self._keep / str(seed), dirs_exist_ok=True)
        shutil.rmtree(self._folder / str(seed))
        if not problems:
            return None
        last = "\n".join(f"    {_printable(line)[:300]}" for line in ended.err.splitlines()[-6:])
        return f"seed {seed}: {dataset}, {use}\n  {done}\n  {'; '.join(problems)}\n{last}"

    def _use(
        self,
        use: str,
        path: pathlib.Path,
        dataset: str,
        *arguments: str,
        target: Callable[[list[str]], int] | None = None,
    ) -> Ended:
        flags = [flag.replace("RUN", str(path)) for flag in (*USES[use], *arguments)]
        return execute([f"--model_dir={path}", f"--dataset={dataset}", *flags], target)

    def _prepare(self, dataset: str) -> None:
        """Trains a run that is killed, uses it in every way, and resumes a copy to its end."""
        whole, resumed = self._folder / dataset, self._folder / f"{dataset}-resumed"
        ended = self._use("resume", whole, dataset, target=_killed_in_saving)
        if ended.status != KILLED:
            raise RuntimeError(f"the run ended with {ended.status}: {ended.err}")
        for use in USES:
            path = whole
            if use == "resume":
                path = resumed
                shutil.copytree(whole, resumed)
            ended = self._use(use, path, dataset)
            if ended.status != 0 or check_ending(ended):
                raise RuntimeError(f"{use} ended with {ended.status}: {ended.err}")
        (whole / "newly_exported").rename(whole / "exported")  # an export replaces no file

    def _compute_expected(self, dataset: str, use: str, iteration: int) -> Values:
        """Returns the result of using a checkpoint of the undamaged run."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            copy = pathlib.Path(folder) / "run"
            shutil.copytree(self._folder / dataset, copy)
            checkpoint = copy / "checkpoints" / f"ckpt-{iteration}"
            ended = self._use(use, copy, dataset, f"--restore_from={checkpoint}")
            return RESULTS[use](copy, ended)

    def _check_result(
        self, dataset: str, use: str, path: pathlib.Path, before: pathlib.Path, ended: Ended
    ) -> list[str]:
        if use == "resume":
            return check_resumed(path, before, self._folder / f"{dataset}-resumed", ended)
        used = re.search(r"/ckpt-(\d+): \d+ iterations$", ended.err, re.MULTILINE)
        if used is None:
            return ["nobody knows which checkpoint was used"]
        problems = [
            f"ckpt-{newer} was skipped silently"
            for newer in SAVED
            if newer > int(used[1])
            and not re.search(rf"^warning: .*/ckpt-{newer}\b.* is skipped", ended.err, re.M)
        ]
        found = RESULTS[use](path, ended)
        problems += different(found, self._expected(dataset, use, int(used[1])))
        if use == "evaluate":
            problems += check_appended(path / "evaluation.jsonl", before / "evaluation.jsonl")
        return problems


def _killed_in_saving(arguments: list[str]) -> int:
    """Runs the program until it is about to save a checkpoint that SAVED does not hold."""
    from wgan_gp.checkpointing import Checkpoints  # noqa: PLC0415

    save, calls = Checkpoints.save, itertools.count()

    def save_or_die(checkpoints: Checkpoints) -> None:
        if next(calls) == len(SAVED):
            os._exit(KILLED)
        save(checkpoints)

    with unittest.mock.patch.object(Checkpoints, "save", save_or_die):
        return train.main(arguments)


def check_ending(ended: Ended) -> list[str]:
    """Returns what is wrong with an exit status and with what was said."""
    if ended.status is None:
        return ["it hung"]
    problems = []
    if ended.status not in (0, 2):
        problems.append(f"exit status {ended.status}")
    if "Traceback" in ended.err + ended.out:
        return [*problems, f"a traceback through {_frame(ended.err)}"]
    lines = ended.err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if len(errors) != (1 if ended.status == 2 else 0):
        problems.append(f"{len(errors)} error lines")
    elif errors and errors[0] != lines.pop():
        problems.append("the error is not the last line")
    if odd := [line for line in lines if not ORDINARY.match(line)]:
        problems.append(f"on stderr: {_printable(odd[0])[:200]}")
    if long := [line for line in lines + errors if len(line) > 2000]:
        problems.append(f"a line of {len(long[0])} characters")
    return problems


def _frame(traceback: str) -> str:
    """Returns the last place in a traceback that is in this project."""
    places = re.findall(r'File "(.*)", line (\d+), in', traceback)
    here = [
        f"{pathlib.Path(file).relative_to(ROOT)}:{line}"
        for file, line in places
        if file.startswith(f"{ROOT}/") and "/site-packages/" not in file
    ]
    return here[-1] if here else "none of this project's files"


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in line)


# What a use gave.


def _sampled(path: pathlib.Path, ended: Ended) -> Values:
    with np.load(ended.out.splitlines()[-1]) as arrays:
        return dict(arrays)


def _evaluated(path: pathlib.Path, ended: Ended) -> Values:
    return json.loads((path / "evaluation.jsonl").read_bytes().splitlines()[-1])


def _exported(path: pathlib.Path, ended: Ended) -> Values:
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


RESULTS: dict[str, Callable[[pathlib.Path, Ended], Values]] = {
    "sample": _sampled,
    "evaluate": _evaluated,
    "export": _exported,
}


def tensors(checkpoint: pathlib.Path) -> Values:
    """Returns the values that a checkpoint of TensorFlow holds."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def different(mine: Values, theirs: Values) -> list[str]:
    """Returns the first value that is not the undamaged run's, in words, if there is one."""
    names = sorted(mine.keys() ^ theirs.keys())
    names += [
        name
        for name in mine.keys() & theirs.keys()
        if not np.array_equal(np.asarray(mine[name]), np.asarray(theirs[name]))
    ]
    return [f"{len(names)} other values, such as {names[0]}"] if names else []


def check_resumed(
    path: pathlib.Path, before: pathlib.Path, reference: pathlib.Path, ended: Ended
) -> list[str]:
    """Returns what a resumed run has other than the undamaged run that was resumed."""
    started = re.search(r"^resuming after (\d+) iterations$", ended.err, re.MULTILINE)
    start = int(started[1]) if started else 0
    problems = []
    for number in range(start + 5, END + 1, 5):
        saved = pathlib.Path("checkpoints", f"ckpt-{number}")
        if (reference / f"{saved}.index").exists():  # the oldest are deleted
            problems += different(tensors(path / saved), tensors(reference / saved))
    for name in ("metrics.jsonl", "evaluation.jsonl"):
        problems += check_lines(name, path, before, reference, start)
    curve, expected = kills.curve(path), kills.curve(reference)
    if len(set(curve)) < len(curve) or not set(curve) <= set(expected):
        problems.append("TensorBoard has other figures")
    elif {pair for pair in expected if pair[0] > start} > set(curve):
        problems.append("TensorBoard lacks figures")
    return problems


def check_appended(path: pathlib.Path, before: pathlib.Path) -> list[str]:
    """Returns what is wrong with a .jsonl file that a line was added to: all else must be there.

    But for the beginning of a line, which a crash leaves.
    """
    former = before.read_bytes().split(b"\n") if before.is_file() else [b""]
    if not _is_record(former[-1]):
        former.pop()
    kept = set(path.read_bytes().split(b"\n"))
    aside = path.with_name(f"{path.name}.damaged")
    if aside.is_file():
        kept |= set(aside.read_bytes().split(b"\n"))
    lost = [line for line in former if line.strip() and line not in kept]
    return [f"{path.name} has lost {lost[0]!r:.80}"] if lost else []


def check_lines(
    name: str, path: pathlib.Path, before: pathlib.Path, reference: pathlib.Path, start: int
) -> list[str]:
    """Returns what is wrong with a .jsonl file of figures.

    A line later than `start` must be one of the reference's. An earlier one, which is not computed
    again, may also be as it was found: nothing tells that a digit of it was changed. It must be a
    record, though, and none of the reference's that was there may be lost.
    """
    known = {step: figures for step, figures in _records(reference / name) if step is not None}
    found, former = _records(path / name), _records(before / name)
    problems = []
    for step, figures in found:
        if step is None:
            problems.append(f"{name} holds a line that is no record")
        elif known.get(step) != figures and ((step, figures) not in former or step > start):
            problems.append(f"{name} has other figures after {step} iterations")
    steps = [step for step, _ in found if step is not None]
    if name == "metrics.jsonl" and steps != sorted(set(steps)):
        problems.append(f"{name} has the iterations {steps}")
    if missing := {step for step in known if step > start} - set(steps):
        problems.append(f"{name} lacks the iterations {sorted(missing)}")
    good = {step for step, figures in former if step in known and known[step] == figures}
    if lost := {step for step in good if step <= start} - set(steps):
        problems.append(f"{name} has lost the iterations {sorted(lost)}")
    return problems


def _is_record(line: bytes) -> bool:
    try:
        return "step" in json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return False


def _records(path: pathlib.Path) -> list[tuple[int | None, Values]]:
    """Returns the step and the figures of each line; the step is None where that is no record."""
    found: list[tuple[int | None, Values]] = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            record = json.loads(line)
            step = record.pop("step")
            if any(isinstance(value, (list, dict)) for value in record.values()):
                raise ValueError("not a record of scalars")
            figures = {tag: value for tag, value in record.items() if "throughput" not in tag}
            found.append((step if type(step) is int else None, figures))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            found.append((None, {}))
    return found


if __name__ == "__main__":
    main()
