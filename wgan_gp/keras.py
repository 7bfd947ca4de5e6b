"""WGAN-GP as a Keras model, with compile, fit, predict, save and callbacks."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow as tf

from . import losses
from .app.resolve import check_keras
from .errors import UserError
from .runtime.randomness import RngStream, normal, uniform
from .training.networks import bind_labels, check_layer_losses, length
from .training.objective import Terms, generator_needs_real, tags_of
from .training.optimizer import dense
from .training.step import REGULARIZATION, add_regularization

_NETWORKS = ("generator", "critic")


@tf.keras.utils.register_keras_serializable("wgan_gp")
class WGANGP(tf.keras.Model):
    """A generator and a critic, trained by `fit`.

    A batch of `fit` holds the real examples of one iteration: n_critic times those of a critic
    step. Critic step k takes its examples k, k + n_critic, ...; a rest is not used.

    `predict` and calls return samples for latents `[B, latent_size]`. With labels or conditions,
    `fit(x, y)`, the generator takes a list of latents and labels, and the critic one of examples
    and labels; a critic that the objective trains to classify takes examples alone.

    Args:
      generator, critic: Keras models with their weights: latents to examples `[B, ...]`, examples
        to scores; see `losses.score`.
      latent_size: The length of a latent vector, drawn from N(0, I).
      objective: The losses, with the interface of `losses.GanObjective`, which is the default.
      n_critic, seed: The number of critic steps in an iteration, and the seed of the noise.

    Raises:
      UserError: If a network has no weights yet, or Keras does not compute with TensorFlow.
    """

    def __init__(
        self,
        generator: tf.keras.Model,
        critic: tf.keras.Model,
        latent_size: int,
        *,
        objective: Any = None,
        n_critic: int = 5,
        seed: int = 0,
        **kwargs: Any,
    ):
        check_keras()
        super().__init__(**kwargs)
        self.generator, self.critic = generator, critic
        if not (generator.built and critic.built):
            raise UserError("a network has no weights yet", "call it once, on a batch")
        self.latent_size, self.n_critic, self.seed = latent_size, n_critic, seed
        self.objective: Any = losses.GanObjective() if objective is None else objective
        tags = [*tags_of(self.objective), *(f"{name}/{REGULARIZATION}" for name in _NETWORKS)]
        self._means = {tag: tf.keras.metrics.Mean(name=tag.replace("/", "_")) for tag in tags}
        self._iteration = self.add_weight(
            (), "zeros", "int64", False, aggregation="only_first_replica"
        )
        self.built = True  # so that Keras does not call it on examples

    def compile(
        self, generator_optimizer: Any = None, critic_optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Sets the optimizers: objects or names, or the paper's; kwargs are those of Keras."""
        if others := set(kwargs) - {"run_eagerly", "steps_per_execution", "jit_compile"}:
            raise UserError(f"compile has no argument {min(others)}", "see objective of WGANGP")
        super().compile(optimizer=None, **kwargs)
        with self.distribute_strategy.scope():
            for name, given in zip(_NETWORKS, (generator_optimizer, critic_optimizer), strict=True):
                default = tf.keras.optimizers.Adam(1e-4, beta_1=0.0, beta_2=0.9)
                optimizer = tf.keras.optimizers.get(default if given is None else given)
                optimizer.build(getattr(self, name).trainable_variables)
                setattr(self, f"{name}_optimizer", optimizer)

    @property
    def iterations(self) -> int:
        """The number of iterations done, which determines the noise and is saved."""
        return int(tf.convert_to_tensor(self._iteration))

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        return list(self._means.values())

    def fit(self, *args: Any, sample_weight: Any = None, **kwargs: Any) -> Any:
        if sample_weight is not None:  # Keras would ignore it without y
            raise UserError("fit has no argument sample_weight", "omit it")
        return super().fit(*args, **kwargs)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.generator(inputs, training=training)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Performs one iteration on this replica's part of a batch."""
        batches, size = _split(data, self.n_critic)
        totals: dict[str, tf.Tensor] = {}
        with tf.control_dependencies([size]):  # Keras calls once more at the end of the data
            done = tf.convert_to_tensor(self._iteration)
            for k, batch in enumerate(batches):
                shares = self._minimize("critic", batch, done * self.n_critic + k, size)
                self.objective.constrain(self.critic.trainable_variables)
                for tag, share in shares.items():
                    totals[tag] = totals.get(tag, 0.0) + share / self.n_critic
            totals |= self._minimize("generator", batch, done, size)
            self._iteration.value.assign_add(1)  # of the variable inside, without a broadcast
            check_layer_losses(self._flatten_layers(include_self=False), "fit")
            return self._report(totals, size)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Computes the critic's terms on this replica's part of a batch, without training."""
        (batch,), size = _split(data, 1)
        return self._report(self._shares("critic", batch, tf.constant(0, tf.int64), size), size)

    def get_config(self) -> dict[str, Any]:
        if type(self.objective) is not losses.GanObjective:
            raise UserError("an objective of your own is not saved", "call save_weights")
        write = tf.keras.utils.serialize_keras_object
        config = {name: write(getattr(self, name)) for name in _NETWORKS}
        config |= {key: getattr(self, key) for key in ("name", "latent_size", "n_critic", "seed")}
        return config | {"objective": dataclasses.asdict(self.objective)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> WGANGP:
        read = tf.keras.utils.deserialize_keras_object
        networks = {name: read(config[name], custom_objects) for name in _NETWORKS}
        objective = {"objective": losses.GanObjective(**config["objective"])}
        return cls(**config | networks | objective)

    def get_compile_config(self) -> dict[str, Any]:
        names = [f"{name}_optimizer" for name in _NETWORKS if self.compiled]
        return {name: tf.keras.utils.serialize_keras_object(getattr(self, name)) for name in names}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**tf.keras.utils.deserialize_keras_object(config))

    def _minimize(self, name: str, batch: tuple, step: tf.Tensor, size: tf.Tensor) -> Terms:
        if not (weights := getattr(self, name).trainable_variables):
            raise UserError(f"the {name} has no weights to train", "set its trainable to True")
        with tf.GradientTape() as tape:
            shares = self._shares(name, batch, step, size)
        gradients = dense(tape.gradient(shares[f"{name}/loss"], weights), weights)
        getattr(self, f"{name}_optimizer").apply_gradients(zip(gradients, weights, strict=True))
        return shares

    def _shares(self, name: str, batch: tuple, step: tf.Tensor, size: tf.Tensor) -> Terms:
        """Returns this replica's shares of the means of a network's terms, by tag."""
        (real, labels), objective, count = batch, self.objective, length(batch[0])
        first = tf.distribute.get_replica_context().replica_id_in_sync_group * count
        drawn = {"seed": self.seed, "step": step, "first": tf.cast(first, tf.int64), "count": count}
        stream = RngStream[f"{name.upper()}_LATENTS"]
        latents = normal(stream=stream, size=self.latent_size, **drawn)
        fake = bind_labels(self.generator, labels, training=True)(latents)
        real, inputs = tf.cast(real, fake.dtype), {"labels": labels}
        critic_labels = None if getattr(objective, "critic_class_weight", 0.0) else labels
        critic = bind_labels(self.critic, critic_labels, training=True)
        if name == "critic":
            noise = normal(stream=RngStream.PERTURBATION, size=math.prod(fake.shape[1:]), **drawn)
            inputs |= {"noise": tf.reshape(noise, tf.shape(fake)), "step": step}
            inputs["alpha"] = uniform(stream=RngStream.INTERPOLATION, size=1, **drawn)[:, 0]
            terms = objective.critic_terms(critic, real, fake, **inputs)
        else:
            inputs |= {"real": real} if generator_needs_real(objective) else {}
            terms = objective.generator_terms(critic, fake, **inputs)
        shares = {key: losses.global_mean(term, size) for key, term in terms.items()}
        shares = add_regularization(shares, getattr(self, name), losses.regularization_share)
        return {f"{name}/{key}": share for key, share in shares.items()}

    def _report(self, shares: dict[str, tf.Tensor], size: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates the means with the sums of the shares over all replicas."""
        for tag, value in tf.distribute.get_replica_context().all_reduce("SUM", shares).items():
            self._means[tag].update_state(value, sample_weight=size)
        return {tag: self._means[tag].result() for tag in shares}


def _split(data: Any, parts: int) -> tuple[list[tuple[tf.Tensor, Any]], tf.Tensor]:
    """Returns the examples and labels of each part of a batch, and a part's size over replicas."""
    examples, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(data)
    if weights is not None:
        raise UserError("fit has no weights of examples or classes", "omit them")
    if not (dtype := examples.dtype).is_floating:
        raise UserError(f"x is {dtype.name}, which fit does not scale", "pass floats in [-1, 1]")
    count = length(examples) // parts

    def split(each: tf.Tensor) -> list[tf.Tensor]:
        each = tf.reshape(each[: count * parts], [count, parts, *each.shape[1:]])
        return tf.unstack(each, axis=1)

    of_labels = [None] * parts if labels is None else split(labels)
    size = tf.distribute.get_replica_context().all_reduce("SUM", tf.cast(count, tf.float32))
    return list(zip(split(examples), of_labels, strict=True)), size
