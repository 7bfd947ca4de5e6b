"""Reads an optimised program: what costs how much, and what is reduced over replicas."""

from __future__ import annotations

import dataclasses
import math
import re

_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2}
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\(", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An instruction of the program that the compiler gave an estimate for.

    Attributes:
      name: of the TensorFlow operation most of it comes from, with its scopes, such as
        "gradient_tape/critic/conv2d/Conv2DBackpropFilter"; "" where it is the compiler's own.
      kind: of the instruction, such as "fusion" or "copy".
      cycles: the compiler's estimate.
    """

    name: str
    kind: str
    cycles: int


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """A sum over all replicas.

    Attributes:
      name: of the TensorFlow operation, with its scopes.
      bytes: of what is summed.
    """

    name: str
    bytes: int


def operations(hlo: str, *, costlier_share: float = 1.0) -> list[Operation]:
    """The instructions that have an estimate, the costliest first.

    Inside a fusion nothing has one: its cost is its own instruction's. What is inside a loop
    counts once: the program does not say how often it runs.

    Args:
      hlo: the program.
      costlier_share: how often a conditional takes the costlier of its branches; at other
        times it takes the cheapest.
    """
    computations = _computations(hlo)

    def walk(name: str, weight: float) -> list[tuple[float, Operation]]:
        found = []
        for line in computations.get(name, []):
            instruction = _INSTRUCTION.match(line)
            kind = instruction[3] if instruction else ""
            cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
            if cycles:
                found.append((weight, Operation(op_name(line), kind, int(cycles[1]))))
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


def all_reduces(hlo: str) -> list[AllReduce]:
    """In the order of the program; an asynchronous one is counted where it starts."""
    found = []
    for line in hlo.splitlines():
        instruction = _INSTRUCTION.match(line)
        if instruction and instruction[3] in ("all-reduce", "all-reduce-start"):
            found.append(AllReduce(op_name(line), _shape_bytes(instruction[2])))
    return found


def replica_count(hlo: str) -> int:
    """Of the whole program."""
    match = re.search(r"replica_count=(\d+)", hlo.partition("\n")[0])
    return int(match[1]) if match else 1


def op_name(line: str) -> str:
    """The TensorFlow operation an instruction comes from, with its scopes; "" if none."""
    match = re.search(r'op_name="([^"]*)"', line)
    return match[1] if match else ""


def _computations(hlo: str) -> dict[str, list[str]]:
    """The lines of each computation by its name; of the program's own as "ENTRY"."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in hlo.splitlines():
        header = re.match(r"(ENTRY )?%([\w.\-]+)", line)
        if header:
            lines = found.setdefault("ENTRY" if header[1] else header[2], [])
        else:
            lines.append(line)
    return found


def loops(hlo: str) -> int:
    """How many there are."""
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
    """Of "(f32[3,3,1,8]{3,2,1,0:T(8,128)}, f32[8]{0})": the elements, without padding."""
    total = 0
    for dtype, sides in re.findall(r"\b([a-z]+\d+)\[([\d,]*)\]", shapes):
        elements = math.prod(int(side) for side in sides.split(",") if side)
        total += elements * _BYTES.get(dtype, 1)
    return total


def op_names(hlo: str) -> set[str]:
    """The names of all TensorFlow operations the program comes from."""
    return set(re.findall(r'op_name="([^"]*)"', hlo))
