"""Writes a folder of pictures as TFRecord files, for --dataset=tfrecord.

python -m wgan_gp.data.write_tfrecords FOLDER gs://BUCKET/PREFIX --image_size=64
"""

from __future__ import annotations

import argparse
import math
import os
import posixpath
import random
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tqdm

from ..errors import UserError, reason
from ..files import list_prefix
from . import folder as folders
from . import listing, pixels


def main(arguments: list[str]) -> int:
    """Runs the program and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wgan_gp.data.write_tfrecords", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", help="of the pictures; its subfolders become the labels")
    parser.add_argument("prefix", help="files are PREFIX-00000-of-00012.tfrecord and so on")
    parser.add_argument("--images_per_file", type=int, default=2000, help="default: 2000")
    parser.add_argument(
        "--image_size", type=int, help="crop and resize to this side, as PNG; default: as they are"
    )
    given = parser.parse_args(arguments)
    for name in ("images_per_file", "image_size"):
        if (value := getattr(given, name)) is not None and value < 1:
            parser.error(f"--{name}={value} is too small — give at least 1")
    try:
        write(given.folder, given.prefix, given.images_per_file, given.image_size)
    except UserError as error:
        print(f"error: {error}".replace("--data_dir=", ""), file=sys.stderr)
        return 2
    return 0


def write(path: str, prefix: str, images_per_file: int, side: int | None) -> None:
    """Writes all readable images in random order and names unreadable ones on stderr.

    A file is renamed to its final name once it is complete.

    Args:
      path: The folder of the images.
      prefix: The beginning of the paths of the TFRecord files.
      images_per_file: The largest number of images in a file.
      side: The size to which images are cropped and resized, in pixels. None copies the files.

    Raises:
      UserError: If there is no readable image, or files cannot be written, or files of an
        earlier call with another number of files exist.
    """
    with listing.reading(path):
        found = folders.find(path)
    order = list(range(len(found.files)))
    random.Random(0).shuffle(order)  # so that each part of a file has images of all classes
    count = math.ceil(len(order) / images_per_file)
    others = [
        file
        for file in list_prefix(f"{prefix}-")
        if re.search(r"-\d+-of-\d+\.tfrecord$", file)
        and not file.endswith(f"-of-{count:05}.tfrecord")
    ]
    if others:
        raise UserError(
            f"{prefix} has {len(others)} files of an earlier writing, such as {min(others)}",
            "delete them, or give another prefix",
        )
    bad = []
    with tqdm.tqdm(total=len(order), unit=" images", disable=not sys.stderr.isatty()) as bar:
        for shard in range(count):
            name = f"{prefix}-{shard:05}-of-{count:05}.tfrecord"
            try:
                parent = posixpath.dirname(name)
                if parent:
                    tf.io.gfile.makedirs(parent)
                with tf.io.TFRecordWriter(f"{name}.new") as writer:
                    for index in order[shard::count]:
                        bar.update()
                        image = _read(posixpath.join(path, found.files[index]), side)
                        if image is None:
                            bad.append(found.files[index])
                        else:
                            writer.write(_example(image, found.labels[index]))
                tf.io.gfile.rename(f"{name}.new", name, overwrite=True)
            except (OSError, tf.errors.OpError) as error:
                raise UserError(
                    f"{name} cannot be written ({reason(error)})",
                    "make room there, or give another",
                ) from error
    if bad:
        print(f"warning: cannot be read and left out: {', '.join(bad)}", file=sys.stderr)
    if len(bad) == len(order):
        raise UserError(f"{path} holds no image that can be read", "give JPEG, PNG, BMP or GIF")
    print(f"{len(order) - len(bad)} images are in {prefix}-*.tfrecord: train with")
    classes = f" --num_classes={len(found.names)}" if "" not in found.names else ""
    print(f"  --dataset=tfrecord --data_dir='{prefix}-*.tfrecord'{classes}")
    if classes:
        print(f"labels: {', '.join(f'{i} {name}' for i, name in enumerate(found.names))}")


def _read(path: str, side: int | None) -> bytes | None:
    """Returns the content of an image file, or a resized PNG, or None if it is unreadable."""
    try:
        encoded = tf.io.read_file(path)
        if side is None:
            tf.io.decode_image(encoded, expand_animations=False)
            return encoded.numpy()
        return tf.io.encode_png(pixels.decode(encoded, (side, side, 3))).numpy()
    except tf.errors.OpError:
        return None


def _example(image: bytes, label: int) -> bytes:
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
