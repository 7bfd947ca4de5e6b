"""Explanations of the errors of a TPU: the cause in one line, and what to do."""

from __future__ import annotations

import re
import shlex
import urllib.error
from collections.abc import Sequence
from typing import NamedTuple

from ..config import DeviceSettings
from ..errors import UserError, reason
from . import tpu_machine


class _Cause(NamedTuple):
    """A cause of an error.

    Attributes:
      pattern: A regular expression that the type and the message of the exception contain.
      what: See `UserError`. {flag} is the flag --tpu; other names are those of `_names` and of
        groups of the pattern.
      remedy: See `UserError`; with the same names.
    """

    pattern: str
    what: str
    remedy: str


# TensorFlow's message recommends cloud-tpu-client, which requires a protobuf that is too old.
_NO_CLIENT = _Cause(
    r"Missing runtime dependency on the Google API|No module named '(googleapi|oauth2)client",
    "{flag} requires Google's API client, which is not installed",
    "run `pip install google-api-python-client oauth2client` (make setup-tensorflow-tpu does), but "
    "do not install cloud-tpu-client, with which TensorFlow cannot be imported",
)
_NO_CREDENTIALS = _Cause(
    r"HttpError 401|invalid_grant|invalid_client|Application Default Credentials"
    r"|AccessTokenRefreshError",
    "{flag}: this machine has no valid credentials of Google Cloud",
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the key "
    "file of a service account",
)
# The errors of a TPU that is given by its name, until its address is known. The first match counts.
_NAME_CAUSES = (
    _NO_CLIENT,
    _Cause(
        r'not yet ready; state: "(?P<state>CREATING|STARTING|RESTARTING|REIMAGING|REPAIRING)"',
        "{flag} is {state}, not READY",
        "wait until {describe} shows READY, and start again",
    ),
    _Cause(
        r'not yet ready; state: "(?P<state>STOPPED|STOPPING)"',
        "{flag} is {state}, not READY",
        "start it with {start}",
    ),
    _Cause(
        r'not yet ready; state: "?(?P<state>\w+)',
        "{flag} is {state}, not READY",
        "delete it with {delete}, create it again, and give the same command: the run continues",
    ),
    _Cause(
        r"Location (?P<location>\S+) (is )?not found",
        "{flag}: the zone {location} does not exist, or {project} may not use it",
        "check the zone of --tpu=ZONE/NAME, and find the TPU with {list_all}",
    ),
    _Cause(
        r"SERVICE_DISABLED|it is disabled|has not been used in project",
        "{flag}: the Cloud TPU API is disabled in {project}",
        "run {enable}, and wait a few minutes",
    ),
    _Cause(
        r"insufficient authentication scopes|SCOPE_INSUFFICIENT",
        "{flag}: the credentials of this machine lack the scope cloud-platform",
        "run `gcloud auth application-default login`, or create the VM with "
        "`--scopes=cloud-platform`",
    ),
    _Cause(
        r"HttpError 403",
        "{flag}: your account lacks the permission tpu.nodes.get in {project}",
        "check the project of --tpu=PROJECT/ZONE/NAME, or ask its owner for the role "
        "roles/tpu.viewer",
    ),
    _Cause(
        r"HttpError 404",
        "{flag} does not exist in {zone} of {project}",
        "find its name and its zone with {list_all}, and give --tpu=PROJECT/ZONE/NAME",
    ),
    _Cause(
        r"HttpError (?P<status>429|5\d\d)",
        "{flag}: Google's Cloud TPU API answers with status {status}",
        "try again in some minutes; https://status.cloud.google.com reports outages",
    ),
    # The search for credentials also uses the network, so it comes before the network.
    _NO_CREDENTIALS,
    _Cause(
        r"(?P<error>Unable to find the server at [\w.]+\w|Name or service not known"
        r"|[Nn]ame resolution|Connection refused|Network is unreachable|No route to host"
        r"|Connection reset|timed out|ProxyError)",
        "{flag}: Google's Cloud TPU API cannot be reached ({error})",
        "check the network and the proxy of this machine, or give --tpu=grpc://ADDRESS:8470",
    ),
)
# The errors of the TensorFlow server at a TPU's address.
_SERVER_CAUSES = (
    _Cause(
        r"Op 'ConfigureDistributedTPU'|TPUs not found|No matching devices found|No TPU platform",
        "{flag}: the TensorFlow server of this TPU finds no TPU",
        "create the TPU with an image for its type (see `gcloud compute tpus versions list`), "
        "whose TensorFlow has the same version as this machine's",
    ),
    _Cause(
        r"UnavailableError|failed to connect to all addresses|DeadlineExceededError",
        "{flag}: no TensorFlow server answers at the TPU's address",
        "run the program on a VM in the TPU's network, and create the TPU with an image that runs "
        "a server (tpu-vm-tf-VERSION-pod-pjrt); on a TPU VM, use --tpu=local",
    ),
)
_PLAIN_TENSORFLOW = _Cause(
    r"Op 'ConfigureDistributedTPU'",
    "{flag}: no TPU support in this TensorFlow",
    f"run make setup-tpu on a TPU VM, which installs jax and libtpu; or {tpu_machine.OMIT}",
)
# Several causes have the same message. The state of the machine tells them apart.
_NO_LOCAL_TPU = _Cause(
    r"TPUs not found|No matching devices found|RET_CHECK failure .*platform|No TPU platform"
    r"|No ba16c7433 device|Couldn't open device|(Cannot|Could not) find any TPU",
    "{flag}: TensorFlow finds no TPU on this machine",
    f"run `sudo rm -f {tpu_machine.LOCK_FILE}`, check the logs in /tmp/tpu_logs, and see "
    "docs/tpu_tensorflow.md for the variables that a TPU v5e or newer requires",
)


def explain(error: Exception, settings: DeviceSettings) -> UserError:
    """Returns the error that tells the user why a TPU cannot be used, and what to do.

    Args:
      error: An exception of TensorFlow or of Google's client library during the connection.
      settings: The flags that select the TPU.
    """
    text = f"{type(error).__name__}: {getattr(error, 'message', error)}"
    unknown = UserError(
        f"--tpu={settings.tpu} cannot be used ({type(error).__name__}: {reason(error)})",
        f"{_checks(settings)}; {tpu_machine.OMIT}",
    )
    if not settings.on_remote_tpu:
        return _explain_local(text, settings) or unknown
    if isinstance(error, urllib.error.URLError):  # TensorFlow asks this VM's metadata server only
        return UserError(
            f"--tpu={settings.tpu}: the zone and the project are unknown, because this machine is "
            "not a VM of Google Cloud",
            "give --tpu=PROJECT/ZONE/NAME",
        )
    causes = _NAME_CAUSES if settings.tpu_has_name else ()
    return _first_match((*causes, *_SERVER_CAUSES), text, settings) or unknown


def unresponsive_error(settings: DeviceSettings, seconds: float) -> UserError:
    """Returns the error for a TPU that does not answer within `seconds`."""
    return UserError(
        f"--tpu={settings.tpu} did not answer within {seconds:g} seconds",
        f"{_checks(settings)}; {tpu_machine.OMIT}",
    )


def _checks(settings: DeviceSettings) -> str:
    """Returns what to check of a TPU that cannot be used."""
    if not settings.on_remote_tpu:
        return "give --mode=doctor --tpu=local to see what uses the chips, or restart the TPU VM"
    if settings.tpu_has_name:
        names = _names(settings)
        return (
            f"check with {names['list']} that its state is READY, and that this machine is in its "
            f"network; then restart it with {names['stop']} and {names['start']}"
        )
    return (
        "check the address and the port, and that this machine is in the TPU's network; use "
        "--tpu=local on a TPU VM"
    )


def _explain_local(text: str, settings: DeviceSettings) -> UserError | None:
    """Returns the explanation of an error of this machine's TPU, or None if it is unknown."""
    if found := _first_match([_PLAIN_TENSORFLOW], text, settings):
        return found if tpu_machine.find_chips() else tpu_machine.find_problem()
    if in_use := re.search(
        r"already in use by process with pid (?P<pid>\d+)|already in use by another process"
        r"|multi-process lockfile",
        text,
    ):
        return tpu_machine.in_use_error(int(in_use["pid"]) if in_use["pid"] else None)
    found = _first_match([_NO_LOCAL_TPU], text, settings)
    return found and (tpu_machine.find_problem() or found)


def _first_match(causes: Sequence[_Cause], text: str, settings: DeviceSettings) -> UserError | None:
    for cause in causes:
        if match := re.search(cause.pattern, text, re.DOTALL):
            names = {**_names(settings), **match.groupdict()}
            return UserError(cause.what.format(**names), cause.remedy.format(**names))
    return None


def _names(settings: DeviceSettings) -> dict[str, str]:
    """Returns the names in the texts of a `_Cause`, such as gcloud commands for the TPU."""
    place = settings.place_of_tpu
    gcloud, tpu = "gcloud compute tpus tpu-vm", shlex.quote(str(place["tpu"]))
    zone = f"--zone={shlex.quote(place['zone'] or 'ZONE')}"
    project = f" --project={shlex.quote(place['project'])}" if place["project"] else ""
    verbs = ("describe", "start", "stop", "delete")
    return {
        "flag": f"--tpu={settings.tpu}",
        "zone": f"zone {place['zone']}" if place["zone"] else "the zone of this machine",
        "project": f"project {place['project']}" if project else "the project of this machine",
        **{verb: f"`{gcloud} {verb} {tpu} {zone}{project}`" for verb in verbs},
        "list": f"`{gcloud} list {zone}{project}`",
        "list_all": f"`{gcloud} list --zone=-{project}`",
        "enable": f"`gcloud services enable tpu.googleapis.com{project}`",
    }
