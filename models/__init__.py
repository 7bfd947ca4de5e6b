"""Generators and critics, selected by name from a registry.

Importing this package does not import TensorFlow; building or loading a network does.
Therefore a program can reject an invalid combination without waiting for that import.
"""

from .design import LABELED_CRITICS, Design, DesignError
from .registry import MODELS, Model, Registry, load

build = MODELS.build
check = MODELS.check

__all__ = [
    "LABELED_CRITICS",
    "MODELS",
    "Design",
    "DesignError",
    "Model",
    "Registry",
    "build",
    "check",
    "load",
]
