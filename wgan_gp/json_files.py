"""JSON files of a run directory: objects with a checksum, and logs of one object per line."""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from .errors import UserError
from .files import write_atomic

_CHECKSUM = "checksum"
_REMEDY = "restore the file as it was, or give another --model_dir"


def digest(content: Any) -> str:
    """Returns the SHA-256 of JSON content, which does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_object(path: str, content: Mapping[str, Any]) -> None:
    """Writes an object with its checksum atomically."""
    write_atomic(path, json.dumps({**content, _CHECKSUM: digest(content)}, indent=2) + "\n")


def read_object(path: str) -> dict[str, Any] | None:
    """Reads an object and checks its checksum, which is not part of the result.

    A file without a checksum, from an earlier version of this program, is accepted.

    Returns:
      The object, or None if the file does not exist.

    Raises:
      UserError: If the file does not contain a JSON object, or its checksum differs.
    """
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = json.loads(file.read())
    except (ValueError, RecursionError):  # not JSON, not text, or nested too deeply
        content = None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it holds no JSON object", _REMEDY)
    checksum = content.pop(_CHECKSUM, None)
    if checksum is not None and checksum != digest(content):
        raise UserError(f"{path} is damaged or was edited: its checksum differs", _REMEDY)
    return content


@dataclasses.dataclass(frozen=True)
class Log:
    """The content of a file with one JSON object per line.

    Attributes:
      lines: (step, line including the line break) of every valid line.
      damaged: (line number, line including the line break) of every invalid line.
      content: The content of the file, which may end with an incomplete line after a crash.
    """

    lines: list[tuple[int, bytes]]
    damaged: list[tuple[int, bytes]]
    content: bytes

    @property
    def last_step(self) -> int:
        """The largest step of a valid line, or 0 if there is none."""
        return max((step for step, _ in self.lines), default=0)


def read_log(path: str, *, ascending: bool = True) -> Log:
    """Reads a log. A file that does not exist is treated as empty.

    Args:
      path: The path of the file.
      ascending: Whether each step must be larger than the previous one. Lines that are not part of
        the longest ascending sequence are damaged.
    """
    if not tf.io.gfile.exists(path):
        return Log([], [], b"")
    with tf.io.gfile.GFile(path, "rb") as file:
        log = Log([], [], file.read())
    *whole, torn = log.content.split(b"\n")
    if _step_of(torn) is not None:  # only its line break is missing
        whole.append(torn)
    steps = [_step_of(line) for line in whole]
    valid = [index for index, step in enumerate(steps) if step is not None]
    if ascending:
        places = longest_ascending([steps[index] for index in valid])
        valid = [valid[place] for place in places]
    kept = set(valid)
    for index, (step, line) in enumerate(zip(steps, whole, strict=True)):
        if step is not None and index in kept:
            log.lines.append((step, line + b"\n"))
        else:
            log.damaged.append((index + 1, line + b"\n"))
    return log


def longest_ascending(numbers: Sequence[Any]) -> list[int]:
    """Returns the indices of a longest strictly ascending subsequence of some numbers.

    If one number of an ascending sequence was changed, it is the one that is left out, whether it
    is too large or too small.
    """
    # The smallest last number of an ascending subsequence of each length, and its index.
    ends: list[Any] = []
    indices: list[int] = []
    before: list[int | None] = []
    for index, number in enumerate(numbers):
        length = bisect.bisect_left(ends, number)
        ends[length : length + 1] = [number]
        indices[length : length + 1] = [index]
        before.append(indices[length - 1] if length else None)
    found: list[int] = []
    place = indices[-1] if indices else None
    while place is not None:
        found.append(place)
        place = before[place]
    return found[::-1]


def _step_of(line: bytes) -> int | None:
    """Returns the step of a line, or None if the line is damaged."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    step = content.get("step")
    scalars = all(isinstance(value, (int, float, str, type(None))) for value in content.values())
    return step if type(step) is int and step >= 0 and scalars else None
