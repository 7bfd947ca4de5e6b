"""The networks of `models/`, built from PyTorch's layers with the same names.

With a padding of 2, a strided 5x5 convolution of PyTorch starts one pixel earlier than that of
TensorFlow. It computes the same function of images rotated by 180 degrees if its kernels are
rotated, too. The DCGAN therefore trains on rotated images, and needs no explicit padding.
"""

from __future__ import annotations

import torch
from torch import nn

from .work import Work


class Upsampling(nn.ConvTranspose2d):
    """A transposed convolution that doubles the size, cropped from 8 to 7 pixels if required."""

    def __init__(self, inputs: int, outputs: int, size: int, *, bias: bool):
        super().__init__(inputs, outputs, 5, stride=2, padding=2, output_padding=1, bias=bias)
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[:, :, -self.size :, -self.size :]


class DcganGenerator(nn.Module):
    """A generator of strided transposed convolutions, which starts from 4x4 pixels."""

    def __init__(self, work: Work):
        super().__init__()
        sizes = work.feature_sizes
        filters = [work.width * 2**index for index in range(len(sizes) - 1)]
        self.base = filters[-1]
        self.dense = nn.Linear(work.latent_size, 4 * 4 * self.base)
        self.normalization_0 = batch_norm(self.base)
        self.blocks = range(1, len(sizes) - 1)
        for number, size in enumerate(sizes[-2:0:-1], start=1):
            outputs = filters[-1 - number]
            self.add_module(f"conv_{number}", Upsampling(2 * outputs, outputs, size, bias=False))
            self.add_module(f"normalization_{number}", batch_norm(outputs))
        self.image = Upsampling(work.width, work.channels, sizes[0], bias=True)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        x = self.dense(latents).view(-1, self.base, 4, 4)
        x = torch.relu(self.normalization_0(x))
        for number in self.blocks:
            x = getattr(self, f"conv_{number}")(x)
            x = torch.relu(getattr(self, f"normalization_{number}")(x))
        return torch.tanh(self.image(x))


class DcganCritic(nn.Module):
    """A critic of strided convolutions, which reduce images to 4x4 pixels."""

    def __init__(self, work: Work):
        super().__init__()
        inputs, self.depth = work.channels, len(work.feature_sizes) - 1
        for index in range(self.depth):
            outputs = work.width * 2**index
            conv = nn.Conv2d(inputs, outputs, 5, stride=2, padding=2)
            self.add_module(f"conv_{index + 1}", conv)
            inputs = outputs
        self.score = nn.Linear(4 * 4 * inputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(1, self.depth + 1):
            x = nn.functional.leaky_relu(getattr(self, f"conv_{number}")(x), 0.2)
        return self.score(x.flatten(1))


class UpBlock(nn.Module):
    """A residual block that doubles the size."""

    def __init__(self, width: int):
        super().__init__()
        self.norm_1, self.norm_2 = batch_norm(width), batch_norm(width)
        self.conv_1, self.conv_2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.shortcut = nn.Conv2d(width, width, 1)
        self.upsample = nn.Upsample(scale_factor=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv_1(self.upsample(torch.relu(self.norm_1(x))))
        h = self.conv_2(torch.relu(self.norm_2(h)))
        return h + self.shortcut(self.upsample(x))


class ResnetGenerator(nn.Module):
    """A generator of three blocks that double the size, which starts from 4x4 pixels."""

    def __init__(self, work: Work):
        super().__init__()
        self.base = work.width
        self.linear = nn.Linear(work.latent_size, 4 * 4 * work.width)
        self.up_1, self.up_2, self.up_3 = (UpBlock(work.width) for _ in range(3))
        self.normalization = batch_norm(work.width)
        self.image = nn.Conv2d(work.width, work.channels, 3, padding=1)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        x = self.linear(latents).view(-1, self.base, 4, 4)
        x = self.up_3(self.up_2(self.up_1(x)))
        return torch.tanh(self.image(torch.relu(self.normalization(x))))


class FirstBlock(nn.Module):
    """The first residual block of the critic, which halves the size of images."""

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv_2 = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, width, 1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.pool(self.conv_2(torch.relu(self.conv_1(x))))
        return h + self.shortcut(self.pool(x))


class ResidualBlock(nn.Module):
    """A residual block that keeps or halves the size."""

    def __init__(self, width: int, *, down: bool):
        super().__init__()
        self.conv_1, self.conv_2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.down = down
        if down:
            self.shortcut, self.pool = nn.Conv2d(width, width, 1), nn.AvgPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv_2(torch.relu(self.conv_1(torch.relu(x))))
        return self.pool(h) + self.pool(self.shortcut(x)) if self.down else h + x


class ResnetCritic(nn.Module):
    """A critic of two blocks that halve the size, two that keep it, and a mean over pixels."""

    def __init__(self, work: Work):
        super().__init__()
        self.down_1 = FirstBlock(work.channels, work.width)
        self.down_2 = ResidualBlock(work.width, down=True)
        self.block_3, self.block_4 = (ResidualBlock(work.width, down=False) for _ in range(2))
        self.score = nn.Linear(work.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block_4(self.block_3(self.down_2(self.down_1(x))))
        return self.score(torch.relu(x).mean(dim=(2, 3)))


def batch_norm(channels: int) -> nn.Module:
    """Returns PyTorch's batch-norm; its momentum is 1 minus the momentum of Keras."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.01)
