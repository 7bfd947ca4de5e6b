"""Connects a run to its devices, through TensorFlow or through jax."""

from __future__ import annotations

from ..config import Config
from ..runtime import devices
from ..runtime.devices import Devices


def connect(config: Config) -> Devices:
    """Connects to the devices that the configuration selects.

    Raises:
      UserError: See `runtime.devices.connect` and `pjrt.devices.connect`.
    """
    if config.runtime == "tensorflow":
        return devices.connect(config)
    from ..pjrt.devices import connect as connect_jax  # noqa: PLC0415

    return connect_jax(config)
