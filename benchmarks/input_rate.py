"""Images a second of each source, beside the usual ways to read the same files, in one run.

python -m benchmarks.input_rate

Pictures of 178x218 pixels, JPEG, are written to a temporary folder and to TFRecords, and read at
32 and at 64 pixels: by this project, from memory and as needed, and by the usual tf.data chains
and Keras. Figures are medians, and ratios to the naive chain of the same files and size. The
naive chains add no noise; where none is said, neither does this project.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from wgan_gp.config import Config
from wgan_gp.data import write_tfrecords
from wgan_gp.data.pipeline import replica_batches
from wgan_gp.data.registry import find_dataset

from . import outcome

BATCH = 64
PICTURES = 1024


def write_pictures(folder: pathlib.Path) -> None:
    """Smooth noise, so that files are about as long as photographs'."""
    random = np.random.default_rng(0)
    for label in range(4):
        (folder / str(label)).mkdir(parents=True)
    for number in range(PICTURES):
        coarse = random.uniform(0, 255, [28, 23, 3]).astype(np.float32)
        image = tf.cast(tf.image.resize(coarse, [218, 178], "bicubic"), tf.uint8)
        path = folder / str(number % 4) / f"{number}.jpg"
        path.write_bytes(tf.io.encode_jpeg(image, quality=90).numpy())


def naive(files: tf.data.Dataset, side: int, encoded: Callable) -> tf.data.Dataset:
    """What tutorials do; `encoded` gives a JPEG for an element of `files`."""

    def load(element: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(encoded(element), channels=3)
        return tf.image.resize(image, [side, side]) / 127.5 - 1

    return (
        files.shuffle(PICTURES)
        .repeat()
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def naive_folder(folder: pathlib.Path, side: int) -> tf.data.Dataset:
    """Of a folder's files."""
    files = tf.data.Dataset.list_files(f"{folder}/*/*.jpg", shuffle=False)
    return naive(files, side, tf.io.read_file)


def naive_records(pattern: str, side: int) -> tf.data.Dataset:
    """Of TFRecords."""
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    return naive(
        tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern))),
        side,
        lambda record: tf.io.parse_single_example(record, features)["image"],
    )


def keras(folder: pathlib.Path, side: int) -> tf.data.Dataset:
    """keras.utils.image_dataset_from_directory, cropped to the middle as here."""
    return (
        tf.keras.utils.image_dataset_from_directory(
            str(folder),
            labels=None,
            image_size=(side, side),
            batch_size=BATCH,
            crop_to_aspect_ratio=True,
            verbose=False,
        )
        .repeat()
        .map(lambda images: images / 127.5 - 1)
        .prefetch(tf.data.AUTOTUNE)
    )


def ours(side: int, noise: bool, **settings) -> tf.data.Dataset:
    """A source of this project."""
    config = Config(image_size=side, batch_size=BATCH, dequantization=noise, **settings)
    data = find_dataset(config).open(batch_size=BATCH)
    return replica_batches(data, tf.distribute.InputContext(), batch_size=BATCH, first_step=0)


def rate(batches: tf.data.Dataset, seconds: float) -> float:
    """Images a second, after some to warm up.

    Of an iterator of its own: one that is left would go on reading ahead, on others' time.
    """
    iterator = iter(batches)
    count, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < 1.5 * seconds:
        if passed < seconds / 2:
            first, since = count, passed  # tuned and warm from here on
        next(iterator)
        count += BATCH
    return (count - first) / (passed - since)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="medians are over these; default: 7")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each; default: 2")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, prefix = pathlib.Path(temporary) / "pictures", f"{temporary}/shards"
        write_pictures(folder)
        write_tfrecords.write(str(folder), prefix, 256, None)
        in_folder = {"dataset": "image_folder", "data_dir": str(folder)}
        in_records = {"dataset": "tfrecord", "data_dir": f"{prefix}-*"}
        rows = []
        for side in (32, 64):
            rows += compare(
                side,
                {
                    "naive tf.data, files": naive_folder(folder, side),
                    "image_dataset_from_directory": keras(folder, side),
                    "image_folder, as needed": ours(side, False, cache="off", **in_folder),
                    "  with noise": ours(side, True, cache="off", **in_folder),
                    "image_folder, in memory, with noise": ours(side, True, **in_folder),
                    "digits, in memory": ours(side, True, dataset="digits"),
                },
                given,
            )
            rows += compare(
                side,
                {
                    "naive tf.data, TFRecords": naive_records(in_records["data_dir"], side),
                    "tfrecord, as needed": ours(side, False, cache="off", **in_records),
                    "  with noise": ours(side, True, cache="off", **in_records),
                    "tfrecord, in memory, with noise": ours(side, True, **in_records),
                },
                given,
            )

        outcome.save("input_rate", rows)


def compare(
    side: int, sources: dict[str, tf.data.Dataset], given: argparse.Namespace
) -> list[dict[str, Any]]:
    """Prints a table: medians, and those of the ratios to the first, round for round."""
    rates: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(given.rounds):  # in turns, so that a busy machine is so for all
        for name, batches in sources.items():
            rates[name].append(rate(batches, given.seconds))
    usual = next(iter(rates.values()))
    rows: list[dict[str, Any]] = [
        {
            f"{side} pixels": name,
            "images/s": statistics.median(values),
            "of the naive chain": outcome.ratio(values, usual),
        }
        for name, values in rates.items()
    ]
    print(outcome.table(rows), flush=True)
    return rows


if __name__ == "__main__":
    main()
