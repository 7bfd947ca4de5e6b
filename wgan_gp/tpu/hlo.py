"""A parser of optimized HLO: the estimated cost of operations, all-reduces and loops."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2}
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\(")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|\w+_computations?)=\{?((?:%[\w.\-]+(?:, )?)+)"
)
ENTRY = "ENTRY"


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


class Program:
    """An optimized program, as text.

    Args:
      text: The program.

    Attributes:
      text: As above.
    """

    def __init__(self, text: str):
        self.text = text
        self._computations = _computations(text)

    @property
    def replica_count(self) -> int:
        """The number of replicas for which the program was compiled."""
        match = re.search(r"replica_count=(\d+)", self.text.partition("\n")[0])
        return int(match[1]) if match else 1

    def loop_body(self, name: str) -> str:
        """Returns the name of the computation that is the body of a loop.

        Args:
          name: The name of the loop in TensorFlow, the last scope of its operation's name.

        Raises:
          ValueError: If the program does not contain exactly one such loop.
        """
        found = [
            _called(line, "body")[0]
            for lines in self._computations.values()
            for line in lines
            if _kind(line) == "while" and _loop_name(line) == name
        ]
        if len(found) != 1:
            raise ValueError(f"{len(found)} loops have the name {name}, not 1")
        return found[0]

    def part(self, root: str, *, without: str | None = None) -> Part:
        """Returns a computation with all computations that it calls.

        Args:
          root: The name of the computation, or ENTRY for the whole program.
          without: The name of a computation to leave out, with the computations that only it calls.
        """
        found, pending = {without}, [root]
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                for line in self._computations[name]:
                    pending += _called_computations(line)
        found.remove(without)
        return Part(
            root, {name: self._computations[name] for name in self._computations if name in found}
        )


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a program: a computation and the computations that it calls.

    Attributes:
      root: The name of the computation.
      computations: The lines of each computation by name, in the order of the program.
    """

    root: str
    computations: dict[str, list[str]]

    @property
    def text(self) -> str:
        """The part as a program, of which `root` is the entry computation."""
        lines = ["HloModule part, is_scheduled=true", ""]
        for name, (header, *rest) in self.computations.items():
            is_entry = name == self.root and not header.startswith("ENTRY ")
            lines += [f"ENTRY {header}" if is_entry else header, *rest]
        return "\n".join(lines)

    def operations(
        self, *, costlier_share: float = 1.0, lengths: Mapping[str, int] | None = None
    ) -> list[Operation]:
        """Returns the instructions with an estimate, in descending order of cost.

        The estimate of a fusion includes the instructions inside it, which have no estimates of
        their own. The program does not contain the lengths of loops.

        Args:
          costlier_share: The share of executions in which a conditional takes its costliest branch.
            In the other executions, it takes the cheapest branch.
          lengths: The numbers of iterations of loops, by their names in TensorFlow. The body of any
            other loop counts once.
        """
        found = [
            dataclasses.replace(operation, cycles=round(weight * operation.cycles))
            for weight, operation in self._weighted(self.root, 1.0, costlier_share, lengths or {})
        ]
        return sorted(found, key=lambda operation: -operation.cycles)

    def all_reduces(self) -> list[AllReduce]:
        """Returns the all-reduces; an asynchronous one is at its start."""
        found = []
        for line in self._lines():
            instruction = _INSTRUCTION.match(line)
            if instruction and instruction[3] in ("all-reduce", "all-reduce-start"):
                found.append(AllReduce(parse_op_name(line), _shape_bytes(instruction[2])))
        return found

    def op_names(self) -> set[str]:
        """Returns the scoped names of all TensorFlow operations."""
        return {parse_op_name(line) for line in self._lines()} - {""}

    def loop_bodies(self) -> list[tuple[str, str]]:
        """Returns the name in TensorFlow and the body of each loop whose body is in this part."""
        loops = [
            (_loop_name(line), _called(line, "body")[0])
            for line in self._lines()
            if _kind(line) == "while"
        ]
        return [(name, body) for name, body in loops if body in self.computations]

    def _lines(self) -> Iterator[str]:
        for lines in self.computations.values():
            yield from lines

    def _weighted(
        self, name: str, weight: float, costlier_share: float, lengths: Mapping[str, int]
    ) -> list[tuple[float, Operation]]:
        """Returns the operations of a computation, each with its number of executions."""
        walk = functools.partial(self._weighted, costlier_share=costlier_share, lengths=lengths)
        found = []
        for line in self.computations.get(name, []):
            kind = _kind(line)
            cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
            if cycles:
                found.append((weight, Operation(parse_op_name(line), kind, int(cycles[1]))))
            if kind == "while":
                found += walk(_called(line, "body")[0], weight * lengths.get(_loop_name(line), 1))
            elif kind == "conditional":
                branches = sorted((walk(each, weight) for each in _branches(line)), key=_sum)
                for branch, share in ((0, 1 - costlier_share), (-1, costlier_share)):
                    found += [(share * inner, each) for inner, each in branches[branch]]
        return found


def parse_op_name(line: str) -> str:
    """Returns the scoped name of the TensorFlow operation of an instruction, or ""."""
    match = re.search(r'op_name="([^"]*)"', line)
    return match[1] if match else ""


def parse_op_names(hlo: str) -> set[str]:
    """Returns the scoped names of all TensorFlow operations of a program."""
    return set(re.findall(r'op_name="([^"]*)"', hlo))


def _computations(hlo: str) -> dict[str, list[str]]:
    """Returns the lines of each computation by name; the entry computation is ENTRY."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in hlo.splitlines():
        header = re.match(r"(ENTRY )?%([\w.\-]+)", line)
        if header:
            lines = found.setdefault(ENTRY if header[1] else header[2], [])
        lines.append(line)
    return found


def _kind(line: str) -> str:
    """Returns the opcode of an instruction, or "" for other lines."""
    instruction = _INSTRUCTION.match(line)
    return instruction[3] if instruction else ""


def _loop_name(line: str) -> str:
    return parse_op_name(line).rpartition("/")[2]


def _branches(line: str) -> list[str]:
    named = re.search(r"branch_computations=\{([^}]*)\}", line)
    if named:
        return re.findall(r"%([\w.\-]+)", named[1])
    return _called(line, "true_computation") + _called(line, "false_computation")


def _called_computations(line: str) -> list[str]:
    return [name for names in _CALLED.findall(line) for name in re.findall(r"%([\w.\-]+)", names)]


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
