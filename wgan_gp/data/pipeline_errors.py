"""Errors of the user that operations of a tf.data pipeline find, also on another machine.

An operation can fail only with a text. The text of `check` contains the number of a function of
this process and integers for it; `user_error_of` calls that function, which writes the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..errors import UserError

_makers: list[Callable[..., UserError]] = []  # one for each check of the pipelines of this process
_REPORT = re.compile(r"wgan_gp error (\d+) with \[([-\d ]*)\]")


def check(
    condition: tf.Tensor, make_error: Callable[..., UserError], *values: tf.Tensor
) -> tf.Operation:
    """Returns an operation that fails with an error of the user unless a condition holds.

    Args:
      condition: A scalar bool.
      make_error: Returns the error for the integers `values`.
      *values: Scalar integers, the arguments of `make_error`.
    """
    _makers.append(make_error)
    numbers = tf.strings.reduce_join(
        [tf.strings.as_string(value) for value in values], separator=" "
    )
    report = tf.strings.join([f"wgan_gp error {len(_makers) - 1} with [", numbers, "]"])
    return tf.debugging.Assert(condition, [report])


def checked_labels(labels: tf.Tensor, classes: int, origin: str, remedy: str) -> tf.Tensor:
    """Returns the labels of a batch; fails if they are not the numbers of classes.

    Args:
      labels: `[N]`, integers or floating-point numbers.
      classes: The number of classes.
      origin: What has the labels, and a verb, for the message.
      remedy: What the user can do.
    """
    numbers = tf.cast(labels, tf.float64)
    low, high = tf.reduce_min(numbers), tf.reduce_max(numbers)
    are_whole = tf.reduce_all(numbers == tf.floor(numbers))

    def make_error(low: int, high: int, are_whole: int) -> UserError:
        found = f"labels from {low} to {high}" if are_whole else "labels that are no whole numbers"
        return UserError(f"{origin} {found}, but its classes are 0 to {classes - 1}", remedy)

    is_valid = are_whole & (low >= 0) & (high < classes)
    values = (tf.cast(each, tf.int64) for each in (low, high, are_whole))
    with tf.control_dependencies([check(is_valid, make_error, *values)]):
        return tf.identity(labels)


def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function for `tf.numpy_function` whose UserError `user_error_of` returns again."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except UserError as error:
            found = error
        _makers.append(lambda: found)
        raise ValueError(f"wgan_gp error {len(_makers) - 1} with []")  # an InvalidArgumentError

    return call


def user_error_of(error: tf.errors.OpError) -> UserError | None:
    """Returns the error of the `check` that failed, or None for another error of TensorFlow."""
    found = _REPORT.search(error.message)
    if found is None:
        return None
    return _makers[int(found[1])](*map(int, found[2].split()))
