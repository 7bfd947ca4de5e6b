"""Chooses the runtime of a run, and connects the run to its devices."""

from __future__ import annotations

import importlib.util
import typing

from absl import logging

from .. import pjrt
from ..config import Config
from ..errors import UserError, reason
from ..runtime import tpu_machine
from ..runtime.tpu_machine import installed_versions

if typing.TYPE_CHECKING:
    from ..runtime.devices import Devices


def connect(config: Config) -> Devices:
    """Connects to the devices that the configuration selects.

    Raises:
      UserError: See `runtime.devices.connect` and `pjrt.devices.connect`.
    """
    if choose_runtime(config) == "pjrt":
        devices = _connect_jax(config)
    else:
        from ..runtime.devices import connect as connect_tensorflow  # noqa: PLC0415

        devices = connect_tensorflow(config)
    if devices.platform == "CPU" and config.cpu_replicas == 1:
        for line in unused_devices():
            logging.warning(line)
    return devices


def choose_runtime(config: Config, root: str = "/") -> str:
    """Returns "tensorflow" or "pjrt"; --runtime=auto takes pjrt for devices that only jax has.

    Args:
      config: The configuration.
      root: The root of the file system; replaceable by tests.
    """
    if config.runtime != "auto":
        return config.runtime
    if config.tpu is not None:
        only_jax = pjrt.has_tpu_of_jax(config.tpu, root)
    else:
        only_jax = (
            config.cpu_replicas == 1
            and pjrt.has_nvidia_gpu(root)
            and bool(installed_versions(pjrt.CUDA_PLUGINS))
            and not _tensorflow_has_gpu()
        )
    return "pjrt" if only_jax else "tensorflow"


def unused_devices(root: str = "/") -> list[str]:
    """Returns a line for each kind of accelerator of this machine that a run on the CPU leaves.

    Args:
      root: The root of the file system; replaceable by tests.
    """
    lines = []
    if chips := tpu_machine.find_chips(root):
        lines.append(
            f"training on the CPU, but this machine has TPU chips ({chips[0]}) — give --tpu=local"
        )
    if pjrt.has_nvidia_gpu(root):
        lines.append(
            "training on the CPU, but this machine has an NVIDIA GPU — "
            f"{pjrt.INSTALL_GPU} for --runtime=pjrt, or set CUDA_VISIBLE_DEVICES=-1"
        )
    return lines


def _tensorflow_has_gpu() -> bool:
    from ..runtime.devices import has_gpu  # noqa: PLC0415  (imports TensorFlow)

    return has_gpu()


def connect_for_inference(config: Config) -> Devices:
    """Connects to the devices that use a saved run; those of jax only train.

    Raises:
      UserError: See `runtime.devices.connect`.
    """
    if choose_runtime(config) == "tensorflow":
        return connect(config)
    from ..runtime.devices import connect_cpu  # noqa: PLC0415

    return connect_cpu()


def tpu_of_tensorflow(config: Config) -> str | None:
    """Returns the value of --tpu if TensorFlow uses the TPU, and None otherwise."""
    uses_jax = config.tpu is not None and choose_runtime(config) == "pjrt"
    return None if uses_jax else config.tpu


def check_jax(purpose: str) -> None:
    """Raises UserError if jax is not installed or lacks what this program uses of it.

    Args:
      purpose: The flag that requires jax.
    """
    if importlib.util.find_spec("jax") is None:
        raise UserError(f"{purpose} requires jax, which is not installed", pjrt.INSTALL)
    try:
        from ..pjrt import client  # noqa: F401, PLC0415
    except (ImportError, AttributeError) as error:
        version = installed_versions(["jax"]).get("jax", "of an unknown version")
        raise UserError(
            f"{purpose} cannot use jax {version} ({reason(error)})", pjrt.INSTALL
        ) from error


def _connect_jax(config: Config) -> Devices:
    """Connects through jax."""
    config.check_pjrt()
    check_jax("--runtime=pjrt")
    from ..pjrt.devices import connect as connect_jax  # noqa: PLC0415

    return connect_jax(config)
