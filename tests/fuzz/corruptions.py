"""Random corruptions of the files in a directory."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
from collections.abc import Callable
from typing import Any

_OUTPUT_ONLY = ("exported", "sampled", "samples")
_JSON = (".json", ".jsonl")
_PLACEHOLDER = "@the new value@"


def corrupt(folder: pathlib.Path, rng: random.Random) -> str:
    """Damages one file or directory in `folder`; returns a description of the damage."""
    path = _choose(folder, rng)
    name = path.relative_to(folder)
    if path.is_dir():
        corruptions = [_delete, _empty_directory, _replace_by_file]
    elif path.suffix in _JSON and rng.random() < 0.6:
        corruptions = [*_VALUE_CORRUPTIONS]
        if path.suffix == ".jsonl":
            corruptions += _LINE_CORRUPTIONS
    elif rng.random() < 0.1:
        return f"{name}: {_swap(folder, path, rng)}"
    else:
        corruptions = _BYTE_CORRUPTIONS
    corruption = rng.choice(corruptions)
    try:
        return f"{name}: {corruption(path, rng)}"
    # An earlier corruption left invalid JSON or an empty file.
    except (ValueError, IndexError, RecursionError, OverflowError):
        return f"{name}: {_append(path, rng)}"


def _choose(folder: pathlib.Path, rng: random.Random) -> pathlib.Path:
    """Chooses a file or, in one case of ten, a directory.

    Each entry of `folder` is equally likely, although the directory of checkpoints contains many
    files. Entries that the program only writes are less likely.
    """
    entries = sorted(folder.iterdir())
    weights = [1 if entry.name in _OUTPUT_ONLY else 5 for entry in entries]
    (entry,) = rng.choices(entries, weights)
    below = sorted(entry.rglob("*")) if entry.is_dir() else []
    directories = [entry, *(path for path in below if path.is_dir())] if entry.is_dir() else []
    files = [path for path in below if path.is_file()] if entry.is_dir() else [entry]
    if directories and (not files or rng.random() < 0.1):
        return rng.choice(directories)
    return rng.choice(files)


# Corruptions of any file.


def _flip(path: pathlib.Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, bit = int(rng.random() * len(content)), rng.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} flipped"


def _overwrite(path: pathlib.Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, length = int(rng.random() * len(content)), rng.choice([1, 4, 64, 4096])
    end = min(place + length, len(content))
    zeros = rng.random() < 0.5  # a power failure may leave a block of zeros
    content[place:end] = bytes(end - place) if zeros else rng.randbytes(end - place)
    path.write_bytes(content)
    return f"bytes {place} to {end} {'zeroed' if zeros else 'overwritten'}"


def _insert(path: pathlib.Path, rng: random.Random) -> str:
    content = path.read_bytes()
    place, junk = int(rng.random() * (len(content) + 1)), _junk(rng)
    path.write_bytes(content[:place] + junk + content[place:])
    return f"{len(junk)} bytes inserted at {place}: {junk[:20]!r}"


def _remove(path: pathlib.Path, rng: random.Random) -> str:
    content = path.read_bytes()
    place, length = int(rng.random() * len(content)), rng.choice([1, 4, 64])
    path.write_bytes(content[:place] + content[place + length :])
    return f"{length} bytes removed at {place}"


def _truncate(path: pathlib.Path, rng: random.Random) -> str:
    content = path.read_bytes()
    length = int(rng.random() * len(content))
    path.write_bytes(content[:length])
    return f"truncated from {len(content)} to {length} bytes"


def _empty(path: pathlib.Path, rng: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def _delete(path: pathlib.Path, rng: random.Random) -> str:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return "deleted"


def _append(path: pathlib.Path, rng: random.Random) -> str:
    junk = _junk(rng)
    with path.open("ab") as file:
        file.write(junk)
    return f"{len(junk)} bytes appended: {junk[:20]!r}"


def _replace_by_directory(path: pathlib.Path, rng: random.Random) -> str:
    path.unlink()
    path.mkdir()
    if rng.random() < 0.5:
        (path / "file").write_text("something")
        return "replaced by a directory that contains a file"
    return "replaced by an empty directory"


def _junk(rng: random.Random) -> bytes:
    return rng.choice([rng.randbytes(rng.choice([1, 16, 1000])), b"\n", b"\0", b"\xef\xbb\xbf"])


# Corruptions of a directory and of two files.


def _replace_by_file(path: pathlib.Path, rng: random.Random) -> str:
    shutil.rmtree(path)
    path.write_bytes(_junk(rng))
    return "replaced by a file"


def _empty_directory(path: pathlib.Path, rng: random.Random) -> str:
    shutil.rmtree(path)
    path.mkdir()
    return "content deleted"


def _swap(folder: pathlib.Path, path: pathlib.Path, rng: random.Random) -> str:
    """Swaps a file with another one, of the same directory or of any directory."""
    siblings = [other for other in path.parent.iterdir() if other.is_file()]
    others = siblings if rng.random() < 0.5 else [p for p in folder.rglob("*") if p.is_file()]
    other = rng.choice(sorted(others))
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return f"swapped with {other.relative_to(folder)}"


_BYTE_CORRUPTIONS = [_flip, _flip, _overwrite, _insert, _remove, _truncate, _empty]
_BYTE_CORRUPTIONS += [_delete, _append, _replace_by_directory]


# Corruptions of JSON files that keep most of their content valid.


def _change_container(path: pathlib.Path, rng: random.Random, change: Callable[[Any], str]) -> str:
    """Applies `change` to a random object or list of a file, in one line of a .jsonl file."""
    text = path.read_text()
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    number = rng.randrange(len(lines))
    content = json.loads(lines[number])
    description = change(rng.choice(_containers(content)))
    raw = _random_json(rng)
    dumped = json.dumps(content, indent=2 if path.suffix == ".json" else None)
    lines[number] = dumped.replace(json.dumps(_PLACEHOLDER), raw)
    path.write_text("\n".join(lines) + "\n")
    where = f"line {number + 1}: " if path.suffix == ".jsonl" else ""
    shown = raw if len(raw) < 60 else f"{raw[:20]}... ({len(raw)} characters)"
    return where + description.replace(_PLACEHOLDER, shown)


def _containers(content: Any) -> list[Any]:
    """Returns all objects and lists in a value, each as often as it has entries."""
    if not isinstance(content, (dict, list)) or not content:
        raise ValueError("there is no entry")
    containers = [content] * len(content)
    for value in content.values() if isinstance(content, dict) else content:
        if isinstance(value, (dict, list)) and value:
            containers += _containers(value)
    return containers


def _keys(container: Any) -> list[Any]:
    return sorted(container) if isinstance(container, dict) else list(range(len(container)))


def _set_value(path: pathlib.Path, rng: random.Random) -> str:
    def change(container: Any) -> str:
        key = rng.choice(_keys(container))
        old, container[key] = container[key], _PLACEHOLDER
        return f"{key}: {json.dumps(old)[:60]} -> {_PLACEHOLDER}"

    return _change_container(path, rng, change)


def _modify_value(path: pathlib.Path, rng: random.Random) -> str:
    """Changes a value to a similar one."""

    def change(container: Any) -> str:
        key = rng.choice(_keys(container))
        old = container[key]
        new: list[Any] = [str(old), [old], {"value": old}, None, _other_key(container, key, rng)]
        if isinstance(old, (int, float)):
            new += [old + 1, -old, old * 10, float(old), bool(old), str(old)]
        if isinstance(old, str):
            new += [old.upper(), old + " ", old[:-1], old + old]
        container[key] = rng.choice(new)
        return f"{key}: {json.dumps(old)[:60]} -> {json.dumps(container[key])[:60]}"

    return _change_container(path, rng, change)


def _other_key(container: Any, key: Any, rng: random.Random) -> Any:
    return container[rng.choice(_keys(container))]


def _remove_key(path: pathlib.Path, rng: random.Random) -> str:
    def change(container: Any) -> str:
        key = rng.choice(_keys(container))
        del container[key]
        return f"{key} removed"

    return _change_container(path, rng, change)


def _add_key(path: pathlib.Path, rng: random.Random) -> str:
    def change(container: Any) -> str:
        if isinstance(container, list):
            container.insert(rng.randrange(len(container) + 1), _PLACEHOLDER)
            return f"{_PLACEHOLDER} inserted"
        container["another"] = _PLACEHOLDER
        return f"another: {_PLACEHOLDER} added"

    return _change_container(path, rng, change)


def _replace_content(path: pathlib.Path, rng: random.Random) -> str:
    raw = _random_json(rng)
    path.write_text(raw + "\n")
    return f"content replaced by {raw[:40]}" + f"... ({len(raw)} characters)" * (len(raw) > 40)


def _random_json(rng: random.Random) -> str:
    """Returns the text of a JSON value; json.dumps cannot write some of these values."""
    depth, digits = rng.choice([2, 500, 5000, 100_000]), rng.choice([19, 30, 400, 5000])
    return rng.choice(
        [
            *("null", "true", "false", "[]", "{}", '""', "0", "-1", "1.5"),
            *("NaN", "-Infinity", "1e999", "1e-320", '"\\u0000"', '"\\ud800"', '"a\\nb"'),
            str(rng.randrange(-(2**40), 2**40)),
            "9" * digits,
            "-" + "9" * digits,
            json.dumps("x" * rng.choice([1, 300, 10**6])),
            "[" * depth + "]" * depth,
            '{"a":' * depth + "0" + "}" * depth,
            json.dumps([rng.random(), {"step": 5}, "text", None]),
        ]
    )


def _lines(path: pathlib.Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def _repeat_line(path: pathlib.Path, rng: random.Random) -> str:
    lines = _lines(path)
    number = rng.randrange(len(lines))
    place = rng.randrange(len(lines) + 1)
    lines.insert(place, lines[number])
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} repeated before line {place + 1}"


def _remove_line(path: pathlib.Path, rng: random.Random) -> str:
    lines = _lines(path)
    number = rng.randrange(len(lines))
    del lines[number]
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} removed"


def _join_lines(path: pathlib.Path, rng: random.Random) -> str:
    lines = _lines(path)
    number = rng.randrange(len(lines))
    lines[number] = lines[number].rstrip(b"\n")
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} joined to the next line"


def _insert_line(path: pathlib.Path, rng: random.Random) -> str:
    lines = _lines(path)
    place, raw = rng.randrange(len(lines) + 1), rng.choice(["", " ", _random_json(rng)])
    lines.insert(place, raw.encode() + b"\n")
    path.write_bytes(b"".join(lines))
    return f"line inserted before line {place + 1}: {raw[:40]}"


# Each takes a path and a random generator, and returns a description of the damage.
_VALUE_CORRUPTIONS = [_set_value, _set_value, _modify_value, _modify_value]
_VALUE_CORRUPTIONS += [_remove_key, _add_key, _replace_content]
_LINE_CORRUPTIONS = [_repeat_line, _remove_line, _join_lines, _insert_line]
