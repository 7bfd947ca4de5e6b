"""Saves and restores checkpoints.

ckpt-N.* hold the state after N iterations. ckpt-N.json, which is written last, is the seal: a
manifest with the lengths and hashes of the checkpoint's files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
import sys
import uuid
from collections.abc import Iterator

import tensorflow as tf

from .errors import NotFiniteError, UserError, reason
from .files import fsync, list_prefix, write_atomic
from .json_files import digest
from .state import TrainState

FORMAT = 1  # the version of the seal's and the checkpoint's format
RECORD = "checkpoint"  # TensorFlow's file with the name of the newest checkpoint
_BLOCK_BYTES = 2**20  # bytes per read
# The exceptions that reading a damaged seal can raise.
_OF_DAMAGED_JSON = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


class Checkpoints:
    """Saves and restores the state of a run.

    A checkpoint is complete once its seal exists. Files without a seal, left by a crash, are
    not a checkpoint, and a checkpoint that does not match its seal is damaged. The constructor
    neither reads nor writes files.

    Args:
      state: The state to save.
      directory: The checkpoint directory, any path that tf.io.gfile can open; also an attribute.
      writes: True if this process saves. When several processes train together, one of them
        does.
      keep: The number of newest checkpoints to keep.
      keep_interval: The first checkpoint at or after each multiple of this number of iterations
        is never deleted. 0 disables this.
      restore_from: A path of another run to start from if `directory` holds no checkpoint; see
        `resolve_restore_path`.
    """

    def __init__(
        self,
        state: TrainState,
        directory: str,
        *,
        writes: bool = True,
        keep: int = 5,
        keep_interval: int = 0,
        restore_from: str | None = None,
    ):
        self.directory = directory
        self._writes = writes
        self._keep = keep
        self._keep_interval = keep_interval
        self._restore_from = restore_from
        self._state = state
        self._checkpoint = state.checkpoint()

    def restore_latest(self) -> int:
        """Restores the newest undamaged checkpoint and returns its number of iterations.

        If the directory holds no checkpoint, `restore_from` is restored. Without `restore_from`,
        the state is left unchanged. Damaged and incomplete checkpoints are skipped with a
        warning on stderr. TensorFlow's file `checkpoint` is not used to find the newest one.

        Raises:
          UserError: If all saved checkpoints are damaged, or the checkpoint does not match this
            run's networks and optimizers exactly.
        """
        path = latest_checkpoint(self.directory)
        if path is None and self._restore_from is not None:
            path = resolve_restore_path(self._restore_from)
        return int(self._state.iteration.numpy()) if path is None else self.restore(path)

    @property
    def newest(self) -> int:
        """The number of the newest complete checkpoint in `directory`, or 0 if there is none."""
        return max(_sealed(self.directory), default=0)

    def restore(self, path: str) -> int:
        """Restores a checkpoint and returns its number of iterations.

        Args:
          path: The path of the checkpoint without a suffix, such as "checkpoints/ckpt-100".

        Raises:
          UserError: If the checkpoint does not match this run's networks and optimizers exactly,
            or its name does not match its number of iterations.
        """
        status = None
        try:
            # Strict in both directions: an unused or missing value would silently reset a part
            # of the run.
            with _without_pattern(path) as readable:
                status = self._checkpoint.read(readable)
            status.assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            if status is not None:
                status.expect_partial()  # avoids a warning per value in addition to the error
            raise UserError(
                f"{path} cannot be restored into this run's model ({reason(error)})",
                "give the flags, and the TF_USE_LEGACY_KERAS, it was trained with, or "
                "another --model_dir",
            ) from error
        iteration = int(self._state.iteration.numpy())
        if not path.endswith(f"ckpt-{iteration}"):
            raise UserError(
                f"{path} holds the state after {iteration} iterations",
                f"call it ckpt-{iteration}, as it was saved",
            )
        return iteration

    def roll_back(self) -> int:
        """Calls `restore_latest` and increases `rollbacks`, so that new noise is drawn."""
        tried = self.rollbacks
        iteration = self.restore_latest()
        self._state.rollbacks.assign(max(tried, self.rollbacks) + 1)
        return iteration

    @property
    def rollbacks(self) -> int:
        """The number of times that the state was rolled back."""
        return int(self._state.rollbacks.numpy())

    def save(self) -> None:
        """Saves the state as ckpt-<iterations done> and deletes old checkpoints.

        Raises:
          NotFiniteError: If the state is not finite; nothing is saved.
          UserError: If the checkpoint cannot be written or an old one cannot be deleted.
        """
        number = int(self._state.iteration.numpy())
        if bad := self._state.not_finite():
            raise NotFiniteError(
                f"after iteration {number}, {', '.join(bad[:3])}"
                f"{' and more' if len(bad) > 3 else ''}: not finite, so not saved",
                "lower the learning rates and begin, with another --model_dir, where "
                f"--restore_from={self.directory} stands",
            )
        if not self._writes:  # after the check above: all processes roll back together
            return
        path = posixpath.join(self.directory, f"ckpt-{number}")
        try:
            self._write(path)
            self._delete_old(number)
        except (tf.errors.OpError, OSError) as error:
            raise UserError(
                f"{path} cannot be saved ({reason(error)})",
                "make room there, or see to the right to write; then start again, and training "
                "goes on from the last checkpoint",
            ) from error

    def _write(self, path: str) -> None:
        _delete(path)  # files that a crash left, or a damaged checkpoint that was skipped
        self._checkpoint.write(path)
        for file in _files_of(path):  # they must be on the disk before the seal is
            fsync(file)
        write_atomic(f"{path}.json", _seal(path))
        # This file lets TensorFlow's own functions find the checkpoint. It also shows that
        # checkpoints were saved when none is left.
        name = posixpath.basename(path)
        write_atomic(
            posixpath.join(self.directory, RECORD),
            f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n',
        )

    def _delete_old(self, newest: int) -> None:
        sealed = [number for number in _sealed(self.directory) if number <= newest]
        kept = set(sealed[-self._keep :])
        if self._keep_interval:
            blocks: dict[int, int] = {}
            for number in sealed:
                blocks.setdefault(number // self._keep_interval, number)
            kept |= {number for block, number in blocks.items() if block}
        for name in tf.io.gfile.listdir(self.directory):
            match = re.match(r"ckpt-(\d+)[._]", name)
            if match and int(match[1]) < newest and int(match[1]) not in kept:
                _delete(posixpath.join(self.directory, f"ckpt-{match[1]}"))


def resolve_restore_path(path: str) -> str:
    """Returns the path of the checkpoint that --restore_from refers to.

    Args:
      path: A checkpoint, a run directory or a checkpoint directory. For a directory, the newest
        undamaged checkpoint is returned.

    Raises:
      UserError: If there is no checkpoint, or all checkpoints are damaged.
    """
    if re.search(r"ckpt-\d+$", path):
        problem = describe_damage(path)
        if problem is None:
            return path
    else:
        inside = posixpath.join(path, "checkpoints")
        newest = latest_checkpoint(inside if tf.io.gfile.isdir(inside) else path)
        if newest is not None:
            return newest
        problem = "holds no checkpoint"
    raise UserError(
        f"--restore_from={path} {problem}", "give a run directory, or one of its ckpt-N"
    )


def latest_checkpoint(directory: str) -> str | None:
    """Returns the path of the newest undamaged checkpoint, or None if none was ever saved.

    Damaged and incomplete checkpoints are skipped with a warning on stderr.

    Raises:
      UserError: If all saved checkpoints are damaged or incomplete.
    """
    for number in reversed(_numbers(directory)):
        path = posixpath.join(directory, f"ckpt-{number}")
        problem = describe_damage(path)
        if problem is None:
            return path
        print(f"warning: {path} {problem}, and is passed over", file=sys.stderr)
    if not is_empty(directory):
        raise UserError(
            f"{directory} has held checkpoints, of which not one is whole",
            "restore them from elsewhere, or begin again with another --model_dir",
        )
    return None


def is_empty(directory: str) -> bool:
    """Returns True if no checkpoint was ever saved in a directory."""
    return not (_sealed(directory) or tf.io.gfile.exists(posixpath.join(directory, RECORD)))


def describe_damage(path: str) -> str | None:
    """Returns a description of a checkpoint's damage, such as "is damaged", or None.

    Raises:
      UserError: If the checkpoint was saved by a newer version of this program.
    """
    try:
        with tf.io.gfile.GFile(f"{path}.json", "rb") as file:
            content = json.loads(file.read())
        seal = content.pop("seal")
        if seal != digest(content):
            return "is damaged (its .json is)"
        if content["format"] > FORMAT:
            raise UserError(
                f"{path} was saved by a newer version of this program "
                f"(format {content['format']}, here {FORMAT})",
                "install that version",
            )
        for suffix, (length, sha256) in content["files"].items():
            if _length_and_sha256(path + suffix) != (length, sha256):
                return f"is damaged (its {suffix} is not what was saved)"
    except tf.errors.NotFoundError:
        return "is not whole (a file is missing)"
    except (tf.errors.OpError, OSError, *_OF_DAMAGED_JSON) as error:
        return f"is damaged ({type(error).__name__})"
    return None


def _sealed(directory: str) -> list[int]:
    """Returns the numbers of the checkpoints with a seal, in ascending order."""
    return _numbers(directory, r"ckpt-(\d+)\.json$")


def _numbers(directory: str, pattern: str = r"ckpt-(\d+)[._]") -> list[int]:
    """Returns the numbers of the checkpoints with a file name that matches, in ascending order."""
    paths = list_prefix(posixpath.join(directory, "ckpt-"))
    matches = (re.match(pattern, posixpath.basename(path)) for path in paths)
    return sorted({int(match[1]) for match in matches if match})


def _seal(path: str) -> str:
    files = {file[len(path) :]: _length_and_sha256(file) for file in list_prefix(f"{path}.")}
    content = {"format": FORMAT, "files": files}
    return json.dumps({**content, "seal": digest(content)}, indent=2) + "\n"


def _length_and_sha256(path: str) -> tuple[int, str]:
    """Reads a file and returns its length in bytes and its SHA-256."""
    length, sha256 = 0, hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            length += len(block)
            sha256.update(block)
    return length, sha256.hexdigest()


@contextlib.contextmanager
def _without_pattern(path: str) -> Iterator[str]:
    """Yields a path of the checkpoint without characters of a glob pattern.

    TensorFlow's restore treats the path as a glob pattern. A checkpoint whose path contains such
    characters is therefore copied to ram:// for the duration of the context.
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


def _delete(path: str) -> None:
    """Deletes the files of a checkpoint, its seal first so that no partial one looks complete."""
    for file in _files_of(path):
        (tf.io.gfile.rmtree if tf.io.gfile.isdir(file) else tf.io.gfile.remove)(file)


def _files_of(path: str) -> Iterator[str]:
    files = [*list_prefix(f"{path}."), *list_prefix(f"{path}_temp")]
    yield from sorted(files, key=lambda file: not file.endswith(".json"))
