"""WGAN-GP as it is usually written in PyTorch, to compare with; needs `make setup-bench`.

The networks of `models/`, of torch.nn's own layers under the same names. With padding of 2 a
strided 5x5 convolution of PyTorch looks a pixel further back than one of TensorFlow; it is the same
function of images turned by 180 degrees, with kernels so turned. So the DCGAN here trains on turned
images, and nothing is padded by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from .start import Start, Weights
from .work import Work


class Trainer:
    """See start.Trainer."""

    def __init__(self, work: Work, path: str, *, compiled: bool):
        self._start = Start.read(path)
        self._gan = WGANGP(work, compiled=compiled)
        self._gan.set_weights(self._start.generator, self._start.critic)
        self._real = [self._gan.images(each) for each in self._start.real]

    def replay(self) -> list[tuple[float, float]]:
        start, gan = self._start, self._gan
        losses = []
        for *noise, latents in zip(
            *map(torch.from_numpy, (start.latents, start.alpha, start.generator_latents)),
            strict=True,
        ):
            critic = [
                float(gan.critic_step(*each)) for each in zip(self._real, *noise, strict=True)
            ]
            losses.append((sum(critic) / len(critic), float(gan.generator_step(latents))))
        return losses

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            self._gan.train_step(self._real)


class Upwards(nn.ConvTranspose2d):
    """To twice the pixels; to 7 of the 8 where that is the size."""

    def __init__(self, inputs: int, outputs: int, size: int, *, bias: bool):
        super().__init__(inputs, outputs, 5, stride=2, padding=2, output_padding=1, bias=bias)
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[:, :, -self.size :, -self.size :]


class DcganGenerator(nn.Module):
    """Strided transposed convolutions from 4x4 pixels on."""

    def __init__(self, work: Work):
        super().__init__()
        sizes = work.halvings
        filters = [work.width * 2**index for index in range(len(sizes) - 1)]
        self.base = filters[-1]
        self.dense = nn.Linear(work.latent_size, 4 * 4 * self.base)
        self.normalization_0 = batch_norm(self.base)
        self.blocks = range(1, len(sizes) - 1)
        for number, size in enumerate(sizes[-2:0:-1], start=1):
            outputs = filters[-1 - number]
            self.add_module(f"conv_{number}", Upwards(2 * outputs, outputs, size, bias=False))
            self.add_module(f"normalization_{number}", batch_norm(outputs))
        self.image = Upwards(work.width, work.channels, sizes[0], bias=True)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        x = self.dense(latents).view(-1, self.base, 4, 4)
        x = torch.relu(self.normalization_0(x))
        for number in self.blocks:
            x = getattr(self, f"conv_{number}")(x)
            x = torch.relu(getattr(self, f"normalization_{number}")(x))
        return torch.tanh(self.image(x))


class DcganCritic(nn.Module):
    """Strided convolutions to 4x4 pixels."""

    def __init__(self, work: Work):
        super().__init__()
        inputs, self.depth = work.channels, len(work.halvings) - 1
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
    """Doubles the size."""

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
    """Three blocks that double the size, from 4x4 pixels on."""

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
    """Halves the size of images."""

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv_2 = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, width, 1)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.pool(self.conv_2(torch.relu(self.conv_1(x))))
        return h + self.shortcut(self.pool(x))


class Block(nn.Module):
    """Keeps the size, or halves it."""

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
    """Two blocks that halve the size, two that do not, a mean over the pixels."""

    def __init__(self, work: Work):
        super().__init__()
        self.down_1 = FirstBlock(work.channels, work.width)
        self.down_2 = Block(work.width, down=True)
        self.block_3, self.block_4 = (Block(work.width, down=False) for _ in range(2))
        self.score = nn.Linear(work.width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block_4(self.block_3(self.down_2(self.down_1(x))))
        return self.score(torch.relu(x).mean(dim=(2, 3)))


def batch_norm(channels: int) -> nn.Module:
    """PyTorch's own; its momentum is of the new, Keras's of the old."""
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.01)


class WGANGP:
    """Both networks, and how they are trained.

    With `compiled`, each loss is a torch.compile of its own, penalty and all. torch.autograd.grad
    cannot be compiled inside a loss that is differentiated itself; torch.func.grad can.
    """

    def __init__(self, work: Work, *, compiled: bool):
        self.work = work
        networks: dict[str, tuple[Callable[..., nn.Module], Callable[..., nn.Module]]] = {
            "dcgan": (DcganGenerator, DcganCritic),
            "resnet": (ResnetGenerator, ResnetCritic),
        }
        # On CPUs, too, PyTorch's convolutions are the faster for it.
        self.generator, self.critic = (
            network(work).to(memory_format=torch.channels_last) for network in networks[work.model]
        )
        self.generator_optimizer, self.critic_optimizer = (
            torch.optim.Adam(
                network.parameters(), work.learning_rate, (work.beta_1, work.beta_2), eps=1e-8
            )
            for network in (self.generator, self.critic)
        )
        self.gradient = functional_gradient if compiled else taped_gradient
        optimized: Callable = torch.compile if compiled else lambda function: function
        self.draw = optimized(self.generator)
        self.critic_loss = optimized(self._critic_loss)
        self.generator_loss = optimized(
            lambda latents: -self.critic(self.generator(latents)).mean()
        )

    def _critic_loss(
        self, real: torch.Tensor, fake: torch.Tensor, alpha: torch.Tensor
    ) -> torch.Tensor:
        between = real + alpha[:, None, None, None] * (fake - real)
        norm = self.gradient(self.critic, between).flatten(1).norm(dim=1)
        loss = self.critic(fake).mean() - self.critic(real).mean()
        return loss + 10.0 * (norm - 1.0).square().mean()

    def critic_step(
        self, real: torch.Tensor, latents: torch.Tensor, alpha: torch.Tensor
    ) -> torch.Tensor:
        """An update of the critic; its loss before it."""
        with torch.no_grad():
            fake = self.draw(latents)
        self.critic_optimizer.zero_grad()
        loss = self.critic_loss(real, fake, alpha)
        loss.backward()
        self.critic_optimizer.step()
        return loss.detach()

    def generator_step(self, latents: torch.Tensor) -> torch.Tensor:
        """An update of the generator; its loss before it."""
        self.critic.requires_grad_(False)
        self.generator_optimizer.zero_grad()
        loss = self.generator_loss(latents)
        loss.backward()
        self.generator_optimizer.step()
        self.critic.requires_grad_(True)
        return loss.detach()

    def train_step(self, reals: Sequence[torch.Tensor]) -> None:
        """An iteration; real examples for each critic step."""
        work = self.work
        for real in reals:
            latents = torch.randn(work.batch_size, work.latent_size)
            self.critic_step(real, latents, torch.rand(work.batch_size))
        self.generator_step(torch.randn(work.generator_batch_size, work.latent_size))

    def images(self, images: np.ndarray) -> torch.Tensor:
        """`[B, H, W, C]` as these networks take them."""
        turned = images[:, ::-1, ::-1] if self.work.model == "dcgan" else images
        tensor = torch.from_numpy(turned.transpose(0, 3, 1, 2).copy())
        return tensor.contiguous(memory_format=torch.channels_last)

    def set_weights(self, generator: Weights, critic: Weights) -> None:
        """Sets the weights of each layer, by Keras's names and in Keras's order of dimensions."""
        for network, weights in ((self.generator, generator), (self.critic, critic)):
            for path, module in network.named_modules():
                name = path.replace(".", "_")
                if name in weights:
                    state = self._in_order(name, *weights[name])
                    tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in state]
                    own = [*module.parameters(), *module.buffers()]
                    for tensor, value in zip(own, tensors, strict=False):  # but for a counter
                        tensor.data.copy_(value)

    def _in_order(self, name: str, first: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
        """A layer's weights with their dimensions as PyTorch has them."""
        turned = self.work.model == "dcgan"
        if first.ndim == 4:
            first = first[::-1, ::-1] if turned else first
            return [first.transpose(3, 2, 0, 1), *rest]
        if name in ("dense", "linear"):  # to 4x4 pixels
            kernel, bias = (pixels_last(each.T, turned=turned) for each in (first, *rest))
            return [kernel, bias]
        if name == "score" and turned:  # from 4x4 pixels
            return [pixels_last(first, turned=turned).T, *rest]
        return [first.T, *rest]


def pixels_last(values: np.ndarray, *, turned: bool) -> np.ndarray:
    """`[4 * 4 * C, ...]` as `[C * 4 * 4, ...]`, turned by 180 degrees if asked."""
    cells = values.reshape(4, 4, -1, *values.shape[1:])
    return np.moveaxis(cells[::-1, ::-1] if turned else cells, 2, 0).reshape(values.shape)


def taped_gradient(critic: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Of the scores; to be differentiated once more."""
    points.requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
    return gradient


def functional_gradient(critic: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """The same for torch.compile."""
    return torch.func.grad(lambda examples: critic(examples).sum())(points)
