"""Transfers the weights of another run whose networks may differ (--restore).

A checkpoint stores a graph of objects. A weight of a new network takes the value of the weight at
the same place of the same network in that graph, if their shapes and dtypes are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import trackable_object_graph_pb2

from ..errors import UserError
from .networks import copy_weights
from .state import TrainState

NETWORKS = {"generator": ("generator",), "critic": ("critic",), "both": ("generator", "critic")}
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"

_Path = tuple[str, ...]


def transfer(state: TrainState, checkpoint: str, networks: str, origin: str) -> None:
    """Assigns the weights of a checkpoint that fit, and lists all others on stderr.

    The optimizers and the number of iterations stay the same. The moving average of the generator
    becomes a copy of the generator.

    Args:
      state: The newly initialized state.
      checkpoint: The path of the checkpoint without a suffix.
      networks: The value of --restore, a key of NETWORKS.
      origin: The value of --restore_from, for messages.

    Raises:
      UserError: If no weight fits.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(_GRAPH))
    restored = 0
    for name in NETWORKS[networks]:
        restored += _transfer_network(getattr(state, name), name, reader, graph)
    if not restored:
        raise UserError(
            f"--restore={networks}: no weight of --restore_from={origin} fits the networks of "
            "this run",
            "give a run of the same --model and --model_width, or omit both flags",
        )
    if state.generator_average is not None and "generator" in NETWORKS[networks]:
        copy_weights(state.generator_average, state.generator)


def _transfer_network(network: Any, name: str, reader: Any, graph: Any) -> int:
    """Transfers the weights of one network, and returns the number of weights that fit."""
    saved = _saved_weights(graph, name)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    weights = _weights(network)
    remaining = []
    for path, weight in weights.items():
        key, title = saved.get(path), f"{name}/{getattr(weight, 'path', weight.name)}"
        shape = tuple(weight.shape)
        if key is None:
            remaining.append(f"{title} {shape}: the checkpoint has no such weight")
        elif tuple(shapes[key]) != shape:
            remaining.append(f"{title} {shape}: the checkpoint has shape {tuple(shapes[key])}")
        elif dtypes[key] != tf.as_dtype(weight.dtype):
            remaining.append(f"{title}: the checkpoint has {dtypes[key].name}")
        else:
            weight.assign(reader.get_tensor(key))
    logging.info(
        f"--restore: {len(weights) - len(remaining)} of {len(weights)} weights of the {name} are "
        "restored"
    )
    for line in remaining:
        logging.info(f"--restore: newly initialized: {line}")
    return len(weights) - len(remaining)


def _saved_weights(graph: Any, name: str) -> dict[_Path, str]:
    """Returns the checkpoint key of each weight of a network in a saved object graph."""

    def children(node: int) -> dict[str, int]:
        return {child.local_name: child.node_id for child in graph.nodes[node].children}

    keys = {
        number: attribute.checkpoint_key
        for number, node in enumerate(graph.nodes)
        for attribute in node.attributes
        if attribute.name == _VALUE
    }
    network = children(0).get(name)
    return {} if network is None else _named(network, children, keys)


def _weights(network: Any) -> dict[_Path, Any]:
    """Returns the weights of a network by their place in its object graph."""
    objects = {id(network): network}
    view = tf.train.TrackableView(network)

    def children(identity: int) -> dict[str, int]:
        found = dict(view.children(objects[identity]))
        objects.update({id(child): child for child in found.values()})
        return {name: id(child) for name, child in found.items()}

    weights = {id(weight): weight for weight in network.weights}
    # Keras 3 wraps a tf.Variable in its own class, and a graph may contain either.
    for weight in network.weights:
        if not isinstance(weight, tf.Variable):
            weights[id(weight.value)] = weight
    return _named(id(network), children, weights)


def _named(
    root: int, children: Callable[[int], Mapping[str, int]], weights: Mapping[int, Any]
) -> dict[_Path, Any]:
    """Returns the weights below an object by path.

    Args:
      root: The number of the object.
      children: The number of an object -> the numbers of its parts by name.
      weights: The weights by number.

    Returns:
      The weights by the names on the shortest path to each. A number at the end of a name is
      replaced by its rank among the names that lead to weights, because an additional layer
      without weights, such as an input for labels, changes the numbers of all layers after it.
    """
    paths: dict[int, _Path] = {root: ()}
    queue = [root]
    for node in queue:
        if node in weights:
            continue
        for name, child in sorted(children(node).items()):
            if child not in paths:
                paths[child] = (*paths[node], name)
                queue.append(child)
    found = {path: weights[node] for node, path in paths.items() if node in weights}
    ranks = _ranks(found)
    return {
        tuple(ranks[path[: depth + 1]] for depth in range(len(path))): weight
        for path, weight in found.items()
    }


def _ranks(paths: Iterable[_Path]) -> dict[_Path, str]:
    """Returns the last name of each prefix of the paths, with a rank in place of its number."""
    prefixes = {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    groups: dict[tuple[_Path, str], list[tuple[int, _Path]]] = {}
    names = {}
    for prefix in prefixes:
        match = re.fullmatch(r"(.*?)(\d+)", prefix[-1])
        if match is None:
            names[prefix] = prefix[-1]
        else:
            groups.setdefault((prefix[:-1], match[1]), []).append((int(match[2]), prefix))
    for (_, text), members in groups.items():
        for rank, (_, prefix) in enumerate(sorted(members)):
            names[prefix] = f"{text}{rank}"
    return names
