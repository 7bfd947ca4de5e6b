"""The controller of a small TPU pod, for test_tpu_strategy.py, in a process of its own.

    python pod.py ADDRESS ADDRESS

Trains over gRPC on the CPU devices of the machines at these addresses, which act as cores, and
prints the terms of the objective as JSON.
"""

import json
import sys

import tensorflow as tf
from conftest import TINY, make_loop, make_replica_step, make_state, open_data, resolved
from tpu_strategy import executing, tpu_strategy_over

from wgan_gp.config import Config
from wgan_gp.data.pipeline import distributed_batches

CORES_PER_MACHINE = 2


def connect(addresses):
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": addresses}))
    devices = [
        f"/job:worker/replica:0/task:{machine}/device:CPU:{core}"
        for machine in range(len(addresses))
        for core in range(CORES_PER_MACHINE)
    ]
    return tpu_strategy_over(devices, hosts=len(addresses))


def train(strategy):
    """Returns the terms of two device loops of a tiny run."""
    config = resolved(Config(**TINY))
    state = make_state(config, strategy)
    loop = make_loop(make_replica_step(config, state), strategy, n_critic=config.n_critic)
    batches = distributed_batches(open_data(config), strategy, 0, batch_size=config.batch_size)
    count = tf.constant(config.steps_per_loop, tf.int64)
    with executing(strategy):
        results = [loop(batches, count)[0] for _ in range(2)]
    return [{name: float(value) for name, value in terms.items()} for terms in results]


if __name__ == "__main__":
    print(json.dumps(train(connect(sys.argv[1:]))))
