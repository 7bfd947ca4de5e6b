"""R3GAN (Huang et al. 2024, arXiv:2501.05441) as it is usually written with PyTorch.

The networks are those of models/r3gan.py, with the same names. Their initial weights are PyTorch's,
because only speed is measured; `R3GAN.set_weights` replaces them.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from .pytorch import Gan
from .work import Work

LEAK = 0.2
GROUP_SIZE = 16
DEPTH = 2  # blocks at each size, the default of --model_depth
PENALTY_WEIGHT = 10.0  # of both penalties, the default of --penalty_weight


class Block(nn.Module):
    """A residual block with a grouped convolution, `[B, C, H, W]` -> `[B, C, H, W]`."""

    def __init__(self, channels: int):
        super().__init__()
        expanded = 2 * channels
        groups = expanded // math.gcd(expanded, GROUP_SIZE)
        self.conv_1 = nn.Conv2d(channels, expanded, 1)
        self.conv_2 = nn.Conv2d(expanded, expanded, 3, padding=1, groups=groups)
        self.conv_3 = nn.Conv2d(expanded, channels, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.leaky_relu(self.conv_1(x), LEAK)
        h = functional.leaky_relu(self.conv_2(h), LEAK)
        return x + self.conv_3(h)


class Up(nn.Conv2d):
    """A 1x1 convolution and an upsampling, in the order that takes less work."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(super().forward(x), scale_factor=2)


class Down(nn.Conv2d):
    """Mean pooling and a 1x1 convolution, in the order that takes less work."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(functional.avg_pool2d(x, 2))


class Basis(nn.Module):
    """A learned value for each channel and each of the 4x4 pixels."""

    def __init__(self, channels: int):
        super().__init__()
        self.basis = nn.Parameter(torch.randn(channels, 4, 4))


class GenerativeBasis(Basis):
    """The basis times the scale of each channel, `[B, C]` -> `[B, C, 4, 4]`."""

    def forward(self, scales: torch.Tensor) -> torch.Tensor:
        return scales[:, :, None, None] * self.basis


class DiscriminativeBasis(Basis):
    """The sum over pixels, weighted by the basis, `[B, C, 4, 4]` -> `[B, C]`."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return (features * self.basis).sum(dim=(2, 3))


def generator(work: Work) -> nn.Module:
    """Returns the generator, `[B, latent_size]` -> `[B, C, H, W]`."""
    channels = channels_by_size(work)[::-1]
    layers: dict[str, nn.Module] = {
        "scales": nn.Linear(work.latent_size, channels[0], bias=False),
        "basis": GenerativeBasis(channels[0]),
    }
    for index, filters in enumerate(channels):
        if index:
            layers[f"up_{index}"] = Up(channels[index - 1], filters)
        layers[f"stage_{index}"] = stage(filters)
    layers["image"] = nn.Conv2d(channels[-1], work.channels, 1, bias=False)
    layers["tanh"] = nn.Tanh()
    return nn.Sequential(collections.OrderedDict(layers))


def critic(work: Work) -> nn.Module:
    """Returns the critic, `[B, C, H, W]` -> `[B, 1]`."""
    channels = channels_by_size(work)
    layers: dict[str, nn.Module] = {
        "from_image": nn.Conv2d(work.channels, channels[0], 1, bias=False)
    }
    for index, filters in enumerate(channels):
        if index:
            layers[f"down_{index}"] = Down(channels[index - 1], filters)
        layers[f"stage_{index}"] = stage(filters)
    layers["basis"] = DiscriminativeBasis(channels[-1])
    layers["score"] = nn.Linear(channels[-1], 1)
    return nn.Sequential(collections.OrderedDict(layers))


def channels_by_size(work: Work) -> list[int]:
    """Returns the number of channels at full size, at half of it, and so on."""
    sizes = (work.image_size // 4).bit_length()
    return [work.width * min(8, 2**index) for index in range(sizes)]


def stage(channels: int) -> nn.Module:
    """Returns the blocks at one size."""
    blocks = {f"block_{number}": Block(channels) for number in range(1, DEPTH + 1)}
    return nn.Sequential(collections.OrderedDict(blocks))


class R3GAN(Gan):
    """A generator and a critic with the relativistic loss and the penalties R1 and R2.

    The penalties differentiate the scores that the loss uses, so that the critic is applied once to
    real examples and once to samples.

    Args:
      work: The workload.
      compiled: True to compile each loss, including the penalties, with torch.compile; see
        `WGANGP`.
    """

    def __init__(self, work: Work, *, compiled: bool):
        super().__init__(work, generator(work), critic(work), compiled=compiled)
        self.score = functional_scores if compiled else autograd_scores

    def critic_terms(
        self, real: torch.Tensor, fake: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the loss of the critic and the means of R1 and R2."""
        real_scores, real_gradient = self.score(self.critic, real)
        fake_scores, fake_gradient = self.score(self.critic, fake)
        r1, r2 = (
            gradient.square().sum(dim=(1, 2, 3)).mean()
            for gradient in (real_gradient, fake_gradient)
        )
        adversarial = functional.softplus(fake_scores - real_scores).mean()
        return adversarial + PENALTY_WEIGHT * (r1 + r2), r1, r2

    def _critic_loss(self, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        return self.critic_terms(real, fake)[0]

    def _generator_loss(self, real: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        fake_scores = self.critic(self.generator(latents))
        return functional.softplus(self.critic(real) - fake_scores).mean()

    def train_step(self, reals: Sequence[torch.Tensor]) -> None:
        work = self.work
        for real in reals:
            self.critic_step(real, torch.randn(work.batch_size, work.latent_size))
        latents = torch.randn(work.generator_batch_size, work.latent_size)
        self.generator_step(reals[-1], latents)


def autograd_scores(network: nn.Module, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the scores of points and their gradient, which can be differentiated again."""
    points = points.detach().requires_grad_(True)
    scores = network(points)
    (gradient,) = torch.autograd.grad(scores.sum(), points, create_graph=True)
    return scores, gradient


def functional_scores(
    network: nn.Module, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the results of `autograd_scores` in a form that torch.compile supports."""

    def total(examples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = network(examples)
        return scores.sum(), scores

    gradient, scores = torch.func.grad(total, has_aux=True)(points)
    return scores, gradient
