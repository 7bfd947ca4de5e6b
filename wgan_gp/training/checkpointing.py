"""Saves, restores and deletes checkpoints.

ckpt-N.* contain the state after N iterations; checkpoint_manifest.py describes ckpt-N.json.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import uuid
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from ..errors import NotFiniteError, UserError, reason
from ..run_directory.files import fsync, list_prefix, write_atomic
from .checkpoint_manifest import (
    complete_checkpoints,
    describe_damage,
    list_checkpoints,
    make_manifest,
)
from .state import TrainState
from .transfer import transfer

_RECORD = "checkpoint"  # TensorFlow's file with the name of the newest checkpoint


class Checkpoints:
    """Saves and restores the state of a run.

    A checkpoint is complete once its manifest exists. The constructor neither reads nor writes
    files.

    Args:
      state: The state to save.
      directory: The checkpoint directory, any path that tf.io.gfile can open; also an attribute.
      writes: Whether this process writes checkpoints. If several processes train together, only
        the chief does.
      keep: The number of newest checkpoints to keep.
      keep_interval: The first checkpoint at or after each multiple of this number of iterations
        is never deleted. 0 disables this.
      restore_from: A path of another run to start from if `directory` contains no checkpoint; see
        `resolve_restore_path`.
      transferred: The networks whose weights are taken from `restore_from` as far as they fit; see
        `transfer`. None restores all of it strictly.

    Attributes:
      last_iteration: The iteration of the state that was last saved or restored.
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
        transferred: str | None = None,
    ):
        self.directory = directory
        self._writes = writes
        self._keep = keep
        self._keep_interval = keep_interval
        self._restore_from = restore_from
        self._transferred = transferred
        self._state = state
        self._checkpoint = state.checkpoint()
        self.last_iteration = 0

    def restore_latest(self) -> int:
        """Restores the newest undamaged checkpoint and returns its number of iterations.

        If the directory contains no checkpoint, `restore_from` is restored. Without `restore_from`,
        the state is left unchanged. Damaged and incomplete checkpoints are skipped with a
        warning on stderr. TensorFlow's file `checkpoint` is not read.

        Raises:
          UserError: If all saved checkpoints are damaged, or the checkpoint does not match this
            run's networks and optimizers exactly.
        """
        path = latest_checkpoint(self.directory)
        if path is None and self._restore_from is not None:
            path = resolve_restore_path(self._restore_from)
            if self._transferred is not None:
                with _without_pattern(path) as readable:
                    transfer(self._state, readable, self._transferred, self._restore_from)
                return self.iteration
        return self.iteration if path is None else self.restore(path)

    @property
    def iteration(self) -> int:
        """The number of iterations that the state has done."""
        return int(self._state.iteration.numpy())

    @property
    def newest(self) -> int:
        """The number of the newest complete checkpoint in `directory`, or 0 if there is none."""
        return max(complete_checkpoints(self.directory), default=0)

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
            # A missing or unused value is an error, because it would silently reset a part of the
            # run.
            with _without_pattern(path) as readable:
                status = self._checkpoint.read(readable)
            status.assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            if status is not None:
                status.expect_partial()  # avoids a warning per value in addition to the error
            raise UserError(
                f"{path} cannot be restored into this run's model ({reason(error)})",
                "use the flags that it was trained with, or give another --model_dir",
            ) from error
        iteration = self.iteration
        if not path.endswith(f"ckpt-{iteration}"):
            raise UserError(
                f"{path} contains the state after {iteration} iterations",
                f"rename its files to ckpt-{iteration}",
            )
        self.last_iteration = iteration
        return iteration

    def roll_back(self) -> int:
        """Calls `restore_latest` and increments `rollbacks`, so that different noise is drawn.

        Returns:
          The number of iterations of the restored state.
        """
        before = self.rollbacks
        iteration = self.restore_latest()
        self._state.rollbacks.assign(max(before, self.rollbacks) + 1)
        return iteration

    @property
    def rollbacks(self) -> int:
        """The number of times that the state was rolled back."""
        return int(self._state.rollbacks.numpy())

    def save(self) -> None:
        """Saves the state as ckpt-N after N iterations, and deletes old checkpoints.

        Raises:
          NotFiniteError: If the state contains NaN or infinity; nothing is saved.
          UserError: If the checkpoint cannot be written or an old one cannot be deleted.
        """
        number = self.iteration
        if bad := self._state.not_finite():
            raise NotFiniteError(
                f"the state after iteration {number} is not saved, because it is not finite "
                f"({', '.join(bad[:3])}{' and more' if len(bad) > 3 else ''})",
                "lower the learning rates and start a new run with another --model_dir and "
                f"--restore_from={self.directory}",
            )
        path = posixpath.join(self.directory, f"ckpt-{number}")
        try:
            if self._writes:  # after the check above: all processes roll back together
                self._write(path)
                self._delete_old(number)
        except (tf.errors.OpError, OSError) as error:
            raise UserError(
                f"{path} cannot be saved ({reason(error)})",
                "free disk space or check the permissions, then start again: training continues "
                "from the last checkpoint",
            ) from error
        self.last_iteration = number

    def _write(self, path: str) -> None:
        _delete(path)  # files left by a crash, or a damaged checkpoint that was skipped
        self._checkpoint.write(path)
        for file in _files_of(path):  # these must be on the disk before the manifest
            fsync(file)
        write_atomic(f"{path}.json", make_manifest(path))
        # TensorFlow's own functions find the checkpoint by this file. If all checkpoints are lost,
        # it also shows that there were some.
        name = posixpath.basename(path)
        write_atomic(
            posixpath.join(self.directory, _RECORD),
            f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n',
        )

    def _delete_old(self, newest: int) -> None:
        complete = [number for number in complete_checkpoints(self.directory) if number <= newest]
        kept = set(complete[-self._keep :])
        if self._keep_interval:
            first_of_interval: dict[int, int] = {}
            for number in complete:
                first_of_interval.setdefault(number // self._keep_interval, number)
            kept |= {number for interval, number in first_of_interval.items() if interval}
        for name in tf.io.gfile.listdir(self.directory):
            match = re.match(r"ckpt-(\d+)[._]", name)
            if match and int(match[1]) < newest and int(match[1]) not in kept:
                _delete(posixpath.join(self.directory, f"ckpt-{match[1]}"))


def resolve_restore_path(path: str) -> str:
    """Returns the path of the checkpoint to which --restore_from refers.

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

    Damaged and incomplete checkpoints are skipped with a warning on stderr.

    Raises:
      UserError: If all saved checkpoints are damaged or incomplete.
    """
    for number in reversed(list_checkpoints(directory)):
        path = posixpath.join(directory, f"ckpt-{number}")
        problem = describe_damage(path)
        if problem is None:
            return path
        logging.warning(f"{path} {problem} and is skipped")
    if not is_empty(directory):
        raise UserError(
            f"{directory} contains no undamaged checkpoint, although checkpoints were saved there",
            "restore them from a backup, or start again with another --model_dir",
        )
    return None


def is_empty(directory: str) -> bool:
    """Returns True if no checkpoint was ever saved in a directory."""
    return not (
        complete_checkpoints(directory) or tf.io.gfile.exists(posixpath.join(directory, _RECORD))
    )


@contextlib.contextmanager
def _without_pattern(path: str) -> Iterator[str]:
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


def _delete(path: str) -> None:
    """Deletes the files of a checkpoint.

    The manifest is deleted first, so that a partly deleted checkpoint does not appear complete.
    """
    for file in _files_of(path):
        (tf.io.gfile.rmtree if tf.io.gfile.isdir(file) else tf.io.gfile.remove)(file)


def _files_of(path: str) -> Iterator[str]:
    files = [*list_prefix(f"{path}."), *list_prefix(f"{path}_temp")]
    yield from sorted(files, key=lambda file: not file.endswith(".json"))
