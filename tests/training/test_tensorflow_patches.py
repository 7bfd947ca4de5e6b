"""The faults of TensorFlow, Keras and tensorflow-datasets, with and without their patches.

A test that fails without its patch shows that the patch is no longer needed: delete both.
"""

import contextlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

from tests.helpers.runs import strategy_over
from wgan_gp.runtime import tensorflow_patches


@pytest.mark.parametrize("patched", [False, True])
def test_tensorflow_copies_elements_to_replicas_with_autotuning(monkeypatch, patched):
    create, options = multi_device_iterator_ops._create_device_dataset, []

    def record(*args, **kwargs):
        options.append(create(*args, **kwargs).options())
        return create(*args, **kwargs)

    def record_patched(*args, **kwargs):
        dataset = recorded(*args, **kwargs)
        options.append(dataset.options())
        return dataset

    monkeypatch.setattr(multi_device_iterator_ops, "_create_device_dataset", record)
    dataset = tf.data.Dataset.range(4)
    if not patched:
        iter(strategy_over(2).distribute_datasets_from_function(lambda _: dataset))
    else:
        with tensorflow_patches.no_autotune_of_copies():
            recorded = multi_device_iterator_ops._create_device_dataset
            multi_device_iterator_ops._create_device_dataset = record_patched
            iter(strategy_over(2).distribute_datasets_from_function(lambda _: dataset))
        assert multi_device_iterator_ops._create_device_dataset is record
    assert (options[-1].autotune.enabled is False) == patched


class FirstValue(tf.keras.Model):
    """A model without layers, whose history is the value of each batch."""

    def call(self, inputs):
        return inputs

    def train_step(self, data):
        return {"value": tf.reduce_min(data[0])}


class PatchedFirstValue(tensorflow_patches.NoSymbolicBuild, FirstValue):
    pass


@pytest.mark.parametrize("kind", [FirstValue, PatchedFirstValue])
def test_keras_discards_a_batch_of_an_iterator_under_a_strategy(kind):
    with strategy_over(2).scope():
        model = kind()
        model.compile()
    batches = iter([(np.full([2, 1], value, np.float32),) for value in range(99)])
    spec = (tf.TensorSpec([2, 1], tf.float32),)
    dataset = tf.data.Dataset.from_generator(lambda: batches, output_signature=spec)
    history = model.fit(dataset, steps_per_epoch=1, verbose=0)
    assert (history.history["value"] == [0]) == (kind is PatchedFirstValue)


@pytest.mark.parametrize(("patched", "factor"), [(False, 3), (True, 1)])
def test_keras_sums_activity_regularizers_over_the_batch(patched, factor):
    layer = tf.keras.layers.Identity(activity_regularizer=tf.reduce_sum)
    losses = []

    def loss_of(examples):
        losses.clear()
        if patched:
            with tensorflow_patches.redirected_losses([layer], losses.append):
                layer(examples)
        else:
            layer(examples)
            losses.extend(layer.losses)
        return float(losses[0])

    assert loss_of(tf.ones([1, 2])) == 2
    assert loss_of(tf.ones([3, 2])) == 2 * factor
    assert layer.activity_regularizer is tf.reduce_sum and "add_loss" not in vars(layer)


@pytest.mark.parametrize("patched", [False, True])
def test_keras_replaces_the_losses_of_a_replica_that_waits_by_those_of_another(patched):
    layer = tf.keras.layers.Identity(activity_regularizer=tf.reduce_sum)
    found, of_thread = {}, {}

    def step():
        replica = tf.distribute.get_replica_context()
        own = float(replica.replica_id_in_sync_group)
        layer(tf.fill([1, 1], own))
        replica.merge_call(lambda strategy: None)  # as synchronized batch normalization does
        losses = [of_thread[threading.get_ident()]] if patched else layer.losses
        found[own] = [float(loss) for loss in losses]

    strategy, patch = strategy_over(2), contextlib.nullcontext()
    if patched:
        patch = tensorflow_patches.redirected_losses(
            [layer], lambda loss: of_thread.update({threading.get_ident(): loss})
        )
    with patch:
        strategy.run(step)
    assert (found == {0.0: [0.0], 1.0: [1.0]}) == patched


@pytest.mark.parametrize("patched", [False, True])
def test_downloads_of_tensorflow_datasets_have_no_timeout(monkeypatch, patched):
    from tensorflow_datasets.core.download import downloader  # noqa: PLC0415

    timeouts = []

    def send(adapter, request, stream=False, timeout=None, **given):
        timeouts.append(timeout)
        raise requests.ConnectionError("no network")

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    if patched:
        tensorflow_patches.limit_requests.__wrapped__()
    with (
        pytest.raises(requests.ConnectionError),
        downloader._open_url("https://example.org", verify=True),
    ):
        pass
    assert timeouts == [tensorflow_patches.DOWNLOAD_TIMEOUTS if patched else None]


_COMPILED = """
import tensorflow as tf
from wgan_gp.runtime import tensorflow_patches

@tf.function(jit_compile=True, autograph=False)
def double(x):
    return 2 * x

if {patched}:
    tensorflow_patches.hide_information_of_xla()
double(tf.ones([2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("patched", "level"), [(False, "3"), (True, "3"), (True, "0")])
def test_xla_announces_its_first_program_whatever_the_level_of_the_log(patched, level):
    done = subprocess.run(
        [sys.executable, "-c", _COMPILED.format(patched=patched)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=True,
    )
    if patched and level == "3":
        assert done.stderr == ""
    else:
        assert "before absl::InitializeLog()" in done.stderr
        assert "Compiled cluster using XLA!" in done.stderr
