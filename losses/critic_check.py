"""Checks that a critic fulfills the assumptions of a gradient penalty."""

from __future__ import annotations

import math

from .findings import Finding
from .lazy_tensorflow import tf
from .scores import (
    Critic,
    Examples,
    as_examples,
    at_least_float32,
    is_structure,
    score,
    scores_of,
)

# Relative; well above rounding errors, well below the influence of one example among many.
TOLERANCE = 1e-4


def check_critic(
    critic: Critic,
    example_batch: Examples,
    *,
    group_size: int = 1,
    finite_differences: bool = True,
) -> list[Finding]:
    """Finds the properties of a critic that make a gradient penalty incorrect or ineffective.

    Call it eagerly, once, before training. Pass the callable that the penalty will get, such as
    `lambda x: critic(x, training=True)`. The critic is called several times, which updates its
    state, such as moving averages.

    Findings, by name:
      score_shape, score_dtype: The scores are not a floating-point tensor `[B]`, `[B, 1]` or, of
        patches, `[B, ...]`.
      not_finite: A score or a gradient is infinite or NaN.
      coupled_examples: The score of an example depends on other examples (batch normalization), or
        on examples of other groups. The gradient of the sum of scores is then not the gradient of
        each score for its own example. Gulrajani et al. 2017 (arXiv:1704.00028), section 4.
      no_gradient: The scores are not a differentiable function of the examples.
      no_second_derivative: The gradient norm is not differentiable in the critic's weights.
      wrong_second_derivative: Its gradient in some weights is not that of finite differences, or
        is missing, as after tf.image.resize with method "bilinear". The message names the weights.
      omitted_second_derivative: tf.nn.moments, which Keras's LayerNormalization and
        GroupNormalization call, stops the gradient through the mean. This omits a term from the
        gradient of the penalty, of more than 1% of it here; it is about the inverse of the number
        of values that are normalized together. Not fatal.
      estimated_gradient: The scores themselves have another gradient than finite differences: a
        straight-through estimator, or spectral normalization that has not converged. The penalty
        then constrains this estimate, as may be intended. Not fatal.
      unchecked_second_derivative: The gradient could not be compared with finite differences, for
        instance because the critic calls Python. Not fatal.
      zero_gradient: The gradient is zero at every example, so that the penalty is the constant
        target^2. Not fatal, because some weights may be initialized to zero.
      constant_gradient: The gradient is equal at all examples: the critic is linear. Not fatal.
      random_scores: Two calls return different scores for the same examples (dropout), so the
        penalty and the loss see different functions. Not fatal.

    Args:
      critic: Maps `[B, ...]` to scores.
      example_batch: `[B, ...]`, floating point, B >= 2, examples that differ from each other; or a
        nested structure of such tensors, of one dtype.
      group_size: Number of consecutive examples whose scores may depend on each other, as with the
        minibatch standard deviation of Karras et al. 2017 (arXiv:1710.10196). The penalty then
        applies to the gradient of the sum of a group's scores. B must be a multiple of it, and at
        least twice as large.
      finite_differences: Whether to compare the gradient of the penalty with finite differences,
        which are computed in float64 on two examples if the critic accepts them. It takes a tenth
        of a second for a small critic, and seconds for one of a hundred layers.

    Returns:
      The findings; [] if there are none.

    Raises:
      ValueError: If `example_batch` has another shape or dtype, or its examples are all equal.
    """
    examples = as_examples(example_batch, "example_batch")
    if is_structure(example_batch):
        critic, examples = _joined(critic, examples)
    if examples.shape.rank < 2 or examples.shape[0] < 2:
        raise ValueError(
            f"example_batch must have shape [B, ...] with B >= 2, got {examples.shape}"
        )
    if group_size < 1 or len(examples) % group_size or len(examples) < 2 * group_size:
        raise ValueError(
            f"example_batch must contain two or more whole groups of group_size={group_size} "
            f"examples, got {len(examples)} examples"
        )
    if not tf.reduce_any(examples != examples[:1]):
        raise ValueError("example_batch must contain examples that differ from each other")
    output = critic(examples)
    findings = _check_scores(output, examples)
    if findings:
        return findings
    findings = [
        *_check_values(critic, examples, scores_of(output, examples), group_size),
        *_check_gradients(critic, examples, group_size),
    ]
    if finite_differences and not any(finding.fatal for finding in findings):
        from .second_derivative import check_second_derivative  # noqa: PLC0415

        findings += check_second_derivative(critic, examples, group_size)
    return list(dict.fromkeys(findings))  # two of the checks can report coupled examples


def _joined(critic: Critic, inputs: Examples) -> tuple[Critic, tf.Tensor]:
    """Returns a critic of one tensor `[B, F]` with all elements of the inputs, and that tensor."""
    tensors = tf.nest.flatten(inputs)
    sizes = [math.prod(each.shape[1:]) for each in tensors]

    def of_one(joined: tf.Tensor) -> tf.Tensor:
        parts = [
            tf.reshape(part, [-1, *each.shape[1:]])
            for part, each in zip(tf.split(joined, sizes, axis=1), tensors, strict=True)
        ]
        return critic(tf.nest.pack_sequence_as(inputs, parts))

    flat = [tf.reshape(each, [-1, size]) for each, size in zip(tensors, sizes, strict=True)]
    return of_one, tf.concat(flat, axis=1)


def _check_scores(output: tf.Tensor, examples: tf.Tensor) -> list[Finding]:
    if isinstance(output, tf.Tensor) and not output.dtype.is_floating:
        message = f"the scores are {output.dtype.name}: return a floating-point dtype"
        return [Finding("score_dtype", message)]
    try:
        scores = scores_of(output, examples)
    except (ValueError, TypeError) as error:
        return [Finding("score_shape", _first_line(error))]
    if not tf.reduce_all(tf.math.is_finite(scores)):
        message = "some scores are infinite or NaN: check the examples and the critic's weights"
        return [Finding("not_finite", message)]
    return []


def _check_values(
    critic: Critic, examples: tf.Tensor, scores: tf.Tensor, group_size: int
) -> list[Finding]:
    """Checks that scores are reproducible and do not change with the other examples."""
    scale = tf.reduce_max(tf.abs(scores))
    noise, findings = tf.reduce_max(tf.abs(score(critic, examples) - scores)), []
    if noise > TOLERANCE * scale:
        message = (
            "the same examples get different scores in each call (dropout, or spectral "
            "normalization before its power iteration has converged): the penalty and the loss "
            "then see different functions; remove the randomness if it is not intended"
        )
        findings.append(Finding("random_scores", message, fatal=False))
    half = len(examples) // group_size // 2 * group_size
    # A different sign and a different size, so that both odd and even statistics change.
    others_changed = tf.concat([examples[:half], -2.0 * examples[half:]], axis=0)
    change = tf.abs(score(critic, others_changed) - scores)[:half]
    if tf.reduce_max(change) > tf.maximum(TOLERANCE * scale, 10.0 * noise):
        findings.append(_COUPLED)
    return findings


def _check_gradients(critic: Critic, examples: tf.Tensor, group_size: int) -> list[Finding]:
    # Weights of 1 and -1, because multiplying by them is exact in any precision. They follow the
    # parity of the bits of the index of a group, so that no regularly spaced groups share one.
    groups = [index // group_size for index in range(len(examples))]
    signs = tf.constant([(-1.0) ** bin(group).count("1") for group in groups])
    with tf.GradientTape() as outer:
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as inner:
            inner.watch(examples)
            scores = score(critic, examples)
            total = tf.reduce_sum(scores)
            weighted_total = tf.reduce_sum(scores * tf.cast(signs, scores.dtype))
        try:
            gradient = inner.gradient(total, examples)
            weighted = inner.gradient(weighted_total, examples)
        except _not_differentiable() as error:
            message = f"replace the operation that is not differentiable: {_first_line(error)}"
            return [Finding("no_gradient", message)]
        if gradient is None:
            message = (
                "the scores do not depend on the examples (the gradient is None): remove integer "
                "casts, argmax and stop_gradient from the critic"
            )
            return [Finding("no_gradient", message)]
        gradient, weighted = (
            at_least_float32(tf.reshape(value, [len(examples), -1]))
            for value in (gradient, weighted)
        )
        # The square, not the norm itself, whose derivative is not finite at a gradient of zero.
        squared_norm = tf.reduce_sum(tf.square(gradient))
    if not tf.reduce_all(tf.math.is_finite(gradient)):
        message = "the gradient is infinite or NaN at some examples: check operations such as sqrt"
        return [Finding("not_finite", message)]
    findings = []
    # If each score depends on its own group only, the sign of a score is the sign of its row.
    expected = gradient * tf.cast(signs, gradient.dtype)[:, None]
    if _differ(weighted, expected, tf.reduce_max(tf.abs(weighted))):
        findings.append(_COUPLED)
    findings += _check_size(gradient, tf.reduce_max(tf.abs(weighted)))
    return findings + _check_second_derivative(outer, squared_norm)


def _check_size(gradient: tf.Tensor, scale: tf.Tensor) -> list[Finding]:
    if tf.reduce_max(tf.abs(gradient)) <= TOLERANCE * scale:
        message = (
            "the gradient is zero at every example, so that the penalty is constant: check for "
            "batch normalization before a linear layer, and for weights that are all zero"
        )
        return [Finding("zero_gradient", message, fatal=False)]
    if not _differ(gradient, gradient[:1], tf.reduce_max(tf.abs(gradient))):
        message = (
            "the gradient is equal at all examples: the critic is linear in its input, and can "
            "only compare means; add nonlinear layers if this is not intended"
        )
        return [Finding("constant_gradient", message, fatal=False)]
    return []


def _check_second_derivative(tape: tf.GradientTape, squared_norm: tf.Tensor) -> list[Finding]:
    weights = tape.watched_variables()
    try:
        gradients = tape.gradient(squared_norm, weights)
    except _not_differentiable() as error:
        message = f"replace the operation without a second derivative: {_first_line(error)}"
        return [Finding("no_second_derivative", message)]
    found = [gradient for gradient in gradients if gradient is not None]
    if weights and not found:
        message = (
            "the gradient norm has no gradient with respect to any weight: remove the custom "
            "gradient or the stop_gradient that hides its dependence on the weights"
        )
        return [Finding("no_second_derivative", message)]
    if not all(tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(value))) for value in found):
        message = (
            "the penalty's gradient with respect to some weights is infinite or NaN: check "
            "operations such as sqrt"
        )
        return [Finding("not_finite", message)]
    return []


def _differ(first: tf.Tensor, second: tf.Tensor, scale: tf.Tensor) -> bool:
    return bool(tf.reduce_max(tf.abs(first - second)) > TOLERANCE * scale)


def _not_differentiable() -> tuple[type[Exception], ...]:
    """Returns the errors of operations without a gradient, and of gradients that fail."""
    return LookupError, NotImplementedError, tf.errors.OpError


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


_COUPLED = Finding(
    "coupled_examples",
    "an example's score depends on the other examples (batch normalization, or other statistics "
    "of the batch), so its gradient cannot be penalized alone: normalize each example by itself",
)
