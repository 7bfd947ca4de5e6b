"""Random transformations of the examples that the critic sees (--augment).

The transformations are those of DiffAugment (Zhao et al. 2020, arXiv:2006.10738, section 3.3 and
the authors' code): color, translation and cutout, for images `[H, W, C]` with any number of
channels and for signals `[T, C]`. For given parameters, each is an affine function of the example,
A x + b. A point between a real and a fake example that are transformed with the same parameters is
therefore the transformed point between them. All shapes are static, and integer shifts are selected
rather than gathered, so that gradients of any order are dense and exact on every device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

MAX_SHIFT = 1 / 8  # of each side
CUTOUT = 1 / 2  # of each side
DRAWS = 12  # brightness, saturation, contrast, two shifts, two starts of a cutout, five choices
_COLORS, _SHIFTS, _CUTS, _CHOICES = slice(3), slice(3, 5), slice(5, 7), slice(7, 12)


class Parameters(NamedTuple):
    """The parameters of the transformations of a batch; None for one that is not applied.

    Attributes:
      brightness: `[B]`, is added to all elements.
      saturation: `[B]`, scales the difference from the mean of the three channels. Not used for
        another number of channels.
      contrast: `[B]`, scales the difference from the mean of the example.
      shifts: `[B]` int32 for each axis, in [0, 2 m] for a largest shift of m: m is no shift.
      cuts: `[B]` int32 for each axis, the first position of the area that is set to 0.
    """

    brightness: tf.Tensor | None = None
    saturation: tf.Tensor | None = None
    contrast: tf.Tensor | None = None
    shifts: Sequence[tf.Tensor] | None = None
    cuts: Sequence[tf.Tensor] | None = None


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random transformations of examples.

    Example i of all batches is transformed alike, and so is every point between a real and a fake
    example.

    Attributes:
      policy: The transformations, some of "color", "translation" and "cutout".
      probability: A scalar variable, the probability of each transformation of an example. None
        transforms every example.
    """

    policy: Sequence[str]
    probability: tf.Variable | None = None

    def __call__(self, draws: tf.Tensor, *batches: tf.Tensor) -> list[tf.Tensor]:
        """Returns the batches, transformed with the same parameters.

        Args:
          draws: `[B, DRAWS]`, uniform on [0, 1).
          *batches: `[B, H, W, C]` or `[B, T, C]`, floating point, all of the same shape.
        """
        probability = self.probability
        parameters = parameters_from(
            draws,
            batches[0].shape[1:],
            self.policy,
            None if probability is None else tf.convert_to_tensor(probability),
        )
        return [transform(examples, parameters) for examples in batches]


def parameters_from(
    draws: tf.Tensor,
    example_shape: Sequence[int],
    policy: Sequence[str],
    probability: tf.Tensor | None = None,
) -> Parameters:
    """Returns the parameters of the transformations of a batch.

    The ranges are those of DiffAugment's code. Each of brightness, saturation, contrast,
    translation and cutout is applied independently with the given probability, as in Karras et al.
    2020 (arXiv:2006.06676, section 2.2).

    Args:
      draws: `[B, DRAWS]`, uniform on [0, 1).
      example_shape: `(H, W, C)` or `(T, C)`.
      policy: The names of the transformations.
      probability: Scalar float32; None for 1.
    """
    sides = tuple(example_shape[:-1])
    chosen: list[Any] = [None] * 5
    if probability is not None:
        chosen = tf.unstack(draws[:, _CHOICES] < probability, axis=1)

    def choose(index: int, value: tf.Tensor, neutral: float) -> tf.Tensor:
        if chosen[index] is None:
            return value
        return tf.where(chosen[index], value, tf.cast(neutral, value.dtype))

    parameters = Parameters()
    if "color" in policy:
        brightness, saturation, contrast = tf.unstack(draws[:, _COLORS], axis=1)
        parameters = parameters._replace(
            brightness=choose(0, brightness - 0.5, 0.0),
            saturation=choose(1, 2.0 * saturation, 1.0),
            contrast=choose(2, contrast + 0.5, 1.0),
        )
    if "translation" in policy:
        limits = [_max_shift(side) for side in sides]
        columns = tf.unstack(draws[:, _SHIFTS], axis=1)[: len(sides)]
        shifts = [
            choose(3, _integers(column, 2 * limit + 1), limit)
            for column, limit in zip(columns, limits, strict=True)
        ]
        parameters = parameters._replace(shifts=shifts)
    if "cutout" in policy:
        columns = tf.unstack(draws[:, _CUTS], axis=1)[: len(sides)]
        cuts = [
            # The center of the area is uniform over the image. A start at -side is outside.
            choose(4, _integers(column, side + 1 - size % 2) - size // 2, -side)
            for column, side, size in zip(columns, sides, map(_cut_size, sides), strict=True)
        ]
        parameters = parameters._replace(cuts=cuts)
    return parameters


def transform(examples: tf.Tensor, parameters: Parameters) -> tf.Tensor:
    """Returns the transformed examples, in the shape and dtype of `examples`.

    Args:
      examples: `[B, H, W, C]` or `[B, T, C]`, floating point.
      parameters: One row for each example.
    """
    axes = list(range(1, examples.shape.rank))

    def per_example(values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [-1, *([1] * len(axes))])

    def color(values: tf.Tensor) -> tf.Tensor:
        return tf.cast(per_example(values), examples.dtype)

    if parameters.brightness is not None:
        if examples.shape[-1] == 3:
            gray = tf.reduce_mean(examples, -1, keepdims=True)
            examples = gray + color(parameters.saturation) * (examples - gray)
        # The order of brightness and the other two does not matter, because brightness changes
        # only the mean. Added to the examples, it would be merged with their normalization in the
        # device loop, and be rounded differently there.
        mean = tf.reduce_mean(examples, axes, keepdims=True)
        changed = mean + color(parameters.brightness)
        examples = changed + color(parameters.contrast) * (examples - mean)
    for axis, offset in enumerate(parameters.shifts or (), start=1):
        examples = _shift(examples, per_example(offset), axis)
    if parameters.cuts is not None:
        inside = tf.constant(True)
        for axis, start in enumerate(parameters.cuts, start=1):
            side = examples.shape[axis]
            positions = tf.reshape(tf.range(side), [-1 if each == axis else 1 for each in axes])
            first = per_example(start)
            inside &= (positions >= first) & (positions < first + _cut_size(side))
        examples = tf.where(inside, tf.zeros([], examples.dtype), examples)
    return examples


def _max_shift(side: int) -> int:
    return int(side * MAX_SHIFT + 0.5)


def _cut_size(side: int) -> int:
    return int(side * CUTOUT + 0.5)


def _integers(draws: tf.Tensor, count: int) -> tf.Tensor:
    """Returns integers uniform on 0 ... count - 1, int32, for draws uniform on [0, 1)."""
    return tf.cast(draws * count, tf.int32)


def _shift(examples: tf.Tensor, offset: tf.Tensor, axis: int) -> tf.Tensor:
    """Shifts each example along an axis and fills with 0.

    Bit k of the offset selects between the examples and the examples moved by 2^k. A gather's
    gradient would be a scatter, which is slow on a TPU, and a product with a one-hot matrix is
    rounded to bfloat16 there.

    Args:
      examples: `[B, ...]`.
      offset: `[B, 1, ...]` int32 in [0, 2 m] for the largest shift m; position i of the result
        is position i + offset - m of the example.
      axis: The axis, not 0.
    """
    largest = _max_shift(examples.shape[axis])
    bits = (2 * largest).bit_length()
    paddings = [[0, 0] for _ in examples.shape]
    paddings[axis] = [largest, 2**bits - 1 - largest]
    examples = tf.pad(examples, paddings)
    for bit in range(bits):
        step = 2**bit
        length = examples.shape[axis] - step
        before = (slice(None),) * axis  # tf.slice has no second derivative under XLA
        stay, moved = (examples[(*before, slice(begin, begin + length))] for begin in (0, step))
        is_set = tf.bitwise.bitwise_and(offset, step) > 0
        examples = tf.where(is_set, moved, stay)
    return examples
