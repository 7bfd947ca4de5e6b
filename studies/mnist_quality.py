"""Trains this project and two other programs on MNIST for equal times, and compares the samples.

  make setup-bench
  python -m studies.mnist_quality --data_dir=DIR                     60 minutes each
  python -m studies.mnist_quality --data_dir=DIR --minutes=5 --mark=1

DIR is the folder in which tensorflow-datasets has prepared MNIST. The programs are this project
with configs/mnist_fast.flags ("ours") and with configs/mnist.flags ("paper"), Keras's WGAN-GP
example, and a DCGAN with a gradient penalty in PyTorch.
`--ours=NAME=FLAGFILE` adds another configuration of this project.

The cores are divided into --lanes. In each lane, the program that has trained least trains for a
turn of --turn seconds, so that none gets the quieter machine; the others wait. Only training
counts, not imports, saving or sampling; what a program compiles counts. Everything is kept in
--folder, and the same command continues after an interruption. Every --mark minutes of its
training, each program draws 10,000 samples.

A classifier that is fitted to 10,000 training images judges the samples against the 10,000 test
images. The row "training images" is 10,000 other training images.
`curve.png` shows the FID over time, and `NAME.png` samples of each program.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple, cast

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks import outcome

SAMPLES = 10_000
SHOWN_MINUTES = (15, 30, 60)
GRID = (6, 20)  # rows and columns of the pictures of samples
CLASSIFIED = 10_000  # training images to which the classifier is fitted


class Program:
    """A process that trains in turns; `baselines.mnist_worker` is the program that it runs.

    Args:
      name: The name of the program.
      folder: The folder of its state, its samples, and the log of its turns.
      arguments: The arguments of the worker after the folder.
      mark: The seconds of training between two sets of samples.
      limit: The seconds of training in all.
      cores: The cores on which it starts.

    Attributes:
      name: The name of the program.
      seconds: The seconds of training so far, also of earlier calls.
      iterations: The iterations done so far.
    """

    def __init__(
        self,
        name: str,
        folder: pathlib.Path,
        arguments: Sequence[str],
        *,
        mark: float,
        limit: float,
        cores: Sequence[int],
    ):
        self.name = name
        self._folder, self._mark, self._limit = folder, mark, limit
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "turns.jsonl"
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        last = json.loads(lines[-1]) if lines else {"seconds": 0.0, "iterations": 0}
        self.seconds, self.iterations = last["seconds"], last["iterations"]
        kind = name if name in ("keras", "torch") else "ours"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "studies.baselines.mnist_worker"),
                *(",".join(map(str, cores)), kind, str(folder / "state"), *arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    @property
    def is_done(self) -> bool:
        """Is True if it has trained for all its time."""
        return self.seconds >= self._limit

    def turn(self, seconds: float, cores: Sequence[int]) -> None:
        """Trains for a turn on these cores, and draws samples when it passes a mark."""
        for task in os.listdir(f"/proc/{self._process.pid}/task"):
            os.sched_setaffinity(int(task), cores)
        before = self.seconds // self._mark
        # A turn ends at the next mark, where samples are drawn.
        upto = min((before + 1) * self._mark, self._limit) - self.seconds
        answer = self._request({"train": max(0.01, min(seconds, upto))})
        self.seconds += answer["seconds"]
        self.iterations = answer["iterations"]
        done = {"seconds": self.seconds, "iterations": self.iterations}
        if self.seconds // self._mark > before or self.is_done:
            minutes = round(self.seconds / 60, 2)
            self._request({"sample": [SAMPLES, str(self._folder / f"samples-{minutes}.npy")]})
        with open(self._log, "a") as log:
            print(json.dumps(done), file=log)

    def close(self) -> None:
        """Ends the process."""
        cast(IO, self._process.stdin).close()
        self._process.wait()

    def _request(self, content: Any) -> Any:
        print(json.dumps(content), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        answer = cast(IO, self._process.stdout).readline()
        if not answer:
            raise SystemExit(f"error: {self.name} ended with status {self._process.wait()}")
        return json.loads(answer)


class Queue:
    """Chooses the next program of a lane: the one that has trained least."""

    def __init__(self, programs: Sequence[Program]):
        self._programs = programs
        self._busy: set[Program] = set()
        self._changed = threading.Condition()
        self.failures: list[BaseException] = []

    def take(self) -> Program | None:
        """Waits for a program that neither trains nor is done; None if all are done."""
        with self._changed:
            while not self.failures:
                unfinished = [each for each in self._programs if not each.is_done]
                if not unfinished:
                    break
                if idle := [each for each in unfinished if each not in self._busy]:
                    self._busy.add(chosen := min(idle, key=lambda each: each.seconds))
                    return chosen
                self._changed.wait()
        return None

    def put_back(self, program: Program, failure: BaseException | None = None) -> None:
        """Makes a program available to all lanes, or ends all lanes after a failure."""
        with self._changed:
            if failure is not None:
                self.failures.append(failure)
            self._busy.discard(program)
            self._changed.notify_all()


def train(programs: Sequence[Program], lanes: Sequence[Sequence[int]], turn: float) -> None:
    """Trains all programs to the end of their time, one in each lane at a time."""
    queue = Queue(programs)

    def serve(cores: Sequence[int]) -> None:
        while program := queue.take():
            failure = None
            try:
                program.turn(turn, cores)
                minutes = program.seconds / 60
                print(
                    f"{program.name}: {minutes:.1f} minutes, {program.iterations} iterations",
                    flush=True,
                )
            except BaseException as caught:
                failure = caught
            queue.put_back(program, failure)

    threads = [threading.Thread(target=serve, args=(cores,)) for cores in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if queue.failures:
        raise queue.failures[0]


class Images(NamedTuple):
    """Images `[N, 28, 28, 1]` uint8 and their labels `[N]`."""

    images: np.ndarray
    labels: np.ndarray


def load_mnist(data_dir: str, split: str) -> Images:
    """Returns a split of MNIST as prepared by tensorflow-datasets."""
    import tensorflow_datasets  # noqa: PLC0415

    builder = tensorflow_datasets.builder("mnist", data_dir=data_dir)
    data = tensorflow_datasets.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    return Images(data["image"], data["label"])


def make_judge(fitted: Images, test: Images) -> Callable[[np.ndarray], dict[str, float]]:
    """Returns a function from samples `[N, 28, 28, 1]` uint8 to their figures.

    Args:
      fitted: Training images, to which the classifier is fitted.
      test: The images with which the samples are compared.
    """
    import tensorflow as tf  # noqa: PLC0415

    from wgan_gp.evaluation import classifier, metrics  # noqa: PLC0415

    def to_unit(images: np.ndarray) -> np.ndarray:
        return (images / 127.5 - 1).astype(np.float32)

    network = classifier.Classifier(classifier.fit(to_unit(fitted.images), fitted.labels, 10))

    def features(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found, probabilities = network(tf.constant(to_unit(images)))
        return found.numpy(), probabilities.numpy()

    real, _ = features(test.images)
    moments, radii = metrics.Moments.from_features(real), metrics.squared_radii(real)

    def judge(samples: np.ndarray) -> dict[str, float]:
        found, probabilities = features(samples)
        manifold = metrics.manifold_metrics(real, found, radii)
        shares = np.bincount(probabilities.argmax(axis=1), minlength=10) / len(samples)
        return {
            "FID": metrics.frechet_distance(metrics.Moments.from_features(found), moments),
            "precision": manifold.precision,
            "recall": manifold.recall,
            "confidence": float(probabilities.max(axis=1).mean()),
            "smallest class": float(shares.min()),
            "largest class": float(shares.max()),
        }

    return judge


def judge_all(
    folder: pathlib.Path, names: Sequence[str], judge: Callable[[np.ndarray], dict[str, float]]
) -> list[dict[str, Any]]:
    """Returns a row for each set of samples, in the order of the programs and of time."""
    rows = []
    for name in names:
        paths = {float(path.stem.split("-")[1]): path for path in (folder / name).glob("samples-*")}
        for minutes in sorted(paths):
            figures = judge(np.load(paths[minutes]))
            rows.append({"program": name, "minutes": minutes, **figures})
    return rows


def draw_curve(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
    """Writes a plot of FID over the minutes of training."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for name in dict.fromkeys(row["program"] for row in rows):
        points = [(row["minutes"], row["FID"]) for row in rows if row["program"] == name]
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set(xlabel="minutes of training", ylabel="FID", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_samples(samples: np.ndarray, path: pathlib.Path) -> None:
    """Writes a grid of the first samples."""
    import PIL.Image  # noqa: PLC0415

    rows, columns = GRID
    grid = samples[: rows * columns, ..., 0].reshape(rows, columns, 28, 28)
    PIL.Image.fromarray(grid.transpose(0, 2, 1, 3).reshape(rows * 28, columns * 28)).save(path)


def split_cores(lanes: int) -> list[list[int]]:
    """Divides the available cores into lanes."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= lanes <= len(cores):
        raise SystemExit(f"error: --lanes={lanes}, but there are {len(cores)} cores")
    return [part.tolist() for part in np.array_split(cores, lanes)]


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_dir", required=True, help="folder of tensorflow-datasets")
    parser.add_argument("--minutes", type=float, default=60, help="of training for each program")
    parser.add_argument("--mark", type=float, default=5, help="minutes between sets of samples")
    parser.add_argument("--turn", type=float, default=60, help="seconds of a turn")
    parser.add_argument("--lanes", type=int, default=1, help="programs that train at a time")
    parser.add_argument("--folder", default="runs/mnist_quality", help="where everything is kept")
    parser.add_argument(
        "--programs", default="ours,paper,keras,torch", help="what to compare, by their names"
    )
    parser.add_argument(
        "--ours",
        action="append",
        default=["ours=configs/mnist_fast.flags", "paper=configs/mnist.flags"],
        help="NAME=FLAGFILE, a configuration of this project",
    )
    arguments = parser.parse_args(argv)
    folder, lanes = pathlib.Path(arguments.folder), split_cores(arguments.lanes)
    folder.mkdir(parents=True, exist_ok=True)
    train_split, test = (load_mnist(arguments.data_dir, split) for split in ("train", "test"))
    count = min(CLASSIFIED, len(train_split.images) // 2)
    fitted = Images(*(each[:count] for each in train_split))
    if not (folder / "images.npy").exists():
        np.save(folder / "images.npy", train_split.images)
    configurations = dict(each.split("=", 1) for each in arguments.ours)
    names = arguments.programs.split(",")
    programs = []
    for name in names:
        own = [arguments.data_dir, f"--flagfile={configurations.get(name)}"]
        if name not in configurations and name not in ("keras", "torch"):
            raise SystemExit(f"error: {name} is not a program — use keras, torch, or --ours")
        programs.append(
            Program(
                name,
                folder / name,
                own if name in configurations else [str(folder)],
                mark=60 * arguments.mark,
                limit=60 * arguments.minutes,
                cores=lanes[0],
            )
        )
    try:
        train(programs, lanes, arguments.turn)
    finally:
        for program in programs:
            program.close()
    judge = make_judge(fitted, test)
    rows = judge_all(folder, names, judge)
    draw_curve(rows, folder / "curve.png")
    for name in names:
        newest = max(row["minutes"] for row in rows if row["program"] == name)
        draw_samples(np.load(folder / name / f"samples-{newest}.npy"), folder / f"{name}.png")
    # Features differ between the images to which they are fitted and all others.
    rows.append({"program": "training images", **judge(train_split.images[count : 2 * count])})
    shown = {*SHOWN_MINUTES, int(arguments.minutes)}
    print(outcome.table([row for row in rows if int(row.get("minutes", 60)) in shown]))
    done = {each.name: each.iterations for each in programs}
    outcome.save("mnist_quality", rows, iterations=done, **vars(arguments))


if __name__ == "__main__":
    main()
