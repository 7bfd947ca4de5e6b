"""The facts that --mode=doctor judges: this machine, its software and the flags."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import psutil

from ... import pjrt
from ...config import Config
from ...runtime import tpu_machine
from .. import connection

PACKAGES = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-tpu",
    "keras",
    "tf_keras",
    "protobuf",
    "libtpu",
    "jax",
    "jaxlib",
    *pjrt.CUDA_PLUGINS,
    "google-api-python-client",
    "oauth2client",
    "cloud-tpu-client",
)

# Prints the version, the device types, and whether there is a kernel for TPUs.
_INSPECT_TENSORFLOW = """
import json
import tensorflow as tf
from tensorflow.python.framework import kernels
devices = [device.device_type for device in tf.config.list_physical_devices()]
tpu = bool(kernels.get_registered_kernels_for_op("TPUExecute").kernel)
print(json.dumps([tf.__version__, devices, tpu]))
"""

# Prints the platform and the kind of each device.
_INSPECT_JAX = """
import json
import jax
print(json.dumps([[device.platform.upper(), device.device_kind] for device in jax.devices()]))
"""


class NotChecked(str):
    """The reason why a check is impossible or unnecessary."""

    __slots__ = ()


class TensorFlow(NamedTuple):
    """TensorFlow, imported in a process of its own.

    Attributes:
      version: The version, or "" if TensorFlow cannot be imported.
      devices: The types of all devices that it lists.
      supports_tpu: Whether it was built for TPUs.
      error: The reason why it cannot be imported, or "".
    """

    version: str = ""
    devices: tuple[str, ...] = ()
    supports_tpu: bool = False
    error: str = ""


class Jax(NamedTuple):
    """The devices of jax, asked in a process of its own.

    Attributes:
      devices: The platform and the kind of each device, such as ("GPU", "NVIDIA H100").
      error: The reason why jax cannot use them, or "".
    """

    devices: tuple[tuple[str, str], ...] = ()
    error: str = ""


class Facts:
    """The facts that checks judge; each is found when a check first asks for it.

    Args:
      config: The configuration.
      environment: The environment variables.
      known: Facts that are not looked for, by name; tests give them.
    """

    def __init__(
        self, config: Config, environment: Mapping[str, str] = os.environ, **known: object
    ):
        self.config = config
        self.environment = environment
        vars(self).update(known)

    @functools.cached_property
    def versions(self) -> dict[str, str]:
        """The versions of the installed packages, of those in `PACKAGES`."""
        return tpu_machine.installed_versions(PACKAGES)

    @functools.cached_property
    def chips(self) -> list[str]:
        """The TPU chips of this machine."""
        return tpu_machine.find_chips()

    @functools.cached_property
    def user(self) -> tpu_machine.Process | None:
        """Another process that uses the chips."""
        return tpu_machine.find_user()

    @functools.cached_property
    def libtpu(self) -> str | None:
        """The path of libtpu."""
        return tpu_machine.find_libtpu(self.environment)

    @functools.cached_property
    def memory(self) -> int:
        """The memory, in bytes, that programs can use without swapping."""
        return psutil.virtual_memory().available

    @functools.cached_property
    def folder(self) -> str:
        """The nearest parent of the run directory that exists on a disk of this machine."""
        # TensorFlow collects the parts of a file for gs:// in the folder of temporary files.
        path = self.config.run_directory
        return existing_parent(tempfile.gettempdir() if "://" in path else path)

    @functools.cached_property
    def space(self) -> int:
        """The free space, in bytes, of the disk of `folder`."""
        return shutil.disk_usage(self.folder).free

    @functools.cached_property
    def runtime(self) -> str:
        """The runtime of the run; see `connection.choose_runtime`."""
        return connection.choose_runtime(self.config)

    @functools.cached_property
    def tensorflow(self) -> TensorFlow:
        """TensorFlow in another process, because an unsuitable libtpu ends the process."""
        found, error = _run_python(_INSPECT_TENSORFLOW, self.environment, seconds=300)
        return TensorFlow(error=error) if error else TensorFlow(*found)

    @functools.cached_property
    def jax(self) -> Jax | None:
        """The devices of jax, or None if it is not asked."""
        return inspect_jax(self.platforms, self.environment) if self.platforms else None

    @functools.cached_property
    def platforms(self) -> str:
        """The platforms that jax is asked for, or "" if it is not asked.

        A TPU is opened only for a run that uses it through jax, and if no other process does.
        """
        if "jax" not in self.versions:
            return ""
        if self.config.tpu == "local" and self.runtime == "pjrt":
            return "" if self.user else "tpu,cpu"
        has_plugin = any(plugin in self.versions for plugin in pjrt.CUDA_PLUGINS)
        return "cuda,cpu" if has_plugin and pjrt.has_nvidia_gpu() else "cpu"

    @property
    def trains_on_chips(self) -> bool:
        """True if TensorFlow trains on this machine's chips; without any, it cannot."""
        uses_jax = self.runtime == "pjrt"
        return bool(self.chips) and self.config.tpu == "local" and not uses_jax


def inspect_jax(platforms: str, environment: Mapping[str, str] = os.environ) -> Jax:
    """Asks jax for the devices of the first platform that works, in another process.

    Args:
      platforms: The platforms, such as "cuda,cpu". Those of a TPU are opened.
      environment: The environment variables.
    """
    # By default, jax takes most of the memory of a GPU.
    variables = {"JAX_PLATFORMS": platforms, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found, error = _run_python(_INSPECT_JAX, {**environment, **variables}, seconds=120)
    return Jax(error=error) if error else Jax(tuple((name, kind) for name, kind in found))


def existing_parent(path: str) -> str:
    """Returns the path, or its nearest parent that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _run_python(program: str, environment: Mapping[str, str], seconds: float) -> tuple[Any, str]:
    """Returns the JSON that a program prints last, and "", or else None and why it failed."""
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None, f"it does not finish within {seconds:g} seconds"
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1]), ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    # A crash prints its stack after the cause; an exception prints it before.
    telling = [line for line in lines if re.search(r"Status: |not available in|Error: |] ", line)]
    cause = (telling if done.returncode < 0 else telling[-1:]) or lines[-1:] or ["no message"]
    return None, re.sub(r"^\d{4}-\S+ .*?\] ", "", cause[0]).strip()[:300]
