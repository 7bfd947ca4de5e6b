"""The devices of a run with --runtime=pjrt."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Sequence

import jax
import tensorflow as tf

from ..config import DeviceSettings
from ..errors import UserError, reason
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices
from ..runtime.tpu_machine import installed_versions
from . import CUDA_PLUGINS, INSTALL_TPU, client, has_nvidia_gpu, processes, programs_folder
from .functions import JaxStrategy


def connect(settings: DeviceSettings) -> Devices:
    """Returns the TPU cores, the GPUs or the CPU replicas that the settings select.

    The variables of the networks are on the CPU, with a strategy of one replica. The first device
    of this process computes what the hooks need; see `functions.JaxStrategy`.

    Raises:
      UserError: If jax does not have the devices, or the other processes do not start in time.
    """
    _leave_tpu_alone(settings)
    keep_programs()
    peers = processes.connect(settings)
    platform, devices = _find(settings)
    if peers is None and jax.process_count() > 1:
        raise UserError(
            "this TPU has several machines, which did not find each other",
            "start the same command on all of them",
        )
    return Devices(
        _make_strategy(platform),
        SINGLE_PROCESS if peers is None else peers.cluster,
        platform,
        tuple(devices),
        peers,
    )


def connect_for_inference(settings: DeviceSettings) -> Devices:
    """Returns the first TPU core or GPU of this machine, or its CPU, for the use of a saved run.

    The TPU of a slice of several machines is not used, because all would have to call it.

    Raises:
      UserError: If jax cannot use the device.
    """
    _leave_tpu_alone(settings)
    keep_programs()
    platform = "CPU"
    is_pod = settings.tpu is not None and processes.find_pod().has_peers
    if settings.cpu_replicas == 1 and not is_pod:
        platform, _ = _find(dataclasses.replace(settings, tpu_cores=None))
    return Devices(_make_strategy(platform), SINGLE_PROCESS, platform)


def _make_strategy(platform: str) -> tf.distribute.Strategy:
    """Returns the strategy of everything but the loop. TensorFlow is faster than jax on a CPU."""
    with contextlib.suppress(RuntimeError):  # this process has used TensorFlow before
        tf.config.set_visible_devices([], "GPU")  # TensorFlow would take all of its memory
    if platform == "CPU":
        return tf.distribute.OneDeviceStrategy("CPU:0")
    return JaxStrategy(jax.local_devices(backend=platform.lower())[0])


def keep_programs() -> None:
    """Keeps compiled programs in the cache folder of the user, for later starts.

    jax has settings of its own for this, as environment variables, which take precedence:
    JAX_COMPILATION_CACHE_DIR, and JAX_ENABLE_COMPILATION_CACHE=false to keep none.
    """
    if jax.config.jax_compilation_cache_dir is None and (folder := programs_folder()) is not None:
        jax.config.update("jax_compilation_cache_dir", folder)


def _leave_tpu_alone(settings: DeviceSettings) -> None:
    """Makes jax use no TPU without --tpu, which takes long and excludes other processes from it."""
    if settings.tpu is not None or "JAX_PLATFORMS" in os.environ:
        return
    uses_gpu = settings.cpu_replicas == 1 and has_nvidia_gpu() and installed_versions(CUDA_PLUGINS)
    if uses_gpu:
        jax.config.update("jax_platforms", "cuda,cpu")
    elif settings.cpu_replicas > 1 or installed_versions(["libtpu"]):
        jax.config.update("jax_platforms", "cpu")


def _find(settings: DeviceSettings) -> tuple[str, list[jax.Device]]:
    """Returns the platform and its devices, those of the first process first."""
    if settings.tpu is not None:
        remedy = f"run it on a TPU VM; if libtpu is missing, {INSTALL_TPU}"
        cores = _devices("tpu", "--tpu=local", remedy)
        count = settings.tpu_cores or len(cores)
        if count > len(cores):
            raise UserError(f"--tpu_cores={count}, but this machine has {len(cores)}", "give fewer")
        if count < len(cores) and jax.process_count() > 1:
            raise UserError(
                f"--tpu_cores={count} requires a single machine, but the TPU has "
                f"{jax.process_count()}",
                "omit it",
            )
        return "TPU", cores[:count]
    if settings.cpu_replicas == 1:
        try:
            return "GPU", _in_order(jax.devices("gpu"))
        except RuntimeError as error:
            if has_nvidia_gpu() and installed_versions(CUDA_PLUGINS):
                raise UserError(
                    f"jax cannot use the GPU of this machine ({reason(error)})",
                    "start a new process, update the driver of the GPU, or set "
                    "CUDA_VISIBLE_DEVICES=-1 to train on the CPU",
                ) from error
            return "CPU", _cpu_replicas(jax.devices("cpu"), 1)
    count = settings.cpu_replicas
    if jax.config.jax_num_cpu_devices < count:
        with contextlib.suppress(RuntimeError):  # jax has made its devices already
            jax.config.update("jax_num_cpu_devices", count)
    devices = _cpu_replicas(_devices("cpu", f"--cpu_replicas={count}", "install jax"), count)
    if len(devices) < count * jax.process_count():
        raise UserError(
            f"--cpu_replicas={count} cannot be set up after this process used jax",
            "start a new process, and train before anything else uses jax",
        )
    return "CPU", devices


def _cpu_replicas(devices: Sequence[jax.Device], count: int) -> list[jax.Device]:
    """Returns the first `count` devices of each process."""
    return [
        device
        for _, own in itertools.groupby(_in_order(devices), lambda each: each.process_index)
        for device in itertools.islice(own, count)
    ]


def _in_order(devices: Sequence[jax.Device]) -> list[jax.Device]:
    """Returns devices in the order in which the processes read the parts of a global batch."""
    return sorted(devices, key=lambda each: (each.process_index, each.id))


def _devices(platform: str, flag: str, remedy: str) -> list[jax.Device]:
    try:
        return _in_order(jax.devices(platform))
    except (RuntimeError, client.RuntimeFailure) as error:
        raise UserError(
            f"jax cannot use the devices of {flag} ({reason(error)})", remedy
        ) from error
