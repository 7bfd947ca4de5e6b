"""Tiny settings, and functions that open, train and run them as the program does."""

import atexit
import contextlib
import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import flags as absl_flags

import losses
import models
import train
from wgan_gp.app import build, run, training
from wgan_gp.app.library import Library
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config, DataSettings
from wgan_gp.data import feed, loop_input
from wgan_gp.data.datasets import Dataset, find_dataset
from wgan_gp.data.feed import Examples
from wgan_gp.data.source import Source
from wgan_gp.data.sources import python
from wgan_gp.data.spec import DataSpec
from wgan_gp.run_directory.typed_json import load_dataclass, to_json
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.devices import Devices, connect
from wgan_gp.training.loop import TrainLoop, make_host_loop
from wgan_gp.training.state import TrainState
from wgan_gp.training.step import ReplicaStep
from wgan_gp.writers.writer import MemoryWriter

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


LIBRARY = Library()


def library_with(build_networks) -> Library:
    """Returns the library whose registry builds networks by another function."""

    class Replaced(models.Registry):
        build = staticmethod(build_networks)

    return dataclasses.replace(LIBRARY, models=Replaced(models.MODELS))


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
    reduce_over_replicas=losses.reduce_over_replicas,
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
    loop, open_input = make_default_loop(config, strategy, step)
    return loop, open_input(first_step)


def make_default_loop(
    config: Config, strategy: tf.distribute.Strategy, step: ReplicaStep
) -> tuple[TrainLoop, Callable[[int], Iterator]]:
    """Returns the loop that a strategy runs by default, and a function that opens its input."""
    return build.make_loop(
        config,
        Devices(strategy, SINGLE_PROCESS, "CPU"),
        open_data(config),
        step,
        losses.reduce_over_replicas,
    )


def train_config(config: Config, **options) -> int | None:
    """Trains as the program does, and returns the signal that stopped training, or None."""
    return training.train(*resolve(config, LIBRARY.models), LIBRARY, **options).stopped_by


def find_data(config: Config) -> Dataset:
    """Finds the dataset of a run, as training does."""
    return find_dataset(config, conditioning=config.conditioning, devices=config)


def open_data(config: Config) -> Examples:
    """Opens the dataset of a run, as training does."""
    return find_data(config).open(batch_size=config.batch_size)


def examples_of(stored, labels=None, settings=None, units=None, **options) -> Examples:
    """Returns examples `[N, ...]` as they are stored, in the order of training.

    Args:
      stored: The examples.
      labels: Their labels, or None.
      settings: The settings of the data.
      units: `Pixels` of levels, or None for numbers that are not changed.
      **options: See `Examples`.
    """
    classes = 0 if labels is None else int(np.max(labels)) + 1
    spec = DataSpec(stored.shape[1:], classes, pixels=units)
    source = Source("data", spec, stored.dtype, len(stored), stored.__getitem__, labels)
    return Examples(source, settings or DataSettings(), **options)


def train_tiny(model_dir, library: Library = LIBRARY, **settings) -> tuple[run.Run, MemoryWriter]:
    """Trains a tiny run to its end and returns the run and its writer."""
    config = Config(model_dir=str(model_dir), **{**TINY, **settings})
    tiny, writer = open_run(config, library), MemoryWriter()
    assert training.make_trainer(tiny, writers=[writer]).run() is None
    return tiny, writer


@contextlib.contextmanager
def device_loops(are_used: bool = True):
    """Runs all loops on the device or on the host, without XLA, which would round differently."""
    with mock.patch.object(Devices, "use_device_loop", return_value=are_used):
        yield


@contextlib.contextmanager
def held_in(memory: str):
    """Holds no data in memory ("off"), in that of the host ("on"), or also on the device."""
    limits = {
        "device": [],
        "on": [(loop_input, "MAX_CACHE_BYTES")],
        "off": [
            *((each, "MAX_CACHE_BYTES") for each in (loop_input, feed, python)),
            (feed, "MAX_SENT_BYTES"),
        ],
    }[memory]
    with contextlib.ExitStack() as stack:
        for module, name in limits:
            stack.enter_context(mock.patch.object(module, name, 0))
        yield


@contextlib.contextmanager
def without_tracing():
    """Runs functions without tracing them, which takes most of the time of a short training."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


@functools.cache
def lean_path() -> str:
    """Returns a folder for PYTHONPATH that saves a part of the import of TensorFlow.

    TensorFlow imports jax if it finds it. Only development installs it.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    with open(f"{folder.name}/jax.py", "w") as file:
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


def reread(saved: Any) -> Any:
    """Returns a frozen dataclass as it is read from a file that contains it."""
    return load_dataclass(type(saved), json.loads(json.dumps(to_json(saved))), "x.json", "")
