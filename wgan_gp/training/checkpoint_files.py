"""Finds checkpoints that can be restored, and deletes the files of a checkpoint."""

from __future__ import annotations

import contextlib
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from ..errors import UserError
from ..run_directory.files import convert_file_errors, list_prefix
from ..run_directory.files import delete as delete_file
from .checkpoint_manifest import complete_checkpoints, describe_damage, list_checkpoints

RECORD = "checkpoint"  # TensorFlow's file with the name of the newest checkpoint
_TRIES = 5  # to restore a checkpoint of a run that goes on and deletes its old ones
_REMEDY = "check the path, the permissions and the network"


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


def resolve_restore_path(path: str) -> str:
    """Returns the path of the checkpoint to which --restore_from refers.

    Args:
      path: A checkpoint, a run directory or a checkpoint directory. For a directory, the newest
        undamaged checkpoint is returned.

    Raises:
      UserError: If there is no checkpoint, all checkpoints are damaged, or the path cannot be read.
    """
    with convert_file_errors(f"--restore_from={path}", "read", _REMEDY):
        if re.search(r"ckpt-\d+$", path):
            problem = describe_damage(path)
            if problem is None:
                return path
            remedy = "give another checkpoint, or the run directory to use its newest undamaged one"
        else:
            inside = posixpath.join(path, "checkpoints")
            newest = latest_checkpoint(inside if tf.io.gfile.isdir(inside) else path)
            if newest is not None:
                return newest
            problem = "contains no checkpoint"
            remedy = "give a run directory, or a checkpoint such as RUN/checkpoints/ckpt-100"
    raise UserError(f"--restore_from={path} {problem}", remedy)


def latest_checkpoint(directory: str) -> str | None:
    """Returns the path of the newest undamaged checkpoint, or None if none was ever saved.

    Damaged and incomplete checkpoints are skipped with a warning on stderr. If all are deleted
    while they are read, because their run goes on, the directory is listed again.

    Raises:
      UserError: If all saved checkpoints are damaged or incomplete.
      tf.errors.OpError: If the bucket of the directory cannot be read.
    """
    seen: set[int] = set()
    for _ in range(_TRIES):
        numbers = list_checkpoints(directory)
        if seen.issuperset(numbers):
            break
        for number in reversed(numbers):
            path = posixpath.join(directory, f"ckpt-{number}")
            problem = describe_damage(path)
            if problem is None:
                return path
            if number not in seen and list_prefix(f"{path}."):  # else it was deleted
                logging.warning(f"{path} {problem} and is skipped")
        seen.update(numbers)
    if not is_empty(directory):
        raise UserError(
            f"{directory} contains no undamaged checkpoint, although checkpoints were saved there",
            "restore them from a backup, or start again with another --model_dir",
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
