"""Runs the loop of an 8-core slice on 8 virtual CPU devices; prints how far it is from one replica.

For test_compile.py, in a process of its own: the devices must be made before XLA starts. The
argument is the place of the data: resident in the memory of each core, or sent with each launch.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import dataclasses
import json
import sys

import jax
import numpy as np
import tensorflow as tf

import tests.conftest  # noqa: F401  (eight logical CPU devices)
from tests.helpers.runs import examples_of, make_replica_step, make_state
from wgan_gp.config import Config
from wgan_gp.data.loop_input import open_loop_input
from wgan_gp.data.pixels import Pixels
from wgan_gp.pjrt import client, lowering
from wgan_gp.pjrt.lowering import make_replica_program
from wgan_gp.pjrt.slice_strategy import SliceStrategy
from wgan_gp.training.loop import replica_loop

REPLICAS = 8
ITERATIONS = 10
CONFIG = Config(
    model="dcgan", batch_size=32, model_width=4, latent_size=8, n_critic=2, random_flips=True
)
COUNTERS = [np.int64(3), np.int64(ITERATIONS), np.int64(0)]  # done before, to do, rollbacks


def make_data():
    """Images of 256 levels, so that the program dequantizes them."""
    random = np.random.default_rng(0)
    levels = random.integers(0, 256, [100, 8, 8, 1], np.uint8)
    return examples_of(levels, np.arange(100) % 10, CONFIG, Pixels())


def make_step(strategy):
    """Plain gradient descent: Adam would hide a gradient that is 8 times too large."""
    state = make_state(CONFIG, strategy)
    with strategy.scope():
        optimizers = [tf.keras.optimizers.SGD(0.01) for _ in range(2)]
        optimizers[0].build(state.critic.trainable_variables)
        optimizers[1].build(state.generator.trainable_variables)
    state = dataclasses.replace(
        state, critic_optimizer=optimizers[0], generator_optimizer=optimizers[1]
    )
    return make_replica_step(CONFIG, state)


def make_input(strategy, *, resident):
    """Returns the input of the loop, and the first element of each replica."""
    data, replicas = make_data(), strategy.num_replicas_in_sync
    loop_input = open_loop_input(
        data,
        strategy,
        batch_size=CONFIG.batch_size,
        n_critic=CONFIG.n_critic,
        steps_per_loop=ITERATIONS,
        resident=resident,
    )
    context = tf.distribute.InputContext(num_replicas_in_sync=replicas)
    elements = loop_input.dataset(data, context, int(COUNTERS[0]) * CONFIG.n_critic).take(replicas)
    return loop_input, list(elements)


def model_variables(step):
    return [*step.state.critic.variables, *step.state.generator.variables]


def tensorflow_variable(weight):
    """Keras 3 wraps its own."""
    return weight if callable(weight.value) else weight.value


def value_of(weight):
    return np.array(tf.convert_to_tensor(weight))


def run_one(*, resident):
    """Returns the updates of one replica and its totals."""
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    step = make_step(strategy)
    before = [value_of(weight) for weight in model_variables(step)]
    loop_input, (element,) = make_input(strategy, resident=resident)
    loop = replica_loop(step, loop_input, jit_compile=False)
    totals = strategy.run(loop, args=(element, *COUNTERS))
    updates = [
        value_of(now) - then for now, then in zip(model_variables(step), before, strict=True)
    ]
    return updates, [value.numpy() for value in tf.nest.flatten(totals)]


def run_slice(*, resident):
    """Returns the updates of the 8 replicas, `[8, ...]` each, and their totals."""
    strategy = SliceStrategy(REPLICAS)
    step = make_step(strategy)
    loop_input, elements = make_input(strategy, resident=resident)
    program, specs = make_replica_program(step, strategy, loop_input)
    hlo = lowering.lower_to_hlo(program, *specs)
    traced = program.get_concrete_function(*specs)
    captured = lowering.captured_values(program, *specs)
    of_each = [tf.nest.flatten(element) for element in elements]
    batch = [np.concatenate(parts) for parts in zip(*of_each, strict=True)]
    results = run_on_cpus(hlo, batch, [*COUNTERS, *map(value_of, captured)])

    # The results that overwrite a parameter are that variable's new value.
    new = {
        id(captured[parameter - len(specs)]): results[result]
        for result, parameter in client.overwritten_parameters(hlo).items()
    }
    updates = []
    for weight in model_variables(step):
        old = value_of(weight)
        updates.append(new.get(id(tensorflow_variable(weight)), old[None]) - old)
    return updates, results[: len(traced.outputs)]


def run_on_cpus(hlo, batch, others):
    """The program's results, `[8, ...]` each; the `batch` is split over the replicas."""
    devices = jax.devices("cpu")
    assert len(devices) == REPLICAS
    program = client.Program(hlo, devices)
    mesh = jax.sharding.Mesh(np.array(devices), "replica")
    split, same = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in (["replica"], [])
    )
    with jax.enable_x64(True):  # the steps are counted in 64 bits
        arguments = [jax.device_put(value, split) for value in batch]
        arguments += [jax.device_put(value, same) for value in others]
        return [
            np.stack([np.asarray(shard) for shard in shards]) for shards in program.run(arguments)
        ]


def main(resident):
    updates, totals = run_one(resident=resident)
    slice_updates, slice_totals = run_slice(resident=resident)
    pairs = list(zip(slice_updates, updates, strict=True))
    # The terms are shares, which are summed; then come the first bad iterations.
    terms = list(zip(slice_totals[:2], totals[:2], strict=True))
    print(
        json.dumps(
            {
                "update": float(max(np.abs(update).max() for update in updates)),
                "apart": float(max(np.abs(ours - one).max() for ours, one in pairs)),
                "terms": float(max(np.abs(one).max() for _, one in terms)),
                "terms_apart": float(
                    max(np.abs(ours.sum(axis=0) - one).max() for ours, one in terms)
                ),
            }
        )
    )


if __name__ == "__main__":
    main(resident=sys.argv[1] == "resident")
