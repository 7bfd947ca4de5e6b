"""Scores examples by the critic and by their distances to the nearest samples (--mode=score).

The search for the nearest sample follows AnoGAN (Schlegl et al. 2017, arXiv:1703.05921): gradient
descent on the latent vector. It starts from the latents of the samples that are nearest to the
example among many random samples.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..config import ScoreSettings
from ..data.score_data import ExampleBatch
from ..run_directory.files import write_output
from ..runtime.functions import function_on
from ..training.networks import bind_labels
from .sampling import Sampler

_POOL = 512  # random samples, of which the nearest are the starts
_RATE = 0.1  # the initial learning rate of Adam; it decays to 0 along a cosine
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
# A vector of N(0, I) in d dimensions is longer than sqrt(d) + 3 with a probability below 0.012.
# Longer latents are shortened, because the generator was not trained on them.
_LONGER = 3.0


class Scorer:
    """Scores examples with the networks of a run, in inference mode, on all replicas.

    The scores of an example do not depend on the other examples or the number of replicas, except
    for rounding, or if the critic compares the examples of a batch, as with --minibatch_stddev.

    Args:
      settings: The number of latent vectors from which the search starts, 0 for no search, and of
        steps of Adam.
      sampler: Draws the samples among which the search selects its starts. Its generator is
        searched, and its strategy runs all computations.
      critic: The critic.
      score: (function from examples to the critic's scores, examples) -> scores `[B]`.
      labeled_critic: Whether the critic takes labels or conditions.
    """

    def __init__(
        self,
        settings: ScoreSettings,
        sampler: Sampler,
        critic: Any,
        score: Callable[[Callable, tf.Tensor], tf.Tensor],
        *,
        labeled_critic: bool,
    ):
        self._settings = settings
        self._sampler = sampler
        self._critic = critic
        self._score = score
        self._labeled_critic = labeled_critic
        self._share = 0
        self._run = function_on(sampler.strategy, self._score_examples)
        self._pool: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def score(
        self, examples: np.ndarray, labels: np.ndarray | None, *, batch_size: int
    ) -> dict[str, np.ndarray]:
        """Returns the scores of a batch of examples, each `[B]` float32, by name.

        "critic" is the critic's value, which is larger for examples that look real. "distance" is
        the Euclidean distance to the nearest sample that was found.

        Args:
          examples: `[B, *example_shape]` float32, 1 <= B <= batch_size.
          labels: `[B]` int32, or standardized conditions `[B, K]` float32. Conditional networks
            require them.
          batch_size: The number of examples per call, to which smaller batches are filled up. It is
            rounded up to a multiple of the number of replicas.
        """
        count, replicas = len(examples), self._sampler.strategy.num_replicas_in_sync
        self._share = -(-batch_size // replicas)
        # One shape, so one trace. The last example fills it up, as it completes a group of
        # --minibatch_stddev.
        rows = np.minimum(np.arange(self._share * replicas), count - 1)
        labels = np.zeros([count], np.int32) if labels is None else labels
        starts = self._starts(examples, labels)
        outputs = self._run(examples[rows], labels[rows], starts[rows])
        return {name: output.numpy()[:count] for name, output in outputs.items()}

    def _starts(self, examples: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns the latents to start from, `[B, starts, latent_size]`."""
        starts, classes = self._settings.score_starts, self._sampler.classes
        if not starts:
            return np.zeros([len(examples), 0, self._sampler.latent_size], np.float32)
        if self._pool is None:
            size = max(_POOL, starts * classes)
            samples = self._sampler.sample(size).reshape(size, -1)
            self._pool = (samples, *self._sampler.noise(size))
        # The search continues with the condition of the example from latents of any condition.
        samples, latents, classes_of_samples = self._pool
        flat = examples.reshape(len(examples), -1)
        # The squared distances, up to a constant for each example.
        squares = (samples**2).sum(axis=1) - 2 * flat @ samples.T
        if classes:
            squares[labels[:, None] != classes_of_samples] = np.inf
        return latents[np.argsort(squares, axis=1, kind="stable")[:, :starts]]

    def _score_examples(
        self, examples: tf.Tensor, labels: tf.Tensor, starts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        def on_replica(*arguments: tf.Tensor) -> dict[str, tf.Tensor]:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            rows = replica * self._share + tf.range(self._share)
            return self._score_on_replica(*(tf.gather(each, rows) for each in arguments))

        outputs = self._sampler.strategy.run(on_replica, args=(examples, labels, starts))
        return {name: self._sampler.strategy.gather(each, axis=0) for name, each in outputs.items()}

    def _score_on_replica(
        self, examples: tf.Tensor, labels: tf.Tensor, starts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        examples = tf.ensure_shape(examples, [self._share, *examples.shape[1:]])
        bound = labels if self._labeled_critic else None

        def critic(inputs: tf.Tensor) -> tf.Tensor:
            output = bind_labels(self._critic, bound, training=False)(inputs)
            return output[0] if isinstance(output, tuple | list) else output

        scores = {"critic": self._score(critic, examples)}
        if self._settings.score_starts:
            scores["distance"] = self._distance(examples, labels, starts)
        return scores

    def _distance(self, examples: tf.Tensor, labels: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Searches the nearest sample and returns the distance to it, `[B]`."""
        count, steps = self._settings.score_starts, self._settings.score_steps
        latent_size = self._sampler.latent_size
        searches = self._share * count
        latents = tf.reshape(starts, [searches, latent_size])
        targets = tf.repeat(examples, count, axis=0)
        is_conditional = self._sampler.classes or self._sampler.conditions is not None
        labels = tf.repeat(labels, count, axis=0) if is_conditional else None
        generate = bind_labels(self._sampler.generator, labels, training=False)

        def squares(latents: tf.Tensor) -> tf.Tensor:
            difference = tf.cast(generate(latents), tf.float32) - targets
            return tf.reduce_sum(tf.reshape(difference**2, [searches, -1]), axis=1)

        def step(
            number: tf.Tensor,
            latents: tf.Tensor,
            mean: tf.Tensor,
            square: tf.Tensor,
            best: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            with tf.GradientTape() as tape:
                tape.watch(latents)
                losses = squares(latents)
            (gradient,) = tape.gradient(losses, [latents])
            time = tf.cast(number, tf.float32)
            mean = _BETAS[0] * mean + (1 - _BETAS[0]) * gradient
            square = _BETAS[1] * square + (1 - _BETAS[1]) * gradient**2
            scale = tf.sqrt(square / (1 - _BETAS[1] ** (time + 1))) + _EPSILON
            rate = _RATE * 0.5 * (1 + tf.cos(math.pi * time / steps))
            moved = latents - rate / (1 - _BETAS[0] ** (time + 1)) * mean / scale
            moved = tf.clip_by_norm(moved, math.sqrt(latent_size) + _LONGER, axes=[1])
            return number + 1, moved, mean, square, tf.minimum(best, losses)

        zeros = tf.zeros_like(latents)
        _, latents, _, _, best = tf.while_loop(
            lambda number, *_: number < steps,
            step,
            (tf.constant(0), latents, zeros, zeros, tf.fill([searches], math.inf)),
            maximum_iterations=steps,
        )
        best = tf.minimum(best, squares(latents))
        return tf.sqrt(tf.reduce_min(tf.reshape(best, [self._share, count]), axis=1))


def write(path: str, scored: Iterable[tuple[ExampleBatch, Mapping[str, np.ndarray]]]) -> None:
    """Writes a line for each example: its index, file and label, if known, and its scores.

    Args:
      path: The path of the file.
      scored: The examples and their scores by name; see `Scorer.score`.

    Raises:
      UserError: If the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header: list[str] = []
    for batch, scores in scored:
        classes = batch.labels if batch.labels is not None and batch.labels.ndim == 1 else None
        columns = {"index": batch.indices, "file": batch.files, "label": classes}
        present = {name: column for name, column in columns.items() if column is not None}
        if not header:
            header = [*present, *scores]
            writer.writerow(header)
        values = [[f"{value:.9g}" for value in column] for column in scores.values()]
        writer.writerows(zip(*present.values(), *values, strict=True))
    write_output(path, text.getvalue())
