"""The signatures of an exported generator.

`latents` is the generator itself. `seed` also draws the noise; for the same seed, its samples are
those of --mode=sample. Both return a dictionary {"samples": `[B, ...]`}, in the units of the data.
Samples and conditions are float32, or float64 if float32 is too coarse for the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..data.conditions import Conditions
from ..data.scaling import Scaling
from ..runtime.randomness import RngStream, normal

Signatures = dict[str, Callable[..., dict[str, tf.Tensor]]]


def signatures(
    generator: Any, latent_size: int, classes: int, scaling: Scaling | None = None
) -> Signatures:
    """Returns the signatures of a generator with or without classes, by name.

    Args:
      generator: `[B, latent_size]`, and labels `[B]` if there are classes, -> `[B, ...]`.
      latent_size: The length of a latent vector.
      classes: The number of classes of a conditional generator; 0 for an unconditional one.
      scaling: The scaling of an array, in whose units the samples are; None for other data.

    Returns:
      "latents": latents `[B, latent_size]` float32, labels `[B]` int32 -> B samples.
      "seed": seed, scalar int64 in [0, 2^31), count, scalar int32, label, scalar int32 ->
        `count` samples of the class `label`, or of all classes in turn for -1.
      Only a conditional generator has the arguments labels and label.
    """

    def of_latents(latents: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = [latents, labels] if classes else latents
        return _in_units(generator(inputs, training=False), scaling)

    def of_seed(seed: tf.Tensor, count: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
        # As in Sampler, sample i has class i modulo classes, and the samples of one class are a
        # subset of all samples. Without the check, a gather on a GPU would return zeros.
        with tf.control_dependencies([tf.debugging.assert_less(label, max(1, classes))]):
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
    generator: Any, latent_size: int, conditions: Conditions, scaling: Scaling | None = None
) -> Signatures:
    """Returns the signatures of a generator that takes conditions, by name.

    Args:
      generator: `[B, latent_size]` and standardized conditions `[B, K]` -> `[B, ...]`.
      latent_size: The length of a latent vector.
      conditions: The standardization of the conditions.
      scaling: The scaling of an array, in whose units the samples are; None for other data.

    Returns:
      "latents": latents `[B, latent_size]` float32, conditions `[B, K]` -> B samples.
      "seed": seed, scalar int64 in [0, 2^31), conditions `[B, K]` -> B samples, one for each
        condition.
      The conditions are in the units of the data; see `condition_spec` for their dtype.
    """

    def of_latents(latents: tf.Tensor, values: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = [latents, conditions.standardize_tensor(values)]
        return _in_units(generator(inputs, training=False), scaling)

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


def _in_units(samples: tf.Tensor, scaling: Scaling | None) -> dict[str, tf.Tensor]:
    return {"samples": samples if scaling is None else scaling.restore_tensor(samples)}


def _noise(seed: tf.Tensor, count: tf.Tensor, size: int) -> tf.Tensor:
    return normal(seed, RngStream.SAMPLES, step=0, first=0, count=count, size=size)


def _latent_spec(latent_size: int) -> tf.TensorSpec:
    return tf.TensorSpec([None, latent_size], tf.float32, "latents")


def _seed_spec() -> tf.TensorSpec:
    return tf.TensorSpec([], tf.int64, "seed")
