"""Exports a run's networks as a SavedModel, which needs TensorFlow only, and as Keras files.

The SavedModel has three signatures. `latents` is the generator itself. `seed` also draws the noise;
for the same seed, its samples are those of --mode=sample. `critic` returns the critic's scores.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import posixpath
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from ..data.conditions import Conditions
from ..run_directory.files import check_new_folder, convert_file_errors, write_atomic
from ..runtime.randomness import RngStream, normal

SAVED_MODEL = "saved_model"
KERAS_FILE = "generator.keras"
CRITIC_FILE = "critic.keras"
REMEDY = "free disk space or check the permissions, or give another --output"


def check(folder: str, flag: str) -> None:
    """Raises UserError unless the folder of the export is new or empty.

    Args:
      folder: The folder.
      flag: The name of the folder in messages.
    """
    with convert_file_errors(flag, "read", REMEDY):
        check_new_folder(flag, folder)


@dataclasses.dataclass(frozen=True)
class ExportedCritic:
    """The critic of an export.

    Attributes:
      network: The critic, created under the default strategy.
      score: (function from examples to the critic's scores, examples) -> scores `[B]` float32.
      example_shape: The shape of an example.
      takes_labels: Whether the critic takes labels or conditions.
      conditions: Standardizes conditions; None without conditions.
    """

    network: Any
    score: Callable[[Callable, tf.Tensor], tf.Tensor]
    example_shape: tuple[int, ...]
    takes_labels: bool
    conditions: Conditions | None = None

    def signature(self) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the signature "critic": examples `[B, ...]` float32 -> {"scores": `[B]`}.

        A critic that takes labels has a second argument, labels `[B]` int32, or conditions
        `[B, K]` float32 in the data's units.
        """

        def score(examples: tf.Tensor, labels: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
            def critic(inputs: tf.Tensor) -> tf.Tensor:
                output = self.network(
                    [inputs, labels] if self.takes_labels else inputs, training=False
                )
                return output[0] if isinstance(output, tuple | list) else output

            return {"scores": self.score(critic, examples)}

        examples = tf.TensorSpec([None, *self.example_shape], tf.float32, "examples")
        if self.takes_labels and self.conditions is not None:
            standardize = _standardizer(self.conditions)
            spec = tf.TensorSpec([None, self.conditions.size], tf.float32, "conditions")
            return _traced(
                lambda inputs, values: score(inputs, standardize(values)), examples, spec
            )
        if self.takes_labels:
            return _traced(score, examples, tf.TensorSpec([None], tf.int32, "labels"))
        return _traced(score, examples)


def write(
    folder: str,
    generator: Any,
    *,
    latent_size: int,
    classes: int,
    critic: ExportedCritic,
    conditions: Conditions | None = None,
) -> None:
    """Writes both networks as a SavedModel, and each as a Keras file.

    Args:
      folder: The folder of the export.
      generator: The generator, created under the default strategy.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional generator; 0 for an unconditional one.
      critic: The critic.
      conditions: Standardizes the generator's conditions; None if it takes none.

    Raises:
      UserError: If the files cannot be written.
    """
    with convert_file_errors(folder, "written", REMEDY):
        tf.io.gfile.makedirs(folder)
        functions = {
            **(
                signatures(generator, latent_size, classes)
                if conditions is None
                else conditional_signatures(generator, latent_size, conditions)
            ),
            "critic": critic.signature(),
        }
        module = tf.Module()
        networks = {KERAS_FILE: generator, CRITIC_FILE: critic.network}
        # Only the weights are tracked, because a program without this package and Keras cannot
        # use the layers.
        module.weights = [
            _plain(weight) for network in networks.values() for weight in network.weights
        ]
        tf.saved_model.save(module, posixpath.join(folder, SAVED_MODEL), signatures=functions)
        for file, network in networks.items():
            # A network of the user may not be a Keras model.
            model = getattr(network, "keras_model", network)
            if model is None:
                logging.info(f"{network.name} is not a Keras model, so {file} is not written")
            else:
                write_atomic(posixpath.join(folder, file), _keras_file(model))


def signatures(
    generator: tf.keras.Model, latent_size: int, classes: int
) -> dict[str, Callable[..., dict[str, tf.Tensor]]]:
    """Returns the signatures of the SavedModel by name.

    Args:
      generator: `[B, latent_size]`, and labels `[B]` if there are classes, -> `[B, ...]`.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional generator; 0 for an unconditional one.

    Returns:
      "latents": latents `[B, latent_size]` float32, labels `[B]` int32 -> samples `[B, ...]`
        float32.
      "seed": seed, scalar int64 in [0, 2^31), count, scalar int32, label, scalar int32 ->
        samples `[count, ...]` float32 of the class `label`, or of all classes in turn for -1.
      Both return a dictionary {"samples": ...}. Only a conditional generator has the arguments
      labels and label.
    """

    def of_latents(latents: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = [latents, labels] if classes else latents
        return {"samples": generator(inputs, training=False)}

    def of_seed(seed: tf.Tensor, count: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
        # As in Sampler, sample i has class i modulo classes, and the samples of one class are a
        # subset of all samples. Without the check, a gather on a GPU would return zeros.
        with tf.control_dependencies([tf.debugging.assert_less(label, max(1, classes))]):
            first, stride = tf.maximum(label, 0), tf.where(label < 0, 1, classes)
        places = first + stride * tf.range(count)
        latents = normal(
            seed, RngStream.SAMPLES, step=0, first=0, count=count * stride, size=latent_size
        )
        return of_latents(tf.gather(latents, places), places % max(1, classes))

    some_latents = tf.TensorSpec([None, latent_size], tf.float32, "latents")
    some_labels = tf.TensorSpec([None], tf.int32, "labels")
    seed, count = tf.TensorSpec([], tf.int64, "seed"), tf.TensorSpec([], tf.int32, "count")
    label = tf.TensorSpec([], tf.int32, "label")
    if classes:
        return {
            "latents": _traced(of_latents, some_latents, some_labels),
            "seed": _traced(of_seed, seed, count, label),
        }
    return {
        "latents": _traced(lambda latents: of_latents(latents, tf.constant(0)), some_latents),
        "seed": _traced(lambda seed, count: of_seed(seed, count, tf.constant(-1)), seed, count),
    }


def conditional_signatures(
    generator: Any, latent_size: int, conditions: Conditions
) -> dict[str, Callable]:
    """Returns the signatures of a generator that takes conditions, like `signatures`.

    latents: latents `[B, latent_size]`, conditions `[B, K]` in the data's units.
    seed: seed, conditions `[B, K]`; sample i has the latents of sample i of --mode=sample.
    """
    standardize = _standardizer(conditions)

    def of_latents(latents: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"samples": generator([latents, standardize(values)], training=False)}

    def of_seed(seed: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        count = tf.shape(values)[0]
        return of_latents(
            normal(seed, RngStream.SAMPLES, step=0, first=0, count=count, size=latent_size), values
        )

    values = tf.TensorSpec([None, conditions.size], tf.float32, "conditions")
    latents = tf.TensorSpec([None, latent_size], tf.float32, "latents")
    return {
        "latents": _traced(of_latents, latents, values),
        "seed": _traced(of_seed, tf.TensorSpec([], tf.int64, "seed"), values),
    }


def _standardizer(conditions: Conditions) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns `Conditions.standardize` for tensors."""

    def standardize(values: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(values, tf.float64)
        return tf.cast((wide - conditions.mean) / conditions.deviation, tf.float32)

    return standardize


def _traced(function: Callable, *inputs: tf.TensorSpec) -> Callable:
    return tf.function(function, input_signature=inputs, autograph=False)


def _plain(weight: tf.Variable) -> tf.Variable:
    """Returns the tf.Variable of a weight, which Keras 3 wraps in its own class."""
    return weight if isinstance(weight, tf.Variable) else weight.value


def _keras_file(generator: tf.keras.Model) -> bytes:
    """Returns the content of a Keras file, so that it can be written atomically."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, KERAS_FILE)
        generator.save(path)
        return pathlib.Path(path).read_bytes()
