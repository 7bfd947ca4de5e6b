"""The checks of --mode=doctor of Google Cloud: a TPU by its name, and buckets."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import socket
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

from ...config import Config, DeviceSettings
from ...errors import UserError, reason
from ...run_directory.buckets import bucket_of, explain_bucket_error
from ...runtime import tpu_errors
from .facts import Facts, NotChecked
from .machine_checks import WITHOUT_TENSORFLOW, Result

_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}


def check_tpu(facts: Facts) -> Result:
    """Checks a TPU that is given by its name or its address."""
    if not facts.config.on_remote_tpu:
        return NotChecked("there is no --tpu=NAME")
    if not facts.config.tpu_has_name:
        return check_tpu_address(facts.config)
    return WITHOUT_TENSORFLOW if facts.tensorflow.error else check_tpu_name(facts)


def check_tpu_name(facts: Facts) -> Result:
    """Checks that a TPU given by its name is READY and runs the same TensorFlow.

    It does not connect to the TPU, because that would stop a program that uses it.
    """
    # TensorFlow connects with this client; it has no public name.
    from tensorflow.python.tpu.client.client import Client  # noqa: PLC0415

    settings, version = facts.config, facts.tensorflow.version
    try:
        client = Client(**settings.place_of_tpu)
        endpoints = client.network_endpoints()  # raises an error unless the TPU is READY
        kind, image = client.accelerator_type(), client.runtime_version()
    except Exception as error:  # as in runtime/tpu_connection.py
        return tpu_errors.explain(error, settings)
    server = re.search(r"tf-(\d+\.\d+)", str(image))
    if server and not version.startswith(f"{server[1]}."):
        return UserError(
            f"the image {image} runs TensorFlow {server[1]}, but this machine has {version}",
            f"install tensorflow-tpu {server[1]} here, or create the TPU with another image",
        )
    return f"--tpu={settings.tpu} is READY, {kind}, {image}, {len(endpoints)} machine(s)"


def check_tpu_address(settings: DeviceSettings, seconds: float = 10) -> Result:
    """Checks that a server accepts connections at a TPU's grpc:// address."""
    flag = f"--tpu={settings.tpu}"
    host, _, port = str(settings.tpu).removeprefix("grpc://").partition(":")
    try:
        with socket.create_connection((host, int(port or 8470)), timeout=seconds):
            return f"{flag} accepts connections"
    except (OSError, ValueError) as error:
        return UserError(
            f"no connection to {flag} ({reason(error)})",
            "check the address and the port, and that this machine is in the TPU's network",
        )


def check_buckets(facts: Facts) -> Result | list[Result]:
    """Checks the access to all buckets of the flags."""
    config = facts.config
    if not buckets_of(config):
        return NotChecked("no flag names a bucket")
    if facts.tensorflow.error:
        return WITHOUT_TENSORFLOW
    import tensorflow as tf  # noqa: PLC0415

    checks = {
        "model_dir": (config.run_directory, check_bucket_write),
        "data_cache": (config.data_cache, check_bucket_write),
        "data_dir": (config.data_dir, check_bucket_read),
        "test_data_dir": (config.test_data_dir, check_bucket_read),
    }
    return [
        check(flag, path, tf.io.gfile)
        for flag, (path, check) in checks.items()
        if path and path.startswith("gs://")
    ]


def check_bucket_read(flag: str, path: str, files: Any) -> Result:
    """Checks that a path in a bucket can be read.

    Args:
      flag: The flag that gives the path.
      path: The gs:// path. Of TFRecords, it may end with a pattern or with "@" and the number of
        files, and others may follow after a comma.
      files: tf.io.gfile, or an object with its functions.
    """
    what = f"--{flag}={path}"
    first = re.split(r",\s*(?=gs://)", path)[0]
    folder = posixpath.dirname(first) if re.search(r"[*?[]|@\d+$", first) else first
    try:
        files.stat(folder)
    except Exception as error:
        return _explain(error, what, "read")
    return f"{what} can be read"


def check_bucket_write(flag: str, path: str, files: Any) -> Result:
    """Checks that an object can be written to a folder, read and removed.

    Args:
      flag: The name of the flag that names the folder, without dashes.
      path: The gs:// path of the folder.
      files: tf.io.gfile, or an object with its functions.
    """
    what, content = f"--{flag}={path}", uuid.uuid4().hex
    probe = posixpath.join(path, f".doctor-{content}")
    done = "written"
    try:
        with files.GFile(probe, "w") as file:
            file.write(content)
        done = "read"
        with files.GFile(probe) as file:
            if file.read() != content:
                raise ValueError("it returns other content than was written")
        done = "deleted"
        files.remove(probe)
    except Exception as error:
        if done == "read":
            with contextlib.suppress(Exception):  # the error that came first is reported
                files.remove(probe)
        return _explain(error, what, done)
    return f"{what} can be written and read"


def check_locations(facts: Facts) -> Result | list[Result]:
    """Checks that the buckets are near the TPU."""
    buckets = buckets_of(facts.config)
    if not buckets or facts.config.tpu is None:
        return NotChecked("it requires --tpu and a bucket")
    zone = find_zone(facts.config)
    return [check_location(bucket, zone, find_bucket_location) for bucket in buckets]


def check_location(bucket: str, zone: str | None, find_location: Callable[[str], str]) -> Result:
    """Checks that a bucket is in the region of the TPU.

    Args:
      bucket: The bucket, such as "gs://BUCKET".
      zone: The zone of the TPU, or None if it is unknown.
      find_location: Returns the location of a bucket, such as "US-WEST4" or "EU".
    """
    try:
        location = find_location(bucket.removeprefix("gs://")).lower()
    except ImportError:
        return NotChecked("it requires `pip install google-api-python-client`")
    except Exception as error:
        return NotChecked(explain_bucket_error(error, bucket, "read") or reason(error))
    if zone is None:
        return NotChecked(
            f"{bucket} is in {location}, but the zone of the TPU is unknown: give --tpu=ZONE/NAME"
        )
    region = zone.rpartition("-")[0]
    if location == region or region.startswith(_MULTI_REGIONS.get(location, "none")):
        return f"{bucket} is in {location}, as the TPU in {zone}"
    if "-" not in location and location not in _MULTI_REGIONS:
        return NotChecked(f"{bucket}: {location} is a pair of regions; the TPU is in {zone}")
    return UserError(
        f"{bucket} is in {location} and the TPU in {zone}, so it is slow and its traffic costs "
        "money",
        f"create a bucket with `gcloud storage buckets create gs://NAME --location={region}`",
    )


def find_bucket_location(bucket: str) -> str:
    """Returns the location of a bucket, such as "US-WEST4", from Google's API.

    Raises:
      ImportError: If google-api-python-client is not installed.
    """
    from googleapiclient import discovery  # noqa: PLC0415

    service = discovery.build("storage", "v1", cache_discovery=False)
    return service.buckets().get(bucket=bucket, fields="location").execute()["location"]


def find_zone(settings: DeviceSettings, seconds: float = 3) -> str | None:
    """Returns the zone of --tpu or of this VM, or None if it is not a VM of Google Cloud."""
    if zone := settings.place_of_tpu["zone"]:
        return zone
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/zone", headers={"Metadata-Flavor": "Google"}
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.read().decode().rpartition("/")[2]
    except (OSError, ValueError):
        return None


def buckets_of(config: Config) -> list[str]:
    """Returns the buckets that the flags name, without duplicates."""
    paths = (config.run_directory, config.data_dir, config.test_data_dir, config.data_cache)
    return list(dict.fromkeys(filter(None, (bucket_of(path or "") for path in paths))))


def _explain(error: Exception, what: str, done: str) -> UserError:
    return explain_bucket_error(error, what, done) or UserError(
        f"{what} cannot be {done} ({reason(error)})", "check the path and the permissions"
    )
