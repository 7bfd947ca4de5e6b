"""Uploads an export to Hugging Face's hub, and downloads the files of a generator from there.

The address, the account and the cache are those of the package huggingface_hub.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..config import check_repository
from ..errors import UserError, reason, shorten

PREFIX = "hf://"
_LOG_IN = "run `hf auth login`, or set HF_TOKEN"


def check_installed(purpose: str) -> None:
    """Raises UserError if the package of the hub is missing.

    Args:
      purpose: The flag or the argument that needs it, for the message.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError(
            f"{purpose} needs the package huggingface_hub, which is not installed",
            'pip install "huggingface_hub>=1"',
        )


def download(reference: str, files: Sequence[str]) -> str:
    """Downloads files of a repository into the cache, and returns their folder.

    Other files of the repository, which may contain code, are not downloaded.

    Args:
      reference: The repository, as hf://USER/NAME or hf://USER/NAME@REVISION.
      files: The names of the files.

    Raises:
      UserError: If the reference is malformed, or the files cannot be downloaded.
    """
    name, at, revision = reference.removeprefix(PREFIX).partition("@")
    check_repository(shorten(reference), name)
    if at and (not re.fullmatch(r"\w[\w./-]{0,254}", revision, re.ASCII) or ".." in revision):
        raise UserError(
            f"{shorten(reference)} has no valid revision",
            "give a branch, a tag or a commit after the @, or omit it",
        )
    check_installed(reference)
    import huggingface_hub  # noqa: PLC0415

    with _explaining(reference):
        folder = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=list(files)
        )
    missing = [file for file in files if not os.path.isfile(os.path.join(folder, file))]
    if missing:
        raise UserError(
            f"{reference} contains no generator of this program ({missing[0]} is missing)",
            "give a repository that --mode=push wrote",
        )
    return folder


def push(folder: str, name: str) -> str:
    """Uploads the files of a folder, and returns the address of the repository.

    A new repository is private; the visibility of an existing one does not change.

    Args:
      folder: The folder, on this machine.
      name: The repository, as USER/NAME.

    Raises:
      UserError: If the files cannot be uploaded.
    """
    import huggingface_hub  # noqa: PLC0415

    with _explaining(f"--hub={name}"):
        api = huggingface_hub.HfApi()
        url = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Upload a generator of WGAN-GP"
        )
    return str(url)


@contextlib.contextmanager
def _explaining(what: str) -> Iterator[None]:
    """Converts errors of the hub to a UserError.

    Args:
      what: The flag or the repository that the message begins with.
    """
    try:
        yield
    except UserError:
        raise
    # The package raises exceptions of many types, also of the library that it sends requests with.
    except Exception as error:
        raise _explained(what, error) from error


def _explained(what: str, error: Exception) -> UserError:
    from huggingface_hub import errors  # noqa: PLC0415

    status = _status_of(error)
    if isinstance(error, errors.RevisionNotFoundError):
        return UserError(f"{what}: the repository has no such revision", "check it, or omit it")
    # The hub gives this answer for private repositories, too.
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return UserError(
            f"{what}: there is no such repository, or your account may not read it",
            f"check the name; for a private one, {_LOG_IN}",
        )
    if isinstance(error, errors.LocalTokenNotFoundError) or status == 401:
        return UserError(f"{what}: you are not logged in, or your token is not valid", _LOG_IN)
    if status == 403:
        return UserError(
            f"{what}: your token has no permission for it",
            "use a token that may write there, and check the name of the user or organization",
        )
    if status is not None:
        detail = shorten(reason(error))
        return UserError(f"{what}: the hub answers with status {status} ({detail})", "try again")
    described = f"{type(error).__name__}: {shorten(reason(error))}"
    return UserError(
        f"{what}: the request to the hub failed ({described})",
        "check the network of this machine, HF_ENDPOINT and HF_HUB_OFFLINE",
    )


def _status_of(error: BaseException | None) -> Any:
    """Returns the status of the answer that an error is about, or None without an answer."""
    while error is not None:
        response = getattr(error, "response", None)
        if response is not None:
            return response.status_code
        error = error.__cause__
    return None
