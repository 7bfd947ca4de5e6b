"""From a replica step to HLO, the language of XLA's compilers."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def as_program(
    replica_step: Callable, strategy: tf.distribute.Strategy
) -> tf.types.experimental.PolymorphicFunction:
    """The step of one of the strategy's replicas, as a tf.function for XLA.

    Args:
      replica_step: as `strategy.run` would be given it.
      strategy: the slice's.
    """

    @tf.function(jit_compile=True, autograph=False)
    def program(*arguments: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica_step, args=arguments)

    return program


def to_hlo(program: tf.types.experimental.PolymorphicFunction, *specs: tf.TensorSpec) -> bytes:
    """The unoptimised program, a serialized HloModule.

    Its parameters are the arguments, then every variable the program touches; its results are
    those of the program, then every variable it changes.

    Args:
      program: of `as_program`.
      *specs: of its arguments; every shape static.

    Raises:
      Exception: whatever TensorFlow raises where an operation cannot be compiled.
    """
    # For the CPU, whose kernels a TensorFlow without a TPU has: so far the program is the same.
    return program.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")
