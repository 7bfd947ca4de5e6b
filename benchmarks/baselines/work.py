"""The networks, batches and optimizer for which implementations are compared."""

from __future__ import annotations

import dataclasses

from wgan_gp.config import Config


@dataclasses.dataclass(frozen=True)
class Work:
    """A training workload: networks, batches and an optimizer.

    Attributes:
      model: "dcgan" for the networks of Gulrajani et al. for MNIST, also at larger sizes; "resnet"
        for their CIFAR-10 networks; "r3gan" for those of Huang et al. at 32 pixels or more.
      image_size: The height and width of an image.
      channels: The number of channels of an image.
      width: The base number of channels of the networks; see models/.
      batch_size: The number of real examples in a critic step.
      generator_batch_size: The number of samples in a generator step.
      n_critic: The number of critic steps per iteration.
      latent_size: The length of a latent vector.
      learning_rate: Adam's learning rate, for both networks.
      beta_1: Adam's decay of the first moment.
      beta_2: Adam's decay of the second moment.
      cpu_replicas: The number of logical devices; only this project supports more than one.
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
        """The title of a table of results."""
        return f"{self.model}, {self.image_size} pixels"

    @property
    def example_shape(self) -> tuple[int, int, int]:
        """The shape `(H, W, C)` of an image."""
        return self.image_size, self.image_size, self.channels

    @property
    def feature_sizes(self) -> list[int]:
        """The sizes of a DCGAN's feature maps, from the image to 4x4 pixels."""
        sizes = [self.image_size]
        while sizes[-1] > 4:
            sizes.append(-(-sizes[-1] // 2))
        return sizes

    @property
    def config(self) -> Config:
        """This project's configuration for the workload."""
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


# The DCGAN has its published width, the ResNet a fourth of it.
DCGAN = Work("dcgan", 28, 1, 64, batch_size=64, generator_batch_size=64)
RESNET = Work("resnet", 32, 3, 32, batch_size=64, generator_batch_size=128)
BOTH = (DCGAN, RESNET)
