"""Writes a folder of images as TFRecord files, for --dataset=tfrecord.

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

from absl import logging

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tqdm

from ..config import parse_image_size, sides_of
from ..errors import UserError, printable, reason
from ..run_directory.files import list_prefix
from ..runtime.streams import show_log_lines
from .sources import listing, pixels, tiff
from .sources.folder import ImageFolder, list_images
from .sources.headers import ImageForm, read_header

_MOST_CHANNELS = 4  # of a PNG


def main(arguments: list[str]) -> int:
    """Runs the program and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wgan_gp.data.write_tfrecords", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", help="folder of the images; its subfolders are the labels")
    parser.add_argument(
        "prefix", help="beginning of the paths: PREFIX-00000-of-00012.tfrecord, ..."
    )
    parser.add_argument("--images_per_file", type=int, default=2000, help="maximum; default: 2000")
    parser.add_argument(
        "--image_size",
        help="size in pixels, such as 64 or 48x24, to which images are cropped and resized, as "
        "PNG; default: copy files",
    )
    parser.add_argument(
        "--image_channels",
        type=int,
        choices=(1, 2, 3, 4),
        help="channels of the PNG files of --image_size: gray, gray and alpha, color, color and "
        "alpha; default: 3",
    )
    given = parser.parse_args(arguments)
    show_log_lines()
    if given.images_per_file < 1:
        parser.error(f"--images_per_file={given.images_per_file} is too small — use at least 1")
    if given.image_channels is not None and given.image_size is None:
        parser.error("--image_channels requires --image_size — without it, files are copied")
    try:
        shape = None
        if given.image_size is not None:
            size = sides_of(parse_image_size("image_size", given.image_size))
            shape = (*size, given.image_channels or 3)
        write(given.folder, given.prefix, given.images_per_file, shape)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def write(path: str, prefix: str, images_per_file: int, shape: tuple[int, int, int] | None) -> None:
    """Writes all readable images in random order and names unreadable ones on stderr.

    A file is renamed to its final name when it is complete.

    Args:
      path: The folder of the images.
      prefix: The beginning of the paths of the TFRecord files.
      images_per_file: The largest number of images in a file.
      shape: `(H, W, C)` of the images, to which they are cropped, resized and converted, with C of
        1 to 4. None copies the files, except TIFF files, which become PNG.

    Raises:
      UserError: If no image is readable, an image has more channels than a PNG, a file cannot be
        written, or files of an earlier call with another number of files exist.
    """
    with listing.reading(path):
        folder = list_images(path, path)
    order = list(range(len(folder.files)))
    random.Random(0).shuffle(order)  # so that each part of a file has images of all classes
    count = math.ceil(len(order) / images_per_file)
    _check_earlier_files(prefix, count)
    unreadable: list[str] = []
    with tqdm.tqdm(total=len(order), unit=" images", disable=not sys.stderr.isatty()) as bar:
        for shard in range(count):
            name = f"{prefix}-{shard:05}-of-{count:05}.tfrecord"
            unreadable += _write_file(name, folder, order[shard::count], shape, bar)
    if unreadable:
        logging.warning(
            f"skipped images that cannot be read: {', '.join(map(printable, unreadable))}"
        )
    if len(unreadable) == len(order):
        raise UserError(
            f"{path} contains no image that can be read", "give JPEG, PNG, GIF or TIFF files"
        )
    channels = "" if shape is None or shape[2] == 3 else f" --image_channels={shape[2]}"
    _print_command(prefix, folder, len(order) - len(unreadable), channels)


def _check_earlier_files(prefix: str, count: int) -> None:
    """Raises UserError if files of an earlier call exist that this call would not replace."""
    earlier = [
        file
        for file in list_prefix(f"{prefix}-")
        if re.search(r"-\d+-of-\d+\.tfrecord$", file)
        and not file.endswith(f"-of-{count:05}.tfrecord")
    ]
    if earlier:
        raise UserError(
            f"{prefix} has {len(earlier)} files of an earlier call, such as {min(earlier)}",
            "delete them, or use another prefix",
        )


def _write_file(
    name: str,
    folder: ImageFolder,
    indices: list[int],
    shape: tuple[int, int, int] | None,
    bar: tqdm.tqdm,
) -> list[str]:
    """Writes a TFRecord file and returns the paths of the images that cannot be read."""
    unreadable = []
    try:
        parent = posixpath.dirname(name)
        if parent:
            tf.io.gfile.makedirs(parent)
        with tf.io.TFRecordWriter(f"{name}.new") as writer:
            for index in indices:
                bar.update()
                image = _read(posixpath.join(folder.path, folder.files[index]), shape)
                if image is None:
                    unreadable.append(folder.files[index])
                else:
                    writer.write(_example(image, folder.labels[index]))
        tf.io.gfile.rename(f"{name}.new", name, overwrite=True)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(
            f"{name} cannot be written ({reason(error)})", "free some space, or use another prefix"
        ) from error
    return unreadable


def _print_command(prefix: str, folder: ImageFolder, count: int, channels: str) -> None:
    """Prints the flags that train on the files, and the names of the labels."""
    names = folder.class_names
    classes = "" if "" in names else f" --num_classes={len(names)}"
    print(f"wrote {count} images to {prefix}-*.tfrecord; to train on them, use")
    print(f"  --dataset=tfrecord --data_dir='{prefix}-*.tfrecord'{classes}{channels}")
    if classes:
        print(f"labels: {', '.join(f'{label} {name}' for label, name in enumerate(names))}")


def _read(path: str, shape: tuple[int, int, int] | None) -> bytes | None:
    """Returns the content of an image file, or a PNG, or None if the image is unreadable.

    A PNG keeps 16 bits.
    """
    try:
        encoded = tf.io.read_file(path)
        content = encoded.numpy()
        header = read_header(path, content)
        bits = header.bits if header else 8
        if header is not None and header.channels > _MOST_CHANNELS:
            raise UserError(
                f"{path} has {header.channels} channels, and a PNG has at most {_MOST_CHANNELS}",
                "train with --dataset=image_folder",
            )
        if shape is not None:
            form = ImageForm(shape, bits, has_tiff=tiff.is_tiff(content))
            return tf.io.encode_png(pixels.decode(encoded, form)).numpy()
        if tiff.is_tiff(content):
            dtype = tf.uint16 if bits > 8 else tf.uint8
            return tf.io.encode_png(tiff.decode(encoded, dtype, pixels.MAX_PIXELS)).numpy()
        pixels.check_not_bmp(encoded)
        tf.io.decode_image(encoded, expand_animations=False)
        return content
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
