"""The networks there are, what each can draw, and how to build them."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable
from typing import Any

from .design import Design
from .errors import Choice, DesignError

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Model:
    """One entry: where its `generator` and `critic` functions are, and what they accept.

    Attributes:
      module: name in this package of the module with `generator` and `critic`.
      width: default `--model_width`, see Design.width.
      sizes: in words, the sides of the square images it can draw.
      draws: whether it can draw images of so many pixels a side.
      points: whether it can draw points `[D]`, and images that are not square.
      depth: default `--model_depth`, see Design.depth; None: it has no such choice.
      narrowest: the smallest width there is.
      labels_by_norm: labels reach its generator as scales and offsets of batch-norm.
      pooled_size: side, in pixels, of the images whose critic pools its last features; None:
        its critic never does.
    """

    module: str
    width: int
    sizes: str
    draws: Callable[[int], bool]
    points: bool = False
    depth: int | None = None
    narrowest: int = 1
    labels_by_norm: bool = True
    pooled_size: int | None = None


TINY = 8  # pixels a side, up to which an mlp draws images as well as a dcgan, in half the time

LABELED_CRITICS = ("projection",)  # values of Design.conditioning whose critic takes labels

# A new network is one module and one line here.
MODELS = {
    "mlp": Model("mlp", 256, "any", lambda size: True, points=True, depth=3, labels_by_norm=False),
    "dcgan": Model("dcgan", 64, "8 or more", lambda size: size >= 8),
    "resnet": Model(
        "resnet", 64, "32, 48, 64 or 128", (32, 48, 64, 128).__contains__, pooled_size=32
    ),
    "resnet101": Model(
        "resnet101", 64, "32, 64 or 128", (32, 64, 128).__contains__, depth=6, narrowest=4
    ),
}


def default(example_shape: tuple[int, ...]) -> str:
    """Returns the key of MODELS that suits examples of shape `(H, W, C)` or `(D,)`."""
    is_tiny = len(example_shape) == 1 or max(example_shape[:2]) <= TINY
    return "mlp" if is_tiny else "dcgan"


def check(
    name: str,
    example_shape: tuple[int, ...],
    *,
    generator_name: str | None = None,
    width: int | None = None,
    generator_width: int | None = None,
    conditioning: str = "none",
    generator_normalization: str = "batch",
    critic_normalization: str = "none",
    critic_pooling: str = "mean",
) -> tuple[Model, Model]:
    """The registry's entries for the critic and for the generator, if they suit each other.

    Args:
      name: a key of MODELS.
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      generator_name, width, generator_width: as for `build`.
      conditioning, generator_normalization, critic_normalization, critic_pooling: see Design.

    Raises:
      DesignError: says what does not fit, and what would.
    """
    critic = _check_network("name", name, example_shape, width)
    if critic_pooling == "sum":
        _check_pools(name, example_shape)
    generator = critic
    if generator_name not in (None, name):
        generator = _check_network("generator_name", generator_name, example_shape, generator_width)
    elif generator_width is not None:
        _check_width("generator_width", generator_width, name)
    if name == "mlp" and critic_normalization == "instance":
        raise DesignError(
            (
                Choice("critic_normalization", "instance"),
                " leaves nothing of features that have no pixels, as those of mlp",
            ),
            ("use layer",),
        )
    if conditioning != "none" and generator.labels_by_norm and generator_normalization == "none":
        raise DesignError(
            (
                Choice("generator_normalization", "none"),
                " with ",
                Choice("conditioning", conditioning),
                " leaves the generator no way to see labels, which are scales and offsets of its "
                "batch-norm",
            ),
            (
                "use ",
                Choice("generator_normalization", "batch"),
                ", or ",
                Choice("generator_name", "mlp"),
            ),
        )
    return critic, generator


def _check_network(
    parameter: str, name: str, example_shape: tuple[int, ...], width: int | None
) -> Model:
    given = Choice(parameter, name)
    if name not in MODELS:
        raise DesignError((given, " is unknown"), (f"use one of {', '.join(MODELS)}",))
    model = MODELS[name]
    if width is not None:
        _check_width("width" if parameter == "name" else "generator_width", width, name)
    if model.points:
        return model
    if len(example_shape) == 1:
        able = ", ".join(key for key, other in MODELS.items() if other.points)
        raise DesignError(
            (given, " draws images, but the dataset holds points"),
            ("use ", Choice(parameter, able)),
        )
    height, across = example_shape[:2]
    if height != across or not model.draws(height):
        raise DesignError(
            (given, f" cannot draw images of {height}x{across} pixels"),
            ("use ", Choice("image_size", model.sizes)),
        )
    return model


def _check_width(parameter: str, width: int, name: str) -> None:
    if width < MODELS[name].narrowest:
        raise DesignError(
            (Choice(parameter, width), f" is too narrow for {name}"),
            (f"give at least {MODELS[name].narrowest}",),
        )


def _check_pools(name: str, example_shape: tuple[int, ...]) -> None:
    if example_shape[0] == MODELS[name].pooled_size:
        return
    able: list[str | Choice] = []
    for key, model in MODELS.items():
        if model.pooled_size is not None:
            size = Choice("image_size", model.pooled_size)
            able += [" or " if able else "", Choice("name", key), " ", size]
    raise DesignError(
        (
            Choice("critic_pooling", "sum"),
            " needs a critic that pools its last features, but that of ",
            Choice("name", name),
            " does not at this size",
        ),
        ("leave it out, or use ", *able),
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
    **choices: Any,
) -> tuple[tf.keras.Model, tf.keras.Model]:
    """A new generator and a new critic.

    Args:
      name: a key of MODELS; the `default` of the shape if None.
      example_shape: `(H, W, C)` for images in [-1, 1], `(D,)` for points.
      latent_size: length of a latent vector.
      width: units or channels; the registry's default if None.
      generator_name: a key of MODELS for the generator; `name` if None.
      generator_width: that of the generator; `width` if None, or the registry's default if
        the generator is another network.
      depth: see Design; the registry's default if None.
      choices: further attributes of Design.

    Returns:
      generator: `[B, latent_size]` float32 -> `[B, *example_shape]` float32. With classes it
        takes a list of these and labels `[B]` int32.
      critic: `[B, *example_shape]` float32 -> `[B, 1]` float32; see heads for classes.

    Raises:
      DesignError: see `check`.
    """
    name = name or default(example_shape)
    generator_name = generator_name or name
    checked = ("conditioning", "generator_normalization", "critic_normalization", "critic_pooling")
    model, generator_model = check(
        name,
        example_shape,
        generator_name=generator_name,
        width=width,
        generator_width=generator_width,
        **{choice: choices[choice] for choice in checked if choice in choices},
    )
    critic_width = width or model.width
    if generator_width is None:
        generator_width = critic_width if generator_name == name else generator_model.width
    shared = {
        "example_shape": example_shape,
        "latent_size": latent_size,
        "width": critic_width,
        "generator_width": generator_width,
        **choices,
    }

    def module_and_design(model: Model) -> tuple[Any, Design]:
        module = importlib.import_module(f".{model.module}", __package__)
        return module, Design(depth=depth or model.depth or 0, **shared)

    generator_module, generator_design = module_and_design(generator_model)
    critic_module, critic_design = module_and_design(model)
    return generator_module.generator(generator_design), critic_module.critic(critic_design)


def load(path: str) -> tf.keras.Model:
    """A generator from the file that Keras wrote of it, on this machine.

    Keras makes layers that are not its own only of classes that it has been shown: those of
    this package, once the modules are imported.
    """
    import tensorflow as tf  # noqa: PLC0415

    for model in MODELS.values():
        importlib.import_module(f".{model.module}", __package__)
    return tf.keras.models.load_model(path)
