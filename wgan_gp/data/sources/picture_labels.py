"""The splits and the classes of pictures: conventions of their folders, and files of labels."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from ...errors import UserError, printable, reason, shorten
from ..frames import find_encoding, read_frame
from .encoded import Unreadable
from .labels import LABEL_NAMES, is_one_hot, number_labels

if TYPE_CHECKING:
    from .folder import Folder, Zip

# Files with the labels of pictures: of Hugging Face's ImageFolder, and of StyleGAN's tools.
LABEL_FILES = ("metadata.csv", "metadata.jsonl", "dataset.json")
_FILE_NAME = "file_name"  # the column of the paths, relative to the file of labels
_SPLITS = {  # the names of Hugging Face's datasets
    "train": {"train", "training"},
    "validation": {"validation", "valid", "val", "dev"},
    "test": {"test", "testing", "eval", "evaluation"},
}
_LABEL = (str, int, float)
_SEPARATORS = re.compile(r"[-._0-9]+")  # as in train2017 and seg_train


class Pictures(NamedTuple):
    """The pictures of one split of a folder or an archive.

    Attributes:
      names: Their paths, in the order of the dataset.
      labels: The number of the class of each picture; zeros without classes.
      class_names: The names of the classes; None without classes.
    """

    names: list[str]
    labels: list[int]
    class_names: tuple[str, ...] | None


def split_name(folder: str) -> str | None:
    """Returns "train", "validation" or "test" for a name such as "val", or None."""
    words = set(_SEPARATORS.split(folder.lower()))
    found = [split for split, names in _SPLITS.items() if words & names]
    return found[0] if len(found) == 1 else None


def divide(names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Returns pictures by their splits, or under "" if their folders are no splits.

    A picture is its path and the first folder in it, below its split, which may be its class; ""
    if there is none.

    The folders at the top are splits if all of them are named so, for at least two splits, or if
    "train" and another split are among them. Folders that contain all pictures are left out of the
    paths, because they are only wrapped around the others.
    """
    tails = _without_wrapper(names)
    heads = {_first_folder(tail) for tail in tails}
    splits = {head: split_name(head) for head in heads}
    exact = {split for head, split in splits.items() if split and head.lower() in _SPLITS[split]}
    is_divided = len(exact) > 1 and "train" in exact
    if not is_divided:
        is_divided = None not in splits.values() and len(set(splits.values())) > 1
    found: dict[str, list[tuple[str, str]]] = {}
    for name, tail in zip(names, tails, strict=True):
        split = splits[_first_folder(tail)] if is_divided else ""
        if split is not None:
            found.setdefault(split, []).append((name, tail.partition("/")[2] if split else tail))
    inner = iter(_without_wrapper([tail for pairs in found.values() for _, tail in pairs]))
    return {
        split: [(name, _first_folder(next(inner))) for name, _ in pairs]
        for split, pairs in found.items()
    }


def read_labels(
    files: Folder | Zip, origin: str, names: Sequence[str], column: str | None
) -> dict[str, Any] | None:
    """Returns the labels in the files of labels by the paths of their pictures.

    Args:
      files: The folder or the archive.
      origin: The flag and the path, for messages.
      names: The paths of all pictures.
      column: The column of the labels. None: `label`, or else the only column of classes.

    Returns:
      None if there are no labels: the folders of the pictures are their classes. An empty
      dictionary if a file says that the pictures have no classes.

    Raises:
      UserError: If a file of labels cannot be read, or has no such column.
    """
    labels: dict[str, Any] | None = None
    for path in files.names:
        if posixpath.basename(path) in LABEL_FILES:
            found = _read_label_file(files, path, f"{origin}: {printable(path)}", column)
            if found is not None:
                labels = {**(labels or {}), **found}
    if missing := sorted(set(labels or ()).difference(names)):
        logging.warning(
            f"{origin}: {len(missing):,} images with labels do not exist, such as "
            f"{printable(missing[0])}"
        )
    return labels


def find_classes(
    origin: str,
    divided: Mapping[str, Sequence[tuple[str, str]]],
    labels: Mapping[str, Any] | None,
) -> dict[str, Pictures]:
    """Returns the pictures of all splits with the numbers of their classes.

    Args:
      origin: The flag and the path, for messages.
      divided: The pictures of each split; see `divide`.
      labels: The labels by the paths of the pictures. None: the folders are the classes.
    """
    found: dict[str, list[Any]] = {}
    for split, placed in divided.items():
        if labels is not None:
            found[split] = [labels.get(name) for name, _ in placed]
            continue
        folders = [folder for _, folder in placed]
        found[split] = [None] * len(placed) if "" in folders else folders
        if 0 < folders.count("") < len(folders):
            logging.info(
                f"note: {origin}: {printable(placed[folders.index('')][0])} is next to the folders "
                "of other pictures: the folders are no classes"
            )
    reference = found["train" if "train" in found else next(iter(found))]
    return {
        split: _with_classes(origin, [name for name, _ in placed], found[split], reference)
        for split, placed in divided.items()
    }


def _with_classes(
    origin: str, names: list[str], labels: Sequence[Any], reference: Sequence[Any]
) -> Pictures:
    """Returns pictures with the numbers of their classes.

    Args:
      origin: The flag and the path, for messages.
      names: The paths of the pictures.
      labels: The label of each picture, or None for a picture without one.
      reference: The labels of the pictures for training, which number the classes if they contain
        all classes.
    """
    labeled = {name: each for name, each in zip(names, labels, strict=True) if each is not None}
    known = [label for label in reference if label is not None]
    if not set(labeled.values()) <= set(known):
        known = list(labeled.values())
    try:
        if not labeled:
            return Pictures(names, [0] * len(names), None)
        numbers, class_names = number_labels(np.array(known), origin)
    except UserError as error:
        logging.warning(f"{error.what}; the images are used without labels")
        return Pictures(names, [0] * len(names), None)
    if len(labeled) < len(names):
        missing = next(name for name in names if name not in labeled)
        logging.warning(
            f"{origin}: {len(names) - len(labeled):,} of {len(names):,} images have no label and "
            f"are left out, such as {printable(missing)}"
        )
    by_label = dict(zip(known, numbers.tolist(), strict=True))
    return Pictures(list(labeled), [by_label[each] for each in labeled.values()], class_names)


def _read_label_file(
    files: Folder | Zip, path: str, where: str, column: str | None
) -> dict[str, Any] | None:
    """Returns the labels in one file; see `read_labels`. Empty texts are left out."""
    try:
        content = files.read(path)
        if path.endswith("dataset.json"):
            found = _read_stylegan(content, where)
        else:
            rows = _read_rows(content, path, where)
            found = _read_column(rows, where, column)
    except (Unreadable, ValueError, TypeError, KeyError, RecursionError) as error:
        why = shorten(reason(error) or type(error).__name__)
        raise UserError(f"{where} cannot be read ({why})", "correct or delete it") from error
    if found is None:
        return None
    folder = posixpath.dirname(path)
    return {
        posixpath.normpath(posixpath.join(folder, name.replace("\\", "/"))): label
        for name, label in found.items()
        if label not in (None, "")
    }


def _read_rows(content: bytes, path: str, where: str) -> list[dict[str, Any]]:
    """Returns the rows of a .csv file, or the lines of a .jsonl file."""
    if path.endswith(".csv"):
        frame = read_frame(content, where, [_FILE_NAME]).frame.astype("object")
        return frame.where(frame.notna(), None).to_dict("records")
    # Not splitlines: it also cuts at U+2028 and others, which JSON permits in texts.
    lines = content.decode(find_encoding(content, where)[0]).split("\n")
    return [dict(json.loads(line)) for line in lines if line.strip()]


def _without_wrapper(names: Sequence[str]) -> list[str]:
    """Returns paths without the folders that contain all of them."""
    folders = set(map(posixpath.dirname, names))  # of which there are few
    common = posixpath.commonpath(folders) if names else ""
    return [name[len(common) + 1 :] for name in names] if common else list(names)


def _first_folder(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _read_stylegan(content: bytes, where: str) -> dict[str, Any] | None:
    """Returns the content of {"labels": [["00000/img00000000.png", 6], ...]}."""
    found = json.loads(content)
    if not isinstance(found, dict) or "labels" not in found:
        return None
    pairs = [(str(name), label) for name, label in found["labels"] or ()]
    rows = [label for _, label in pairs if isinstance(label, list)]
    if rows and len(rows) == len(pairs):
        matrix: np.ndarray = np.array(rows)
        if not is_one_hot(matrix):
            return {}  # numbers such as the poses of cameras, which are not classes
        numbers = matrix.argmax(axis=1).tolist()
        pairs = [(name, number) for (name, _), number in zip(pairs, numbers, strict=True)]
    if not all(label is None or isinstance(label, _LABEL) for _, label in pairs):
        raise ValueError("its labels are neither numbers nor rows of numbers")
    return _by_name(pairs, where)


def _by_name(pairs: Sequence[tuple[str, Any]], where: str) -> dict[str, Any]:
    """Returns labels by the names of the files; none if they contradict each other."""
    labels = dict(pairs)
    if len(set(pairs)) > len(labels):
        logging.warning(f"{where}: an image has several labels; the images are used without labels")
        return {}
    return labels


def _read_column(
    rows: Sequence[Mapping[str, Any]], where: str, column: str | None
) -> dict[str, Any] | None:
    """Returns the labels of a table by the names of the files; None if it has no labels."""
    columns = list(rows[0]) if rows else []
    if _FILE_NAME not in columns:
        return None
    others = [each for each in columns if each != _FILE_NAME]
    if column is not None and column not in others:
        raise UserError(
            f"{where} has no column {column}", f"give --label_column as one of {', '.join(others)}"
        )
    if column is None:
        column = next((each for each in others if each.lower() in LABEL_NAMES), None)
    if column is None and len(others) == 1:  # of classes, which repeat, unlike captions
        values = [row.get(others[0]) for row in rows]
        if all(isinstance(value, (str, int)) for value in values):
            column = others[0] if 2 * len(set(values)) <= len(values) else None
    if column is None:
        return None
    labels: Sequence[Any] = [row.get(column) for row in rows]
    if not all(label is None or isinstance(label, _LABEL) for label in labels):
        return None  # for example the boxes of objects
    names = (str(row[_FILE_NAME]) for row in rows)
    return _by_name(list(zip(names, labels, strict=True)), where)
