"""From the scopes of an operation's name to the layer of the user's model it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

KERAS_3 = not tf.keras.Model.__module__.startswith("tf_keras")
# What tapes and nested functions put into a name.
_NO_SCOPE = re.compile(r"gradient_tape|(Stateful)?PartitionedCall(_\d+)?")
_PASSES = ("forward", "gradient", "second-order gradient")


def flat_layers(network: tf.keras.Model) -> Iterator[tf.keras.layers.Layer]:
    """Every layer of a network, those of networks inside it as well, in order."""
    for layer in network.layers:
        if hasattr(layer, "layers"):
            yield from flat_layers(layer)
        else:
            yield layer


class LayerNames:
    """Knows the layers of the networks, and finds them in names such as
    "gradient_tape/critic_1/conv2d_1_1/Conv2DBackpropFilter".

    Args:
      networks: with names of their own.
      op_names: all those of the program, to tell "conv2d_1", the layer, from the second use
        of "conv2d", which TensorFlow calls by the same name.
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
        """ "critic/conv2d_1"; the outermost scope where there is no layer, "" without any."""
        network, scopes = self._split(op_name)
        if not network:
            return scopes[0] if len(scopes) > 1 else ""
        for scope in scopes[1:-1]:
            if (f"{network}/{scopes[0]}", scope) in self._known:
                return f"{network}/{self._known[f'{network}/{scopes[0]}', scope]}"
        return network

    def _split(self, op_name: str) -> tuple[str, list[str]]:
        """The network's own name ("" if none), and the scopes from its own on."""
        scopes = [scope for scope in op_name.split("/") if not _NO_SCOPE.fullmatch(scope)]
        for place, scope in enumerate(scopes):
            for network in self._layers:
                if re.fullmatch(rf"{re.escape(network)}(_\d+)?", scope):
                    return network, scopes[place:]
        return "", scopes

    def _resolve(self, key: str, scopes: list[str]) -> None:
        """A scope is a layer's name, or that and a number; Keras 3 always adds one. One layer,
        one scope: those that leave no choice go first."""
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
    """Which pass an operation belongs to: "forward", "gradient" or "second-order gradient"."""
    return _PASSES[min(op_name.count("gradient_tape/"), 2)]


def features(layer: Any) -> tuple[int, int] | None:
    """Channels a layer takes and gives, where it is a matrix product; else None."""
    kernel = getattr(layer, "kernel", None)
    if kernel is None or len(kernel.shape) < 2:
        return None
    inputs, outputs = (int(side) for side in kernel.shape[-2:])
    return (
        (outputs, inputs)
        if isinstance(layer, tf.keras.layers.Conv2DTranspose)
        else (inputs, outputs)
    )
