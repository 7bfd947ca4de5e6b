"""The faults of TensorFlow, Keras and tensorflow-datasets, with and without their patches.

A test that fails without its patch shows that the patch is no longer needed: delete both.
"""

import os
import subprocess
import sys

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
