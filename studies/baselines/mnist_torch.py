"""WGAN-GP with a DCGAN in PyTorch, as in its tutorials; needs `make setup-bench`.

The generator is that of PyTorch's DCGAN tutorial for 28 pixels: one layer less, which starts from
7x7 pixels. The critic has instance normalization in place of batch normalization. The settings are
those of algorithm 1 of arXiv:1704.00028, with a batch of 64.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import nn

from .turns import Turns, to_levels

LATENTS = 100
WIDTH = 64
BATCH = 64
CRITIC_STEPS = 5
PENALTY_WEIGHT = 10.0
SAMPLING_BATCH = 500


def make_generator() -> nn.Module:
    """Returns a generator of transposed convolutions, from 7x7 to 28x28."""
    return nn.Sequential(
        nn.ConvTranspose2d(LATENTS, 4 * WIDTH, 7, 1, 0, bias=False),
        nn.BatchNorm2d(4 * WIDTH),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * WIDTH, 2 * WIDTH, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * WIDTH),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * WIDTH, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def make_critic() -> nn.Module:
    """Returns a critic of convolutions, from 28x28 to 7x7 and a score."""
    return nn.Sequential(
        nn.Conv2d(1, WIDTH, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, 1, bias=False),
        nn.InstanceNorm2d(2 * WIDTH, affine=True),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * WIDTH, 1, 7, 1, 0),
        nn.Flatten(0),
    )


def initialize(module: nn.Module) -> None:
    """Initializes a layer as PyTorch's tutorial does."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, (nn.BatchNorm2d, nn.InstanceNorm2d)) and module.weight is not None:
        nn.init.normal_(module.weight, 1.0, 0.02)


class Model:
    """Both networks, their optimizers and steps; see `turns.Model`."""

    def __init__(self, folder: str, images: np.ndarray):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.manual_seed(0)
        self._images = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        self.generator, self.critic = (
            make().apply(initialize).to(memory_format=torch.channels_last)
            for make in (make_generator, make_critic)
        )
        self.optimizers = [
            torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.0, 0.9))
            for network in (self.generator, self.critic)
        ]
        self.iterations = 0
        self._path = os.path.join(folder, "state.pt")
        if os.path.exists(self._path):
            self._restore()

    def save(self) -> None:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        parts = [each.state_dict() for each in self._parts]
        torch.save((self.iterations, parts, torch.get_rng_state()), f"{self._path}.new")
        os.replace(f"{self._path}.new", self._path)

    def sample(self, count: int) -> np.ndarray:
        latents = torch.randn(count, LATENTS, 1, 1, generator=torch.Generator().manual_seed(0))
        self.generator.eval()
        with torch.no_grad():
            parts = [self.generator(each) for each in latents.split(SAMPLING_BATCH)]
        self.generator.train()
        return to_levels(torch.cat(parts).permute(0, 2, 3, 1).numpy())

    def train_step(self) -> None:
        """Trains one iteration on random images."""
        for _ in range(CRITIC_STEPS):
            rows = torch.randint(len(self._images), [BATCH])
            self._critic_step(self._images[rows].float() / 127.5 - 1)
        self._update(0, -self.critic(self.generator(self._latents())).mean())
        self.iterations += 1

    def _critic_step(self, real: torch.Tensor) -> None:
        with torch.no_grad():
            fake = self.generator(self._latents())
        points = (real + torch.rand(BATCH, 1, 1, 1) * (fake - real)).requires_grad_()
        (gradients,) = torch.autograd.grad(self.critic(points).sum(), points, create_graph=True)
        penalty = (gradients.flatten(1).norm(dim=1) - 1.0).square().mean()
        loss = self.critic(fake).mean() - self.critic(real).mean() + PENALTY_WEIGHT * penalty
        self._update(1, loss)

    def _latents(self) -> torch.Tensor:
        return torch.randn(BATCH, LATENTS, 1, 1)

    def _update(self, index: int, loss: torch.Tensor) -> None:
        self.optimizers[index].zero_grad()
        loss.backward()
        self.optimizers[index].step()

    @property
    def _parts(self) -> list:
        return [self.generator, self.critic, *self.optimizers]

    def _restore(self) -> None:
        self.iterations, states, random = torch.load(self._path)
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)
        torch.set_rng_state(random)


def train(turns: Turns, folder: str, data: str) -> None:
    """Trains until there are no more turns."""
    model = Model(folder, np.load(os.path.join(data, "images.npy")))
    while turns.wait(model, model.iterations):
        model.train_step()
