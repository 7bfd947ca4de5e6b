"""Finds the layer of a network from which an operation comes, by the scopes of its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

KERAS_3 = not tf.keras.Model.__module__.startswith("tf_keras")
# The scopes that gradient tapes and nested functions add to a name.
_NO_SCOPE = re.compile(r"gradient_tape|(Stateful)?PartitionedCall(_\d+)?")
_PASSES = ("forward", "gradient", "second-order gradient")


def flat_layers(network: tf.keras.Model) -> Iterator[tf.keras.layers.Layer]:
    """Yields every layer of a network in order, including the layers of nested networks."""
    for layer in network.layers:
        if hasattr(layer, "layers"):
            yield from flat_layers(layer)
        else:
            yield layer


class LayerNames:
    """Finds layers in names such as "gradient_tape/critic_1/conv2d_1_1/Conv2DBackpropFilter".

    Args:
      networks: The networks, with distinct names.
      op_names: The names of all operations of the program. They are needed to distinguish the
        layer "conv2d_1" from the second use of "conv2d", which has the same scope.
    """

    def __init__(self, networks: Iterable[tf.keras.Model], op_names: Iterable[str]):
        self._layers = {
            network.name: [layer.name for layer in flat_layers(network)] for network in networks
        }
        self._known: dict[tuple[str, str], str] = {}
        seen: dict[str, dict[str, None]] = {}
        for name in op_names:
            network, scopes = self._split(name)
            for scope in scopes[1:-1] if network else ():
                seen.setdefault(f"{network}/{scopes[0]}", {})[scope] = None
        for key, found in seen.items():
            self._resolve(key, list(found))

    def layer(self, op_name: str) -> str:
        """Returns the layer of an operation, such as "critic/conv2d_1".

        Without a layer, the result is the name of the network; without a network, it is the
        outermost scope, or "" if the name has no scope.
        """
        network, scopes = self._split(op_name)
        if not network:
            return scopes[0] if len(scopes) > 1 else ""
        for scope in scopes[1:-1]:
            if (f"{network}/{scopes[0]}", scope) in self._known:
                return f"{network}/{self._known[f'{network}/{scopes[0]}', scope]}"
        return network

    def _split(self, op_name: str) -> tuple[str, list[str]]:
        """Returns the network's name or "", and the scopes from the network's scope on."""
        scopes = [scope for scope in op_name.split("/") if not _NO_SCOPE.fullmatch(scope)]
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
            scope: [name for name in _readings(scope) if name in names] for scope in scopes
        }
        taken: set[str] = set()
        for scope, choices in sorted(candidates.items(), key=lambda item: len(item[1])):
            free = [name for name in choices if name not in taken] or choices
            if free:
                self._known[key, scope] = free[0]
                taken.add(free[0])


def _readings(scope: str) -> list[str]:
    readings = [scope, re.sub(r"_\d+$", "", scope)]
    return readings[::-1] if KERAS_3 else readings


def derivative(op_name: str) -> str:
    """Returns the pass of an operation: "forward", "gradient" or "second-order gradient"."""
    return _PASSES[min(op_name.count("gradient_tape/"), 2)]


def features(layer: Any) -> tuple[int, int] | None:
    """Returns the input and output channels of a dense or convolutional layer, else None."""
    kernel = getattr(layer, "kernel", None)
    if kernel is None or len(kernel.shape) < 2:
        return None
    inputs, outputs = (int(side) for side in kernel.shape[-2:])
    return (
        (outputs, inputs)
        if isinstance(layer, tf.keras.layers.Conv2DTranspose)
        else (inputs, outputs)
    )
