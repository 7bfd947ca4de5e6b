"""The JSON files of a run directory: objects with a checksum, and logs with one object per line."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any, TypeVar

import tensorflow as tf

from ..errors import UserError
from .files import read_file, write_atomic
from .typed_json import is_text, load_dataclass, to_json

VERSION = 1  # of all files of a run, of a store and of an export; there is no other one yet
_Loaded = TypeVar("_Loaded")
_VERSION, _CHECKSUM = "version", "checksum"
REMEDY = "restore the original file, or give another --model_dir"
_MOST_LOG_BYTES = 2**30  # a line per summary has about 1 KB


class OtherVersionError(UserError):
    """A file was written by another version of this program."""


def digest(content: Any) -> str:
    """Returns the SHA-256 of JSON content, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_object(path: str, content: Any) -> None:
    """Writes a dataclass or a dictionary with the version and a checksum, atomically."""
    write_atomic(path, to_text(content))


def to_text(content: Any) -> str:
    """Returns the text that `write_object` writes and `read_object` reads."""
    content = {**to_json(content), _VERSION: VERSION}
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


def read_object(path: str, remedy: str = REMEDY) -> dict[str, Any] | None:
    """Reads an object and checks its version and its checksum, which are not part of the result.

    Args:
      path: The path of the file.
      remedy: See `UserError`; for another file than that of a run directory.

    Returns:
      The object, or None if the file does not exist.

    Raises:
      OtherVersionError: If the file was written by another version of this program.
      UserError: If the file does not contain a JSON object with its checksum.
      tf.errors.OpError, OSError: If the file cannot be read; see `read_file`.
    """
    if not tf.io.gfile.exists(path):
        return None
    try:
        content = parse(read_file(path))
        is_whole = content.pop(_CHECKSUM) == digest(content)
    # It is no text, no JSON, nested too deeply, no object, or lacks a checksum.
    except (ValueError, RecursionError, AttributeError, TypeError, LookupError):
        is_whole = False
    if not is_whole:
        raise UserError(
            f"{path} is damaged or was edited: it is not a JSON object with its checksum", remedy
        )
    if content.pop(_VERSION, None) != VERSION:
        raise OtherVersionError(
            f"{path} was written by another version of this program", "use that version"
        )
    return content


def read_dataclass(cls: type[_Loaded], path: str, remedy: str = REMEDY) -> _Loaded | None:
    """Reads a file of a frozen dataclass; see `read_object` and `load_dataclass`."""
    content = read_object(path, remedy)
    return None if content is None else load_dataclass(cls, content, path, remedy)


@dataclasses.dataclass(frozen=True)
class Log:
    """The content of a file with one JSON object per line.

    Attributes:
      lines: (step, line including the line break) of every valid line.
      entries: The content of every valid line, by tag.
      damaged: (line number, line including the line break) of every invalid line.
      content: The content of the file, which may end with an incomplete line after a crash.
    """

    lines: list[tuple[int, bytes]]
    entries: list[dict[str, Any]]
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
        return Log([], [], [], b"")
    log = Log([], [], [], read_file(path, _MOST_LOG_BYTES))
    *lines, last = log.content.split(b"\n")
    if _entries_of(last) is not None:  # only its line break is missing
        lines.append(last)
    for number, line in enumerate(lines, 1):
        entries = _entries_of(line)
        if entries is not None and until is not None and entries["step"] > until:
            continue
        if entries is None or (ascending and log.lines and entries["step"] <= log.lines[-1][0]):
            log.damaged.append((number, line + b"\n"))
        else:
            log.lines.append((entries["step"], line + b"\n"))
            log.entries.append(entries)
    return log


def _entries_of(line: bytes) -> dict[str, Any] | None:
    """Returns the content of a line, or None if the line is damaged."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = content.get("step") if isinstance(content, dict) else None
    if type(step) is not int or not 0 <= step < 2**31:
        return None
    return content if all(map(_is_entry, content, content.values())) else None


def _is_entry(name: str, value: Any) -> bool:
    """Returns True for an entry of a line; the value of a tag such as "critic/loss" is a number."""
    if isinstance(value, int | float):  # also NaN
        return isinstance(value, float) or abs(value) < 2**63
    return "/" not in name and (value is None or is_text(value))
