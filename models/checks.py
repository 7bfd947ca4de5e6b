"""Checks that networks support the settings and the examples, without building them."""

from __future__ import annotations

import typing
from collections.abc import Mapping

from .errors import DesignError, Setting

if typing.TYPE_CHECKING:
    from .registry import Model

Registry = Mapping[str, "Model"]
_KINDS = {1: "points", 2: "signals", 3: "images"}  # by the number of axes of an example


def network(
    registry: Registry,
    parameter: str,
    name: str,
    example_shape: tuple[int, ...],
    given_width: int | None,
) -> Model:
    """Returns the entry of a network, and checks its width and the shape of the examples.

    Args:
      registry: The networks by name.
      parameter: The parameter of `build` that has the name, "name" or "generator_name".
      name: The name of the network.
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
      given_width: The width that the user has given, or None.

    Raises:
      DesignError: If there is no such network, or it does not support the width or the shape.
    """
    setting = Setting(parameter, name)
    if name not in registry:
        raise DesignError((setting, " is unknown"), (f"use one of {', '.join(registry)}",))
    model = registry[name]
    if given_width is not None:
        width("width" if parameter == "name" else "generator_width", given_width, name, model)
    if model.points:
        return model
    found, supported = _KINDS[len(example_shape)], "signals" if model.signals else "images"
    if found != supported:
        others = [key for key, other in registry.items() if _generates(other, found)]
        raise DesignError(
            (setting, f" generates {supported}, but the dataset contains {found}"),
            ("use ", Setting(parameter, ", ".join(others))) if others else ("use other data",),
        )
    sides = example_shape[:-1]
    if not model.supports(sides):
        every = ", ".join(key for key, other in registry.items() if other.points)
        alternative = (", or ", Setting(parameter, every)) if every else ()
        if model.signals:
            raise DesignError(
                (setting, f" does not support signals of {sides[0]} steps"),
                (f"use signals of {model.sizes} steps", *alternative),
            )
        raise DesignError(
            (setting, f" does not support images of {'x'.join(map(str, sides))} pixels"),
            ("use ", Setting("image_size", model.sizes), *alternative),
        )
    return model


def _generates(model: Model, kind: str) -> bool:
    return model.points or kind == ("signals" if model.signals else "images")


def width(parameter: str, value: int, name: str, model: Model) -> None:
    """Raises DesignError if a network does not support a width."""
    if value < model.min_width:
        raise DesignError(
            (Setting(parameter, value), f" is too narrow for {name}"),
            (f"give at least {model.min_width}",),
        )


def pooling(registry: Registry, name: str, example_shape: tuple[int, ...]) -> None:
    """Raises DesignError if the critic of a network does not end in global pooling."""
    if len(example_shape) == 3 and min(example_shape[:2]) == registry[name].pooling_size:
        return
    alternatives: list[str | Setting] = []
    for key, model in registry.items():
        if model.pooling_size is not None:
            size = Setting("image_size", model.pooling_size)
            alternatives += [" or " if alternatives else "", Setting("name", key), " ", size]
    raise DesignError(
        (
            Setting("critic_pooling", "sum"),
            " requires global pooling, which the critic of ",
            Setting("name", name),
            " does not have at this image size",
        ),
        ("omit it, or use ", *alternatives),
    )


def critic_normalization(name: str, value: str) -> None:
    """Raises DesignError if the critic of a network does not support a normalization."""
    if name == "r3gan" and value != "none":
        raise DesignError(
            (Setting("critic_normalization", value), " does not apply to r3gan, which has none"),
            ("omit it",),
        )
    if name == "mlp" and value == "instance":
        raise DesignError(
            (
                Setting("critic_normalization", "instance"),
                " requires feature maps, which mlp does not have",
            ),
            ("use ", Setting("critic_normalization", "layer")),
        )


def minibatch_stddev(value: int) -> None:
    """Raises DesignError if a group has a single example, or a negative number of examples."""
    if value < 0 or value == 1:
        raise DesignError(
            (Setting("minibatch_stddev", value), " is no group of examples"),
            ("give at least 2, or 0 for no groups",),
        )


def conditions(conditioning: str, classes: int, condition_size: int) -> None:
    """Raises DesignError if a conditioning does not fit the labels or conditions of the data."""
    if condition_size and classes:
        raise DesignError(
            (Setting("condition_size", condition_size), " excludes ", Setting("classes", classes)),
            ("give one of them",),
        )
    if condition_size and conditioning == "acgan":
        raise DesignError(
            (
                Setting("conditioning", "acgan"),
                " classifies, but the dataset has continuous conditions instead of classes",
            ),
            (
                "use ",
                Setting("conditioning", "projection"),
                " or ",
                Setting("conditioning", "concatenation"),
            ),
        )


def labels(generator: Model, conditioning: str, normalization: str) -> None:
    """Raises DesignError if labels have no way into a generator."""
    if conditioning != "none" and generator.labels_in_normalization and normalization == "none":
        raise DesignError(
            (
                Setting("generator_normalization", "none"),
                " with ",
                Setting("conditioning", conditioning),
                " gives the generator no access to labels, which select the scales and offsets of "
                "its batch normalization",
            ),
            (
                "use ",
                Setting("generator_normalization", "batch"),
                ", or ",
                Setting("generator_name", "mlp"),
            ),
        )
