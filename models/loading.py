"""Loads networks from files."""

from __future__ import annotations

import importlib
import typing

from .registry import MODELS

if typing.TYPE_CHECKING:
    import tensorflow as tf


def load(path: str) -> tf.keras.Model:
    """Loads a generator or a critic from a Keras file.

    Keras can load custom layers only if they are registered. The layers of this package are
    registered when their modules are imported.

    Args:
      path: A file on this machine.
    """
    import tensorflow as tf  # noqa: PLC0415

    for model in MODELS.values():
        importlib.import_module(f".{model.module}", __package__)
    return tf.keras.models.load_model(path)
