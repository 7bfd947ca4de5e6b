"""Explanations of errors that TensorFlow raises during a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ..config import PYTHON, Config, registered_names
from ..data.decoding import explain_cropping
from ..data.encoded_images import LABEL_OUT_OF_RANGE
from ..data.substitution import TOO_MANY_UNREADABLE
from ..errors import UserError, reason
from ..runtime.cluster import Cluster, find_cluster
from .user_code.loading import is_reference

_LOST_CONNECTION = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


@contextlib.contextmanager
def explaining_errors(config: Config) -> Iterator[None]:
    """Raises a UserError in place of an error of TensorFlow whose cause is known.

    Args:
      config: The configuration of the run.
    """
    try:
        yield
    except (tf.errors.OpError, StopIteration) as error:
        if isinstance(error, (tf.errors.OutOfRangeError, StopIteration)):
            raise UserError(
                f"{_origin('', config)} has no examples when it is read again",
                "return a dataset that can be read several times",
            ) from error
        if explained := explain_error(error, config, find_cluster(config)):
            raise explained from error
        raise


def explain_error(error: tf.errors.OpError, config: Config, cluster: Cluster) -> UserError | None:
    """Returns a UserError that explains an error of TensorFlow, or None if its cause is unknown.

    Args:
      error: The error of TensorFlow.
      config: The configuration of the run.
      cluster: The processes that train together.
    """
    peer_is_lost = isinstance(error, _LOST_CONNECTION) or (
        isinstance(error, tf.errors.InternalError) and "ollective" in error.message
    )
    if cluster.has_peers and peer_is_lost:
        return UserError(
            f"another process of TF_CONFIG has ended ({type(error).__name__}: {reason(error)})",
            "start the same command on every machine: training continues from the last checkpoint "
            f"in {config.run_directory}",
        )
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(
            f"the run does not fit in memory ({reason(error)})",
            "use a smaller --batch_size or --model_width; for a TPU, --mode=compile reports the "
            "required memory",
        )
    origin = _origin(error.message, config)
    if LABEL_OUT_OF_RANGE in error.message and config.num_classes is not None:
        return UserError(
            f"{origin} has a label outside the range 0 to {config.num_classes - 1} of "
            f"--num_classes={config.num_classes}",
            "set --num_classes to the number of classes in the data",
        )
    if LABEL_OUT_OF_RANGE in error.message:
        return UserError(f"{origin} has a label outside its classes", "prepare the dataset again")
    if TOO_MANY_UNREADABLE in error.message:
        return UserError(
            f"{origin}: {TOO_MANY_UNREADABLE}",
            "check the disk or the network, delete the damaged files, and start again",
        )
    return _explain_own_data(error, origin, config.dataset) or explain_cropping(error, origin)


def _explain_own_data(error: tf.errors.OpError, origin: str, name: str) -> UserError | None:
    """Returns a UserError for an error in reading a tf.data.Dataset of the user, else None."""
    is_own = name == PYTHON or is_reference(name) or name in registered_names("dataset")
    if is_own and "GetNext" in error.message:
        return UserError(f"{origin} failed ({reason(error)})", "correct it")
    return None


def _origin(message: str, config: Config) -> str:
    """Returns the flag of the data to which an error message refers."""
    if config.dataset == PYTHON:
        return "data"
    if config.dataset not in ("image_folder", "tfrecord"):
        return f"--dataset={config.dataset}"
    if config.test_data_dir is not None and f"--data_dir={config.test_data_dir}: " in message:
        return f"--test_data_dir={config.test_data_dir}"
    return f"--data_dir={config.data_dir}"
