"""Shared fixtures and helpers; all tests have eight logical CPU devices.

The devices are configured here, before TensorFlow's context starts.
"""

import dataclasses
import functools
import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in train.py, before TensorFlow is imported

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import train
from wgan_gp.config import Config
from wgan_gp.monitoring import MemoryWriter
from wgan_gp.strategy import connect

tf.config.set_visible_devices([], "GPU")  # bit-exact results hold on the CPU only
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
)

# TensorFlow creates millions of objects, and garbage collection of them took a sixth of the time
# of all tests. Objects that exist now are therefore excluded from collection.
gc.freeze()
gc.set_threshold(100_000, 50, 100)

# The settings are so small that tracing takes most of the time of a run. Points take half the
# time of images.
TINY = {
    "dataset": "swiss_roll",
    "model": "mlp",
    "model_width": 4,
    "latent_size": 8,
    "batch_size": 16,
    "n_critic": 2,
    "steps_per_loop": 5,
}
DCGAN = {"dataset": "digits", "model": "dcgan"}


def strategy_over(replicas: int) -> tf.distribute.Strategy:
    return connect(Config(cpu_replicas=replicas, batch_size=replicas)).strategy


def train_tiny(model_dir, **settings) -> tuple[train.Run, MemoryWriter]:
    """Trains a tiny run to its end and returns the run and its writer."""
    config = Config(model_dir=str(model_dir), **{**TINY, **settings})
    run, writer = train.open_run(config), MemoryWriter()
    assert train.make_trainer(run, writer).run() is None
    return run, writer


def call_main(*arguments) -> int:
    """Runs the program in this process and returns its exit status."""
    try:
        return train.main(["train.py", *arguments])
    finally:
        for field in dataclasses.fields(Config):
            if field.name in absl_flags.FLAGS:
                delattr(absl_flags.FLAGS, field.name)


@pytest.fixture(params=["eager", "graph", "xla"])
def compute(request):
    """Returns a decorator that runs a function eagerly, in a tf.function, or compiled by XLA."""
    return {
        "eager": lambda function: function,
        "graph": tf.function,
        "xla": functools.partial(tf.function, jit_compile=True),
    }[request.param]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Returns a folder of small prepared datasets with the names of MNIST and CIFAR-10."""
    # The import takes seconds, and few tests need it.
    import tensorflow_datasets  # noqa: PLC0415

    folder = str(tmp_path_factory.mktemp("prepared"))
    for name, shape in (("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))):
        random = np.random.default_rng(0)
        splits = {
            split: tf.data.Dataset.from_tensor_slices(
                {
                    "image": random.integers(0, 256, (count, *shape)).astype(np.uint8),
                    "label": np.arange(count) % 10,
                    "id": [str(index) for index in range(count)],
                }
            )
            for split, count in (("train", 60), ("test", 20))
        }
        tensorflow_datasets.dataset_builders.store_as_tfds_dataset(
            name=name,
            version=str(tensorflow_datasets.builder_cls(name).VERSION),
            features=tensorflow_datasets.features.FeaturesDict(
                {
                    "image": tensorflow_datasets.features.Image(shape=shape),
                    "label": tensorflow_datasets.features.ClassLabel(num_classes=10),
                    "id": tensorflow_datasets.features.Text(),
                }
            ),
            split_datasets=splits,
            data_dir=folder,
            disable_shuffling=True,
        )
    return folder


@pytest.fixture(autouse=True)
def _same_weights_every_time():
    tf.keras.utils.set_random_seed(0)
