"""Generators and critics, selected by name from a registry.

Importing this package does not import TensorFlow; building or loading a network does.
Therefore a program can reject an invalid combination without waiting for that import.
"""

from .registry import MODELS, build, check, default, load

__all__ = ["MODELS", "build", "check", "default", "load"]
