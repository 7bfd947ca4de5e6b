"""The JSON files of a run directory: objects with a checksum, and logs with one object per line."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ..errors import UserError
from .files import read_file, write_atomic
from .schema import Check, integer, text

_CHECKSUM = "checksum"
_REMEDY = "restore the original file, or give another --model_dir"
_MOST_LOG_BYTES = 2**30  # a line per summary has about 1 KB
_step = integer()


def digest(content: Any) -> str:
    """Returns the SHA-256 of JSON content, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_object(path: str, content: Mapping[str, Any]) -> None:
    """Writes an object with its checksum atomically."""
    write_atomic(path, to_text(content))


def to_text(content: Mapping[str, Any]) -> str:
    """Returns the text of an object with its checksum, which `read_object` reads."""
    return json.dumps({**content, _CHECKSUM: digest(content)}, indent=2) + "\n"


def parse(content: bytes) -> Any:
    """Returns the value of a JSON text in which every name occurs once and every number is finite.

    Raises:
      ValueError, RecursionError: If it is not such a text, or it is nested too deeply.
    """
    return json.loads(
        content, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _finite(spelled: str) -> float:
    value = float(spelled)
    if not math.isfinite(value):
        raise ValueError(f"{spelled} is not finite")
    return value


def read_object(
    path: str, check: Check | None = None, remedy: str = _REMEDY
) -> dict[str, Any] | None:
    """Reads an object and checks its checksum, which is not part of the result.

    Args:
      path: The path of the file.
      check: A check of the content; see schema.py.
      remedy: See `UserError`; for another file than that of a run directory.

    Returns:
      The object, or None if the file does not exist.

    Raises:
      UserError: If the file does not contain a JSON object, it has no checksum or another one, or
        the content does not pass the check.
      tf.errors.OpError, OSError: If the file cannot be read; see `read_file`.
    """
    if not tf.io.gfile.exists(path):
        return None
    raw = read_file(path)
    content, is_equal = None, False
    try:
        content = parse(raw)
        if isinstance(content, dict):
            is_equal = content.pop(_CHECKSUM, None) == digest(content)
    except (ValueError, RecursionError):  # not JSON, not text, or nested too deeply
        pass
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it does not contain a JSON object", remedy)
    if not is_equal:
        raise UserError(f"{path} is damaged or was edited: its checksum does not match", remedy)
    if check is not None and not check(content):
        raise UserError(f"{path} is damaged or was edited: it has other entries", remedy)
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


def read_log(path: str, *, ascending: bool = True, until: int | None = None) -> Log:
    """Reads a log; a missing file is treated as empty.

    Args:
      path: The path of the file.
      ascending: Whether a line whose step is not larger than that of the line before is damaged.
      until: Lines of later steps are left out.
    """
    if not tf.io.gfile.exists(path):
        return Log([], [], b"")
    log = Log([], [], read_file(path, _MOST_LOG_BYTES))
    *lines, last = log.content.split(b"\n")
    if _step_of(last) is not None:  # only its line break is missing
        lines.append(last)
    for number, line in enumerate(lines, 1):
        step = _step_of(line)
        if step is not None and until is not None and step > until:
            continue
        if step is None or (ascending and log.lines and step <= log.lines[-1][0]):
            log.damaged.append((number, line + b"\n"))
        else:
            log.lines.append((step, line + b"\n"))
    return log


def _step_of(line: bytes) -> int | None:
    """Returns the step of a line, or None if the line is damaged."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not _step(content.get("step")):
        return None
    return content["step"] if all(map(_is_entry, content, content.values())) else None


def _is_entry(name: str, value: Any) -> bool:
    """Returns True for an entry of a line; the value of a tag such as "critic/loss" is a number."""
    if isinstance(value, int | float):  # also NaN
        return isinstance(value, float) or abs(value) < 2**63
    return "/" not in name and (value is None or text(value))
