"""The features of a tf.train.Example: its picture, encoded or as raw pixels, and its label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ....errors import UserError, printable, shorten
from ..encoded import Unreadable
from ..pictures import decoding as pictures
from ..pictures.forms import MAX_COLOR_CHANNELS, Form

# The names of features that are looked for, the first one that an example has.
_STYLEGAN = "data"
_IMAGES = ("image", "image/encoded", "image_raw", "image_bytes", "encoded", _STYLEGAN)
_LABELS = ("label", "image/class/label", "class", "labels", "target")
_HEIGHTS = ("height", "image/height", "rows")
_WIDTHS = ("width", "image/width", "cols", "columns")
_DEPTHS = ("depth", "image/depth", "channels", "image/channels")
_SHAPE = "shape"
_LONG_TEXT = 200  # bytes


class Features(NamedTuple):
    """The features that are read.

    Attributes:
      image: The name of the feature of the picture.
      label: The name of the feature of the label; None without labels.
      is_raw: Whether pictures are raw pixels. A single example could not tell, because some encoded
        pictures have as many bytes as pixels.
    """

    image: str
    label: str | None
    is_raw: bool


def find_features(examples: Sequence[tf.train.Example], origin: str) -> Features:
    """Finds the features of the picture and of the label, in the first examples that have them.

    Raises:
      UserError: If there is none, with the reason for the first example.
    """
    first_error = None
    for example in examples:
        try:
            image = _image_feature(example, origin)
        except UserError as error:
            first_error = first_error or error
        else:
            found = [each for each in examples if _is_single(each, image, "bytes_list")]
            label = next(filter(None, map(_label_feature, found)), None)
            return Features(image, label, _are_raw(found, image))
    raise first_error or UserError(
        f"{origin} contains no tf.train.Example", "give TFRecord files of tf.train.Example"
    )


def header_of(example: tf.train.Example, features: Features, name: str) -> pictures.Header | None:
    """Returns the header of the picture of an example, or None if it cannot be read."""
    try:
        picture = _picture(example, features)
    except Unreadable:
        return None
    if isinstance(picture, bytes):
        return pictures.read_header(picture, name)
    height, width, channels = picture.shape
    return pictures.Header(name, (height, width), 8 * picture.dtype.itemsize, channels)


def decode(example: tf.train.Example, features: Features, form: Form) -> np.ndarray:
    """Decodes the picture of an example; see `pictures.decode`.

    Raises:
      Unreadable: If it has none, or it cannot be read.
    """
    picture = _picture(example, features)
    if isinstance(picture, bytes):
        return pictures.decode(picture, form)
    return pictures.fit(picture, form)


def _picture(example: tf.train.Example, features: Features) -> bytes | np.ndarray:
    """Returns the encoded or raw picture of an example.

    Raises:
      Unreadable: If it has none, or raw pixels of another size.
    """
    if not _is_single(example, features.image, "bytes_list"):
        raise Unreadable(f"it has no single {features.image}")
    if not features.is_raw:
        return _content(example, features.image)
    pixels = _raw_pixels(example, features.image)
    if pixels is None:
        raise Unreadable(f"its {features.image} has another size than its height and width")
    return pixels


def label_of(example: tf.train.Example, name: str) -> Any | None:
    """Returns the value of a feature, a tuple if it has several, or None if it has none.

    A long text, which may even be a picture, is not the name of a class, so it is None.
    """
    features = example.features.feature
    if name not in features or (kind := features[name].WhichOneof("kind")) is None:
        return None
    values = tuple(getattr(features[name], kind).value)
    if len(values) != 1:
        return values or None
    return None if isinstance(values[0], bytes) and len(values[0]) > _LONG_TEXT else values[0]


def _image_feature(example: tf.train.Example, origin: str) -> str:
    """Returns the name of the feature of the picture: a usual one, or the only one of bytes.

    Raises:
      UserError: If there is none.
    """
    features = example.features.feature
    of_bytes = [each for each in features if features[each].HasField("bytes_list")]
    name = next((each for each in _IMAGES if each in features), None)
    if name is None and len(of_bytes) == 1:
        (name,) = of_bytes
    if name is None or not _is_single(example, name, "bytes_list"):
        raise UserError(
            f"{origin}: the first example has no image (its features: {_names(example)})",
            "store one image in each example, as the content of a file or as raw uint8 pixels, and "
            f"name its feature {_IMAGES[0]}",
        )
    return name


def _label_feature(example: tf.train.Example) -> str | None:
    """Returns the name of the feature of the label, or None without labels."""
    return next((each for each in _LABELS if label_of(example, each) is not None), None)


def _are_raw(examples: Sequence[tf.train.Example], image: str) -> bool:
    """Returns True if most pictures have the size of raw pixels, and few are encoded."""
    raw = [each for each in examples if _raw_pixels(each, image) is not None]
    encoded = [each for each in examples if pictures.read_header(_content(each, image), "")]
    return 2 * len(raw) > len(examples) > 2 * len(encoded)


def _names(example: tf.train.Example) -> str:
    return printable(shorten(", ".join(sorted(example.features.feature)) or "none"))


def _is_single(example: tf.train.Example, name: str, kind: str) -> bool:
    """Returns True if an example has a feature of one value of this type."""
    features = example.features.feature
    return name in features and len(getattr(features[name], kind).value) == 1


def _content(example: tf.train.Example, name: str) -> bytes:
    return example.features.feature[name].bytes_list.value[0]


def _raw_pixels(example: tf.train.Example, name: str) -> np.ndarray | None:
    """Returns raw pixels `[H, W, C]`, or None if the content has another size.

    They are `[H, W, C]` with features of their height, width and perhaps depth, or of the feature
    `shape`, which is `[C, H, W]` in the files of StyleGAN. uint16 needs the depth or the shape.
    """
    content, shape, is_planar = _content(example, name), label_of(example, _SHAPE), False
    if not isinstance(shape, tuple) or not all(isinstance(side, int) for side in shape):
        height, width, depth = (
            next((value for each in names if type(value := label_of(example, each)) is int), None)
            for names in (_HEIGHTS, _WIDTHS, _DEPTHS)
        )
        if not height or not width:
            return None
        shape = height, width, len(content) // (height * width) if depth is None else depth
    elif len(shape) == 3:
        is_last, is_first = (1 <= shape[axis] <= MAX_COLOR_CHANNELS for axis in (2, 0))
        is_planar = is_first and (name == _STYLEGAN or not is_last)
    else:
        shape = (*shape, 1)
    if len(shape) != 3 or min(shape) < 1 or shape[0 if is_planar else 2] > MAX_COLOR_CHANNELS:
        return None
    count = math.prod(shape)
    if len(content) not in (count, 2 * count):
        return None
    dtype = np.dtype(np.uint8 if len(content) == count else "<u2")
    pixels = np.frombuffer(content, dtype).reshape(shape)
    return pixels.transpose(1, 2, 0) if is_planar else pixels
