"""Checkpoints: ckpt-N holds the state after N iterations."""

import posixpath
import re

import tensorflow as tf

from .errors import UserError
from .state import TrainState

KEEP = 5  # newest checkpoints kept


class Checkpoints:
    """Saves and restores the state of a run; nothing is read or written until asked for.

    Args:
      state: what to save.
      directory: any path tf.io.gfile can open; an attribute too.
      writes: whether this process saves; of several that train together, one does.
    """

    def __init__(self, state: TrainState, directory: str, *, writes: bool = True):
        self.directory = directory
        self._writes = writes
        self._state = state
        self._checkpoint = state.checkpoint()

    def restore_latest(self) -> int:
        """Restores the newest checkpoint, if there is one; returns the iterations done.

        The newest is the one with the highest number whose index, which is written last, is
        there. TensorFlow's own record, the file `checkpoint`, is not asked: a run copied
        without it would silently start afresh.

        Raises:
          UserError: the checkpoint is not wholly of this run's networks and optimizers.
        """
        path = self._newest()
        if path is not None:
            status = None
            try:
                # Strict both ways: a value left over or left out would be a silent fresh
                # start of part of the run.
                status = self._checkpoint.restore(path)
                status.assert_consumed()
            except (AssertionError, ValueError, tf.errors.OpError) as error:
                if status is not None:
                    status.expect_partial()  # one line says it; a warning per value would not
                reason = str(error).partition("\n")[0][:200]
                raise UserError(
                    f"{path} cannot be restored into this run's model ({reason})",
                    "give the flags, and the TF_USE_LEGACY_KERAS, it was trained with, or "
                    "another --model_dir",
                ) from error
        return int(self._state.iteration.numpy())

    def save(self) -> None:
        """Saves the state as ckpt-<iterations done>."""
        if not self._writes:
            return
        # Made here, because it reads the directory as it is made.
        manager = tf.train.CheckpointManager(
            self._checkpoint, self.directory, max_to_keep=KEEP, checkpoint_name="ckpt"
        )
        manager.save(checkpoint_number=int(self._state.iteration.numpy()))

    def _newest(self) -> str | None:
        numbers = [
            int(match[1])
            for path in tf.io.gfile.glob(posixpath.join(self.directory, "ckpt-*.index"))
            if (match := re.search(r"ckpt-(\d+)\.index$", path))
        ]
        return posixpath.join(self.directory, f"ckpt-{max(numbers)}") if numbers else None
