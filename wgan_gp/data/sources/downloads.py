"""Timeouts for downloads that receive no data; downloads that make progress are not limited."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

from ...runtime.streams import is_terminal
from ...runtime.tensorflow_patches import DOWNLOAD_TIMEOUTS, limit_requests


@contextlib.contextmanager
def limit_downloads() -> Iterator[None]:
    """Sets timeouts for requests inside the context; shows progress bars only on a terminal."""
    import tensorflow_datasets as tfds  # noqa: PLC0415

    limit_requests()
    if not is_terminal(sys.stderr):
        tfds.disable_progress_bar()
    with socket_timeout():
        yield


@contextlib.contextmanager
def socket_timeout(seconds: float = DOWNLOAD_TIMEOUTS[1]) -> Iterator[None]:
    """Sets the default timeout of sockets, which urllib uses, inside the context."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
