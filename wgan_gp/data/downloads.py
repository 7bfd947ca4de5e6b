"""Timeouts for downloads that receive no data; downloads that make progress are not limited."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import sys
from collections.abc import Iterator
from typing import Any

# Seconds to connect to an address of a host, and seconds between two parts of a response. The
# total time of a download is not limited.
_TIMEOUTS = (5.0, 60.0)
# Retries after connection errors. tensorflow-datasets retries ten times with doubling pauses, which
# takes three minutes, or half an hour if a firewall drops packets. The ten retries after responses
# such as "503 Service Unavailable" are kept.
_RETRIES = {"connect": 2, "read": 1, "other": 2}


@contextlib.contextmanager
def limit_downloads() -> Iterator[None]:
    """Sets timeouts for requests inside the context; shows progress bars only on a terminal."""
    import tensorflow_datasets as tfds  # noqa: PLC0415

    _limit_requests()
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    with socket_timeout():
        yield


@contextlib.contextmanager
def socket_timeout(seconds: float = _TIMEOUTS[1]) -> Iterator[None]:
    """Sets the default timeout of sockets, which urllib uses, inside the context."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@functools.cache
def _limit_requests() -> None:
    """Sets a timeout and fewer retries for all requests of this process that have no timeout.

    tensorflow-datasets has no setting for this. The change is permanent, because requests that are
    queued when the first download fails are still sent, and the end of the program waits for them.
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
            timeout = _TIMEOUTS
            adapter.max_retries = adapter.max_retries.new(**_RETRIES)
        return send(adapter, request, stream, timeout, *rest, **given)

    requests.adapters.HTTPAdapter.send = send_with_timeout  # type: ignore[method-assign,assignment]
