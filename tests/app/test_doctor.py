"""Tests of --mode=doctor: each check with the facts that it judges, and the whole program."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from tests.helpers import google_api
from tests.helpers.runs import call_main
from wgan_gp import pjrt
from wgan_gp.app import connection
from wgan_gp.app.doctor import cloud_checks, doctor
from wgan_gp.app.doctor import facts as facts_module
from wgan_gp.app.doctor import machine_checks as checks
from wgan_gp.app.doctor.facts import Facts, Jax, NotChecked, TensorFlow
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.runtime.tpu_machine import SYMBOLS, Process

OK, PROBLEM, NOT_CHECKED = "OK", "problem", "not checked"
ROOT = pathlib.Path(__file__).parents[2]
PLAIN, LOCAL, NAMED = Config(), Config(tpu="local"), Config(tpu="p/z/x")
CPU = TensorFlow("2.20.0", ("CPU",))
TPU = TensorFlow("2.20.0", ("CPU", "TPU_SYSTEM", "TPU", "TPU"), supports_tpu=True)
BROKEN = TensorFlow(error="X not available in this library.")


def expect(result, status, text):
    assert doctor.status_of(result) == status and text in str(result), result
    assert (" — " in str(result)) == (status == PROBLEM)  # a problem has a remedy
    assert "\n" not in str(result)


def trained_with(tensorflow, needs_tpu):
    config = LOCAL if needs_tpu else PLAIN
    return Facts(config, chips=["/dev/accel0"], runtime="tensorflow", tensorflow=tensorflow)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ((3, 9, 1), PROBLEM),
        ((3, 10, 0), OK),
        ((3, 13, 2), OK),
        ((3, 14, 0), PROBLEM),
    ],
)
def test_python(version, status):
    expect(checks.check_python(version), status, ".".join(map(str, version)))


@pytest.mark.parametrize(
    ("versions", "texts"),
    [
        ({}, ["TensorFlow is not installed — run make setup"]),
        ({"tensorflow": "2.20.0", "tensorflow-tpu": "2.20.0"}, ["overwrite each other"]),
        ({"tensorflow": "2.18.1"}, ["tensorflow 2.18.1 is not tested"]),
        ({"tensorflow": "2.22.0"}, ["tensorflow 2.22.0 is not tested"]),
        ({"tensorflow": "2.20.0", "protobuf": "3.20.3"}, ["protobuf 3.20.3 is too old"]),
        (
            {"tensorflow-tpu": "2.20.0", "protobuf": "3.20.3", "cloud-tpu-client": "0.10"},
            ["pip uninstall cloud-tpu-client"],
        ),
        (
            {"tensorflow": "2.18.1", "tensorflow-tpu": "2.20.0"},
            ["pip uninstall tensorflow tensorflow-tpu", "2.18.1"],
        ),
    ],
)
def test_problems_of_packages(versions, texts):
    findings = checks.check_packages(Facts(PLAIN, versions=versions))
    for finding, text in zip(findings, texts, strict=True):
        expect(finding, PROBLEM, text)


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu", "tensorflow-tpu"])
def test_suitable_packages_are_listed(name):
    (finding,) = checks.check_packages(
        Facts(PLAIN, versions={name: "2.20.0", "protobuf": "5.28.1"})
    )
    expect(finding, OK, f"{name} 2.20.0, protobuf 5.28.1")


@pytest.mark.parametrize(
    ("tensorflow", "needs_tpu", "status", "text"),
    [
        (CPU, False, OK, "2.20.0, without TPU support"),
        (TPU, True, OK, "2.20.0, with TPU support"),
        (CPU, True, PROBLEM, "no TPU support in this TensorFlow — run make setup-tpu"),
        (BROKEN, False, PROBLEM, "it cannot be imported (X not available"),
    ],
)
def test_tensorflow(tensorflow, needs_tpu, status, text):
    expect(checks.check_tensorflow(trained_with(tensorflow, needs_tpu)), status, text)


@pytest.mark.parametrize(
    ("tensorflow", "needs_tpu", "status", "text"),
    [
        (CPU, False, OK, "1 CPU"),
        (TPU, True, OK, "1 CPU, 1 TPU_SYSTEM, 2 TPU"),
        (TPU._replace(devices=("CPU", "TPU_SYSTEM")), True, PROBLEM, "no TPU, only"),
        (BROKEN, False, NOT_CHECKED, "cannot be imported"),
    ],
)
def test_devices(tensorflow, needs_tpu, status, text):
    expect(checks.check_devices(trained_with(tensorflow, needs_tpu)), status, text)


@pytest.mark.parametrize(
    ("runtime", "versions", "status", "text"),
    [
        ("pjrt", pjrt.REQUIRED, OK, f"jax {pjrt.REQUIRED['jax']}, jaxlib"),
        ("tensorflow", {}, NOT_CHECKED, "not installed; --runtime=pjrt and"),
        ("tensorflow", {"jax": "9.9"}, NOT_CHECKED, "jax 9.9; --runtime=pjrt and"),
        ("pjrt", {"jax": "9.9"}, PROBLEM, f"is tested — {pjrt.INSTALL}"),
        ("pjrt", {}, PROBLEM, "not installed, but jax"),
    ],
)
def test_the_version_of_jax(runtime, versions, status, text):
    expect(checks.check_jax(Facts(PLAIN, runtime=runtime, versions=versions)), status, text)


GPU_OF_JAX = Jax((("GPU", "NVIDIA H100"), ("GPU", "NVIDIA H100")))
CPU_OF_JAX = Jax((("CPU", "cpu"),))


@pytest.mark.parametrize(
    ("config", "runtime", "jax", "status", "text"),
    [
        (PLAIN, "pjrt", GPU_OF_JAX, OK, "2 GPU (NVIDIA H100)"),
        (PLAIN, "tensorflow", CPU_OF_JAX, OK, "1 CPU (cpu)"),
        (LOCAL, "pjrt", CPU_OF_JAX, PROBLEM, "no TPU, only 1 CPU (cpu)"),
        (PLAIN, "pjrt", Jax(error="x"), PROBLEM, "(x) — update the driver"),
        (LOCAL, "pjrt", Jax(error="x"), PROBLEM, "(x) — run make setup-tpu"),
    ],
)
def test_the_devices_of_jax(config, runtime, jax, status, text):
    expect(checks.check_jax_devices(Facts(config, runtime=runtime, jax=jax)), status, text)


@pytest.mark.slow
def test_jax_is_asked_for_its_devices_in_a_process_of_its_own():
    found = facts_module.inspect_jax("cpu")  # the tests split the CPU into several devices
    assert set(found.devices) == {("CPU", "cpu")} and found.error == ""
    assert "nothing" in facts_module.inspect_jax("nothing,cpu").error


def test_the_runtime_is_reported_with_the_reason(monkeypatch):
    def check(config, runtime, why=""):
        monkeypatch.setattr(connection, "why_tensorflow", lambda config: why)
        return checks.check_runtime(Facts(config, runtime=runtime))

    finding = check(PLAIN, "tensorflow", "TF_CONFIG is set")
    expect(finding, OK, "tensorflow, as --runtime=auto takes it: TF_CONFIG is set")
    expect(check(LOCAL, "pjrt"), OK, "jax can use the TPU")
    expect(check(PLAIN, "pjrt"), OK, "jax can use the GPU")
    expect(check(Config(runtime="pjrt"), "pjrt", "any"), OK, "pjrt, as --runtime says")


def test_the_libtpu_of_jax():
    def check(path, **versions):
        return checks.check_libtpu(Facts(LOCAL, runtime="pjrt", versions=versions, libtpu=path))

    tested = pjrt.LIBTPU["libtpu"]
    assert check("/x.so", libtpu=tested) == f"{tested} at /x.so"
    expect(check("/x.so", libtpu="0.0.42"), OK, f"0.0.42 at /x.so; {tested} is tested")
    expect(check(None), PROBLEM, "— run make setup-tpu, or pip")


def test_the_folder_of_compiled_programs(tmp_path, monkeypatch):
    def check(folder, **environment):
        monkeypatch.setattr(pjrt, "programs_folder", lambda: folder and str(folder))
        return checks.check_programs(Facts(PLAIN, environment, tensorflow=CPU))

    folder = tmp_path / "not" / "yet"
    expect(check(folder), OK, f"kept in {folder}")
    expect(check(None), OK, "this user has no folder")
    expect(check(folder, JAX_ENABLE_COMPILATION_CACHE="False"), OK, "not kept")
    expect(check(folder, JAX_COMPILATION_CACHE_DIR="gs://b/x"), OK, "kept in gs://b/x")
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))
    expect(check(folder), PROBLEM, "cannot be written — set JAX_COMPILATION_CACHE_DIR")
    assert list(tmp_path.iterdir()) == []


def test_accelerators_that_a_run_leaves_are_a_problem(monkeypatch):
    unused = [UserError("training on the CPU, but x", "do this")]
    monkeypatch.setattr(connection, "unused_devices", lambda config: unused)

    def check(runtime, tensorflow, jax, config=PLAIN):
        facts = Facts(config, runtime=runtime, tensorflow=tensorflow, jax=jax)
        found = checks.check_unused(facts)
        return found if isinstance(found, str) else found[0]

    gpu = TensorFlow("2.20.0", ("CPU", "GPU"))
    expect(check("tensorflow", CPU, None), PROBLEM, "but x — do this")
    expect(check("tensorflow", gpu, None), OK, "none")
    expect(check("tensorflow", TPU, None, LOCAL), OK, "none, because of --tpu")
    expect(check("pjrt", CPU, CPU_OF_JAX), PROBLEM, "but x — do this")
    expect(check("pjrt", CPU, GPU_OF_JAX), OK, "none")


def test_jax_opens_a_tpu_only_if_the_run_and_no_other_process_uses_it(monkeypatch):
    monkeypatch.setattr(pjrt, "has_nvidia_gpu", lambda: True)
    jax, everything = {"jax": "1"}, dict.fromkeys(["jax", *pjrt.CUDA_PLUGINS], "1")

    def platforms(config, versions, user=None):
        return Facts(config, versions=versions, user=user).platforms

    jax_of_tpu = Config(tpu="local", runtime="pjrt")
    assert platforms(jax_of_tpu, everything) == "tpu,cpu"
    assert platforms(Config(tpu="local", runtime="tensorflow"), everything) == "cuda,cpu"
    assert platforms(PLAIN, everything) == "cuda,cpu"
    assert platforms(jax_of_tpu, everything, Process(7, "python3")) == ""
    assert platforms(PLAIN, jax) == "cpu"
    assert platforms(PLAIN, {}) == ""


@pytest.mark.parametrize(
    ("config", "chips", "user", "status", "text"),
    [
        (PLAIN, [], None, OK, "none"),
        (LOCAL, [], None, PROBLEM, "none — run it on a TPU VM"),
        (LOCAL, ["/dev/accel0"], None, OK, "/dev/accel0"),
        (LOCAL, ["/dev/accel0"], Process(7, "python3"), PROBLEM, "process 7 (python3)"),
    ],
)
def test_chips(config, chips, user, status, text):
    expect(checks.check_chips(Facts(config, chips=chips, user=user)), status, text)


def test_libtpu_and_its_variables(tmp_path):
    libtpu, tpu = tmp_path / "libtpu.so", {"tensorflow-tpu": "2.20.0", "libtpu": "0.0.18"}
    libtpu.write_bytes(b"\0".join(symbol.encode() for symbol in SYMBOLS) + b"\0")
    newer = tmp_path / "newer.so"
    newer.write_bytes(b"GetPjrtApi\0")

    def check(config, versions, path, **environment):
        facts = Facts(
            config, environment, runtime="tensorflow", versions=versions, libtpu=path and str(path)
        )
        return checks.check_libtpu(facts)

    expect(check(PLAIN, {}, None), NOT_CHECKED, "only training on a TPU")
    expect(check(LOCAL, {}, None), NOT_CHECKED, "nothing uses it")
    expect(check(LOCAL, tpu, None), PROBLEM, "installed — run make setup-tensorflow-tpu")
    expect(check(LOCAL, tpu, newer), PROBLEM, f"lacks {SYMBOLS[0]}")
    expect(*check(LOCAL, tpu, libtpu), OK, "0.0.18 at")
    found, disabled = check(LOCAL, tpu, libtpu, TPU_LOAD_LIBRARY="0")
    expect(found, OK, "0.0.18")
    expect(disabled, PROBLEM, "unset TPU_LOAD_LIBRARY")
    _, plugin = check(PLAIN, tpu, libtpu, TF_PLUGGABLE_DEVICE_LIBRARY_PATH="/no")
    expect(plugin, PROBLEM, f"/no does not exist — set it to {libtpu}")


@pytest.mark.parametrize(
    ("config", "text", "tensorflow", "status", "detail"),
    [
        (PLAIN, "", CPU, OK, "not set"),
        (PLAIN, "{", CPU, PROBLEM, "TF_CONFIG does not describe a cluster"),
        (LOCAL, "{", CPU, OK, "--tpu ignores it"),
        (PLAIN, "{", BROKEN, NOT_CHECKED, "cannot be imported"),
        (
            PLAIN,
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}',
            CPU,
            OK,
            "process 1 of 2",
        ),
    ],
)
def test_tf_config(config, text, tensorflow, status, detail, capsys):
    facts = Facts(config, {"TF_CONFIG": text}, tensorflow=tensorflow)
    doctor.report(facts, {"TF_CONFIG": checks.check_tf_config})
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"{status:<11}  TF_CONFIG: ") and detail in line


def test_memory_and_disk(tmp_path):
    expect(checks.check_memory(Facts(PLAIN, memory=8 << 30)), OK, "8.0 GiB")
    expect(checks.check_memory(Facts(PLAIN, memory=1 << 30)), PROBLEM, "only 1.0 GiB")
    config = Config(model_dir=str(tmp_path / "not" / "yet"))
    expect(checks.check_disk(Facts(config)), OK, f"at {tmp_path}")
    expect(checks.check_disk(Facts(config, space=2**34)), OK, f"16.0 GiB at {tmp_path}")
    expect(checks.check_disk(Facts(config, space=2**29)), PROBLEM, "only 0.5 GiB")
    assert list(tmp_path.iterdir()) == []


def test_a_tpu_by_name_is_asked_from_the_api_through_the_real_client(tmp_path, monkeypatch):
    with google_api.serve_api() as api:
        api.configure(tmp_path, monkeypatch)
        endpoints = [{"ipAddress": "10.0.0.2", "port": 8470}] * 4
        node = {"state": "READY", "acceleratorType": "v5litepod-16", "networkEndpoints": endpoints}
        api.node = (200, {**node, "tensorflowVersion": "tpu-vm-tf-2.20.0-pod-pjrt"})
        finding = cloud_checks.check_tpu(Facts(NAMED, tensorflow=CPU))
        expect(finding, OK, "READY, v5litepod-16, tpu-vm-tf-2.20.0-pod-pjrt, 4 machine")
        api.node = (200, {**node, "tensorflowVersion": "tpu-vm-tf-2.19.0-pod-pjrt"})
        finding = cloud_checks.check_tpu(Facts(NAMED, tensorflow=CPU))
        expect(finding, PROBLEM, "runs TensorFlow 2.19, but this machine has 2.20.0")
        api.node = (200, {"state": "PREEMPTED"})
        finding = cloud_checks.check_tpu(Facts(NAMED, tensorflow=CPU))
        expect(finding, PROBLEM, "--tpu=p/z/x is PREEMPTED, not READY")


def test_an_address_accepts_connections_or_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"grpc://127.0.0.1:{server.getsockname()[1]}"
        expect(cloud_checks.check_tpu(Facts(Config(tpu=address))), OK, "accepts")
    expect(cloud_checks.check_tpu(Facts(Config(tpu=address))), PROBLEM, "no connection")
    wrong = Config(tpu="grpc://127.0.0.1:port")
    expect(cloud_checks.check_tpu(Facts(wrong)), PROBLEM, "no connection")


DENIED = (
    'Error executing an HTTP request: HTTP response code 403 with body \'{\n "error": {\n  "code": '
    '403,\n  "message": "robot@p.iam.gserviceaccount.com does not have storage.objects.create '
    "access to the Google Cloud Storage object.\"\n }\n}\n'\n\t when initiating an upload to gs://b/r"
)


def failing(error, *names):
    """Returns the functions of tf.io.gfile, of which some raise an error."""

    def fail(*arguments):
        raise error

    given = {name: getattr(tf.io.gfile, name) for name in ("GFile", "remove", "stat")}
    return types.SimpleNamespace(**{**given, **dict.fromkeys(names, fail)})


def test_all_buckets_of_the_flags_are_checked():
    paths = {"data_dir": "gs://a/x", "test_data_dir": "gs://b/x", "data_cache": "gs://c/x"}
    config = Config(dataset="image_folder", model_dir="gs://b/run", **paths)
    assert cloud_checks.buckets_of(config) == ["gs://b", "gs://a", "gs://c"]
    assert cloud_checks.buckets_of(Config(data_cache="off", model_dir="runs/x")) == []


def test_the_probe_of_a_bucket_leaves_nothing():
    folder = "ram://doctor/run"
    tf.io.gfile.makedirs(folder)
    expect(
        cloud_checks.check_bucket_write("model_dir", folder, tf.io.gfile),
        OK,
        "written and read",
    )
    assert tf.io.gfile.listdir(folder) == []
    denied = tf.errors.PermissionDeniedError(None, None, DENIED)
    finding = cloud_checks.check_bucket_write("model_dir", "gs://b/run", failing(denied, "GFile"))
    text = "--model_dir=gs://b/run cannot be written: robot@p.iam.gserviceaccount.com lacks the "
    expect(finding, PROBLEM, text)
    finding = cloud_checks.check_bucket_write("model_dir", folder, failing(OSError("no"), "remove"))
    expect(finding, PROBLEM, "cannot be deleted (no)")
    finding = cloud_checks.check_bucket_write("data_cache", folder, tf.io.gfile)
    expect(finding, OK, "--data_cache=ram://doctor/run can be written and read")


def test_a_probe_that_cannot_be_read_is_removed():
    folder = "ram://doctor/unreadable"
    tf.io.gfile.makedirs(folder)

    def open_file(path, mode="r"):
        if mode == "r":
            raise OSError("no")
        return tf.io.gfile.GFile(path, mode)

    files = types.SimpleNamespace(GFile=open_file, remove=tf.io.gfile.remove)
    expect(
        cloud_checks.check_bucket_write("model_dir", folder, files),
        PROBLEM,
        "cannot be read (no)",
    )
    assert tf.io.gfile.listdir(folder) == []


def test_the_folder_of_a_pattern_is_read():
    read = []
    files = types.SimpleNamespace(stat=read.append)
    for path in ("gs://b/shards-*.tfrecord", "gs://b/a,b", "gs://b/c@8", "gs://b/d*,gs://c/*"):
        expect(cloud_checks.check_bucket_read("data_dir", path, files), OK, path)
    assert read == ["gs://b", "gs://b/a,b", "gs://b", "gs://b"]
    missing = failing(tf.errors.NotFoundError(None, None, "no such object"), "stat")
    finding = cloud_checks.check_bucket_read("data_dir", "gs://b/x", missing)
    expect(finding, PROBLEM, "--data_dir=gs://b/x cannot be read (no such object)")


@pytest.mark.parametrize(
    ("location", "zone", "status", "text"),
    [
        ("US-WEST4", "us-west4-a", OK, "gs://b is in us-west4, as the TPU in us-west4-a"),
        ("US", "us-west4-a", OK, "us, as the TPU"),
        ("EU", "europe-west4-b", OK, "eu, as the TPU"),
        ("EU", "us-west4-a", PROBLEM, "gs://b is in eu"),
        ("US-EAST1", "us-west4-a", PROBLEM, "--location=us-west4`"),
        ("NAM4", "us-west4-a", NOT_CHECKED, "a pair of regions"),
        ("US-EAST1", None, NOT_CHECKED, "give --tpu=ZONE/NAME"),
        (ImportError("x"), "us-west4-a", NOT_CHECKED, "google-api-python-client"),
        (ValueError("x"), "us-west4-a", NOT_CHECKED, "x"),
    ],
)
def test_the_location_of_a_bucket(location, zone, status, text):
    def find_location(bucket):
        assert bucket == "b"
        if isinstance(location, Exception):
            raise location
        return location

    expect(cloud_checks.check_location("gs://b", zone, find_location), status, text)


def test_the_zone_is_that_of_the_flag_or_of_the_metadata_server(monkeypatch):
    assert cloud_checks.find_zone(NAMED) == "z"
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert cloud_checks.find_zone(LOCAL) is None


def test_the_exit_status_says_if_there_is_a_problem(capsys):
    checks = {"a": lambda facts: "x", "b": lambda facts: [NotChecked("why\nso"), "y"]}
    assert doctor.report(Facts(PLAIN), checks) == 0
    checks["c"] = lambda facts: UserError("wrong", "do this")
    assert doctor.report(Facts(PLAIN), checks) == 2
    assert capsys.readouterr().out.splitlines()[4:] == [
        "OK           a: x",
        "not checked  b: why so",
        "OK           b: y",
        "problem      c: wrong — do this",
        "1 problem, 1 not checked",
    ]


def test_a_check_that_fails_is_not_an_error_of_the_program(capsys):
    def check(facts):
        raise ZeroDivisionError("x")

    assert doctor.report(Facts(PLAIN), {"disk": check}) == 0
    line = "not checked  disk: the check failed (ZeroDivisionError: x)"
    assert capsys.readouterr().out.splitlines() == [line, "no problems, 1 not checked"]


def test_every_subject_of_the_documentation_has_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(Facts, "tensorflow", CPU)
    monkeypatch.setattr(Facts, "jax", CPU_OF_JAX)
    available = types.SimpleNamespace(available=2**36, free=2**40)
    monkeypatch.setattr("psutil.virtual_memory", lambda: available)
    monkeypatch.setattr("shutil.disk_usage", lambda path: available)
    assert call_main("--mode=doctor", f"--model_dir={tmp_path / 'run'}") == 0
    printed = re.findall(r"^(?:OK|problem|not checked) +([^:]+):", capsys.readouterr().out, re.M)
    assert printed == [
        "Python",
        "packages",
        "TPU chips of this machine",
        "libtpu",
        "jax",
        "free memory",
        "free space",
        "TensorFlow",
        "devices of TensorFlow",
        "TF_CONFIG",
        "runtime",
        "devices of jax",
        "unused devices",
        "compiled programs",
        "TPU by name",
        "buckets",
        "location of buckets",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_plain_tensorflow_is_inspected_in_a_process_of_its_own():
    found = Facts(PLAIN).tensorflow
    assert found.version == tf.__version__ and "CPU" in found.devices
    assert found.error == "" and not found.supports_tpu


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise ModuleNotFoundError(\"No module named 'tensorflow'\")", "No module named"),
        (
            "import os, sys; print('2026-01-01 10:00:00: F x.inc:12] "
            "ConfigureDistributedTpuOp_DoWork not available in this library.', "
            "file=sys.stderr, flush=True); os.abort()",
            "imported (ConfigureDistributedTpuOp_DoWork not available in this library.)",
        ),
    ],
    ids=["missing", "crashing"],
)
def test_the_program_works_without_tensorflow(program, error, tmp_path):
    """A module named tensorflow that cannot be imported takes the place of the installed one."""
    (tmp_path / "tensorflow.py").write_text(program)
    arguments = ["--mode=doctor", "--tpu=x", "--model_dir=gs://b/run"]
    done = subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "GCE_METADATA_HOST": "127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (2, "")
    lines = done.stdout.splitlines()
    (failed,) = (line for line in lines if line.startswith("problem") and "TensorFlow:" in line)
    assert error in failed and " — " in failed
    unchecked = {line[13:].partition(":")[0] for line in lines if line.startswith("not checked")}
    assert {"TPU by name", "buckets", "devices of TensorFlow"} <= unchecked
