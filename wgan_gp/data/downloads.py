"""Ends a download where nothing answers, and none that goes on."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import sys
from collections.abc import Iterator
from typing import Any

# Seconds: to connect to one of a host's addresses; between two pieces of an answer. However long a
# download takes, it goes on as long as pieces come.
_TIMEOUTS = (5.0, 60.0)
# After the first try, where tensorflow-datasets has ten with pauses that double: three minutes,
# or, where a firewall drops what is sent, half an hour. Those after answers such as "503 busy", by
# hosts that are there, stay ten.
_RETRIES = {"connect": 2, "read": 1, "other": 2}


@contextlib.contextmanager
def giving_up_in_time() -> Iterator[None]:
    """Bounds the waiting of the requests inside, and shows bars on a terminal only."""
    import tensorflow_datasets as tfds  # noqa: PLC0415

    _bound_requests()
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    with waiting_at_most():
        yield


@contextlib.contextmanager
def waiting_at_most(seconds: float = _TIMEOUTS[1]) -> Iterator[None]:
    """Bounds how long sockets wait for each piece, unless they say it, as urllib's do not."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@functools.cache
def _bound_requests() -> None:
    """Gives every request of this process that has no timeout one, and fewer retries.

    tensorflow-datasets has no setting for either. For good: what it has queued when the first
    download fails is still tried at the end of the program, which waits for it.
    """
    import requests  # noqa: PLC0415

    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it warns of every attempt
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
