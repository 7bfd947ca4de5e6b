"""Scores examples by the critic and by their distances to the nearest samples.

The search for the nearest sample follows AnoGAN (Schlegl et al. 2017, arXiv:1703.05921): gradient
descent on the latent vector. It starts from the latents of the samples that are nearest to the
example among many random samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from ..data.pixels import NEAREST
from ..data.sources.arrays import check_shape
from ..data.sources.python import as_array
from ..data.spec import DataSpec
from ..errors import UserError
from ..runtime.functions import function_on
from ..training.networks import bind_labels
from .sampling import Sampler

_BATCH_SIZE = 128  # examples that are scored together
_POOL = 512  # random samples, of which the nearest are the starts
_RATE = 0.1  # the initial learning rate of Adam; it decays to 0 along a cosine
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
# A vector of N(0, I) in d dimensions is longer than sqrt(d) + 3 with a probability below 0.012.
# Longer latents are shortened, because the generator was not trained on them.
_LONGER = 3.0

Score = Callable[[Callable, tf.Tensor], tf.Tensor]


def critic_scores(
    score: Score, network: Any, examples: tf.Tensor, labels: tf.Tensor | None
) -> tf.Tensor:
    """Returns the scores of normalized examples, `[B]` float32.

    Args:
      score: (function from examples to the critic's scores, examples) -> scores.
      network: The critic, which may also return the logits of classes.
      examples: The examples.
      labels: The labels or conditions that the critic takes, or None.
    """

    def critic(inputs: tf.Tensor) -> tf.Tensor:
        output = bind_labels(network, labels, training=False)(inputs)
        return output[0] if isinstance(output, tuple | list) else output

    return score(critic, examples)


class Scorer:
    """Scores examples with the networks of a run, in inference mode, on all replicas.

    The scores of an example do not depend on the other examples or the number of replicas, except
    for rounding, or if the critic compares the examples of a batch, as with --minibatch_stddev.

    Args:
      sampler: Draws the samples among which the search selects its starts. Its generator is
        searched, and its strategy runs all computations.
      critic: The critic.
      score: (function from examples to the critic's scores, examples) -> scores `[B]`.
      labeled_critic: Whether the critic takes labels or conditions.
      starts: The number of latent vectors from which the search starts.
      steps: The number of steps of Adam in the search.
    """

    def __init__(
        self,
        sampler: Sampler,
        critic: Any,
        score: Score,
        *,
        labeled_critic: bool,
        starts: int = 4,
        steps: int = 200,
    ):
        self._count = starts
        self._steps = steps
        self._sampler = sampler
        self._critic = critic
        self._score = score
        self._labeled_critic = labeled_critic
        self._share = -(-_BATCH_SIZE // sampler.strategy.num_replicas_in_sync)
        self._run = function_on(sampler.strategy, self._score_examples)
        self._pool: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def score(
        self, examples: np.ndarray, labels: np.ndarray | None, *, distances: bool = True
    ) -> dict[str, np.ndarray]:
        """Returns the scores of a batch of examples, each `[B]` float32, by name.

        "critic" is the critic's value, which is larger for examples that look real. "distance" is
        the Euclidean distance to the nearest sample that was found.

        Args:
          examples: `[B, *example_shape]` float32, 1 <= B <= 128.
          labels: `[B]` int32, or standardized conditions `[B, K]` float32. Conditional networks
            require them.
          distances: Whether the distances are computed.
        """
        count, replicas = len(examples), self._sampler.strategy.num_replicas_in_sync
        # One shape, so one trace. The last example fills it up, as it completes a group of
        # --minibatch_stddev.
        rows = np.minimum(np.arange(self._share * replicas), count - 1)
        labels = np.zeros([count], np.int32) if labels is None else labels
        starts = self._starts(examples, labels, self._count if distances else 0)
        outputs = self._run(examples[rows], labels[rows], starts[rows])
        return {name: output.numpy()[:count] for name, output in outputs.items()}

    def _starts(self, examples: np.ndarray, labels: np.ndarray, starts: int) -> np.ndarray:
        """Returns the latents to start from, `[B, starts, latent_size]`."""
        classes = self._sampler.classes
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
        scores = {"critic": critic_scores(self._score, self._critic, examples, bound)}
        if starts.shape[1]:
            scores["distance"] = self._distance(examples, labels, starts)
        return scores

    def _distance(self, examples: tf.Tensor, labels: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Searches the nearest sample and returns the distance to it, `[B]`."""
        count, steps = starts.shape[1], self._steps
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


def score_in_units(
    scorer: Scorer,
    spec: DataSpec,
    examples: Any,
    labels: Any = None,
    *,
    conditions: Any = None,
    distances: bool = False,
) -> Any:
    """Returns the scores of examples in the units of the data.

    Args:
      scorer: Scores normalized examples.
      spec: The properties of the data.
      examples, labels, conditions, distances: See `Result.score`.

    Raises:
      UserError: If they are not examples like those of the data, or labels or conditions are
        missing.
    """
    inputs, given = _normalized(spec, examples), None
    if spec.conditions is not None and spec.conditions.columns is not None:
        conditions = examples if conditions is None else conditions
    if spec.table is not None and spec.classes:
        given = spec.table.main_labels(inputs)
    elif spec.classes:
        given = np.asarray(labels)
        if given.shape != (len(inputs),) or not np.isin(given, np.arange(spec.classes)).all():
            raise UserError(
                f"labels are not {len(inputs)} integers from 0 to {spec.classes - 1}",
                "give score(examples, labels) the number of the class of each example",
            )
        given = given.astype(np.int32)
    elif spec.conditions is not None:
        if conditions is None:
            raise UserError("conditions are missing", "give score(examples, conditions=[N, K])")
        given = spec.conditions.standardize(spec.conditions.checked(conditions, "conditions"))
        if len(given) != len(inputs):
            raise UserError(
                f"{len(given)} conditions for {len(inputs)} examples", "give one to each example"
            )
    parts = []
    for begin in range(0, len(inputs), _BATCH_SIZE):
        rows = slice(begin, begin + _BATCH_SIZE)
        some = None if given is None else given[rows]
        parts.append(scorer.score(inputs[rows], some, distances=distances))
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return (found["critic"], found["distance"]) if distances else found["critic"]


def _normalized(spec: DataSpec, examples: Any) -> np.ndarray:
    """Returns examples in the units of the data as the networks get them, `[N, ...]` float32."""
    if spec.table is not None:
        if not isinstance(examples, pd.DataFrame) or not len(examples):
            raise UserError("examples are no rows of a table", "give a DataFrame with its columns")
        spec.table.warn_of_range(examples, "examples")
        return spec.table.canonical(spec.table.encode(examples, "examples"))
    scaling = spec.scaling
    array = as_array(examples, "examples")
    if array.ndim == len(spec.example_shape) and spec.example_shape[-1] == 1:
        array = array[..., None]  # gray images [N, H, W]
    if array.dtype.kind not in "fiub" or not array.size:
        raise UserError("examples are no numbers", "give an array [N, ...]")
    check_shape("examples", array.shape, spec)
    if scaling is not None:
        normalized = scaling.normalize(tf.constant(array, tf.float64)).numpy()
    elif len(spec.example_shape) > 1 and array.dtype == np.uint8:
        normalized = (spec.pixels or NEAREST).normalize(tf.constant(array)).numpy()
    else:
        normalized = array.astype(np.float32)
    if not np.isfinite(normalized).all():
        raise UserError(
            "examples contain NaN, infinity, or values that are too far from the training data",
            "leave these out, and give examples in the units of the training data",
        )
    return normalized
