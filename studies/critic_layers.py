"""Prints which layers of Keras can stand in a critic with a gradient penalty.

  python -m studies.critic_layers                  all layers
  python -m studies.critic_layers Conv2D Dropout   these

The critic is a layer with weights and tanh, the layer in question, tanh, and Dense(1). Each layer
is tried in a process of its own, because TensorFlow may end the process:

  on a CPU   losses.check_critic has no finding about the layer, with training=True.
  XLA        The gradient of the penalty is compiled for the CPU, and has the values of eager mode.
  TPU        TensorFlow has a kernel for a TPU for each operation of this gradient.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import losses
from tests.helpers.forks import run_in_fork

KERNELS = pathlib.Path(__file__).parents[1] / "tests" / "tpu" / "tpu_kernels.txt"
# What a finding of check_critic means for the table; other findings do not concern the layer.
REASONS = {
    "coupled_examples": "couples examples",
    "estimated_gradient": "estimated gradient",
    "no_gradient": "no gradient",
    "no_second_derivative": "no second gradient",
    "not_finite": "not finite",
    "omitted_second_derivative": "omits a term",
    "random_scores": "random",
    "unchecked_second_derivative": "not checked",
    "wrong_second_derivative": "wrong second gradient",
}
# Marks of a program for a device, and what stays on the host or disappears in compilation.
_NOT_COMPUTED = {"Placeholder", "NoOp", "Assert"}
_TOLERANCE = 1e-3  # of the largest element

# The layers, each in a small critic.

K = tf.keras.layers
Layer = Callable[[Any], Any]
Factory = Callable[[], Any]

_VECTOR, _SEQUENCE, _IMAGE, _VOLUME = (6,), (8, 4), (8, 8, 3), (4, 4, 4, 2)

# Layers that are not tried, with the reason.
LEFT_OUT = {
    "FlaxLayer": "another framework",
    "InputLayer": "not a computation",
    "JaxLayer": "another framework",
    "Lambda": "any function",
    "Layer": "a base class",
    "TFSMLayer": "any SavedModel",
    "TorchModuleWrapper": "another framework",
    "Wrapper": "a base class",
    "CategoryEncoding": "takes integers",
    "HashedCrossing": "takes integers or text",
    "Hashing": "takes integers or text",
    "IntegerLookup": "takes integers",
    "StringLookup": "takes text",
    "TextVectorization": "takes text",
    "MaxNumBoundingBoxes": "takes boxes",
    "Pipeline": "any other layers",
    "RandomHeight": "an image of random size",
    "RandomWidth": "an image of random size",
}


def _of(shape: tuple[int, ...], first: Factory, make: Factory, inputs: int = 1) -> tuple:
    """Returns the shape of an example, and a function that creates the critic."""

    def critic() -> Any:
        examples = tf.keras.Input(shape)
        features = [K.Activation("tanh")(first()(examples)) for _ in range(inputs)]
        layer = make()
        output = layer(*features) if _takes_each(layer) else layer(_one(features))
        return tf.keras.Model(examples, K.Dense(1)(K.Flatten()(K.Activation("tanh")(output))))

    return shape, critic


def _takes_each(layer: Any) -> bool:
    return isinstance(layer, (K.MultiHeadAttention, K.GroupQueryAttention))


def _one(features: list[Any]) -> Any:
    return features if len(features) > 1 else features[0]


def _vector(make: Factory, inputs: int = 1) -> tuple:
    return _of(_VECTOR, lambda: K.Dense(6), make, inputs)


def _sequence(make: Factory, inputs: int = 1) -> tuple:
    return _of(_SEQUENCE, lambda: K.Dense(4), make, inputs)


def _image(make: Factory) -> tuple:
    return _of(_IMAGE, lambda: K.Conv2D(3, 3, padding="same"), make)


def _volume(make: Factory) -> tuple:
    return _of(_VOLUME, lambda: K.Conv3D(2, 3, padding="same"), make)


def _video(make: Factory) -> tuple:
    return _of((3, *_IMAGE), lambda: K.Dense(2), make)


LAYERS: dict[str, tuple[tuple[int, ...], Factory]] = {
    **{
        name: _vector(lambda name=name: getattr(K, name)())
        for name in (
            "ActivityRegularization",
            "BatchNormalization",
            "ELU",
            "Flatten",
            "Identity",
            "LayerNormalization",
            "LeakyReLU",
            "Masking",
            "PReLU",
            "ReLU",
            "RMSNormalization",
            "Softmax",
            "UnitNormalization",
        )
    },
    **{
        name: _vector(lambda name=name: getattr(K, name)(), inputs=2)
        for name in (
            "Add",
            "Average",
            "Concatenate",
            "Maximum",
            "Minimum",
            "Multiply",
            "Subtract",
        )
    },
    **{
        name: _vector(lambda name=name: getattr(K, name)(0.3))
        for name in ("AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise")
    },
    "Activation": _vector(lambda: K.Activation("gelu")),
    "Dense": _vector(lambda: K.Dense(5)),
    "Discretization": _vector(lambda: K.Discretization([-0.5, 0.0, 0.5])),
    "Dot": _vector(lambda: K.Dot(1), inputs=2),
    "EinsumDense": _vector(lambda: K.EinsumDense("ab,bc->ac", 5)),
    "Embedding": _vector(lambda: K.Embedding(4, 3)),
    "GroupNormalization": _image(lambda: K.GroupNormalization(1)),
    "Normalization": _vector(lambda: K.Normalization(mean=0.1, variance=2.0)),
    "RepeatVector": _vector(lambda: K.RepeatVector(3)),
    "Rescaling": _vector(lambda: K.Rescaling(0.5)),
    "Reshape": _vector(lambda: K.Reshape([2, 3])),
    "ReversibleEmbedding": _vector(lambda: K.ReversibleEmbedding(4, 3)),
    "SpectralNormalization": _vector(lambda: K.SpectralNormalization(K.Dense(5))),
    "ThresholdedReLU": _vector(lambda: K.ThresholdedReLU(0.2)),
    **{
        name: _sequence(lambda name=name: getattr(K, name)(), inputs=2)
        for name in ("AdditiveAttention", "Attention")
    },
    **{
        name: _sequence(lambda name=name: getattr(K, name)(3))
        for name in ("GRU", "LSTM", "SimpleRNN")
    },
    **{
        name: _sequence(lambda name=name: K.RNN(getattr(K, name)(3)))
        for name in ("GRUCell", "LSTMCell", "SimpleRNNCell")
    },
    "Bidirectional": _sequence(lambda: K.Bidirectional(K.LSTM(3))),
    "GroupQueryAttention": _sequence(lambda: K.GroupQueryAttention(4, 2, 1), inputs=2),
    "MultiHeadAttention": _sequence(lambda: K.MultiHeadAttention(2, 4), inputs=2),
    "Permute": _sequence(lambda: K.Permute([2, 1])),
    "RNN": _sequence(lambda: K.RNN(K.SimpleRNNCell(3))),
    "StackedRNNCells": _sequence(lambda: K.RNN(K.StackedRNNCells([K.LSTMCell(3), K.GRUCell(3)]))),
    "TimeDistributed": _sequence(lambda: K.TimeDistributed(K.Dense(3))),
    "MelSpectrogram": _of(
        (64,),
        lambda: K.Dense(64),
        lambda: K.MelSpectrogram(
            16, 8, sequence_length=16, sampling_rate=64, num_mel_bins=4, min_freq=1
        ),
    ),
    "STFTSpectrogram": _of(
        (64, 1), lambda: K.Dense(1), lambda: K.STFTSpectrogram("log", 16, 8, 16)
    ),
    **{
        f"{name}{rank}D": of(lambda name=f"{name}{rank}D", more=more: getattr(K, name)(*more))
        for rank, of in enumerate((_sequence, _image, _volume), start=1)
        for name, more in {
            "AveragePooling": [2],
            "Conv": [3, 2],
            "Cropping": [1],
            "GlobalAveragePooling": [],
            "GlobalMaxPooling": [],
            "MaxPooling": [2],
            "SpatialDropout": [0.3],
            "UpSampling": [2],
            "ZeroPadding": [1],
        }.items()
    },
    **{
        f"Conv{rank}DTranspose": of(
            lambda name=f"Conv{rank}DTranspose": getattr(K, name)(3, 3, strides=2)
        )
        for rank, of in enumerate((_sequence, _image, _volume), start=1)
    },
    **{
        f"{name}Conv{rank}D": of(
            lambda name=f"{name}Conv{rank}D", more=more: getattr(K, name)(*more)
        )
        for rank, of in enumerate((_sequence, _image), start=1)
        for name, more in {"Separable": [3, 2], "Depthwise": [2]}.items()
    },
    "Conv2D (strides of 2)": _image(lambda: K.Conv2D(3, 3, strides=2)),
    "Conv2D (1x1 with strides of 2)": _image(lambda: K.Conv2D(3, 1, strides=2)),
    "Conv2D (dilated)": _image(lambda: K.Conv2D(3, 3, dilation_rate=2)),
    "Conv2D (3 groups)": _image(lambda: K.Conv2D(3, 3, groups=3)),
    "UpSampling2D (bilinear)": _image(lambda: K.UpSampling2D(interpolation="bilinear")),
    "UpSampling2D (bicubic)": _image(lambda: K.UpSampling2D(interpolation="bicubic")),
    "Resizing": _image(lambda: K.Resizing(5, 5)),
    "Resizing (nearest)": _image(lambda: K.Resizing(5, 5, interpolation="nearest")),
    "ConvLSTM1D": _of((3, 8, 2), lambda: K.Dense(2), lambda: K.ConvLSTM1D(2, 3)),
    "ConvLSTM2D": _video(lambda: K.ConvLSTM2D(2, 3)),
    "ConvLSTM3D": _of((2, *_VOLUME), lambda: K.Dense(2), lambda: K.ConvLSTM3D(2, 2)),
    "CenterCrop": _image(lambda: K.CenterCrop(6, 6)),
    **{
        name: _image(lambda name=name, more=more: getattr(K, name)(**more))
        for name, more in {
            "AugMix": {"value_range": (-1, 1)},
            "AutoContrast": {"value_range": (-1, 1)},
            "CutMix": {},
            "Equalization": {"value_range": (-1, 1)},
            "MixUp": {},
            "RandAugment": {"value_range": (-1, 1)},
            "RandomBrightness": {"factor": 0.3, "value_range": (-1, 1)},
            "RandomColorDegeneration": {"factor": 0.5, "value_range": (-1, 1)},
            "RandomColorJitter": {"value_range": (-1, 1), "brightness_factor": 0.3},
            "RandomContrast": {"factor": 0.3, "value_range": (-1, 1)},
            "RandomCrop": {"height": 6, "width": 6},
            "RandomElasticTransform": {"value_range": (-1, 1)},
            "RandomErasing": {"value_range": (-1, 1)},
            "RandomFlip": {},
            "RandomGaussianBlur": {"value_range": (-1, 1)},
            "RandomGrayscale": {"factor": 0.5},
            "RandomHue": {"factor": 0.3, "value_range": (-1, 1)},
            "RandomInvert": {"value_range": (-1, 1)},
            "RandomPerspective": {},
            "RandomPosterization": {"factor": 4, "value_range": (-1, 1)},
            "RandomRotation": {"factor": 0.2},
            "RandomSaturation": {"factor": 0.3, "value_range": (-1, 1)},
            "RandomSharpness": {"factor": 0.5, "value_range": (-1, 1)},
            "RandomShear": {"x_factor": 0.3},
            "RandomZoom": {"height_factor": 0.3},
            "RandomTranslation": {"height_factor": 0.3, "width_factor": 0.3},
            "Solarization": {"value_range": (-1, 1)},
        }.items()
    },
}


def main() -> None:
    """Prints a table of verdicts in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("layers", nargs="*", help="default: all")
    print(table(verdicts(parser.parse_args().layers or [*LAYERS])))


def verdicts(names: list[str]) -> dict[str, tuple[str, str, str]]:
    """Returns the verdicts on a CPU, under XLA and on a TPU for each layer; "yes" or the reason."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(names, pool.map(_verdict_of_fork, names), strict=True))


def table(found: dict[str, tuple[str, str, str]]) -> str:
    """Returns a table with a line for each combination of verdicts, the most frequent first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, verdict in sorted(found.items(), key=lambda item: item[0].lower()):
        groups.setdefault(verdict, []).append(name)
    lines = ["| on a CPU | XLA | TPU | layers |", "|---|---|---|---|"]
    for verdict, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {' | '.join(verdict)} | {', '.join(names)} |")
    return "\n".join(lines)


def _verdict_of_fork(name: str) -> tuple[str, str, str]:
    done = run_in_fork([name], _child)
    lines = [line for line in done.out.splitlines() if line.startswith('["')]
    # Each part is printed at once, so that the others are known if one ends the process.
    found = dict(map(json.loads, lines))
    lost = "crash" if done.status is None or done.status < 0 else "error"
    return tuple(found.get(part, lost) for part in ("cpu", "xla", "tpu"))


def _child(arguments: list[str]) -> int:
    for part, verdict in judge(arguments[1]):
        print(json.dumps([part, verdict]), flush=True)
    return 0


def judge(name: str) -> Any:
    """Yields ("tpu", verdict), ("cpu", verdict) and ("xla", verdict) for a layer."""
    shape, make = LAYERS[name]
    tf.keras.utils.set_random_seed(0)
    model = make()
    examples = tf.random.stateless_normal([4, *shape], [0, 1])
    critic: Callable = lambda x: model(x, training=True)  # noqa: E731
    penalty = penalty_gradient(critic, model)
    yield "tpu", _tpu_verdict(penalty, examples)
    found = _cpu_verdict(critic, examples)
    if found == "yes":
        expected = penalty(examples)
    yield "cpu", found
    yield "xla", _xla_verdict(penalty, examples, expected if found == "yes" else None)


def penalty_gradient(critic: Callable, model: Any) -> Callable:
    """Returns a function from examples to the gradient of the penalty in the weights."""

    def compute(examples: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            norm = losses.gradient_norm(critic, examples)
            penalty = tf.reduce_mean(losses.penalties.two_sided(norm))
        weights = [variable.value for variable in model.trainable_variables]
        return tape.gradient(penalty, weights, unconnected_gradients="zero")

    return compute


def _cpu_verdict(critic: Callable, examples: tf.Tensor) -> str:
    try:
        findings = losses.check_critic(critic, examples)
    except Exception as error:
        return f"{type(error).__name__}"
    names = sorted({finding.name for finding in findings} & {*REASONS})
    return ", ".join(REASONS[name] for name in names) or "yes"


def _xla_verdict(penalty: Callable, examples: tf.Tensor, expected: Any) -> str:
    try:
        gradients = tf.function(penalty, jit_compile=True, autograph=False)(examples)
    except (LookupError, NotImplementedError, ValueError):
        return "no gradient"
    except tf.errors.OpError:
        return "not compiled"
    for ours, theirs in zip(gradients, expected or [], strict=False):
        ours, theirs = tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs)  # noqa: PLW2901
        if not tf.reduce_all(abs(ours - theirs) <= _TOLERANCE * (tf.reduce_max(abs(theirs)) + 1)):
            return "other values"
    return "yes"


def _tpu_verdict(penalty: Callable, examples: tf.Tensor) -> str:
    try:
        traced = tf.function(penalty, autograph=False).get_concrete_function(examples)
    except (LookupError, NotImplementedError, ValueError):
        return "no gradient"
    definition = traced.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    lines = KERNELS.read_text().splitlines()
    kernels = {line for line in lines if not line.startswith("#")}
    missing = sorted({node.op for node in nodes} - kernels - _NOT_COMPUTED)
    return "yes" if not missing else f"no {missing[0]}"


if __name__ == "__main__":
    main()
