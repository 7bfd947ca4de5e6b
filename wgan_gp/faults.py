"""What TensorFlow raises in the midst of training, in words."""

from __future__ import annotations

import tensorflow as tf

from .config import Config
from .data.collection import WRONG_LABEL
from .data.gaps import NOT_ONE
from .errors import UserError, reason
from .workers import Workers

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


def explain(error: tf.errors.OpError, config: Config, workers: Workers) -> UserError | None:
    """The user's error behind one of TensorFlow's; None where it is no user's."""
    of_a_peer = isinstance(error, _LOST) or (
        isinstance(error, tf.errors.InternalError) and "ollective" in error.message
    )
    if len(workers.addresses) > 1 and of_a_peer:
        return UserError(
            f"another process of TF_CONFIG is gone ({type(error).__name__}: {reason(error)})",
            "start the same command on every machine: training goes on from the last checkpoint "
            f"in {config.run_directory}",
        )
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(
            f"the memory does not hold this run ({reason(error)})",
            "use a smaller --batch_size or --model_width; --mode=compile says what a TPU holds",
        )
    if WRONG_LABEL in error.message:
        return UserError(
            f"--num_classes={config.num_classes}: a label of --data_dir={config.data_dir} is "
            "beyond them",
            "give as many classes as there are",
        )
    if NOT_ONE in error.message:
        return UserError(
            f"--data_dir={config.data_dir}: {NOT_ONE}",
            "see to the disk or the network, delete the files that are damaged, and start again",
        )
    return None
