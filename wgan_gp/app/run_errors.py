"""Explanations of errors that TensorFlow raises during a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ..config import PYTHON, Config
from ..data.pipeline_errors import user_error_of
from ..errors import UserError, reason
from ..runtime.cluster import Cluster, find_cluster, lost_peer
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
                f"{_origin(config.dataset)} has no examples when it is read again",
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
        return lost_peer(f"{type(error).__name__}: {reason(error)}")
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(
            f"the run does not fit in memory ({reason(error)})",
            "use a smaller --batch_size or --model_width; for a TPU, --mode=compile reports the "
            "required memory",
        )
    if explained := user_error_of(error):
        return explained
    # TensorFlow's text of an error in reading a tf.data.Dataset, here one of the user.
    if _is_user_code(config.dataset) and "GetNext" in error.message:
        return UserError(f"{_origin(config.dataset)} failed ({reason(error)})", "correct it")
    return None


def _is_user_code(dataset: str) -> bool:
    return dataset == PYTHON or is_reference(dataset)


def _origin(dataset: str) -> str:
    """Returns the argument or the flag of the data, for messages."""
    return "data" if dataset == PYTHON else f"--dataset={dataset}"
