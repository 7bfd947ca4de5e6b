"""Compares wgan_gp/tpu/topologies.py with the TPU compiler's estimates.

  python -m benchmarks.tpu_clock

Needs `make setup-compile`. For the product of two 8192x8192 matrices in bfloat16, the program
prints the flops per cycle that follow from the compiler's estimate, and the maximum of the matrix
units.
"""

from wgan_gp.pjrt import lowering
from wgan_gp.pjrt.slice_strategy import SliceStrategy
from wgan_gp.tpu import compiler, hlo, topologies

import tensorflow as tf  # isort: skip

SIDE = 8192


def main() -> None:
    """Prints a line for each generation."""
    spec = tf.TensorSpec([SIDE, SIDE], tf.bfloat16)
    program = lowering.make_program(tf.linalg.matmul, SliceStrategy(1))
    product = lowering.lower_to_hlo(program, spec, spec)
    for generation, core in topologies.CORES.items():
        layout = (
            "2x2x1"
            if generation in ("v4", "v5p", "tpu7x")
            else "1x1"
            if core.lanes > 128
            else "2x2"
        )
        devices = compiler.slice_devices(topologies.find(f"{generation}:{layout}"))
        compiled = hlo.Program(compiler.compile_hlo(product, devices[:1]).hlo)
        cycles = sum(operation.cycles for operation in compiled.part(hlo.ENTRY).operations())
        flops_per_cycle = 2 * SIDE**3 / cycles
        print(
            f"{generation}: {flops_per_cycle:9,.0f} of {core.flops_per_cycle:9,} flops per cycle "
            f"({flops_per_cycle / core.flops_per_cycle:.0%}) at {core.clock / 1e9:.2f} GHz"
        )


if __name__ == "__main__":
    main()
