"""The checks of --mode=doctor of this machine and its software.

A check returns what it found: a text, a UserError for a problem, or `NotChecked`; or several.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from typing import Any

from ... import pjrt
from ...errors import UserError
from ...runtime import tpu_machine
from .. import connection
from .facts import Facts, NotChecked, existing_parent

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu")
_SETUP = "run make setup, or make setup-tpu on a TPU VM"
_PYTHONS = ((3, 10), (3, 13))  # the first and the last version for which TensorFlow has packages
_OLDEST_TENSORFLOW, _NEWEST_TENSORFLOW = (2, 19), (2, 21)
_OLDEST_PROTOBUF = (5, 28)  # which TensorFlow 2.20 requires
_MEMORY, _DISK = 2 * 2**30, 2**30  # bytes that the smallest runs need
_FALSE = ("0", "f", "false", "n", "no", "off")  # in jax's environment variables
WITHOUT_TENSORFLOW = NotChecked("TensorFlow cannot be imported")

Result = str | UserError


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Result:
    """Checks that TensorFlow exists for this version of Python."""
    text = ".".join(map(str, version))
    (oldest, newest) = _PYTHONS
    if oldest <= version[:2] <= newest:
        return text
    return UserError(
        f"TensorFlow has no package for Python {text}",
        "install a version from {}.{} to {}.{}".format(*oldest, *newest),
    )


def check_packages(facts: Facts) -> list[Result]:
    """Checks that exactly one suitable TensorFlow and no harmful package is installed."""
    versions = facts.versions
    found = [package for package in _TENSORFLOW if package in versions]
    problems: list[Result] = []
    if not found:
        problems.append(UserError("TensorFlow is not installed", _SETUP))
    if len(found) > 1:
        what = f"{' and '.join(found)} overwrite each other's files"
        uninstall = f"run `pip uninstall {' '.join(found)}`"
        problems.append(UserError(what, f"{uninstall}, then {_SETUP.removeprefix('run ')}"))
    for package in found:
        if not _OLDEST_TENSORFLOW <= _numbers(versions[package]) <= _NEWEST_TENSORFLOW:
            what = f"{package} {versions[package]} is not tested: use 2.20"
            problems.append(UserError(what, _SETUP))
    if "cloud-tpu-client" in versions:
        what = "cloud-tpu-client requires a protobuf with which TensorFlow cannot be imported"
        remedy = (
            "run `pip uninstall cloud-tpu-client` and `pip install google-api-python-client "
            "oauth2client 'protobuf>=5.28'`"
        )
        problems.append(UserError(what, remedy))
    elif found and _numbers(versions.get("protobuf", "5.28")) < _OLDEST_PROTOBUF:
        what = f"protobuf {versions['protobuf']} is too old for TensorFlow 2.20"
        problems.append(UserError(what, "run `pip install 'protobuf>=5.28'`"))
    return problems or [", ".join(f"{package} {each}" for package, each in versions.items())]


def check_chips(facts: Facts) -> Result:
    """Checks that this machine has TPU chips that no other process uses."""
    if not facts.chips and facts.config.tpu == "local":
        return UserError("none", f"run it on a TPU VM, or {tpu_machine.OMIT}")
    if not facts.chips:
        return "none; a CPU, GPUs or --tpu=NAME do not require them"
    if facts.user is not None:
        return tpu_machine.in_use_error(facts.user.pid, facts.user.name)
    return ", ".join(facts.chips)


def check_libtpu(facts: Facts) -> Result | list[Result]:
    """Checks libtpu for the runtime that loads it, and the variables that select it."""
    path, environment, tpu = facts.libtpu, facts.environment, facts.config.tpu
    found = f"{facts.versions.get('libtpu', 'unknown version')} at {path}"
    if tpu is not None and facts.runtime == "pjrt":
        if path is None:
            return UserError("it is not installed", pjrt.INSTALL_TPU)
        tested = pjrt.LIBTPU["libtpu"]
        is_tested = facts.versions.get("libtpu") == tested
        note = f"; {tested} is tested, and --mode=compile requires it"
        return found if is_tested else found + note
    if "tensorflow-tpu" not in facts.versions and tpu != "local":
        return NotChecked("only training on a TPU and --mode=compile use it")
    if "tensorflow-tpu" not in facts.versions and not environment.get("TPU_LIBRARY_PATH"):
        return NotChecked("nothing uses it: see the lines about TPU chips and jax")
    if error := tpu_machine.check_libtpu(path):
        return error
    results: list[Result] = [found]
    if environment.get("TPU_LOAD_LIBRARY") == "0" and tpu == "local":
        what = "TPU_LOAD_LIBRARY=0 disables the chips"
        results.append(UserError(what, "run `unset TPU_LOAD_LIBRARY`"))
    plugin = environment.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
    if plugin and not os.path.exists(plugin):
        what = f"TF_PLUGGABLE_DEVICE_LIBRARY_PATH={plugin} does not exist"
        results.append(UserError(what, f"set it to {path}"))
    return results


def check_jax(facts: Facts) -> Result:
    """Checks that jax has the version with which this program is tested."""
    tested = ", ".join(f"{name} {version}" for name, version in pjrt.REQUIRED.items())
    found = {name: facts.versions[name] for name in pjrt.REQUIRED if name in facts.versions}
    text = ", ".join(f"{name} {version}" for name, version in found.items()) or "not installed"
    if found == pjrt.REQUIRED:
        return f"{text}, as tested"
    if facts.runtime == "pjrt":
        return UserError(f"{text}, but {tested} is tested", pjrt.INSTALL)
    return NotChecked(f"{text}; --runtime=pjrt and --mode=compile use {tested}")


def check_memory(facts: Facts) -> Result:
    """Checks the free memory."""
    return _check_size(facts.memory, _MEMORY, "end other programs")


def check_disk(facts: Facts) -> Result:
    """Checks the free space for the run directory."""
    remedy = "delete files, or use another disk"
    return _check_size(facts.space, _DISK, remedy, f" at {facts.folder}")


def check_tensorflow(facts: Facts) -> Result:
    """Checks that TensorFlow can be imported, and supports TPUs if it trains on this machine's."""
    tensorflow = facts.tensorflow
    if tensorflow.error:
        missing = "No module named 'tensorflow'" in tensorflow.error
        remedy = _SETUP if missing else f"look at the lines about packages and libtpu; {_SETUP}"
        return UserError(f"it cannot be imported ({tensorflow.error})", remedy)
    if facts.trains_on_chips and not tensorflow.supports_tpu:
        remedy = f"run make setup-tpu on a TPU VM, which installs jax, or {tpu_machine.OMIT}"
        return UserError("no TPU support in this TensorFlow", remedy)
    support = "with" if tensorflow.supports_tpu else "without"
    return f"{tensorflow.version}, {support} TPU support"


def check_devices(facts: Facts) -> Result:
    """Checks that TensorFlow lists a TPU if it trains on this machine's."""
    if facts.tensorflow.error:
        return WITHOUT_TENSORFLOW
    counts = Counter(facts.tensorflow.devices)
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"
    if facts.trains_on_chips and "TPU" not in counts:
        return UserError(f"no TPU, only {listed}", "look at the lines about TPU chips and libtpu")
    return listed


def check_tf_config(facts: Facts) -> Result:
    """Checks TF_CONFIG, which makes several machines train together."""
    if not facts.environment.get("TF_CONFIG", "").strip():
        return "not set: this machine trains alone"
    if facts.config.tpu is not None:
        return "set, but --tpu ignores it"
    if facts.tensorflow.error:
        return WITHOUT_TENSORFLOW
    from ...runtime.cluster import parse_tf_config  # noqa: PLC0415  (imports TensorFlow)

    cluster = parse_tf_config(facts.environment)
    return f"process {cluster.index} of {len(cluster.addresses)}"


def check_runtime(facts: Facts) -> Result:
    """Reports the runtime of the run, and why --runtime=auto takes it."""
    config = facts.config
    if config.runtime != "auto":
        return f"{facts.runtime}, as --runtime says"
    why = f"jax can use the {'GPU' if config.tpu is None else 'TPU'}"
    why = connection.why_tensorflow(config) or why
    return f"{facts.runtime}, as --runtime=auto takes it: {why}"


def check_jax_devices(facts: Facts) -> Result:
    """Checks that jax has the devices of the run, if it runs the loop."""
    jax, tpu = facts.jax, facts.config.tpu
    if jax is None:
        in_use = "jax" in facts.versions
        return NotChecked("another process uses the TPU" if in_use else "jax is not installed")
    if jax.error:
        for_gpu = f"update the driver of the GPU; {pjrt.INSTALL_GPU}"
        remedy = for_gpu if tpu is None else pjrt.INSTALL_TPU
        return UserError(f"jax cannot use them ({jax.error})", remedy)
    counts = Counter(jax.devices)
    listed = ", ".join(f"{count} {place} ({kind})" for (place, kind), count in counts.items())
    if facts.runtime == "pjrt" and tpu is not None and "TPU" not in dict(jax.devices):
        return UserError(f"no TPU, only {listed}", "look at the lines about the TPU chips")
    return listed


def check_unused(facts: Facts) -> Result | list[UserError]:
    """Checks that a run with these flags does not leave the accelerators of this machine."""
    if facts.config.tpu is not None:
        return "none, because of --tpu"
    if facts.runtime == "pjrt":
        on_cpu = facts.jax is not None and {place for place, _ in facts.jax.devices} == {"CPU"}
    else:
        on_cpu = not facts.tensorflow.error and "GPU" not in facts.tensorflow.devices
    return (connection.unused_devices(facts.config) if on_cpu else []) or "none"


def check_programs(facts: Facts) -> Result:
    """Checks the folder in which jax keeps compiled programs."""
    if facts.tensorflow.error:
        return WITHOUT_TENSORFLOW
    environment = facts.environment
    if environment.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower() in _FALSE:
        return "not kept, because JAX_ENABLE_COMPILATION_CACHE is false"
    folder = environment.get("JAX_COMPILATION_CACHE_DIR") or pjrt.programs_folder()
    if folder is None:
        return "not kept, because this user has no folder"
    if "://" not in folder and not os.access(existing_parent(folder), os.W_OK):
        return UserError(f"{folder} cannot be written", "set JAX_COMPILATION_CACHE_DIR")
    return f"kept in {folder}"


def _check_size(size: int, minimum: int, remedy: str, where: str = "") -> Result:
    text = f"{size / 2**30:.1f} GiB{where}"
    if size < minimum:
        return UserError(f"only {text}, and a run needs at least {minimum / 2**30:g}", remedy)
    return text


def _numbers(version: str) -> tuple[Any, ...]:
    """Returns the first two numbers of a version, such as (2, 20)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
