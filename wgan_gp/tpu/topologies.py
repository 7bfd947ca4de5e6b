"""TPU slices by the names users know, and what one of their cores can do.

Imports neither TensorFlow nor jax, so that an unknown name is answered at once.
"""

from __future__ import annotations

import dataclasses
import math
import re

from ..errors import UserError


@dataclasses.dataclass(frozen=True)
class Core:
    """What the compiler takes for one device: a core of v2 to v4, a chip of the later ones.

    Attributes:
      peak_flops: of the matrix units a second, multiply and add counted, bfloat16 factors;
        the vendor's figure for a chip over its devices.
      flops_per_cycle: matrix units x 2 x their side squared. The clock is peak_flops over
        this.
      lanes: side of a matrix unit.
      memory_bytes: high-bandwidth memory that the compiler leaves to programs, a little less
        than there is: its own word where a program asks for too much.
      per_chip: devices on a chip.
    """

    peak_flops: float
    flops_per_cycle: int
    lanes: int
    memory_bytes: int
    per_chip: int

    @property
    def clock(self) -> float:
        """Cycles a second."""
        return self.peak_flops / self.flops_per_cycle


def _gib(number: float) -> int:
    return int(number * 2**30)


# The vendor's pages, "TPU architecture", one for each generation. That flops_per_cycle fits the
# compiler's own idea of each: benchmarks/tpu_clock.py asks it for a large matrix product.
CORES = {
    "v2": Core(22.5e12, 1 * 2 * 128**2, 128, _gib(7.48), per_chip=2),
    "v3": Core(61.5e12, 2 * 2 * 128**2, 128, _gib(15.48), per_chip=2),
    "v4": Core(137.5e12, 4 * 2 * 128**2, 128, _gib(15.25), per_chip=2),
    "v5e": Core(197e12, 4 * 2 * 128**2, 128, _gib(15.75), per_chip=1),
    "v5p": Core(459e12, 8 * 2 * 128**2, 128, _gib(95.73), per_chip=1),
    "v6e": Core(918e12, 4 * 2 * 256**2, 256, _gib(31.24), per_chip=1),
}

# The number in a name counts cores up to v4 and in v5p, chips in v5e and v6e.
_TWO_DIMENSIONAL_CORES = {
    8: "2x2",
    32: "4x4",
    64: "4x8",
    128: "8x8",
    256: "8x16",
    512: "16x16",
}
_THREE_DIMENSIONAL_CORES = {
    8: "2x2x1",
    16: "2x2x2",
    32: "2x2x4",
    64: "2x4x4",
    128: "4x4x4",
    256: "4x4x8",
    512: "4x8x8",
}
_TWO_DIMENSIONAL_CHIPS = {
    1: "1x1",
    4: "2x2",
    8: "2x4",
    16: "4x4",
    32: "4x8",
    64: "8x8",
    128: "8x16",
    256: "16x16",
}
_LAYOUTS = {
    "v2": _TWO_DIMENSIONAL_CORES,
    "v3": {**_TWO_DIMENSIONAL_CORES, 1024: "16x32", 2048: "32x32"},
    "v4": _THREE_DIMENSIONAL_CORES,
    "v5e": _TWO_DIMENSIONAL_CHIPS,
    "v5p": _THREE_DIMENSIONAL_CORES,
    "v6e": _TWO_DIMENSIONAL_CHIPS,
}
KNOWN = {
    f"{generation}-{size}": f"{generation}:{layout}"
    for generation, layouts in _LAYOUTS.items()
    for size, layout in layouts.items()
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice.

    Attributes:
      name: as the user gave it.
      libtpu_name: as the compiler knows it, such as "v5e:2x4".
      core: one of its devices.
      chips: in the slice.
    """

    name: str
    libtpu_name: str
    core: Core
    chips: int

    @property
    def replicas(self) -> int:
        return self.chips * self.core.per_chip

    @property
    def file_name(self) -> str:
        return self.name.replace(":", "_")


def find(name: str) -> Topology:
    """The slice of that name: a key of KNOWN, or libtpu's own, such as "v5e:2x4".

    Raises:
      UserError: there is none; which there are.
    """
    libtpu_name = KNOWN.get(name, name)
    match = re.fullmatch(r"(\w+):([1-9][0-9]*(?:x[1-9][0-9]*){1,2})", libtpu_name)
    if match is None or match[1] not in CORES:
        raise UserError(
            f"--compile_topology={name} is unknown",
            f"use one of {', '.join(KNOWN)}, or a layout such as v5e:2x4",
        )
    chips = math.prod(int(side) for side in match[2].split("x"))
    return Topology(name, libtpu_name, CORES[match[1]], chips)
