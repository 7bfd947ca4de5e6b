"""Explanations of the errors of Cloud Storage: the account, the permission, and what to do."""

from __future__ import annotations

import re
import shlex

from ..errors import UserError

_BINDING = (
    "run `gcloud storage buckets add-iam-policy-binding {bucket} --member=%s:{account} "
    "--role=roles/storage.admin`"
)
_DENIED = r"does not have (?P<permission>storage\.[\w.]+\w)"

# A pattern in the message, the cause, and the remedy. The first match counts.
_CAUSES = (
    (
        rf"(?P<account>[^\s\"']+@[\w.-]+gserviceaccount\.com) {_DENIED}",
        "{account} lacks the permission {permission}",
        _BINDING % "serviceAccount",
    ),
    (
        rf"(?P<account>[^\s\"']+@[\w.-]+\w) {_DENIED}",
        "{account} lacks the permission {permission}",
        _BINDING % "user",
    ),
    (
        r"Anonymous caller|response code 401",
        "this machine has no credentials of Google Cloud",
        "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the "
        "key file of a service account",
    ),
    (
        r"insufficient ?(authentication scopes|Permission)|Provided scope",
        "the credentials of this machine lack the scope of Cloud Storage",
        "run `gcloud auth application-default login`, or create the VM with "
        "`--scopes=cloud-platform`",
    ),
    (
        r"bucket (\S+ )?(does not exist|(was )?not found)|No such bucket",
        "the bucket does not exist",
        "check its name, or run `gcloud storage buckets create {bucket} --location=REGION`",
    ),
    (
        r"libcurl code \d+ meaning '(?P<error>[^']+)'",
        "Cloud Storage cannot be reached ({error})",
        "check the network and the proxy of this machine",
    ),
    (
        # In addition to the body of the answer, the status 404 is also that of a missing object.
        r"response code (?P<status>(?!404)\d+)(.*?(\"message\": \"|<Details>|<Message>)"
        r"(?P<detail>[^\"<]{1,200}))?",
        "Cloud Storage answers with status {status}: {detail}",
        "check the permissions of your account with `gcloud storage buckets describe {bucket}`",
    ),
)


def bucket_of(path: str) -> str | None:
    """Returns the bucket that a text with a gs:// path names, such as "gs://BUCKET", or None."""
    match = re.search(r"gs://[^/\s]+", path)
    return match[0] if match else None


def explain_bucket_error(error: Exception | str, what: str, done: str) -> UserError | None:
    """Returns an error that explains why a bucket cannot be accessed.

    Args:
      error: The exception of tf.io.gfile, or its message.
      what: The flag and its gs:// path, for the message.
      done: The operation in the message, "read" or "written".

    Returns:
      The error, or None if `what` is not in a bucket or the cause is unknown.
    """
    bucket = bucket_of(what)
    if bucket is None:
        return None
    message = str(getattr(error, "message", error))
    for pattern, cause, remedy in _CAUSES:
        if match := re.search(pattern, message, re.DOTALL | re.IGNORECASE):
            found = {name: text or "no details" for name, text in match.groupdict().items()}
            return UserError(
                f"{what} cannot be {done}: {cause.format(**found)}",
                remedy.format(bucket=shlex.quote(bucket), **found),
            )
    return None
