"""The checks of --mode=doctor of jax, which runs the loop with --runtime=pjrt.

Each check receives the facts it judges, so that tests need no TPU and no GPU.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ... import pjrt
from ...config import DeviceSettings
from .finding import Finding, not_checked, ok, problem
from .machine_checks import existing_parent, run_python

_FALSE = ("0", "f", "false", "n", "no", "off")  # in jax's environment variables

# Prints the platform and the kind of each device.
_INSPECT_JAX = """
import json
import jax
print(json.dumps([[device.platform.upper(), device.device_kind] for device in jax.devices()]))
"""


class Jax(NamedTuple):
    """The result of asking jax for its devices in a process of its own.

    Attributes:
      devices: The platform and the kind of each device, such as ("GPU", "NVIDIA H100").
      error: The reason why jax cannot use them, or "".
    """

    devices: tuple[tuple[str, str], ...] = ()
    error: str = ""


def inspect_jax(platforms: str, python: str = sys.executable, seconds: float = 120) -> Jax:
    """Asks jax for the devices of the first platform that works, in another process.

    Args:
      platforms: The platforms, such as "cuda,cpu". Those of a TPU are opened.
      python: The Python program.
      seconds: The time limit.
    """
    # By default, jax takes most of the memory of a GPU.
    variables = {"JAX_PLATFORMS": platforms, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found, error = run_python(_INSPECT_JAX, python, seconds, {**os.environ, **variables})
    return Jax(error=error) if error else Jax(tuple((name, kind) for name, kind in found))


def check_jax(runtime: str, versions: Mapping[str, str]) -> Finding:
    """Checks that jax has the version with which this program is tested.

    Args:
      runtime: The runtime of the run; only pjrt requires jax.
      versions: The versions of installed packages by name.
    """
    tested = ", ".join(f"{name} {version}" for name, version in pjrt.REQUIRED.items())
    found = {name: versions[name] for name in pjrt.REQUIRED if name in versions}
    text = ", ".join(f"{name} {version}" for name, version in found.items()) or "not installed"
    if found == pjrt.REQUIRED:
        return ok("jax", f"{text}, as tested")
    if runtime == "pjrt":
        return problem("jax", f"{text}, but {tested} is tested", pjrt.INSTALL)
    return not_checked("jax", f"{text}; --runtime=pjrt and --mode=compile use {tested}")


def check_runtime(settings: DeviceSettings, runtime: str, why_tensorflow: str) -> Finding:
    """Reports the runtime of the run, and why --runtime=auto takes it.

    Args:
      settings: The flags of the devices.
      runtime: The runtime of the run; see `connection.choose_runtime`.
      why_tensorflow: See `connection.why_tensorflow`.
    """
    if settings.runtime != "auto":
        return ok("runtime", f"{runtime}, as --runtime says")
    why = why_tensorflow or f"jax can use the {'GPU' if settings.tpu is None else 'TPU'}"
    return ok("runtime", f"{runtime}, as --runtime=auto takes it: {why}")


def check_devices(settings: DeviceSettings, runtime: str, jax: Jax) -> Finding:
    """Checks that jax has the devices of the run, if it runs the loop.

    Args:
      settings: The flags of the devices.
      runtime: The runtime of the run; see `connection.choose_runtime`.
      jax: What was found.
    """
    name = "devices of jax"
    if jax.error:
        for_gpu = f"update the driver of the GPU; {pjrt.INSTALL_GPU}"
        remedy = for_gpu if settings.tpu is None else pjrt.INSTALL_TPU
        return problem(name, f"jax cannot use them ({jax.error})", remedy)
    counts = Counter(jax.devices)
    listed = ", ".join(f"{count} {place} ({kind})" for (place, kind), count in counts.items())
    if runtime == "pjrt" and settings.tpu is not None and "TPU" not in dict(jax.devices):
        return problem(name, f"no TPU, only {listed}", "look at the lines about the TPU chips")
    return ok(name, listed)


def check_programs_folder(
    folder: str | None, environment: Mapping[str, str] = os.environ
) -> Finding:
    """Checks the folder in which jax keeps compiled programs.

    Args:
      folder: The folder, unless jax's environment variables name another.
      environment: The environment variables.
    """
    name = "compiled programs"
    if environment.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower() in _FALSE:
        return ok(name, "not kept, because JAX_ENABLE_COMPILATION_CACHE is false")
    folder = environment.get("JAX_COMPILATION_CACHE_DIR") or folder
    if folder is None:
        return ok(name, "not kept, because this user has no folder")
    if "://" not in folder and not os.access(existing_parent(folder), os.W_OK):
        return problem(name, f"{folder} cannot be written", "set JAX_COMPILATION_CACHE_DIR")
    return ok(name, f"kept in {folder}")


def check_libtpu(versions: Mapping[str, str], path: str | None) -> Finding:
    """Checks the libtpu that jax loads for --tpu=local.

    Args:
      versions: The versions of installed packages by name.
      path: The path of libtpu, or None; see `tpu_machine.find_libtpu`.
    """
    name, tested = "libtpu", pjrt.LIBTPU["libtpu"]
    if path is None:
        return problem(name, "it is not installed", pjrt.INSTALL_TPU)
    version = versions.get(name, "unknown version")
    note = "" if version == tested else f"; {tested} is tested, and --mode=compile requires it"
    return ok(name, f"{version} at {path}{note}")
