"""The checks of --mode=doctor of Google Cloud: a TPU by its name, and buckets.

Each check receives what it asks, so that tests need no account.
"""

from __future__ import annotations

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
from .finding import Finding, not_checked, ok, problem

_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}


def check_tpu_name(
    settings: DeviceSettings, make_client: Callable[..., Any], tensorflow_version: str
) -> Finding:
    """Checks that a TPU given by its name is READY and runs the same TensorFlow.

    It does not connect to the TPU, because that would stop a program that uses it.

    Args:
      settings: The flags that select the TPU.
      make_client: The class of TensorFlow's client of the Cloud TPU API.
      tensorflow_version: The version of TensorFlow on this machine.
    """
    name = "TPU by name"
    try:
        client = make_client(**settings.place_of_tpu)
        endpoints = client.network_endpoints()  # raises an error unless the TPU is READY
        kind, image = client.accelerator_type(), client.runtime_version()
    except Exception as error:  # as in runtime/tpu_connection.py
        return problem(name, tpu_errors.explain(error, settings))
    server = re.search(r"tf-(\d+\.\d+)", str(image))
    if server and not tensorflow_version.startswith(f"{server[1]}."):
        return problem(
            name,
            f"the image {image} runs TensorFlow {server[1]}, but this machine has "
            f"{tensorflow_version}",
            f"install tensorflow-tpu {server[1]} here, or create the TPU with another image",
        )
    return ok(name, f"--tpu={settings.tpu} is READY, {kind}, {image}, {len(endpoints)} machine(s)")


def check_tpu_address(settings: DeviceSettings, seconds: float = 10) -> Finding:
    """Checks that a server accepts connections at a TPU's grpc:// address."""
    name, flag = "TPU by address", f"--tpu={settings.tpu}"
    host, _, port = str(settings.tpu).removeprefix("grpc://").partition(":")
    try:
        with socket.create_connection((host, int(port or 8470)), timeout=seconds):
            return ok(name, f"{flag} accepts connections")
    except (OSError, ValueError) as error:
        return problem(
            name,
            f"no connection to {flag} ({reason(error)})",
            "check the address and the port, and that this machine is in the TPU's network",
        )


def check_bucket_read(flag: str, path: str, files: Any) -> Finding:
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
        return problem("bucket", _explain(error, what, "read"))
    return ok("bucket", f"{what} can be read")


def check_bucket_write(flag: str, path: str, files: Any) -> Finding:
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
        finding = problem("bucket", _explain(error, what, done))
        if done == "read":
            _remove_quietly(probe, files)
        return finding
    return ok("bucket", f"{what} can be written and read")


def check_location(bucket: str, zone: str | None, find_location: Callable[[str], str]) -> Finding:
    """Checks that a bucket is in the region of the TPU.

    Args:
      bucket: The bucket, such as "gs://BUCKET".
      zone: The zone of the TPU, or None if it is unknown.
      find_location: Returns the location of a bucket, such as "US-WEST4" or "EU".
    """
    name = f"location of {bucket}"
    try:
        location = find_location(bucket.removeprefix("gs://")).lower()
    except ImportError:
        return not_checked(name, "it requires `pip install google-api-python-client`")
    except Exception as error:
        return not_checked(name, str(explain_bucket_error(error, bucket, "read") or reason(error)))
    if zone is None:
        return not_checked(
            name, f"it is {location}, but the zone of the TPU is unknown: give --tpu=ZONE/NAME"
        )
    region = zone.rpartition("-")[0]
    if location == region or region.startswith(_MULTI_REGIONS.get(location, "none")):
        return ok(name, f"{location}, as the TPU in {zone}")
    if "-" not in location and location not in _MULTI_REGIONS:
        return not_checked(name, f"{location} is a pair of regions; the TPU is in {zone}")
    return problem(
        name,
        f"the bucket is in {location} and the TPU in {zone}, so it is slow and its traffic costs "
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


def _remove_quietly(path: str, files: Any) -> None:
    try:
        files.remove(path)
    except Exception:  # the caller reports the error that came first
        return
