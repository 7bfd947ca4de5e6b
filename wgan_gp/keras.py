"""WGAN-GP as a Keras model, with compile, fit, predict, save and callbacks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .app.build import make_augmentation, make_objective, with_consistency
from .app.library import Library, bundled
from .config import Config
from .data.conditions import Conditions
from .data.fit_batches import examples_of, form_batches, static_batch
from .errors import UserError
from .training.interface import Objective
from .training.networks import KERAS_3
from .training.state import TrainState, make_optimizers
from .training.step import ReplicaStep

_NOT_IN_FIT: dict[str, Any] = {"generator_ema_decay": bool, "generator_ema_half_life": bool}
_NOT_IN_FIT |= {"augment": lambda value: value == "ada"}


@tf.keras.utils.register_keras_serializable("wgan_gp")
class WGANGP(tf.keras.Model):
    """A generator and a critic, trained by `fit` with the steps of train.py.

    One train step is one iteration: `n_critic` critic updates, each on `batch_size` new examples,
    and one generator update. `fit` therefore forms batches of n_critic * batch_size examples and
    drops an incomplete one. With the same initial weights and the same examples, the losses are
    those of train.py. On several replicas, they are those of one.

    `predict` and calling the model return samples for latents `[B, latent_size]`, or for a list of
    latents and labels `[B]` or conditions `[B, K]`.

    Args:
      generator: A Keras model that maps latents to examples; see docs/custom.md.
      critic: A Keras model that maps examples to scores `[B]` or `[B, 1]`.
      config: The settings of the training: `batch_size`, `generator_batch_size` and `n_critic`,
        `latent_size`, `seed`, the learning rates and the losses. `train_steps` is the number of
        iterations of the linear schedule; "constant" is usual for `fit`.
      classes: The number of classes. If it is not 0, `fit` needs labels, the generator takes them,
        and so does the critic with `conditioning="projection"` or "concatenation".
      conditions: The conditions of the training data, `[M, K]` or `[M]`, in place of classes. They
        are standardized for the networks, and the generator step draws from them. `fit`, `predict`
        and calls then need conditions in the same units in place of labels.
      objective: An object with the interface of `training.interface.Objective` in place of the
        losses of `config`. It is not saved.

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
        super().__init__(**kwargs)
        for name, is_used in _NOT_IN_FIT.items():
            if is_used(value := getattr(config, name)):
                raise UserError(f"{name}={value} is not supported in fit", "use wgan_gp.train")
        self.generator = generator
        self.critic = critic
        self.config = config
        self.classes = classes
        self.conditions = None if conditions is None else Conditions.given(conditions, classes)
        self._loss_functions = bundled("losses")
        library = Library(bundled("models"), self._loss_functions, objective)
        self._objective = with_consistency(make_objective(config, library), config)
        tags = [
            *(f"critic/{name}" for name in self._objective.critic_term_names),
            *(f"generator/{name}" for name in self._objective.generator_term_names),
        ]
        self._means = [tf.keras.metrics.Mean(name=tag.replace("/", "_")) for tag in tags]
        self._tags = tags
        self._replica_step: ReplicaStep | None = None

    def compile(
        self,
        generator_optimizer: tf.keras.optimizers.Optimizer | None = None,
        critic_optimizer: tf.keras.optimizers.Optimizer | None = None,
        *,
        jit_compile: bool = False,
        **kwargs: Any,
    ) -> None:
        """Sets the optimizers.

        Args:
          generator_optimizer, critic_optimizer: Default: Adam with the settings of `config`.
          jit_compile: Whether XLA compiles the steps. Never True on a TPU, which compiles its
            programs itself. Keras's own default, "auto", is not used.
          kwargs: Other arguments of `keras.Model.compile`, such as `steps_per_execution`.

        Raises:
          UserError: If `jit_compile` is set for a TPU or several replicas.
        """
        strategy = self.distribute_strategy
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        if jit_compile and (strategy.num_replicas_in_sync > 1 or on_tpu):
            raise UserError("jit_compile=True cannot compile for a TPU or for replicas", "omit it")
        self.config.check_replicas(strategy.num_replicas_in_sync)
        # Keras 2 requires an optimizer; train_step does not use it.
        super().compile(optimizer=None if KERAS_3 else "sgd", jit_compile=jit_compile, **kwargs)
        with strategy.scope():
            generator_default, critic_default = make_optimizers(self.config)
            self.generator_optimizer = generator_optimizer or generator_default
            self.critic_optimizer = critic_optimizer or critic_default

    def fit(self, x: Any, y: Any = None, *, validation_data: Any = None, **kwargs: Any) -> Any:
        """Trains the networks; see `keras.Model.fit`.

        Args:
          x: Examples `[N, ...]` float32, or a tf.data.Dataset of batches of them, of any size,
            with labels if there are classes, or conditions.
          y: Labels `[N]` or conditions `[N, K]`, if `x` is an array and the networks take them.
          validation_data: Held-out examples, likewise; a pair if there are labels. The critic's
            terms on them are reported as "val_...".
          kwargs: Other arguments of `keras.Model.fit`, but for `batch_size`, which follows from the
            configuration.

        Returns:
          Keras's History.

        Raises:
          UserError: If there are fewer examples than in one iteration, labels are missing, or the
            critic violates an assumption of the penalty.
        """
        if "batch_size" in kwargs:
            raise UserError(
                "fit(batch_size=...) is not supported", "set batch_size in the Config of the model"
            )
        shuffle = bool(kwargs.pop("shuffle", True))
        train = self._batches(x, y, self.config.n_critic, shuffle=shuffle)
        self._prepare(train)
        if validation_data is not None:
            has_labels = isinstance(validation_data, tuple)
            examples, labels = validation_data if has_labels else (validation_data, None)
            validation_data = self._batches(examples, labels, 1, shuffle=False)
        return super().fit(train, validation_data=validation_data, **kwargs)

    def evaluate(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Returns the means of the critic's terms on examples; see `fit` for the arguments."""
        if not getattr(x, "_forms_batches", False):
            x = self._batches(x, y, 1, shuffle=False)
            self._prepare(x)
        return super().evaluate(x, **kwargs)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Performs one iteration on this replica's part of n_critic * batch_size examples."""
        step, n_critic = self._step, self.config.n_critic
        examples, labels = self._static(data, n_critic)
        # The number of generator updates so far, which is saved with the optimizer.
        iteration = tf.cast(tf.convert_to_tensor(self.generator_optimizer.iterations), tf.int64)
        shares: dict[str, list[tf.Tensor]] = {}
        count = examples.shape[0] // n_critic
        for k in range(n_critic):
            rows = slice(k * count, (k + 1) * count)
            terms = step.critic_step(examples[rows], labels[rows], iteration * n_critic + k)
            for name, value in terms.items():
                shares.setdefault(f"critic/{name}", []).append(value)
        terms = step.generator_step(iteration, batch=(examples[rows], labels[rows]))
        shares.update({f"generator/{name}": [value] for name, value in terms.items()})
        return self._report({name: tf.add_n(each) / len(each) for name, each in shares.items()})

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Computes the critic's terms on this replica's part of a batch, without training."""
        terms, _ = self._step.diagnose_critic(*self._static(data, 1))
        mean, size = self._loss_functions.global_mean, self.config.batch_size
        return self._report({f"critic/{name}": mean(each, size) for name, each in terms.items()})

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        if self.conditions is not None:
            latents, values = inputs
            inputs = [latents, self.conditions.standardize_tensor(values)]
        return self.generator(inputs, training=training)

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """The means over an epoch, which Keras resets."""
        return list(self._means)

    def get_config(self) -> dict[str, Any]:
        serialize = tf.keras.utils.serialize_keras_object
        return {
            "name": self.name,
            "generator": serialize(self.generator),
            "critic": serialize(self.critic),
            "config": self.config.to_dict(),
            "classes": self.classes,
            "conditions": None if self.conditions is None else self.conditions.to_dict(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> WGANGP:
        with tf.keras.utils.custom_object_scope(custom_objects or {}):
            networks = {
                name: tf.keras.utils.deserialize_keras_object(config[name])
                for name in ("generator", "critic")
            }
        settings = Config.from_dict(config["config"])
        model = cls(**networks, config=settings, classes=config["classes"], name=config["name"])
        if config.get("conditions") is not None:
            model.conditions = Conditions.from_dict(config["conditions"])
        return model

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
        means = dict(zip(self._tags, self._means, strict=True))
        for name, value in totals.items():
            means[name].update_state(value)
        return {name: means[name].result() for name in totals}

    def _batches(self, x: Any, y: Any, parts: int, *, shuffle: bool) -> tf.data.Dataset:
        needed = f"classes={self.classes} requires labels" if self.classes else None
        if self.conditions is not None:
            needed = "conditions=... requires conditions in fit, too"
        examples = examples_of(x, y, seed=self.config.seed, shuffle=shuffle, needed=needed)
        replicas = self.distribute_strategy.num_replicas_in_sync
        batches = form_batches(examples, self.config.batch_size, parts=parts, replicas=replicas)
        batches._forms_batches = True
        return batches

    def _prepare(self, batches: tf.data.Dataset) -> None:
        """Creates the variables, the metrics and the step, and checks the critic, once."""
        if self._replica_step is not None:
            return
        spec = tf.nest.flatten(batches.element_spec)[0]
        self.config.check_example_shape(tuple(spec.shape[1:]))
        count = 2 * max(2, self.config.minibatch_stddev)
        inputs = tf.random.stateless_normal([count, *spec.shape[1:]], [0, 0])
        latents = tf.zeros([count, self.config.latent_size])
        labels = tf.zeros([count], tf.int32)
        if self.conditions is not None:
            labels = tf.constant(self.conditions.table[[0] * count])
        takes_labels = self.config.conditioning in bundled("models").LABELED_CRITICS
        with self.distribute_strategy.scope():
            is_conditional = self.classes or self.conditions is not None
            self([latents, labels] if is_conditional else latents)
            self.critic([inputs, labels] if takes_labels else inputs)
            self.generator_optimizer.build(self.generator.trainable_variables)
            self.critic_optimizer.build(self.critic.trainable_variables)
            step = self._make_step(takes_labels)
        self._check_critic(inputs, labels if takes_labels else None)
        self._replica_step = step

    def _make_step(self, takes_labels: bool) -> ReplicaStep:
        counters = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
        optimizers = (self.generator_optimizer, self.critic_optimizer)
        state = TrainState(self.generator, self.critic, *optimizers, *counters)
        return ReplicaStep(
            state=state,
            objective=self._objective,
            global_mean=self._loss_functions.global_mean,
            optimization=self.config,
            latent_size=self.config.latent_size,
            classes=self.classes,
            critic_takes_labels=takes_labels,
            conditions=None if self.conditions is None else self.conditions.table,
            augmentation=make_augmentation(self.config),
        )

    def _check_critic(self, inputs: tf.Tensor, labels: tf.Tensor | None) -> None:
        def critic(examples: tf.Tensor) -> tf.Tensor:
            output = self.critic(examples if labels is None else [examples, labels], training=True)
            return output[0] if isinstance(output, (tuple, list)) else output

        group = max(1, self.config.minibatch_stddev)
        for finding in self._loss_functions.check_critic(critic, inputs, group_size=group):
            if finding.fatal:
                raise UserError(
                    f"the critic cannot be trained with penalty={self.config.penalty}: {finding}",
                    "correct the network",
                )
            tf.get_logger().warning("the critic: %s", finding)
