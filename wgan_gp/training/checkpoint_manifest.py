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

from ..errors import UserError, reason
from ..run_directory.buckets import explain_bucket_error
from ..run_directory.files import check_regular, list_prefix, read_file
from ..run_directory.json_files import digest, parse
from ..run_directory.schema import integer, list_of, mapping_of, object_of, text

FORMAT = 1  # the version of the format of manifests and checkpoints
_CHECKSUM = "seal"  # the key of the manifest's own checksum
_BLOCK_BYTES = 2**20  # bytes per read
_SUFFIX = re.compile(r"\.(index|data-\d{5}-of-\d{5})")  # of the files that a restore reads
_length = integer(0, 2**62)
_entry = list_of(lambda value: text(value) or _length(value), 2, 2)
_check = object_of({_CHECKSUM: text, "format": integer(1), "files": mapping_of(_entry)})


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

    A checkpoint without damage has regular files only, so TensorFlow can open them.

    Raises:
      UserError: If the checkpoint was saved by a newer version of this program.
      tf.errors.OpError: If its bucket cannot be read.
    """
    try:
        return _describe_damage(path)
    except tf.errors.NotFoundError:
        return "is incomplete (a file is missing)"
    except (tf.errors.OpError, OSError) as error:
        if explain_bucket_error(error, path, "read"):
            raise  # an older checkpoint in that bucket is no way out
        return f"cannot be read ({reason(error)})"


def _describe_damage(path: str) -> str | None:
    """Returns the damage that the manifest shows; see `describe_damage`."""
    content = read_file(f"{path}.json")
    try:
        manifest = parse(content)
        is_valid = _check(manifest)
        checksum = manifest.pop(_CHECKSUM) if is_valid else None
        if is_valid and checksum != digest(manifest):
            return "is damaged (the checksum of its .json file differs)"
    except (ValueError, RecursionError):
        is_valid = False
    if not is_valid:
        return "is damaged (its .json file is not a manifest)"
    if manifest["format"] > FORMAT:
        raise UserError(
            f"{path} was saved by a newer version of this program "
            f"(format {manifest['format']}; this version supports format {FORMAT})",
            "install that version",
        )
    files = manifest["files"]
    present = {file[len(path) :] for file in list_prefix(f"{path}.")}
    read = {suffix for suffix in present if _SUFFIX.fullmatch(suffix)} | {".index"}
    if not all(map(_SUFFIX.fullmatch, files)) or not read <= files.keys():
        return "is damaged (its .json file lists other files)"
    for suffix, (length, sha256) in files.items():
        if (
            tf.io.gfile.stat(path + suffix).length != length
            or _length_and_sha256(path + suffix)[1] != sha256
        ):
            return f"is damaged (its {suffix} file has changed since it was saved)"
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
    check_regular(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            length += len(block)
            sha256.update(block)
    return length, sha256.hexdigest()
