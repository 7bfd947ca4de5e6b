"""Wasserstein GAN losses that any TensorFlow GAN can import.

Every loss returns one value per example, shape `[B]`; only `reductions` turns
those into scalars. `critic` is any callable from a batch to scores of shape `[B]`
or `[B, 1]`: nothing here asks for Keras or for a distribution strategy.
"""

from .objectives import WassersteinGradientPenalty
from .penalties import gradient_norm, gradient_penalty, interpolate, norm_penalty
from .reductions import global_mean, weighted_global_mean
from .wasserstein import critic_loss, generator_loss, score

__all__ = [
    "WassersteinGradientPenalty",
    "critic_loss",
    "generator_loss",
    "global_mean",
    "gradient_norm",
    "gradient_penalty",
    "interpolate",
    "norm_penalty",
    "score",
    "weighted_global_mean",
]
