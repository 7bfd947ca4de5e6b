"""Distribution strategies for a TPU, one or several GPUs, several machines, and CPU replicas."""

from collections.abc import Callable

import tensorflow as tf

from . import onednn, workers
from .config import Config
from .deadline import deadline, end_program
from .errors import UserError


def create_strategy(config: Config) -> tf.distribute.Strategy:
    """Returns the strategy for the configuration and the available devices.

    Call it before anything else uses TensorFlow's devices: CPU replicas must be configured
    before TensorFlow's context starts.

    Raises:
      UserError: If the TPU or another process cannot be reached, the flags contradict TF_CONFIG,
        or the run does not fit the number of replicas.
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
                "omit it, or unset TF_CONFIG",
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
    """Connects to a TPU and returns a strategy over all its cores.

    Args:
      name: The TPU's name, its grpc:// address, or "local" on a TPU VM.
      zone: The zone of a TPU given by its name. Defaults to this machine's zone.
      project: The project of a TPU given by its name. Defaults to this machine's project.
      timeout: Seconds after which the program ends with an error message.
      end: Ends the program after the timeout; replaceable by tests.
      resolver, connect, initialize, strategy: The four steps, in this order; replaceable by
        tests.

    Raises:
      UserError: If the TPU does not exist or cannot be reached.
    """
    where = f"--zone={zone or 'ZONE'}" + (f" --project={project}" if project else "")
    gcloud = "gcloud compute tpus tpu-vm"
    remedy = (
        f"check the name with `{gcloud} list {where}` and that its state is READY; if it is and "
        f"does not answer, `{gcloud} stop {name} {where}` and `start`; use --tpu=local on a TPU "
        "VM, omit --tpu to train on the CPU"
    )
    late = f"--tpu={name} did not answer within --start_timeout={timeout} seconds"
    try:
        with deadline(timeout, late, remedy, end=end):
            cluster = resolver(tpu=name, zone=zone, project=project)
            connect(cluster)
            initialize(cluster)
            return strategy(cluster)
    # TensorFlow raises many types of exceptions here, from URLError to NotFoundError, depending
    # on the step and the machine. Each means that this TPU cannot be used.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"--tpu={name} cannot be reached ({type(error).__name__}: {reason})",
            remedy,
        ) from error


def mirror_cpu(replicas: int) -> tf.distribute.Strategy:
    """Returns a mirrored strategy over `replicas` logical devices of this machine's CPU."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
        tf.config.set_visible_devices([], "GPU")  # training on CPU replicas must not use GPUs
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(replicas)],
        # The default, collective operations, is slower here. It also binds the devices to one
        # group size: a second strategy of another size in the same process fails.
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def use_jit(config: Config, strategy: tf.distribute.Strategy) -> bool:
    """Returns True if XLA should compile the replica step.

    The result is False on a TPU: its program is compiled anyway, and `jit_compile` would need
    the CPU's compiler, which is not linked on the host. It is also False for several mirrored
    replicas: their gradients are summed in a merge call, which a compiled function cannot
    contain. Otherwise `auto` compiles on a GPU, where XLA is usually faster (not measured here),
    but not on a CPU, where every network of this project was slower when compiled. To check,
    compare the images/s of --jit_compile=on and off.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy) or strategy.num_replicas_in_sync > 1:
        return False
    if config.jit_compile == "auto":
        return bool(tf.config.get_visible_devices("GPU"))
    return config.jit_compile == "on"


def use_fused_resampling(config: Config) -> bool:
    """Returns True if the networks should fuse convolutions with resampling.

    Fusing computes the same function. `auto` fuses where this is known to be faster: on a TPU,
    by the compiler's estimate, and on a CPU, by measurement (see docs/performance.md for both).
    It does not fuse on a GPU, where it was not measured.
    """
    if config.fused_resampling != "auto":
        return config.fused_resampling == "on"
    return _platform(config) != "GPU"


def use_strides_by_blocks(config: Config) -> bool:
    """Returns True if strided convolutions of few channels should be computed by blocks.

    This computes the same function. It is used on a CPU, where it was measured to be faster. On
    a TPU v5e, a critic step of dcgan would take 4 to 7% more cycles, by the compiler's estimate.
    """
    return _platform(config) == "CPU"


def _platform(config: Config) -> str:
    """Returns the platform on which the steps run, or for which they are compiled."""
    if config.tpu is not None or config.mode == "compile":
        return "TPU"
    return "GPU" if tf.config.get_visible_devices("GPU") else "CPU"


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a description of the devices for the user, such as "8 TPU replicas"."""
    device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
    replicas = strategy.num_replicas_in_sync
    return f"{replicas} {device.device_type} replica{'s' if replicas > 1 else ''}"
