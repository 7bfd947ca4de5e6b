"""Training with this project."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

import losses
from wgan_gp.app.build import make_state, make_step
from wgan_gp.app.library import Library
from wgan_gp.data.datasets import DataSpec
from wgan_gp.data.feed import without_autotune
from wgan_gp.runtime.devices import connect
from wgan_gp.runtime.randomness import RngStream, normal, uniform
from wgan_gp.training.loop import make_host_loop

from .initial_state import REPLAYED_ITERATIONS, InitialState
from .work import Work


class Trainer:
    """This project as an `initial_state.Trainer`.

    Args:
      work: The workload.
      path: The file to which the initial state is written.
    """

    def __init__(self, work: Work, path: str):
        config = work.config
        devices, spec, library = connect(config), DataSpec(work.example_shape, 0), Library()
        strategy = devices.strategy
        state = make_state(config, devices, spec, library.models)
        self._loop = make_host_loop(
            make_step(config, state, spec, library),
            strategy,
            jit_compile=False,
            reduce_over_replicas=losses.reduce_over_replicas,
        )
        shape = [work.n_critic, work.batch_size, *work.example_shape]
        real = tf.random.stateless_uniform(shape, [0, 1], -1.0, 1.0)
        labels = tf.zeros([work.n_critic, work.batch_size], tf.int32)
        batches = without_autotune(
            tf.data.Dataset.from_tensor_slices((real, labels)).cache().repeat()
        )
        self._batches: Iterator = iter(strategy.experimental_distribute_dataset(batches))

        def noise(
            draw: Callable, stream: RngStream, steps: int, count: int, size: int
        ) -> np.ndarray:
            """Draws the noise of the first steps of training, `[steps, count, size]`."""
            return np.stack(
                [
                    draw(config.seed, stream, step=step, first=0, count=count, size=size)
                    for step in range(steps)
                ]
            )

        critic_steps, batch = REPLAYED_ITERATIONS * work.n_critic, work.batch_size
        latents = noise(normal, RngStream.CRITIC_LATENTS, critic_steps, batch, work.latent_size)
        alpha = noise(uniform, RngStream.INTERPOLATION, critic_steps, batch, 1)
        InitialState(
            generator={layer.name: layer.get_weights() for layer in state.generator.layers},
            critic={layer.name: layer.get_weights() for layer in state.critic.layers},
            real=real.numpy(),
            latents=latents.reshape(REPLAYED_ITERATIONS, work.n_critic, *latents.shape[1:]),
            alpha=alpha.reshape(REPLAYED_ITERATIONS, work.n_critic, batch),
            generator_latents=noise(
                normal,
                RngStream.GENERATOR_LATENTS,
                REPLAYED_ITERATIONS,
                work.generator_batch_size,
                work.latent_size,
            ),
        ).write(path)

    def replay(self) -> list[tuple[float, float]]:
        terms = [self.run(1) for _ in range(REPLAYED_ITERATIONS)]
        return [(each["critic/loss"], each["generator/loss"]) for each in terms]

    def run(self, iterations: int) -> dict[str, float]:
        terms, _, _ = self._loop(self._batches, tf.constant(iterations, tf.int64))
        return {name: float(term) for name, term in terms.items()}
