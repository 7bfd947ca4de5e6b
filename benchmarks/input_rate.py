"""Compares the speed of the input pipeline with usual ways of reading the same files.

  python -m benchmarks.input_rate

JPEG images of 178x218 pixels are written to a temporary folder and to TFRecords. They are read at
32 and at 64 pixels by this project (from memory and from its store), by a naive tf.data pipeline
and by Keras. Figures are medians; ratios are to the naive pipeline for the same files and size.
Only the rows "with noise" add noise.
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
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.feed.pipeline import replica_batches

from . import outcome

BATCH = 64
IMAGES = 1024


def write_images(folder: pathlib.Path) -> None:
    """Writes images of smooth noise, whose files are about as large as those of photographs."""
    random = np.random.default_rng(0)
    for label in range(4):
        (folder / str(label)).mkdir(parents=True)
    for number in range(IMAGES):
        coarse = random.uniform(0, 255, [28, 23, 3]).astype(np.float32)
        image = tf.cast(tf.image.resize(coarse, [218, 178], "bicubic"), tf.uint8)
        path = folder / str(number % 4) / f"{number}.jpg"
        path.write_bytes(tf.io.encode_jpeg(image, quality=90).numpy())


def write_records(folder: pathlib.Path, path: str) -> None:
    """Writes the images of a folder into a TFRecord file."""
    with tf.io.TFRecordWriter(path) as writer:
        for file in sorted(folder.glob("*/*.jpg")):
            image = tf.train.BytesList(value=[file.read_bytes()])
            label = tf.train.Int64List(value=[int(file.parent.name)])
            features = {
                "image": tf.train.Feature(bytes_list=image),
                "label": tf.train.Feature(int64_list=label),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def naive(files: tf.data.Dataset, side: int, encoded: Callable) -> tf.data.Dataset:
    """Returns the usual tf.data pipeline.

    Args:
      files: The elements from which images are read.
      side: The height and width of the images.
      encoded: element of `files` -> JPEG.
    """

    def load(element: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(encoded(element), channels=3)
        return tf.image.resize(image, [side, side]) / 127.5 - 1

    return (
        files.shuffle(IMAGES)
        .repeat()
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def naive_folder(folder: pathlib.Path, side: int) -> tf.data.Dataset:
    """Returns the naive pipeline over the files of a folder."""
    files = tf.data.Dataset.list_files(f"{folder}/*/*.jpg", shuffle=False)
    return naive(files, side, tf.io.read_file)


def naive_records(path: str, side: int) -> tf.data.Dataset:
    """Returns the naive pipeline over a TFRecord file."""
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    return naive(
        tf.data.TFRecordDataset(path),
        side,
        lambda record: tf.io.parse_single_example(record, features)["image"],
    )


def keras(folder: pathlib.Path, side: int) -> tf.data.Dataset:
    """Returns the pipeline of Keras, with the center crop that this project uses."""
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
    """Returns the pipeline of this project."""
    config = Config(image_size=side, batch_size=BATCH, dequantization=noise, **settings)
    data = find_dataset(config).open(batch_size=BATCH)
    return replica_batches(data, tf.distribute.InputContext(), batch_size=BATCH, first_step=0)


def rate(batches: tf.data.Dataset, seconds: float) -> float:
    """Returns images per second after a warm-up.

    Each call has a new iterator, because an unused one would continue to prefetch while others are
    measured.
    """
    iterator = iter(batches)
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < 1.5 * seconds:
        if elapsed < seconds / 2:
            warm_up_count, warm_up_end = count, elapsed
        next(iterator)
        count += BATCH
    return (count - warm_up_count) / (elapsed - warm_up_end)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="duration of a measurement; default: 2"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, records = pathlib.Path(temporary) / "images", f"{temporary}/images.tfrecord"
        write_images(folder)
        write_records(folder, records)
        stores = {"data_cache": f"{temporary}/stores"}
        in_folder = {"dataset": "image_folder", "data_dir": str(folder), **stores}
        in_records = {"dataset": "tfrecord", "data_dir": records, **stores}
        rows = []
        for side in (32, 64):
            rows += compare(
                side,
                {
                    "naive tf.data, files": naive_folder(folder, side),
                    "image_dataset_from_directory": keras(folder, side),
                    "image_folder, from its store": ours(side, False, cache="off", **in_folder),
                    "  with noise": ours(side, True, cache="off", **in_folder),
                    "image_folder, in memory, with noise": ours(side, True, **in_folder),
                    "digits, in memory": ours(side, True, dataset="digits"),
                },
                arguments,
            )
            rows += compare(
                side,
                {
                    "naive tf.data, TFRecords": naive_records(in_records["data_dir"], side),
                    "tfrecord, from its store": ours(side, False, cache="off", **in_records),
                    "  with noise": ours(side, True, cache="off", **in_records),
                    "tfrecord, in memory, with noise": ours(side, True, **in_records),
                },
                arguments,
            )

        outcome.save("input_rate", rows)


def compare(
    side: int, pipelines: dict[str, tf.data.Dataset], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measures pipelines in turns and prints their medians and their ratios to the first one.

    Args:
      side: The height and width of the images.
      pipelines: The pipelines by name.
      arguments: The arguments of the program.

    Returns:
      The rows of the table.
    """
    rates: dict[str, list[float]] = {name: [] for name in pipelines}
    for _ in range(
        arguments.rounds
    ):  # in turns, so that other load on the machine affects all alike
        for name, batches in pipelines.items():
            rates[name].append(rate(batches, arguments.seconds))
    naive_rates = next(iter(rates.values()))
    rows: list[dict[str, Any]] = [
        {
            f"{side} pixels": name,
            "images/s": statistics.median(values),
            "relative to naive": outcome.ratio(values, naive_rates),
        }
        for name, values in rates.items()
    ]
    print(outcome.table(rows), flush=True)
    return rows


if __name__ == "__main__":
    main()
