"""The mode `doctor`: checks the installation, the devices, the TPU and the buckets of the flags.

Nothing is created or changed, except for one object in the bucket of --model_dir, which is removed.
It also works without TensorFlow.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator

from ...config import Config
from ...data.datasets import BUILT_IN
from ...errors import reason
from ...runtime import streams, tpu_machine
from . import cloud_checks, machine_checks
from .finding import Finding, not_checked
from .machine_checks import TensorFlow

_Check = Callable[[], "Finding | list[Finding]"]


def examine(config: Config) -> Iterator[Finding]:
    """Yields the findings of all checks, each as soon as it is known.

    Args:
      config: The configuration. --tpu, --model_dir and --data_dir select what is checked.
    """
    for name, check in _machine_checks(config).items():
        yield from _run(name, check)
    # Everything that follows needs to know if TensorFlow can be imported.
    tensorflow = machine_checks.inspect_tensorflow()
    for name, check in _tensorflow_checks(config, tensorflow).items():
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
        "libtpu": lambda: machine_checks.check_libtpu(config, versions, tpu_machine.find_libtpu()),
        "free memory": lambda: machine_checks.check_memory(
            pathlib.Path("/proc/meminfo").read_text()
        ),
        "free space": partial(machine_checks.check_disk, on_disk),
        "paths": partial(cloud_checks.check_paths, config, built_in=config.dataset in BUILT_IN),
    }


def _tensorflow_checks(config: Config, tensorflow: TensorFlow) -> dict[str, _Check]:
    partial = functools.partial
    return {
        "TensorFlow": partial(machine_checks.check_tensorflow, tensorflow, config),
        "devices of TensorFlow": partial(machine_checks.check_devices, tensorflow, config),
        "TF_CONFIG": partial(machine_checks.check_tf_config, tensorflow, config),
        "TPU by name": partial(_check_tpu, config, tensorflow),
        "buckets": partial(_check_buckets, config, tensorflow),
        "location of buckets": partial(_check_locations, config),
    }


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
    if config.run_directory.startswith("gs://"):
        findings.append(cloud_checks.check_bucket_write(config.run_directory, tf.io.gfile))
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
