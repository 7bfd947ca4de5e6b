"""Does the compiler think of each TPU as wgan_gp/tpu/topologies.py does?

    .venv/bin/python -m benchmarks.tpu_clock        after make setup-compile

prints, for a product of two bfloat16 matrices of 8192 x 8192, how many flops a cycle the
compiler's estimate comes to, and what the matrix units could do at most.
"""

from wgan_gp.tpu import compiler, hlo, lowering, topologies  # compiler before jax: it says why
from wgan_gp.tpu.slice_strategy import SliceStrategy

import tensorflow as tf  # isort: skip

SIDE = 8192


def main() -> None:
    """Prints a line for each generation."""
    spec = tf.TensorSpec([SIDE, SIDE], tf.bfloat16)
    program = lowering.make_program(tf.linalg.matmul, SliceStrategy(1))
    product = lowering.lower_to_hlo(program, spec, spec)
    for generation, core in topologies.CORES.items():
        layout = "2x2x1" if generation in ("v4", "v5p") else "1x1" if core.lanes > 128 else "2x2"
        devices = compiler.slice_devices(topologies.find(f"{generation}:{layout}"))
        text = compiler.compile_hlo(product, devices[:1]).hlo
        cycles = sum(operation.cycles for operation in hlo.parse_operations(text))
        reached = 2 * SIDE**3 / cycles
        print(
            f"{generation}: {reached:9,.0f} of {core.flops_per_cycle:9,} flops a cycle "
            f"({reached / core.flops_per_cycle:.0%}) at {core.clock / 1e9:.2f} GHz"
        )


if __name__ == "__main__":
    main()
