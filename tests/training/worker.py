"""One of several processes that train together, for test_workers.py; saves its weights."""

import json
import time

import numpy as np
import tensorflow as tf

import wgan_gp
from tests.helpers.forks import end_interpreter
from tests.helpers.runs import held_in
from wgan_gp.app import program, training
from wgan_gp.config import Config
from wgan_gp.training.hooks import Hook
from wgan_gp.writers.writer import Writer


class Announce(Writer):
    def progress(self, step):
        print(f"after {step}", flush=True)


class Spoiler(Hook):
    """Makes a weight NaN after an iteration, also when the run has gone back to it."""

    def __init__(self, run, iteration):
        self.weight, self.iteration = run.state.critic.trainable_variables[0], iteration

    def begin(self, iteration):
        if iteration == self.iteration:
            self.weight.assign(tf.fill(self.weight.shape, float("nan")))

    def after_loop(self, loop):
        self.begin(loop.iteration)


def spoil_after(iteration):
    """Makes a weight of each run of this process NaN after an iteration."""
    make_trainer = training.make_trainer

    def make_spoiled(run, *, hooks, **options):
        return make_trainer(run, hooks=[*hooks, Spoiler(run, iteration)], **options)

    training.make_trainer = make_spoiled


def weights_of(state):
    variables = [
        *state.critic.variables,
        *state.generator.variables,
        *state.critic_optimizer.variables,
    ]
    return [np.array(tf.convert_to_tensor(variable)) for variable in variables]


def leave(argv):
    """Ends a process that has nothing more to compute, the first one before the other."""
    from wgan_gp.pjrt import processes  # noqa: PLC0415

    peers = processes.connect(Config(runtime="pjrt", batch_size=2))
    peers.gather([1])
    peers.end()
    if peers.cluster.index:
        time.sleep(float(argv[1]))
    return end_interpreter(0)


@program.with_exit_status
def main(argv):
    _, model_dir, weights, train_steps, given = argv
    more = json.loads(given)
    memory = more.pop("memory", "device")
    settings = {
        "model_width": 4,
        "model_depth": 1,
        "latent_size": 8,
        "batch_size": 16,
        "n_critic": 2,
        "steps_per_loop": 2,
        "checkpoint_interval": 2,
        "learning_rate_schedule": "constant",
        **more,
    }
    if "spoil_after" in settings:
        spoil_after(settings.pop("spoil_after"))
    config = Config(model_dir=model_dir, train_steps=int(train_steps), **settings)
    with held_in(memory):
        result = wgan_gp.train(config, writers=[Announce()])
    if result.stopped_by is not None:
        return 128 + result.stopped_by
    np.savez(weights, *weights_of(result.run.state))
    return end_interpreter(0)  # the servers of gRPC and jax end here, too
