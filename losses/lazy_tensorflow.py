"""TensorFlow, which is imported when something is computed and not when `losses` is imported.

A program can therefore ask for the names of losses and penalties, and reject an invalid one,
without waiting for that import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class _TensorFlow:
    def __getattr__(self, name: str) -> Any:
        import tensorflow  # noqa: PLC0415

        return getattr(tensorflow, name)


if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _TensorFlow()

__all__ = ["tf"]
