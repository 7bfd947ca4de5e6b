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

import tensorflow as tf
from absl import logging

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
from .scoring import Score, critic_scores

SAVED_MODEL = "saved_model"
KERAS_FILE = "generator.keras"
CRITIC_FILE = "critic.keras"

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
        functions = generator_signatures(generator, latent_size, spec)
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


def critic_signature(
    network: Any, spec: DataSpec, score: Score, labeled_critic: bool
) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns the signature "critic": examples `[B, ...]` -> {"scores": `[B]` float32}.

    A critic that takes labels has a second argument, labels `[B]` int32, or conditions `[B, K]` in
    the data's units. Examples and conditions are float32, or float64 if float32 is too coarse for
    the data. The arguments are those of `write`.
    """
    scaling, units = spec.scaling, spec.scaling or spec.pixels

    def scores(examples: tf.Tensor, labels: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        if units is not None:
            examples = units.normalize(examples)
        return {"scores": critic_scores(score, network, examples, labels)}

    shape, dtype = spec.example_shape, tf.float32
    if scaling is not None:
        shape, dtype = (*shape[:-1], len(scaling.constants)), scaling.signature_dtype
    examples = tf.TensorSpec([None, *shape], dtype, "examples")
    if not labeled_critic:
        return traced(scores, examples)
    given, prepare = _given(spec)
    return traced(lambda examples, given: scores(examples, prepare(given)), examples, given)


def _plain(weight: tf.Variable) -> tf.Variable:
    """Returns the tf.Variable of a weight, which Keras 3 wraps in its own class."""
    return weight if isinstance(weight, tf.Variable) else weight.value


def _keras_file(generator: tf.keras.Model) -> bytes:
    """Returns the content of a Keras file, so that it can be written atomically."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, KERAS_FILE)
        generator.save(path)
        return pathlib.Path(path).read_bytes()


def generator_signatures(generator: Any, latent_size: int, spec: DataSpec) -> Signatures:
    """Returns the signatures of a generator, by name.

    Args:
      generator: `[B, latent_size]`, and labels `[B]` or standardized conditions `[B, K]` if there
        are any, -> `[B, ...]`.
      latent_size: The length of a latent vector.
      spec: The properties of the data.

    Returns:
      "latents": latents `[B, latent_size]` float32, labels `[B]` int32 -> B samples.
      "seed": seed, scalar int64 in [0, 2^31), count, scalar int32, label, scalar int32 ->
        `count` samples of the class `label`, or of the classes that samples have in turn for -1.
      Only a generator with classes has the arguments labels and label. One with conditions has
      conditions `[B, K]` in the units of the data in place of labels, label and count.
    """
    units, classes = spec.scaling or spec.pixels, spec.classes
    latent_spec = tf.TensorSpec([None, latent_size], tf.float32, "latents")
    seed_spec, count_spec = (
        tf.TensorSpec([], tf.int64, "seed"),
        tf.TensorSpec([], tf.int32, "count"),
    )
    label_spec = tf.TensorSpec([], tf.int32, "label")

    def noise(seed: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return normal(seed, RngStream.SAMPLES, step=0, first=0, count=count, size=latent_size)

    def samples(inputs: Any) -> dict[str, tf.Tensor]:
        drawn = generator(inputs, training=False)
        return {"samples": drawn if units is None else units.restore_tensor(drawn)}

    if not classes and spec.conditions is None:
        return {
            "latents": traced(samples, latent_spec),
            "seed": traced(lambda seed, count: samples(noise(seed, count)), seed_spec, count_spec),
        }
    given_spec, prepare = _given(spec)

    def of_latents(latents: tf.Tensor, given: tf.Tensor) -> dict[str, tf.Tensor]:
        return samples([latents, prepare(given)])

    def of_conditions(seed: tf.Tensor, given: tf.Tensor) -> dict[str, tf.Tensor]:
        return of_latents(noise(seed, tf.shape(given)[0]), given)

    def of_class(seed: tf.Tensor, count: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
        # As in Sampler, sample i has class i modulo classes, and the samples of one class are a
        # subset of all samples.
        label = _checked(label, -1, classes)
        if drawn is not None:
            places = tf.range(count)
            labels = tf.where(label < 0, tf.gather(drawn, places % len(drawn)), label)
            return of_latents(noise(seed, count), labels)
        stride = tf.where(label < 0, 1, classes)
        places = tf.maximum(label, 0) + stride * tf.range(count)
        return of_latents(tf.gather(noise(seed, count * stride), places), places % classes)

    latents = traced(of_latents, latent_spec, given_spec)
    if spec.conditions is not None:
        return {"latents": latents, "seed": traced(of_conditions, seed_spec, given_spec)}
    drawn = spec.draw_labels(is_balanced=False)
    return {"latents": latents, "seed": traced(of_class, seed_spec, count_spec, label_spec)}


def _given(spec: DataSpec) -> tuple[tf.TensorSpec, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns the spec of labels or conditions in the units of the data, and their preparation.

    The computation of the latter fails unless conditions are finite and labels are classes.
    """
    conditions = spec.conditions
    if conditions is None:
        labels = tf.TensorSpec([None], tf.int32, "labels")
        return labels, lambda labels: _checked(labels, 0, spec.classes)
    message = "conditions are finite numbers"
    return (
        tf.TensorSpec([None, conditions.size], conditions.signature_dtype, "conditions"),
        lambda values: conditions.standardize_tensor(
            tf.debugging.assert_all_finite(values, message)
        ),
    )


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
