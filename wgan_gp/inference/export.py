"""Exports a run's networks as a SavedModel, which needs TensorFlow only, and as Keras files.

The SavedModel has three signatures: the critic's, and the two of the generator in signatures.py.
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
from ..data.scaling import Scaling
from ..run_directory.files import check_new_folder, convert_file_errors, new_folder, write_durable
from .signatures import condition_spec, conditional_signatures, signatures, traced

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
      scaling: The scaling of an array, whose units the exported functions use; None for other data.
      conditions: The standardization of conditions; None without conditions.
    """

    network: Any
    score: Callable[[Callable, tf.Tensor], tf.Tensor]
    example_shape: tuple[int, ...]
    takes_labels: bool
    scaling: Scaling | None = None
    conditions: Conditions | None = None

    def signature(self) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the signature "critic": examples `[B, ...]` -> {"scores": `[B]` float32}.

        A critic that takes labels has a second argument, labels `[B]` int32, or conditions
        `[B, K]` in the data's units. Examples and conditions are float32, or float64 if float32
        is too coarse for the data.
        """

        def score(examples: tf.Tensor, labels: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
            def critic(inputs: tf.Tensor) -> tf.Tensor:
                output = self.network(
                    [inputs, labels] if self.takes_labels else inputs, training=False
                )
                return output[0] if isinstance(output, tuple | list) else output

            if self.scaling is not None:
                examples = self.scaling.normalize(examples)
            return {"scores": self.score(critic, examples)}

        shape, dtype = self.example_shape, tf.float32
        if self.scaling is not None:
            shape = (*shape[:-1], len(self.scaling.constants))
            dtype = self.scaling.signature_dtype
        examples = tf.TensorSpec([None, *shape], dtype, "examples")
        if not self.takes_labels:
            return traced(score, examples)
        known = self.conditions
        if known is None:
            return traced(score, examples, tf.TensorSpec([None], tf.int32, "labels"))
        return traced(
            lambda examples, values: score(examples, known.standardize_tensor(values)),
            examples,
            condition_spec(known),
        )


def write(
    folder: str,
    generator: Any,
    *,
    latent_size: int,
    classes: int,
    critic: ExportedCritic,
) -> None:
    """Writes both networks as a SavedModel, and each as a Keras file.

    The files appear in the folder together, so a failure leaves nothing in the way.

    Args:
      folder: The folder of the export.
      generator: The generator, created under the default strategy.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional generator; 0 for an unconditional one.
      critic: The critic.

    Raises:
      UserError: If the files cannot be written.
    """
    with convert_file_errors(folder, "written", REMEDY), new_folder(folder) as inside:
        functions = {
            **(
                signatures(generator, latent_size, classes, critic.scaling)
                if critic.conditions is None
                else conditional_signatures(
                    generator, latent_size, critic.conditions, critic.scaling
                )
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
        tf.saved_model.save(module, posixpath.join(inside, SAVED_MODEL), signatures=functions)
        for file, network in networks.items():
            # A network of the user may not be a Keras model.
            model = getattr(network, "keras_model", network)
            if model is None:
                logging.info(f"{network.name} is not a Keras model, so {file} is not written")
            else:
                write_durable(posixpath.join(inside, file), _keras_file(model))


def _plain(weight: tf.Variable) -> tf.Variable:
    """Returns the tf.Variable of a weight, which Keras 3 wraps in its own class."""
    return weight if isinstance(weight, tf.Variable) else weight.value


def _keras_file(generator: tf.keras.Model) -> bytes:
    """Returns the content of a Keras file, so that it can be written atomically."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, KERAS_FILE)
        generator.save(path)
        return pathlib.Path(path).read_bytes()
