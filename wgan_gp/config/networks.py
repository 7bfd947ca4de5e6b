"""The settings of the generator and the critic."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ..errors import UserError
from .settings import PYTHON, Section, setting

GENERATOR_NORMALIZATIONS = ("batch", "film", "none")
CRITIC_NORMALIZATIONS = ("none", "layer", "group", "instance", "spectral")
CONDITIONINGS = ("none", "acgan", "projection", "concatenation")

_setting = functools.partial(setting, kind="networks")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSettings(Section):
    """The architecture of the networks."""

    model: str | None = _setting(
        None,
        "Networks: mlp (any shape), conv1d (signals of at least 4 steps), conv3d (volumes of at "
        "least 4 voxels on one side), dcgan (images of at least 8 pixels), resnet or r3gan (32, "
        "48, 64 or 128 pixels); for rectangles, these are the shorter side (docs/models.md). "
        "Default: mlp for points and for images of at most 8 pixels, conv1d for signals, conv3d "
        "for volumes, otherwise dcgan. Or your own: FILE.py or a module (docs/user_code.md).",
        user_code=True,
        compared=True,
        common=True,
    )
    generator_model: str | None = _setting(
        None,
        "Network of the generator, if it differs from the critic's. Default: --model.",
        user_code=True,
    )
    model_width: int | None = _setting(
        None,
        "Number of hidden units (mlp), or of channels at half the size (dcgan, conv3d), after the "
        "first reduction of the length (conv1d) or at the full size (resnet, r3gan). Default: 256 "
        "for mlp, otherwise 64.",
        minimum=1,
        maximum=16_384,
        compared=True,
        common=True,
    )
    generator_width: int | None = _setting(
        None,
        "Width of the generator, in the unit of --model_width. Default: --model_width.",
        minimum=1,
        maximum=16_384,
    )
    model_depth: int | None = _setting(
        None,
        "Number of hidden layers (mlp, default 3) or of blocks at each size (r3gan, default 2).",
        minimum=1,
        maximum=256,
        applies={"model": ("mlp", "r3gan", PYTHON)},
    )
    activation: str = _setting(
        "relu",
        "Activation of all hidden layers: relu (leaky in the critics of dcgan and conv1d, and in "
        "r3gan) or tanh.",
        choices=("relu", "tanh"),
    )
    generator_normalization: str = _setting(
        "batch",
        "Normalization of the generator's layers: batch; film (no normalization, but each label or "
        "condition scales and shifts the features); or none. mlp and r3gan have none.",
        choices=GENERATOR_NORMALIZATIONS,
    )
    generator_channels: str = _setting(
        "doubling",
        "Channels of the generator of dcgan or conv1d: doubling whenever the size is reduced, or "
        "constant.",
        choices=("doubling", "constant"),
    )
    critic_normalization: str = _setting(
        "none",
        "Normalization of the critic: none; layer (over all features of an example), group or "
        "instance; or spectral (of the weights).",
        choices=CRITIC_NORMALIZATIONS,
    )
    critic_pooling: str = _setting(
        "mean",
        "Pooling of the last features of resnet's critic at 32 pixels: mean (as in the paper) or "
        "sum (64 times as large). Other critics do not pool.",
        choices=("mean", "sum"),
    )
    attention: int = _setting(
        0,
        "Self-attention in both networks of resnet, as in SAGAN, at the feature maps whose shorter "
        "side has this many pixels: half of the image's, a quarter and so on, at least 8. 0: none.",
        minimum=0,
        maximum=1024,
    )
    minibatch_stddev: int = _setting(
        0,
        "Size of the groups of examples over which the critic computes the standard deviation, as "
        "a feature (4 in ProGAN). 0: no groups.",
        minimum=0,
        maximum=1024,
    )
    conditioning: str = _setting(
        "none",
        "Use of the dataset's labels or continuous conditions: none; acgan, in which the critic "
        "also classifies (labels only); projection, an inner product with the critic's features; "
        "or concatenation with the critic's input. Except with none, the generator takes them, "
        "too.",
        choices=CONDITIONINGS,
        common=True,
    )
    latent_size: int = _setting(
        64,
        "Length of a latent vector, drawn from N(0, I).",
        minimum=1,
        maximum=65_536,
    )
    precision: str = _setting(
        "float32",
        "Precision of convolutions and matrix products: float32 or mixed_bfloat16 "
        "(docs/performance.md).",
        choices=("float32", "mixed_bfloat16"),
    )

    def __post_init__(self):
        if self.critic_normalization == "batch":
            raise UserError(
                "--critic_normalization=batch makes each score depend on the whole batch, but the "
                "penalty is on each example's own gradient (arXiv:1704.00028, section 4)",
                "use layer, group or instance",
            )
        super().__post_init__()

    @property
    def group_size(self) -> int:
        """The number of consecutive examples whose scores depend on each other; 1 for none."""
        return max(1, self.minibatch_stddev)

    @property
    def critic_takes_labels(self) -> bool:
        """Is True if the critic takes labels or conditions as a second input."""
        return self.conditioning in ("projection", "concatenation")

    @property
    def design(self) -> dict[str, Any]:
        """The settings as arguments of `check` and `build` of a registry of networks."""
        names = sorted(field.name for field in dataclasses.fields(NetworkSettings))
        return {name: getattr(self, name) for name in names}
