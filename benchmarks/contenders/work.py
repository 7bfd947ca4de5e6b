"""What is trained where ways to train it are compared: the same work for all of them."""

from __future__ import annotations

import dataclasses

from wgan_gp.config import Config


@dataclasses.dataclass(frozen=True)
class Work:
    """Networks, batches and an optimizer.

    Attributes:
      model: "dcgan", Gulrajani et al.'s for MNIST or larger; or "resnet", theirs for CIFAR-10.
      width: channels, see models/.
      cpu_replicas: logical devices to share it; only this project takes several.
    """

    model: str
    image_size: int
    channels: int
    width: int
    batch_size: int
    generator_batch_size: int
    n_critic: int = 5
    latent_size: int = 128
    learning_rate: float = 1e-4
    beta_1: float = 0.0
    beta_2: float = 0.9
    cpu_replicas: int = 1

    @property
    def title(self) -> str:
        """Of a table."""
        return f"{self.model}, {self.image_size} pixels"

    @property
    def example_shape(self) -> tuple[int, int, int]:
        """Of an image."""
        return self.image_size, self.image_size, self.channels

    @property
    def halvings(self) -> list[int]:
        """Sizes of a DCGAN's layers."""
        sizes = [self.image_size]
        while sizes[-1] > 4:
            sizes.append(-(-sizes[-1] // 2))
        return sizes

    @property
    def config(self) -> Config:
        """The same in this project's words."""
        return Config(
            dataset="mnist" if self.channels == 1 else "cifar10",
            model=self.model,
            generator_model=self.model,
            image_size=self.image_size,
            model_width=self.width,
            generator_width=self.width,
            batch_size=self.batch_size,
            generator_batch_size=self.generator_batch_size,
            n_critic=self.n_critic,
            latent_size=self.latent_size,
            critic_learning_rate=self.learning_rate,
            generator_learning_rate=self.learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            cpu_replicas=self.cpu_replicas,
        )


# The two that are compared: the first as published, the second at a fourth of its width.
DCGAN = Work("dcgan", 28, 1, 64, batch_size=64, generator_batch_size=64)
RESNET = Work("resnet", 32, 3, 32, batch_size=64, generator_batch_size=128)
BOTH = (DCGAN, RESNET)
