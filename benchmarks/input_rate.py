"""Compares the speed of stores with decoding the same pictures in every epoch.

  python -m benchmarks.input_rate

JPEG pictures of smooth noise are written to a temporary folder. The program measures

- the pictures per second of training from memory and from a store of --gigabytes, in comparison
  with keras.utils.image_dataset_from_directory and the usual tf.data pipeline, which decode JPEG;
- the pictures per second of building a store, and of one epoch of image_dataset_from_directory;
- the largest memory of the processes that build a store;
- the time to the first iteration of a run whose store exists, and of a run on the digits.

Alternatives take turns. Figures are medians, and ratios are medians of the ratios within rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from wgan_gp.config import DataSettings, DeviceSettings
from wgan_gp.data import feed
from wgan_gp.data.datasets import Dataset
from wgan_gp.data.feed import replica_batches
from wgan_gp.data.sources.encoded import Encoded, Item
from wgan_gp.data.sources.folder import find_encoded
from wgan_gp.data.store.building import build
from wgan_gp.data.store.opening import slow

from . import outcome
from .start import TO_FIRST_LOOP, seconds

BATCH = 64
_DIFFERENT = 1024  # pictures; other files are links to them
_BUILD = """
from wgan_gp.config import DataSettings
from wgan_gp.data.sources.folder import find_encoded
from wgan_gp.data.store.building import build

settings = DataSettings(dataset="image_folder", data_dir={folder!r}, image_size="64")
build(find_encoded(settings), {out!r})
"""


def write_pictures(folder: pathlib.Path, count: int, size: tuple[int, int]) -> str:
    """Writes JPEG files of this height and width, about as large as those of photographs."""
    random = np.random.default_rng(0)
    for label in range(4):
        (folder / str(label)).mkdir(parents=True)
    paths = [folder / str(number % 4) / f"{number}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        if number >= _DIFFERENT:
            path.hardlink_to(paths[number % _DIFFERENT])
            continue
        coarse = random.uniform(0, 255, [*(side // 8 + 1 for side in size), 3])
        image = tf.cast(tf.image.resize(coarse.astype(np.float32), size, "bicubic"), tf.uint8)
        path.write_bytes(tf.io.encode_jpeg(image, quality=90).numpy())
    return str(folder)


def keras(folder: str, side: int) -> tf.data.Dataset:
    """Returns one epoch of the pipeline of Keras, with the center crop that this project uses."""
    return tf.keras.utils.image_dataset_from_directory(
        folder,
        labels=None,
        image_size=(side, side),
        batch_size=BATCH,
        crop_to_aspect_ratio=True,
        verbose=False,
    )


def naive(folder: str, side: int) -> tf.data.Dataset:
    """Returns the usual tf.data pipeline over the files of a folder."""

    def load(path: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [side, side]) / 127.5 - 1

    return (
        tf.data.Dataset.list_files(f"{folder}/*/*.jpg", shuffle=False)
        .shuffle(_DIFFERENT)
        .repeat()
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


class Levels(Encoded):
    """Random pictures, which need no decoding, for a store of any size."""

    class_names = None

    def __init__(self, size: int, side: int):
        self.origin = f"--data_dir=levels-{side}"
        self.size, self.shape, self.dtype = size, (side, side, 3), np.dtype(np.uint8)
        self._level = np.random.default_rng(0).integers(0, 256, [2 * side, side, 3], np.uint8)

    def identity(self) -> dict[str, Any]:
        return {"levels": self.size}

    fingerprint = identity

    def items(self, first: int = 0) -> Iterator[Item]:
        return (Item(str(number), 0, number) for number in range(first, self.size))

    def decode(self, number: int) -> np.ndarray:
        place = number % self.shape[0]
        return self._level[place : place + self.shape[0]]

    def resized(self, settings: DataSettings) -> Levels:
        raise NotImplementedError


def ours(source: Encoded, limit: int, stores: str, noise: bool) -> tf.data.Dataset:
    """Returns the batches of a run, in memory up to a number of bytes, or read from a store."""
    settings = DataSettings(data_cache=stores, dequantization=noise)
    with mock.patch.object(feed, "MAX_CACHE_BYTES", limit):
        data = Dataset(slow(source, settings), settings, "none", DeviceSettings()).open(
            batch_size=BATCH
        )
    return replica_batches(data, tf.distribute.InputContext(), batch_size=BATCH, first_step=0)


def rate(batches: tf.data.Dataset, duration: float) -> float:
    """Returns pictures per second after a warm-up.

    Each call has a new iterator, because an unused one would continue to prefetch while others are
    measured.
    """
    iterator = iter(batches)
    begin = time.perf_counter()
    while time.perf_counter() - begin < duration / 2:
        next(iterator)
    count, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < duration:
        next(iterator)
        count += BATCH
    return count / elapsed


def compare_feeds(
    side: int, folder: str, stores: str, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measures the pictures per second of training; see `in_turns`."""
    source = Levels(int(arguments.gigabytes * 1e9) // (side * side * 3), side)
    decoded = keras(folder, side).repeat().map(lambda images: images / 127.5 - 1)
    feeds = {
        "image_dataset_from_directory": decoded.prefetch(tf.data.AUTOTUNE),
        "usual tf.data pipeline": naive(folder, side),
        "memory": ours(source, 2**40, stores, False),
        "store": ours(source, 0, stores, False),
        "memory, with noise": ours(source, 2**40, stores, True),
        "store, with noise": ours(source, 0, stores, True),
    }
    found = in_turns(
        {name: functools.partial(rate, feed, arguments.seconds) for name, feed in feeds.items()},
        arguments.rounds,
    )
    first = found["image_dataset_from_directory"]
    return [
        {
            f"training at {side} pixels": name,
            "pictures/s": statistics.median(values),
            "relative to Keras": outcome.ratio(values, first),
            "relative to memory": (
                outcome.ratio(values, found[name.replace("store", "memory")])
                if "store" in name
                else None
            ),
        }
        for name, values in found.items()
    ]


def compare_builds(
    cases: list[tuple[str, str, int]], count: int, rounds: int
) -> list[dict[str, Any]]:
    """Measures the pictures per second of building a store and of an epoch of Keras.

    Args:
      cases: The name, the folder and the side in pixels of each case.
      count: The number of pictures in a folder.
      rounds: The number of rounds.
    """
    rows = []
    for name, folder, side in cases:

        def build_store(folder: str = folder, side: int = side) -> float:
            with tempfile.TemporaryDirectory() as out:
                begin = time.perf_counter()
                settings = DataSettings(
                    dataset="image_folder", data_dir=folder, image_size=str(side)
                )
                build(find_encoded(settings), f"{out}/store")
                return count / (time.perf_counter() - begin)

        def read_epoch(folder: str = folder, side: int = side) -> float:
            begin = time.perf_counter()
            for _ in keras(folder, side):
                pass
            return count / (time.perf_counter() - begin)

        found = in_turns({"build": build_store, "epoch": read_epoch}, rounds)
        rows.append(
            {
                "building a store": name,
                "pictures/s": statistics.median(found["build"]),
                "an epoch of Keras": statistics.median(found["epoch"]),
                "ratio": outcome.ratio(found["build"], found["epoch"]),
            }
        )
    return rows


def peak_of_build(folder: str) -> float:
    """Returns the largest memory of the processes that build a store at 64 pixels, in MB."""
    peak = 0
    with tempfile.TemporaryDirectory() as out:
        code = _BUILD.format(folder=folder, out=f"{out}/store")
        program = subprocess.Popen([sys.executable, "-c", code])
        while program.poll() is None:
            peak = max(peak, memory_of(program.pid))
            time.sleep(0.02)
    if program.returncode:
        raise RuntimeError("the store was not built")
    return peak / 1e6


def memory_of(process: int) -> int:
    """Returns the memory of a process and of those that it started, in bytes.

    What several of them share counts once.
    """
    found = 0
    with contextlib.suppress(OSError):  # it ended
        rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
        found += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
            found += sum(map(memory_of, map(int, children.read_text().split())))
    return found


def compare_starts(folder: str, stores: str, rounds: int) -> list[dict[str, Any]]:
    """Measures the seconds from the start of a process to the first iteration."""
    pictures = ["--dataset=image_folder", f"--data_dir={folder}", f"--data_cache={stores}"]

    def start(*flags: str) -> float:
        with tempfile.TemporaryDirectory() as run:
            shared = [f"--model_dir={run}/run", "--steps_per_loop=1", "--image_size=32"]
            return seconds([sys.executable, "-c", TO_FIRST_LOOP, *shared, *flags], "1\n")

    first = start(*pictures)
    found = in_turns(
        {"pictures with a store": lambda: start(*pictures), "digits": start},
        rounds,
    )
    rows = [
        {"to the first iteration": name, "seconds": statistics.median(values)}
        for name, values in found.items()
    ]
    return [{"to the first iteration": "pictures, first start", "seconds": first}, *rows]


def in_turns(measured: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Returns the results of each function, which are called in turns."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):  # in turns, so that other load on the machine affects all alike
        for name, measure in measured.items():
            found[name].append(measure())
    return found


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="duration of a measurement; default: 2"
    )
    parser.add_argument(
        "--gigabytes", type=float, default=1.2, help="size of the stores for training; default: 1.2"
    )
    parser.add_argument(
        "--pictures", type=int, default=24576, help="files that are built; default: 24576"
    )
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def report(found: list[dict[str, Any]]) -> None:
        print(outcome.table(found), end="\n\n", flush=True)
        rows.extend(found)

    with tempfile.TemporaryDirectory() as temporary:
        root, stores = pathlib.Path(temporary), f"{temporary}/stores"
        large = write_pictures(root / "large", arguments.pictures, (218, 178))
        small = write_pictures(root / "small", arguments.pictures, (32, 32))
        for side in (32, 64):
            report(compare_feeds(side, large, stores, arguments))
        cases = [
            ("32x32 to 32", small, 32),
            ("178x218 to 32", large, 32),
            ("178x218 to 64", large, 64),
        ]
        report(compare_builds(cases, arguments.pictures, arguments.rounds))
        report([{"the largest memory of building": "MB", "": peak_of_build(large)}])
        report(compare_starts(small, stores, arguments.rounds))
        outcome.save("input_rate", rows)


if __name__ == "__main__":
    main()
