"""Replaced parts of TensorFlow, Keras and tensorflow-datasets, and why each is replaced.

tests/training/test_tensorflow_patches.py shows each fault in the installed versions (TensorFlow
2.20, Keras 3.12, tensorflow-datasets 4.9), and fails once a patch is no longer needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import mmap
import os
import re
from collections.abc import Iterator
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
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        # It is near the beginning, so that little of the file is read.
        found = re.search(rb"4absl12(lts_\d{8})", text)
        release = None if found is None else found[1].decode()
    if release is None or not level.isdecimal():
        return
    name = f"_ZN4absl12{release}14SetMinLogLevelENS0_18LogSeverityAtLeastE"
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
