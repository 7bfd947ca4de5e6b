"""Which devices to train on: a TPU, several GPUs, one device, or CPU replicas."""

from collections.abc import Callable

import tensorflow as tf

from . import onednn, workers
from .config import Config
from .deadline import deadline, end_program
from .errors import UserError


def create_strategy(config: Config) -> tf.distribute.Strategy:
    """The strategy that the configuration and the machine ask for.

    Call it before anything else touches TensorFlow's devices: CPU replicas must be set
    up before its context starts.

    Raises:
      UserError: the TPU cannot be reached, or the batch does not divide over its cores.
    """
    group = workers.find(config)
    if config.tpu is not None:
        strategy = connect_tpu(
            config.tpu,
            zone=config.tpu_zone,
            project=config.tpu_project,
            timeout=config.start_timeout,
        )
    elif group is not workers.ALONE:
        if config.cpu_replicas > 1:
            raise UserError(
                f"--cpu_replicas={config.cpu_replicas} rehearses on one machine, but TF_CONFIG "
                "names several",
                "leave it out, or unset TF_CONFIG",
            )
        strategy = workers.connect(group, config)
    elif config.cpu_replicas > 1:
        strategy = mirror_cpu(config.cpu_replicas)
    else:
        gpus = tf.config.get_visible_devices("GPU")
        strategy = (
            tf.distribute.MirroredStrategy()
            if len(gpus) > 1
            else tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
        )
    config.check_replicas(strategy.num_replicas_in_sync)
    if _platform(config) == "CPU":
        onednn.warn_if_off()
    return strategy


def connect_tpu(
    name: str,
    *,
    zone: str | None = None,
    project: str | None = None,
    timeout: float = 600,
    end: Callable[[str], None] = end_program,
    resolver: Callable = tf.distribute.cluster_resolver.TPUClusterResolver,
    connect: Callable = tf.config.experimental_connect_to_cluster,
    initialize: Callable = tf.tpu.experimental.initialize_tpu_system,
    strategy: Callable = tf.distribute.TPUStrategy,
) -> tf.distribute.Strategy:
    """A strategy over all cores of a TPU.

    Args:
      name: the TPU's name, its grpc:// address, or "local" on a TPU VM.
      zone, project: of a TPU given by its name; None: this machine's.
      timeout: seconds after which the program ends with a line that says what to look at.
      end: ends the program; a test puts its own in its place.
      resolver, connect, initialize, strategy: the four steps, in their order; a test puts
        its own in their place.

    Raises:
      UserError: no such TPU, or none that answers.
    """
    where = f"--zone={zone or 'ZONE'}" + (f" --project={project}" if project else "")
    gcloud = "gcloud compute tpus tpu-vm"
    remedy = (
        f"check the name with `{gcloud} list {where}` and that its state is READY; if it is and "
        f"does not answer, `{gcloud} stop {name} {where}` and `start`; use --tpu=local on a TPU "
        "VM, leave --tpu out to train on the CPU"
    )
    late = f"--tpu={name} did not answer within --start_timeout={timeout} seconds"
    try:
        with deadline(timeout, late, remedy, end=end):
            cluster = resolver(tpu=name, zone=zone, project=project)
            connect(cluster)
            initialize(cluster)
            return strategy(cluster)
    # TensorFlow raises anything here, from URLError to NotFoundError, by the step and
    # by the machine; each means that this TPU cannot be used.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"--tpu={name} cannot be reached ({type(error).__name__}: {reason})",
            remedy,
        ) from error


def mirror_cpu(replicas: int) -> tf.distribute.Strategy:
    """A mirrored strategy over `replicas` logical devices of this machine's CPU."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
        tf.config.set_visible_devices([], "GPU")  # a rehearsal on the CPU leaves GPUs alone
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        # The default, collective operations, is slower here, and ties the devices to one
        # group size for good: a second strategy in the process, of another size, fails.
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def use_jit(config: Config, strategy: tf.distribute.Strategy) -> bool:
    """Whether to ask XLA to compile the replica step.

    Never on a TPU: its program is compiled anyway, and asking would look for the CPU's
    compiler on the host, which is not linked there. Never over several mirrored replicas
    either: their gradients are summed by a merge call, which a compiled function cannot
    contain. Of the rest, `auto` compiles on a GPU, as XLA is usually faster there (not
    measured here), and not on a CPU, where every network here was slower compiled: compare
    the images/s of --jit_compile=on and off.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy) or strategy.num_replicas_in_sync > 1:
        return False
    if config.jit_compile == "auto":
        return bool(tf.config.get_visible_devices("GPU"))
    return config.jit_compile == "on"


def use_fused_resampling(config: Config) -> bool:
    """Whether the networks fuse convolutions with their resampling, which changes no number.

    `auto` does where it is known to be faster: on a TPU, by the compiler's estimate, and on a
    CPU, by the clock (docs/performance.md has both). On a GPU it is not measured.
    """
    if config.fused_resampling != "auto":
        return config.fused_resampling == "on"
    return _platform(config) != "GPU"


def use_strides_by_blocks(config: Config) -> bool:
    """Whether the networks convolve few channels with strides by blocks; no number changes.

    On a CPU, where it was measured faster. On a v5e a critic step of dcgan would take 4 to 7% more
    cycles, by the compiler's estimate.
    """
    return _platform(config) == "CPU"


def _platform(config: Config) -> str:
    """Where its steps run, or are compiled for."""
    if config.tpu is not None or config.mode == "compile":
        return "TPU"
    return "GPU" if tf.config.get_visible_devices("GPU") else "CPU"


def describe(strategy: tf.distribute.Strategy) -> str:
    """Such as "8 TPU replicas": what a user should see before hours of training."""
    device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
    replicas = strategy.num_replicas_in_sync
    return f"{replicas} {device.device_type} replica{'s' if replicas > 1 else ''}"
