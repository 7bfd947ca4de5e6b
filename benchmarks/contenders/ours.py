"""As this project trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

import train
from wgan_gp.data.pipeline import untuned
from wgan_gp.data.registry import Kind
from wgan_gp.loop import make_train_loop
from wgan_gp.randomness import RngStream, normal, uniform
from wgan_gp.strategy import connect

from .start import REPLAYED, Start
from .work import Work


class Trainer:
    """See start.Trainer; writes where the others start."""

    def __init__(self, work: Work, path: str):
        config = work.config
        strategy = connect(config).strategy
        state = train.make_state(config, strategy, Kind(work.example_shape, 0))
        self._loop = make_train_loop(
            train.make_step(config, state), strategy, n_critic=work.n_critic, jit_compile=False
        )
        shape = [work.n_critic, work.batch_size, *work.example_shape]
        real = tf.random.stateless_uniform(shape, [0, 1], -1.0, 1.0)
        labels = tf.zeros([work.n_critic, work.batch_size], tf.int32)
        batches = untuned(tf.data.Dataset.from_tensor_slices((real, labels)).cache().repeat())
        self._batches: Iterator = iter(strategy.experimental_distribute_dataset(batches))

        def noise(
            draw: Callable, stream: RngStream, steps: int, count: int, size: int
        ) -> np.ndarray:
            """As the steps of the first iterations draw it."""
            return np.stack(
                [
                    draw(config.seed, stream, step=step, first=0, count=count, size=size)
                    for step in range(steps)
                ]
            )

        critic_steps, batch = REPLAYED * work.n_critic, work.batch_size
        latents = noise(normal, RngStream.CRITIC_LATENTS, critic_steps, batch, work.latent_size)
        alpha = noise(uniform, RngStream.INTERPOLATION, critic_steps, batch, 1)
        Start(
            generator={layer.name: layer.get_weights() for layer in state.generator.layers},
            critic={layer.name: layer.get_weights() for layer in state.critic.layers},
            real=real.numpy(),
            latents=latents.reshape(REPLAYED, work.n_critic, *latents.shape[1:]),
            alpha=alpha.reshape(REPLAYED, work.n_critic, batch),
            generator_latents=noise(
                normal,
                RngStream.GENERATOR_LATENTS,
                REPLAYED,
                work.generator_batch_size,
                work.latent_size,
            ),
        ).write(path)

    def replay(self) -> list[tuple[float, float]]:
        terms = [self.run(1) for _ in range(REPLAYED)]
        return [(each["critic/loss"], each["generator/loss"]) for each in terms]

    def run(self, iterations: int) -> dict[str, float]:
        terms, _, _ = self._loop(self._batches, tf.constant(iterations, tf.int64))
        return {name: float(term) for name, term in terms.items()}
