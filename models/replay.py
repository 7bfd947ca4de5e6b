"""Values that a recomputation takes from the first pass instead of computing them again."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# Adds a value of the first pass, or returns it in a recomputation; None outside `with_replay`.
_exchange: contextvars.ContextVar[Callable[[Callable[[], Any]], Any] | None] = (
    contextvars.ContextVar("exchange", default=None)
)


def first_pass(compute: Callable[[], T]) -> T:
    """Returns the value of a function, which is not called again in a recomputation.

    A layer that updates a variable reads and updates it within such functions. A recomputation
    then neither repeats the update nor depends on the new value.

    Args:
      compute: Returns tensors through which no gradient flows, or None.
    """
    exchange = _exchange.get()
    return compute() if exchange is None else exchange(compute)


def with_replay(function: Callable[..., T]) -> Callable[..., T]:
    """Returns the function, whose second and later calls get the `first_pass` values of the first.

    Args:
      function: Calls `first_pass` equally often, in the same order, whenever it is called.
    """
    values: list[Any] | None = None

    def call(*inputs: Any) -> T:
        nonlocal values
        if values is None:
            values = recorded = []

            def exchange(compute: Callable[[], Any]) -> Any:
                recorded.append(compute())
                return recorded[-1]
        else:
            remaining = iter(values)

            def exchange(compute: Callable[[], Any]) -> Any:
                return next(remaining)

        with _exchanging(exchange):
            return function(*inputs)

    return call


@contextlib.contextmanager
def _exchanging(exchange: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    token = _exchange.set(exchange)
    try:
        yield
    finally:
        _exchange.reset(token)
