"""One of several processes that train together, for test_workers.py; saves its weights."""

import json
import sys

import numpy as np
import tensorflow as tf

import train
from wgan_gp.config import Config
from wgan_gp.monitoring import Writer


class Announce(Writer):
    def progress(self, step):
        print(f"after {step}", flush=True)


def weights_of(state):
    variables = [
        *state.critic.variables,
        *state.generator.variables,
        *state.critic_optimizer.variables,
    ]
    return [np.array(tf.convert_to_tensor(variable)) for variable in variables]


def main(model_dir, weights, train_steps, more):
    settings = {
        "model_width": 4,
        "latent_size": 8,
        "batch_size": 16,
        "n_critic": 2,
        "steps_per_loop": 2,
        "checkpoint_interval": 2,
        "learning_rate_schedule": "constant",
        **json.loads(more),
    }
    config = Config(model_dir=model_dir, train_steps=int(train_steps), **settings)
    # As train.main does, but for the weights.
    make_trainer = train.make_trainer
    kept = []

    def keep(run):
        kept.append(run)
        return make_trainer(run, Announce())

    train.make_trainer = keep
    train.flags.define = lambda: None
    train.flags.parse = lambda argv: config
    status = train.main([])
    if status == 0:
        np.savez(weights, *weights_of(kept[0].state))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
