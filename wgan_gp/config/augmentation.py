"""The settings of augmentation, for datasets with few examples."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ..errors import UserError, shorten
from .settings import Section, setting

AUGMENTATIONS = ("none", "diffaugment", "ada")
TRANSFORMATIONS = ("color", "translation", "cutout")


def parse_policy(name: str, value: Any) -> str:
    """Returns the names of transformations, separated by commas and in their usual order.

    Raises:
      UserError: If the value is empty or contains another name.
    """
    names = value.split(",") if isinstance(value, str) else []
    if not names or not set(names) <= set(TRANSFORMATIONS):
        raise UserError(
            f"--{name}={shorten(str(value))} does not consist of {', '.join(TRANSFORMATIONS)}",
            "give one or more of these names, separated by commas",
        )
    return ",".join(each for each in TRANSFORMATIONS if each in names)


_setting = functools.partial(setting, kind="training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationSettings(Section):
    """The random transformations that the critic sees; docs/augmentation.md explains them."""

    augment: str = _setting(
        "none",
        "Augmentation of the examples that the critic sees, against overfitting to few examples: "
        "none; diffaugment (each example is transformed); or ada (each transformation is applied "
        "with a probability that follows the overfitting on held-out data).",
        choices=AUGMENTATIONS,
        requires={"data": ("signals", "images")},
    )
    augment_policy: str | None = _setting(
        None,
        "Transformations of --augment, separated by commas: color (brightness, contrast and, for "
        "three channels, saturation), translation (by at most 1/8 of each side), cutout (of half "
        "of each side). Default: all.",
        parse=parse_policy,
        applies={"augment": ("diffaugment", "ada")},
    )

    @property
    def transformations(self) -> tuple[str, ...]:
        """The names of the transformations."""
        if self.augment_policy is not None:
            return tuple(self.augment_policy.split(","))
        return TRANSFORMATIONS
