"""Draws samples from the generator."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tqdm

from ..data.conditions import Conditions
from ..data.pixels import Pixels
from ..data.scaling import Scaling
from ..data.selection import Selection
from ..data.table import Table
from ..errors import UserError, shorten
from ..runtime.functions import function_on
from ..runtime.randomness import RngStream, normal
from ..training.networks import bind_labels

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 2**16  # latents that are drawn at a time
# The most samples that are drawn to find those that meet conditions: in all, and for each.
_MOST_DRAWN, _MOST_FOR_EACH = 1_000_000, 20


class Sampler:
    """Draws samples on all replicas; sample i is a function of (weights, seed, i).

    The generator is called in inference mode, so samples do not depend on each other.

    Args:
      generator: `[B, latent_size]` -> `[B, *example_shape]`. A conditional generator takes a
        list of latents and labels. Also an attribute, as are all but batch_size.
      strategy: The strategy in whose scope the generator was created.
      latent_size: The length of a latent vector.
      seed: The seed of the latents.
      classes: The number of classes of a conditional generator, 0 for an unconditional one.
      conditions: The conditions of the run's data, of which those that data.json records are used
        in turn. Or labels, `[M]` int32, which are used in turn. None if there are neither,
        or all classes in turn.
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
        conditions: Conditions | np.ndarray | None = None,
        batch_size: int = 128,
    ):
        self.seed = seed
        self.classes = classes
        labels = conditions if isinstance(conditions, np.ndarray) else None
        self._has_labels = labels is not None
        self.conditions = None if isinstance(conditions, np.ndarray) else conditions
        self._used = None if self.conditions is None else self.conditions.recorded()
        self._table = labels if self._used is None else self._used.table
        self.generator = generator
        self.strategy = strategy
        self.latent_size = latent_size
        self._share = -(-batch_size // strategy.num_replicas_in_sync)
        self._per_call = self._share * strategy.num_replicas_in_sync
        self._trace()

    def _trace(self) -> None:
        self._draw = self._on_all_replicas(self._draw_on_replica)
        self._generate = self._on_all_replicas(self._generate_on_replica)

    def sample(
        self,
        count: int,
        label: int | None = None,
        *,
        conditions: Any = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Returns the first `count` samples of the seed, `[count, *example_shape]` float32.

        Sample i has class i modulo classes.

        Args:
          count: The number of samples.
          label: The class of the samples, in [0, classes). None returns all classes. Samples of
            all classes are drawn in any case, because the batch statistics of a single class
            would differ from those in training.
          conditions: `[K]` or `[M, K]` in the data's units; sample i has condition i modulo M. None
            takes conditions of the data.
          show_progress: Whether to show a progress bar if stderr is a terminal.
        """
        if conditions is not None or (self._has_labels and label is not None):
            return self.generate(*self.noise(count, label, conditions=conditions))
        first, stride = self._places(label)
        batches = [
            self._draw(tf.constant(begin, tf.int64)).numpy()[(first - begin) % stride :: stride]
            for begin in self._calls(count * stride, show_progress)
        ]
        return np.concatenate(batches)[:count]

    def noise(
        self, count: int, label: int | None = None, *, conditions: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the inputs of the generator for which `sample` returns the outputs.

        Args:
          count: The number of samples.
          label, conditions: The class or the conditions of the samples, as in `sample`.

        Returns:
          The latents, `[count, latent_size]` float32, and the labels, `[count]` int32, which are
          all 0 for an unconditional generator; or standardized conditions, `[count, K]` float32.
        """
        if self._has_labels and label is not None:
            return self._latents(0, count).numpy(), np.full([count], label, np.int32)
        first, stride = self._places(label)
        places = first + stride * np.arange(count)
        # In blocks, because the latents between those of a class are drawn, too.
        total = count * stride
        blocks = []
        for begin in range(0, max(1, total), _BLOCK):
            drawn = self._latents(begin, min(_BLOCK, total - begin)).numpy()
            blocks.append(drawn[(first - begin) % stride :: stride])
        latents = np.concatenate(blocks)
        table = self._table
        if conditions is not None:
            table = self.standardized(conditions, "the conditions")
        if table is not None:
            return latents, table[places % len(table)]
        return latents, (places % max(1, self.classes)).astype(np.int32)

    def conditions_of(self, count: int, conditions: Any = None) -> np.ndarray:
        """Returns the conditions of the samples of `sample`, `[count, K]` in the data's units.

        They have the dtype of the data or, if they are given, float64.
        """
        used = self._used
        assert used is not None, "the generator takes conditions"
        rows = used.examples.astype(used.dtype)
        if conditions is not None:
            rows = used.checked(conditions, "the conditions")
        return rows[np.arange(count) % len(rows)]

    def with_conditions(self, conditions: Conditions) -> Sampler:
        """Returns a sampler of the same generator that uses all given conditions in turn."""
        other = copy.copy(self)
        other.conditions, other._used, other._table = conditions, conditions, conditions.table
        other._trace()
        return other

    def standardized(self, conditions: Any, flag: str) -> np.ndarray:
        """Returns given conditions, `[K]` or `[M, K]`, as the generator gets them, `[M, K]`.

        Args:
          conditions: The conditions, in the units of the data.
          flag: Their name in messages.

        Raises:
          UserError: If the generator takes no conditions, or others.
        """
        if self.conditions is None:
            raise UserError(f"{flag}: the networks of this run take no conditions", "omit them")
        return self.conditions.standardize(self.conditions.checked(conditions, flag))

    def generate(self, latents: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns the samples for given latents, `[N, *example_shape]` float32.

        Args:
          latents: `[N, latent_size]` float32.
          labels: `[N]` int32, or standardized conditions `[N, K]` float32; ignored by an
            unconditional generator.
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

        def draw_samples(*arguments: tf.Tensor) -> tf.Tensor:
            return self.strategy.gather(self.strategy.run(function, args=arguments), axis=0)

        return function_on(self.strategy, draw_samples)

    def _latents(self, first: int | tf.Tensor, count: int) -> tf.Tensor:
        """Returns the latents of samples `first` ... `first + count - 1`."""
        return normal(
            self.seed, RngStream.SAMPLES, step=0, first=first, count=count, size=self.latent_size
        )

    def _first_of_replica(self) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.cast(replica, tf.int64) * self._share

    def _draw_on_replica(self, first: tf.Tensor) -> tf.Tensor:
        """Returns this replica's part of the samples that start at index `first`."""
        first += self._first_of_replica()
        latents = self._latents(first, self._share)
        places = first + tf.range(self._share, dtype=tf.int64)
        if self._table is not None:
            return self._call(latents, tf.gather(self._table, places % len(self._table)))
        labels = places % max(1, self.classes)
        return self._call(latents, tf.cast(labels, tf.int32))

    def _generate_on_replica(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns this replica's part of the samples for the inputs of all replicas."""
        first = self._first_of_replica()
        latents = tf.slice(latents, [first, 0], [self._share, self.latent_size])
        labels = tf.gather(labels, first + tf.range(self._share, dtype=tf.int64))
        labels = tf.ensure_shape(labels, [self._share, *labels.shape[1:]])
        return self._call(latents, labels)

    def _call(self, latents: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        labels = labels if self.classes or self._table is not None else None
        return bind_labels(self.generator, labels, training=False)(latents)

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


def samples_in_units(
    sampler: Sampler,
    units: Scaling | Table | Pixels | None,
    count: int,
    label: int | None = None,
    *,
    conditions: Any = None,
) -> Any:
    """Returns samples in the units of the data, those of a typed table as a DataFrame.

    Args:
      sampler: Draws the samples.
      units: See `DataSpec.units`.
      count, label, conditions: See `Sampler.sample`. The conditions of a typed table are a text
        such as "job=nurse,age>40", or values by column.

    Raises:
      UserError: If the count is no positive integer, the class does not exist, the networks take
        no conditions, or others, or the samples are not finite.
    """
    if not (_is_integer(count) and count > 0):
        raise UserError(f"count={shorten(repr(count))}", "give a positive integer")
    if isinstance(units, Table) and conditions is not None and sampler.conditions is None:
        if label is not None:
            raise UserError("label and conditions are given", "give one of them")
        selection = Selection.of(conditions, units, "conditions")
        return selected_samples(sampler, selection, count)[0]
    if label is not None and not (_is_integer(label) and 0 <= label < sampler.classes):
        classes = sampler.classes
        raise UserError(
            f"label={shorten(repr(label))} is not a class of the generator",
            f"give 0 to {classes - 1}" if classes else "omit it: the generator has no classes",
        )
    samples = sampler.sample(count, label, conditions=conditions)
    check_finite(samples)
    return restored(sampler, units, samples, conditions)


def restored(
    sampler: Sampler, units: Scaling | Table | Pixels | None, samples: np.ndarray, conditions: Any
) -> Any:
    """Returns samples in the units of the data, with the columns of their conditions if any.

    Args:
      sampler: Drew the samples.
      units: See `DataSpec.units`.
      samples: `[N, *example_shape]`.
      conditions: See `Sampler.sample`.
    """
    found: Any = samples if units is None else units.restore(samples)
    known = sampler.conditions
    if known is None or known.columns is None:
        return found
    import pandas as pd  # noqa: PLC0415, which takes half a second

    used = known.as_frame(sampler.conditions_of(len(samples), conditions))
    return pd.concat([found, used], axis=1)


def selected_samples(
    sampler: Sampler, selection: Selection, count: int, *, show_progress: bool = False
) -> tuple[pd.DataFrame, float]:
    """Returns the first samples of a seed for which conditions hold, and the share that they are.

    A conditional run draws samples that meet the first condition on a category. Others are drawn
    until enough meet the conditions.

    Args:
      sampler: Draws the samples.
      selection: The conditions.
      count: The number of samples.
      show_progress: See `Sampler.sample`.

    Raises:
      UserError: If too few samples meet the conditions.
    """
    label = selection.label if sampler.classes else None
    drawn, most = count, max(_MOST_DRAWN, _MOST_FOR_EACH * count)
    while True:
        samples = sampler.sample(drawn, label, show_progress=show_progress)
        check_finite(samples)
        rows = selection.table.restore(samples)
        chosen = np.flatnonzero(selection.holds(rows))
        if len(chosen) >= count:
            share = count / (chosen[count - 1] + 1)
            return rows.iloc[chosen[:count]].reset_index(drop=True), float(share)
        if drawn >= most:
            raise UserError(
                f"only {len(chosen)} of {drawn} samples meet the conditions",
                "ask for fewer, or for conditions that are more frequent in the data",
            )
        needed = 1.2 * drawn * count / max(1, len(chosen))
        drawn = int(min(max(2 * drawn, needed), most))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_finite(samples: np.ndarray) -> None:
    """Raises UserError if samples `[N, ...]` contain NaN or infinity."""
    is_bad = ~np.isfinite(samples).reshape(len(samples), -1).all(axis=1)
    if is_bad.any():
        raise UserError(
            f"the generator returns NaN or infinity in {is_bad.sum()} of {len(samples)} samples",
            "use another checkpoint, or conditions that are nearer to those of the data",
        )


def interpolations(
    sampler: Sampler,
    rows: int,
    columns: int,
    label: int | None = None,
    *,
    conditions: Any = None,
) -> np.ndarray:
    """Interpolates between pairs of latent vectors, `[rows * columns, *example_shape]`.

    Row r starts with sample r and ends with the latents of sample `rows` + r. All samples of the
    row have the class or the condition of the first.

    Args:
      sampler: Draws the samples.
      rows: The number of pairs of latents.
      columns: The number of samples in a row, including both ends.
      label: The class of the samples, as in `Sampler.sample`.
      conditions: The conditions of the rows, in turn, as in `Sampler.sample`. Default: spread over
        those of the data.
    """
    if conditions is None and sampler.conditions is not None:
        conditions = sampler.conditions.spread(rows)
    latents, labels = sampler.noise(2 * rows, label, conditions=conditions)
    begins, ends = latents[:rows, None], latents[rows:, None]
    # The path is an arc: for independent z0 and z1 from N(0, I), cos(t) z0 + sin(t) z1 is also
    # from N(0, I), because cos^2 + sin^2 = 1. The generator was trained on this distribution.
    # Halfway along a straight line, the variance would be 1/2.
    t = np.linspace(0, np.pi / 2, columns)[:, None]
    between = (np.cos(t) * begins + np.sin(t) * ends).astype(np.float32)
    return sampler.generate(
        between.reshape(rows * columns, -1), labels[:rows].repeat(columns, axis=0)
    )


def transitions(sampler: Sampler, rows: int, columns: int, conditions: np.ndarray) -> np.ndarray:
    """Interpolates between conditions, `[rows * columns, *example_shape]`.

    Row r has the latents of sample r. Its conditions move along straight lines from the first given
    condition to the last.

    Args:
      sampler: Draws the samples.
      rows, columns: The numbers of latents, and of samples for each of them.
      conditions: `[M, K]` in the units of the data, M >= 2.
    """
    stops = np.linspace(0, len(conditions) - 1, columns)
    between = [np.interp(stops, np.arange(len(conditions)), column) for column in conditions.T]
    latents, labels = sampler.noise(rows * columns, conditions=np.stack(between, axis=1))
    return sampler.generate(latents[:rows].repeat(columns, axis=0), labels)
