"""oneDNN for TensorFlow's convolutions and matrix products on x86 CPUs.

By default, TensorFlow uses oneDNN only on CPUs with AVX-512 VNNI, and Eigen on all others. On a
CPU with AVX2 only, Eigen takes seven times as long for some gradients of convolutions. TensorFlow
reads the environment variable once, when it is imported.
"""

from __future__ import annotations

import os
import platform
import sys

from absl import logging

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


def enable() -> None:
    """Enables oneDNN unless the variable is set. Call it before TensorFlow is imported."""
    if is_x86() and "tensorflow" not in sys.modules and not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = "1"


def warn_if_off() -> None:
    """Warns on stderr if oneDNN is disabled, but not by the user."""
    disabled_by_user = os.environ.get(VARIABLE, "").lower() in ("0", "false")
    if is_x86() and not disabled_by_user and is_on() is False:
        logging.warning(
            "TensorFlow does not use oneDNN, so convolutions on this CPU are slow — set "
            f"{VARIABLE}=1 in the environment before Python starts"
        )


def is_on() -> bool | None:
    """Returns True if this process's TensorFlow uses oneDNN, or None if unknown."""
    try:
        # TensorFlow has no public function for this.
        from tensorflow.python.util import _pywrap_util_port  # noqa: PLC0415

        return bool(_pywrap_util_port.IsMklEnabled())
    except (ImportError, AttributeError):
        return None


def is_x86() -> bool:
    """Returns True if this machine has an x86-64 processor."""
    return platform.machine() in ("x86_64", "AMD64")
