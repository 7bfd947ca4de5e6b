"""Compares R3GAN in PyTorch with this project's, on the CPU with the same weights."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import torch

import losses
import models

from .pytorch_r3gan import PENALTY_WEIGHT, R3GAN
from .work import Work

# Two widths, because groups of channels do not fit into blocks of 128 in the same way.
WORKS = [
    Work("r3gan", 32, 3, width, batch_size=4, generator_batch_size=4, n_critic=1)
    for width in (8, 24)
]
TOLERANCE = 1e-4  # relative to the largest number of a result


def check() -> None:
    """Compares results of both networks, the loss, the penalties and their gradients.

    Raises:
      RuntimeError: If a result differs by more than TOLERANCE.
    """
    for work in WORKS:
        compare(work, compiled=False)
    compare(WORKS[0], compiled=True)


def compare(work: Work, *, compiled: bool) -> None:
    """Prints the differences for a workload, and raises the error of `check`.

    Args:
      work: The workload.
      compiled: True to check the losses that torch.compile compiles.
    """
    kind = "torch.compile" if compiled else "eager"
    ours, theirs = results_of_both(work, compiled=compiled)
    for name, expected in ours.items():
        difference = float(np.abs(theirs[name] - expected).max() / np.abs(expected).max())
        print(f"width {work.width}, {kind}, {name}: differs by {difference:.1e}", flush=True)
        if not difference < TOLERANCE:
            raise RuntimeError(
                f"PyTorch's {name} differs: compare its networks with models/r3gan.py"
            )


def results_of_both(
    work: Work, *, compiled: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns the results of this project and of PyTorch, by name."""
    random = np.random.default_rng(0)
    networks = models.build("r3gan", work.example_shape, work.latent_size, work.width)
    for weight in networks[0].trainable_variables + networks[1].trainable_variables:
        # Residual branches and biases are initially zero, which would hide differences.
        weight.assign_add(0.05 * random.standard_normal(weight.shape).astype(np.float32))
    real = random.uniform(-1, 1, (work.batch_size, *work.example_shape)).astype(np.float32)
    latents = random.standard_normal((work.batch_size, work.latent_size)).astype(np.float32)
    gan = R3GAN(work, compiled=compiled)
    gan.set_weights(
        *({layer.name: layer.get_weights() for layer in network.layers} for network in networks)
    )
    return of_this_project(*networks, real, latents), of_pytorch(gan, real, latents)


def of_this_project(
    generator: tf.keras.Model, critic: tf.keras.Model, real: np.ndarray, latents: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the samples and scores, the terms, and the norms of their gradients."""
    objective = losses.GanObjective(
        adversarial_loss="relativistic", penalty="r1,r2", penalty_weight=PENALTY_WEIGHT
    )
    unused = {"alpha": tf.zeros([len(real)]), "noise": tf.zeros(real.shape), "step": tf.constant(0)}
    with tf.GradientTape(persistent=True) as tape:
        fake = generator(latents)
        terms = {
            name: tf.reduce_mean(values)
            for name, values in objective.critic_terms(critic, real, fake, **unused).items()
        }
        generator_loss = tf.reduce_mean(
            objective.generator_terms(critic, fake, real=tf.constant(real))["loss"]
        )

    def norm(loss: tf.Tensor, network: tf.keras.Model) -> np.ndarray:
        return tf.linalg.global_norm(tape.gradient(loss, network.trainable_variables)).numpy()

    return {
        "samples": fake.numpy(),
        "scores": critic(real).numpy(),
        "critic loss": terms["loss"].numpy(),
        "R1": terms["penalty_r1"].numpy(),
        "R2": terms["penalty_r2"].numpy(),
        "critic gradient": norm(terms["loss"], critic),
        "generator loss": generator_loss.numpy(),
        "generator gradient": norm(generator_loss, generator),
    }


def of_pytorch(gan: R3GAN, real: np.ndarray, latents: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the results of PyTorch under the names of `of_this_project`."""
    images, noise = gan.images(real), torch.from_numpy(latents)
    with torch.no_grad():
        fake, scores = gan.generate(noise), gan.critic(images)

    def norm(loss: torch.Tensor, network: torch.nn.Module) -> torch.Tensor:
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        return torch.stack([each.norm() for each in gradients]).norm()

    loss = gan.critic_loss(images, fake)
    _, r1, r2 = gan.critic_terms(images, fake)
    generator_loss = gan.generator_loss(images, noise)
    results = {
        "samples": fake.permute(0, 2, 3, 1),
        "scores": scores,
        "critic loss": loss,
        "R1": r1,
        "R2": r2,
        "critic gradient": norm(loss, gan.critic),
        "generator loss": generator_loss,
        "generator gradient": norm(generator_loss, gan.generator),
    }
    return {name: value.detach().numpy() for name, value in results.items()}
