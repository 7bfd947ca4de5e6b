"""Runs the program of an 8-core slice on 8 virtual CPU devices; prints how far it is from one.

For test_compile.py, in a process of its own: the devices must be made before XLA starts.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import dataclasses
import json
import re

import jax
import numpy as np
import tensorflow as tf
from conftest import make_replica_step, make_state
from jax._src.lib import _jax

from wgan_gp.config import Config
from wgan_gp.tpu import compiler, lowering
from wgan_gp.tpu.slice_strategy import SliceStrategy
from wgan_gp.training.host_loop import replica_programs

REPLICAS = 8
CONFIG = Config(model="dcgan", batch_size=32, model_width=4, latent_size=8)
LABELS = np.arange(32, dtype=np.int32) % 10
EXAMPLES = np.random.default_rng(0).uniform(-1, 1, [32, 8, 8, 1]).astype(np.float32)
DONE = np.int64(3)


def make_step(strategy):
    """Plain gradient descent: Adam would hide a gradient that is 8 times too large."""
    state = make_state(CONFIG, strategy)
    with strategy.scope():
        optimizers = [tf.keras.optimizers.SGD(1.0) for _ in range(2)]
        optimizers[0].build(state.critic.trainable_variables)
        optimizers[1].build(state.generator.trainable_variables)
    state = dataclasses.replace(
        state, critic_optimizer=optimizers[0], generator_optimizer=optimizers[1]
    )
    return make_replica_step(CONFIG, state)


def model_variables(step):
    return [*step.state.critic.variables, *step.state.generator.variables]


def tensorflow_variable(weight):
    """Keras 3 wraps its own."""
    return weight if callable(weight.value) else weight.value


def value_of(weight):
    return np.array(tf.convert_to_tensor(weight))


def updates_of_one(network):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    step = make_step(strategy)
    before = [value_of(weight) for weight in model_variables(step)]
    critic_step, generator_step = replica_programs(step, jit_compile=False)
    if network == "critic":
        strategy.run(critic_step, args=(tf.constant(EXAMPLES), tf.constant(LABELS), DONE, DONE))
    else:
        strategy.run(generator_step, args=(DONE, DONE))
    return [value_of(now) - then for now, then in zip(model_variables(step), before, strict=False)]


def updates_of_slice(network):
    """Returns the weights of each replica, `[8, ...]` each."""
    strategy = SliceStrategy(REPLICAS)
    step = make_step(strategy)
    critic_step, generator_step = replica_programs(step, jit_compile=False)
    step_of = {"critic": critic_step, "generator": generator_step}
    program = lowering.make_program(step_of[network], strategy)
    done = tf.TensorSpec([], tf.int64)
    share = len(EXAMPLES) // REPLICAS
    real = tf.TensorSpec([share, *EXAMPLES.shape[1:]])
    labels = tf.TensorSpec([share], tf.int32)
    specs = (real, labels, done, done) if network == "critic" else (done, done)
    hlo = lowering.lower_to_hlo(program, *specs)
    variables = {
        id(variable.handle): variable
        for variable in map(
            tensorflow_variable,
            [
                *model_variables(step),
                *step.state.critic_optimizer.variables,
                *step.state.generator_optimizer.variables,
            ],
        )
    }
    captured = [
        variables[id(resource)]
        for resource in program.get_concrete_function(*specs).captured_inputs
    ]
    batch = [EXAMPLES, LABELS] if network == "critic" else []
    results = run_on_cpus(hlo, batch, [DONE, DONE, *map(value_of, captured)])

    # The results that overwrite a parameter are that variable's new value.
    header = compiler.hlo_text(hlo).partition("\n")[0]
    first = len(specs)
    new = {
        id(captured[int(parameter) - first]): results[int(result)]
        for result, parameter in re.findall(r"\{(\d+)\}: \((\d+), ", header)
    }
    updates = []
    for weight in model_variables(step):
        old = value_of(weight)
        updates.append(new.get(id(tensorflow_variable(weight)), old[None]) - old)
    return updates


def run_on_cpus(hlo, batch, others):
    """The program's results, `[8, ...]` each; the `batch` is split over the replicas."""
    devices = jax.devices("cpu")
    assert len(devices) == REPLICAS
    with compiler.stablehlo(hlo) as module:
        executable = devices[0].client.compile_and_load(
            module, _jax.DeviceList(tuple(devices)), compiler.compile_options(REPLICAS)
        )
    mesh = jax.sharding.Mesh(np.array(devices), "replica")
    split, same = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in (["replica"], [])
    )
    with jax.enable_x64(True):  # the steps are counted in 64 bits
        arguments = [jax.device_put(value, split) for value in batch]
        arguments += [jax.device_put(value, same) for value in others]
        results = executable.execute_sharded(arguments)
        return [
            np.stack([np.asarray(shard) for shard in shards])
            for shards in results.disassemble_into_single_device_arrays()
        ]


def main():
    for network in ("critic", "generator"):
        one, slices = updates_of_one(network), updates_of_slice(network)
        largest = max(np.abs(update).max() for update in one)
        apart = max(np.abs(mine - theirs).max() for mine, theirs in zip(slices, one, strict=True))
        print(json.dumps({"network": network, "update": float(largest), "apart": float(apart)}))


if __name__ == "__main__":
    main()
