"""The devices of a run with --runtime=pjrt."""

from __future__ import annotations

import contextlib

import jax
import tensorflow as tf

from ..config import Config
from ..errors import UserError, reason
from ..runtime.cluster import SINGLE_PROCESS
from ..runtime.devices import Devices
from ..runtime.tpu_machine import installed_versions
from . import CUDA_PLUGINS, INSTALL_TPU, client, has_nvidia_gpu, programs_folder


def connect(config: Config) -> Devices:
    """Returns the TPU cores, the GPUs or the CPU replicas that the configuration selects.

    The networks and everything outside the loop are on the CPU, with a strategy of one replica.

    Raises:
      UserError: If jax does not have the devices, or the batch sizes do not fit their number.
    """
    if config.tpu is None and config.cpu_replicas > 1:
        jax.config.update("jax_platforms", "cpu")  # does not touch a TPU that another process uses
    keep_programs()
    platform, devices = _find(config)
    config.check_replicas(len(devices))
    with contextlib.suppress(RuntimeError):  # this process has used TensorFlow before
        tf.config.set_visible_devices([], "GPU")  # TensorFlow would take all of its memory
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    return Devices(strategy, SINGLE_PROCESS, platform, tuple(devices))


def keep_programs() -> None:
    """Keeps compiled programs in the cache folder of the user, for later starts.

    jax has settings of its own for this, as environment variables, which take precedence:
    JAX_COMPILATION_CACHE_DIR, and JAX_ENABLE_COMPILATION_CACHE=false to keep none.
    """
    if jax.config.jax_compilation_cache_dir is None and (folder := programs_folder()) is not None:
        jax.config.update("jax_compilation_cache_dir", folder)


def _find(config: Config) -> tuple[str, list[jax.Device]]:
    """Returns the platform and its devices."""
    if config.tpu is not None:
        remedy = f"run it on a TPU VM; if libtpu is missing, {INSTALL_TPU}"
        cores = _devices("tpu", "--tpu=local", remedy)
        count = config.tpu_cores or len(cores)
        if count > len(cores):
            raise UserError(f"--tpu_cores={count}, but this machine has {len(cores)}", "give fewer")
        return "TPU", cores[:count]
    if config.cpu_replicas == 1:
        try:
            return "GPU", jax.devices("gpu")
        except RuntimeError as error:
            if has_nvidia_gpu() and installed_versions(CUDA_PLUGINS):
                raise UserError(
                    f"jax cannot use the GPU of this machine ({reason(error)})",
                    "start a new process, update the driver of the GPU, or set "
                    "CUDA_VISIBLE_DEVICES=-1 to train on the CPU",
                ) from error
            return "CPU", jax.devices("cpu")[:1]
    count = config.cpu_replicas
    if jax.config.jax_num_cpu_devices < count:
        with contextlib.suppress(RuntimeError):  # jax has made its devices already
            jax.config.update("jax_num_cpu_devices", count)
    devices = _devices("cpu", f"--cpu_replicas={count}", "install jax")
    if len(devices) < count:
        raise UserError(
            f"--cpu_replicas={count} cannot be set up after this process used jax",
            "start a new process, and train before anything else uses jax",
        )
    return "CPU", devices[:count]


def _devices(platform: str, flag: str, remedy: str) -> list[jax.Device]:
    try:
        return jax.devices(platform)
    except (RuntimeError, client.RuntimeFailure) as error:
        raise UserError(
            f"jax cannot use the devices of {flag} ({reason(error)})", remedy
        ) from error
