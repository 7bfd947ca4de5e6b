"""The networks there are, what each can draw, and how to build them."""

from __future__ import annotations

import dataclasses
import importlib
import typing

if typing.TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Model:
    """One entry: where its `generator` and `critic` functions are, and what they accept.

    Attributes:
      module: name in this package of the module with `generator` and `critic`.
      width: default `--model_width`: units of a hidden layer, or channels at the
        highest resolution.
      image_sizes: side lengths it can draw, or None where any will do.
      points: whether it can draw points `[D]` as well as images `[H, W, C]`.
    """

    module: str
    width: int
    image_sizes: tuple[int, ...] | None
    points: bool


# A new network is one module and one line here.
MODELS = {
    "mlp": Model("mlp", width=128, image_sizes=None, points=True),
    "dcgan": Model("dcgan", width=32, image_sizes=(8, 16, 32, 64, 128), points=False),
}


def check(name: str, example_shape: tuple[int, ...]) -> Model:
    """The registry's entry for `name`, if it can draw examples of this shape.

    Args:
      name: a key of MODELS.
      example_shape: `(H, W, C)` for images, `(D,)` for points.

    Raises:
      ValueError: in one line, what does not fit — and what would.
    """
    if name not in MODELS:
        raise ValueError(f"--model={name} is unknown — use one of {', '.join(MODELS)}")
    model = MODELS[name]
    if len(example_shape) == 1:
        if not model.points:
            able = ", ".join(key for key, other in MODELS.items() if other.points)
            raise ValueError(
                f"--model={name} draws images, but the dataset holds points — use --model={able}"
            )
        return model
    height, width = example_shape[:2]
    if model.image_sizes and (height != width or height not in model.image_sizes):
        sizes = ", ".join(map(str, model.image_sizes))
        raise ValueError(
            f"--model={name} cannot draw images of {height}x{width} pixels "
            f"— use --image_size with one of {sizes}",
        )
    return model


def build(
    name: str,
    example_shape: tuple[int, ...],
    latent_size: int,
    width: int | None = None,
    *,
    critic_normalization: str = "none",
) -> tuple[tf.keras.Model, tf.keras.Model]:
    """A new generator and a new critic.

    Args:
      name: a key of MODELS.
      example_shape: `(H, W, C)` for images in [-1, 1], `(D,)` for points.
      latent_size: length of a latent vector.
      width: units or channels; the registry's default if None.
      critic_normalization: "none" or "layer", see layers.normalization_layers.

    Returns:
      generator: `[B, latent_size]` float32 -> `[B, *example_shape]` float32.
      critic: `[B, *example_shape]` float32 -> `[B, 1]` float32.

    Raises:
      ValueError: see `check`.
    """
    model = check(name, example_shape)
    module = importlib.import_module(f".{model.module}", __package__)
    width = width or model.width
    return (
        module.generator(example_shape, latent_size, width),
        module.critic(example_shape, width, critic_normalization),
    )
