"""GAN losses and gradient penalties for any TensorFlow project.

Losses and penalties return one value per example, shape `[B]`; only the functions of
`reductions` return scalars. All are at least float32. A critic is any callable that maps a batch to
scores of shape `[B]` or `[B, 1]`, or to those of patches, `[B, ...]`, which are averaged. Neither
Keras nor a distribution strategy is required. docs/losses.md has examples.

`ADVERSARIAL_LOSSES` and `PENALTIES` have the names, and what each can be combined with. Importing
this package does not import TensorFlow; computing a loss does.
"""

from .adversarial import (
    ADVERSARIAL_LOSSES,
    critic_loss,
    generator_loss,
    hinge_critic_loss,
    least_squares_critic_loss,
    least_squares_generator_loss,
    logistic_critic_loss,
    logistic_generator_loss,
    relativistic_critic_loss,
    relativistic_generator_loss,
)
from .auxiliary import classification_loss, clip_weights, drift, lazy_regularization
from .critic_check import check_critic
from .findings import Finding
from .objectives import GanObjective
from .penalties import (
    PENALTIES,
    dragan_penalty,
    gradient_norm,
    gradient_penalty,
    interpolate,
    one_sided,
    perturb,
    r1_penalty,
    r2_penalty,
    two_sided,
    zero_centered,
)
from .penalty_check import check_penalty
from .reductions import (
    global_mean,
    reduce_over_replicas,
    regularization_share,
    weighted_global_mean,
)
from .scores import score

__all__ = [
    "ADVERSARIAL_LOSSES",
    "PENALTIES",
    "Finding",
    "GanObjective",
    "check_critic",
    "check_penalty",
    "classification_loss",
    "clip_weights",
    "critic_loss",
    "dragan_penalty",
    "drift",
    "generator_loss",
    "global_mean",
    "gradient_norm",
    "gradient_penalty",
    "hinge_critic_loss",
    "interpolate",
    "lazy_regularization",
    "least_squares_critic_loss",
    "least_squares_generator_loss",
    "logistic_critic_loss",
    "logistic_generator_loss",
    "one_sided",
    "perturb",
    "r1_penalty",
    "r2_penalty",
    "reduce_over_replicas",
    "regularization_share",
    "relativistic_critic_loss",
    "relativistic_generator_loss",
    "score",
    "two_sided",
    "weighted_global_mean",
    "zero_centered",
]
