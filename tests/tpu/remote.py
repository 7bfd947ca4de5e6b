"""A TPU's machine that cannot see the files of the program, and the program that uses it by name.

The machine is a TensorFlow server in a process of its own, whose CPU devices act as cores. Google's
answer, which has its address, and the initialization of the TPU are replaced; the connection is
TensorFlow's own.
"""

import contextlib
import os
import signal
from unittest import mock

import tensorflow as tf

import wgan_gp
from tests.helpers.forks import end_interpreter, main_program
from tests.helpers.tpu_strategy import CpuResolver, executing
from wgan_gp.config import Config
from wgan_gp.runtime import devices
from wgan_gp.training.checkpointing import Checkpoints

CORES = 2
NAME = "my-tpu"
_OTHER_USER = 65534


def serve(argv):
    """Runs the machine at an address until it is killed.

    It sees no file of the program: a relative path begins in /proc, where no file can be created,
    and a process of root becomes that of a user who cannot open the folder of a test.
    """
    os.chdir("/proc")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_OTHER_USER)
        os.setuid(_OTHER_USER)
    tf.distribute.Server(
        tf.train.ClusterSpec({"worker": [argv[1]]}),
        job_name="worker",
        task_index=0,
        config=tf.compat.v1.ConfigProto(device_count={"CPU": CORES}),
    ).join()


def main(argv):
    """Runs train.py with the TPU NAME.

    Args:
      argv: The program, the folder in which it runs, the address of the machine, the iteration
        whose checkpoint kills the program (0: none does), and the flags.
    """
    program, folder, address, killed_at, *flags = argv
    save = Checkpoints.save

    def save_or_die(checkpoints):
        if checkpoints.iteration == int(killed_at) > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        save(checkpoints)

    with _connecting(folder, address), mock.patch.object(Checkpoints, "save", save_or_die):
        return main_program([program, *flags])


def export_from_python(argv):
    """Trains with the TPU NAME and exports in one process; the arguments are the first of main."""
    _, folder, address = argv
    settings = {"model": "mlp", "model_width": 4, "batch_size": 16, "steps_per_loop": 5}
    with _connecting(folder, address):
        config = Config(tpu=NAME, model_dir="run", train_steps=5, **settings)
        wgan_gp.train(config).export("exported")
    return end_interpreter(0)


@contextlib.contextmanager
def _connecting(folder, address):
    """Replaces what stands between a folder and the machine at an address."""
    os.chdir(folder)
    connect_tpu = devices.connect_tpu

    class Resolver(CpuResolver):
        def __init__(self, tpu, zone, project):
            assert tpu == NAME
            cores = [f"/job:worker/replica:0/task:0/device:CPU:{core}" for core in range(CORES)]
            super().__init__(cores, hosts=1, address=address)

    with contextlib.ExitStack() as replaced:

        def connect_and_execute(settings):
            strategy = connect_tpu(settings)
            replaced.enter_context(executing(strategy))
            return strategy

        for owner, name, value in (
            (tf.distribute.cluster_resolver, "TPUClusterResolver", Resolver),
            (tf.tpu.experimental, "initialize_tpu_system", lambda resolver: None),
            (devices, "connect_tpu", connect_and_execute),
        ):
            replaced.enter_context(mock.patch.object(owner, name, value))
        yield
