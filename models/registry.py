"""The registry of networks: their properties, validation of settings, and construction."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from .design import Design
from .errors import DesignError, Setting

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Model:
    """A registry entry: a pair of networks and the settings that they support.

    Attributes:
      module: Name of the module of this package that defines `generator` and `critic`, or an object
        with these functions. Either function may be missing from an object.
      width: Default of Design.width.
      sizes: Supported sides of square images, in words.
      supports: Maps the side of a square image, in pixels, to whether it is supported.
      points: Whether points `[D]` and images that are not square are supported.
      depth: Default of Design.depth; None if the depth is fixed.
      min_width: Smallest supported width.
      labels_in_normalization: Whether labels enter the generator as scales and offsets of batch
        normalization.
      pooling_size: Side, in pixels, of the images for which the critic ends in global pooling;
        None if it never does.
    """

    module: Any
    width: int = 64
    sizes: str = "any"
    supports: Callable[[int], bool] = lambda size: True
    points: bool = False
    depth: int | None = None
    min_width: int = 1
    labels_in_normalization: bool = True
    pooling_size: int | None = None


# Up to this side in pixels, an mlp generates images as good as those of a dcgan, in half the time.
TINY = 8

LABELED_CRITICS = (
    "projection",
    "concatenation",
)  # values of Design.conditioning whose critic takes labels

# The parameters of `build` that depend neither on the dataset nor on the device. `check` accepts
# them, too, so that a program can pass its settings to both.
_NOT_SETTINGS = ("example_shape", "classes", "condition_size", "fused_resampling")
SETTINGS = (
    "name",
    "generator_name",
    *(field.name for field in dataclasses.fields(Design) if field.name not in _NOT_SETTINGS),
)


def _sized(module: str, sizes: tuple[int, ...], **properties: Any) -> Model:
    """Returns the entry of a module for images of certain sides, in pixels."""
    text = f"{', '.join(map(str, sizes[:-1]))} or {sizes[-1]}"
    return Model(module, sizes=text, supports=sizes.__contains__, **properties)


# To add a network, add a module and an entry.
MODELS = {
    "mlp": Model("mlp", width=256, points=True, depth=3, labels_in_normalization=False),
    "dcgan": Model("dcgan", sizes="8 or more", supports=lambda size: size >= 8),
    "resnet": _sized("resnet", (32, 48, 64, 128), pooling_size=32),
    "resnet101": _sized("resnet101", (32, 64, 128), depth=6, min_width=4),
}


def default(example_shape: tuple[int, ...]) -> str:
    """Returns the key of MODELS to use by default for examples `(H, W, C)` or `(D,)`."""
    tiny = len(example_shape) == 1 or max(example_shape[:2]) <= TINY
    return "mlp" if tiny else "dcgan"


def check(
    name: str | None,
    example_shape: tuple[int, ...],
    *,
    generator_name: str | None = None,
    width: int | None = None,
    generator_width: int | None = None,
    conditioning: str = "none",
    generator_normalization: str = "batch",
    critic_normalization: str = "none",
    critic_pooling: str = "mean",
    registry: Mapping[str, Model] | None = None,
    **others: Any,
) -> tuple[Model, Model]:
    """Checks that the networks support the settings and each other, without building them.

    Args:
      name: A key of `registry`; None for the `default` of the shape.
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      generator_name, width, generator_width: See `build`.
      conditioning, generator_normalization, critic_normalization, critic_pooling: See Design.
      registry: The networks by name. Defaults to MODELS.
      others: Other members of SETTINGS, which all networks support.

    Returns:
      The entries of `registry` for the critic and for the generator.

    Raises:
      DesignError: If they do not. The message says what is wrong and what to do.
      TypeError: If `others` contains a name that is not in SETTINGS.
    """
    unknown = sorted(set(others).difference(SETTINGS))
    if unknown:
        raise TypeError(f"unknown settings of networks: {', '.join(unknown)}")
    registry = registry or MODELS
    name = name or default(example_shape)
    critic = generator = _check_network(registry, "name", name, example_shape, width)
    if critic_pooling == "sum":
        _check_pooling(registry, name, example_shape)
    if generator_name not in (None, name):
        generator = _check_network(
            registry, "generator_name", generator_name, example_shape, generator_width
        )
    elif generator_width is not None:
        _check_width("generator_width", generator_width, name, critic)
    _check_critic_normalization(name, critic_normalization)
    _check_labels(generator, conditioning, generator_normalization)
    return critic, generator


def _check_network(
    registry: Mapping[str, Model],
    parameter: str,
    name: str,
    example_shape: tuple[int, ...],
    width: int | None,
) -> Model:
    setting = Setting(parameter, name)
    if name not in registry:
        raise DesignError((setting, " is unknown"), (f"use one of {', '.join(registry)}",))
    model = registry[name]
    if width is not None:
        _check_width("width" if parameter == "name" else "generator_width", width, name, model)
    if model.points:
        return model
    if len(example_shape) == 1:
        supported = ", ".join(key for key, other in registry.items() if other.points)
        raise DesignError(
            (setting, " generates images, but the dataset contains points"),
            ("use ", Setting(parameter, supported)),
        )
    height, width_in_pixels = example_shape[:2]
    if height != width_in_pixels or not model.supports(height):
        raise DesignError(
            (setting, f" does not support images of {height}x{width_in_pixels} pixels"),
            ("use ", Setting("image_size", model.sizes)),
        )
    return model


def _check_width(parameter: str, width: int, name: str, model: Model) -> None:
    if width < model.min_width:
        raise DesignError(
            (Setting(parameter, width), f" is too narrow for {name}"),
            (f"give at least {model.min_width}",),
        )


def _check_pooling(
    registry: Mapping[str, Model], name: str, example_shape: tuple[int, ...]
) -> None:
    if example_shape[0] == registry[name].pooling_size:
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


def _check_critic_normalization(name: str, critic_normalization: str) -> None:
    if name == "mlp" and critic_normalization == "instance":
        raise DesignError(
            (
                Setting("critic_normalization", "instance"),
                " requires feature maps, which mlp does not have",
            ),
            ("use ", Setting("critic_normalization", "layer")),
        )


def _check_labels(generator: Model, conditioning: str, normalization: str) -> None:
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


def build(
    name: str | None,
    example_shape: tuple[int, ...],
    latent_size: int,
    width: int | None = None,
    *,
    generator_name: str | None = None,
    generator_width: int | None = None,
    depth: int | None = None,
    registry: Mapping[str, Model] | None = None,
    **design: Any,
) -> tuple[tf.keras.Model, tf.keras.Model]:
    """Builds a generator and a critic with new weights.

    The parameters are `name`, `generator_name` and the attributes of Design.

    Args:
      name: A key of `registry`; None for the `default` of the shape.
      example_shape: `(H, W, C)` for images in [-1, 1], `(D,)` for points.
      latent_size: Length of a latent vector.
      width: Design.width; None for the default of the network.
      generator_name: A key of `registry` for the generator; None for `name`.
      generator_width: Design.generator_width; None for `width`, or for the default of the
        generator's network if `generator_name` differs from `name`.
      depth: Design.depth; None for the default of the network.
      registry: The networks by name. Defaults to MODELS.
      design: Other attributes of Design.

    Returns:
      A pair of Keras models:
        generator: Maps latents `[B, latent_size]` float32 to `[B, *example_shape]` float32. A
          conditional generator takes a list of latents and labels `[B]` int32.
        critic: Maps `[B, *example_shape]` float32 to scores `[B, 1]` float32. See heads for
          conditional critics.

    Raises:
      DesignError: See `check`.
      TypeError: If `design` contains a name that is not an attribute of Design.
    """
    name = name or default(example_shape)
    generator_name = generator_name or name
    model, generator_model = check(
        name,
        example_shape,
        generator_name=generator_name,
        width=width,
        generator_width=generator_width,
        registry=registry,
        **{key: value for key, value in design.items() if key in SETTINGS},
    )
    critic_width = width or model.width
    if generator_width is None:
        generator_width = critic_width if generator_name == name else generator_model.width

    def module_and_design(model: Model) -> tuple[Any, Design]:
        module = model.module
        if isinstance(module, str):
            module = importlib.import_module(f".{module}", __package__)
        return module, Design(
            example_shape=example_shape,
            latent_size=latent_size,
            width=critic_width,
            generator_width=generator_width,
            depth=depth or model.depth or 0,
            **design,
        )

    generator_module, generator_design = module_and_design(generator_model)
    critic_module, critic_design = module_and_design(model)
    return generator_module.generator(generator_design), critic_module.critic(critic_design)
