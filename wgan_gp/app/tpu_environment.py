"""Environment variables that tensorflow-tpu reads when it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from absl import logging

from ..runtime import tpu_machine

# TensorFlow reaches these through libtpu's PJRT interface, and earlier ones through libtpu's older
# interface. With the variables of PJRT on a machine without such a chip, importing TensorFlow ends
# the process with a segmentation fault.
_WITH_PJRT = ("v5p", "v5e", "v6e")


def prepare(
    tpu: str | None, environment: MutableMapping[str, str] = os.environ, root: str = "/"
) -> None:
    """Sets the variables that TensorFlow needs for a TPU, if tensorflow-tpu is installed.

    Variables that are already set keep their values. Call this before TensorFlow is imported.

    Args:
      tpu: The value of --tpu.
      environment: The environment variables.
      root: The root of the file system; replaceable by tests.
    """
    if not tpu_machine.installed_versions(["tensorflow-tpu"]) or "tensorflow" in sys.modules:
        return
    if tpu != "local":
        # Only one process can use the chips of a machine. A run on the CPU leaves them to others,
        # and a TPU given by its name or address belongs to its own TensorFlow servers.
        environment.setdefault("TPU_LOAD_LIBRARY", "0")
        return
    library = tpu_machine.find_libtpu(environment)
    if library is None:
        return
    environment["TPU_LIBRARY_PATH"] = library
    generation = tpu_machine.find_generation(root)
    if generation in _WITH_PJRT:
        environment.setdefault("NEXT_PLUGGABLE_DEVICE_USE_C_API", "true")
        environment.setdefault("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", library)
        logging.info(f"this machine has TPU {generation} chips: TensorFlow uses PJRT")
    elif (
        generation is None
        and tpu_machine.find_chips(root)
        and "NEXT_PLUGGABLE_DEVICE_USE_C_API" not in environment
    ):
        logging.warning(
            "the generation of this machine's TPU chips is unknown — for v5e or newer, set "
            "NEXT_PLUGGABLE_DEVICE_USE_C_API=true and "
            f"TF_PLUGGABLE_DEVICE_LIBRARY_PATH={library}"
        )
