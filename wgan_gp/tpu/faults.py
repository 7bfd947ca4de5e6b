"""Explains why a program cannot run on a TPU, from messages of TensorFlow and the compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..errors import UserError
from .hlo import op_name, op_names
from .layers import LayerNames

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Memory(NamedTuple):
    """The memory that a program needs on a core and the available memory, in bytes."""

    total: float
    available: float


def of_tracing(text: str, networks: Sequence[tf.keras.Model], path: str) -> UserError:
    """Returns the user's error for TensorFlow's message about a step that cannot be lowered.

    Args:
      text: The message.
      networks: The critic and the generator.
      path: The file to which the message was written.
    """
    node = re.search(r"(?:\{\{node |node `)([^}`]+)", text)
    where = _place(node[1] if node else "", networks, _last_own_line(text))
    unsupported = re.search(r"unsupported operations .*?: (\w+) \(No registered", text, re.DOTALL)
    if unsupported:
        return UserError(
            f"{where} uses {unsupported[1]}, which no TPU can run",
            "do it in the input pipeline, or by another operation",
        )
    constant = re.search(r"Input \d+ to node `[^`]+` with op (\w+) must be a compile-time", text)
    if constant:
        return UserError(
            f"{where} has a dynamic shape: {constant[1]} takes it from values",
            "compute shapes in Python, from static ones",
        )
    return UserError(f"{where} cannot be compiled: {_first_line(text)}", f"read {path}")


def in_program(hlo: str, networks: Sequence[tf.keras.Model]) -> UserError | None:
    """Returns the user's error for a program with float64 or dynamic shapes, else None.

    Such programs may compile, but a TPU does not support them.
    """
    for pattern, what, remedy in (
        (r" = \(?f64\[", "computes in float64, which a TPU has not", "cast to float32 before it"),
        (
            r" = \(?\w+\[[^\]]*<=\d",
            "has a dynamic shape: its size depends on values",
            "keep every element, and mask what does not count (tf.where with three arguments)",
        ),
    ):
        for line in hlo.splitlines():
            if re.search(pattern, line):
                name = op_name(line)
                operation = f" ({name.rpartition('/')[2]})" if name else ""
                place = _place(name, networks, "", op_names(hlo))
                return UserError(f"{place}{operation} {what}", remedy)
    return None


def memory_needed(text: str) -> Memory | None:
    """Returns the memory in the compiler's message if it is about a lack of memory, else None."""
    size = r"(\d+(?:\.\d+)?)([KMGT]?)"
    found = re.search(
        rf"\({size}\) exceeds available HBM \({size}\)|Used {size} of {size} hbm", text
    )
    if "RESOURCE_EXHAUSTED" not in text or found is None:
        return None
    total, total_unit, available, available_unit = filter(None, found.groups())
    return Memory(float(total) * _UNITS[total_unit], float(available) * _UNITS[available_unit])


def too_large(program: str, flag: str, batch: int, needed: Memory, fits: int | None) -> UserError:
    """Returns the user's error for a program that does not fit into memory.

    Args:
      program: The name of the program.
      flag: The name of the flag that sets the batch size.
      batch: The global batch size.
      needed: The required and the available memory.
      fits: A global batch size that fits, or None.
    """
    remedy = f"--{flag}={fits} fits" if fits else "no batch fits: use a smaller network"
    return UserError(
        f"--{flag}={batch} is too large: {program} needs {gibibytes(needed.total)} a core, which "
        f"has {gibibytes(needed.available)}",
        remedy,
    )


def of_compiler(text: str, program: str, path: str) -> UserError:
    """Returns the user's error for any other message of the compiler, written to `path`."""
    return UserError(f"{program} is refused by the compiler: {_first_line(text)}", f"read {path}")


def gibibytes(size: float) -> str:
    """Returns a size in bytes as text in GiB."""
    return f"{size / 2**30:.2f} GiB"


def _place(
    name: str, networks: Sequence[tf.keras.Model], line: str, others: Iterable[str] = ()
) -> str:
    """Returns the layer of an operation and the line of the user's code, for a message.

    Args:
      name: The scoped name of the operation.
      networks: The critic and the generator.
      line: The line of the user's code, or "" if unknown.
      others: The names of the program's operations, as far as they are known.
    """
    layer = LayerNames(networks, [name, *others]).layer(name)
    if layer and line:
        return f"layer {layer} ({line})"
    return f"layer {layer}" if layer else line or "the step"


def _last_own_line(text: str) -> str:
    """Returns the innermost line of code outside libraries, such as "models/mine.py:12", or ""."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in', text)
    own = [frame for frame in frames if "site-packages" not in frame[0]]
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
