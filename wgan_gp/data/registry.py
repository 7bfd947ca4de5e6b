"""The datasets there are, and the shape of their examples.

Imports no TensorFlow: a dataset that does not exist, or does not suit the model, is
refused at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing

from ..config import Config
from ..errors import UserError

if typing.TYPE_CHECKING:
    from .source import Source


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One entry.

    Attributes:
      module: name in this package of the module with `source(config, example_shape)`.
      example_shape: `(H, W, C)` for images at their own size, `(D,)` for points.
      classes: how many there are labels for; 0: none.
    """

    module: str
    example_shape: tuple[int, ...]
    classes: int = 0


DATASETS = {
    "digits": Dataset("digits", (8, 8, 1), classes=10),
    "gaussians_8": Dataset("toys", (2,), classes=8),
    "gaussians_25": Dataset("toys", (2,), classes=25),
    "swiss_roll": Dataset("toys", (2,)),
    "mnist": Dataset("prepared", (28, 28, 1), classes=10),
    "cifar10": Dataset("prepared", (32, 32, 3), classes=10),
}


def example_shape(config: Config) -> tuple[int, ...]:
    """The shape of the run's examples: `(H, W, C)` for images, `(D,)` for points.

    Raises:
      UserError: the dataset is unknown, or has no images to resize.
    """
    if config.dataset not in DATASETS:
        raise UserError(
            f"--dataset={config.dataset} is unknown", f"use one of {', '.join(DATASETS)}"
        )
    shape = DATASETS[config.dataset].example_shape
    if config.image_size is None:
        return shape
    if len(shape) == 1:
        raise UserError(
            f"--image_size={config.image_size} says nothing about {config.dataset}, which "
            "holds points",
            "leave it out",
        )
    return (config.image_size, config.image_size, shape[2])


def classes(config: Config) -> int:
    """Classes of a conditional run; 0 of any other.

    Raises:
      UserError: the run is to be conditional, but the dataset has no labels.
    """
    if config.conditioning == "none":
        return 0
    count = DATASETS[config.dataset].classes
    if not count:
        raise UserError(
            f"--conditioning={config.conditioning} needs labels, which {config.dataset} has not",
            "leave it out, or use another --dataset",
        )
    return count


def open_source(config: Config) -> Source:
    """The run's dataset, ready to be read."""
    shape = example_shape(config)
    module = importlib.import_module(f".{DATASETS[config.dataset].module}", __package__)
    return module.source(config, shape)
