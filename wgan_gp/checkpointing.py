"""Checkpoints: ckpt-N holds the state after N iterations."""

import tensorflow as tf

from .errors import UserError
from .state import TrainState

KEEP = 5  # newest checkpoints kept


class Checkpoints:
    """Saves and restores the state of a run; nothing is read or written until asked for.

    Args:
      state: what to save.
      directory: any path tf.io.gfile can open; an attribute too.
    """

    def __init__(self, state: TrainState, directory: str):
        self.directory = directory
        self._state = state
        self._checkpoint = state.checkpoint()
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, directory, max_to_keep=KEEP, checkpoint_name="ckpt"
        )

    def restore_latest(self) -> int:
        """Restores the newest checkpoint, if there is one; returns the iterations done.

        Raises:
          UserError: the checkpoint is not wholly of this run's networks and optimizers.
        """
        path = self._manager.latest_checkpoint
        if path is not None:
            try:
                # Strict both ways: a value left over or left out would be a silent fresh
                # start of part of the run.
                self._checkpoint.restore(path).assert_consumed()
            except (AssertionError, ValueError, tf.errors.OpError) as error:
                reason = str(error).partition("\n")[0]
                raise UserError(
                    f"{path} cannot be restored into this run's model ({reason})",
                    "give the flags it was trained with, or another --model_dir",
                ) from error
        return int(self._state.iteration.numpy())

    def save(self) -> str:
        """Saves the state as ckpt-<iterations done>; returns its path."""
        return self._manager.save(checkpoint_number=int(self._state.iteration.numpy()))
