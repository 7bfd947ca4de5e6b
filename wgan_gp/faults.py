"""Explains errors that TensorFlow raises during a run."""

from __future__ import annotations

import tensorflow as tf

from .config import Config
from .data.collection import WRONG_LABEL
from .data.gaps import NOT_ONE
from .errors import UserError, reason
from .workers import Cluster

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


def explain_error(error: tf.errors.OpError, config: Config, cluster: Cluster) -> UserError | None:
    """Returns the user's error that explains an error of TensorFlow, or None if unknown."""
    of_a_peer = isinstance(error, _LOST) or (
        isinstance(error, tf.errors.InternalError) and "ollective" in error.message
    )
    if cluster.has_peers and of_a_peer:
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
    origin = _origin(error.message, config)
    if WRONG_LABEL in error.message and config.num_classes is not None:
        return UserError(
            f"{origin} has a label beyond --num_classes={config.num_classes}, which means "
            f"0 ... {config.num_classes - 1}",
            "give as many classes as there are",
        )
    if WRONG_LABEL in error.message:
        return UserError(f"{origin} has a label beyond its classes", "prepare the dataset again")
    if NOT_ONE in error.message:
        return UserError(
            f"{origin}: {NOT_ONE}",
            "see to the disk or the network, delete the files that are damaged, and start again",
        )
    return None


def _origin(message: str, config: Config) -> str:
    """Returns the flag of the data to which a message refers."""
    if config.dataset not in ("image_folder", "tfrecord"):
        return f"--dataset={config.dataset}"
    if config.test_data_dir is not None and f"--data_dir={config.test_data_dir}: " in message:
        return f"--test_data_dir={config.test_data_dir}"
    return f"--data_dir={config.data_dir}"
