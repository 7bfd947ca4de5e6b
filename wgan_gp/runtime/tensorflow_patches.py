"""Replaced parts of TensorFlow, Keras and tensorflow-datasets, and why each is replaced.

tests/training/test_tensorflow_patches.py shows each fault in the installed versions (TensorFlow
2.20, Keras 3.12, tensorflow-datasets 4.9), and fails once a patch is no longer needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import _pywrap_tfe
from tensorflow.python.data.ops import multi_device_iterator_ops

if TYPE_CHECKING:
    import requests

# Seconds to connect to an address of a host, and seconds between two parts of a response. The
# total time of a download is not limited.
DOWNLOAD_TIMEOUTS = (5.0, 60.0)
# Retries after connection errors. The ten retries after responses such as "503 Service
# Unavailable" are kept.
_RETRIES = {"connect": 2, "read": 1, "other": 2}
_ERROR = 2  # of the levels of Abseil's log: information, warnings, errors


def hide_information_of_xla() -> None:
    """Hides information and warnings of Abseil's log, as far as TF_CPP_MIN_LOG_LEVEL says.

    A part of TensorFlow, XLA among it, writes to this log, which ignores the variable. The first
    compilation would print two lines. Errors are always shown. TensorFlow has no function for the
    level, so that the one of Abseil is called, if this version of TensorFlow exports it.
    """
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0")
    library = _pywrap_tfe.__file__
    release = re.search(rb"4absl12(lts_\d{8})", pathlib.Path(library).read_bytes())
    if release is None or not level.isdecimal():
        return
    name = f"_ZN4absl12{release[1].decode()}14SetMinLogLevelENS0_18LogSeverityAtLeastE"
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(library)[name](min(int(level), _ERROR))


@contextlib.contextmanager
def no_autotune_of_copies() -> Iterator[None]:
    """Turns autotuning off in the datasets that copy the elements of an iterator to each replica.

    TensorFlow creates them when it distributes a dataset, with autotuning and without public
    options. An iterator ends only after the tuner's next iteration, and the intervals between these
    double up to a minute, so that each copy would delay the end of training.
    """
    original = getattr(multi_device_iterator_ops, "_create_device_dataset", None)
    if original is None:  # another version of TensorFlow
        yield
        return

    def create(*args: Any, **kwargs: Any) -> tf.data.Dataset:
        options = tf.data.Options()
        options.autotune.enabled = False
        return original(*args, **kwargs).with_options(options)

    multi_device_iterator_ops._create_device_dataset = create
    try:
        yield
    finally:
        multi_device_iterator_ops._create_device_dataset = original


class NoSymbolicBuild:
    """A base class of Keras models that are built before `fit`, `evaluate` and `predict`.

    Under a tf.distribute.Strategy, Keras takes a batch of the data to build the model, even if the
    model is built, and discards it. The first batch of a Python iterator would be lost.
    """

    def _maybe_symbolic_build(self, *_: Any, **__: Any) -> None:
        """Does nothing."""


@contextlib.contextmanager
def redirected_losses(
    layers: Iterable[tf.keras.layers.Layer], add_loss: Callable[[Any], None]
) -> Iterator[None]:
    """Passes the losses that layers add in their calls inside to a function.

    - A layer of Keras 3 has one list of losses. MirroredStrategy calls the layer for each replica
      in a thread of its own, and synchronized batch normalization interrupts these calls, so that
      the list would hold losses of several replicas. `add_loss` can tell the threads apart.
    - Keras documents that the loss of an activity regularizer is divided by the batch size, but
      Keras 3 adds the sum over the batch, which depends on the number of replicas and of
      micro-batches. Here it is divided.
    """
    with contextlib.ExitStack() as restored:
        for layer in layers:
            layer.add_loss = add_loss
            restored.callback(delattr, layer, "add_loss")
            if (regularizer := layer.activity_regularizer) is not None:
                layer.activity_regularizer = _mean_over_batch(regularizer)
                restored.callback(setattr, layer, "activity_regularizer", regularizer)
        yield


def _mean_over_batch(regularizer: Callable) -> Callable[[tf.Tensor], tf.Tensor]:
    def mean(output: tf.Tensor) -> tf.Tensor:
        total = regularizer(tf.cast(output, tf.float32))  # bfloat16 would round the sum
        return total / tf.cast(tf.shape(output)[0], total.dtype)

    return mean


@functools.cache
def limit_requests() -> None:
    """Sets a timeout and fewer retries for all requests of this process that have no timeout.

    tensorflow-datasets downloads without a timeout, and retries ten times with doubling pauses,
    which takes three minutes, or half an hour if a firewall drops packets. It has no setting for
    this. The change is permanent, because requests that are queued when the first download fails
    are still sent, and the end of the program waits for them.
    """
    import requests  # noqa: PLC0415

    # The logger would warn about every attempt.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    send = requests.adapters.HTTPAdapter.send

    def send_with_timeout(
        adapter: requests.adapters.HTTPAdapter,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        *rest: Any,
        **given: Any,
    ) -> requests.Response:
        if timeout is None:
            timeout = DOWNLOAD_TIMEOUTS
            adapter.max_retries = adapter.max_retries.new(**_RETRIES)
        return send(adapter, request, stream, timeout, *rest, **given)

    requests.adapters.HTTPAdapter.send = send_with_timeout  # type: ignore[method-assign,assignment]
