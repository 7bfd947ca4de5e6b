"""Images a second of each source, beside the usual ways to read a folder, in one run.

python -m benchmarks.input_rate

Pictures of 178x218 pixels, JPEG, are written to a temporary folder, and read at 32 and at 64
pixels: by this project, from memory and as needed; by the naive tf.data chain; by Keras.
Figures are medians, and ratios to the naive chain of the same size.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from wgan_gp.config import Config
from wgan_gp.data import write_tfrecords
from wgan_gp.data.pipeline import replica_batches
from wgan_gp.data.registry import open_source

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


def naive(folder: pathlib.Path, side: int) -> tf.data.Dataset:
    """What tutorials do."""

    def load(path: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [side, side]) / 127.5 - 1

    files = tf.data.Dataset.list_files(f"{folder}/*/*.jpg", shuffle=False)
    return (
        files.shuffle(PICTURES)
        .repeat()
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
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


def ours(side: int, **settings) -> tf.data.Dataset:
    """A source of this project."""
    source = open_source(Config(image_size=side, batch_size=BATCH, **settings))
    return replica_batches(source, tf.distribute.InputContext(), batch_size=BATCH, first_step=0)


def rate(batches: tf.data.Dataset, seconds: float) -> float:
    """Images a second, after some to warm up."""
    iterator = iter(batches)
    for _ in range(8):
        next(iterator)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        next(iterator)
        count += BATCH
    return count / (time.perf_counter() - begin)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="medians are over these; default: 5")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each; default: 2")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, prefix = pathlib.Path(temporary) / "pictures", f"{temporary}/shards"
        write_pictures(folder)
        write_tfrecords.write(str(folder), prefix, 256, None)
        in_folder = {"dataset": "image_folder", "data_dir": str(folder)}
        in_records = {"dataset": "tfrecord", "data_dir": f"{prefix}-*"}
        for side in (32, 64):
            sources = {
                "naive tf.data": naive(folder, side),
                "image_dataset_from_directory": keras(folder, side),
                "image_folder, as needed": ours(side, cache="off", **in_folder),
                "tfrecord, as needed": ours(side, cache="off", **in_records),
                "image_folder, in memory": ours(side, cache="on", **in_folder),
                "tfrecord, in memory": ours(side, cache="on", **in_records),
                "digits": ours(side, dataset="digits"),
            }
            rates: dict[str, list[float]] = {name: [] for name in sources}
            for _ in range(given.rounds):  # in turns, so that a busy machine is so for all
                for name, batches in sources.items():
                    rates[name].append(rate(batches, given.seconds))
            usual = statistics.median(rates["naive tf.data"])
            print(f"{side} pixels")
            for name, values in rates.items():
                median = statistics.median(values)
                print(f"  {name:30}{median:10,.0f} images/s{median / usual:8.2f}")


if __name__ == "__main__":
    main()
