"""Damages the files of a directory at random."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
from collections.abc import Callable
from typing import Any

_ONLY_WRITTEN = ("exported", "sampled", "samples")
_JSON = (".json", ".jsonl")
_PLACEHOLDER = "@the new value@"


def corrupt(folder: pathlib.Path, dice: random.Random) -> str:
    """Damages one file or directory below `folder`; returns what was done, in words."""
    path = _choose(folder, dice)
    name = path.relative_to(folder)
    if path.is_dir():
        ways = [_delete, _empty_directory, _replace_by_file]
    elif path.suffix in _JSON and dice.random() < 0.6:
        ways = _JSON_WAYS if path.suffix == ".json" else [*_JSON_WAYS, *_LINE_WAYS]
    elif dice.random() < 0.1:
        return f"{name}: {_swap(folder, path, dice)}"
    else:
        ways = _BYTE_WAYS
    way = dice.choice(ways)
    try:
        return f"{name}: {way(path, dice)}"
    # An earlier corruption left no JSON, or nothing at all.
    except (ValueError, IndexError, RecursionError, OverflowError):
        return f"{name}: {_append(path, dice)}"


def _choose(folder: pathlib.Path, dice: random.Random) -> pathlib.Path:
    """Returns a file, or in one case of ten a directory.

    Each entry of `folder` is equally likely, so that the many files of checkpoints do not hide
    config.json; those that the program only writes are less likely.
    """
    entries = sorted(folder.iterdir())
    weights = [1 if entry.name in _ONLY_WRITTEN else 5 for entry in entries]
    (entry,) = dice.choices(entries, weights)
    below = sorted(entry.rglob("*")) if entry.is_dir() else []
    directories = [entry, *(path for path in below if path.is_dir())] if entry.is_dir() else []
    files = [path for path in below if path.is_file()] if entry.is_dir() else [entry]
    if directories and (not files or dice.random() < 0.1):
        return dice.choice(directories)
    return dice.choice(files)


# Ways to damage any file.


def _flip(path: pathlib.Path, dice: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, bit = int(dice.random() * len(content)), dice.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} flipped"


def _overwrite(path: pathlib.Path, dice: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, length = int(dice.random() * len(content)), dice.choice([1, 4, 64, 4096])
    end = min(place + length, len(content))
    zeros = dice.random() < 0.5  # what a file system may leave of a block after a power failure
    content[place:end] = bytes(end - place) if zeros else dice.randbytes(end - place)
    path.write_bytes(content)
    return f"bytes {place} to {end} {'zeroed' if zeros else 'overwritten'}"


def _insert(path: pathlib.Path, dice: random.Random) -> str:
    content = path.read_bytes()
    place, junk = int(dice.random() * (len(content) + 1)), _junk(dice)
    path.write_bytes(content[:place] + junk + content[place:])
    return f"{len(junk)} bytes inserted at {place}: {junk[:20]!r}"


def _remove(path: pathlib.Path, dice: random.Random) -> str:
    content = path.read_bytes()
    place, length = int(dice.random() * len(content)), dice.choice([1, 4, 64])
    path.write_bytes(content[:place] + content[place + length :])
    return f"{length} bytes removed at {place}"


def _truncate(path: pathlib.Path, dice: random.Random) -> str:
    content = path.read_bytes()
    length = int(dice.random() * len(content))
    path.write_bytes(content[:length])
    return f"cut from {len(content)} to {length} bytes"


def _empty(path: pathlib.Path, dice: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def _delete(path: pathlib.Path, dice: random.Random) -> str:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return "deleted"


def _append(path: pathlib.Path, dice: random.Random) -> str:
    junk = _junk(dice)
    with path.open("ab") as file:
        file.write(junk)
    return f"{len(junk)} bytes appended: {junk[:20]!r}"


def _replace_by_directory(path: pathlib.Path, dice: random.Random) -> str:
    path.unlink()
    path.mkdir()
    if dice.random() < 0.5:
        (path / "file").write_text("something")
        return "replaced by a directory with a file in it"
    return "replaced by an empty directory"


def _junk(dice: random.Random) -> bytes:
    return dice.choice([dice.randbytes(dice.choice([1, 16, 1000])), b"\n", b"\0", b"\xef\xbb\xbf"])


# Ways to damage a directory, and two files at once.


def _replace_by_file(path: pathlib.Path, dice: random.Random) -> str:
    shutil.rmtree(path)
    path.write_bytes(_junk(dice))
    return "replaced by a file"


def _empty_directory(path: pathlib.Path, dice: random.Random) -> str:
    shutil.rmtree(path)
    path.mkdir()
    return "all in it deleted"


def _swap(folder: pathlib.Path, path: pathlib.Path, dice: random.Random) -> str:
    """Swaps with a file beside it, or with any."""
    beside = [other for other in path.parent.iterdir() if other.is_file()]
    others = beside if dice.random() < 0.5 else [p for p in folder.rglob("*") if p.is_file()]
    other = dice.choice(sorted(others))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)
    return f"swapped with {other.relative_to(folder)}"


# Ways to damage JSON that leave it JSON. In a .jsonl file, that of one line.


def _edit(path: pathlib.Path, dice: random.Random, change: Callable[[Any], str]) -> str:
    """Applies `change` to a random object or list of the file, which is written back."""
    text = path.read_text()
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    number = dice.randrange(len(lines))
    content = json.loads(lines[number])
    done = change(dice.choice(_containers(content)))
    raw = _value(dice)
    dumped = json.dumps(content, indent=2 if path.suffix == ".json" else None)
    lines[number] = dumped.replace(json.dumps(_PLACEHOLDER), raw)
    path.write_text("\n".join(lines) + "\n")
    where = f"line {number + 1}: " if path.suffix == ".jsonl" else ""
    shown = raw if len(raw) < 60 else f"{raw[:20]}... ({len(raw)} characters)"
    return where + done.replace(_PLACEHOLDER, shown)


def _containers(content: Any) -> list[Any]:
    """Returns all objects and lists in a value, by the number of their entries."""
    if not isinstance(content, (dict, list)) or not content:
        raise ValueError("nothing in it")
    found = [content] * len(content)
    for value in content.values() if isinstance(content, dict) else content:
        if isinstance(value, (dict, list)) and value:
            found += _containers(value)
    return found


def _keys(container: Any) -> list[Any]:
    return sorted(container) if isinstance(container, dict) else list(range(len(container)))


def _set(path: pathlib.Path, dice: random.Random) -> str:
    def change(container: Any) -> str:
        key = dice.choice(_keys(container))
        old, container[key] = container[key], _PLACEHOLDER
        return f"{key}: {json.dumps(old)[:60]} -> {_PLACEHOLDER}"

    return _edit(path, dice, change)


def _alter(path: pathlib.Path, dice: random.Random) -> str:
    """Changes a value into one that is much like it."""

    def change(container: Any) -> str:
        key = dice.choice(_keys(container))
        old = container[key]
        new: list[Any] = [str(old), [old], {"value": old}, None, _other_key(container, key, dice)]
        if isinstance(old, (int, float)):
            new += [old + 1, -old, old * 10, float(old), bool(old), str(old)]
        if isinstance(old, str):
            new += [old.upper(), old + " ", old[:-1], old + old]
        container[key] = dice.choice(new)
        return f"{key}: {json.dumps(old)[:60]} -> {json.dumps(container[key])[:60]}"

    return _edit(path, dice, change)


def _other_key(container: Any, key: Any, dice: random.Random) -> Any:
    return container[dice.choice(_keys(container))]


def _remove_key(path: pathlib.Path, dice: random.Random) -> str:
    def change(container: Any) -> str:
        key = dice.choice(_keys(container))
        del container[key]
        return f"{key} removed"

    return _edit(path, dice, change)


def _add_key(path: pathlib.Path, dice: random.Random) -> str:
    def change(container: Any) -> str:
        if isinstance(container, list):
            container.insert(dice.randrange(len(container) + 1), _PLACEHOLDER)
            return f"{_PLACEHOLDER} inserted"
        container["another"] = _PLACEHOLDER
        return f"another: {_PLACEHOLDER} added"

    return _edit(path, dice, change)


def _other_content(path: pathlib.Path, dice: random.Random) -> str:
    raw = _value(dice)
    path.write_text(raw + "\n")
    return f"now holds {raw[:40]}" + f"... ({len(raw)} characters)" * (len(raw) > 40)


def _value(dice: random.Random) -> str:
    """Returns a JSON value of any type, as text, for what json.dumps cannot write."""
    depth, digits = dice.choice([2, 500, 5000, 100_000]), dice.choice([19, 30, 400, 5000])
    return dice.choice(
        [
            *("null", "true", "false", "[]", "{}", '""', "0", "-1", "1.5"),
            *("NaN", "-Infinity", "1e999", "1e-320", '"\\u0000"', '"\\ud800"', '"a\\nb"'),
            str(dice.randrange(-(2**40), 2**40)),
            "9" * digits,
            "-" + "9" * digits,
            json.dumps("x" * dice.choice([1, 300, 10**6])),
            "[" * depth + "]" * depth,
            '{"a":' * depth + "0" + "}" * depth,
            json.dumps([dice.random(), {"step": 5}, "text", None]),
        ]
    )


# Ways to damage the lines of a .jsonl file.


def _lines(path: pathlib.Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def _repeat_line(path: pathlib.Path, dice: random.Random) -> str:
    lines = _lines(path)
    number = dice.randrange(len(lines))
    place = dice.randrange(len(lines) + 1)
    lines.insert(place, lines[number])
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} repeated before line {place + 1}"


def _remove_line(path: pathlib.Path, dice: random.Random) -> str:
    lines = _lines(path)
    number = dice.randrange(len(lines))
    del lines[number]
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} removed"


def _join_lines(path: pathlib.Path, dice: random.Random) -> str:
    lines = _lines(path)
    number = dice.randrange(len(lines))
    lines[number] = lines[number].rstrip(b"\n")
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} has lost its end"


def _insert_line(path: pathlib.Path, dice: random.Random) -> str:
    lines = _lines(path)
    place, raw = dice.randrange(len(lines) + 1), dice.choice(["", " ", _value(dice)])
    lines.insert(place, raw.encode() + b"\n")
    path.write_bytes(b"".join(lines))
    return f"a line inserted before line {place + 1}: {raw[:40]}"


_BYTE_WAYS = [_flip, _flip, _overwrite, _insert, _remove, _truncate, _empty, _delete, _append]
_BYTE_WAYS += [_replace_by_directory]
_JSON_WAYS = [_set, _set, _alter, _alter, _remove_key, _add_key, _other_content]
_LINE_WAYS = [_repeat_line, _remove_line, _join_lines, _insert_line]
