"""Ends downloads that receive no data; downloads that make progress are not limited."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import sys
from collections.abc import Iterator
from typing import Any

# Seconds to connect to one of a host's addresses, and seconds between two pieces of a response.
# The total time of a download is not limited.
_TIMEOUTS = (5.0, 60.0)
# Retries after connection errors. The default of tensorflow-datasets is ten, with pauses that
# double: three minutes, or half an hour if a firewall drops packets. Retries after responses such
# as "503 busy" stay at ten.
_RETRIES = {"connect": 2, "read": 1, "other": 2}


@contextlib.contextmanager
def giving_up_in_time() -> Iterator[None]:
    """Limits how long requests inside wait, and shows progress bars on a terminal only."""
    import tensorflow_datasets as tfds  # noqa: PLC0415

    _bound_requests()
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    with waiting_at_most():
        yield


@contextlib.contextmanager
def waiting_at_most(seconds: float = _TIMEOUTS[1]) -> Iterator[None]:
    """Sets the default timeout of sockets, which urllib uses, inside the context."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@functools.cache
def _bound_requests() -> None:
    """Sets a timeout and fewer retries for every request of this process without a timeout.

    tensorflow-datasets has no setting for them. The change is permanent: requests that are queued
    when the first download fails are still sent at the end of the program, which waits for them.
    """
    import requests  # noqa: PLC0415

    # The logger would warn about every attempt.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    send = requests.adapters.HTTPAdapter.send

    def bounded(
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

    requests.adapters.HTTPAdapter.send = bounded  # type: ignore[method-assign,assignment]
