"""The settings of augmentation, for datasets with few examples."""

from __future__ import annotations

import dataclasses
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationSettings(Section):
    """The random transformations that the critic sees; docs/augmentation.md explains them."""

    augment: str = setting(
        "none",
        "Augmentation of the examples that the critic sees, against overfitting to few examples: "
        "none; diffaugment (each example is transformed); or ada (each transformation is applied "
        "with a probability that follows the overfitting on held-out data).",
        choices=AUGMENTATIONS,
        kind="training",
        requires={"data": ("signals", "images")},
    )
    augment_policy: str | None = setting(
        None,
        "Transformations of --augment, separated by commas: color (brightness, contrast and, for "
        "three channels, saturation), translation (by at most 1/8 of each side), cutout (of half "
        "of each side). Default: all.",
        parse=parse_policy,
        kind="training",
        applies={"augment": ("diffaugment", "ada")},
    )
    augment_penalty: str = setting(
        "transformed",
        "Examples with respect to which the penalty takes the critic's gradient, with --augment: "
        "transformed; or original (before their transformation, as in the code of StyleGAN2-ADA "
        "and R3GAN).",
        choices=("transformed", "original"),
        kind="training",
        applies={"augment": ("diffaugment", "ada")},
    )
    ada_target: float = setting(
        0.25,
        "Share of the critic's estimated distance that may be missing on held-out examples before "
        "ada raises its probability.",
        minimum=0,
        below=1,
        kind="training",
        applies={"augment": ("ada",)},
    )
    ada_interval: int = setting(
        100,
        "Iterations between two updates of ada's probability, a multiple of --steps_per_loop.",
        minimum=1,
        kind="training",
        applies={"augment": ("ada",)},
    )
    ada_images: int = setting(
        500_000,
        "Number of real images in which ada's probability can rise from 0 to 1.",
        minimum=1,
        kind="training",
        applies={"augment": ("ada",)},
    )

    @property
    def transformations(self) -> tuple[str, ...]:
        """The names of the transformations."""
        if self.augment_policy is not None:
            return tuple(self.augment_policy.split(","))
        return TRANSFORMATIONS
