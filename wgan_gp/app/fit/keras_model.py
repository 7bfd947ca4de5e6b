"""A Keras model whose methods check the arguments and the data for the steps of train.py."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...config import Config
from ...data.feed.fit_batches import fit_batches
from ...data.feed.fit_data import as_array, as_dataset, is_list_of_arrays, split
from ...data.feed.pipeline_errors import raising_user_errors
from ...data.spec import DataSpec
from ...errors import UserError, naming
from ...runtime.tensorflow_patches import NoSymbolicBuild
from .keras_arguments import refuse, require_end, usable_callbacks


class CheckedModel(NoSymbolicBuild, tf.keras.Model):
    """A base class of `WGANGP` with the methods of Keras that take data; `prepare` builds it.

    Attributes:
      config: The settings of the training.
    """

    config: Config

    @property
    def iterations(self) -> int:
        """The number of iterations done."""
        raise NotImplementedError

    def data_spec(self) -> DataSpec:
        """Returns what the networks require of the data."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Creates what the steps need, once after each `compile`."""
        raise NotImplementedError

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        callbacks: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Trains the networks; see `keras.Model.fit`.

        Args:
          x: Examples `[N, ...]`, floating-point, or what yields batches of them, of any size, with
            labels if there are classes, or conditions: a tf.data.Dataset, a PyDataset or a Python
            iterable.
          y: Labels `[N]` or conditions `[N, K]`, if `x` is an array and the networks take them.
          validation_split: The last part of the arrays that is held out, in (0, 1).
          validation_data: Held-out examples, likewise; a pair if there are labels. The critic's
            terms on them are reported as "val_...".
          shuffle: Whether to shuffle arrays in each epoch.
          callbacks: Callbacks; docs/keras.md lists those of Keras.
          kwargs: Other arguments of `keras.Model.fit`; docs/keras.md lists them.

        Returns:
          Keras's History.

        Raises:
          UserError: If an argument is not supported, there are fewer examples than in one
            iteration, labels are missing, or the critic violates an assumption of the penalty.
        """
        self._require_compile("fit")
        kwargs = refuse("fit", kwargs)
        callbacks = usable_callbacks(callbacks, self)
        if validation_split and validation_data is None:
            (x, y), validation_data = split(x, y, validation_split)
        train = self._batches(x, y, self.config.n_critic, shuffle=shuffle)
        require_end("fit", train, "steps_per_epoch", kwargs.get("steps_per_epoch"))
        self.prepare()
        if validation_data is not None:
            parts = (validation_data,)
            if isinstance(validation_data, tuple) or is_list_of_arrays(validation_data):
                parts = tuple(validation_data)
            if len(parts) > 2:
                refuse("fit", {"sample_weight": parts[2]})
            with naming("validation_data"):
                held_out, labels = (*parts, None)[:2]
                validation_data = self._batches(held_out, labels, 1)
            steps = kwargs.get("validation_steps")
            require_end("validation", validation_data, "validation_steps", steps)
        with raising_user_errors():
            history = super().fit(
                train, validation_data=validation_data, callbacks=callbacks, **kwargs
            )
        if history.epoch and not history.history:
            raise UserError("x yields less than one batch", "lower batch_size in the Config")
        return history

    def evaluate(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Returns the means of the critic's terms on examples; see `fit` for the arguments."""
        self._require_compile("evaluate")
        kwargs = refuse("evaluate", kwargs)
        if not getattr(x, "_forms_batches", False):
            x = self._batches(x, y, 1)
            require_end("evaluate", x, "steps", kwargs.get("steps"))
            self.prepare()
        with raising_user_errors():
            return super().evaluate(x, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Performs one iteration on an array of n_critic * batch_size examples."""
        kwargs = refuse("train_on_batch", kwargs)
        batch = self._one_batch("train_on_batch", x, y, self.config.n_critic)
        return super().train_on_batch(*batch, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Returns the critic's terms on an array of batch_size examples."""
        kwargs = refuse("test_on_batch", kwargs)
        return super().test_on_batch(*self._one_batch("test_on_batch", x, y, 1), **kwargs)

    def _require_compile(self, method: str) -> None:
        if not hasattr(self, "critic_optimizer"):
            raise UserError(f"{method} needs optimizers", "call compile() first")

    def _batches(self, x: Any, y: Any, parts: int, *, shuffle: bool = False) -> tf.data.Dataset:
        replicas = self.distribute_strategy.num_replicas_in_sync
        # Another call of fit continues the training, with another order.
        order = self.config.seed + self.iterations if shuffle else None
        size = self.config.batch_size
        batches = fit_batches(x, y, self.data_spec(), size, parts, replicas, order=order)
        batches._forms_batches = True
        return batches

    def _one_batch(self, method: str, x: Any, y: Any, parts: int) -> tuple:
        """Returns examples, and labels if there are any, for a step on one replica."""
        self._require_compile(method)
        if self.distribute_strategy.num_replicas_in_sync > 1:
            raise UserError(f"{method} does not divide a batch over replicas", "use fit")
        size = parts * self.config.batch_size
        if as_dataset(x) is not None or len(as_array(x, "x")) != size:
            raise UserError(f"{method} needs an array of {size} examples", "pass one, or use fit")
        batches = self._batches(x, y, parts)
        self.prepare()
        batch = next(iter(batches))
        return batch if isinstance(batch, tuple) else (batch,)
