"""What TensorFlow raises in the midst of training, in words."""

from __future__ import annotations

import tensorflow as tf

from .config import Config
from .data.pipeline import NOT_ONE
from .errors import UserError
from .workers import Workers

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


def explain(error: tf.errors.OpError, config: Config, workers: Workers) -> UserError | None:
    """The user's error behind one of TensorFlow's; None where it is no user's."""
    if len(workers.addresses) > 1 and isinstance(error, _LOST):
        return UserError(
            f"another process of TF_CONFIG is gone ({type(error).__name__})",
            "start the same command on every machine: training goes on from the last checkpoint "
            f"in {config.run_directory}",
        )
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(
            f"the memory does not hold this run ({error.message.partition(chr(10))[0][:200]})",
            "use a smaller --batch_size or --model_width; --mode=compile says what a TPU holds",
        )
    if NOT_ONE in error.message:
        return UserError(
            f"--data_dir={config.data_dir}: of a whole batch not one image could be read",
            "see to the files; training goes on from the last checkpoint",
        )
    return None
