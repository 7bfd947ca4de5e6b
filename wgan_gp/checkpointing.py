"""Checkpoints: ckpt-N holds the state after N iterations; ckpt-N.json, written last, seals it."""

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
from .files import paths_starting_with, replace_text, sync
from .json_files import digest
from .state import TrainState

FORMAT = 1  # of the seal, and of what a checkpoint holds
RECORD = "checkpoint"  # TensorFlow's name for it
_BLOCK_BYTES = 2**20  # read at a time
# What a seal that holds something else raises.
_OF_DAMAGED_JSON = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


class Checkpoints:
    """Saves and restores the state of a run; nothing is read or written until asked for.

    A checkpoint counts once its seal is there: the lengths and hashes of its files. What a
    crash left without one is no checkpoint, and one that does not match its seal is damaged.

    Args:
      state: what to save.
      directory: any path tf.io.gfile can open; an attribute too.
      writes: whether this process saves; of several that train together, one does.
      keep: newest checkpoints kept.
      keep_interval: the first checkpoint at or after every multiple of this many iterations is
        kept for good; 0: none.
      restore_from: where to begin while `directory` holds none; see `find`.
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
        """Restores the newest whole checkpoint, else `restore_from`; returns the iterations done.

        Newer ones that are damaged or unfinished are named on stderr and passed over.
        TensorFlow's own record, the file `checkpoint`, is not asked which is the newest.

        Raises:
          UserError: checkpoints were saved, and not one is whole; or it is not wholly of this
            run's networks and optimizers.
        """
        path = newest_whole(self.directory)
        if path is None and self._restore_from is not None:
            path = find(self._restore_from)
        return int(self._state.iteration.numpy()) if path is None else self.restore(path)

    def restore(self, path: str) -> int:
        """Restores one, by its path without an ending; returns the iterations done.

        Raises:
          UserError: it is not wholly of this run's networks and optimizers.
        """
        status = None
        try:
            # Strict both ways: a value left over or left out would be a silent fresh
            # start of part of the run.
            with _without_pattern(path) as readable:
                status = self._checkpoint.read(readable)
            status.assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            if status is not None:
                status.expect_partial()  # one line says it; a warning per value would not
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
        """As `restore_latest`; what is trained from then on draws noise it has not drawn before."""
        tried = self.rollbacks
        iteration = self.restore_latest()
        self._state.rollbacks.assign(max(tried, self.rollbacks) + 1)
        return iteration

    @property
    def rollbacks(self) -> int:
        """How often the state was rolled back."""
        return int(self._state.rollbacks.numpy())

    def save(self) -> None:
        """Saves the state as ckpt-<iterations done>, and deletes what need not be kept.

        Raises:
          NotFiniteError: it is not finite, and nothing was saved.
          UserError: it cannot be written; the earlier checkpoints are as they were.
        """
        number = int(self._state.iteration.numpy())
        if bad := self._state.not_finite():
            raise NotFiniteError(
                f"after iteration {number}, {', '.join(bad[:3])}"
                f"{' and more' if len(bad) > 3 else ''}: not finite, so not saved",
                "lower the learning rates and begin, with another --model_dir, where "
                f"--restore_from={self.directory} stands",
            )
        if not self._writes:  # but all processes find the same, and go back together
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
        _delete(path)  # what a crash left, or a damaged one that was passed over
        self._checkpoint.write(path)
        for file in _files_of(path):  # on the disk before their seal is
            sync(file)
        replace_text(f"{path}.json", _seal(path))
        # For those who read the directory with TensorFlow alone, and to tell, when none is
        # left, that there were checkpoints.
        name = posixpath.basename(path)
        replace_text(
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


def find(path: str) -> str:
    """The checkpoint that --restore_from means: itself, or the newest of a run or a folder.

    Raises:
      UserError: there is none, or not a whole one.
    """
    if re.search(r"ckpt-\d+$", path):
        problem = find_problem(path)
        if problem is None:
            return path
    else:
        inside = posixpath.join(path, "checkpoints")
        newest = newest_whole(inside if tf.io.gfile.isdir(inside) else path)
        if newest is not None:
            return newest
        problem = "holds no checkpoint"
    raise UserError(
        f"--restore_from={path} {problem}", "give a run directory, or one of its ckpt-N"
    )


def newest_whole(directory: str) -> str | None:
    """The path of the newest checkpoint that is whole; None if none was ever saved.

    Raises:
      UserError: some were saved, and not one is whole.
    """
    for number in reversed(_numbers(directory)):
        path = posixpath.join(directory, f"ckpt-{number}")
        problem = find_problem(path)
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
    """Whether no checkpoint was ever saved there."""
    return not (_sealed(directory) or tf.io.gfile.exists(posixpath.join(directory, RECORD)))


def find_problem(path: str) -> str | None:
    """What is wrong with a checkpoint's files, as "is ..."; None: it is whole.

    Raises:
      UserError: it is of a newer version of this program.
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
            if _look_at(path + suffix) != (length, sha256):
                return f"is damaged (its {suffix} is not what was saved)"
    except tf.errors.NotFoundError:
        return "is not whole (a file is missing)"
    except (tf.errors.OpError, OSError, *_OF_DAMAGED_JSON) as error:
        return f"is damaged ({type(error).__name__})"
    return None


def _sealed(directory: str) -> list[int]:
    """Returns the numbers of the checkpoints with a seal, ascending."""
    return _numbers(directory, r"ckpt-(\d+)\.json$")


def _numbers(directory: str, pattern: str = r"ckpt-(\d+)[._]") -> list[int]:
    """Returns the numbers of the checkpoints with a file that matches a pattern, ascending."""
    paths = paths_starting_with(posixpath.join(directory, "ckpt-"))
    matches = (re.match(pattern, posixpath.basename(path)) for path in paths)
    return sorted({int(match[1]) for match in matches if match})


def _seal(path: str) -> str:
    files = {file[len(path) :]: _look_at(file) for file in paths_starting_with(f"{path}.")}
    content = {"format": FORMAT, "files": files}
    return json.dumps({**content, "seal": digest(content)}, indent=2) + "\n"


def _look_at(path: str) -> tuple[int, str]:
    """Length and hash of a file, as it is read back."""
    length, sha256 = 0, hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            length += len(block)
            sha256.update(block)
    return length, sha256.hexdigest()


@contextlib.contextmanager
def _without_pattern(path: str) -> Iterator[str]:
    """Yields a path of the same checkpoint that TensorFlow does not read as a pattern.

    Its restore looks for the files by pattern, whatever their path. A checkpoint whose path holds
    characters of one is copied into memory.
    """
    if not re.search(r"[][*?\\]", path):
        yield path
        return
    plain = f"ram://{uuid.uuid4().hex}/{posixpath.basename(path)}"
    try:
        for file in paths_starting_with(f"{path}."):
            tf.io.gfile.copy(file, plain + file[len(path) :])
        yield plain
    finally:
        for copy in paths_starting_with(f"{plain}."):
            tf.io.gfile.remove(copy)


def _delete(path: str) -> None:
    """A checkpoint, whole or what is left of it; its seal first, so that no half of it counts."""
    for file in _files_of(path):
        (tf.io.gfile.rmtree if tf.io.gfile.isdir(file) else tf.io.gfile.remove)(file)


def _files_of(path: str) -> Iterator[str]:
    files = [*paths_starting_with(f"{path}."), *paths_starting_with(f"{path}_temp")]
    yield from sorted(files, key=lambda file: not file.endswith(".json"))
