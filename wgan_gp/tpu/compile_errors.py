"""The errors of --mode=compile: why a run cannot be compiled for a TPU, and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import tensorflow as tf

from ..errors import UserError, reason
from .hlo import parse_op_name, parse_op_names
from .layers import LayerNames

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_UNSUPPORTED = (  # (pattern in HLO, problem, remedy)
    (r" = \(?f64\[", "uses float64, which TPUs do not support", "cast its inputs to float32"),
    (
        r" = \(?\w+\[[^\]]*<=\d",
        "has a dynamic shape: its size depends on values",
        "keep all elements and mask those to ignore (tf.where with three arguments)",
    ),
)


def tracing_error(message: str, networks: Sequence[tf.keras.Model], path: str) -> UserError:
    """Returns the error for a step that TensorFlow cannot convert to HLO.

    Args:
      message: TensorFlow's error message.
      networks: The critic and the generator.
      path: The file that contains the message.
    """
    node = re.search(r"(?:\{\{node |node `)([^}`]+)", message)
    location = _locate(node[1] if node else "", networks, _last_user_line(message))
    unsupported = re.search(
        r"unsupported operations .*?: (\w+) \(No registered", message, re.DOTALL
    )
    if unsupported:
        return UserError(
            f"{location} uses {unsupported[1]}, which TPUs do not support",
            "move it to the input pipeline, or use another operation",
        )
    dynamic = re.search(r"Input \d+ to node `[^`]+` with op (\w+) must be a compile-time", message)
    if dynamic:
        return UserError(
            f"{location} has a dynamic shape: {dynamic[1]} computes it from values",
            "compute shapes in Python, from static shapes",
        )
    return UserError(f"{location} cannot be compiled: {reason(message)}", f"see {path}")


def unsupported_operation_error(hlo: str, networks: Sequence[tf.keras.Model]) -> UserError | None:
    """Returns the error for a program with float64 or dynamic shapes; None for other programs.

    TPUs do not support such programs, even if they compile.
    """
    for pattern, problem, remedy in _UNSUPPORTED:
        for line in hlo.splitlines():
            if re.search(pattern, line):
                name = parse_op_name(line)
                operation = f" ({name.rpartition('/')[2]})" if name else ""
                location = _locate(name, networks, op_names=parse_op_names(hlo))
                return UserError(f"{location}{operation} {problem}", remedy)
    return None


def parse_memory_error(message: str) -> float | None:
    """Returns the required bytes in a message about too little memory; None for other messages."""
    size = r"(\d+(?:\.\d+)?)([KMGT]?)"
    found = re.search(rf"\({size}\) exceeds available HBM|Used {size} of \S+ hbm", message)
    if "RESOURCE_EXHAUSTED" not in message or found is None:
        return None
    number, *unit = filter(None, found.groups())
    return float(number) * _UNITS["".join(unit)]


def out_of_memory_error(batch_size: int, required: float, available: float) -> UserError:
    """Returns the error for a loop that requires more bytes than the memory of a core has."""
    return UserError(
        f"--batch_size={batch_size} is too large: the loop requires {format_gibibytes(required)} "
        f"per core, but a core has {format_gibibytes(available)}",
        "halve --batch_size and --generator_batch_size, or double --accumulate",
    )


def format_gibibytes(size: float) -> str:
    """Returns a size in bytes as text in GiB."""
    return f"{size / 2**30:.2f} GiB"


def _locate(
    name: str,
    networks: Sequence[tf.keras.Model],
    line: str = "",
    op_names: Iterable[str] = (),
) -> str:
    """Returns the layer of an operation and the line of the user's code, for a message.

    Args:
      name: The scoped name of the operation.
      networks: The critic and the generator.
      line: The line of the user's code, or "" if unknown.
      op_names: The names of all operations of the program, if they are known.
    """
    layer = LayerNames(networks, [name, *op_names]).find_layer(name)
    if layer and line:
        return f"layer {layer} ({line})"
    return f"layer {layer}" if layer else line or "the step"


def _last_user_line(message: str) -> str:
    """Returns the innermost line of code outside libraries, such as "models/mine.py:12", or ""."""
    # The first stack trace is that of the operation, the others those of the loops around it.
    trace, _, _ = message.partition("tf2xla conversion failed")
    frames = re.findall(r'File "([^"]+)", line (\d+), in', trace)
    own = [frame for frame in frames if "site-packages" not in frame[0]]
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""
