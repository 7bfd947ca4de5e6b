"""The arguments and callbacks of Keras that `WGANGP` refuses, and what to do in their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import NotFiniteError, UserError, shorten

_LOSSES = "set the losses in the Config of the model, or pass it an objective"
_METRICS = "the terms of the losses are logged; compute other metrics in a callback"
_BATCH_SIZE = "set batch_size in the Config of the model"
_WEIGHTS = "pass more examples of what should count more"
REFUSED = {
    "optimizer": "pass generator_optimizer and critic_optimizer",
    "loss": _LOSSES,
    "loss_weights": _LOSSES,
    "metrics": _METRICS,
    "weighted_metrics": _METRICS,
    "auto_scale_loss": "use the policy mixed_bfloat16, which needs no scaled losses",
    "batch_size": _BATCH_SIZE,
    "validation_batch_size": _BATCH_SIZE,
    "class_weight": _WEIGHTS,
    "sample_weight": _WEIGHTS,
}
# These change `model.optimizer`, of which a WGANGP has two.
REFUSED_CALLBACKS = {
    "LearningRateScheduler": "pass optimizers with a schedule of keras.optimizers.schedules",
    "ReduceLROnPlateau": "set model.generator_optimizer.learning_rate in a callback of your own",
    "SwapEMAWeights": "use wgan_gp.train with generator_ema_decay",
}


def refuse(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments for the same method of Keras's model.

    Raises:
      UserError: If one of them is in REFUSED and neither None nor False.
    """
    for name, remedy in REFUSED.items():
        if arguments.get(name) is not None and arguments[name] is not False:
            raise UserError(f"{method}({name}=...) is not supported", remedy)
    return arguments


def require_end(method: str, batches: tf.data.Dataset, steps: str, given: Any) -> None:
    """Raises a UserError if batches are endless, and their number is not given as `steps`."""
    if given is None and int(batches.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise UserError(f"the data of {method} are endless", f"pass {steps}")


def usable_callbacks(callbacks: Any, model: tf.keras.Model) -> Any:
    """Returns the callbacks of a model, with a TerminateOnNaN that looks at all terms.

    Without one, an epoch with NaN ends `fit`; see `_StopOnNaN`.

    Raises:
      UserError: If one of them is in REFUSED_CALLBACKS.
    """
    if isinstance(callbacks, tf.keras.callbacks.CallbackList):
        callbacks.callbacks = usable_callbacks(callbacks.callbacks, model)
        callbacks.set_model(model)  # also of the new ones
        return callbacks
    given = [] if callbacks is None else callbacks
    given = list(given) if isinstance(given, (list, tuple)) else [given]
    usable: list[Any] = []
    # Before the others, which may save the networks.
    if not any(isinstance(each, (_StopOnNaN, tf.keras.callbacks.TerminateOnNaN)) for each in given):
        usable.append(_StopOnNaN())
    for callback in given:
        for name, remedy in REFUSED_CALLBACKS.items():
            if isinstance(callback, getattr(tf.keras.callbacks, name, ())):
                raise UserError(f"the callback {name} changes the one optimizer of a model", remedy)
        stops = isinstance(callback, tf.keras.callbacks.TerminateOnNaN)
        usable.append(_TerminateOnNaN() if stops else callback)
    return usable


def both_optimizers(given: tuple[Any, Any], defaults: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns the optimizers of the generator and the critic, which may be given by name.

    Raises:
      UserError: If one is unknown, or one object is given for both.
    """
    if given[0] is not None and given[0] is given[1] and not isinstance(given[0], (str, dict)):
        raise UserError(
            "generator_optimizer and critic_optimizer are one object", "create one for each network"
        )
    optimizers = []
    for name, value, default in zip(("generator", "critic"), given, defaults, strict=True):
        try:
            optimizer = default if value is None else tf.keras.optimizers.get(value)
        except (ValueError, TypeError):
            optimizer = None
        if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
            raise UserError(
                f"{name}_optimizer={shorten(repr(value))} is unknown",
                'pass a Keras optimizer or its name, such as "adam"',
            )
        optimizers.append(optimizer)
    return optimizers[0], optimizers[1]


class _StopOnNaN(tf.keras.callbacks.Callback):
    """Raises an error after an epoch in which a term was not finite.

    With the optimizers of the configuration, no later update changes the networks then, although
    the terms of the next epochs may be finite; see `GuardedUpdates`.

    Raises:
      NotFiniteError: After such an epoch.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        trained = {name: each for name, each in (logs or {}).items() if not name.startswith("val_")}
        if bad := [name for name, value in trained.items() if not np.isfinite(float(value))]:
            raise NotFiniteError(
                f"epoch {epoch + 1}: {bad[0]} is not finite, and the networks cannot be trained "
                "further",
                "look for such values in the data, or lower the learning rates; the callback "
                "TerminateOnNaN ends fit without an error",
            )


class _TerminateOnNaN(tf.keras.callbacks.TerminateOnNaN):
    """Keras's callback for a model without a log named "loss"."""

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # The sum is not finite if a term is not.
        super().on_batch_end(
            batch, {"loss": np.sum([float(each) for each in (logs or {}).values()])}
        )
