"""The mode `doctor`: checks the installation, the devices, the TPU and the buckets of the flags.

Nothing is created or changed, except for one object in the bucket of --model_dir, which is removed.
It also works without TensorFlow.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

import psutil

from ... import pjrt
from ...config import Config
from ...errors import reason
from ...runtime import streams, tpu_machine
from .. import connection
from . import cloud_checks, jax_checks, machine_checks
from .finding import Finding, not_checked, ok, problem
from .jax_checks import Jax
from .machine_checks import TensorFlow

_Check = Callable[[], "Finding | list[Finding]"]


def examine(config: Config) -> Iterator[Finding]:
    """Yields the findings of all checks, each as soon as it is known.

    Args:
      config: The configuration. --tpu, --model_dir and --data_dir select what is checked.
    """
    for name, check in _machine_checks(config).items():
        yield from _run(name, check)
    # Everything that follows needs to know if TensorFlow can be imported, and the devices of jax.
    tensorflow = machine_checks.inspect_tensorflow()
    platforms = _jax_platforms(config)
    jax = jax_checks.inspect_jax(platforms) if platforms else None
    for name, check in {
        **_tensorflow_checks(config, tensorflow),
        **_jax_checks(config, tensorflow, jax),
        **_cloud_checks(config, tensorflow),
    }.items():
        yield from _run(name, check)


def report(findings: Iterable[Finding]) -> int:
    """Prints findings and returns the exit status: 2 if there is a problem, else 0."""
    problems = unchecked = 0
    for finding in findings:
        print(finding, flush=True)
        problems += finding.status == Finding.PROBLEM
        unchecked += finding.status == Finding.NOT_CHECKED
    print(f"{problems or 'no'} problem{'' if problems == 1 else 's'}, {unchecked} not checked")
    return 2 if problems or streams.stdout_failed() else 0


def _machine_checks(config: Config) -> dict[str, _Check]:
    versions = tpu_machine.installed_versions(machine_checks.PACKAGES)
    partial = functools.partial
    # TensorFlow collects the parts of a file for gs:// in the folder of temporary files.
    on_disk = tempfile.gettempdir() if "://" in config.run_directory else config.run_directory
    return {
        "Python": machine_checks.check_python,
        "packages": partial(machine_checks.check_packages, versions),
        "TPU chips of this machine": lambda: machine_checks.check_chips(
            config, tpu_machine.find_chips(), tpu_machine.find_user()
        ),
        "libtpu": lambda: _check_libtpu(config, versions),
        "jax": lambda: jax_checks.check_jax(connection.choose_runtime(config), versions),
        "free memory": lambda: machine_checks.check_memory(psutil.virtual_memory().available),
        "free space": partial(machine_checks.check_disk, on_disk),
    }


def _tensorflow_checks(config: Config, tensorflow: TensorFlow) -> dict[str, _Check]:
    partial = functools.partial
    # Without chips, TensorFlow cannot have a TPU, and the line about them says so.
    has_chips = bool(tpu_machine.find_chips())
    needs_tpu = has_chips and connection.tpu_of_tensorflow(config) == "local"
    return {
        "TensorFlow": partial(machine_checks.check_tensorflow, tensorflow, needs_tpu=needs_tpu),
        "devices of TensorFlow": partial(
            machine_checks.check_devices, tensorflow, needs_tpu=needs_tpu
        ),
        "TF_CONFIG": partial(machine_checks.check_tf_config, tensorflow, config),
    }


def _jax_checks(config: Config, tensorflow: TensorFlow, jax: Jax | None) -> dict[str, _Check]:
    runtime = connection.choose_runtime(config)
    why_tensorflow = connection.why_tensorflow(config)
    return {
        "runtime": lambda: jax_checks.check_runtime(config, runtime, why_tensorflow),
        "devices of jax": lambda: _check_jax_devices(config, runtime, jax),
        "unused devices": lambda: _check_unused(config, tensorflow, jax),
        "compiled programs": lambda: _check_programs(tensorflow),
    }


def _cloud_checks(config: Config, tensorflow: TensorFlow) -> dict[str, _Check]:
    partial = functools.partial
    return {
        "TPU by name": partial(_check_tpu, config, tensorflow),
        "buckets": partial(_check_buckets, config, tensorflow),
        "location of buckets": partial(_check_locations, config),
    }


def _check_libtpu(config: Config, versions: Mapping[str, str]) -> list[Finding]:
    path = tpu_machine.find_libtpu()
    if config.tpu is not None and connection.choose_runtime(config) == "pjrt":
        return [jax_checks.check_libtpu(versions, path)]
    return machine_checks.check_libtpu(config, versions, path)


def _jax_platforms(config: Config) -> str:
    """Returns the platforms that jax is asked for, or "" if it is not asked.

    A TPU is opened only for a run that uses it through jax, and if no other process does.
    """
    if not tpu_machine.installed_versions(["jax"]):
        return ""
    if config.tpu == "local" and connection.choose_runtime(config) == "pjrt":
        return "" if tpu_machine.find_user() else "tpu,cpu"
    has_plugin = tpu_machine.installed_versions(pjrt.CUDA_PLUGINS)
    return "cuda,cpu" if has_plugin and pjrt.has_nvidia_gpu() else "cpu"


def _check_jax_devices(config: Config, runtime: str, jax: Jax | None) -> Finding:
    if jax is not None:
        return jax_checks.check_devices(config, runtime, jax)
    in_use = tpu_machine.installed_versions(["jax"])
    why = "another process uses the TPU" if in_use else "jax is not installed"
    return not_checked("devices of jax", why)


def _check_unused(config: Config, tensorflow: TensorFlow, jax: Jax | None) -> list[Finding]:
    """Checks that a run with these flags does not leave the accelerators of this machine."""
    name = "unused devices"
    if config.tpu is not None:
        return [ok(name, "none, because of --tpu")]
    if connection.choose_runtime(config) == "pjrt":
        on_cpu = jax is not None and {platform for platform, _ in jax.devices} == {"CPU"}
    else:
        on_cpu = not tensorflow.error and "GPU" not in tensorflow.devices
    unused = connection.unused_devices(config) if on_cpu else []
    return [problem(name, each) for each in unused] or [ok(name, "none")]


def _check_programs(tensorflow: TensorFlow) -> Finding:
    """Checks the folder of compiled programs."""
    if tensorflow.error:
        return not_checked("compiled programs", "TensorFlow cannot be imported")
    return jax_checks.check_programs_folder(pjrt.programs_folder())


def _check_tpu(config: Config, tensorflow: TensorFlow) -> Finding:
    """Checks a TPU that is given by its name or its address."""
    if not config.on_remote_tpu:
        return not_checked("TPU by name", "there is no --tpu=NAME")
    if not config.tpu_has_name:
        return cloud_checks.check_tpu_address(config)
    if tensorflow.error:
        return not_checked("TPU by name", "TensorFlow, which requests it, cannot be imported")
    # TensorFlow connects with this client; it has no public name.
    from tensorflow.python.tpu.client.client import Client  # noqa: PLC0415

    return cloud_checks.check_tpu_name(config, Client, tensorflow.version)


def _check_buckets(config: Config, tensorflow: TensorFlow) -> list[Finding]:
    """Checks the access to all buckets of the flags."""
    if not cloud_checks.buckets_of(config):
        return [not_checked("buckets", "no flag names a bucket")]
    if tensorflow.error:
        return [not_checked("buckets", "TensorFlow, which accesses them, cannot be imported")]
    import tensorflow as tf  # noqa: PLC0415

    findings = []
    written = {"model_dir": config.run_directory, "data_cache": config.data_cache or ""}
    for flag, path in written.items():
        if path.startswith("gs://"):
            findings.append(cloud_checks.check_bucket_write(flag, path, tf.io.gfile))
    for flag in ("data_dir", "test_data_dir"):
        path = getattr(config, flag) or ""
        if path.startswith("gs://"):
            findings.append(cloud_checks.check_bucket_read(flag, path, tf.io.gfile))
    return findings


def _check_locations(config: Config) -> list[Finding]:
    """Checks that the buckets are near the TPU."""
    buckets = cloud_checks.buckets_of(config)
    if not buckets or config.tpu is None:
        return [not_checked("location of buckets", "it requires --tpu and a bucket")]
    zone = cloud_checks.find_zone(config)
    find_location = cloud_checks.find_bucket_location
    return [cloud_checks.check_location(bucket, zone, find_location) for bucket in buckets]


def _run(name: str, check: _Check) -> list[Finding]:
    """Returns the findings of a check; an unexpected error is a check that was not made."""
    try:
        found = check()
    except Exception as error:
        return [not_checked(name, f"the check failed ({type(error).__name__}: {reason(error)})")]
    return found if isinstance(found, list) else [found]
