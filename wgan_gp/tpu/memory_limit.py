"""Compiles a loop within the memory of a core, and finds settings with which it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import compile_errors, compiler
from .compile_errors import Memory, format_gibibytes
from .compile_report import iteration_cycles
from .loop_program import LoopProgram, LoweredLoop

# How many numbers of micro-batches are compiled, each twice the last, because a compilation of a
# large program takes minutes.
_ATTEMPTS = 3


class OutOfMemoryError(Exception):
    """A program that requires more memory than a core has."""

    def __init__(self, memory: Memory, message: str):
        super().__init__(message)
        self.memory = memory


def compile_within_memory(
    loop: LoweredLoop, devices: list[Any], available: int
) -> compiler.Executable:
    """Compiles a loop and checks that it fits into the memory of a core.

    The compiler itself considers only its temporary buffers, not arguments and results.

    Raises:
      OutOfMemoryError: If the loop does not fit.
      compiler.CompileError: If the compiler rejects the loop for another reason.
    """
    try:
        executable = compiler.compile_hlo(loop.hlo, devices)
    except compiler.CompileError as error:
        memory = compile_errors.parse_memory_error(str(error))
        if memory is None:
            raise
        raise OutOfMemoryError(memory, str(error)) from None
    required = executable.memory_bytes + loop.prefetched_bytes
    if required > available:
        raise OutOfMemoryError(
            Memory(required, available), f"It compiles, but requires {required} bytes.\n"
        )
    return executable


class _Fitting(NamedTuple):
    """A loop that fits into the memory of a core."""

    program: LoopProgram
    loop: LoweredLoop
    executable: compiler.Executable

    @property
    def memory_bytes(self) -> int:
        return self.executable.memory_bytes + self.loop.prefetched_bytes

    def cycles_per_example(self, penalty_interval: int) -> float:
        """Returns the cycles of an iteration, divided by its batch size."""
        cycles = iteration_cycles(
            self.program, self.loop, self.executable, penalty_interval=penalty_interval
        )
        return cycles / self.program.batch_size


def find_remedy(
    program: LoopProgram, devices: list[Any], memory: Memory, penalty_interval: int
) -> str:
    """Returns what to do about a loop that requires too much memory.

    Every recommended setting has been compiled and fits.

    Args:
      program: The loop.
      devices: The devices for which it is compiled.
      memory: The memory that the loop requires, and that of a core.
      penalty_interval: See `compile_report.build_compile_report`.
    """
    replicas, available = len(devices), memory.available
    share = available / memory.required
    try:
        if program.resident and memory.required - program.resident_bytes <= available:
            streamed = dataclasses.replace(program, resident=False)
            if _compile_first([streamed], devices, available):
                return "use --cache=off"
        smaller = _compile_first(_smaller_batches(program, replicas, share), devices, available)
        divided = _compile_first(_micro_batches(program, share), devices, available)
    except compiler.CompileError:
        return "use a smaller batch"
    remedies = []
    if smaller:
        remedies.append(
            f"--batch_size={smaller.program.batch_size} "
            f"--generator_batch_size={smaller.program.generator_batch_size}"
        )
    if divided:
        price = _format_price(divided, smaller, penalty_interval)
        remedies.append(f"--accumulate={divided.program.accumulate} ({price})")
    if not remedies:
        return "use a smaller network, because no batch size fits"
    return f"use {', or '.join(remedies)}"


def _format_price(fitting: _Fitting, smaller: _Fitting | None, penalty_interval: int) -> str:
    """Returns the memory of a loop, and its cycles relative to those with a smaller batch."""
    price = format_gibibytes(fitting.memory_bytes)
    if smaller is None:
        return price
    cycles, others = (each.cycles_per_example(penalty_interval) for each in (fitting, smaller))
    return f"{price}, {cycles / others:.2f} of its cycles per example"


def _compile_first(
    programs: Iterable[LoopProgram | None], devices: list[Any], available: float
) -> _Fitting | None:
    """Returns the first of the loops that fits, compiled; None is a loop with wrong settings."""
    for program in filter(None, programs):
        try:
            loop = program.lower()
        except Exception:  # TensorFlow raises many types
            continue
        try:
            return _Fitting(program, loop, compile_within_memory(loop, devices, int(available)))
        except OutOfMemoryError:
            continue
    return None


def _smaller_batches(
    program: LoopProgram, replicas: int, share: float
) -> Iterator[LoopProgram | None]:
    """Yields the loop with smaller and smaller batches.

    Both batch sizes per replica are powers of two, and their ratio stays about the same.

    Args:
      program: The loop.
      replicas: The number of replicas.
      share: The share of the batch size to begin with.
    """
    ratio = program.generator_batch_size / program.batch_size
    per_replica = int(program.batch_size / replicas * share)
    while per_replica >= 1:
        per_replica = 2 ** (per_replica.bit_length() - 1)
        generated = 2 ** (max(1, int(ratio * per_replica)).bit_length() - 1)
        yield program.with_settings(
            batch_size=per_replica * replicas, generator_batch_size=generated * replicas
        )
        per_replica //= 2


def _micro_batches(program: LoopProgram, share: float) -> Iterator[LoopProgram | None]:
    """Yields the loop with more and more micro-batches.

    Args:
      program: The loop.
      share: The share of the batch size that the first micro-batches have at most.
    """
    count = 2 * program.accumulate
    while program.accumulate / count > share:
        count *= 2
    for _ in range(_ATTEMPTS):
        yield program.with_settings(accumulate=count)
        count *= 2
