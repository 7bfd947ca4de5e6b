"""Adversarial losses per example, in pairs of a critic loss and a generator loss.

Both networks minimize their loss. Scores are unbounded; in the logistic loss they are logits. The
losses are computed at least in float32, for patches from the mean of their scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .lazy_tensorflow import tf
from .scores import as_matching, per_example


class Adversarial(NamedTuple):
    """A pair of adversarial losses.

    Attributes:
      critic: Maps (real_scores, fake_scores) to the critic's loss, `[B]`.
      generator: Maps fake_scores to the generator's loss, `[B]`; if `relativistic`, maps
        (real_scores, fake_scores).
      relativistic: Whether the generator's loss depends on the scores of real examples.
    """

    critic: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    generator: Callable[..., tf.Tensor]
    relativistic: bool = False


def critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the Wasserstein loss of the critic, D(fake) - D(real).

    The mean of its negative estimates the Wasserstein distance (Arjovsky et al. 2017,
    arXiv:1701.07875, equation 2).

    Args:
      real_scores: `[B]`, `[B, 1]` or, of patches, `[B, ...]`, floating point.
      fake_scores: The scores of as many examples.

    Returns:
      The loss of each pair of examples, `[B]`, float32 (float64 for float64 scores).

    Raises:
      ValueError: If scores have another shape, are not floating-point, differ in the number of
        examples, or if only one of them is float64.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return fake_scores - real_scores


def generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the Wasserstein loss of the generator, -D(fake).

    Arjovsky et al. 2017 (arXiv:1701.07875), algorithm 1, line 10.

    Args:
      fake_scores: `[B]`, `[B, 1]` or, of patches, `[B, ...]`, floating point.

    Returns:
      The loss of each sample, `[B]`, float32 (float64 for float64 scores).

    Raises:
      ValueError: If the scores have another shape or are not floating-point.
    """
    return -per_example(fake_scores, "fake_scores")


def logistic_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the logistic loss of the critic, -log s(D(real)) - log(1 - s(D(fake))).

    s is the sigmoid. Goodfellow et al. 2014 (arXiv:1406.2661), equation 1, of logits. Arguments,
    result and errors are those of `critic_loss`.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return tf.nn.softplus(-real_scores) + tf.nn.softplus(fake_scores)


def logistic_generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the non-saturating logistic loss of the generator, -log s(D(fake)).

    s is the sigmoid. Goodfellow et al. 2014 (arXiv:1406.2661), end of section 3. Argument,
    result and errors are those of `generator_loss`.
    """
    return tf.nn.softplus(-per_example(fake_scores, "fake_scores"))


def hinge_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the hinge loss of the critic, max(0, 1 - D(real)) + max(0, 1 + D(fake)).

    Lim and Ye 2017 (arXiv:1705.02894); Miyato et al. 2018 (arXiv:1802.05957), equation 16. The
    generator's loss is `generator_loss` (equation 17). Arguments, result and errors are those of
    `critic_loss`.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return tf.nn.relu(1.0 - real_scores) + tf.nn.relu(1.0 + fake_scores)


def least_squares_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the least-squares loss of the critic, ((D(real) - 1)^2 + D(fake)^2) / 2.

    LSGAN: Mao et al. 2017 (arXiv:1611.04076), equation 9, with 0-1 coding. Arguments, result and
    errors are those of `critic_loss`.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return (tf.square(real_scores - 1.0) + tf.square(fake_scores)) / 2.0


def least_squares_generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the least-squares loss of the generator, (D(fake) - 1)^2 / 2.

    LSGAN: Mao et al. 2017 (arXiv:1611.04076), equation 9, with 0-1 coding. Argument, result and
    errors are those of `generator_loss`.
    """
    return tf.square(per_example(fake_scores, "fake_scores") - 1.0) / 2.0


def relativistic_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the relativistic pairing loss of the critic, -log s(D(real) - D(fake)).

    s is the sigmoid. Jolicoeur-Martineau 2018 (arXiv:1807.00734), section 4.1; Huang et al. 2024
    (arXiv:2501.05441), equation 2. Each real example is paired with the fake at the same position.
    Arguments, result and errors are those of `critic_loss`.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return tf.nn.softplus(fake_scores - real_scores)


def relativistic_generator_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """Computes the relativistic pairing loss of the generator, -log s(D(fake) - D(real)).

    The counterpart of `relativistic_critic_loss`, with the same arguments, result and errors. The
    generator changes only the scores of the fakes, but its gradient depends on both.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return tf.nn.softplus(real_scores - fake_scores)


# The values of GanObjective.adversarial_loss.
ADVERSARIAL_LOSSES = {
    "wasserstein": Adversarial(critic_loss, generator_loss),
    "logistic": Adversarial(logistic_critic_loss, logistic_generator_loss),
    "hinge": Adversarial(hinge_critic_loss, generator_loss),
    "least_squares": Adversarial(least_squares_critic_loss, least_squares_generator_loss),
    "relativistic": Adversarial(
        relativistic_critic_loss,
        relativistic_generator_loss,
        relativistic=True,
    ),
}


def _pair(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    real_scores = per_example(real_scores, "real_scores")
    fake_scores = per_example(fake_scores, "fake_scores")
    return as_matching(real_scores, "real_scores", fake_scores, "fake_scores")
