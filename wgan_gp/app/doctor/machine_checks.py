"""The checks of --mode=doctor of this machine and its software.

Each check receives the facts it judges, so that tests need no TPU.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ... import pjrt
from ...config import DeviceSettings
from ...errors import UserError
from ...runtime import tpu_machine
from .finding import Finding, not_checked, ok, problem

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
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
_SETUP = "run make setup, or make setup-tpu on a TPU VM"
_PYTHONS = ((3, 10), (3, 13))  # the first and the last version for which TensorFlow has packages
_OLDEST_TENSORFLOW, _NEWEST_TENSORFLOW = (2, 19), (2, 21)
_OLDEST_PROTOBUF = (5, 28)  # which TensorFlow 2.20 requires
_MEMORY, _DISK = 2 * 2**30, 2**30  # bytes that the smallest runs need

# Prints the version, the device types, and whether there is a kernel for TPUs.
_INSPECT = """
import json
import tensorflow as tf
from tensorflow.python.framework import kernels
devices = [device.device_type for device in tf.config.list_physical_devices()]
tpu = bool(kernels.get_registered_kernels_for_op("TPUExecute").kernel)
print(json.dumps([tf.__version__, devices, tpu]))
"""


class TensorFlow(NamedTuple):
    """The result of importing TensorFlow in a process of its own.

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


def inspect_tensorflow(python: str = sys.executable, seconds: float = 300) -> TensorFlow:
    """Imports TensorFlow in another process, because an unsuitable libtpu ends the process.

    Args:
      python: The Python program.
      seconds: The time limit.
    """
    found, error = run_python(_INSPECT, python, seconds, os.environ)
    if error:
        return TensorFlow(error=error)
    version, devices, supports_tpu = found
    return TensorFlow(version, tuple(devices), supports_tpu)


def run_python(
    program: str, python: str, seconds: float, environment: Mapping[str, str]
) -> tuple[Any, str]:
    """Returns the JSON that a program prints last, and "", or else None and why it failed.

    Args:
      program: The program, in Python.
      python: What executes it.
      seconds: The time limit.
      environment: The environment variables.
    """
    try:
        done = subprocess.run(
            [python, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
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


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Checks that TensorFlow exists for this version of Python."""
    text = ".".join(map(str, version))
    (oldest, newest) = _PYTHONS
    if oldest <= version[:2] <= newest:
        return ok("Python", text)
    return problem(
        "Python",
        f"TensorFlow has no package for Python {text}",
        "install a version from {}.{} to {}.{}".format(*oldest, *newest),
    )


def check_packages(versions: Mapping[str, str]) -> list[Finding]:
    """Checks that exactly one suitable TensorFlow and no harmful package is installed.

    Args:
      versions: The versions of installed packages by name, of those in `PACKAGES`.
    """
    name, found = "packages", [package for package in _TENSORFLOW if package in versions]
    problems = []
    if not found:
        problems.append(problem(name, "TensorFlow is not installed", _SETUP))
    if len(found) > 1:
        problems.append(
            problem(
                name,
                f"{' and '.join(found)} overwrite each other's files",
                f"run `pip uninstall {' '.join(found)}`, then {_SETUP.removeprefix('run ')}",
            )
        )
    for package in found:
        if not _OLDEST_TENSORFLOW <= _numbers(versions[package]) <= _NEWEST_TENSORFLOW:
            problems.append(
                problem(name, f"{package} {versions[package]} is not tested: use 2.20", _SETUP)
            )
    if "cloud-tpu-client" in versions:
        problems.append(
            problem(
                name,
                "cloud-tpu-client requires a protobuf with which TensorFlow cannot be imported",
                "run `pip uninstall cloud-tpu-client` and `pip install google-api-python-client "
                "oauth2client 'protobuf>=5.28'`",
            )
        )
    elif found and _numbers(versions.get("protobuf", "5.28")) < _OLDEST_PROTOBUF:
        problems.append(
            problem(
                name,
                f"protobuf {versions['protobuf']} is too old for TensorFlow 2.20",
                "run `pip install 'protobuf>=5.28'`",
            )
        )
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    return problems or [ok(name, listed)]


def check_tensorflow(tensorflow: TensorFlow, *, needs_tpu: bool) -> Finding:
    """Checks that TensorFlow can be imported, and supports TPUs if it trains on this machine's."""
    if tensorflow.error:
        missing = "No module named 'tensorflow'" in tensorflow.error
        remedy = _SETUP if missing else f"look at the lines about packages and libtpu; {_SETUP}"
        return problem("TensorFlow", f"it cannot be imported ({tensorflow.error})", remedy)
    if needs_tpu and not tensorflow.supports_tpu:
        return problem(
            "TensorFlow",
            "no TPU support in this TensorFlow",
            f"run make setup-tpu on a TPU VM, which installs jax, or {tpu_machine.OMIT}",
        )
    support = "with" if tensorflow.supports_tpu else "without"
    return ok("TensorFlow", f"{tensorflow.version}, {support} TPU support")


def check_devices(tensorflow: TensorFlow, *, needs_tpu: bool) -> Finding:
    """Checks that TensorFlow lists a TPU if it trains on this machine's."""
    name = "devices of TensorFlow"
    if tensorflow.error:
        return not_checked(name, "TensorFlow cannot be imported")
    counts = Counter(tensorflow.devices)
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"
    if needs_tpu and "TPU" not in counts:
        return problem(
            name, f"no TPU, only {listed}", "look at the lines about TPU chips and libtpu"
        )
    return ok(name, listed)


def check_chips(
    settings: DeviceSettings, chips: Sequence[str], user: tpu_machine.Process | None
) -> Finding:
    """Checks that this machine has TPU chips that no other process uses.

    Args:
      settings: The flags of the devices.
      chips: The chips; see `tpu_machine.find_chips`.
      user: Another process that uses the chips, or None.
    """
    name = "TPU chips of this machine"
    if not chips and settings.tpu == "local":
        return problem(name, "none", f"run it on a TPU VM, or {tpu_machine.OMIT}")
    if not chips:
        return ok(name, "none; a CPU, GPUs or --tpu=NAME do not require them")
    if user is not None:
        return problem(name, tpu_machine.in_use_error(user.pid, user.name))
    return ok(name, ", ".join(chips))


def check_libtpu(
    settings: DeviceSettings,
    versions: Mapping[str, str],
    path: str | None,
    environment: Mapping[str, str] = os.environ,
) -> list[Finding]:
    """Checks libtpu and the environment variables that select it.

    Args:
      settings: The flags of the devices.
      versions: The versions of installed packages by name.
      path: The path of libtpu, or None; see `tpu_machine.find_libtpu`.
      environment: The environment variables.
    """
    name = "libtpu"
    if "tensorflow-tpu" not in versions and settings.tpu != "local":
        return [not_checked(name, "only training on a TPU and --mode=compile use it")]
    if "tensorflow-tpu" not in versions and not environment.get("TPU_LIBRARY_PATH"):
        return [not_checked(name, "nothing uses it: see the lines about TPU chips and jax")]
    if error := tpu_machine.check_libtpu(path):
        return [problem(name, error)]
    findings = [ok(name, f"{versions.get('libtpu', 'unknown version')} at {path}")]
    if environment.get("TPU_LOAD_LIBRARY") == "0" and settings.tpu == "local":
        findings.append(
            problem(name, "TPU_LOAD_LIBRARY=0 disables the chips", "run `unset TPU_LOAD_LIBRARY`")
        )
    plugin = environment.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    if plugin and not os.path.exists(plugin):
        findings.append(
            problem(
                name,
                f"TF_PLUGGABLE_DEVICE_LIBRARY_PATH={plugin} does not exist",
                f"set it to {path}",
            )
        )
    return findings


def check_tf_config(
    tensorflow: TensorFlow, settings: DeviceSettings, environment: Mapping[str, str] = os.environ
) -> Finding:
    """Checks TF_CONFIG, which makes several machines train together."""
    name = "TF_CONFIG"
    if not environment.get(name, "").strip():
        return ok(name, "not set: this machine trains alone")
    if settings.tpu is not None:
        return ok(name, "set, but --tpu ignores it")
    if tensorflow.error:
        return not_checked(name, "TensorFlow cannot be imported")
    from ...runtime.cluster import parse_tf_config  # noqa: PLC0415  (imports TensorFlow)

    try:
        cluster = parse_tf_config(environment)
    except UserError as error:
        return problem(name, error)
    return ok(name, f"process {cluster.index} of {len(cluster.addresses)}")


def check_memory(available: int) -> Finding:
    """Checks the memory, in bytes, that programs can use without swapping."""
    return _check_size("free memory", available, _MEMORY, "end other programs")


def check_disk(path: str, free: int | None = None) -> Finding:
    """Checks the free space of the disk of a local path.

    Args:
      path: The path, which need not exist.
      free: The free space in bytes, by default that of the disk.
    """
    path = existing_parent(path)
    free = shutil.disk_usage(path).free if free is None else free
    return _check_size(f"free space of {path}", free, _DISK, "delete files, or use another disk")


def existing_parent(path: str) -> str:
    """Returns the path, or its nearest parent that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _check_size(name: str, size: int, minimum: int, remedy: str) -> Finding:
    text = f"{size / 2**30:.1f} GiB"
    if size < minimum:
        return problem(name, f"only {text}, and a run needs at least {minimum / 2**30:g}", remedy)
    return ok(name, text)


def _numbers(version: str) -> tuple[Any, ...]:
    """Returns the first two numbers of a version, such as (2, 20)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
