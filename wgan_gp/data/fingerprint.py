"""Fingerprints, which identify a dataset without reading its files."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import Any

from ..json_files import digest
from .listing import local_path

# The entries of a fingerprint that are compared, and the descriptions of their differences.
_DESCRIPTIONS = {
    "names": "the file names differ",
    "classes": "the classes differ",
    "sizes": "the file sizes differ",
}


def compute_fingerprint(folder: str, files: Sequence[str], classes: Any) -> dict[str, Any]:
    """Returns the fingerprint of a dataset, as stored in data.json.

    Args:
      folder: The folder of the files; "" if `files` are full paths.
      files: The paths of the files in the folder, in the order of the dataset.
      classes: The names of the classes, or their number.

    Returns:
      The number of "files" and hashes of their "names", "classes" and "sizes". "sizes" is None
      if a file is not local, because each size would take a request.
    """
    paths = [posixpath.join(folder, file) for file in files]
    local = [path for path in map(local_path, paths) if path is not None]
    return {
        "files": len(files),
        "names": digest([posixpath.basename(file) if not folder else file for file in files]),
        "classes": digest(classes),
        "sizes": digest([_size(path) for path in local]) if len(local) == len(paths) else None,
    }


def describe_changes(before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    """Returns a description of the differences of two fingerprints, "" if none are known.

    Args:
      before: The recorded fingerprint, or None if none was recorded.
      now: The current fingerprint, or None for a dataset without files.
    """
    if before is None or now is None:
        return ""
    if before.get("files") != now["files"]:
        return f"{before.get('files')} files became {now['files']}"
    # Remote files have no sizes, and earlier versions may not have recorded all entries.
    known = [name for name in _DESCRIPTIONS if None not in (before.get(name), now[name])]
    return ", ".join(_DESCRIPTIONS[name] for name in known if before[name] != now[name])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # for example a broken link, which is reported when it is read
        return -1
