"""Environment variables that tensorflow-tpu reads when it is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import sys
from collections.abc import MutableMapping

from absl import logging

PCI_DEVICES = pathlib.Path("/sys/bus/pci/devices")
_GOOGLE = "0x1ae0"
# The PCI device IDs of TPU chips, from jax/_src/hardware_utils.py. v2 and v3 share one.
GENERATIONS = {
    "0x0027": "v2 or v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
}
# TensorFlow reaches these through libtpu's PJRT interface, and earlier ones through libtpu's older
# interface. With the variables of PJRT on a machine without such a chip, importing TensorFlow ends
# the process with a segmentation fault.
_WITH_PJRT = ("v5p", "v5e", "v6e")


def prepare(
    tpu: str | None,
    environment: MutableMapping[str, str] = os.environ,
    pci_devices: pathlib.Path = PCI_DEVICES,
) -> None:
    """Sets the variables that TensorFlow needs for a TPU, if tensorflow-tpu is installed.

    Variables that are already set keep their values. Call this before TensorFlow is imported.

    Args:
      tpu: The value of --tpu.
      environment: The environment variables.
      pci_devices: The directory that describes the PCI devices of this machine.
    """
    if not has_tpu_wheel() or "tensorflow" in sys.modules:
        return
    if tpu != "local":
        # Only one process can use the chips of a machine. A run on the CPU leaves them to others,
        # and a TPU given by its name or address belongs to its own TensorFlow servers.
        environment.setdefault("TPU_LOAD_LIBRARY", "0")
        return
    library = find_library()
    if library is None:
        return
    environment.setdefault("TPU_LIBRARY_PATH", library)
    generation = find_generation(pci_devices)
    if generation in _WITH_PJRT:
        environment.setdefault("NEXT_PLUGGABLE_DEVICE_USE_C_API", "true")
        environment.setdefault("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", environment["TPU_LIBRARY_PATH"])
        logging.info(f"this machine has TPU {generation} chips: TensorFlow uses PJRT")
    elif generation is None and "NEXT_PLUGGABLE_DEVICE_USE_C_API" not in environment:
        logging.warning(
            "no known TPU chip was found on this machine — if it has chips of v5e or newer, set "
            "NEXT_PLUGGABLE_DEVICE_USE_C_API=true and TF_PLUGGABLE_DEVICE_LIBRARY_PATH="
            f"{environment['TPU_LIBRARY_PATH']}"
        )


def has_tpu_wheel() -> bool:
    """Returns True if tensorflow-tpu is installed."""
    try:
        importlib.metadata.version("tensorflow-tpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def find_library() -> str | None:
    """Returns the path of the installed package libtpu's library, or None if there is none."""
    spec = importlib.util.find_spec("libtpu")
    if spec is None or spec.origin is None:
        return None
    path = pathlib.Path(spec.origin).parent / "libtpu.so"
    return str(path) if path.exists() else None


def find_generation(pci_devices: pathlib.Path = PCI_DEVICES) -> str | None:
    """Returns the generation of this machine's TPU chips, such as "v5e", or None if unknown.

    Args:
      pci_devices: The directory that describes the PCI devices of this machine.
    """
    for vendor in sorted(pci_devices.glob("*/vendor")):
        try:
            if vendor.read_text().strip() == _GOOGLE:
                generation = GENERATIONS.get((vendor.parent / "device").read_text().strip())
                if generation is not None:
                    return generation
        except OSError:
            continue  # the device was removed, or is not readable here
    return None
