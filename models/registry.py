"""The registry of networks: their properties, validation of settings, and construction."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from . import checks
from .design import Design

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Model:
    """A registry entry: a pair of networks and the settings that they support.

    Attributes:
      module: Name of the module of this package that defines `generator` and `critic`, or an object
        with these functions. Either function may be missing from an object.
      width: Default of Design.width.
      sizes: Supported sizes of images, in pixels, or lengths of signals, in words.
      supports: Maps the sides `(height, width)` of an image, or `(length,)` of a signal, to whether
        they are supported.
      signals: Whether the networks are for signals `(T, C)` instead of images `(H, W, C)`.
      points: Whether the networks are for examples of every shape: points `(D,)`, signals and
        images of all sizes.
      depth: Default of Design.depth; None if the depth is fixed.
      min_width: Smallest supported width.
      labels_in_normalization: Whether labels enter the generator as scales and offsets of batch
        normalization.
      pooling_size: Shorter side, in pixels, of the images for which the critic ends in global
        pooling; None if it never does.
    """

    module: Any
    width: int = 64
    sizes: str = "any"
    supports: Callable[[tuple[int, ...]], bool] = lambda sides: True
    signals: bool = False
    points: bool = False
    depth: int | None = None
    min_width: int = 1
    labels_in_normalization: bool = True
    pooling_size: int | None = None


# Up to this longer side in pixels, an mlp generates images as good as those of a dcgan, in half
# the time.
TINY = 8

# The parameters of `build` that depend on the dataset or on the device. `check` accepts all others,
# so that a program can pass its settings to both.
_NOT_SETTINGS = ("example_shape", "bounded", "classes", "condition_size", "fused_resampling")
SETTINGS = (
    "name",
    "generator_name",
    *(field.name for field in dataclasses.fields(Design) if field.name not in _NOT_SETTINGS),
)


def _sized(module: str, sizes: tuple[int, ...], **properties: Any) -> Model:
    """Returns the entry of a module for images of certain shorter sides, in pixels.

    These are halved until 4 to 7 pixels are left, and the longer side has to be halved as often.
    """

    def supports(sides: tuple[int, ...]) -> bool:
        shorter, longer = min(sides), max(sides)
        return shorter in sizes and longer % 2 ** ((shorter // 4).bit_length() - 1) == 0

    text = (
        f"{', '.join(map(str, sizes[:-1]))} or {sizes[-1]}, or HxW with one of these as the "
        "shorter side and a multiple of 8 (16 for 64, 32 for 128) as the longer side"
    )
    return Model(module, sizes=text, supports=supports, **properties)


# To add a network, add a module and an entry.
MODELS = {
    "mlp": Model("mlp", width=256, points=True, depth=3, labels_in_normalization=False),
    "dcgan": Model("dcgan", sizes="8 or more", supports=lambda sides: min(sides) >= 8),
    "resnet": _sized("resnet", (32, 48, 64, 128), pooling_size=32),
    "r3gan": _sized("r3gan", (32, 48, 64, 128), depth=2, labels_in_normalization=False),
    "conv1d": Model(
        "conv1d", sizes="4 or more", supports=lambda sides: sides[0] >= 4, signals=True
    ),
}


def default(example_shape: tuple[int, ...]) -> str:
    """Returns the key of MODELS to use by default.

    Args:
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
    """
    *sides, _ = example_shape
    if len(sides) == 1 and MODELS["conv1d"].supports((sides[0],)):
        return "conv1d"
    if len(sides) == 2 and max(sides) > TINY and MODELS["dcgan"].supports(tuple(sides)):
        return "dcgan"
    return "mlp"


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
    minibatch_stddev: int = 0,
    classes: int = 0,
    condition_size: int = 0,
    registry: Mapping[str, Model] | None = None,
    **others: Any,
) -> tuple[Model, Model]:
    """Checks that the networks support the settings and each other, without building them.

    Args:
      name: A key of `registry`; None for the `default` of the shape.
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
      generator_name, width, generator_width: See `build`.
      conditioning, generator_normalization, critic_normalization, critic_pooling,
        minibatch_stddev: See Design.
      classes, condition_size: See Design; 0 if not yet known.
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
    critic = generator = checks.network(registry, "name", name, example_shape, width)
    if critic_pooling == "sum":
        checks.pooling(registry, name, example_shape)
    if generator_name not in (None, name):
        generator = checks.network(
            registry, "generator_name", generator_name, example_shape, generator_width
        )
    elif generator_width is not None:
        checks.width("generator_width", generator_width, name, critic)
    checks.critic_normalization(name, critic_normalization)
    checks.minibatch_stddev(minibatch_stddev)
    checks.conditions(conditioning, classes, condition_size)
    if not condition_size:  # conditions enter with the latents, too
        checks.labels(generator, conditioning, generator_normalization)
    return critic, generator


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
      example_shape: `(H, W, C)` for images, `(T, C)` for signals, `(D,)` for points.
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
          conditional generator takes a list of latents and labels `[B]` int32, or conditions
          `[B, condition_size]` float32.
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
        **{
            key: value
            for key, value in design.items()
            if key in (*SETTINGS, "classes", "condition_size")
        },
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
