"""TPU slices by name, and the properties of their cores.

This module imports neither TensorFlow nor jax, so that an unknown name is rejected immediately.
"""

from __future__ import annotations

import dataclasses
import math
import re

from ..errors import UserError


@dataclasses.dataclass(frozen=True)
class Core:
    """A device in the compiler's sense: a core of v2 to v4 and TPU7x, a chip of v5e, v5p and v6e.

    Attributes:
      peak_flops: The peak rate of the matrix units in floating-point operations per second, for
        bfloat16 factors, with a multiply-add counted as two. This is the documented value for a
        chip, divided by `per_chip`.
      flops_per_cycle: 2 * number of matrix units * `lanes`^2.
      lanes: The number of rows and of columns of a matrix unit.
      memory_bytes: The high-bandwidth memory available to a program, which is a little less than
        the device has. The value is from the compiler's message for a program that is too large.
      per_chip: The number of devices on a chip.
    """

    peak_flops: float
    flops_per_cycle: int
    lanes: int
    memory_bytes: int
    per_chip: int

    @property
    def clock(self) -> float:
        """The clock rate in cycles per second."""
        return self.peak_flops / self.flops_per_cycle


def _gib(number: float) -> int:
    return int(number * 2**30)


# The values are from Google Cloud's documentation of each TPU generation.
# benchmarks/tpu_clock.py checks flops_per_cycle against the compiler's estimate for a large matrix
# product.
CORES = {
    "v2": Core(22.5e12, 1 * 2 * 128**2, 128, _gib(7.48), per_chip=2),
    "v3": Core(61.5e12, 2 * 2 * 128**2, 128, _gib(15.48), per_chip=2),
    "v4": Core(137.5e12, 4 * 2 * 128**2, 128, _gib(15.25), per_chip=2),
    "v5e": Core(197e12, 4 * 2 * 128**2, 128, _gib(15.75), per_chip=1),
    "v5p": Core(459e12, 8 * 2 * 128**2, 128, _gib(95.73), per_chip=1),
    "v6e": Core(918e12, 4 * 2 * 256**2, 256, _gib(31.24), per_chip=1),
    "tpu7x": Core(1153.5e12, 4 * 2 * 256**2, 256, _gib(94.74), per_chip=2),
}

# The layouts of chips that have a name.
_CORES = "2x2 4x4 4x8 8x8 8x16 16x16"
_CHIPS = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_CUBES = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8"
_LAYOUTS = {"v2": _CORES, "v3": f"{_CORES} 16x32 32x32", "v4": _CUBES, "v5e": _CHIPS}
_LAYOUTS |= {"v5p": _CUBES, "v6e": _CHIPS, "tpu7x": _CUBES}


def _count_chips(layout: str) -> int:
    return math.prod(map(int, layout.split("x")))


# The number in a name is the number of chips for v5e and v6e, of cores for the others.
KNOWN = {
    f"{generation}-{_count_chips(layout) * (1 if layouts is _CHIPS else 2)}": (
        f"{generation}:{layout}"
    )
    for generation, layouts in _LAYOUTS.items()
    for layout in layouts.split()
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """A TPU slice.

    Attributes:
      name: The name given by the user.
      libtpu_name: The name in libtpu's notation, such as "v5e:2x4".
      core: The properties of a device of the slice.
      chips: The number of chips.
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
    """Returns the slice with a given name.

    Args:
      name: A key of KNOWN, or a name in libtpu's notation, such as "v5e:2x4".

    Raises:
      UserError: If the name is unknown.
    """
    libtpu_name = KNOWN.get(name, name)
    match = re.fullmatch(r"(\w+):([1-9][0-9]*(?:x[1-9][0-9]*){1,2})", libtpu_name)
    if match is None or match[1] not in CORES:
        raise UserError(
            f"--compile_topology={name} is unknown",
            f"use one of {', '.join(KNOWN)}, or a layout such as v5e:2x4",
        )
    return Topology(name, libtpu_name, CORES[match[1]], _count_chips(match[2]))
