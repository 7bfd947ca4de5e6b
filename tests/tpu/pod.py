"""The controller of a small TPU pod, for test_tpu_strategy.py, in a process of its own.

    python -m tests.tpu.pod ADDRESS ADDRESS

Trains over gRPC on the CPU devices of the machines at these addresses, which act as cores, and
prints the terms of the objective as JSON.
"""

import json
import sys

import tensorflow as tf

import tests.conftest  # noqa: F401  (eight logical CPU devices)
from tests.helpers.runs import TINY, make_replica_step, make_state, open_loop, resolved
from tests.helpers.tpu_strategy import executing, tpu_strategy_over
from wgan_gp.config import Config

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
    """Returns the terms of two loops of a tiny run."""
    config = resolved(Config(**TINY))
    state = make_state(config, strategy)
    loop, elements = open_loop(config, strategy, make_replica_step(config, state))
    count = tf.constant(config.steps_per_loop, tf.int64)
    with executing(strategy):
        results = [loop(elements, count).terms for _ in range(2)]
    return [{name: float(value) for name, value in terms.items()} for terms in results]


if __name__ == "__main__":
    print(json.dumps(train(connect(sys.argv[1:]))))
