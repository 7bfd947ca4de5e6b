"""Fingerprints, which identify a dataset without reading its files."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import Any

from ...run_directory.json_files import digest
from .listing import local_path


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


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # for example a broken link, which is reported when it is read
        return -1
