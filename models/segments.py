"""The division of a network into a chain of segments, whose features can be computed again."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from .errors import DesignError

# Layers of Keras without a state, which compute the same features again. Those of this package use
# `replay.first_pass`.
_STATELESS = (
    tf.keras.layers.Activation,
    tf.keras.layers.Add,
    tf.keras.layers.AveragePooling2D,
    tf.keras.layers.Concatenate,
    tf.keras.layers.Conv1D,
    tf.keras.layers.Conv1DTranspose,
    tf.keras.layers.Conv2D,
    tf.keras.layers.Conv2DTranspose,
    tf.keras.layers.Dense,
    tf.keras.layers.Flatten,
    tf.keras.layers.GlobalAveragePooling2D,
    tf.keras.layers.GroupNormalization,
    tf.keras.layers.LayerNormalization,
    tf.keras.layers.LeakyReLU,
    tf.keras.layers.ReLU,
    tf.keras.layers.Rescaling,
    tf.keras.layers.Reshape,
    tf.keras.layers.UpSampling2D,
)

# A compiler computes an activation again by itself, where it reads the result of a convolution. A
# segment of one convolution would therefore save nothing.
_KERNELS = 2


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a network, from one tensor to the next one that everything passes through.

    Attributes:
      model: The layers of the part, a functional Keras model. It shares them with the network.
      labels: The positions, among the further inputs of the network, of those that it takes.
      recomputed: Whether it has features inside that can be computed again.
    """

    model: tf.keras.Model
    labels: tuple[int, ...]
    recomputed: bool


def find_segments(network: tf.keras.Model, name: str) -> list[Segment]:
    """Divides a network into segments, such as residual blocks or pairs of convolutions.

    A segment begins where a single tensor is used by all later layers, as late as possible before
    a layer with a kernel, once the segment before has two kernels. It is recomputed if it has
    several layers, and no layer that may draw random numbers or update a variable, such as dropout.

    Args:
      network: A functional Keras model, none of whose layers is called twice. Its first input is
        the beginning of the chain, and every segment may take the others, such as labels.
      name: The name of the network in messages, and of the segments, so that the names of
        operations stay the same.

    Raises:
      DesignError: If the network is of another kind, or no segment can be recomputed.
    """
    try:
        graph = _Graph(network, name)
    except (AttributeError, TypeError):
        raise DesignError(
            (f"the {name} is not a functional Keras model whose layers are called once",),
            ("build it with tf.keras.Model(inputs, outputs)",),
        ) from None
    except ValueError:
        raise DesignError(
            (f"the {name} contains another model, or calls a layer twice",),
            ("build it from layers that are called once",),
        ) from None
    starts = graph.find_starts()
    ends = [*starts[1:], len(graph.layers)]
    segments = [graph.segment(start, end) for start, end in zip(starts, ends, strict=True)]
    if not any(segment.recomputed for segment in segments):
        raise DesignError(
            (f"each part of the {name} has a layer with a state, or a single layer",),
            ("build it from layers that compute the same features in every call",),
        )
    return segments


class _Graph:
    """The layers of a functional model in the order of computation, and the tensors between them.

    Args:
      network: The model.
      name: The name of its segments.

    Raises:
      AttributeError, TypeError: If it is not functional.
      ValueError: If it contains another model, or calls a layer twice.
    """

    def __init__(self, network: tf.keras.Model, name: str):
        self._network = network
        self._name = name
        operations = getattr(network, "operations", network.layers)  # Keras 3: also x + y
        self.layers = [
            each for each in operations if not isinstance(each, tf.keras.layers.InputLayer)
        ]
        self._inputs = [tf.nest.flatten(layer.input) for layer in self.layers]
        self._outputs = [tf.nest.flatten(layer.output) for layer in self.layers]
        first, *self._labels = network.inputs
        known = {id(tensor) for each in (network.inputs, *self._outputs) for tensor in each}
        used = [*network.outputs, *[tensor for each in self._inputs for tensor in each]]
        if not known.issuperset(map(id, used)):
            raise ValueError("a tensor is not the output of a layer")
        # The tensors that each layer and those after it use.
        self._live: list[list[tf.Tensor]] = []
        produced = [first]
        for index, outputs in enumerate(self._outputs):
            needed = {id(tensor) for each in self._inputs[index:] for tensor in each}
            needed |= {id(tensor) for tensor in network.outputs}
            self._live.append([tensor for tensor in produced if id(tensor) in needed])
            produced = [*self._live[-1], *outputs]

    def find_starts(self) -> list[int]:
        """Returns the index of the first layer of each segment."""
        starts, kernels, previous = [0], 0, -1
        for index in filter(self._has_kernel, range(len(self.layers))):
            if kernels >= _KERNELS:
                between = range(previous + 1, index + 1)
                if new := [each for each in between if len(self._live[each]) == 1]:
                    starts.append(new[-1])
                    kernels = 0
            kernels, previous = kernels + 1, index
        return starts

    def segment(self, start: int, end: int) -> Segment:
        """Returns the segment of a range of layers."""
        used = {id(tensor) for inputs in self._inputs[start:end] for tensor in inputs}
        labels = tuple(index for index, each in enumerate(self._labels) if id(each) in used)
        inputs = [*self._live[start], *[self._labels[index] for index in labels]]
        outputs = self._network.outputs if end == len(self.layers) else self._live[end]
        model = tf.keras.Model(
            inputs if labels else inputs[0],
            outputs[0] if len(outputs) == 1 else list(outputs),
            name=self._name,
        )
        part = self.layers[start:end]
        return Segment(model, labels, len(part) > 1 and all(map(_is_recomputable, part)))

    def _has_kernel(self, index: int) -> bool:
        # A layer of two inputs is a normalization with a scale for each class, or a projection.
        variables = getattr(self.layers[index], "trainable_variables", ())
        kernels = [each for each in variables if len(each.shape) > 1]
        return bool(kernels) and len(self._inputs[index]) == 1


def _is_recomputable(layer: tf.keras.layers.Layer) -> bool:
    parts = getattr(layer, "layers", None)  # of a model that is a layer of the network
    if parts is not None:
        return all(map(_is_recomputable, parts))
    if not isinstance(layer, tf.keras.layers.Layer):
        return True  # an operation such as x + y
    return type(layer) in _STATELESS or type(layer).__module__.startswith(f"{__package__}.")
