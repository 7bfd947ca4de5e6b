"""The settings of the training objective."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ..errors import UserError, printable, shorten
from .settings import Section, check_value, setting

# What flags can name of losses.ADVERSARIAL_LOSSES and losses.PENALTIES, and help texts say of it.
# `losses` is not imported here: it does not know the settings, nor they TensorFlow.
ADVERSARIAL_LOSSES = {
    "wasserstein": "WGAN",
    "logistic": "non-saturating",
    "hinge": "geometric GAN",
    "least_squares": "LSGAN",
    "relativistic": "R3GAN, compares each sample with a real example",
}
# Those that differentiate the gradient of the critic, which can be combined.
GRADIENT_PENALTIES = {
    "two_sided": "WGAN-GP, between real and fake examples",
    "one_sided": "WGAN-LP, between real and fake examples",
    "zero_centered": "0-GP, between real and fake examples",
    "r1": "on real examples",
    "r2": "on fake examples",
    "dragan": "DRAGAN, around real examples",
}
PENALTIES = GRADIENT_PENALTIES | {
    "weight_clipping": "WGAN, limits the weights instead",
    "none": "no penalty",
}
_LIMITS = {"minimum": 0, "maximum": None, "above": None, "below": None, "choices": ()}


def parse_penalty(name: str, value: Any) -> str:
    """Returns the name of a penalty, or the names of several with commas between them.

    Args:
      name: The name of the setting, for messages.
      value: The text.

    Raises:
      UserError: If it is not text, a name is unknown, or the penalties cannot be combined.
    """
    check_value(name, value, str, {**_LIMITS, "minimum": None})
    names = [part.strip() for part in value.split(",")]
    flag = f"--{name}={printable(shorten(value))}"
    for each in names:
        if each not in PENALTIES:
            unknown = "is unknown"
            if len(names) > 1:
                unknown = f"contains {printable(shorten(repr(each)))}, which is unknown"
            raise UserError(f"{flag} {unknown}", f"use one of {', '.join(PENALTIES)}")
        if len(names) > 1 and each not in GRADIENT_PENALTIES:
            raise UserError(f"{flag} cannot be combined", f"omit {each}")
        if names.count(each) > 1:
            raise UserError(f"{flag} contains {each} twice", "give each penalty once")
    return ",".join(names)


def parse_weight(name: str, value: Any) -> float | str:
    """Returns the weight of a penalty, or those of several as text such as "5.0,0.5".

    Args:
      name: The name of the setting, for messages.
      value: A number, or a text of numbers with commas between them.

    Raises:
      UserError: If a part is not a finite number >= 0.
    """
    parts = value.split(",") if isinstance(value, str) else [value]
    numbers = []
    for part in parts:
        number = part
        if isinstance(part, str):
            try:
                number = float(part)
            except ValueError:
                number = part  # which the check names
        check_value(name, number, float, _LIMITS)
        numbers.append(float(number))
    return numbers[0] if len(numbers) == 1 else ",".join(map(str, numbers))


_setting = functools.partial(setting, kind="training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(Section):
    """The losses; docs/losses.md has the equation and the paper of each.

    Except for class_weight, the names are those of the parameters of losses.GanObjective.
    """

    adversarial_loss: str = _setting(
        "wasserstein",
        "Adversarial loss:",
        choices=ADVERSARIAL_LOSSES,
    )
    penalty: str = _setting(
        "two_sided",
        "Penalty on the norm of the critic's gradient, or several with commas, such as r1,r2:",
        choices=PENALTIES,
        parse=parse_penalty,
        compared=True,
        common=True,
    )
    penalty_weight: float | str = _setting(
        10.0,
        "Weight of the penalty in the critic's loss (lambda; for r1 and r2, gamma / 2). Of several "
        "penalties, one number for each, such as 5,5, or one for all.",
        parse=parse_weight,
        applies={"penalty": GRADIENT_PENALTIES},
        compared=True,
        common=True,
    )
    penalty_target: float = _setting(
        1.0,
        "Target of the gradient norm for two_sided, one_sided and dragan.",
        minimum=0,
        applies={"penalty": ("two_sided", "one_sided", "dragan")},
        compared=True,
    )
    penalty_interval: int = _setting(
        1,
        "Apply the penalty only in every k-th critic step, with k times its weight.",
        minimum=1,
        applies={"penalty": GRADIENT_PENALTIES},
    )
    class_weight: float = _setting(
        1.0,
        "Weight of acgan's cross-entropy on real images in the critic's loss; on samples, in the "
        "generator's loss, it is a tenth of it, as in the code of the paper.",
        above=0,
        applies={"conditioning": ("acgan",)},
    )

    def __post_init__(self):
        super().__post_init__()
        count, weights = self.penalty.count(",") + 1, str(self.penalty_weight).count(",") + 1
        if weights not in (1, count):
            raise UserError(
                f"--penalty_weight={self.penalty_weight} has {weights} numbers, but "
                f"--penalty={self.penalty} has {count}",
                "give one number for each penalty, or one for all",
            )

    @property
    def penalty_weights(self) -> float | tuple[float, ...]:
        """The weight of the penalty, or those of several penalties."""
        weight = self.penalty_weight
        return weight if isinstance(weight, float) else tuple(map(float, weight.split(",")))
