"""The files of checkpoints, of which those that can be restored are found.

The manifest of ckpt-N.* is ckpt-N.json, which lists the lengths and hashes of the files. It is
written last, so a checkpoint that has a manifest is complete, and its files are damaged if they
differ from the manifest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from ..errors import UserError, reason
from ..run_directory.buckets import explain_bucket_error
from ..run_directory.directory import BEST
from ..run_directory.files import convert_file_errors, file_sha256, list_prefix
from ..run_directory.files import delete as delete_file
from ..run_directory.json_files import OtherVersionError, read_dataclass, to_text

RECORD = "checkpoint"  # TensorFlow's file with the name of the newest checkpoint
_TRIES = 5  # to restore a checkpoint of a run that goes on and deletes its old ones
_REMEDY = "check the path, the permissions and the network"
_SUFFIX = re.compile(r"\.(index|data-\d{5}-of-\d{5})")  # of the files that a restore reads


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of ckpt-N.json.

    Attributes:
      files: The length in bytes and the SHA-256 of each file of the checkpoint, by its suffix.
      memory: Numbers that belong to the state.
    """

    files: dict[str, tuple[int, str]]
    memory: dict[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if ".index" not in self.files or not all(map(_SUFFIX.fullmatch, self.files)):
            raise ValueError("files names other files than those of a checkpoint")


class ChangedError(UserError):
    """A checkpoint was deleted or replaced after it was found."""


def restore_found(find: Callable[[], str], restore: Callable[[str], Any]) -> Any:
    """Finds a checkpoint and restores it, and finds another one if it is deleted meanwhile.

    A run that goes on deletes its old checkpoints.

    Args:
      find: () -> the path of a checkpoint.
      restore: (path) -> the result.

    Raises:
      ChangedError: If each checkpoint was deleted before it was restored.
      UserError: See `find` and `restore`.
    """
    for _ in range(_TRIES - 1):
        path = find()
        try:
            return restore(path)
        except ChangedError as error:
            logging.info(f"{error.what}; looking for another checkpoint")
    return restore(find())


@contextlib.contextmanager
def explaining_changes(path: str) -> Iterator[None]:
    """Raises ChangedError in place of an error if a checkpoint is not what it was when found."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        with convert_file_errors(path, "read", _REMEDY):
            problem = describe_damage(path)
        if problem is not None:
            raise ChangedError(
                f"{path} {problem}", "give another checkpoint, or try again"
            ) from error
        raise


def resolve_restore_path(path: str, which: str = "latest") -> str:
    """Returns the path of the checkpoint to which --restore_from refers.

    Args:
      path: A checkpoint, a run directory or a checkpoint directory.
      which: The checkpoint of a directory; see `select_checkpoint`.

    Raises:
      UserError: If there is no checkpoint, all checkpoints are damaged, or the path cannot be read.
    """
    with convert_file_errors(f"--restore_from={path}", "read", _REMEDY):
        if re.search(r"ckpt-\d+$", path):
            if which != "latest":
                raise UserError(
                    f"--checkpoint={which} and --restore_from={path} both name a checkpoint",
                    "omit --checkpoint, or give the run directory",
                )
            problem = describe_damage(path)
            if problem is None:
                return path
            remedy = "give another checkpoint, or the run directory to use its newest undamaged one"
        else:
            inside = posixpath.join(path, "checkpoints")
            directory = inside if tf.io.gfile.isdir(inside) else path
            found = select_checkpoint(directory, which, f"--restore_from={path}")
            if found is not None:
                return found
            problem = "contains no checkpoint"
            remedy = "give a run directory, or a checkpoint such as RUN/checkpoints/ckpt-100"
    raise UserError(f"--restore_from={path} {problem}", remedy)


def select_checkpoint(directory: str, which: str, origin: str) -> str | None:
    """Returns the path of a checkpoint, or None if none was ever saved.

    Args:
      directory: The checkpoint directory.
      which: "latest", the newest undamaged one; "best", that of --keep_best; or a number of
        iterations.
      origin: The flag that names the run, for messages.

    Raises:
      UserError: If there is no such checkpoint, it is damaged, or all are damaged.
      tf.errors.OpError: If the bucket of the directory cannot be read.
    """
    if which == "latest":
        return latest_checkpoint(directory)
    best = posixpath.join(directory, BEST)
    if which == "best":
        if found := latest_checkpoint(best, "give --checkpoint=latest"):
            return found
        raise UserError(
            f"{origin} has no best checkpoint",
            "train it with --keep_best and --evaluate_interval, or give --checkpoint=latest",
        )
    folders = dict.fromkeys(complete_checkpoints(best), best)
    folders |= dict.fromkeys(complete_checkpoints(directory), directory)
    if int(which) not in folders:
        known = ", ".join(map(str, sorted(folders)))
        raise UserError(
            f"{origin} has no checkpoint after {which} iterations",
            f"use one of {known}" if known else "train it longer",
        )
    path = posixpath.join(folders[int(which)], f"ckpt-{which}")
    if problem := describe_damage(path):
        raise UserError(f"{path} {problem}", "give another --checkpoint")
    return path


def latest_checkpoint(
    directory: str,
    remedy: str = "restore them from a backup, or start again with another --model_dir",
) -> str | None:
    """Returns the path of the newest undamaged checkpoint, or None if none was ever saved.

    Damaged and incomplete checkpoints are skipped with a warning on stderr. If all are deleted
    while they are read, because their run goes on, the directory is listed again.

    Args:
      directory: The checkpoint directory.
      remedy: What to do if all are damaged.

    Raises:
      UserError: If all saved checkpoints are damaged or incomplete.
      tf.errors.OpError: If the bucket of the directory cannot be read.
    """
    seen: set[int] = set()
    for _ in range(_TRIES):
        numbers = list_checkpoints(directory)
        if seen.issuperset(numbers):
            break
        for done in reversed(numbers):
            path = posixpath.join(directory, f"ckpt-{done}")
            problem = describe_damage(path)
            if problem is None:
                return path
            if done not in seen and list_prefix(f"{path}."):  # else it was deleted
                logging.warning(f"{path} {problem} and is skipped")
        seen.update(numbers)
    if not is_empty(directory):
        raise UserError(
            f"{directory} contains no undamaged checkpoint, although checkpoints were saved there",
            remedy,
        )
    return None


def is_empty(directory: str) -> bool:
    """Returns True if no checkpoint was ever saved in a directory."""
    return not (
        complete_checkpoints(directory) or tf.io.gfile.exists(posixpath.join(directory, RECORD))
    )


@contextlib.contextmanager
def without_pattern(path: str) -> Iterator[str]:
    """Yields a path of the checkpoint without special characters of a glob pattern.

    TensorFlow's restore interprets the path as a glob pattern. A checkpoint whose path contains
    such characters is therefore copied to ram:// for the duration of the context.
    """
    if not re.search(r"[][*?\\]", path):
        yield path
        return
    plain = f"ram://{uuid.uuid4().hex}/{posixpath.basename(path)}"
    try:
        for file in list_prefix(f"{path}."):
            tf.io.gfile.copy(file, plain + file[len(path) :])
        yield plain
    finally:
        for copy in list_prefix(f"{plain}."):
            tf.io.gfile.remove(copy)


def delete(path: str) -> None:
    """Deletes the files of a checkpoint.

    The manifest is deleted first, so that a partly deleted checkpoint does not appear complete.
    """
    for file in files_of(path):
        delete_file(file)


def files_of(path: str) -> Iterator[str]:
    """Yields the paths of the files of a checkpoint, the manifest first."""
    files = [*list_prefix(f"{path}."), *list_prefix(f"{path}_temp")]
    yield from sorted(files, key=lambda file: not file.endswith(".json"))


def make_manifest(path: str, memory: dict[str, float] | None = None) -> str:
    """Returns the manifest for the files of a checkpoint.

    Args:
      path: The path of the checkpoint without a suffix, such as "checkpoints/ckpt-100".
      memory: See `Manifest`.
    """
    files = {
        file[len(path) :]: (tf.io.gfile.stat(file).length, file_sha256(file))
        for file in list_prefix(f"{path}.")
    }
    return to_text(Manifest(files, memory or {}))


def read_memory(path: str) -> dict[str, float]:
    """Returns the numbers that the manifest of an undamaged checkpoint contains."""
    manifest = read_dataclass(Manifest, f"{path}.json")
    return {} if manifest is None else manifest.memory


def describe_damage(path: str) -> str | None:
    """Returns a description of a checkpoint's damage, such as "is damaged (...)", or None.

    A checkpoint without damage has regular files only, so TensorFlow can open them.

    Raises:
      OtherVersionError: If the checkpoint was saved by another version of this program.
      tf.errors.OpError: If its bucket cannot be read.
    """
    try:
        return _describe_damage(path)
    except OtherVersionError:
        raise
    except UserError as error:
        return f"is damaged ({error.what})"
    except tf.errors.NotFoundError:
        return "is incomplete (a file is missing)"
    except (tf.errors.OpError, OSError) as error:
        if explain_bucket_error(error, path, "read"):
            raise  # an older checkpoint in that bucket is no way out
        return f"cannot be read ({reason(error)})"


def _describe_damage(path: str) -> str | None:
    manifest = read_dataclass(Manifest, f"{path}.json")
    if manifest is None:
        return "is incomplete (a file is missing)"
    present = {file[len(path) :] for file in list_prefix(f"{path}.")}
    if not set(filter(_SUFFIX.fullmatch, present)) <= manifest.files.keys():
        return "is damaged (its .json file lists other files)"
    for suffix, (length, sha256) in manifest.files.items():
        is_long = tf.io.gfile.stat(path + suffix).length == length
        if not is_long or file_sha256(path + suffix) != sha256:
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
