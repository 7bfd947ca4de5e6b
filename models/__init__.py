"""Generators and critics, selected by name from a registry.

Importing this package does not import TensorFlow; building or loading a network does.
Therefore a program can reject an invalid combination without waiting for that import.
"""

from .design import LABELED_CRITICS
from .errors import DesignError, Setting, format_message
from .loading import load
from .registry import MODELS, SETTINGS, Model, build, check, default

__all__ = [
    "LABELED_CRITICS",
    "MODELS",
    "SETTINGS",
    "DesignError",
    "Model",
    "Setting",
    "build",
    "check",
    "default",
    "format_message",
    "load",
]
