"""`check_critic`: does a critic have the gradient that a gradient penalty takes it to have?"""

import tensorflow as tf

from .findings import Finding
from .scores import Critic, at_least_float32, floating, score, scores_of

# Relative: well above rounding, well below what one example can matter among many.
TOLERANCE = 1e-4


def check_critic(critic: Critic, example_batch: tf.Tensor) -> list[Finding]:
    """What would make a gradient penalty on this critic wrong or void; [] if nothing is found.

    Run it eagerly, once, before training, on the callable that the penalty will be given:
    `lambda x: critic(x, training=True)` where that is how the critic is called. The critic
    is called a few times; whatever state it keeps, such as moving averages, advances.

    The findings, by name:
      score_shape, score_dtype: scores are not floating-point `[B]` or `[B, 1]`.
      not_finite: a score or a gradient is infinite or NaN.
      coupled_examples: an example's score depends on the others (batch-norm, minibatch
        statistics), so that the gradient of the summed scores is not the examples' own.
        Gulrajani et al. 2017 (arXiv:1704.00028), section 4.
      no_gradient: the scores do not depend on the examples differentiably.
      no_second_derivative: the gradient's norm has no gradient for the critic's weights.
      zero_gradient: the gradient is zero at every example: the penalty is its target
        squared and moves nothing. Not fatal, as weights may still be initial zeros.
      constant_gradient: the same gradient at every example: a linear critic. Not fatal.
      random_scores: two calls score the same examples differently (dropout): the penalty
        looks at another function than the loss does. Not fatal.

    Args:
      critic: maps `[B, ...]` to scores.
      example_batch: `[B, ...]`, floating point, at least 2 examples, all different.

    Raises:
      ValueError: `example_batch` is anything else.
    """
    examples = floating(example_batch, "example_batch")
    if examples.shape.rank < 2 or examples.shape[0] < 2:
        raise ValueError(
            f"example_batch must have shape [B, ...] with B >= 2, got {examples.shape}"
        )
    if not tf.reduce_any(examples != examples[:1]):
        raise ValueError("example_batch must hold different examples")
    output = critic(examples)
    findings = _check_scores(output, len(examples))
    if findings:
        return findings
    findings = [
        *_check_values(critic, examples, scores_of(output, examples)),
        *_check_gradients(critic, examples),
    ]
    return list(dict.fromkeys(findings))  # two of the checks can find coupled examples


def _check_scores(scores: tf.Tensor, batch_size: int) -> list[Finding]:
    scores = tf.convert_to_tensor(scores)
    if scores.shape.as_list() not in ([batch_size], [batch_size, 1]):
        message = (
            f"{batch_size} examples have scores of shape {scores.shape}: return one an example, "
            f"[{batch_size}] or [{batch_size}, 1]"
        )
        return [Finding("score_shape", message)]
    if not scores.dtype.is_floating:
        message = f"scores are {scores.dtype.name}: return a floating-point dtype"
        return [Finding("score_dtype", message)]
    if not tf.reduce_all(tf.math.is_finite(scores)):
        return [Finding("not_finite", "some scores are infinite or NaN")]
    return []


def _check_values(critic: Critic, examples: tf.Tensor, scores: tf.Tensor) -> list[Finding]:
    """Scores alone: whether they repeat, and stay when other examples change."""
    scale = tf.reduce_max(tf.abs(scores))
    noise, findings = tf.reduce_max(tf.abs(score(critic, examples) - scores)), []
    if noise > TOLERANCE * scale:
        message = (
            "the same examples get other scores at every call (dropout, or a spectral norm that "
            "is still being found): the penalty then looks at another function than the loss"
        )
        findings.append(Finding("random_scores", message, fatal=False))
    half = len(examples) // 2
    # Another sign and another size, so that neither odd nor even statistics stay.
    others_changed = tf.concat([examples[:half], -2.0 * examples[half:]], axis=0)
    change = tf.abs(score(critic, others_changed) - scores)[:half]
    if tf.reduce_max(change) > tf.maximum(TOLERANCE * scale, 10.0 * noise):
        findings.append(_COUPLED)
    return findings


def _check_gradients(critic: Critic, examples: tf.Tensor) -> list[Finding]:
    # Signs, so that multiplying by them rounds nothing in any precision; by the parity of an
    # index's bits, so that no group of examples at a regular distance shares one.
    signs = tf.constant([(-1.0) ** bin(index).count("1") for index in range(len(examples))])
    with tf.GradientTape() as outer:
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as inner:
            inner.watch(examples)
            scores = score(critic, examples)
            total = tf.reduce_sum(scores)
            weighted_total = tf.reduce_sum(scores * tf.cast(signs, scores.dtype))
        try:
            gradient = inner.gradient(total, examples)
            weighted = inner.gradient(weighted_total, examples)
        except _NOT_DIFFERENTIABLE as error:
            message = f"an operation cannot be differentiated: {_first_line(error)}"
            return [Finding("no_gradient", message)]
        if gradient is None:
            message = (
                "the scores do not depend on the examples: is there an integer cast, an argmax "
                "or a stop_gradient in the critic?"
            )
            return [Finding("no_gradient", message)]
        gradient, weighted = (
            at_least_float32(tf.reshape(value, [len(examples), -1]))
            for value in (gradient, weighted)
        )
        # Not the penalty itself: at a gradient of zero a root has no gradient.
        squared_norm = tf.reduce_sum(tf.square(gradient))
    if not tf.reduce_all(tf.math.is_finite(gradient)):
        return [Finding("not_finite", "the gradient is infinite or NaN at some examples")]
    findings = []
    # Where each score depends on its own example only, a score's sign is its row's.
    expected = gradient * tf.cast(signs, gradient.dtype)[:, None]
    if _differ(weighted, expected, tf.reduce_max(tf.abs(weighted))):
        findings.append(_COUPLED)
    findings += _check_size(gradient, tf.reduce_max(tf.abs(weighted)))
    return findings + _check_second_derivative(outer, squared_norm)


def _check_size(gradient: tf.Tensor, scale: tf.Tensor) -> list[Finding]:
    if tf.reduce_max(tf.abs(gradient)) <= TOLERANCE * scale:
        message = (
            "the gradient is zero at every example: the penalty is the same whatever the critic "
            "does (batch-norm before a linear layer does that; so do weights that are all zero)"
        )
        return [Finding("zero_gradient", message, fatal=False)]
    if not _differ(gradient, gradient[:1], tf.reduce_max(tf.abs(gradient))):
        message = (
            "the gradient is the same at every example: the critic is linear in its input, and "
            "can tell no more than the means apart"
        )
        return [Finding("constant_gradient", message, fatal=False)]
    return []


def _check_second_derivative(tape: tf.GradientTape, squared_norm: tf.Tensor) -> list[Finding]:
    weights = tape.watched_variables()
    try:
        gradients = tape.gradient(squared_norm, weights)
    except _NOT_DIFFERENTIABLE as error:
        message = f"an operation has no second derivative: {_first_line(error)}"
        return [Finding("no_second_derivative", message)]
    found = [gradient for gradient in gradients if gradient is not None]
    if weights and not found:
        message = (
            "the gradient's norm has no gradient for any weight: a custom gradient, or a "
            "stop_gradient, hides how the weights enter it"
        )
        return [Finding("no_second_derivative", message)]
    if not all(tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(value))) for value in found):
        return [Finding("not_finite", "the penalty's gradient for some weight is infinite or NaN")]
    return []


def _differ(first: tf.Tensor, second: tf.Tensor, scale: tf.Tensor) -> bool:
    return bool(tf.reduce_max(tf.abs(first - second)) > TOLERANCE * scale)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# An operation without a registered gradient; one whose gradient fails when it is run.
_NOT_DIFFERENTIABLE = (LookupError, tf.errors.OpError)

_COUPLED = Finding(
    "coupled_examples",
    "an example's score depends on the other examples (batch-norm, or statistics of the batch): "
    "the penalty's gradient is then not the example's own; normalise each example by itself",
)
