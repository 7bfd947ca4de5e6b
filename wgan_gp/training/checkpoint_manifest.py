"""Manifests of checkpoints, which list the lengths and hashes of a checkpoint's files.

The manifest of ckpt-N.* is ckpt-N.json. It is written last, so a checkpoint that has a manifest is
complete, and its files are damaged if they differ from the manifest.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re

import tensorflow as tf

from ..errors import UserError
from ..run_directory.files import list_prefix
from ..run_directory.json_files import digest

FORMAT = 1  # the version of the format of manifests and checkpoints
_CHECKSUM = "seal"  # the key of the manifest's own checksum
_BLOCK_BYTES = 2**20  # bytes per read
# The exceptions that a damaged manifest can cause.
_DAMAGED_MANIFEST = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def make_manifest(path: str) -> str:
    """Returns the manifest for the files of a checkpoint.

    Args:
      path: The path of the checkpoint without a suffix, such as "checkpoints/ckpt-100".
    """
    files = {file[len(path) :]: _length_and_sha256(file) for file in list_prefix(f"{path}.")}
    content = {"format": FORMAT, "files": files}
    return json.dumps({**content, _CHECKSUM: digest(content)}, indent=2) + "\n"


def describe_damage(path: str) -> str | None:
    """Returns a description of a checkpoint's damage, such as "is damaged (...)", or None.

    Raises:
      UserError: If the checkpoint was saved by a newer version of this program.
    """
    try:
        with tf.io.gfile.GFile(f"{path}.json", "rb") as file:
            content = json.loads(file.read())
        checksum = content.pop(_CHECKSUM)
        if checksum != digest(content):
            return "is damaged (the checksum of its .json file differs)"
        if content["format"] > FORMAT:
            raise UserError(
                f"{path} was saved by a newer version of this program "
                f"(format {content['format']}; this version supports format {FORMAT})",
                "install that version",
            )
        for suffix, (length, sha256) in content["files"].items():
            if _length_and_sha256(path + suffix) != (length, sha256):
                return f"is damaged (its {suffix} file has changed since it was saved)"
    except tf.errors.NotFoundError:
        return "is incomplete (a file is missing)"
    except (tf.errors.OpError, OSError, *_DAMAGED_MANIFEST) as error:
        return f"is damaged ({type(error).__name__})"
    return None


def complete_checkpoints(directory: str) -> list[int]:
    """Returns the numbers of the checkpoints that have a manifest, in ascending order."""
    return list_checkpoints(directory, r"ckpt-(\d+)\.json$")


def list_checkpoints(directory: str, pattern: str = r"ckpt-(\d+)[._]") -> list[int]:
    """Returns the numbers of the checkpoints in a directory, in ascending order.

    Args:
      directory: The checkpoint directory.
      pattern: Matches the name of at least one file of the checkpoint; its group is the number.
    """
    paths = list_prefix(posixpath.join(directory, "ckpt-"))
    matches = (re.match(pattern, posixpath.basename(path)) for path in paths)
    return sorted({int(match[1]) for match in matches if match})


def _length_and_sha256(path: str) -> tuple[int, str]:
    """Reads a file and returns its length in bytes and its SHA-256."""
    length, sha256 = 0, hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            length += len(block)
            sha256.update(block)
    return length, sha256.hexdigest()
