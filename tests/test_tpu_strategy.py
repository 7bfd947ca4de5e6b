"""Tests of training under the real TPUStrategy, without a TPU; see tpu_strategy.py."""

import pytest
import tensorflow as tf
from conftest import (
    TINY,
    make_loop,
    make_replica_step,
    make_state,
    open_data,
    resolved,
    strategy_over,
)
from tpu_strategy import executing, make_tpu_strategy

from wgan_gp.config import Config
from wgan_gp.data.pipeline import distributed_batches

CORES = 4


def train_terms(strategy):
    """Returns the terms of five iterations of a tiny run."""
    config = resolved(Config(**TINY))
    state = make_state(config, strategy)
    loop = make_loop(make_replica_step(config, state), strategy, n_critic=config.n_critic)
    batches = distributed_batches(open_data(config), strategy, 0, batch_size=config.batch_size)
    terms, _, _ = loop(batches, tf.constant(5, tf.int64))
    return {name: float(value) for name, value in terms.items()}


def test_training_on_cores_equals_training_on_mirrored_devices():
    strategy = make_tpu_strategy(CORES)
    with executing(strategy):
        terms = train_terms(strategy)
    assert terms == pytest.approx(train_terms(strategy_over(CORES)), rel=1e-5)
