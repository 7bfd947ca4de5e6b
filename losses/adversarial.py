"""Adversarial losses per example, in pairs: what the critic minimises, what the generator does.

Scores are unbounded: for the logistic loss they are logits.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from .scores import like_each_other, per_example


class Adversarial(NamedTuple):
    """A pair of losses.

    Attributes:
      critic: (real_scores, fake_scores) -> `[B]`.
      generator: (fake_scores) -> `[B]`.
    """

    critic: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    generator: Callable[[tf.Tensor], tf.Tensor]


def critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """D(fake) - D(real): its negated mean estimates the Wasserstein distance.

    Arjovsky et al. 2017 (arXiv:1701.07875), equation 2, turned into a loss.

    Args:
      real_scores: `[B]` or `[B, 1]`, floating point.
      fake_scores: the same number of scores, in the same dtype.

    Returns:
      `[B]`, in the scores' dtype.

    Raises:
      ValueError: scores of another shape or dtype, or batches of different sizes.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return fake_scores - real_scores


def generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """-D(fake), shape `[B]`: the generator wants its samples scored as high as real ones.

    Arjovsky et al. 2017 (arXiv:1701.07875), algorithm 1, line 10.

    Args:
      fake_scores: `[B]` or `[B, 1]`, floating point.

    Raises:
      ValueError: scores of another shape or dtype.
    """
    return -per_example(fake_scores, "fake_scores")


def logistic_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """-log s(D(real)) - log(1 - s(D(fake))), s the sigmoid; arguments as for `critic_loss`.

    Goodfellow et al. 2014 (arXiv:1406.2661), equation 1, as a loss of logits.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return tf.nn.softplus(-real_scores) + tf.nn.softplus(fake_scores)


def logistic_generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """-log s(D(fake)), s the sigmoid; arguments as for `generator_loss`.

    The non-saturating loss: Goodfellow et al. 2014 (arXiv:1406.2661), end of section 3.
    """
    return tf.nn.softplus(-per_example(fake_scores, "fake_scores"))


def hinge_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """max(0, 1 - D(real)) + max(0, 1 + D(fake)); arguments as for `critic_loss`.

    Lim and Ye 2017 (arXiv:1705.02894); Miyato et al. 2018 (arXiv:1802.05957), equation 16.
    Its generator loss is `generator_loss` (equation 17).
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return tf.nn.relu(1.0 - real_scores) + tf.nn.relu(1.0 + fake_scores)


def least_squares_critic_loss(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tf.Tensor:
    """((D(real) - 1)^2 + D(fake)^2) / 2; arguments as for `critic_loss`.

    LSGAN: Mao et al. 2017 (arXiv:1611.04076), equation 9, the 0-1 coding.
    """
    real_scores, fake_scores = _pair(real_scores, fake_scores)
    return (tf.square(real_scores - 1.0) + tf.square(fake_scores)) / 2.0


def least_squares_generator_loss(fake_scores: tf.Tensor) -> tf.Tensor:
    """(D(fake) - 1)^2 / 2; arguments as for `generator_loss`.

    LSGAN: Mao et al. 2017 (arXiv:1611.04076), equation 9, the 0-1 coding.
    """
    return tf.square(per_example(fake_scores, "fake_scores") - 1.0) / 2.0


# What --adversarial_loss chooses from.
ADVERSARIAL_LOSSES = {
    "wasserstein": Adversarial(critic_loss, generator_loss),
    "logistic": Adversarial(logistic_critic_loss, logistic_generator_loss),
    "hinge": Adversarial(hinge_critic_loss, generator_loss),
    "least_squares": Adversarial(least_squares_critic_loss, least_squares_generator_loss),
}


def _pair(real_scores: tf.Tensor, fake_scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    real_scores = per_example(real_scores, "real_scores")
    fake_scores = per_example(fake_scores, "fake_scores")
    return like_each_other(real_scores, "real_scores", fake_scores, "fake_scores")
