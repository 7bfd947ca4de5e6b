"""Functions of TensorFlow on a device of jax: sampling, the probe, feature extraction, scoring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import UserError, reason
from ..runtime.functions import CompilingStrategy
from . import client, lowering


class JaxStrategy(CompilingStrategy):
    """The CPU for the variables, and a device of jax for the functions.

    Args:
      device: The device.
    """

    def __init__(self, device: jax.Device):
        super().__init__("CPU:0")
        self._device = device

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _DeviceFunction(function, self._device)


class _DeviceFunction:
    """A function that is compiled for each shape of its arguments. Each call reads the variables.

    A function that XLA cannot compile, such as one of a user's network for features, runs on the
    CPU, with a warning.

    Args:
      function: See `function_on`.
      device: The device that runs it.
    """

    def __init__(self, function: Callable[..., Any], device: jax.Device):
        self._function = function
        self._device = device
        self._programs: dict[Any, Callable[[list[np.ndarray]], Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        values = [np.asarray(each) for each in tf.nest.flatten(arguments)]
        specs = [tf.TensorSpec(each.shape, each.dtype) for each in values]
        key = tuple((tuple(spec.shape), spec.dtype) for spec in specs)
        if key not in self._programs:
            self._programs[key] = self._compile(arguments, specs)
        return self._programs[key](values)

    def _compile(
        self, arguments: Any, specs: list[tf.TensorSpec]
    ) -> Callable[[list[np.ndarray]], Any]:
        def with_flat_arguments(*flat: tf.Tensor) -> Any:
            return self._function(*tf.nest.pack_sequence_as(arguments, flat))

        function = tf.function(with_flat_arguments, jit_compile=True, autograph=False)
        try:
            hlo = lowering.lower_to_hlo(function, *specs)
            program = client.Program(hlo, [self._device])
        except client.RuntimeFailure as error:
            raise UserError(
                f"{self._device.device_kind} cannot run {_name(self._function)} ({reason(error)})",
                "if it is short of memory, use a smaller --model_width",
            ) from error
        except Exception as error:  # TensorFlow raises exceptions of many types
            logging.warning(
                f"XLA cannot compile {_name(self._function)}, which runs on the CPU "
                f"({reason(error)})"
            )
            on_host = tf.function(with_flat_arguments, autograph=False)
            return lambda values: on_host(*map(tf.constant, values))
        assert not client.overwritten_parameters(hlo), "the function changes a variable"
        captured = lowering.captured_values(function, *specs)
        outputs = function.get_concrete_function(*specs).structured_outputs

        def run(values: list[np.ndarray]) -> Any:
            state = [np.asarray(tf.convert_to_tensor(each)) for each in captured]
            with jax.enable_x64(True):  # indices of samples have 64 bits
                parameters = [jax.device_put(each, self._device) for each in [*values, *state]]
            results = [tf.constant(np.asarray(shard)) for (shard,) in program.run(parameters)]
            return tf.nest.pack_sequence_as(outputs, results)

        return run


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "a function").strip("_").replace("_", " ")
