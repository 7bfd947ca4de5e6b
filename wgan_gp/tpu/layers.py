"""The mapping from operations of a program to the layers of its networks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from ..training.loop import CRITIC_STEPS, ITERATIONS

# The scopes that gradient tapes, nested functions and the loops of training add to a name.
_ADDED_SCOPE = re.compile(
    rf"gradient_tape|((Stateful)?PartitionedCall|{ITERATIONS}|{CRITIC_STEPS})(_\d+)?"
)
_PASSES = ("forward", "gradient", "second-order gradient")


def flatten_layers(network: tf.keras.Model) -> Iterator[tf.keras.layers.Layer]:
    """Yields the layers of a network in order, with nested networks replaced by their layers."""
    for layer in network.layers:
        if hasattr(layer, "layers"):
            yield from flatten_layers(layer)
        else:
            yield layer


class LayerNames:
    """A lookup of layers by operation names.

    An example of such a name is "gradient_tape/critic_1/conv2d_1_1/Conv2DBackpropFilter".

    Args:
      networks: The networks, with distinct names.
      op_names: The names of all operations of the program. They are needed to distinguish the
        layer "conv2d_1" from the second use of "conv2d", which has the same scope.
    """

    def __init__(self, networks: Iterable[tf.keras.Model], op_names: Iterable[str]):
        self._layers = {
            network.name: [layer.name for layer in flatten_layers(network)] for network in networks
        }
        self._layer_of: dict[tuple[str, str], str] = {}
        seen: dict[str, dict[str, None]] = {}
        for name in op_names:
            network, scopes = self._split(name)
            for scope in scopes[1:-1] if network else ():
                seen.setdefault(f"{network}/{scopes[0]}", {})[scope] = None
        for key, found in seen.items():
            self._resolve(key, list(found))

    def find_layer(self, op_name: str) -> str:
        """Returns the layer of an operation, such as "critic/conv2d_1".

        For an operation of a network outside its layers, returns the name of the network. For
        other operations, returns the outermost scope, or "" if the name has no scope.
        """
        network, scopes = self._split(op_name)
        if not network:
            return scopes[0] if len(scopes) > 1 else ""
        for scope in scopes[1:-1]:
            if (f"{network}/{scopes[0]}", scope) in self._layer_of:
                return f"{network}/{self._layer_of[f'{network}/{scopes[0]}', scope]}"
        return network

    def _split(self, op_name: str) -> tuple[str, list[str]]:
        """Returns the network's name or "", and the scopes from the network's scope on."""
        scopes = [scope for scope in op_name.split("/") if not _ADDED_SCOPE.fullmatch(scope)]
        for place, scope in enumerate(scopes):
            for network in self._layers:
                if re.fullmatch(rf"{re.escape(network)}(_\d+)?", scope):
                    return network, scopes[place:]
        return "", scopes

    def _resolve(self, key: str, scopes: list[str]) -> None:
        """Assigns the scopes in a network to its layers.

        A scope is the name of a layer, possibly with a number, which Keras 3 always adds. Each
        layer has one scope, so scopes with a single candidate are assigned first.
        """
        names = set(self._layers[key.partition("/")[0]])
        candidates = {
            scope: [name for name in (re.sub(r"_\d+$", "", scope), scope) if name in names]
            for scope in scopes
        }
        taken: set[str] = set()
        for scope, choices in sorted(candidates.items(), key=lambda item: len(item[1])):
            free = [name for name in choices if name not in taken] or choices
            if free:
                self._layer_of[key, scope] = free[0]
                taken.add(free[0])


def find_pass(op_name: str) -> str:
    """Returns the pass of an operation: "forward", "gradient" or "second-order gradient"."""
    return _PASSES[min(op_name.count("gradient_tape/"), 2)]


def output_channels(layer: Any) -> int:
    """Returns the number of output channels of a linear layer; 0 for other layers."""
    kernel = getattr(layer, "kernel", None)
    if kernel is None or len(kernel.shape) < 2:
        return 0
    return int(kernel.shape[-2 if isinstance(layer, tf.keras.layers.Conv2DTranspose) else -1])
