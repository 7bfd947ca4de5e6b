"""Samples from the generator."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tqdm

from .config import Config
from .data import source as sources
from .data.pipeline import first_examples
from .data.registry import Kind
from .networks import conditioned
from .pictures import image_grid, point_plot
from .randomness import Stream, normal

GRID_SIDE = 8  # images; a conditional grid has a column for each class, up to twice as many
PLOT_POINTS = 2500


class Sampler:
    """Draws samples on all replicas; sample i is a function of (weights, seed, i).

    The generator does not train. With the batch-norm statistics it accumulated, no sample
    depends on those beside it. With those of the batch (--sampling_statistics=batch), samples
    are drawn in batches of `batch_size` over all replicas.

    Args:
      generator: `[B, latent_size]` -> `[B, *example_shape]`; a conditional one takes labels too.
      strategy: the strategy in whose scope the generator was made.
      latent_size: length of a latent vector.
      seed: of the latents.
      classes: of a conditional generator; 0 of any other. An attribute too.
      batch_size: samples per call, over all replicas; raised to a multiple of their number.
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
        self._seed = seed
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
        """The first `count` samples of the seed, `[count, *example_shape]` float32.

        Sample i is of class i modulo classes.

        Args:
          count: how many.
          label: the first `count` of this class, in [0, classes). All classes are drawn, and
            those of the others left: with statistics of the batch, a batch of one class would
            have others than the generator has ever seen.
          show_progress: on stderr, if that is a terminal.
        """
        first, stride = self._places(label)
        batches = [
            self._draw(tf.constant(begin, tf.int64)).numpy()[(first - begin) % stride :: stride]
            for begin in self._calls(count * stride, show_progress)
        ]
        return np.concatenate(batches)[:count]

    def noise(self, count: int, label: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What the generator makes `sample` of, for the same arguments.

        Returns:
          The latents, `[count, latent_size]` float32, and the labels, `[count]` int32; all 0
          where there are no classes.
        """
        first, stride = self._places(label)
        places = first + stride * np.arange(count)
        latents = normal(
            self._seed,
            Stream.SAMPLES,
            step=0,
            first=0,
            count=count * stride,
            size=self._latent_size,
        ).numpy()
        return latents[places], (places % max(1, self.classes)).astype(np.int32)

    def generate(self, latents: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The samples of given noise, `[N, *example_shape]` float32.

        Args:
          latents: `[N, latent_size]` float32.
          labels: `[N]` int32; they matter to a conditional generator only.
        """
        batches = []
        for begin in self._calls(len(latents)):
            # Of one shape, so that it is traced once; the last ones repeat its first.
            places = np.arange(begin, begin + self._per_call)
            places[places >= len(latents)] = begin
            batches.append(self._generate(latents[places], labels[places]).numpy())
        return np.concatenate(batches)[: len(latents)]

    def _on_all_replicas(self, function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """What the replicas' shares of a call are, one after the other."""

        @tf.function(autograph=False)
        def run(*arguments: tf.Tensor) -> tf.Tensor:
            return self._strategy.gather(self._strategy.run(function, args=arguments), axis=0)

        return run

    def _first_of_replica(self) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica, tf.int64) * self._share

    def _draw_on_replica(self, first: tf.Tensor) -> tf.Tensor:
        """This replica's share of the samples from `first` on."""
        first += self._first_of_replica()
        latents = normal(
            self._seed,
            Stream.SAMPLES,
            step=0,
            first=first,
            count=self._share,
            size=self._latent_size,
        )
        labels = (first + tf.range(self._share, dtype=tf.int64)) % max(1, self.classes)
        return self._call(latents, tf.cast(labels, tf.int32))

    def _generate_on_replica(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """This replica's share of the samples of `[per_call, latent_size]` and `[per_call]`."""
        first = self._first_of_replica()
        latents = tf.slice(latents, [first, 0], [self._share, self._latent_size])
        labels = tf.slice(labels, [first], [self._share])
        return self._call(latents, labels)

    def _call(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        labels = labels if self.classes else None
        return conditioned(self._generator, labels, training=False)(latents)

    def _places(self, label: int | None) -> tuple[int, int]:
        """The first sample of a class, and how far it is from one to the next."""
        return (0, 1) if label is None else (label, self.classes)

    def _calls(self, count: int, show_progress: bool = False) -> tqdm.tqdm:
        """The index of the first sample of each call."""
        calls = range(0, count, self._per_call)
        # None: unless stderr is a terminal. What takes a second needs no bar.
        return tqdm.tqdm(
            calls, unit="batch", delay=1, leave=False, disable=None if show_progress else True
        )


def interpolations(
    sampler: Sampler, rows: int, columns: int, label: int | None = None
) -> np.ndarray:
    """Samples on the way from one latent vector to another, `[rows * columns, *example_shape]`.

    Row r begins with sample r, and ends with the latents of sample `rows` + r; it is of the
    class of its first.

    Args:
      sampler: what to draw with.
      rows: pairs of latents.
      columns: samples in a row, both ends among them.
      label: as for `Sampler.sample`.
    """
    latents, labels = sampler.noise(2 * rows, label)
    begins, ends = latents[:rows, None], latents[rows:, None]
    # On an arc: for independent z0 and z1 from N(0, I), cos(t) z0 + sin(t) z1 is from N(0, I)
    # again, as cos^2 + sin^2 = 1, so the generator is asked for nothing that it was not trained
    # on. Halfway along the straight line the variance would be a half.
    t = np.linspace(0, np.pi / 2, columns)[:, None]
    between = (np.cos(t) * begins + np.sin(t) * ends).astype(np.float32)
    return sampler.generate(between.reshape(rows * columns, -1), labels[:rows].repeat(columns))


def grid_columns(classes: int) -> int:
    """Columns of a grid: a class a column, where there are columns for all."""
    return classes if 1 < classes <= 2 * GRID_SIDE else GRID_SIDE


def make_sampler(
    config: Config, strategy: tf.distribute.Strategy, generator: tf.keras.Model, kind: Kind
) -> Sampler:
    """What draws from a generator as the configuration of its run says."""
    return Sampler(
        generator,
        strategy,
        latent_size=config.latent_size,
        seed=config.drawn_with,
        classes=kind.classes,
    )


def make_draw(
    sampler: Sampler, source: sources.Source | sources.Stream
) -> Callable[[], dict[str, np.ndarray]]:
    """A function that draws the same noise's samples anew: () -> pictures, uint8, by their tags."""
    if len(source.example_shape) == 3:
        columns = grid_columns(sampler.classes)

        def draw() -> dict[str, np.ndarray]:
            between = interpolations(sampler, GRID_SIDE, GRID_SIDE)
            return {
                "samples": image_grid(sampler.sample(GRID_SIDE * columns), columns),
                "interpolation": image_grid(between, GRID_SIDE),
            }

        return draw
    assert isinstance(source, sources.Source)  # only pictures are streamed
    real = source.read(tf.constant(0, tf.int64), PLOT_POINTS)[0].numpy()
    return lambda: {"samples": point_plot(sampler.sample(PLOT_POINTS), real)}


def draw_real(source: sources.Source | sources.Stream) -> dict[str, np.ndarray]:
    """A picture of the first real images, by its tag; points are drawn beside their samples."""
    if len(source.example_shape) != 3:
        return {}
    images, _ = first_examples(source, GRID_SIDE**2)
    return {"real": image_grid(images.numpy(), GRID_SIDE)}
