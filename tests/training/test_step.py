"""The update of one replica, and that R replicas make the update of one.

Plain gradient descent with rate 1 shows the gradient itself: Adam would hide a gradient
that is R times too large.
"""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

import losses
from tests.helpers.runs import (
    DCGAN,
    LIBRARY,
    TINY,
    make_loop,
    make_replica_step,
    make_state,
    open_data,
    strategy_over,
    without_tracing,
)
from wgan_gp.app import build
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.data.feed import distributed_batches
from wgan_gp.errors import UserError
from wgan_gp.training.optimizer import GuardedAdam
from wgan_gp.training.schedules import IterationSchedule

# As loop.py traces them. Most tests compute their few steps eagerly, which takes half the time.
traced = functools.partial(tf.function, autograph=False)
CONFIG = Config(**{**TINY, "generator_batch_size": 32})
IMAGES = dataclasses.replace(CONFIG, **DCGAN)


def make_step(
    replicas,
    config=CONFIG,
    optimizer=lambda: tf.keras.optimizers.SGD(1.0),
    objective=None,
):
    """A step over `replicas` whose optimizers are made by `optimizer`."""
    strategy, source = strategy_over(replicas), open_data(config)
    state = make_state(config, strategy)
    with strategy.scope():
        optimizers = {"critic_optimizer": optimizer(), "generator_optimizer": optimizer()}
        optimizers["critic_optimizer"].build(state.critic.trainable_variables)
        optimizers["generator_optimizer"].build(state.generator.trainable_variables)
    if state.augment_probability is not None:
        state.augment_probability.assign(0.5)  # it is 0 at first, which transforms nothing
    step = make_replica_step(config, dataclasses.replace(state, **optimizers))
    step = dataclasses.replace(step, objective=objective or step.objective)
    batches = distributed_batches(source, strategy, 0, batch_size=config.batch_size)
    return step, strategy, batches


def weights(model):
    return [np.array(value) for value in model.get_weights()]


def one_update(replicas, network, *, trace=False, **options):
    """(update of each weight, global mean of each term) of one step of one network."""
    compute = traced if trace else lambda function: function
    step, strategy, batches = make_step(replicas, **options)
    model = getattr(step.state, network)
    before = weights(model)
    if network == "critic":
        update = compute(
            lambda real, labels: step.critic_step(real, labels, tf.constant(3, tf.int64))
        )
        shares = strategy.run(update, args=next(batches))
    else:
        done = tf.constant(3, tf.int64)
        update = compute(lambda *batch: step.generator_step(done, batch=batch or None))
        shares = strategy.run(update, args=next(batches) if step.generator_needs_real else ())
    terms = {
        name: strategy.reduce(tf.distribute.ReduceOp.SUM, share, axis=None).numpy()
        for name, share in shares.items()
    }
    return [new - old for new, old in zip(weights(model), before, strict=True)], terms


OBJECTIVES = [
    losses.GanObjective(),
    losses.GanObjective(penalty="dragan", adversarial_loss="hinge", drift_weight=0.1),
    losses.GanObjective(penalty="r1", adversarial_loss="logistic", penalty_interval=3),
    losses.GanObjective(penalty="weight_clipping", clip_value=0.05),
    losses.GanObjective(penalty="r1,r2", penalty_weight=(5.0, 0.5), penalty_interval=3),
]
R3GAN = {
    "adversarial_loss": "relativistic",
    "penalty": "r1,r2",
    "penalty_weight": "5.0,0.5",
    "learning_rate_schedule": "r3gan",
    "generator_batch_size": None,
}


@pytest.mark.parametrize("network", ["generator", "critic"])
def test_gradients_and_scalars_of_four_replicas_are_those_of_one(network):
    compare_one_update(network, 4, trace=True, config=IMAGES, objective=OBJECTIVES[0])


@pytest.mark.parametrize("objective", OBJECTIVES[1:], ids=lambda objective: objective.penalty)
def test_every_objective_on_two_replicas_is_that_on_one(objective):
    compare_one_update("critic", 2, objective=objective)


ACGAN = {"conditioning": "acgan"}
PROJECTION = {"conditioning": "projection", "critic_normalization": "spectral"}
DIFFAUGMENT = {"augment": "diffaugment", **PROJECTION}
RESNET = {"image_size": 32, "model": "resnet"}
RESNET_ACGAN = {**RESNET, **ACGAN}
RESNET_LAYER = {**RESNET, "critic_normalization": "layer"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("generator", ACGAN),
        ("critic", DIFFAUGMENT),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("critic", ACGAN),
                ("generator", PROJECTION),
                ("generator", RESNET_ACGAN),
                ("critic", RESNET_LAYER),
                ("critic", {**R3GAN, **RESNET, "model": "r3gan", "model_width": 16}),
            )
        ),
    ],
    ids=str,
)
def test_every_kind_of_network_on_two_replicas_is_that_on_one(network, settings):
    compare_one_update(network, 2, config=dataclasses.replace(IMAGES, **settings))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["spectral", "layer"])
def test_every_normalization_on_two_replicas_is_that_on_one(kind):
    """And power iteration leaves the same directions behind."""
    config = dataclasses.replace(IMAGES, activation="tanh", critic_normalization=kind)
    compare_one_update("critic", 2, config=config)


R3GAN_AUGMENTED = {**R3GAN, "augment": "diffaugment", "accumulate": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("critic", {"augment": "ada"}),
        ("critic", {"augment": "diffaugment", "accumulate": 2}),
        ("critic", {"augment": "diffaugment", "minibatch_stddev": 4}),
        ("critic", R3GAN_AUGMENTED),
        ("generator", {**R3GAN_AUGMENTED, "minibatch_stddev": 4}),
        pytest.param("generator", {"augment": "ada"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_augmentations_losses_and_memory_on_two_replicas_are_those_on_one(network, settings):
    settings = {"dataset": "digits", "generator_batch_size": None, **settings}
    compare_one_update(network, 2, config=dataclasses.replace(CONFIG, **settings))


def compare_one_update(network, *several, **options):
    """Compares an update on one replica with that on each of several numbers of replicas."""
    updates, terms = one_update(1, network, **options)
    assert max(np.abs(update).max() for update in updates) > 1e-3
    for replicas in several:
        updates_of_several, terms_of_several = one_update(replicas, network, **options)
        for one, many in zip(updates, updates_of_several, strict=True):
            np.testing.assert_allclose(many, one, rtol=1e-4, atol=2e-5 * np.abs(one).max() + 3e-7)
        assert set(terms) == set(terms_of_several)
        for name, value in terms.items():
            # A term may be the small difference of two scores.
            np.testing.assert_allclose(terms_of_several[name], value, rtol=1e-5, atol=1e-7)


class NumpyAdam:
    """Kingma and Ba 2015, algorithm 1, in float64; takes sparse gradients by summing their rows."""

    def __init__(self, rate, beta_1, beta_2):
        self.rate, self.beta_1, self.beta_2 = rate, beta_1, beta_2
        self.moments, self.updates = {}, 0

    def apply_gradients(self, pairs):
        self.updates += 1
        for number, (sparse_or_dense, weight) in enumerate(pairs):
            gradient = np.array(tf.convert_to_tensor(sparse_or_dense), np.float64)
            mean, square = self.moments.get(number, (0.0, 0.0))
            mean = self.beta_1 * mean + (1 - self.beta_1) * gradient
            square = self.beta_2 * square + (1 - self.beta_2) * gradient**2
            self.moments[number] = mean, square
            mean = mean / (1 - self.beta_1**self.updates)
            square = square / (1 - self.beta_2**self.updates)
            weight.assign(np.array(weight) - self.rate * mean / (np.sqrt(square) + 1e-8))


class Gathered(tf.keras.layers.Layer):
    """An offset by the sign of the first latent, gathered: its gradient is sparse."""

    def build(self, _):
        self.offsets = self.add_weight(name="offsets", shape=[2, 1, 1, 1], initializer="zeros")

    def call(self, latents):
        signs = tf.cast(latents[:, 0] > 0, tf.int32)
        return tf.gather(tf.convert_to_tensor(self.offsets), signs)


def with_a_gather(generator):
    latents = tf.keras.Input([TINY["latent_size"]])
    return tf.keras.Model(latents, generator(latents) + Gathered()(latents))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["projection", "own"])
def test_three_conditional_iterations_are_those_of_an_independent_adam(kind):
    """Class batch-norm gathers its scales, and so may a user's network: rows that repeat add up."""
    conditioning = "none" if kind == "own" else kind
    config = dataclasses.replace(
        IMAGES, conditioning=conditioning, learning_rate_schedule="constant", n_critic=2
    )

    def trained(independent):
        step, strategy, batches = make_step(1, config)
        state = make_state(config, strategy)
        if kind == "own":
            state = dataclasses.replace(state, generator=with_a_gather(state.generator))
        for network in ("critic", "generator"):
            optimizer = (
                NumpyAdam(1e-3, 0.0, 0.9)
                if independent
                else GuardedAdam(1e-3, beta_1=0.0, beta_2=0.9, epsilon=1e-8)
            )
            state = dataclasses.replace(state, **{f"{network}_optimizer": optimizer})
        step = dataclasses.replace(step, state=state)
        for iteration in range(3):
            for update in range(2):
                real, labels = next(batches)
                step.critic_step(real, labels, tf.constant(2 * iteration + update, tf.int64))
            step.generator_step(tf.constant(iteration, tf.int64))
        return weights(state.critic) + weights(state.generator)

    for ours, theirs in zip(trained(False), trained(True), strict=True):
        # A tenth of an update: Adam divides rounding errors by gradients that are almost zero.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_each_step_updates_its_own_network_only():
    """Weights, that is: the generator's batch-norm statistics advance with every batch."""
    step, strategy, batches = make_step(1, IMAGES)
    critic, generator = weights(step.state.critic), step.state.generator.trainable_variables
    generator_before = [np.array(value) for value in generator]
    strategy.run(step.generator_step, args=(tf.constant(0, tf.int64),))
    for now, then in zip(weights(step.state.critic), critic, strict=True):
        np.testing.assert_array_equal(now, then)
    generator_after = [np.array(value) for value in generator]
    assert any((a != b).any() for a, b in zip(generator_after, generator_before, strict=True))
    statistics = [np.array(value) for value in step.state.generator.non_trainable_variables]
    strategy.run(step.critic_step, args=(*next(batches), tf.constant(0, tf.int64)))
    for now, then in zip(step.state.generator.non_trainable_variables, statistics, strict=True):
        assert (np.array(now) != then).any()
    for now, then in zip(generator, generator_after, strict=True):
        np.testing.assert_array_equal(now, then)
    assert any((a != b).any() for a, b in zip(weights(step.state.critic), critic, strict=True))


class Recorder:
    """Stands in for the steps' inputs: notes what the critic is shown."""

    def __init__(self, objective):
        self.objective = objective
        self.critic_term_names = objective.critic_term_names
        self.generator_term_names = objective.generator_term_names
        self.seen = {name: [] for name in ("real", "fake", "alpha", "noise", "generator")}

    def critic_terms(self, critic, real, fake, *, alpha, noise, **others):
        self._note(real=real, fake=fake, alpha=alpha, noise=noise)
        return self.objective.critic_terms(critic, real, fake, alpha=alpha, noise=noise, **others)

    def generator_terms(self, critic, fake, **others):
        self._note(generator=fake)
        return self.objective.generator_terms(critic, fake, **others)

    def constrain(self, weights):
        self.objective.constrain(weights)

    def _note(self, **tensors):
        for name, tensor in tensors.items():
            tf.py_function(lambda x, name=name: self.seen[name].append(x.numpy()), [tensor], [])


@pytest.mark.slow
def test_an_iteration_is_n_critic_fresh_batches_and_one_generator_step():
    replicas = 2
    # So few relu may all be zero, for several latents.
    config = dataclasses.replace(CONFIG, n_critic=3, activation="tanh", model_depth=3)
    step, strategy, batches = make_step(replicas, config)
    recorder = Recorder(step.objective)
    step = dataclasses.replace(step, objective=recorder)
    loop = make_loop(step, strategy, n_critic=3)
    with without_tracing():
        loop(batches, tf.constant(2, tf.int64))
    # Two iterations: six different batches of reals, of fakes and of noise on each
    # replica, none seen twice anywhere.
    for name in ("real", "fake", "alpha", "noise"):
        assert len(recorder.seen[name]) == 6 * replicas
        flat = np.concatenate(recorder.seen[name]).reshape(6 * 16, -1)
        assert len(np.unique(flat, axis=0)) == 6 * 16, name
    fakes = np.concatenate(recorder.seen["generator"]).reshape(2 * 32, -1)
    assert len(np.unique(fakes, axis=0)) == 2 * 32
    assert int(step.state.iteration) == 2
    updates = [
        int(tf.convert_to_tensor(optimizer.iterations))
        for optimizer in (step.state.critic_optimizer, step.state.generator_optimizer)
    ]
    assert updates == [6, 2]


def test_loop_logs_the_mean_over_its_steps():
    """A loop of two iterations logs the mean of what two loops of one log."""

    def train(loops):
        step, strategy, batches = make_step(1)
        loop = make_loop(step, strategy, n_critic=2)
        with without_tracing():
            return [loop(batches, tf.constant(count, tf.int64))[0] for count in loops]

    first, second = train([1, 1])
    (both,) = train([2])
    assert set(both) == {
        "critic/loss",
        "critic/wasserstein",
        "critic/penalty",
        "critic/gradient_norm",
        "generator/loss",
    }
    for name, value in both.items():
        np.testing.assert_allclose(value, (first[name] + second[name]) / 2, rtol=1e-5)


def test_all_logged_terms_pass_through_reduce_over_replicas():
    def train(reduce_over_replicas):
        step, strategy, batches = make_step(1)
        loop = make_loop(step, strategy, n_critic=1, reduce_over_replicas=reduce_over_replicas)
        with without_tracing():
            return loop(batches, tf.constant(1, tf.int64))[0]

    def doubled(strategy, shares):
        return tf.nest.map_structure(lambda mean: 2 * mean, reduce_over_replicas(strategy, shares))

    reduce_over_replicas = losses.reduce_over_replicas
    terms, terms_doubled = train(reduce_over_replicas), train(doubled)
    for name, value in terms.items():
        np.testing.assert_allclose(terms_doubled[name], 2 * value, rtol=1e-5)


def test_the_critic_is_called_in_training_mode():
    """Dropout is active then, and batch-norm, which a penalty forbids, shows."""
    modes = []

    class Layer(tf.keras.layers.Layer):
        def call(self, x, training=None):
            modes.append(training)
            return x

    step, strategy, batches = make_step(1)
    images = step.state.critic.input
    critic = tf.keras.Model(images, Layer()(step.state.critic.output))
    modes.clear()
    step = dataclasses.replace(step, state=dataclasses.replace(step.state, critic=critic))
    strategy.run(traced(step.critic_step), args=(*next(batches), tf.constant(0, tf.int64)))
    strategy.run(traced(step.generator_step), args=(tf.constant(0, tf.int64),))
    assert modes == [True] * 3  # real and fake together, the interpolates, the generator's


def test_weight_clipping_holds_after_an_update():
    objective = losses.GanObjective(penalty="weight_clipping", clip_value=0.02)
    step, strategy, batches = make_step(1, objective=objective)
    strategy.run(step.critic_step, args=(*next(batches), tf.constant(0, tf.int64)))
    assert max(np.abs(weight).max() for weight in weights(step.state.critic)) <= 0.02
    assert max(np.abs(weight).max() for weight in weights(step.state.generator)) > 0.02


@pytest.mark.slow
def test_compiled_steps_compute_the_same():
    """Tests one objective; tests/losses/test_xla.py tests the others."""

    def train(jit_compile):
        step, strategy, batches = make_step(1, objective=OBJECTIVES[2])
        loop = make_loop(step, strategy, n_critic=2, jit_compile=jit_compile)
        return loop(batches, tf.constant(1, tf.int64))[0]

    plain, compiled = train(False), train(True)
    for name, value in plain.items():
        np.testing.assert_allclose(compiled[name], value, rtol=1e-4)


def test_the_optimizers_rate_falls_by_iterations_not_by_updates():
    """The critic's three updates of an iteration share its rate: both networks end alike."""
    config = dataclasses.replace(
        CONFIG, n_critic=3, train_steps=4, critic_learning_rate=1.0, generator_learning_rate=1.0
    )
    critic, generator = IterationSchedule(config, 1.0, 3), IterationSchedule(config, 1.0, 1)
    assert [float(critic(update)) for update in range(0, 12, 3)] == [1, 0.75, 0.5, 0.25]
    assert [float(critic(update)) for update in range(3, 6)] == [0.75] * 3
    assert [float(generator(update)) for update in range(4)] == [1, 0.75, 0.5, 0.25]


def test_the_optimizers_use_their_schedule():
    """Adam's first update moves each weight by its rate, here by 1e-3 and by 1e-2."""
    config = dataclasses.replace(
        CONFIG, critic_learning_rate=1e-3, generator_learning_rate=1e-2, n_critic=1
    )
    strategy = strategy_over(1)
    state = make_state(config, strategy)
    for network, optimizer, rate in (
        (state.critic, state.critic_optimizer, 1e-3),
        (state.generator, state.generator_optimizer, 1e-2),
    ):
        before = weights(network)
        ones = [tf.ones_like(variable) for variable in network.trainable_variables]
        optimizer.apply_gradients(zip(ones, network.trainable_variables, strict=True))
        for now, then in zip(weights(network), before, strict=True):
            np.testing.assert_allclose(then - now, rate, rtol=1e-3)


def test_an_objective_that_pairs_samples_needs_as_many_real_examples():
    class Pairs(losses.GanObjective):
        generator_needs_real = True

    library = dataclasses.replace(LIBRARY, objective=Pairs)
    labels = {"dataset": "digits", "conditioning": "projection", "generator_batch_size": 4}
    config, dataset = resolve(Config(**{**TINY, **labels}), library.models)
    state = make_state(config, strategy_over(1))
    with pytest.raises(UserError, match="--generator_batch_size=4 is not --batch_size=16, but the"):
        build.make_step(config, state, dataset.spec, library)
    equal = dataclasses.replace(config, generator_batch_size=16)
    assert build.make_step(equal, state, dataset.spec, library).generator_needs_real
    without_labels = dataclasses.replace(dataset.spec, classes=0)
    assert build.make_step(config, state, without_labels, library).generator_needs_real
