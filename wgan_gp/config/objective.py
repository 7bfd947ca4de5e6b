"""The settings of the training objective."""

from __future__ import annotations

import dataclasses

from .penalties import PENALTIES, check_count, parse_penalty, parse_weight
from .settings import Section, setting

# The engine does not import losses/, and this module does not import TensorFlow. A test compares
# these names with the registries there.
ADVERSARIAL_LOSSES = ("wasserstein", "logistic", "hinge", "least_squares", "relativistic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(Section):
    """The losses; docs/losses.md has the equation and the paper of each.

    The names are those of the parameters of losses.GanObjective.
    """

    adversarial_loss: str = setting(
        "wasserstein",
        "Adversarial loss: wasserstein, logistic (non-saturating), hinge, least_squares or "
        "relativistic (R3GAN).",
        choices=ADVERSARIAL_LOSSES,
        affects="training",
    )
    penalty: str = setting(
        "two_sided",
        "Penalty on the norm of the critic's gradient. Between real and fake examples: two_sided "
        "(WGAN-GP), one_sided (WGAN-LP) or zero_centred. On real examples: r1; on fake ones: r2; "
        "around real ones: dragan. Or several of these, such as r1,r2. Or weight_clipping, or "
        "none.",
        choices=PENALTIES,
        open_ended=True,
        parse=parse_penalty,
        affects="training",
        compared=True,
    )
    penalty_weight: float | str = setting(
        10.0,
        "Weight of the penalty in the critic's loss (lambda; for r1 and r2, gamma / 2). Of several "
        "penalties, one number for each, such as 5,5, or one for all.",
        parse=parse_weight,
        affects="training",
        compared=True,
    )
    penalty_weight_end: float = setting(
        1.0,
        "Fraction of the penalty's weight that remains after --schedule_steps, along half a "
        "cosine. 1: the weight is constant.",
        minimum=0,
        affects="training",
    )
    penalty_target: float = setting(
        1.0,
        "Target of the gradient norm for two_sided, one_sided and dragan.",
        minimum=0,
        affects="training",
        compared=True,
    )
    penalty_interval: int = setting(
        1,
        "Apply the penalty only in every k-th critic step, with k times its weight.",
        minimum=1,
        affects="training",
    )
    clip_value: float = setting(
        0.01,
        "Largest absolute weight that weight_clipping permits in the critic.",
        above=0,
        affects="training",
    )
    drift_weight: float = setting(
        0.0,
        "Weight of D(real)^2, which keeps scores near 0 (0.001 in ProGAN).",
        minimum=0,
        affects="training",
    )
    critic_class_weight: float = setting(
        1.0,
        "Weight of acgan's cross-entropy on real images in the critic's loss.",
        minimum=0,
        affects="training",
    )
    generator_class_weight: float = setting(
        0.1,
        "Weight of acgan's cross-entropy on samples in the generator's loss.",
        minimum=0,
        affects="training",
    )

    def __post_init__(self):
        super().__post_init__()
        check_count(self.penalty, self.penalty_weight)
