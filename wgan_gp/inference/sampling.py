"""Draws samples from the generator."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tqdm

from ..data.pipeline import first_examples
from ..data.source import InMemoryData, StreamedData
from ..runtime.randomness import RngStream, normal
from ..training.networks import bind_labels
from .canvas import Restore
from .pictures import overview

GRID_SIDE = 8  # images; a conditional grid has a column for each of up to 2 * GRID_SIDE classes
SIGNAL_ROWS = 4  # rows of plots of signals, which are larger than images
PLOT_POINTS = 2500
MAX_PLOT_VALUES = 2**24  # numbers in the real examples behind a plot


class Sampler:
    """Draws samples on all replicas; sample i is a function of (weights, seed, i).

    The generator is called in inference mode. With accumulated batch-norm statistics, samples do
    not depend on each other. With batch statistics (--sampling_statistics=batch), samples depend
    on their batch of `batch_size` samples over all replicas.

    Args:
      generator: `[B, latent_size]` -> `[B, *example_shape]`. A conditional generator takes a
        list of latents and labels.
      strategy: The strategy in whose scope the generator was created.
      latent_size: The length of a latent vector.
      seed: The seed of the latents; also an attribute.
      classes: The number of classes of a conditional generator, 0 for an unconditional one;
        also an attribute.
      batch_size: The number of samples per call over all replicas, rounded up to a multiple of
        the number of replicas.
    """

    def __init__(
        self,
        generator: tf.keras.Model,
        strategy: tf.distribute.Strategy,
        *,
        latent_size: int,
        seed: int,
        classes: int = 0,
        batch_size: int = 128,
    ):
        self.seed = seed
        self.classes = classes
        self._generator = generator
        self._strategy = strategy
        self._latent_size = latent_size
        self._share = -(-batch_size // strategy.num_replicas_in_sync)
        self._per_call = self._share * strategy.num_replicas_in_sync
        self._draw = self._on_all_replicas(self._draw_on_replica)
        self._generate = self._on_all_replicas(self._generate_on_replica)

    def sample(
        self, count: int, label: int | None = None, *, show_progress: bool = False
    ) -> np.ndarray:
        """Returns the first `count` samples of the seed, `[count, *example_shape]` float32.

        Sample i has class i modulo classes.

        Args:
          count: The number of samples.
          label: The class of the samples, in [0, classes). None returns all classes. Samples of
            all classes are drawn in any case, because the batch statistics of a single class
            would differ from those in training.
          show_progress: Whether to show a progress bar if stderr is a terminal.
        """
        first, stride = self._places(label)
        batches = [
            self._draw(tf.constant(begin, tf.int64)).numpy()[(first - begin) % stride :: stride]
            for begin in self._calls(count * stride, show_progress)
        ]
        return np.concatenate(batches)[:count]

    def noise(self, count: int, label: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the inputs of the generator for which `sample` returns the outputs.

        Args:
          count: The number of samples.
          label: The class of the samples, as in `sample`.

        Returns:
          The latents, `[count, latent_size]` float32, and the labels, `[count]` int32, which are
          all 0 for an unconditional generator.
        """
        first, stride = self._places(label)
        places = first + stride * np.arange(count)
        latents = normal(
            self.seed,
            RngStream.SAMPLES,
            step=0,
            first=0,
            count=count * stride,
            size=self._latent_size,
        ).numpy()
        return latents[places], (places % max(1, self.classes)).astype(np.int32)

    def generate(self, latents: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns the samples for given latents, `[N, *example_shape]` float32.

        Args:
          latents: `[N, latent_size]` float32.
          labels: `[N]` int32; ignored by an unconditional generator.
        """
        batches = []
        for begin in self._calls(len(latents)):
            # All calls have one shape, so that the function is traced once. The last batch is
            # filled up with its first example.
            places = np.arange(begin, begin + self._per_call)
            places[places >= len(latents)] = begin
            batches.append(self._generate(latents[places], labels[places]).numpy())
        return np.concatenate(batches)[: len(latents)]

    def _on_all_replicas(self, function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Returns a function that runs on all replicas and concatenates their results."""

        @tf.function(autograph=False)
        def run(*arguments: tf.Tensor) -> tf.Tensor:
            return self._strategy.gather(self._strategy.run(function, args=arguments), axis=0)

        return run

    def _first_of_replica(self) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica, tf.int64) * self._share

    def _draw_on_replica(self, first: tf.Tensor) -> tf.Tensor:
        """Returns this replica's part of the samples that start at index `first`."""
        first += self._first_of_replica()
        latents = normal(
            self.seed,
            RngStream.SAMPLES,
            step=0,
            first=first,
            count=self._share,
            size=self._latent_size,
        )
        labels = (first + tf.range(self._share, dtype=tf.int64)) % max(1, self.classes)
        return self._call(latents, tf.cast(labels, tf.int32))

    def _generate_on_replica(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns this replica's part of the samples for the inputs of all replicas."""
        first = self._first_of_replica()
        latents = tf.slice(latents, [first, 0], [self._share, self._latent_size])
        labels = tf.slice(labels, [first], [self._share])
        return self._call(latents, labels)

    def _call(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        labels = labels if self.classes else None
        return bind_labels(self._generator, labels, training=False)(latents)

    def _places(self, label: int | None) -> tuple[int, int]:
        """Returns the index of the first sample of a class, and the distance to the next one."""
        return (0, 1) if label is None else (label, self.classes)

    def _calls(self, count: int, show_progress: bool = False) -> tqdm.tqdm:
        """Iterates over the index of the first sample of each call, with a progress bar."""
        calls = range(0, count, self._per_call)
        # disable=None shows the bar only if stderr is a terminal; delay=1 hides it for a second.
        return tqdm.tqdm(
            calls, unit="batch", delay=1, leave=False, disable=None if show_progress else True
        )


def interpolations(
    sampler: Sampler, rows: int, columns: int, label: int | None = None
) -> np.ndarray:
    """Interpolates between pairs of latent vectors, `[rows * columns, *example_shape]`.

    Row r starts with sample r and ends with the latents of sample `rows` + r. All samples of the
    row have the class of the first.

    Args:
      sampler: Draws the samples.
      rows: The number of pairs of latents.
      columns: The number of samples in a row, including both ends.
      label: The class of the samples, as in `Sampler.sample`.
    """
    latents, labels = sampler.noise(2 * rows, label)
    begins, ends = latents[:rows, None], latents[rows:, None]
    # The path is an arc: for independent z0 and z1 from N(0, I), cos(t) z0 + sin(t) z1 is also
    # from N(0, I), because cos^2 + sin^2 = 1. The generator was trained on this distribution.
    # Halfway along a straight line, the variance would be 1/2.
    t = np.linspace(0, np.pi / 2, columns)[:, None]
    between = (np.cos(t) * begins + np.sin(t) * ends).astype(np.float32)
    return sampler.generate(between.reshape(rows * columns, -1), labels[:rows].repeat(columns))


def grid_columns(classes: int, side: int = GRID_SIDE) -> int:
    """Returns the number of columns of a grid: one per class, or `side` for too many classes."""
    return classes if 1 < classes <= 2 * GRID_SIDE else side


def make_sample_images(
    sampler: Sampler,
    data: InMemoryData | StreamedData,
    *,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
    bounded: bool = True,
) -> Callable[[], dict[str, np.ndarray]]:
    """Returns a function that draws samples from fixed noise: () -> uint8 images, by tag.

    Args:
      sampler: Draws the samples.
      data: The training data, which sets the scales of plots.
      restore, names, bounded: See `pictures.overview`.
    """
    rank = len(data.example_shape)
    needs_no_scale = bounded and data.example_shape[2:] in ((1,), (3,))
    real = None if needs_no_scale else _first_for_plots(data)
    draw = functools.partial(overview, real=real, restore=restore, names=names, bounded=bounded)
    if rank == 1:
        return lambda: {"samples": draw(sampler.sample(PLOT_POINTS), GRID_SIDE)}
    rows = GRID_SIDE if rank == 3 else SIGNAL_ROWS
    return functools.partial(_sample_grids, sampler, rows, draw)


def _sample_grids(
    sampler: Sampler, rows: int, draw: Callable[[np.ndarray, int], np.ndarray]
) -> dict[str, np.ndarray]:
    columns = grid_columns(sampler.classes, rows)
    between = interpolations(sampler, rows, GRID_SIDE)
    return {
        "samples": draw(sampler.sample(rows * columns), columns),
        "interpolation": draw(between, GRID_SIDE),
    }


def real_images(
    data: InMemoryData | StreamedData,
    *,
    restore: Restore | None = None,
    names: Sequence[str] | None = None,
    bounded: bool = True,
) -> dict[str, np.ndarray]:
    """Returns a grid of the first real images or signals, by tag, or nothing for points and tables.

    Real points and features are plotted together with the samples instead.

    Args:
      data: The training data.
      restore, names, bounded: See `pictures.overview`.
    """
    rank = len(data.example_shape)
    if rank == 1:
        return {}
    rows = GRID_SIDE if rank == 3 else SIGNAL_ROWS
    examples = first_examples(data, rows**2)[0].numpy()
    picture = overview(examples, rows, restore=restore, names=names, bounded=bounded)
    return {"real": picture}


def _first_for_plots(data: InMemoryData | StreamedData) -> np.ndarray:
    """Returns the first examples of training: each at most once, unless there are few points."""
    shape = data.example_shape
    count = max(GRID_SIDE**2, min(PLOT_POINTS, MAX_PLOT_VALUES // math.prod(shape)))
    if shape != (2,) and data.size is not None:
        count = min(count, data.size)
    return first_examples(data, count)[0].numpy()
