"""Generators and critics, chosen by name from one registry.

Importing this package does not import TensorFlow; building or loading a network
does. So the command line can refuse an impossible combination at once.
"""

from .errors import Choice, DesignError, spelled
from .registry import LABELED_CRITICS, MODELS, build, check, default, load

__all__ = [
    "LABELED_CRITICS",
    "MODELS",
    "Choice",
    "DesignError",
    "build",
    "check",
    "default",
    "load",
    "spelled",
]
