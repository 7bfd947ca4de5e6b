"""WGAN-GP as a Keras model, with compile, fit, predict, save and callbacks."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf
from absl import logging

from .app.build import make_objective, make_step
from .app.fit.fit_networks import adapt, check_fit_critic, first_inputs
from .app.fit.keras_arguments import both_optimizers, refuse
from .app.fit.keras_model import CheckedModel
from .app.library import bundled_library
from .app.resolve import check_keras
from .config import Config
from .data.feed.fit_batches import predicted_inputs, static_batch
from .data.scaling.conditions import Conditions
from .data.spec import DataSpec
from .errors import UserError
from .training.objective import Objective, tags_of
from .training.probe import diagnose_critic
from .training.regularization import TERM
from .training.state import TrainState, make_optimizers
from .training.step import ReplicaStep

# Settings that fit does not have, and whether a value uses them.
_NOT_IN_FIT: dict[str, Any] = {
    "generator_ema_decay": bool,
    "generator_ema_half_life": bool,
    "augment": lambda value: value == "ada",
    "random_flips": bool,
    "precision": lambda value: value != "float32",
}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class WGANGP(CheckedModel):
    """A generator and a critic, trained by `fit` with the steps of train.py.

    One train step is one iteration: `n_critic` critic updates, each on `batch_size` new examples,
    and one generator update. `fit` therefore forms batches of n_critic * batch_size examples and
    drops an incomplete one. With the same initial weights and the same examples, the losses are
    those of train.py. On several replicas, they are those of one.

    `predict` and calling the model return samples for latents `[B, latent_size]`, or for a list of
    latents and labels `[B]` or conditions `[B, K]`.

    Args:
      generator: A Keras model that maps latents to examples; see docs/user_code.md.
      critic: A Keras model that maps examples to scores, see `losses.score`.
      config: The settings of the training: `batch_size`, `generator_batch_size` and `n_critic`,
        `latent_size`, `seed`, the learning rates and the losses. `train_steps` is the number of
        iterations of the linear schedule; "constant" is usual for `fit`.
      classes: The number of classes. If it is not 0, `fit` needs labels, the generator takes them,
        and so does the critic with `conditioning="projection"` or "concatenation".
      conditions: The conditions of the training data, `[M, K]` or `[M]`, in place of classes. They
        are standardized for the networks, and the generator step draws from them. `fit`, `predict`
        and calls then need conditions in the same units in place of labels.
      objective: An object with the interface of `training.objective.Objective` in place of the
        losses of `config`. It is not saved, and loading the model warns of this.

    Raises:
      UserError: If the settings contradict each other.
    """

    def __init__(
        self,
        generator: tf.keras.Model,
        critic: tf.keras.Model,
        config: Config,
        *,
        classes: int = 0,
        conditions: Any = None,
        objective: Objective | None = None,
        **kwargs: Any,
    ):
        check_keras()
        super().__init__(**kwargs)
        self.autocast = False  # Keras would round conditions to float32
        for name, is_used in _NOT_IN_FIT.items():
            if is_used(value := getattr(config, name)):
                raise UserError(f"{name}={value} is not supported in fit", "use wgan_gp.train")
        if config.objective is not None and objective is None:
            raise UserError(
                f"objective={config.objective} of the Config is not loaded in fit",
                "pass the object as objective= of WGANGP, or use wgan_gp.train",
            )
        has_labels = classes > 0 or conditions is not None
        if config.conditioning != "none" and not has_labels:
            raise UserError(
                f"conditioning={config.conditioning} of the Config needs labels or conditions",
                "pass classes= or conditions= to WGANGP",
            )
        if has_labels and config.conditioning == "none" and objective is None:
            logging.warning(
                "only the generator gets the labels or conditions, so its samples need not fit "
                "them — set the conditioning of the Config, such as projection"
            )
        self.generator = generator
        self.critic = critic
        self.config = config
        self.classes = classes
        self.conditions = None if conditions is None else Conditions.given(conditions, classes)
        self._library = dataclasses.replace(bundled_library(), objective=objective)
        objective = make_objective(config, self._library)
        self._tags = tags_of(objective)
        # Keras permits new metrics in a constructor only.
        all_tags = [*self._tags, *(f"{name}/{TERM}" for name in ("critic", "generator"))]
        mean = tf.keras.metrics.Mean
        self._means = {tag: mean(name=tag.replace("/", "_")) for tag in all_tags}
        self._example_shape: tuple[int, ...] | None = None
        # It determines the noise and the schedules, and is saved with the weights.
        self._iteration = self.add_weight(
            name="iteration",
            shape=(),
            dtype="int64",
            initializer="zeros",
            trainable=False,
            aggregation="only_first_replica",
        )
        self._replica_step: ReplicaStep | None = None
        self._judging_step: ReplicaStep | None = None

    def compile(
        self,
        generator_optimizer: tf.keras.optimizers.Optimizer | None = None,
        critic_optimizer: tf.keras.optimizers.Optimizer | None = None,
        *,
        jit_compile: bool = False,
        **kwargs: Any,
    ) -> None:
        """Sets the optimizers. After a `fit`, the next one trains with the new ones.

        Args:
          generator_optimizer, critic_optimizer: Optimizers or their names. Default: those of
            `config`, whose schedules continue at the iterations that are done.
          jit_compile: Whether XLA compiles the steps. Never True on a TPU, which compiles its
            programs itself. Keras's own default, "auto", is False here.
          kwargs: Other arguments of `keras.Model.compile`; docs/keras.md lists them.

        Raises:
          UserError: If an argument is not supported, or `jit_compile` is set for a TPU or several
            replicas.
        """
        kwargs = refuse("compile", kwargs)
        strategy = self.distribute_strategy
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        jit_compile = jit_compile is True
        if jit_compile and (strategy.num_replicas_in_sync > 1 or on_tpu):
            raise UserError("jit_compile=True cannot compile for a TPU or for replicas", "omit it")
        self.config.check_replicas(strategy.num_replicas_in_sync)
        given = (generator_optimizer, critic_optimizer)
        defaults: tuple[Any, Any] = (None, None)
        with strategy.scope():
            if generator_optimizer is None or critic_optimizer is None:
                defaults = make_optimizers(self.config, self._iteration)
            optimizers = both_optimizers(given, defaults)
        super().compile(optimizer=None, jit_compile=jit_compile, **kwargs)
        self.generator_optimizer, self.critic_optimizer = optimizers
        self._replica_step = None

    @property
    def iterations(self) -> int:
        """The number of iterations done, which is saved with the weights."""
        # Keras's own conversion fails for the variables of several replicas.
        return int(tf.convert_to_tensor(self._iteration))

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Returns samples; see `keras.Model.predict`, which would round conditions to float32."""
        return super().predict(*predicted_inputs(x, batch_size, self.conditions), **kwargs)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Performs one iteration on this replica's part of n_critic * batch_size examples."""
        step, n_critic = self._step, self.config.n_critic
        examples, labels = self._static(data, n_critic)
        iteration = tf.convert_to_tensor(self._iteration)
        shares: dict[str, list[tf.Tensor]] = {}
        count = examples.shape[0] // n_critic
        for k in range(n_critic):
            rows = slice(k * count, (k + 1) * count)
            terms = step.critic_step(examples[rows], labels[rows], iteration * n_critic + k)
            for name, value in terms.items():
                shares.setdefault(f"critic/{name}", []).append(value)
        terms = step.generator_step(iteration, batch=(examples[rows], labels[rows]))
        shares.update({f"generator/{name}": [value] for name, value in terms.items()})
        # The variable inside is incremented without a broadcast.
        self._iteration.value.assign_add(1)
        return self._report({name: tf.add_n(each) / len(each) for name, each in shares.items()})

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Computes the critic's terms on this replica's part of a batch, without training."""
        assert self._judging_step is not None, "prepare creates it"
        terms, _ = diagnose_critic(self._judging_step, *self._static(data, 1))
        mean, size = self._library.losses.global_mean, self.config.batch_size
        return self._report({f"critic/{name}": mean(each, size) for name, each in terms.items()})

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        if self.conditions is not None:
            latents, values = inputs
            inputs = [latents, self.conditions.standardize_tensor(values)]
        return self.generator(inputs, training=training)

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """The means over an epoch, which Keras resets."""
        return [self._means[tag] for tag in self._tags]

    def get_config(self) -> dict[str, Any]:
        serialize = tf.keras.utils.serialize_keras_object
        return {
            "name": self.name,
            "generator": serialize(self.generator),
            "critic": serialize(self.critic),
            # The objective is not saved, and a configuration that names one would need it.
            "config": dataclasses.replace(
                self.config, objective=None, objective_sha256=None
            ).to_dict(),
            "classes": self.classes,
            "conditions": None if self.conditions is None else self.conditions.to_dict(),
            "has_objective": self._library.objective is not None,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> WGANGP:
        with tf.keras.utils.custom_object_scope(custom_objects or {}):
            networks = {
                name: tf.keras.utils.deserialize_keras_object(config[name])
                for name in ("generator", "critic")
            }
        if config.get("has_objective"):
            logging.warning(
                "the model was trained with an objective of its own, which is not saved — to "
                "continue with it, load the weights into a WGANGP with the same objective="
            )
        same: Any = {name: config.get(name) for name in ("classes", "conditions", "name")}
        return cls(**networks, config=Config.from_dict(config["config"]), **same)

    def get_compile_config(self) -> None:
        """Returns None: a loaded model is compiled again, and keeps its optimizers' weights."""

    @property
    def _step(self) -> ReplicaStep:
        assert self._replica_step is not None, "fit prepares it"
        return self._replica_step

    def _static(self, data: Any, parts: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns this replica's examples and labels, of `parts` batches."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return static_batch(data, parts * self.config.batch_size // replicas, self.conditions)

    def _report(self, shares: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Updates the means with the sums of the shares over all replicas."""
        context = tf.distribute.get_replica_context()
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, shares)
        for name, value in totals.items():
            self._means[name].update_state(value)
        return {name: self._means[name].result() for name in totals}

    def data_spec(self) -> DataSpec:
        """Returns what the networks require of the data; samples show the shape of an example."""
        if self._example_shape is None:
            inputs = first_inputs(self.config, DataSpec((), self.classes, True, self.conditions))
            with self.distribute_strategy.scope():
                self._example_shape = tuple(self(inputs).shape[1:])
        return DataSpec(self._example_shape, self.classes, True, self.conditions)

    def prepare(self) -> None:
        """Creates the optimizers' variables, the metrics and the step, and checks the critic."""
        if self._replica_step is not None:
            return
        config, spec, library = self.config, self.data_spec(), self._library
        config.check_example_shape(spec.example_shape)
        optimizers = {"generator": self.generator_optimizer, "critic": self.critic_optimizer}
        with self.distribute_strategy.scope():
            networks = adapt(self.generator, self.critic, config, spec)
            for name, optimizer in optimizers.items():
                if not optimizer.built:
                    optimizer.build(networks[name].trainable_variables)
            counters = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
            state = TrainState(*networks.values(), *optimizers.values(), *counters)
            step = make_step(config, state, spec, library)
            self._judging_step = make_step(config, state, spec, library, every_step=True)
        self._tags = tags_of(step.objective)
        check_fit_critic(networks["critic"], config, spec, library.losses)
        self._replica_step = step
