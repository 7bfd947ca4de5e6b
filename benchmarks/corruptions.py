"""Random corruptions of the files in a directory."""

from __future__ import annotations

import pathlib
import random
import shutil

from .json_corruptions import LINE_CORRUPTIONS, VALUE_CORRUPTIONS

_OUTPUT_ONLY = ("exported", "sampled", "samples")
_JSON = (".json", ".jsonl")


def corrupt(folder: pathlib.Path, rng: random.Random) -> str:
    """Damages one file or directory in `folder`; returns a description of the damage."""
    path = _choose(folder, rng)
    name = path.relative_to(folder)
    if path.is_dir():
        corruptions = [_delete, _empty_directory, _replace_by_file]
    elif path.suffix in _JSON and rng.random() < 0.6:
        corruptions = [*VALUE_CORRUPTIONS]
        if path.suffix == ".jsonl":
            corruptions += LINE_CORRUPTIONS
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
