"""Encoded images of a dataset, and their decoding."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from absl import logging

from ...errors import UserError, printable
from ..feed.pipeline_errors import check
from . import pixels
from .headers import ImageForm, cropping_error

_MAX_NAMED = 20  # unreadable images named in a warning; the others are only counted


class EncodedImages(abc.ABC):
    """A dataset of encoded images.

    An element is a pair (index, payload). A payload is a nest of tensors from which `read` gets the
    image.

    Attributes:
      origin: The flag for messages, such as "--data_dir=photos".
      size: The number of images.
      classes: The number of classes; labels must be 0 ... classes - 1. 0 allows all labels.
    """

    origin: str
    size: int
    classes: int

    @abc.abstractmethod
    def in_order(self) -> tf.data.Dataset:
        """Returns a dataset of all elements, once each."""

    @abc.abstractmethod
    def shuffled(self, first: int, count: int) -> tf.data.Dataset:
        """Returns an endless dataset of batches of `count` elements, from a position on.

        The order is a function of (seed, epoch).
        """

    @abc.abstractmethod
    def read(self, payload: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the content of an image file, scalar string, and the label, scalar integer."""

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Returns the name of an image for messages."""


def no_readable_image(images: EncodedImages) -> UserError:
    """Returns the error of a dataset of which no image can be read."""
    return UserError(
        f"{images.origin} contains no image that can be read",
        "give JPEG, PNG, GIF or TIFF files",
    )


def warn_of_unreadable(images: EncodedImages, indices: Iterable[int], outcome: str) -> None:
    """Names unreadable images on stderr, with what happens to them."""
    names = [printable(images.name(int(index))) for index in indices]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    logging.warning(
        f"{images.origin}: {len(names)} of {images.size} images cannot be read and "
        f"{'is' if len(names) == 1 else 'are'} {outcome}: {', '.join(names[:_MAX_NAMED])}{more}"
    )


def decode_readable(images: EncodedImages, form: ImageForm, parallel: int) -> tf.data.Dataset:
    """Returns the readable images in order, as (index, image, label).

    Under --crop=none, an image that would be cropped is an error; see `pipeline_errors`.
    """
    decoded = (
        images.in_order()
        .map(
            lambda index, payload: (index, *decode_element(images, index, payload, form)),
            num_parallel_calls=parallel,
            deterministic=True,
        )
        .ignore_errors()
    )
    return check_cropping(decoded, images, form)


def decode_element(
    images: EncodedImages, index: tf.Tensor, payload: Any, form: ImageForm
) -> tuple[tf.Tensor, ...]:
    """Returns an image, its label and, under --crop=none, its index if it would be cropped, or -1.

    The label is int64; as int32, a label of 2**40 would become 0.
    """
    file, label = images.read(payload)
    decoded = pixels.decode(file, form), tf.cast(label, tf.int64)
    if form.crop != "none":
        return decoded
    return *decoded, tf.where(pixels.is_cropped(file, form), index, tf.constant(-1, tf.int64))


def blank_element(form: ImageForm, dtype: tf.DType) -> tuple[tf.Tensor, ...]:
    """Returns a tuple like that of `decode_element` without an image."""
    blank = tf.zeros(form.shape, dtype), tf.constant(0, tf.int64)
    return blank if form.crop != "none" else (*blank, tf.constant(-1, tf.int64))


def check_cropping(
    decoded: tf.data.Dataset, images: EncodedImages, form: ImageForm
) -> tf.data.Dataset:
    """Returns (key, image, label) of elements (key, *decode_element) that may be cropped.

    This is not a part of `decode_element`, whose errors are ignored: it is an unreadable image.
    """
    if form.crop != "none":
        return decoded

    def error_of(index: int) -> UserError:
        name = printable(images.name(index))
        return cropping_error(images.origin, f"{name} has another aspect ratio")

    def refuse(key: Any, image: tf.Tensor, label: tf.Tensor, cropped: tf.Tensor) -> tuple:
        with tf.control_dependencies([check(cropped < 0, error_of, cropped)]):
            return key, tf.identity(image), label

    return decoded.map(refuse)
