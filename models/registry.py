"""The registry of networks: what each of them supports, checks of settings, and construction."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .design import CRITIC_NORMALIZATIONS, Design, DesignError

if typing.TYPE_CHECKING:
    import tensorflow as tf

_KINDS = {
    1: "points",
    2: "signals",
    3: "images",
    4: "volumes",
}  # by the number of axes of an example
EVERY_KIND = tuple(_KINDS.values())
# Up to this longer side in pixels, an mlp generates images as good as those of a dcgan, in half
# the time.
TINY = 8


@dataclasses.dataclass(frozen=True)
class Model:
    """A registry entry: a pair of networks, and the data and the settings that they support.

    Attributes:
      module: Name of the module of this package that defines `generator` and `critic`, or an object
        with these functions. Either function may be missing from an object.
      kinds: The supported examples: "points" `(D,)`, "signals" `(T, C)`, "images" `(H, W, C)`,
        "volumes" `(D, H, W, C)`.
      sizes: Supported sizes of images, in pixels, or lengths of signals, or sides of volumes, in
        words.
      supports: Maps the sides `(height, width)` of an image, `(length,)` of a signal or `(depth,
        height, width)` of a volume to whether they are supported.
      width: Default of Design.model_width.
      depth: Default of Design.model_depth; None if the depth is fixed.
      labels_in_normalization: Whether labels enter the generator as scales and offsets of batch
        normalization.
      critic_normalizations: Supported values of Design.critic_normalization.
      has_attention: Whether the networks have self-attention at Design.attention.
      pooling_size: Shorter side, in pixels, of the images for which the critic ends in global
        pooling; None if it never does.
      starts_linear: Whether the critic is linear before its first update.
    """

    module: Any
    kinds: tuple[str, ...] = ("images",)
    sizes: str = "any"
    supports: Callable[[tuple[int, ...]], bool] = lambda sides: True
    width: int = 64
    depth: int | None = None
    labels_in_normalization: bool = True
    critic_normalizations: tuple[str, ...] = CRITIC_NORMALIZATIONS
    has_attention: bool = False
    pooling_size: int | None = None
    starts_linear: bool = False

    @property
    def of_user(self) -> bool:
        """Is True for networks of the user, which use the attributes of Design as they like."""
        return not isinstance(self.module, str)

    def load_module(self) -> Any:
        """Returns the object with the functions `generator` and `critic`; imports TensorFlow."""
        if self.of_user:
            return self.module
        return importlib.import_module(f".{self.module}", __package__)


class Registry(Mapping[str, Model]):
    """Networks by name.

    Args:
      entries: The networks by name.
    """

    def __init__(self, entries: Mapping[str, Model]):
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Model:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def with_networks(self, modules: Mapping[str, Any]) -> Registry:
        """Returns a registry that also has networks of the user, for examples of every shape.

        Args:
          modules: Objects with the functions `generator` and `critic`, by name; see Model.module.
        """
        entries = {
            name: Model(module, EVERY_KIND, depth=3, labels_in_normalization=False)
            for name, module in modules.items()
        }
        return Registry({**self._entries, **entries})

    def default(self, example_shape: tuple[int, ...]) -> str:
        """Returns the name of the networks to use by default.

        Args:
          example_shape: `(D, H, W, C)` for volumes, `(H, W, C)` for images, `(T, C)` for signals,
            `(D,)` for points.
        """
        *sides, _ = example_shape
        if len(sides) == 1 and self["conv1d"].supports((sides[0],)):
            return "conv1d"
        if len(sides) == 2 and max(sides) > TINY and self["dcgan"].supports(tuple(sides)):
            return "dcgan"
        if len(sides) == 3 and self["conv3d"].supports(tuple(sides)):
            return "conv3d"
        return "mlp"

    def check(
        self,
        model: str | None,
        example_shape: tuple[int, ...],
        *,
        resizable: bool = True,
        generator_model: str | None = None,
        model_width: int | None = None,
        generator_width: int | None = None,
        conditioning: str = "none",
        generator_normalization: str = "batch",
        critic_normalization: str = "none",
        critic_pooling: str = "mean",
        attention: int = 0,
        minibatch_stddev: int = 0,
        classes: int = 0,
        condition_size: int = 0,
        **others: Any,
    ) -> tuple[Model, Model]:
        """Checks that networks support the settings and each other, without building them.

        Args:
          model: The name of the networks; None for the `default` of the shape.
          example_shape: `(D, H, W, C)` for volumes, `(H, W, C)` for images, `(T, C)` for signals,
            `(D,)` for points.
          resizable: Whether images can be resized by --image_size, for messages.
          generator_model, model_width, generator_width: See `build`.
          conditioning, generator_normalization, critic_normalization: See Design.
          critic_pooling, attention, minibatch_stddev: See Design.
          classes, condition_size: See Design; 0 if not yet known.
          others: Other attributes of Design, whose values all networks support. None stands for a
            default.

        Returns:
          The entries of the critic and of the generator.

        Raises:
          DesignError: If they do not. The message says what is wrong and what to do.
          TypeError: If `others` contains a name that is not an attribute of Design.
        """
        known = {field.name for field in dataclasses.fields(Design)}
        if unknown := sorted(set(others) - known):
            raise TypeError(f"unknown settings of networks: {', '.join(unknown)}")
        sizes = {name: others.get(name) for name in ("latent_size", "model_depth")}
        _check_sizes(model_width=model_width, generator_width=generator_width, **sizes)
        model = model or self.default(example_shape)
        critic = generator = self._find("model", model, example_shape, resizable=resizable)
        if critic_pooling == "sum":
            self._check_pooling(model, example_shape)
        if generator_model not in (None, model):
            generator = self._find(
                "generator_model", generator_model, example_shape, resizable=resizable
            )
        if critic_normalization not in critic.critic_normalizations:
            raise DesignError(
                f"--critic_normalization={critic_normalization} does not apply to --model={model}",
                f"use {', '.join(critic.critic_normalizations)}",
            )
        if attention:
            named = {"model": model, "generator_model": generator_model or model}
            self._check_attention(named, attention, example_shape)
        if minibatch_stddev < 0 or minibatch_stddev == 1:
            raise DesignError(
                f"--minibatch_stddev={minibatch_stddev} is not a group of examples",
                "give at least 2, or 0 for no groups",
            )
        _check_conditions(conditioning, classes, condition_size)
        if generator_normalization == "film" and not generator.of_user:
            _check_modulation(generator_model or model, generator, conditioning)
        by_label = generator.labels_in_normalization and not condition_size
        if conditioning != "none" and generator_normalization == "none" and by_label:
            raise DesignError(
                f"--generator_normalization=none with --conditioning={conditioning} gives the "
                "generator no access to labels, which select the scales and offsets of its batch "
                "normalization",
                "use --generator_normalization=batch or film, or --generator_model=mlp",
            )
        return critic, generator

    def build(
        self,
        model: str | None,
        example_shape: tuple[int, ...],
        latent_size: int,
        model_width: int | None = None,
        *,
        generator_model: str | None = None,
        generator_width: int | None = None,
        model_depth: int | None = None,
        **design: Any,
    ) -> tuple[tf.keras.Model, tf.keras.Model]:
        """Builds a generator and a critic with new weights.

        Args:
          model: The name of the networks; None for the `default` of the shape.
          example_shape: `(D, H, W, C)` for volumes, `(H, W, C)` for images, `(T, C)` for signals,
            `(D,)` for points.
          latent_size: Length of a latent vector.
          model_width: Design.model_width; None for the default of the network.
          generator_model: The name of the generator; None for `model`.
          generator_width: Design.generator_width; None for `model_width`, or for the default of
            the generator's network if `generator_model` differs from `model`.
          model_depth: Design.model_depth; None for the default of the network.
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
        make_generator, make_critic = self._makers(
            model,
            example_shape,
            latent_size,
            model_width,
            generator_model=generator_model,
            generator_width=generator_width,
            model_depth=model_depth,
            **design,
        )
        return make_generator(), make_critic()

    def build_generator(self, *args: Any, **settings: Any) -> tf.keras.Model:
        """Builds the generator of `build`, which has the same arguments, without the critic."""
        make_generator, _ = self._makers(*args, **settings)
        return make_generator()

    def _makers(
        self,
        model: str | None,
        example_shape: tuple[int, ...],
        latent_size: int,
        model_width: int | None = None,
        *,
        generator_model: str | None = None,
        generator_width: int | None = None,
        model_depth: int | None = None,
        **design: Any,
    ) -> tuple[Callable[[], tf.keras.Model], Callable[[], tf.keras.Model]]:
        """Returns functions that build the generator and the critic of `build`."""
        model = model or self.default(example_shape)
        generator_model = generator_model or model
        critic, generator = self.check(
            model,
            example_shape,
            generator_model=generator_model,
            model_width=model_width,
            generator_width=generator_width,
            latent_size=latent_size,
            model_depth=model_depth,
            **design,
        )
        model_width = model_width or critic.width
        if generator_width is None:
            generator_width = model_width if generator_model == model else generator.width

        def design_of(entry: Model) -> Design:
            return Design(
                example_shape=example_shape,
                latent_size=latent_size,
                model_width=model_width,
                generator_width=generator_width,
                model_depth=model_depth or entry.depth or 0,
                **design,
            )

        return (
            lambda: generator.load_module().generator(design_of(generator)),
            lambda: critic.load_module().critic(design_of(critic)),
        )

    def _find(
        self, flag: str, name: str, example_shape: tuple[int, ...], *, resizable: bool
    ) -> Model:
        """Returns the entry of networks that support the shape of the examples.

        Raises:
          DesignError: If there is no such entry, or it does not support the shape.
        """
        if name not in self:
            raise DesignError(f"--{flag}={name} is unknown", f"use one of {', '.join(self)}")
        if len(example_shape) not in _KINDS:
            raise DesignError(f"examples of shape {example_shape}", f"use {', '.join(EVERY_KIND)}")
        model, kind, sides = self[name], _KINDS[len(example_shape)], example_shape[:-1]
        if kind not in model.kinds:
            others = ", ".join(key for key, other in self.items() if kind in other.kinds)
            raise DesignError(
                f"--{flag}={name} generates {', '.join(model.kinds)}, but the dataset contains "
                f"{kind}",
                f"use --{flag}={others}" if others else "use other data",
            )
        if not model.supports(sides):
            every = ", ".join(key for key, other in self.items() if other.kinds == EVERY_KIND)
            unit = {"signals": "steps", "volumes": "voxels"}.get(kind, "pixels")
            size = f"{'x'.join(map(str, sides))} {unit}"
            usable = f"--image_size={model.sizes}"
            if kind == "signals":
                usable = f"signals of {model.sizes} steps"
            elif kind == "volumes":
                usable = f"volumes whose longest side has {model.sizes} voxels"
            elif not resizable:
                usable = f"images of size {model.sizes}"
            raise DesignError(
                f"--{flag}={name} does not support {kind} of {size}",
                f"use {usable}" + (f", or --{flag}={every}" if every else ""),
            )
        return model

    def _check_pooling(self, name: str, example_shape: tuple[int, ...]) -> None:
        """Raises DesignError if the critic of a network does not end in global pooling."""
        if len(example_shape) == 3 and min(example_shape[:2]) == self[name].pooling_size:
            return
        pooled = [
            f"--model={key} --image_size={model.pooling_size}"
            for key, model in self.items()
            if model.pooling_size is not None
        ]
        raise DesignError(
            "--critic_pooling=sum requires global pooling, which the critic of "
            f"--model={name} does not have at this image size",
            f"omit it, or use {' or '.join(pooled)}",
        )

    def _check_attention(
        self, named: Mapping[str, str], attention: int, example_shape: tuple[int, ...]
    ) -> None:
        """Raises DesignError if one of the networks, by flag, has no attention at this size."""
        for flag, name in named.items():
            if self[name].of_user:
                continue
            if not self[name].has_attention:
                having = [f"--model={key}" for key, model in self.items() if model.has_attention]
                raise DesignError(
                    f"--attention={attention} does not apply to --{flag}={name}",
                    f"omit it, or use {' or '.join(having)}",
                )
            side = min(example_shape[:2])
            sizes = [side >> count for count in range(1, (side // 8).bit_length())]
            if attention not in sizes:
                raise DesignError(
                    f"--attention={attention} is not a size of the feature maps of images whose "
                    f"shorter side has {side} pixels",
                    f"use {' or '.join(map(str, sizes))}",
                )


def _check_sizes(**sizes: int | None) -> None:
    """Raises DesignError if a size is less than 1; None stands for a default."""
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise DesignError(f"--{name}={value} is too small", "give at least 1")


def _check_modulation(name: str, generator: Model, conditioning: str) -> None:
    """Raises DesignError if labels or conditions cannot modulate the features of a generator."""
    if not generator.labels_in_normalization:
        raise DesignError(
            f"--generator_normalization=film does not apply to the generator of {name}, which "
            "takes labels as an input",
            "omit it",
        )
    if conditioning == "none":
        raise DesignError(
            "--generator_normalization=film requires labels or conditions, on which the scales "
            "and offsets depend",
            "give --conditioning, or use --generator_normalization=batch",
        )


def _check_conditions(conditioning: str, classes: int, condition_size: int) -> None:
    """Raises DesignError if a conditioning does not fit the labels or conditions of the data."""
    if condition_size and classes:
        raise DesignError(
            f"condition_size={condition_size} excludes classes={classes}", "give one of them"
        )
    if condition_size and conditioning == "acgan":
        raise DesignError(
            "--conditioning=acgan classifies, but the dataset has continuous conditions instead "
            "of classes",
            "use --conditioning=projection or --conditioning=concatenation",
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
MODELS = Registry(
    {
        "mlp": Model(
            "mlp",
            EVERY_KIND,
            width=256,
            depth=3,
            labels_in_normalization=False,
            # Instance normalization requires feature maps.
            critic_normalizations=("none", "layer", "group", "spectral"),
        ),
        "dcgan": Model("dcgan", sizes="8 or more", supports=lambda sides: min(sides) >= 8),
        "resnet": _sized("resnet", (32, 48, 64, 128), pooling_size=32, has_attention=True),
        "r3gan": _sized(
            "r3gan",
            (32, 48, 64, 128),
            depth=2,
            labels_in_normalization=False,
            critic_normalizations=("none",),
            starts_linear=True,  # its residual branches are initially zero
        ),
        "conv1d": Model(
            "conv1d",
            kinds=("signals",),
            sizes="4 or more",
            supports=lambda sides: sides[0] >= 4,
        ),
        "conv3d": Model(
            "conv3d",
            kinds=("volumes",),
            sizes="4 or more",
            supports=lambda sides: max(sides) >= 4,
        ),
    }
)


def load(path: str) -> tf.keras.Model:
    """Loads a generator or a critic from a Keras file.

    Keras can load custom layers only if they are registered. The layers of this package are
    registered when their modules are imported.

    Args:
      path: A file on this machine.
    """
    import tensorflow as tf  # noqa: PLC0415

    for model in MODELS.values():
        model.load_module()
    return tf.keras.models.load_model(path)
