"""Corruptions of JSON files that keep most of their content valid."""

from __future__ import annotations

import json
import pathlib
import random
from collections.abc import Callable
from typing import Any

_PLACEHOLDER = "@the new value@"


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
VALUE_CORRUPTIONS = [_set_value, _set_value, _modify_value, _modify_value]
VALUE_CORRUPTIONS += [_remove_key, _add_key, _replace_content]
LINE_CORRUPTIONS = [_repeat_line, _remove_line, _join_lines, _insert_line]
