"""A check of the penalty's gradient against finite differences, in float64."""

import dataclasses
from typing import Any

import tensorflow as tf

from .findings import Finding
from .float64 import (
    STOP_ALL,
    STOP_MOMENTS,
    STOP_NONE,
    Float64Function,
    NotEvaluatedError,
)
from .scores import Critic, score

# Relative. In float64, a finite difference of a smooth function is far more exact.
_TOLERANCE = 1e-4
_STEPS = (1e-6, 1e-7, 1e-8)  # relative to the weights; small ones rarely cross a kink of ReLU
# The same for a graph with operations that only have a float32 kernel.
_ROUNDED_TOLERANCE, _ROUNDED_STEPS = 0.03, (1e-2, 3e-3, 1e-3)
_OMITTED = 0.01  # a share of the derivative that is worth a warning
_ROUNDING = 1e-14  # of a sum of many terms in float64, relative
_EQUAL = 1e-10  # relative; two values that differ by rounding errors only
_JITTER = 0.05  # relative; no weight is exactly 0, where ReLU would have a kink
_PENALTY, _TOTAL = 0, 1  # outputs of the traced function; the derivatives follow
_RESIZE_REMEDY = (
    "TensorFlow has no second derivative of a bilinear resize: use "
    "UpSampling2D(interpolation='nearest') or Conv2DTranspose"
)
_REMEDY = (
    "remove the custom gradient, the stop_gradient or the operation without a second derivative"
)


def check_second_derivative(critic: Critic, examples: tf.Tensor, group_size: int) -> list[Finding]:
    """Compares the gradient of the squared gradient norm in the weights with finite differences.

    Both are computed in float64 at the critic's weights plus a small random number each. A
    difference along three random directions, in which all weights change, is attributed to the
    weights by a difference along each of them.

    A value under tf.stop_gradient in the critic itself, such as the singular vectors of spectral
    normalization or a straight-through estimator, is a deliberate approximation of the first
    derivative: it is reported, but is not fatal.

    Args:
      critic: See `check_critic`; it has no other fatal finding.
      examples: `[B, ...]`.
      group_size: See `check_critic`.

    Returns:
      A finding "wrong_second_derivative", which is fatal, "omitted_second_derivative",
      "estimated_gradient" or "unchecked_second_derivative"; [] if the derivatives agree.
    """
    reason = ""
    # A critic with labels may require the number of its examples.
    for batch in (examples[: max(2, group_size)], examples):
        try:
            return _findings_on(critic, batch)
        except NotEvaluatedError as error:
            reason = f"TensorFlow cannot compute {error} in float64"
        except Exception as error:  # a critic may be impossible to trace
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    message = (
        f"the penalty's gradient was not compared with finite differences, because {reason}: "
        "compare it yourself if the critic has custom gradients"
    )
    return [Finding("unchecked_second_derivative", message, fatal=False)]


def _findings_on(critic: Critic, examples: tf.Tensor) -> list[Finding]:
    """Returns the findings on a batch of examples, see `check_second_derivative`."""
    weights: list[Any] = []

    @tf.function(autograph=False)
    def derivatives(points: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                inner.watch(points)
                total = tf.reduce_sum(score(critic, points))
            gradient = inner.gradient(total, points)
            # In the dtype of the examples, which is float64 when it is evaluated.
            penalty = tf.reduce_sum(tf.square(gradient))
        weights[:] = outer.watched_variables()
        zero = tf.UnconnectedGradients.ZERO
        of_penalty = outer.gradient(penalty, weights, unconnected_gradients=zero)
        of_total = outer.gradient(total, weights, unconnected_gradients=zero)
        # A gradient of an embedding is sparse.
        slopes = [tf.convert_to_tensor(each) for each in [*of_penalty, *of_total]]
        return [penalty, total, *slopes, gradient]

    concrete = derivatives.get_concrete_function(tf.TensorSpec(examples.shape, examples.dtype))
    function = Float64Function(concrete)
    handles = [weight.handle for weight in weights]
    return _Comparison(function, weights, handles, examples).findings() if weights else []


@dataclasses.dataclass(frozen=True)
class _Point:
    """A point at which derivatives are compared: weights, a direction of them, and examples."""

    weights: list[tf.Tensor]
    direction: list[tf.Tensor]
    examples: tf.Tensor
    example_direction: tf.Tensor
    constants: dict[str, Any]  # of an evaluation, see Float64Function


class _Comparison:
    """A comparison of the derivatives of a traced critic with finite differences."""

    def __init__(self, function: Float64Function, weights: list, handles: list, examples: Any):
        self._function, self._variables, self._handles = function, weights, handles
        self._values = [tf.cast(tf.convert_to_tensor(weight), tf.float64) for weight in weights]
        self._examples = tf.cast(examples, tf.float64)
        count = len(weights)
        self._slopes = {_PENALTY: range(2, 2 + count), _TOTAL: range(2 + count, 2 + 2 * count)}
        self._gradient = 2 + 2 * count

    def findings(self) -> list[Finding]:
        for attempt, step in enumerate(_STEPS):
            point = self._point(attempt)
            if self._agrees(_PENALTY, point, step):
                return [] if self._agrees_without_moments(point, step) else [_OMITS_TERM]
        if self._function.rounded:
            if self._agrees_roughly():
                return []
            raise NotEvaluatedError(", ".join(sorted(self._function.rounded)))
        free = dataclasses.replace(point, constants={})
        if self._agrees(_PENALTY, free, step, stopped=STOP_ALL):
            estimated, stopped = self._has_stopped_scores(free), STOP_MOMENTS
        else:
            estimated, stopped = not self._first_agrees(free, step), STOP_ALL
        if estimated:
            return [_ESTIMATED]
        wrong = self._wrong_weights(point, step, stopped=stopped)
        return [self._wrong(wrong)] if wrong else []

    def _agrees_without_moments(self, point: _Point, step: float) -> bool:
        """Returns True if the means of tf.nn.moments hardly matter as functions of the weights."""
        if not self._function.has_moments:
            return True
        free = dataclasses.replace(point, constants={})
        return self._agrees(_PENALTY, free, step, stopped=STOP_NONE, tolerance=_OMITTED)

    def _agrees_roughly(self) -> bool:
        return any(
            self._agrees(_PENALTY, self._point(attempt), step, tolerance=_ROUNDED_TOLERANCE)
            for attempt, step in enumerate(_ROUNDED_STEPS)
        )

    def _point(self, seed: int) -> _Point:
        def normal(like: tf.Tensor, stream: int, scale: tf.Tensor | float) -> tf.Tensor:
            return scale * tf.random.stateless_normal(like.shape, [seed, stream], dtype=like.dtype)

        scales = [_size(value) for value in self._values]
        examples = self._examples + normal(self._examples, 0, _JITTER * _size(self._examples))
        pairs = [*zip(self._values, scales, strict=True)]
        return _Point(
            [value + normal(value, 2 * i + 2, _JITTER * s) for i, (value, s) in enumerate(pairs)],
            [normal(value, 2 * i + 3, s) for i, (value, s) in enumerate(pairs)],
            examples,
            normal(examples, 1, _size(examples)),
            {},
        )

    def _evaluate(
        self, outputs: Any, point: _Point, shift: float = 0.0, *, stopped: int = STOP_MOMENTS
    ) -> list[tf.Tensor]:
        moved = [
            value + shift * change
            for value, change in zip(point.weights, point.direction, strict=True)
        ]
        variables = [*zip(self._handles, moved, strict=True)]
        return self._function(
            [point.examples], variables, outputs, point.constants, stopped=stopped
        )

    def _difference(self, output: int, point: _Point, step: float, *, stopped: int) -> float:
        """Returns the central difference of an output along the direction of a point."""
        after, before = (
            self._evaluate([output], point, shift, stopped=stopped)[0] for shift in (step, -step)
        )
        return float(after - before) / (2.0 * step)

    def _agrees(
        self,
        output: int,
        point: _Point,
        step: float,
        *,
        stopped: int = STOP_MOMENTS,
        tolerance: float = _TOLERANCE,
    ) -> bool:
        value, *slopes = self._evaluate([output, *self._slopes[output]], point, stopped=stopped)
        parts = [_dot(*pair) for pair in zip(slopes, point.direction, strict=True)]
        found = self._difference(output, point, step, stopped=stopped)
        return _close(sum(parts), found, parts, float(value) / step, tolerance)

    def _has_stopped_scores(self, point: _Point) -> bool:
        """Returns True if the scores themselves depend on values under tf.stop_gradient."""
        free = dataclasses.replace(point, constants={})
        self._evaluate([_TOTAL], point, stopped=STOP_ALL)  # computes the constants
        before, after = (
            float(self._evaluate([_TOTAL], each, _JITTER, stopped=values)[0])
            for each, values in ((point, STOP_ALL), (free, STOP_MOMENTS))
        )
        return abs(before - after) > _EQUAL * max(abs(before), abs(after))

    def _first_agrees(self, point: _Point, step: float) -> bool:
        """Returns True if the scores have the correct first derivatives, but for stop_gradient."""
        point = dataclasses.replace(point, constants={})
        if not self._agrees(_TOTAL, point, step, stopped=STOP_ALL):
            return False
        value, gradient = self._evaluate([_TOTAL, self._gradient], point, stopped=STOP_ALL)
        slope = _dot(gradient, point.example_direction)
        ends = []
        for sign in (1.0, -1.0):
            moved = point.examples + sign * step * point.example_direction
            shifted = dataclasses.replace(point, examples=moved)
            ends.append(float(self._evaluate([_TOTAL], shifted, stopped=STOP_ALL)[0]))
        found = (ends[0] - ends[1]) / (2.0 * step)
        return _close(slope, found, [slope], float(value) / step)

    def _wrong_weights(
        self, point: _Point, step: float, *, stopped: int
    ) -> list[tuple[int, float, float]]:
        """Returns (index, derivative, finite difference) of the weights for which they differ."""
        point = dataclasses.replace(point, constants={})
        value, *slopes = self._evaluate([_PENALTY, *self._slopes[_PENALTY]], point, stopped=stopped)
        parts = [_dot(*pair) for pair in zip(slopes, point.direction, strict=True)]
        wrong = []
        for index, part in enumerate(parts):
            alone = [
                change if index == other else tf.zeros_like(change)
                for other, change in enumerate(point.direction)
            ]
            along = dataclasses.replace(point, direction=alone)
            found = self._difference(_PENALTY, along, step, stopped=stopped)
            if not _close(part, found, parts, float(value) / step):
                wrong.append((index, part, found))
        return wrong

    def _wrong(self, wrong: list[tuple[int, float, float]]) -> Finding:
        names = [self._name(index) for index, _, _ in wrong]
        _, slope, found = max(wrong, key=lambda each: abs(each[1] - each[2]))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        is_resize = "ResizeBilinearGrad" in self._function.operations
        remedy = _RESIZE_REMEDY if is_resize else _REMEDY
        message = (
            f"the penalty's gradient with respect to {shown} is wrong, {slope:.4g} along a "
            f"direction in which a finite difference is {found:.4g}: {remedy}"
        )
        return Finding("wrong_second_derivative", message)

    def _name(self, index: int) -> str:
        """Returns the path of a weight."""
        name = self._variables[index].name.partition(":")[0]
        if "/" in name:
            return name
        scope = self._function.reader(self._handles[index])
        return f"{scope}/{name}" if scope else name


def _size(values: tf.Tensor) -> tf.Tensor:
    """Returns the root mean square, or 1 if all values are 0."""
    size = tf.sqrt(tf.reduce_mean(tf.square(values)))
    return tf.where(size > 0, size, tf.ones_like(size))


def _dot(first: tf.Tensor, second: tf.Tensor) -> float:
    return float(tf.reduce_sum(first * second))


def _close(
    slope: float, found: float, parts: list[float], noise: float, tolerance: float = _TOLERANCE
) -> bool:
    """Returns True if a derivative, the sum of `parts`, agrees with a finite difference.

    Args:
      slope, found: The derivative and the finite difference.
      parts: The contributions of all weights, which may cancel in the sum.
      noise: The value of the function, divided by the step.
      tolerance: Relative.
    """
    scale = max(abs(found), sum(part**2 for part in parts) ** 0.5)
    return abs(slope - found) <= tolerance * scale + _ROUNDING * abs(noise)


_OMITS_TERM = Finding(
    "omitted_second_derivative",
    "tf.nn.moments (LayerNormalization, GroupNormalization) stops the gradient of the mean, which "
    "omits over 1% of the penalty's gradient: normalize more values at once, or use tf.reduce_mean",
    fatal=False,
)
_ESTIMATED = Finding(
    "estimated_gradient",
    "the gradient of the scores differs from a finite difference (a straight-through estimator, "
    "another custom gradient, or spectral normalization before its power iteration has "
    "converged): the penalty then constrains this estimate, and not the slope of the scores",
    fatal=False,
)
