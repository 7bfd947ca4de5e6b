"""Chooses the runtime of a run, and connects the run to its devices."""

from __future__ import annotations

import dataclasses
import importlib.util
import typing
from typing import Any

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
      UserError: See `runtime.devices.connect` and `pjrt.devices.connect`; or the other processes
        have other flags, or the batch sizes do not fit the number of replicas.
    """
    if choose_runtime(config) == "pjrt":
        devices = _connect_jax(config)
    else:
        devices = _connect_tensorflow(config)
    if devices.platform == "CPU":
        for unused in unused_devices(config):
            logging.warning(str(unused))
    return devices


def choose_runtime(config: Config, root: str = "/") -> str:
    """Returns "tensorflow" or "pjrt"; --runtime=auto takes pjrt for devices that jax can use.

    Args:
      config: The configuration.
      root: The root of the file system; replaceable by tests.
    """
    if config.runtime != "auto":
        return config.runtime
    return "tensorflow" if why_tensorflow(config, root) else "pjrt"


def why_tensorflow(config: Config, root: str = "/") -> str:
    """Returns the reason why --runtime=auto takes tensorflow, or "" if it takes pjrt.

    Args:
      config: The configuration.
      root: The root of the file system; replaceable by tests.
    """
    if config.tpu is not None:
        installed = installed_versions(["tensorflow-tpu", "jax", "libtpu"])
        reasons = {
            "jax uses only the TPU of this machine": config.tpu != "local",
            "this machine has no TPU chip": not tpu_machine.find_chips(root),
            "tensorflow-tpu is installed": "tensorflow-tpu" in installed,
            "jax and libtpu are not both installed": len(installed) < 2,
        }
    else:
        # With the libraries of CUDA that jax brings, TensorFlow may find the GPU, too.
        reasons = {
            "--cpu_replicas is set": config.cpu_replicas > 1,
            "no NVIDIA GPU is visible": not pjrt.has_nvidia_gpu(root),
            f"jax[cuda12]=={pjrt.REQUIRED['jax']} is not installed": not _has_cuda_plugin(),
        }
    return next((reason for reason, holds in reasons.items() if holds), "")


def unused_devices(config: Config, root: str = "/") -> list[UserError]:
    """Returns a message for each kind of accelerator of this machine that a run on the CPU leaves.

    Args:
      config: The configuration. With --cpu_replicas it asks for the CPU.
      root: The root of the file system; replaceable by tests.
    """
    if config.cpu_replicas > 1:
        return []
    found = []
    if chips := tpu_machine.find_chips(root):
        installed = installed_versions(["tensorflow-tpu", "jax", "libtpu"])
        is_ready = "tensorflow-tpu" in installed or len(installed) == 2
        found.append(
            UserError(
                f"training on the CPU, but this machine has TPU chips ({chips[0]})",
                "give --tpu=local" if is_ready else f"{pjrt.INSTALL_TPU}; then give --tpu=local",
            )
        )
    if pjrt.has_nvidia_gpu(root):
        found.append(
            UserError(
                "training on the CPU, but this machine has an NVIDIA GPU",
                f"{'give --runtime=pjrt' if _has_cuda_plugin() else pjrt.INSTALL_GPU}, or set "
                "CUDA_VISIBLE_DEVICES=-1",
            )
        )
    return found


def _has_cuda_plugin() -> bool:
    """Returns True if jax can use GPUs in the required version; notebooks may have another one."""
    return pjrt.REQUIRED["jax"] in installed_versions(pjrt.CUDA_PLUGINS).values()


def connect_for_inference(config: Config) -> Devices:
    """Connects to the devices that use a saved run.

    Raises:
      UserError: See `runtime.devices.connect` and `pjrt.devices.connect_for_inference`.
    """
    if choose_runtime(config) == "tensorflow":
        return _connect_tensorflow(config)
    _check_pjrt(config)
    from ..pjrt.devices import connect_for_inference as connect_jax  # noqa: PLC0415

    return connect_jax(config)


def tpu_of_tensorflow(config: Config) -> str | None:
    """Returns the value of --tpu if TensorFlow uses the TPU, and None otherwise."""
    uses_jax = config.tpu is not None and choose_runtime(config) == "pjrt"
    return None if uses_jax else config.tpu


def check_jax(purpose: str, install: str = pjrt.INSTALL) -> None:
    """Raises UserError if jax is not installed or lacks what this program uses of it.

    Args:
      purpose: The flag that requires jax.
      install: What to do if it is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        raise UserError(f"{purpose} requires jax, which is not installed", install)
    try:
        from ..pjrt import client  # noqa: F401, PLC0415
    except (ImportError, AttributeError) as error:
        version = installed_versions(["jax"]).get("jax", "of an unknown version")
        raise UserError(
            f"{purpose} cannot use jax {version} ({reason(error)})", pjrt.INSTALL
        ) from error


def _checked(devices: Devices, config: Config) -> Devices:
    """Returns devices whose processes have the same flags and whose number fits the batches."""
    from ..runtime.cluster import check_same_flags  # noqa: PLC0415

    if devices.peers is not None:
        check_same_flags(devices.peers, equal_settings(config))
    config.check_replicas(devices.replicas)
    return devices


def equal_settings(config: Config) -> dict[str, Any]:
    """Returns the settings that must be equal in all processes, by name."""
    fields = dataclasses.fields(config)
    return {f.name: getattr(config, f.name) for f in fields if not f.metadata["per_process"]}


def _connect_tensorflow(config: Config) -> Devices:
    from ..runtime.devices import connect as connect_tensorflow  # noqa: PLC0415

    return _checked(connect_tensorflow(config), config)


def _connect_jax(config: Config) -> Devices:
    """Connects through jax."""
    _check_pjrt(config)
    from ..pjrt import devices  # noqa: PLC0415

    return _checked(devices.connect(config), config)


def _check_pjrt(config: Config) -> None:
    config.check_pjrt()
    check_jax("--runtime=pjrt", pjrt.INSTALL if config.tpu is None else pjrt.INSTALL_TPU)
