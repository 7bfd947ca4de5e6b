"""What a pair of networks is built from."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """Every choice that a network can look at; each module says which it does.

    Attributes:
      example_shape: `(H, W, C)` for images in [-1, 1], `(D,)` for points.
      latent_size: length of a latent vector.
      width, generator_width: of the critic and of the generator: units of a hidden layer, or
        channels, as each module has it.
      depth: hidden layers of an mlp, blocks at each size of a resnet101.
      classes: of a conditional pair; 0: unconditional.
      conditioning: how labels enter the critic: "none", "acgan" or "projection", see heads.
      activation: "relu" (leaky where a module says so) or "tanh", of all hidden layers.
      generator_normalization: "batch" or "none".
      generator_channels: "doubling" at half the size, or "constant".
      critic_normalization: one of normalization.CRITIC_NORMALIZATIONS.
      critic_pooling: "mean" or "sum", of the critic's last features over all pixels.
      batch_norm_momentum: of the moments that normalization.BatchNormalization accumulates.
      sampling_statistics: "accumulated" or "batch", see normalization.BatchNormalization.
      fused_resampling, strides_by_blocks: see convolutions.
      precision: "float32" or "mixed_bfloat16": in which convolutions and matrix products
        are computed. Variables, normalisations and outputs are float32 either way.
    """

    example_shape: tuple[int, ...]
    latent_size: int
    width: int
    generator_width: int
    depth: int = 3
    classes: int = 0
    conditioning: str = "none"
    activation: str = "relu"
    generator_normalization: str = "batch"
    generator_channels: str = "doubling"
    critic_normalization: str = "none"
    critic_pooling: str = "mean"
    batch_norm_momentum: float = 0.99
    sampling_statistics: str = "accumulated"
    fused_resampling: bool = False
    strides_by_blocks: bool = False
    precision: str = "float32"
