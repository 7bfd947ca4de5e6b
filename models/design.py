"""The specification of a generator and a critic, and the error for one that cannot be built."""

import dataclasses

CONDITIONINGS = ("none", "acgan", "projection", "concatenation")
# Values of Design.conditioning whose critic takes labels or conditions.
LABELED_CRITICS = ("projection", "concatenation")
GENERATOR_NORMALIZATIONS = ("batch", "film", "none")
CRITIC_NORMALIZATIONS = ("none", "layer", "group", "instance", "spectral")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """All settings of a generator and a critic; each network uses those that apply to it.

    Attributes:
      example_shape: `(D, H, W, C)` for volumes, `(H, W, C)` for images, `(T, C)` for signals,
        `(D,)` for points.
      latent_size: Length of a latent vector, with the noise of one-hot groups at its end.
      model_width: Width of the critic: units of a hidden layer, or the number of channels that the
        module of the network specifies.
      generator_width: Width of the generator, likewise.
      model_depth: Number of hidden layers of an mlp, or of blocks at each size of an r3gan.
      bounded: Whether the examples lie in [-1, 1]. If so, the generator of volumes, images or
        signals ends in tanh, otherwise in a linear layer. A generator of points always ends in a
        linear layer.
      one_hot: For a typed table, the groups of features of which one is 1 and the others are 0, as
        pairs of the first one and their number; see one_hot.
      masked: Pairs of a feature that is 0 unless another one is 1, and that other one.
      label_features: For each label of a typed table, the feature that is 1 for it.
      classes: Number of classes; 0 for networks without labels.
      condition_size: Length K of the conditions `[B, K]` float32 in the place of labels; 0 for
        networks without conditions. Excludes `classes`.
      conditioning: How labels or conditions enter the critic, one of CONDITIONINGS; see heads.
      activation: Activation of all hidden layers, "relu" (leaky in the critic of a dcgan, and in
        both networks of an r3gan) or "tanh".
      generator_normalization: One of GENERATOR_NORMALIZATIONS; see normalization.
      attention: Shorter side, in pixels, of the feature maps of a resnet with self-attention, in
        both networks; 0 for none. See attention.
      generator_channels: "doubling" for twice the channels at half the size, or "constant".
      critic_normalization: One of CRITIC_NORMALIZATIONS; see normalization.
      critic_pooling: Reduction of the critic's last features over all pixels, "mean" or "sum".
      minibatch_stddev: Number of examples over which the critic computes the standard deviation,
        see minibatch.MinibatchStdDev; 0 for none.
      fused_resampling: Whether to use this form, see convolutions.
      precision: Precision of convolutions and matrix products, "float32" or "mixed_bfloat16".
        Variables, normalization and outputs are float32 in either case.
    """

    example_shape: tuple[int, ...]
    latent_size: int
    model_width: int
    generator_width: int
    model_depth: int = 3
    bounded: bool = True
    one_hot: tuple[tuple[int, int], ...] = ()
    masked: tuple[tuple[int, int], ...] = ()
    label_features: tuple[int, ...] = ()
    classes: int = 0
    condition_size: int = 0
    conditioning: str = "none"
    activation: str = "relu"
    generator_normalization: str = "batch"
    attention: int = 0
    generator_channels: str = "doubling"
    critic_normalization: str = "none"
    critic_pooling: str = "mean"
    minibatch_stddev: int = 0
    fused_resampling: bool = False
    precision: str = "float32"

    @property
    def noise_size(self) -> int:
        """Number of the last latents that are the noise of one-hot groups."""
        return sum(count for _, count in self.one_hot)


class DesignError(ValueError):
    """Settings of networks that cannot be built.

    The message names parameters of `Registry.build` as the flags of the same names.

    Attributes:
      what: What is wrong.
      remedy: What to do about it.
    """

    def __init__(self, what: str, remedy: str):
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} — {self.remedy}"
