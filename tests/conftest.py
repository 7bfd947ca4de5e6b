"""Shared fixtures and helpers; all tests have eight logical CPU devices.

The devices are configured here, before TensorFlow's context starts.
"""

import atexit
import dataclasses
import functools
import gc
import os
import tempfile
import types
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in train.py, before TensorFlow is imported

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import train
from wgan_gp.app import build, run, training
from wgan_gp.app.library import Library, bundled_library
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.data.datasets import Dataset, find_dataset
from wgan_gp.data.source import InMemoryData, StreamedData
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.devices import Devices, connect
from wgan_gp.runtime.log import show_log_lines
from wgan_gp.training import probe
from wgan_gp.training.host_loop import make_host_loop
from wgan_gp.training.loop import TrainLoop
from wgan_gp.training.state import TrainState
from wgan_gp.training.step import ReplicaStep
from wgan_gp.writers.writer import MemoryWriter

show_log_lines()
tf.config.set_visible_devices([], "GPU")  # bit-exact results hold on the CPU only
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
)

# TensorFlow creates millions of objects, and garbage collection of them took a sixth of the time
# of all tests. Objects that exist now are therefore excluded from collection.
gc.freeze()
gc.set_threshold(100_000, 50, 100)

# The diagnostics of the critic are of 256 examples, which are 16 batches of TINY.
PROBED_EXAMPLES = probe.EXAMPLES
probe.EXAMPLES = 32

# The settings are so small that tracing takes most of the time of a run. Points take half the
# time of images, and a second hidden layer would add a third.
TINY = {
    "dataset": "swiss_roll",
    "model": "mlp",
    "model_width": 4,
    "model_depth": 1,
    "latent_size": 8,
    "batch_size": 16,
    "n_critic": 2,
    "steps_per_loop": 5,
}
DCGAN = {"dataset": "digits", "model": "dcgan"}


LIBRARY = bundled_library()


def library_with(build_networks) -> Library:
    """Returns the library with another function in place of models.build."""
    models = types.SimpleNamespace(**{**vars(LIBRARY.models), "build": build_networks})
    return dataclasses.replace(LIBRARY, models=models)


def strategy_over(replicas: int) -> tf.distribute.Strategy:
    return connect(Config(cpu_replicas=replicas, batch_size=replicas)).strategy


def resolved(config: Config) -> Config:
    return resolve(config, LIBRARY.models)[0]


def open_run(config: Config, library: Library = LIBRARY) -> run.Run:
    return run.open_run(*resolve(config, library.models), library)


def make_state(config: Config, strategy: tf.distribute.Strategy) -> TrainState:
    config, dataset = resolve(config, LIBRARY.models)
    devices = Devices(strategy, SINGLE_PROCESS, "CPU")
    return build.make_state(config, devices, dataset.spec, LIBRARY.models)


def make_replica_step(config: Config, state: TrainState) -> ReplicaStep:
    config, dataset = resolve(config, LIBRARY.models)
    return build.make_step(config, state, dataset.spec, LIBRARY)


def make_loop(
    step: ReplicaStep,
    strategy: tf.distribute.Strategy,
    *,
    n_critic: int,
    jit_compile: bool = False,
    reduce_over_replicas=LIBRARY.losses.reduce_over_replicas,
) -> TrainLoop:
    """Returns the host loop with another number of critic steps."""
    optimization = dataclasses.replace(step.optimization, n_critic=n_critic)
    return make_host_loop(
        dataclasses.replace(step, optimization=optimization),
        strategy,
        jit_compile=jit_compile,
        reduce_over_replicas=reduce_over_replicas,
    )


def open_loop(
    config: Config, strategy: tf.distribute.Strategy, step: ReplicaStep, first_step: int = 0
) -> tuple[TrainLoop, Iterator]:
    """Returns the loop that a strategy runs by default, and its input from a critic step on."""
    loop, open_input = build.make_loop(
        config,
        Devices(strategy, SINGLE_PROCESS, "CPU"),
        open_data(config),
        step,
        LIBRARY.losses.reduce_over_replicas,
    )
    return loop, open_input(first_step)


def train_config(config: Config, **options) -> int | None:
    """Trains as the program does, and returns the signal that stopped training, or None."""
    return training.train(*resolve(config, LIBRARY.models), LIBRARY, **options).stopped_by


def find_data(config: Config) -> Dataset:
    """Finds the dataset of a run, as training does."""
    return find_dataset(config, conditioning=config.conditioning, devices=config)


def open_data(config: Config) -> InMemoryData | StreamedData:
    """Opens the dataset of a run, as training does."""
    return find_data(config).open(batch_size=config.batch_size)


def train_tiny(model_dir, library: Library = LIBRARY, **settings) -> tuple[run.Run, MemoryWriter]:
    """Trains a tiny run to its end and returns the run and its writer."""
    config = Config(model_dir=str(model_dir), **{**TINY, **settings})
    tiny, writer = open_run(config, library), MemoryWriter()
    assert training.make_trainer(tiny, writers=[writer]).run() is None
    return tiny, writer


@functools.cache
def lean_path() -> str:
    """Returns a folder for PYTHONPATH that saves a quarter of the import of TensorFlow.

    TensorFlow imports these packages if it finds them. Only development installs them.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    for name in ("jax", "matplotlib"):
        with open(f"{folder.name}/{name}.py", "w") as file:
            file.write("raise ImportError\n")
    return folder.name


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
