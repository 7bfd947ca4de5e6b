"""Exports a run's networks as a SavedModel, which needs TensorFlow only, and as Keras files.

The SavedModel has the signature "critic" and two of the generator. `latents` is the generator
itself, and "serving_default", which programs that serve models call, is the same signature. `seed`
also draws the noise; for the same seed, its samples are those of --mode=sample. Both return a
dictionary {"samples": `[B, ...]`}, in the units of the data. Samples and conditions are float32, or
float64 if float32 is too coarse for the data. All signatures refuse labels that are not classes of
the data, and conditions that are not finite.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..data.scaling.conditions import Conditions
from ..data.scaling.pixels import Pixels
from ..data.scaling.scaling import Scaling
from ..data.spec import DataSpec
from ..run_directory.files import (
    OUTPUT_REMEDY,
    check_new_folder,
    convert_file_errors,
    new_folder,
    this_machine,
    write_durable,
)
from ..runtime.randomness import RngStream, normal

SAVED_MODEL = "saved_model"
KERAS_FILE = "generator.keras"
CRITIC_FILE = "critic.keras"

Score = Callable[[Callable, tf.Tensor], tf.Tensor]
Signatures = dict[str, Callable[..., dict[str, tf.Tensor]]]


def check(folder: str, flag: str) -> None:
    """Raises UserError unless the folder of the export is new or empty.

    Args:
      folder: The folder.
      flag: The name of the folder in messages.
    """
    with convert_file_errors(flag, "read", OUTPUT_REMEDY):
        check_new_folder(flag, folder)


def write(
    folder: str,
    generator: Any,
    critic: Any,
    *,
    latent_size: int,
    spec: DataSpec,
    score: Score,
    labeled_critic: bool,
    files: Mapping[str, bytes | str],
) -> None:
    """Writes both networks as a SavedModel and as Keras files.

    The files appear in the folder together, so a failure leaves nothing in the way.

    Args:
      folder: The folder of the export.
      generator, critic: The networks, created under the default strategy.
      latent_size: The length of a latent vector.
      spec: The properties of the data, whose units the exported functions use.
      score: (function from examples to the critic's scores, examples) -> scores `[B]` float32.
      labeled_critic: Whether the critic takes labels or conditions.
      files: The content of further files, by name.

    Raises:
      UserError: If the files cannot be written.
    """
    with convert_file_errors(folder, "written", OUTPUT_REMEDY), new_folder(folder) as inside:
        functions = _generator_signatures(generator, latent_size, spec)
        functions["critic"] = critic_signature(critic, spec, score, labeled_critic)
        functions[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY] = functions["latents"]
        module = tf.Module()
        # Only the weights are tracked, because a program without this package and Keras cannot
        # use the layers.
        module.weights = [
            _plain(weight) for network in (generator, critic) for weight in network.weights
        ]
        options = tf.saved_model.SaveOptions(experimental_io_device=this_machine())
        tf.saved_model.save(module, posixpath.join(inside, SAVED_MODEL), functions, options)
        for file, network in ((KERAS_FILE, generator), (CRITIC_FILE, critic)):
            # A network of the user may not be a Keras model.
            model = getattr(network, "keras_model", network)
            if model is None:
                logging.info(f"{network.name} is not a Keras model, so {file} is not written")
            else:
                write_durable(posixpath.join(inside, file), _keras_file(model))
        for name, text in files.items():
            write_durable(posixpath.join(inside, name), text)


def _generator_signatures(generator: Any, latent_size: int, spec: DataSpec) -> Signatures:
    units = spec.scaling or spec.pixels
    if spec.conditions is None:
        drawn = spec.draw_labels(is_balanced=False)
        return signatures(generator, latent_size, spec.classes, units, drawn=drawn)
    return conditional_signatures(generator, latent_size, spec.conditions, units)


def critic_signature(
    network: Any, spec: DataSpec, score: Score, labeled_critic: bool
) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns the signature "critic": examples `[B, ...]` -> {"scores": `[B]` float32}.

    A critic that takes labels has a second argument, labels `[B]` int32, or conditions `[B, K]` in
    the data's units. Examples and conditions are float32, or float64 if float32 is too coarse for
    the data. The arguments are those of `write`.
    """
    scaling, conditions = spec.scaling, spec.conditions
    units = scaling or spec.pixels

    def scores(examples: tf.Tensor, labels: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        def critic(inputs: tf.Tensor) -> tf.Tensor:
            output = network([inputs, labels] if labeled_critic else inputs, training=False)
            return output[0] if isinstance(output, tuple | list) else output

        if units is not None:
            examples = units.normalize(examples)
        return {"scores": score(critic, examples)}

    shape, dtype = spec.example_shape, tf.float32
    if scaling is not None:
        shape, dtype = (*shape[:-1], len(scaling.constants)), scaling.signature_dtype
    examples = tf.TensorSpec([None, *shape], dtype, "examples")
    if not labeled_critic:
        return traced(scores, examples)
    if conditions is None:
        return traced(
            lambda examples, labels: scores(examples, _checked(labels, 0, spec.classes)),
            examples,
            tf.TensorSpec([None], tf.int32, "labels"),
        )
    return traced(
        lambda examples, values: scores(examples, _standardize(values, conditions)),
        examples,
        condition_spec(conditions),
    )


def _plain(weight: tf.Variable) -> tf.Variable:
    """Returns the tf.Variable of a weight, which Keras 3 wraps in its own class."""
    return weight if isinstance(weight, tf.Variable) else weight.value


def _keras_file(generator: tf.keras.Model) -> bytes:
    """Returns the content of a Keras file, so that it can be written atomically."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, KERAS_FILE)
        generator.save(path)
        return pathlib.Path(path).read_bytes()


def signatures(
    generator: Any,
    latent_size: int,
    classes: int,
    units: Scaling | Pixels | None = None,
    *,
    drawn: np.ndarray | None = None,
) -> Signatures:
    """Returns the signatures of a generator with or without classes, by name.

    Args:
      generator: `[B, latent_size]`, and labels `[B]` if there are classes, -> `[B, ...]`.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional generator; 0 for an unconditional one.
      units: The units of the samples; see `DataSpec.units`.
      drawn: Labels `[M]` int32 that samples have in turn; None for all classes in turn.

    Returns:
      "latents": latents `[B, latent_size]` float32, labels `[B]` int32 -> B samples.
      "seed": seed, scalar int64 in [0, 2^31), count, scalar int32, label, scalar int32 ->
        `count` samples of the class `label`, or of all classes or drawn labels in turn for -1.
      Only a conditional generator has the arguments labels and label.
    """

    def of_latents(latents: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        if classes:
            labels = _checked(labels, 0, classes)
        inputs = [latents, labels] if classes else latents
        return _in_units(generator(inputs, training=False), units)

    def of_seed(seed: tf.Tensor, count: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
        # As in Sampler, sample i has class i modulo classes, and the samples of one class are a
        # subset of all samples.
        if classes:
            label = _checked(label, -1, classes)
        if drawn is not None:
            places = tf.range(count)
            labels = tf.where(label < 0, tf.gather(drawn, places % len(drawn)), label)
            return of_latents(_noise(seed, count, latent_size), labels)
        first, stride = tf.maximum(label, 0), tf.where(label < 0, 1, classes)
        places = first + stride * tf.range(count)
        latents = _noise(seed, count * stride, latent_size)
        return of_latents(tf.gather(latents, places), places % max(1, classes))

    some_latents, seed = _latent_spec(latent_size), _seed_spec()
    some_labels = tf.TensorSpec([None], tf.int32, "labels")
    count, label = tf.TensorSpec([], tf.int32, "count"), tf.TensorSpec([], tf.int32, "label")
    if classes:
        return {
            "latents": traced(of_latents, some_latents, some_labels),
            "seed": traced(of_seed, seed, count, label),
        }
    return {
        "latents": traced(lambda latents: of_latents(latents, tf.constant(0)), some_latents),
        "seed": traced(lambda seed, count: of_seed(seed, count, tf.constant(-1)), seed, count),
    }


def conditional_signatures(
    generator: Any,
    latent_size: int,
    conditions: Conditions,
    units: Scaling | Pixels | None = None,
) -> Signatures:
    """Returns the signatures of a generator that takes conditions, by name.

    Args:
      generator: `[B, latent_size]` and standardized conditions `[B, K]` -> `[B, ...]`.
      latent_size: The length of a latent vector.
      conditions: The standardization of the conditions.
      units: The units of the samples; see `DataSpec.units`.

    Returns:
      "latents": latents `[B, latent_size]` float32, conditions `[B, K]` -> B samples.
      "seed": seed, scalar int64 in [0, 2^31), conditions `[B, K]` -> B samples, one for each
        condition.
      The conditions are in the units of the data; see `condition_spec` for their dtype.
    """

    def of_latents(latents: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = [latents, _standardize(values, conditions)]
        return _in_units(generator(inputs, training=False), units)

    def of_seed(seed: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        return of_latents(_noise(seed, tf.shape(values)[0], latent_size), values)

    values = condition_spec(conditions)
    return {
        "latents": traced(of_latents, _latent_spec(latent_size), values),
        "seed": traced(of_seed, _seed_spec(), values),
    }


def condition_spec(conditions: Conditions) -> tf.TensorSpec:
    """Returns the spec of the argument "conditions" of a signature."""
    return tf.TensorSpec([None, conditions.size], conditions.signature_dtype, "conditions")


def traced(function: Callable, *inputs: tf.TensorSpec) -> Callable:
    """Returns a function with one signature, whose argument names are those of the specs."""
    return tf.function(function, input_signature=inputs, autograph=False)


def _checked(labels: tf.Tensor, first: int, classes: int) -> tf.Tensor:
    """Returns labels, whose computation fails unless they are in [first, classes).

    Without the check, a one-hot encoding of another label would be zeros, and so would a gather on
    a GPU.
    """
    message = f"labels are integers from {first} to {classes - 1}"
    bounds = [
        tf.debugging.assert_greater_equal(labels, first, message),
        tf.debugging.assert_less(labels, classes, message),
    ]
    with tf.control_dependencies(bounds):
        return tf.identity(labels)


def _standardize(values: tf.Tensor, conditions: Conditions) -> tf.Tensor:
    """Returns standardized conditions, whose computation fails unless they are finite."""
    return conditions.standardize_tensor(
        tf.debugging.assert_all_finite(values, "conditions are finite numbers")
    )


def _in_units(samples: tf.Tensor, units: Scaling | Pixels | None) -> dict[str, tf.Tensor]:
    return {"samples": samples if units is None else units.restore_tensor(samples)}


def _noise(seed: tf.Tensor, count: tf.Tensor, size: int) -> tf.Tensor:
    return normal(seed, RngStream.SAMPLES, step=0, first=0, count=count, size=size)


def _latent_spec(latent_size: int) -> tf.TensorSpec:
    return tf.TensorSpec([None, latent_size], tf.float32, "latents")


def _seed_spec() -> tf.TensorSpec:
    return tf.TensorSpec([], tf.int64, "seed")
