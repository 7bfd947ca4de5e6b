"""What tells one dataset from another without reading its content."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import Any

from ..json_files import digest

# What a fingerprint compares, in words.
_IN_WORDS = {
    "names": "the names of its files are others",
    "classes": "the names or the number of its classes are others",
    "sizes": "files have another size",
}


def fingerprint(folder: str, files: Sequence[str], classes: Any) -> dict[str, Any]:
    """Returns what data.json says of the files of a dataset.

    Args:
      folder: that the files lie in; "" if they are whole paths.
      files: their paths in it, in the order of the dataset.
      classes: the names of the classes, or their number.

    Returns:
      "files", their number, and hashes of their "names", "classes" and "sizes". The sizes of files
      that are not local are None: each would cost a request.
    """
    paths = [posixpath.join(folder, file) for file in files]
    local = not any("://" in path for path in paths)
    return {
        "files": len(files),
        "names": digest([posixpath.basename(file) if not folder else file for file in files]),
        "classes": digest(classes),
        "sizes": digest([_size(path) for path in paths]) if local else None,
    }


def describe_changes(before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    """Returns in words how two fingerprints differ; "" if nobody can tell that they do.

    Args:
      before, now: what `fingerprint` returned; None where nothing was recorded.
    """
    if before is None or now is None:
        return ""
    if before.get("files") != now["files"]:
        return f"{before.get('files')} files became {now['files']}"
    # A copy elsewhere has no sizes, or no one recorded them.
    known = [name for name in _IN_WORDS if None not in (before.get(name), now[name])]
    return ", ".join(_IN_WORDS[name] for name in known if before[name] != now[name])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # such as a link to nothing, which is named when it is read
        return -1
