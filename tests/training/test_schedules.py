"""Tests of the schedules of the learning rates."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import (
    LIBRARY,
    TINY,
    make_state,
    strategy_over,
    train_tiny,
    without_tracing,
)
from wgan_gp.app.build import make_objective
from wgan_gp.config import Config
from wgan_gp.training.schedules import IterationSchedule, learning_rates

STEPS = 10
SHAPES = {
    "constant": lambda p: 1.0,
    "linear": lambda p: 1 - p,
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,
    "r3gan": lambda p: 0.25 + 0.75 * (1 + math.cos(math.pi * p)) / 2,
}


@pytest.mark.parametrize("schedule", SHAPES)
def test_rates_follow_their_closed_form(schedule):
    """The rates in a program, and those that are logged, also beyond the end of the schedule."""
    config = Config(
        train_steps=99,
        schedule_steps=STEPS,
        learning_rate_schedule=schedule,
        critic_learning_rate=0.5,
        generator_learning_rate=2.0,
    )
    critic = tf.function(IterationSchedule(config, 0.5, 3), autograph=False)
    for iteration in (0, 1, 3, 4, 5, 9, 10, 11, 50):
        factor = SHAPES[schedule](min(1, iteration / STEPS))
        for update in (3 * iteration, 3 * iteration + 2):
            np.testing.assert_allclose(critic(tf.constant(update)), 0.5 * factor, rtol=1e-6)
        logged = learning_rates(config, iteration)
        assert {type(value) for value in logged.values()} == {float}
        np.testing.assert_allclose(logged["critic/learning_rate"], 0.5 * factor)
        np.testing.assert_allclose(logged["generator/learning_rate"], 2.0 * factor)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_default_is_linear_to_zero(jit_compile):
    """The values are those of the formula, bit for bit."""
    config = Config(train_steps=7, critic_learning_rate=3e-4)
    schedule, before = (
        tf.function(function, autograph=False, jit_compile=jit_compile)
        for function in (
            IterationSchedule(config, 3e-4, 1),
            lambda update: 3e-4 * (1.0 - tf.cast(update, tf.float32) / 7),
        )
    )
    for iteration in range(7):
        logged = learning_rates(config, iteration)["critic/learning_rate"]
        assert logged == 3e-4 * (1.0 - iteration / 7)
        update = tf.constant(iteration)
        assert float(schedule(update)) == float(before(update))


@pytest.mark.slow
def test_a_summary_contains_the_rates_of_the_schedule(tmp_path):
    settings = {"learning_rate_schedule": "r3gan", "schedule_steps": 5, "summary_interval": 5}
    with without_tracing():
        _, writer = train_tiny(tmp_path, train_steps=10, sample_interval=0, n_critic=1, **settings)
    rates = [values["critic/learning_rate"] for _, values in writer.summaries]
    cosine = 0.25 + 0.75 * (1 + math.cos(0.8 * math.pi)) / 2
    np.testing.assert_allclose(rates, [1e-3 * cosine, 1e-3 * 0.25])


@pytest.mark.parametrize("schedule", ["linear", "cosine", "r3gan"])
def test_a_run_is_made_longer_if_its_schedule_stays(schedule):
    short = Config(learning_rate_schedule=schedule, train_steps=100)

    def differences(**changes):
        return dataclasses.replace(short, **changes).differences(short)

    assert differences() == differences(schedule_steps=100) == {}
    assert differences(train_steps=200, schedule_steps=100) == {}
    assert differences(train_steps=200) == {"train_steps": 100}
    assert differences(schedule_steps=50) == {"schedule_steps": None}
    explicit = dataclasses.replace(short, schedule_steps=50)
    longer = dataclasses.replace(short, schedule_steps=50, train_steps=200)
    assert longer.differences(explicit) == {}


@pytest.mark.parametrize(("schedule", "end"), [("r3gan", 0.1), ("cosine", 1.0)])
def test_the_weight_of_the_penalty_falls_with_r3gan(schedule, end):
    config = Config(learning_rate_schedule=schedule, schedule_steps=50, n_critic=2)
    objective = make_objective(config, LIBRARY)
    assert (objective.penalty_weight_end, objective.penalty_decay_steps) == (end, 100)


def numpy_adam(weight, gradients, rates, beta_1, betas_2):
    """Returns the weight after updates whose bias correction uses the latest beta_2."""
    mean = square = 0.0
    updates = zip(gradients, rates, betas_2, strict=True)
    for t, (gradient, rate, beta_2) in enumerate(updates, start=1):
        mean = beta_1 * mean + (1 - beta_1) * gradient
        square = beta_2 * square + (1 - beta_2) * gradient**2
        corrected = np.sqrt(square / (1 - beta_2**t)) + 1e-8
        weight = weight - rate * mean / (1 - beta_1**t) / corrected
    return weight


def make_update(optimizer, variables, replicas, jit_compile):
    """Returns an update of the first variable by a gradient, in equal shares of the replicas."""

    @tf.function(autograph=False, jit_compile=jit_compile)
    def update(gradient):
        others = [tf.zeros_like(tf.convert_to_tensor(each)) for each in variables[1:]]
        pairs = zip([gradient / replicas, *others], variables, strict=True)
        optimizer.apply_gradients(pairs)

    return update


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "jit_compile"), [(1, True), (2, False)])
def test_each_network_has_its_own_adam_whose_beta_2_changes(replicas, jit_compile):
    """Compares with Adam in NumPy, at updates before and after the end of the schedule."""
    settings = {"learning_rate_schedule": "r3gan", "schedule_steps": 3, "n_critic": 2}
    settings |= {"beta_1": 0.5, "beta_2": 0.6, "critic_learning_rate": 0.01}
    strategy = strategy_over(replicas)
    state = make_state(Config(**{**TINY, **settings}), strategy)
    for network, rate, per_iteration in (("critic", 0.01, 2), ("generator", 1e-3, 1)):
        optimizer = getattr(state, f"{network}_optimizer")
        variables = getattr(state, network).trainable_variables
        before = np.array(variables[0])
        gradients = np.random.default_rng(0).normal(size=[9, *before.shape])

        update = make_update(optimizer, variables, replicas, jit_compile)
        for gradient in gradients:
            strategy.run(update, args=(tf.constant(gradient, tf.float32),))
        remaining = [(1 + math.cos(math.pi * min(1, t // per_iteration / 3))) / 2 for t in range(9)]
        rates = [rate * (0.25 + 0.75 * part) for part in remaining]
        betas = [0.99 + (0.6 - 0.99) * part for part in remaining]
        expected = numpy_adam(before, gradients, rates, 0.5, betas)
        np.testing.assert_allclose(np.array(variables[0]), expected, rtol=1e-4, atol=1e-6)
