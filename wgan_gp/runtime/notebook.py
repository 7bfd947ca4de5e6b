"""Detects a notebook."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Returns True in a notebook of Jupyter, Colab or Kaggle. Does not import IPython."""
    # Only a program that runs in IPython has this module, or one that imported it by itself.
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    # IPython in a terminal has no kernel.
    return hasattr(get_ipython(), "kernel")
