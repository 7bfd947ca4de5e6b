"""GAN losses and gradient penalties for any TensorFlow project.

Losses and penalties return one value per example, shape `[B]`; only the functions of
`reductions` return scalars. All are at least float32. A critic is any callable that maps a batch to
scores of shape `[B]` or `[B, 1]`, or to those of patches, `[B, ...]`, which are averaged. Neither
Keras nor a distribution strategy is required. docs/losses.md has examples.

`ADVERSARIAL_LOSSES` and `PENALTIES` have the names, and what each can be combined with. The package
has the functions of WGAN-GP, R1 and R2; those of other papers are in its modules `adversarial`,
`penalties` and `auxiliary`. Importing it does not import TensorFlow; computing a loss does.
"""

from .adversarial import ADVERSARIAL_LOSSES, critic_loss, generator_loss
from .auxiliary import lazy_regularization
from .critic_check import check_critic
from .objectives import GanObjective
from .penalties import (
    PENALTIES,
    gradient_norm,
    gradient_penalty,
    interpolate,
    r1_penalty,
    r2_penalty,
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
    "GanObjective",
    "check_critic",
    "check_penalty",
    "critic_loss",
    "generator_loss",
    "global_mean",
    "gradient_norm",
    "gradient_penalty",
    "interpolate",
    "lazy_regularization",
    "r1_penalty",
    "r2_penalty",
    "reduce_over_replicas",
    "regularization_share",
    "score",
    "weighted_global_mean",
]
