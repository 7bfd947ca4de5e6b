"""A parser of optimized HLO: the estimated cost of operations, all-reduces and loops."""

from __future__ import annotations

import dataclasses
import math
import re

_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2}
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\(", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An instruction with a cost estimate by the compiler.

    Attributes:
      name: The scoped name of the TensorFlow operation that accounts for most of it, such as
        "gradient_tape/critic/conv2d/Conv2DBackpropFilter". "" for operations that the compiler
        added.
      kind: The opcode, such as "fusion" or "copy".
      cycles: The estimated number of cycles.
    """

    name: str
    kind: str
    cycles: int


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """An all-reduce over the replicas.

    Attributes:
      name: The scoped name of the TensorFlow operation.
      bytes: The size of the operands in bytes.
    """

    name: str
    bytes: int


def parse_operations(hlo: str, *, costlier_share: float = 1.0) -> list[Operation]:
    """Returns the instructions with an estimate, in descending order of cost.

    The estimate of a fusion includes the instructions inside it, which have no estimates of their
    own. The body of a loop counts once, because the program does not contain the number of
    iterations.

    Args:
      hlo: The program, as text.
      costlier_share: The share of executions in which a conditional takes its costliest branch.
        In the other executions, it takes the cheapest branch.
    """
    computations = _computations(hlo)

    def walk(name: str, weight: float) -> list[tuple[float, Operation]]:
        found = []
        for line in computations.get(name, []):
            instruction = _INSTRUCTION.match(line)
            kind = instruction[3] if instruction else ""
            cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
            if cycles:
                found.append((weight, Operation(parse_op_name(line), kind, int(cycles[1]))))
            if kind == "while":
                found += walk(_called(line, "body")[0], weight)
            elif kind == "conditional":
                branches = sorted((walk(each, weight) for each in _branches(line)), key=_sum)
                for branch, share in ((0, 1 - costlier_share), (-1, costlier_share)):
                    found += [(share * inner, each) for inner, each in branches[branch]]
        return found

    found = [
        dataclasses.replace(operation, cycles=round(weight * operation.cycles))
        for weight, operation in walk("ENTRY", 1.0)
    ]
    return sorted(found, key=lambda operation: -operation.cycles)


def parse_all_reduces(hlo: str) -> list[AllReduce]:
    """Returns the all-reduces in program order; an asynchronous one is at its start."""
    found = []
    for line in hlo.splitlines():
        instruction = _INSTRUCTION.match(line)
        if instruction and instruction[3] in ("all-reduce", "all-reduce-start"):
            found.append(AllReduce(parse_op_name(line), _shape_bytes(instruction[2])))
    return found


def parse_replica_count(hlo: str) -> int:
    """Returns the number of replicas for which the program was compiled."""
    match = re.search(r"replica_count=(\d+)", hlo.partition("\n")[0])
    return int(match[1]) if match else 1


def parse_op_name(line: str) -> str:
    """Returns the scoped name of the TensorFlow operation of an instruction, or ""."""
    match = re.search(r'op_name="([^"]*)"', line)
    return match[1] if match else ""


def _computations(hlo: str) -> dict[str, list[str]]:
    """Returns the lines of each computation by name; the entry computation is "ENTRY"."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in hlo.splitlines():
        header = re.match(r"(ENTRY )?%([\w.\-]+)", line)
        if header:
            lines = found.setdefault("ENTRY" if header[1] else header[2], [])
        else:
            lines.append(line)
    return found


def count_loops(hlo: str) -> int:
    """Returns the number of loops in the program."""
    found = (_INSTRUCTION.match(line) for line in hlo.splitlines())
    return sum(instruction is not None and instruction[3] == "while" for instruction in found)


def _branches(line: str) -> list[str]:
    named = re.search(r"branch_computations=\{([^}]*)\}", line)
    if named:
        return re.findall(r"%([\w.\-]+)", named[1])
    return _called(line, "true_computation") + _called(line, "false_computation")


def _called(line: str, role: str) -> list[str]:
    return re.findall(rf"\b{role}=%([\w.\-]+)", line)


def _sum(branch: list[tuple[float, Operation]]) -> float:
    return sum(weight * operation.cycles for weight, operation in branch)


def _shape_bytes(shapes: str) -> int:
    """Returns the size in bytes, without padding, of shapes such as "(f32[3,8]{1,0}, f32[8])"."""
    total = 0
    for dtype, sides in re.findall(r"\b([a-z]+\d+)\[([\d,]*)\]", shapes):
        elements = math.prod(int(side) for side in sides.split(",") if side)
        total += elements * _BYTES.get(dtype, 1)
    return total


def parse_op_names(hlo: str) -> set[str]:
    """Returns the scoped names of all TensorFlow operations of the program."""
    return set(re.findall(r'op_name="([^"]*)"', hlo))
