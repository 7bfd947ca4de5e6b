"""WGAN-GP as it is usually written with PyTorch; needs `make setup-bench`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from .initial_state import InitialState, Weights
from .pytorch_networks import DcganCritic, DcganGenerator, ResnetCritic, ResnetGenerator
from .work import Work


class Trainer:
    """PyTorch modules as an `initial_state.Trainer`.

    Args:
      work: The workload.
      path: The file of the initial state.
      compiled: True to use torch.compile.
    """

    def __init__(self, work: Work, path: str, *, compiled: bool):
        self._initial = InitialState.read(path)
        self._gan = WGANGP(work, compiled=compiled)
        self._gan.set_weights(self._initial.generator, self._initial.critic)
        self._real = [self._gan.images(each) for each in self._initial.real]

    def replay(self) -> list[tuple[float, float]]:
        initial, gan = self._initial, self._gan
        losses = []
        for *noise, latents in zip(
            *map(torch.from_numpy, (initial.latents, initial.alpha, initial.generator_latents)),
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


class Gan:
    """A generator and a critic with their training step; the subclasses define the losses.

    Args:
      work: The workload.
      generator, critic: The networks.
      compiled: True to compile each loss with torch.compile.
    """

    def __init__(self, work: Work, generator: nn.Module, critic: nn.Module, *, compiled: bool):
        self.work = work
        # PyTorch's convolutions are faster in this format, also on CPUs.
        self.generator, self.critic = (
            network.to(memory_format=torch.channels_last) for network in (generator, critic)
        )
        self.generator_optimizer, self.critic_optimizer = (
            torch.optim.Adam(
                network.parameters(), work.learning_rate, (work.beta_1, work.beta_2), eps=1e-8
            )
            for network in (self.generator, self.critic)
        )
        optimize: Callable = torch.compile if compiled else lambda function: function
        self.generate = optimize(self.generator)
        self.critic_loss = optimize(self._critic_loss)
        self.generator_loss = optimize(self._generator_loss)

    def _critic_loss(self, *inputs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _generator_loss(self, *inputs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def critic_step(
        self, real: torch.Tensor, latents: torch.Tensor, *inputs: torch.Tensor
    ) -> torch.Tensor:
        """Updates the critic; returns its loss before the update."""
        with torch.no_grad():
            fake = self.generate(latents)
        self.critic_optimizer.zero_grad()
        loss = self.critic_loss(real, fake, *inputs)
        loss.backward()
        self.critic_optimizer.step()
        return loss.detach()

    def generator_step(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Updates the generator; returns its loss before the update."""
        self.critic.requires_grad_(False)
        self.generator_optimizer.zero_grad()
        loss = self.generator_loss(*inputs)
        loss.backward()
        self.generator_optimizer.step()
        self.critic.requires_grad_(True)
        return loss.detach()

    def train_step(self, reals: Sequence[torch.Tensor]) -> None:
        """Trains one iteration on the real examples of each critic step."""
        raise NotImplementedError

    def images(self, images: np.ndarray) -> torch.Tensor:
        """Converts images `[B, H, W, C]` to the format of these networks."""
        rotated = images[:, ::-1, ::-1] if self.work.model == "dcgan" else images
        tensor = torch.from_numpy(rotated.transpose(0, 3, 1, 2).copy())
        return tensor.contiguous(memory_format=torch.channels_last)

    def set_weights(self, generator: Weights, critic: Weights) -> None:
        """Sets the weights of each layer from Keras's names and order of dimensions."""
        for network, weights in ((self.generator, generator), (self.critic, critic)):
            for path, module in network.named_modules():
                name = path.replace(".", "_")
                if weights.get(name):
                    state = self._from_keras(name, *weights[name])
                    tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in state]
                    targets = [*module.parameters(), *module.buffers()]
                    # Not strict: the last buffer of batch-norm is a counter.
                    for tensor, value in zip(targets, tensors, strict=False):
                        tensor.data.copy_(value)

    def _from_keras(self, name: str, first: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
        """Converts a layer's weights to PyTorch's order of dimensions."""
        rotated = self.work.model == "dcgan"
        if first.ndim == 4:
            first = first[::-1, ::-1] if rotated else first
            return [first.transpose(3, 2, 0, 1), *rest]
        if first.ndim == 3:  # a basis
            return [first.transpose(2, 0, 1)]
        if name in ("dense", "linear"):  # its outputs are 4x4 pixels
            kernel, bias = (pixels_last(each.T, rotated=rotated) for each in (first, *rest))
            return [kernel, bias]
        if name == "score" and rotated:  # its inputs are 4x4 pixels
            return [pixels_last(first, rotated=rotated).T, *rest]
        return [first.T, *rest]


class WGANGP(Gan):
    """A generator and a critic with the loss of WGAN-GP.

    Args:
      work: The workload.
      compiled: True to compile each loss, including the penalty, with torch.compile. It cannot
        compile torch.autograd.grad inside a loss that is itself differentiated, so torch.func.grad
        replaces it.
    """

    def __init__(self, work: Work, *, compiled: bool):
        networks: dict[str, tuple[Callable[..., nn.Module], Callable[..., nn.Module]]] = {
            "dcgan": (DcganGenerator, DcganCritic),
            "resnet": (ResnetGenerator, ResnetCritic),
        }
        generator, critic = (network(work) for network in networks[work.model])
        super().__init__(work, generator, critic, compiled=compiled)
        self.gradient = functional_gradient if compiled else autograd_gradient

    def _critic_loss(
        self, real: torch.Tensor, fake: torch.Tensor, alpha: torch.Tensor
    ) -> torch.Tensor:
        points = real + alpha[:, None, None, None] * (fake - real)
        norm = self.gradient(self.critic, points).flatten(1).norm(dim=1)
        loss = self.critic(fake).mean() - self.critic(real).mean()
        return loss + 10.0 * (norm - 1.0).square().mean()

    def _generator_loss(self, latents: torch.Tensor) -> torch.Tensor:
        return -self.critic(self.generator(latents)).mean()

    def train_step(self, reals: Sequence[torch.Tensor]) -> None:
        work = self.work
        for real in reals:
            latents = torch.randn(work.batch_size, work.latent_size)
            self.critic_step(real, latents, torch.rand(work.batch_size))
        self.generator_step(torch.randn(work.generator_batch_size, work.latent_size))


def pixels_last(values: np.ndarray, *, rotated: bool) -> np.ndarray:
    """Converts `[4 * 4 * C, ...]` to `[C * 4 * 4, ...]`; rotates by 180 degrees if `rotated`."""
    cells = values.reshape(4, 4, -1, *values.shape[1:])
    return np.moveaxis(cells[::-1, ::-1] if rotated else cells, 2, 0).reshape(values.shape)


def autograd_gradient(critic: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Computes the gradient of the scores, which can be differentiated again."""
    points.requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
    return gradient


def functional_gradient(critic: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Computes the gradient of the scores in a form that torch.compile supports."""
    return torch.func.grad(lambda examples: critic(examples).sum())(points)
