"""The devices of a run: a TPU, one or several GPUs, several machines, or CPU replicas."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from ..config import DeviceSettings
from ..errors import UserError
from . import onednn
from .cluster import (
    SINGLE_PROCESS,
    Cluster,
    Peers,
    StrategyPeers,
    connect_cluster,
    find_cluster,
)
from .tensorflow_patches import hide_information_of_xla
from .tpu_connection import connect_tpu


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices on which a run trains.

    Attributes:
      strategy: The distribution strategy over all replicas.
      cluster: The processes that train together.
      platform: "TPU", "GPU" or "CPU", on which the steps run or for which they are compiled.
      chips: The devices of jax that run the loop, one for each replica, with --runtime=pjrt; else
        empty.
      peers: The connection to the other processes, if there are any.
    """

    strategy: tf.distribute.Strategy
    cluster: Cluster
    platform: str
    chips: tuple[Any, ...] = ()
    peers: Peers | None = None

    @property
    def replicas(self) -> int:
        """The number of replicas of all processes."""
        return len(self.chips) or self.strategy.num_replicas_in_sync

    def describe(self) -> str:
        """Returns a description for the user, such as "8 TPU replicas"."""
        if self.chips:
            return f"{_count(self.replicas, self.platform)} of jax ({self.chips[0].device_kind})"
        device = tf.DeviceSpec.from_string(self.strategy.extended.worker_devices[0])
        return _count(self.replicas, device.device_type)

    def use_jit(self, setting: str, *, is_faster_on_cpu: bool = False) -> bool:
        """Returns True if tf.function should compile the steps with XLA.

        TPUStrategy compiles its programs itself, and rejects functions that request compilation
        again. XLA cannot compile the updates of several replicas, because their gradients are
        summed in a merge call, which a compiled function cannot contain. Otherwise `auto` compiles
        on a GPU, where XLA is usually faster (not measured here), and on a CPU where it is known to
        be faster.

        Args:
          setting: The value of --jit_compile.
          is_faster_on_cpu: Whether XLA trains the networks of the run faster on a CPU.
        """
        if self.platform == "TPU" or self.replicas > 1:
            return False
        is_faster = self.platform == "GPU" or is_faster_on_cpu
        return setting == "on" or (setting == "auto" and is_faster)

    def use_device_loop(self, *, jit_compile: bool) -> bool:
        """Returns True if the loop should be a part of the program of each replica.

        With mirrored devices, an optimizer's update cannot be inside a loop of a replica. On a
        single device without XLA, both loops launch the same operations.

        Args:
          jit_compile: Whether XLA compiles the program of a single device; see `use_jit`.
        """
        return isinstance(self.strategy, tf.distribute.TPUStrategy) or jit_compile

    @property
    def fuses_resampling(self) -> bool:
        """True if the networks should fuse convolutions with resampling.

        Fusing does not change the function that a network computes. They do where this is known to
        be faster: on a TPU, by the compiler's estimate, and on a CPU, by measurement (see
        docs/performance.md for both); not on a GPU, where it was not measured.
        """
        return self.platform != "GPU"


def default_device(platform: str) -> Devices:
    """Returns the device that TensorFlow uses without a distribution strategy."""
    return Devices(tf.distribute.get_strategy(), SINGLE_PROCESS, platform)


def _count(replicas: int, device: str) -> str:
    return f"{replicas} {device} replica{'s' if replicas > 1 else ''}"


def connect(settings: DeviceSettings) -> Devices:
    """Connects to the devices that the settings select.

    Call it before anything else uses TensorFlow's devices: CPU replicas must be configured
    before TensorFlow's context starts.

    Raises:
      UserError: If the TPU or another process cannot be reached, or the flags contradict
        TF_CONFIG.
    """
    hide_information_of_xla()
    cluster, peers = find_cluster(settings), None
    if settings.tpu is not None:
        strategy = connect_tpu(settings)
    elif cluster.has_peers:
        if settings.cpu_replicas > 1:
            raise UserError(
                f"--cpu_replicas={settings.cpu_replicas} requires a single machine, but TF_CONFIG "
                "names several",
                "omit it, or unset TF_CONFIG",
            )
        strategy = connect_cluster(cluster)
        peers = StrategyPeers(strategy)
    elif settings.cpu_replicas > 1:
        strategy = mirror_cpu(settings.cpu_replicas)
    else:
        gpus = tf.config.get_visible_devices("GPU")
        strategy = (
            tf.distribute.MirroredStrategy()
            if len(gpus) > 1
            else tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
        )
    devices = Devices(strategy, cluster, find_platform(settings), peers=peers)
    if devices.platform == "CPU":
        onednn.warn_if_off()
    return devices


def has_gpu() -> bool:
    """Returns True if TensorFlow can use a GPU of this machine."""
    return bool(tf.config.get_visible_devices("GPU"))


def find_platform(settings: DeviceSettings) -> str:
    """Returns the platform on which the steps run."""
    if settings.tpu is not None:
        return "TPU"
    return "GPU" if has_gpu() else "CPU"


def mirror_cpu(replicas: int) -> tf.distribute.Strategy:
    """Returns a mirrored strategy over `replicas` logical devices of this machine's CPU.

    Raises:
      UserError: If this process has already used TensorFlow with a single device.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    known = tf.config.get_logical_device_configuration(cpu)
    if known is None or len(known) < replicas:
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
            )
        except RuntimeError as error:
            raise UserError(
                f"--cpu_replicas={replicas} cannot be set up after this process used TensorFlow",
                "start a new process, and train before anything else uses TensorFlow",
            ) from error
        tf.config.set_visible_devices([], "GPU")  # training on CPU replicas must not use GPUs
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        # The default, collective operations, is slower here. It also binds the devices to one
        # group size: a second strategy of another size in the same process fails.
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
