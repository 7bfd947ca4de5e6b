"""The connection to a TPU, with a time limit."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

import tensorflow as tf

from ..config import DeviceSettings
from ..errors import UserError
from . import tpu_machine
from .cluster import START_SECONDS
from .tpu_errors import explain, unresponsive_error


def end_program(error: UserError) -> None:
    """Prints an error and ends the program with status 2, even if a thread waits in TensorFlow."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    os._exit(2)  # sys.exit would not end such a thread


@contextlib.contextmanager
def deadline(seconds: float, error: UserError) -> Iterator[None]:
    """Ends the program with an error if the code inside takes longer than `seconds`."""
    timer = threading.Timer(seconds, lambda: end_program(error))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def connect_tpu(settings: DeviceSettings, seconds: float = START_SECONDS) -> tf.distribute.Strategy:
    """Connects to a TPU and returns a strategy over its cores.

    If it takes longer than `seconds`, the program ends with an error message.

    Args:
      settings: The TPU, and the number of its cores, by default all.
      seconds: The time limit.

    Raises:
      UserError: If the TPU does not exist, cannot be reached or has too few cores.
    """
    if settings.tpu == "local":
        tpu_machine.check()
    try:
        with deadline(seconds, unresponsive_error(settings, seconds)):
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(**settings.place_of_tpu)
            tf.config.experimental_connect_to_cluster(resolver)
            topology = tf.tpu.experimental.initialize_tpu_system(resolver)
            return tf.distribute.TPUStrategy(
                resolver, experimental_device_assignment=assign_cores(topology, settings)
            )
    except UserError:
        raise
    # TensorFlow raises many types of exceptions here, from URLError to NotFoundError, depending
    # on the step and the machine. Each means that this TPU cannot be used.
    except Exception as error:
        raise explain(error, settings) from error


def assign_cores(
    topology: tf.tpu.experimental.Topology, settings: DeviceSettings
) -> tf.tpu.experimental.DeviceAssignment | None:
    """Returns one core for each replica of --tpu_cores, or None for all cores.

    Raises:
      UserError: If the TPU has fewer cores.
    """
    if settings.tpu_cores is None:
        return None
    available = topology.num_tasks * topology.num_tpus_per_task
    if settings.tpu_cores > available:
        raise UserError(
            f"--tpu_cores={settings.tpu_cores}, but --tpu={settings.tpu} has {available} "
            f"core{'s' if available > 1 else ''}",
            f"give at most {available}, or omit it to use all cores",
        )
    return tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=settings.tpu_cores)
