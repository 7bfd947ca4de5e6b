"""Saves, restores and deletes checkpoints.

ckpt-N.* contain the state after N iterations; checkpoint_files.py describes ckpt-N.json.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import re

import tensorflow as tf

from ..errors import NotFiniteError, UserError, reason
from ..run_directory.files import convert_file_errors, fsync, this_machine, write_atomic
from .checkpoint_files import (
    RECORD,
    complete_checkpoints,
    delete,
    explaining_changes,
    files_of,
    latest_checkpoint,
    make_manifest,
    read_memory,
    resolve_restore_path,
    restore_found,
    without_pattern,
)
from .state import TrainState
from .transfer import transfer

_EARLIER_ROLLBACKS = "rollbacks of earlier runs"  # an entry of `Checkpoints.memory`


@dataclasses.dataclass(frozen=True)
class Origin:
    """The checkpoint of another run from which a run starts.

    Attributes:
      path: The other run, or its checkpoint; see `resolve_restore_path`.
      which: The checkpoint of the run: "latest", "best" or a number of iterations.
      transferred: The networks whose weights are taken as far as they fit; see `transfer`. None
        restores all of the checkpoint strictly.
    """

    path: str
    which: str = "latest"
    transferred: str | None = None


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
      origin: The state to start from if `directory` contains no checkpoint.

    Attributes:
      last_iteration: The iteration of the state that was last saved or restored.
      memory: Numbers that hooks remember, by name. They are saved and restored with the state.
    """

    def __init__(
        self,
        state: TrainState,
        directory: str,
        *,
        writes: bool = True,
        keep: int = 5,
        origin: Origin | None = None,
    ):
        self.directory = directory
        self._writes = writes
        self._keep = keep
        self._origin = origin
        self._state = state
        self._checkpoint = state.checkpoint()
        self._options = tf.train.CheckpointOptions(experimental_io_device=this_machine())
        self.last_iteration = 0
        self.memory: dict[str, float] = {}

    def restore_latest(self) -> int:
        """Restores the newest undamaged checkpoint and returns its number of iterations.

        If the directory contains no checkpoint, that of `origin` is restored. Without `origin`, the
        state is left unchanged. Damaged and incomplete checkpoints are skipped with a
        warning on stderr. TensorFlow's file `checkpoint` is not read.

        Raises:
          UserError: If all saved checkpoints are damaged, or the checkpoint does not match this
            run's networks and optimizers exactly.
        """
        with convert_file_errors(self.directory, "read", "check the path and the network"):
            path = latest_checkpoint(self.directory)
        if path is not None:
            iteration = self.restore(path)
            self.memory = read_memory(path)
            return iteration
        if self._origin is None:
            return self.iteration
        origin = self._origin
        use = self.restore if origin.transferred is None else self._transfer
        iteration = restore_found(lambda: resolve_restore_path(origin.path, origin.which), use)
        self.memory = {_EARLIER_ROLLBACKS: self.rollbacks} if self.rollbacks else {}
        return iteration

    def _transfer(self, path: str) -> int:
        """Takes the weights that fit from a checkpoint of `origin`; see `transfer`."""
        assert self._origin is not None
        networks, run = str(self._origin.transferred), self._origin.path
        try:
            with explaining_changes(path), without_pattern(path) as readable:
                transfer(self._state, readable, networks, run)
        except UserError:
            raise
        except Exception as error:  # as in `restore`
            raise UserError(
                f"--restore_from={run}: {path} is not a checkpoint of this program "
                f"({type(error).__name__}: {reason(error)})",
                "give another checkpoint",
            ) from error
        return self.iteration

    @property
    def iteration(self) -> int:
        """The number of iterations that the state has done."""
        return int(self._state.iteration.numpy())

    @property
    def newest(self) -> int:
        """The number of the newest complete checkpoint in `directory`, or 0 if there is none."""
        with convert_file_errors(self.directory, "read", "check the path and the network"):
            return max(complete_checkpoints(self.directory), default=0)

    def restore(self, path: str) -> int:
        """Restores a checkpoint and returns its number of iterations.

        Args:
          path: The path of the checkpoint without a suffix, such as "checkpoints/ckpt-100".

        Raises:
          ChangedError: If it was deleted or replaced after it was found.
          UserError: If the checkpoint does not match this run's networks and optimizers exactly,
            or its name does not match its number of iterations.
        """
        status = None
        try:
            # A missing or unused value is an error, because it would silently reset a part of the
            # run.
            with explaining_changes(path), without_pattern(path) as readable:
                status = self._checkpoint.read(readable, self._options)
            if self._state.critic_optimizer is None:  # see `TrainState`
                status.assert_existing_objects_matched().expect_partial()
            else:
                status.assert_consumed()
        except UserError:
            raise
        # TensorFlow raises many types for the content of a checkpoint that it did not write.
        except Exception as error:
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

    @property
    def own_rollbacks(self) -> int:
        """The number of these times in this run, without those of a run that it started from."""
        return self.rollbacks - int(self.memory.get(_EARLIER_ROLLBACKS, 0))

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
                "lower the learning rates",
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
        delete(path)  # files left by a crash, or a damaged checkpoint that was skipped
        try:
            self._checkpoint.write(path, self._options)
            for file in files_of(path):  # these must be on the disk before the manifest
                fsync(file)
            write_atomic(f"{path}.json", make_manifest(path, self.memory))
        except BaseException:
            # The beginning of a checkpoint that does not fit would keep the disk full.
            with contextlib.suppress(tf.errors.OpError, OSError):
                delete(path)
            raise
        # TensorFlow's own functions find the checkpoint by this file. If all checkpoints are lost,
        # it also shows that there were some.
        name = posixpath.basename(path)
        write_atomic(
            posixpath.join(self.directory, RECORD),
            f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n',
        )

    def _delete_old(self, newest: int) -> None:
        complete = [number for number in complete_checkpoints(self.directory) if number <= newest]
        kept = set(complete[-self._keep :])
        for name in tf.io.gfile.listdir(self.directory):
            match = re.match(r"ckpt-(\d+)[._]", name)
            if match and int(match[1]) < newest and int(match[1]) not in kept:
                delete(posixpath.join(self.directory, f"ckpt-{match[1]}"))
