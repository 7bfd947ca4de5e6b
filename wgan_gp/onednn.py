"""Chooses oneDNN for TensorFlow's convolutions and matrix products on an x86 CPU.

TensorFlow's own choice depends on the CPU: oneDNN where there is AVX-512 VNNI, Eigen elsewhere. On
a CPU with AVX2 alone, Eigen takes seven times as long for some gradients of convolutions.
TensorFlow reads the choice from the environment once, when it is imported.
"""

from __future__ import annotations

import os
import platform
import sys

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


def prefer() -> None:
    """Chooses oneDNN unless the variable is set; to be called before TensorFlow is imported."""
    if is_x86() and "tensorflow" not in sys.modules and not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = "1"


def warn_if_off() -> None:
    """Prints one line on stderr if oneDNN is off although the user did not turn it off."""
    turned_off = os.environ.get(VARIABLE, "").lower() in ("0", "false")
    if is_x86() and not turned_off and is_on() is False:
        print(
            "warning: TensorFlow runs without oneDNN, so convolutions on this CPU are slow — set "
            f"{VARIABLE}=1 in the environment before Python starts",
            file=sys.stderr,
        )


def is_on() -> bool | None:
    """Returns whether this process's TensorFlow uses oneDNN; None if it does not say."""
    try:
        # TensorFlow has no public name for it.
        from tensorflow.python.util import _pywrap_util_port  # noqa: PLC0415

        return bool(_pywrap_util_port.IsMklEnabled())
    except (ImportError, AttributeError):
        return None


def is_x86() -> bool:
    """Returns whether this machine's processor is one that oneDNN is chosen on."""
    return platform.machine() in ("x86_64", "AMD64")
