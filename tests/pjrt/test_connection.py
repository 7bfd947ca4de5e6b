"""The choice of the runtime, and what is said about devices that a run does not use."""

import functools
import json
import os
import re
import socket
import subprocess
import sys

import pytest
import tensorflow as tf
from jax._src.clusters import cloud_tpu_cluster

from wgan_gp import pjrt
from wgan_gp.app import connection
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.pjrt import client, processes

TPU_OF_JAX = ("jax", "libtpu")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Returns a function that describes this machine: its device files and its packages."""

    def describe(*files, packages=(), version=pjrt.REQUIRED["jax"]):
        (tmp_path / "dev").mkdir(exist_ok=True)
        for file in files:
            (tmp_path / "dev" / file).touch()

        def versions(names):
            return {name: version for name in names if name in packages}

        monkeypatch.setattr(connection, "installed_versions", versions)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return str(tmp_path)

    return describe


@pytest.mark.parametrize(
    ("packages", "runtime"),
    [
        (TPU_OF_JAX, "pjrt"),
        ((*TPU_OF_JAX, "tensorflow-tpu"), "tensorflow"),
        (("jax",), "tensorflow"),
        (("libtpu",), "tensorflow"),
    ],
)
def test_auto_takes_jax_for_a_tpu_that_tensorflow_lacks(machine, packages, runtime):
    root = machine("accel0", packages=packages)
    assert connection.choose_runtime(Config(tpu="local"), root) == runtime
    # Without a chip, TensorFlow's connection says what is missing.
    assert connection.choose_runtime(Config(tpu="local"), f"{root}/nothing") == "tensorflow"
    # The machines of a TPU by its name have their own TensorFlow.
    assert connection.choose_runtime(Config(tpu="name"), root) == "tensorflow"
    assert connection.choose_runtime(Config(), root) == "tensorflow"


@pytest.mark.parametrize("plugin", ["jax-cuda12-plugin", "jax-cuda13-plugin"])
def test_auto_takes_jax_for_a_gpu_if_its_plugin_is_installed(machine, plugin, monkeypatch):
    assert connection.choose_runtime(Config(), machine(packages=[plugin])) == "tensorflow"
    root = machine("nvidia0", packages=[plugin])
    assert connection.choose_runtime(Config(), root) == "pjrt"
    assert connection.choose_runtime(Config(runtime="tensorflow"), root) == "tensorflow"
    assert connection.choose_runtime(Config(cpu_replicas=2), root) == "tensorflow"
    machine(packages=[plugin], version="0.7.2")  # as in a notebook with a jax of its own
    assert connection.choose_runtime(Config(), root) == "tensorflow"
    machine()
    assert connection.choose_runtime(Config(), root) == "tensorflow"


def test_unused_devices_are_named_with_the_way_to_use_them(machine, monkeypatch):
    def unused(root):
        return [str(each) for each in connection.unused_devices(Config(), root)]

    assert unused(machine()) == []
    (chips,) = unused(machine("accel0"))
    assert "TPU chips" in chips and re.search(r"run make setup-tpu,.* give --tpu=local$", chips)
    for packages in (TPU_OF_JAX, ["tensorflow-tpu"]):
        (chips,) = unused(machine("accel0", packages=packages))
        assert chips.endswith("— give --tpu=local")
    root = machine("nvidia0")
    _, gpu = unused(root)
    assert "NVIDIA GPU — run make setup-gpu, or pip install" in gpu
    _, gpu = unused(machine(packages=["jax-cuda12-plugin"], version="0.7.2"))
    assert "NVIDIA GPU — run make setup-gpu, or pip install" in gpu
    _, gpu = unused(machine("nvidia0", packages=["jax-cuda12-plugin"]))
    assert "NVIDIA GPU — give --runtime=pjrt" in gpu
    assert connection.unused_devices(Config(cpu_replicas=2), root) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert len(unused(root)) == 1


@pytest.mark.parametrize("runtime", ["tensorflow", "pjrt"])
def test_training_on_the_cpu_warns_and_other_uses_of_it_do_not(machine, monkeypatch, runtime):
    root, logged = machine("nvidia0"), []
    monkeypatch.setattr(connection.logging, "warning", logged.append)
    unused = functools.partial(connection.unused_devices, root=root)
    monkeypatch.setattr(connection, "unused_devices", unused)
    connection.connect_for_inference(Config(runtime=runtime))
    connection.connect(Config(runtime=runtime, cpu_replicas=2, batch_size=8))
    assert logged == []
    connection.connect(Config(runtime=runtime))
    (line,) = logged
    assert line.startswith("training on the CPU, but this machine has an NVIDIA GPU")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"tpu": "name"}, "--runtime=pjrt uses the TPU of this machine, not --tpu=name"),
        ({"jit_compile": "off"}, "--jit_compile=off"),
    ],
)
def test_flags_that_contradict_it_are_refused(settings, what):
    with pytest.raises(UserError, match=what):
        Config(runtime="pjrt", **settings)


def test_another_or_no_jax_is_one_line(monkeypatch):
    config = Config(runtime="pjrt")
    monkeypatch.setitem(sys.modules, "wgan_gp.pjrt.client", None)
    monkeypatch.delattr("wgan_gp.pjrt.client", raising=False)
    with pytest.raises(UserError, match=r"cannot use jax [0-9.]+ .*pip install jax=="):
        connection.connect(config)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="requires jax, which is not installed — pip install"):
        connection.connect(config)
    with pytest.raises(UserError, match=r"requires jax, .* make setup-tpu, or pip .* libtpu=="):
        connection.connect(Config(runtime="pjrt", tpu="local"))


def test_auto_refuses_what_contradicts_jax(machine, monkeypatch):
    monkeypatch.setattr(connection, "choose_runtime", lambda config: "pjrt")
    with pytest.raises(UserError, match=r"--jit_compile=off is set .* give --runtime=tensorflow"):
        connection.connect(Config(jit_compile="off"))


def test_a_gpu_that_jax_cannot_use_is_an_error(monkeypatch):
    monkeypatch.setattr("wgan_gp.pjrt.devices.has_nvidia_gpu", lambda: True)
    monkeypatch.setattr("wgan_gp.pjrt.devices.installed_versions", lambda names: {"plugin": "1"})
    with pytest.raises(UserError, match="jax cannot use the GPU of this machine"):
        connection.connect(Config(runtime="pjrt"))


def test_a_saved_run_is_used_on_the_cpu(monkeypatch):
    visible = {}
    monkeypatch.setattr(
        tf.config, "set_visible_devices", lambda devices, kind: visible.update({kind: devices})
    )
    devices = connection.connect_for_inference(Config(runtime="pjrt", cpu_replicas=4))
    assert (devices.platform, devices.replicas, devices.chips) == ("CPU", 1, ())
    assert visible == {"GPU": []}  # TensorFlow would take all of its memory
    devices = connection.connect_for_inference(Config(runtime="tensorflow", cpu_replicas=4))
    assert devices.replicas == 4


def test_a_tpu_of_jax_is_not_prepared_for_tensorflow(machine, monkeypatch):
    machine("accel0", packages=TPU_OF_JAX)
    monkeypatch.setattr(connection.tpu_machine, "find_chips", lambda root: ["accel0"])
    assert connection.tpu_of_tensorflow(Config(tpu="local")) is None
    machine("accel0", packages=["tensorflow-tpu"])
    assert connection.tpu_of_tensorflow(Config(tpu="local")) == "local"


def test_the_machines_of_a_tpu_are_found_by_the_variables_of_kubernetes(monkeypatch):
    variables = {
        "TPU_WORKER_HOSTNAMES": "localhost,127.0.0.1,127.0.0.2",
        "TPU_WORKER_ID": "1",
        "TPU_SKIP_MDS_QUERY": "true",
        "MEGASCALE_COORDINATOR_ADDRESS": "",
        "MEGASCALE_NUM_SLICES": "",
        "MEGASCALE_SLICE_ID": "",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    address, processes, index = client.find_tpu_processes(seconds=5)
    assert (address.partition(":")[0], processes, index) == ("localhost", 3, 1)


def test_a_machine_without_a_slice_is_one_process():
    assert processes.connect(Config(runtime="pjrt", tpu="local")) is None


def test_a_tpu_without_metadata_is_used_alone_with_a_warning(monkeypatch):
    """Those of notebooks have none."""

    def fail(seconds):
        raise ConnectionError("no metadata")

    logged = []
    monkeypatch.setattr(processes.logging, "warning", logged.append)
    monkeypatch.setattr(client, "find_tpu_processes", fail)
    assert processes.connect(Config(runtime="pjrt", tpu="local")) is None
    (line,) = logged
    assert "whether its TPU has others (no metadata); it trains alone" in line


def test_processes_that_do_not_connect_are_one_line(monkeypatch):
    def fail(address, count, index, *, seconds):
        raise client.RuntimeFailure("DEADLINE_EXCEEDED")

    monkeypatch.setattr(client, "find_tpu_processes", lambda seconds: ("a:1", 2, 1))
    monkeypatch.setattr(client, "connect_processes", fail)
    monkeypatch.setattr(processes.JaxPeers, "_handle_aborts", lambda self: None)
    message = r"within 7 seconds \(DEADLINE_EXCEEDED\) — start the same"
    with pytest.raises(UserError, match=message):
        processes.connect(Config(runtime="pjrt", tpu="local"), seconds=7)


def test_a_machine_that_does_not_start_is_named(monkeypatch):
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{own.getsockname()[1]}"
    workers = {"worker": [address, "127.0.0.1:1"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": workers, "task": task}))
    with pytest.raises(UserError, match=r"no process responds at 127.0.0.1:1 of TF_CONFIG"):
        processes.connect(Config(runtime="pjrt"), seconds=1)


def test_a_tpu_that_jax_does_not_find_is_one_line():
    with pytest.raises(UserError, match="jax cannot use the devices of --tpu=local"):
        connection.connect(Config(runtime="pjrt", tpu="local"))


@pytest.mark.slow  # TensorFlow is imported again
def test_importing_hides_no_tpu():
    """jax would then not look for a TPU, or libtpu not ask which one it is."""
    names = ["JAX_PLATFORMS", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_HOSTNAMES"]
    program = f"""if True:
        import os
        NAMES = {names}
        from wgan_gp.pjrt import devices, loop
        from wgan_gp.tpu import aot
        print([name for name in NAMES if name in os.environ])
    """
    environment = {name: value for name, value in os.environ.items() if name not in names}
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "[]\n", result.stderr
