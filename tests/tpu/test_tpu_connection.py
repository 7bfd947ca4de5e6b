"""Tests of the connection to a TPU: its steps, its cores, and the cause of each error.

Google's client library is real. It asks a fake of Google's API on this machine.
"""

import pathlib
import subprocess
import sys
import urllib.error

import pytest
import tensorflow as tf
from tensorflow.python.tpu.client import client as tpu_client
from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

from tests.helpers import google_api
from tests.helpers.runs import LIBRARY, resolved
from wgan_gp.app import connection
from wgan_gp.app.saved_run import check_resume, find_run
from wgan_gp.config import Config
from wgan_gp.data.data_record import DataRecord
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError, reason
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.runtime import tpu_errors, tpu_machine
from wgan_gp.runtime.devices import connect
from wgan_gp.runtime.tpu_connection import connect_tpu

ROOT = pathlib.Path(__file__).parents[2]
NAMED = Config(tpu="p/us-z1-a/my-tpu")
LOCAL = Config(tpu="local")
LIST = "`gcloud compute tpus tpu-vm list --zone=- --project=p`"


class ReachedError(Exception):
    """The connection to the TPU's address would be made now."""


@pytest.fixture(scope="module")
def server():
    with google_api.serve_api() as api:
        yield api


@pytest.fixture
def api(server, tmp_path, monkeypatch):
    """The fake API, with which the client library of this process is configured."""
    server.__init__(server.url)
    server.configure(tmp_path, monkeypatch)

    def reached(resolver):
        raise ReachedError(resolver.cluster_spec().as_dict())

    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", reached)
    return server


def error_of(settings):
    with pytest.raises(UserError) as caught:
        connect_tpu(settings)
    message = str(caught.value)
    assert "\n" not in message and "Graph execution error" not in message
    return caught.value


# Answers in the form of Google's API. Their texts were not recorded from it.
NOT_FOUND = google_api.error(
    404, "Resource 'projects/p/locations/us-z1-a/nodes/my-tpu' was not found"
)
DISABLED = google_api.error(
    403,
    "Cloud TPU API has not been used in project 1 before or it is disabled. Enable it by visiting "
    "https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project=1",
)
WRONG_ZONE = google_api.error(403, "Location us-z1-a is not found or access is unauthorized.")
DENIED = google_api.error(
    403, "Permission 'tpu.nodes.get' denied on 'projects/p/locations/z/nodes'"
)
SCOPES = google_api.error(403, "Request had insufficient authentication scopes.")


@pytest.mark.parametrize(
    ("answer", "what", "remedy"),
    [
        (NOT_FOUND, "does not exist in zone us-z1-a of project p", LIST),
        (WRONG_ZONE, ": the zone us-z1-a does not exist, or project p may not use it", LIST),
        (DISABLED, "API is disabled in project p", "gcloud services enable tpu.googleapis.com"),
        (SCOPES, "lack the scope cloud-platform", "gcloud auth application-default login"),
        (DENIED, "lacks the permission tpu.nodes.get in project p", "roles/tpu.viewer"),
        (google_api.error(401, "Invalid Credentials"), "no valid credentials", "default login"),
        (google_api.error(503, "Unavailable"), "answers with status 503", "try again"),
    ],
    ids=["unknown", "zone", "disabled", "scopes", "denied", "credentials", "outage"],
)
def test_each_error_of_googles_api_has_its_own_line(api, answer, what, remedy):
    api.node = answer
    error = error_of(NAMED)
    assert error.what.startswith(f"--tpu={NAMED.tpu}") and what in error.what
    assert remedy in error.remedy
    # After the status 401, the client library refreshes the token and asks again.
    assert set(api.paths) == {"/v1/projects/p/locations/us-z1-a/nodes/my-tpu"}


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ("CREATING", "wait until `gcloud compute tpus tpu-vm describe my-tpu --zone=us-z1-a "),
        ("REPAIRING", "wait until"),
        ("STOPPED", "start it with `gcloud compute tpus tpu-vm start my-tpu --zone=us-z1-a --pro"),
        ("PREEMPTED", "delete it with `gcloud compute tpus tpu-vm delete my-tpu --zone=us-z1-a "),
        ("TERMINATED", "create it again"),
    ],
)
def test_a_tpu_that_is_not_ready_is_reported_with_its_state(api, state, remedy):
    api.node = (200, {"state": state})
    error = error_of(NAMED)
    assert error.what == f"--tpu={NAMED.tpu} is {state}, not READY"
    assert remedy in error.remedy


def test_a_ready_tpu_is_connected_at_its_address(api):
    endpoints = [{"ipAddress": f"10.0.0.{host}", "port": 8470} for host in (2, 3)]
    api.node = (200, {"state": "READY", "networkEndpoints": endpoints})
    with pytest.raises(UserError) as caught:
        connect_tpu(NAMED)
    assert isinstance(caught.value.__cause__, ReachedError)
    assert caught.value.__cause__.args == ({"worker": ["10.0.0.2:8470", "10.0.0.3:8470"]},)


def test_expired_credentials(api):
    api.token = (400, {"error": "invalid_grant", "error_description": "Bad Request"})
    assert "no valid credentials of Google Cloud" in error_of(NAMED).what


def test_no_credentials(api, monkeypatch):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    error = error_of(NAMED)
    assert "no valid credentials of Google Cloud" in error.what
    assert "gcloud auth application-default login" in error.remedy


@pytest.mark.parametrize("down", ["discovery", "API", "name server"])
def test_no_network(api, down, monkeypatch):
    if down == "discovery":
        monkeypatch.setenv("TPU_API_DISCOVERY_URL", "http://127.0.0.1:9/{api}/{apiVersion}")
    api.root = {"API": "http://127.0.0.1:9", "name server": "http://tpu.invalid"}.get(down, api.url)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    error = error_of(NAMED)
    assert "Google's Cloud TPU API cannot be reached (" in error.what
    assert "check the network" in error.remedy


def test_a_machine_outside_of_google_cloud_needs_the_zone_and_the_project(api, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    for settings in (Config(tpu="my-tpu"), Config(tpu="us-z1-a/my-tpu")):
        error = error_of(settings)
        assert "the zone and the project are unknown" in error.what
        assert error.remedy == "give --tpu=PROJECT/ZONE/NAME"


def test_without_the_client_library_its_packages_are_named(api, monkeypatch):
    monkeypatch.setattr(tpu_client, "_GOOGLE_API_CLIENT_INSTALLED", False)
    remedy = error_of(NAMED).remedy
    assert "`pip install google-api-python-client oauth2client`" in remedy
    assert "do not install cloud-tpu-client" in remedy


def test_names_and_projects_are_quoted_in_commands(api):
    api.node = (200, {"state": "STOPPED"})
    settings = Config(tpu="p/z;x/a b")
    assert "start 'a b' --zone='z;x' --project=p`" in error_of(settings).remedy


def explained(error, settings=LOCAL):
    found = tpu_errors.explain(error, settings)
    assert "Graph execution error" not in str(found)
    return found


# Printed by tensorflow 2.20.0 and tensorflow-tpu 2.20.0 on a machine without a TPU.
PLAIN = (
    "TPUs not found in the cluster. Failed in initialization: No OpKernel was registered to "
    "support Op 'ConfigureDistributedTPU' used by {{node ConfigureDistributedTPU}} with these "
    'attrs: [embedding_config=""]\nRegistered devices: [CPU]\nRegistered kernels:\n  <none>'
)
NO_DEVICE = (
    "TPUs not found in the cluster. Failed in initialization: No matching devices found for "
    "'/device:TPU_SYSTEM:0' [Op:__inference__tpu_init_fn_4]"
)
NO_PLATFORM = (
    "Graph execution error:\n\nDetected at node disconnect_tpu_host/_1 defined at (most recent "
    "call last):\n<stack traces unavailable>\nRET_CHECK failure (learning/45eac/google/xla/"
    "tpu_node_interfaces.cc:432) *platform \n\t [[{{node disconnect_tpu_host/_1}}]] [Op:x]"
)


def test_tensorflow_without_tpu_support_really_fails_with_the_known_text(monkeypatch):
    assert error_of(LOCAL).what == "--tpu=local: this machine has no TPU chip"
    monkeypatch.setattr(tpu_machine, "find_chips", lambda root="/": ["/dev/accel0"])
    error = error_of(LOCAL)
    assert error.what == "--tpu=local: no TPU support in this TensorFlow"
    assert "make setup-tpu" in error.remedy and "gcloud" not in error.remedy


@pytest.mark.parametrize("text", [NO_DEVICE, NO_PLATFORM])
def test_a_missing_chip_is_named_whatever_tensorflow_says(text, monkeypatch):
    monkeypatch.setattr(tpu_machine, "find_chips", lambda root="/": [])
    error = explained(tf.errors.NotFoundError(None, None, text))
    assert error.what == "--tpu=local: this machine has no TPU chip"
    assert "gcloud" not in error.remedy and "omit --tpu" in error.remedy


def test_a_local_tpu_that_fails_for_an_unknown_reason(monkeypatch):
    monkeypatch.setattr(tpu_machine, "find_problem", lambda: None)
    error = explained(tf.errors.NotFoundError(None, None, NO_DEVICE))
    assert error.what == "--tpu=local: TensorFlow finds no TPU on this machine"
    assert "/tmp/tpu_logs" in error.remedy


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        (
            "ABORTED: The TPU is already in use by process with pid 123. Not attempting to load "
            "libtpu.so in this process.",
            "process 123 uses the TPU",
            "`kill 123`",
        ),
        (
            "The TPU is already in use by another process probably owned by another user.",
            "another process uses the TPU",
            "sudo lsof -w /tmp/libtpu_lockfile",
        ),
        (
            'Internal error when accessing libtpu multi-process lockfile. Run "$ sudo rm"',
            "another process uses the TPU",
            "sudo rm -f /tmp/libtpu_lockfile",
        ),
    ],
)
def test_a_tpu_in_use_is_reported_with_the_process(text, what, remedy):
    error = explained(tf.errors.AbortedError(None, None, text))
    assert what in error.what and remedy in error.remedy


def test_the_errors_of_a_server_are_not_those_of_this_machine():
    address = Config(tpu="grpc://10.0.0.2:8470")
    for settings in (address, NAMED):
        error = explained(tf.errors.NotFoundError(None, None, PLAIN), settings)
        assert "the TensorFlow server of this TPU finds no TPU" in error.what
        lost = tf.errors.UnavailableError(None, None, "failed to connect to all addresses")
        assert "no TensorFlow server answers" in explained(lost, settings).what
    assert "gcloud compute tpus tpu-vm" not in str(tpu_errors.unresponsive_error(address, 1))


def test_an_unknown_error_shows_its_cause_and_not_tensorflows_first_line():
    text = NO_PLATFORM.replace("RET_CHECK failure", "Something else")
    error = explained(tf.errors.InternalError(None, None, text), NAMED)
    assert error.what.startswith(
        "--tpu=p/us-z1-a/my-tpu cannot be used (InternalError: Something else ("
    )
    assert "tpu-vm list --zone=us-z1-a --project=p` that its state is READY" in error.remedy
    local = explained(ValueError("no idea"))
    assert "no idea" in local.what and "gcloud" not in local.remedy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NO_PLATFORM, "RET_CHECK failure (learning/45eac/google/xla/tpu_node_interfaces.cc:432)"),
        ("Graph execution error:\n\n2 root error(s) found.\n  (0) x\nboth failed", "both failed"),
        ("Graph execution error:", "Graph execution error:"),
        ("first\nsecond", "first"),
        ("  indented", "indented"),
        ("", ""),
    ],
)
def test_the_reason_of_an_error_is_its_first_telling_line(text, expected):
    assert reason(text).startswith(expected) and (expected or not reason(text))


class Cores(tf.distribute.cluster_resolver.TPUClusterResolver):
    """A resolver of a TPU with eight cores, without a connection."""

    def __init__(self, tpu, zone, project):
        self.arguments = (tpu, zone, project)

    def get_tpu_system_metadata(self):
        names = [f"/job:worker/replica:0/task:0/device:TPU:{core}" for core in range(8)]
        devices = tuple(tf.config.LogicalDevice(name, "TPU") for name in names)
        return TPUSystemMetadata(8, 1, 8, None, devices)

    def cluster_spec(self):
        return tf.train.ClusterSpec({})


@pytest.fixture
def eight_cores(monkeypatch):
    """Replaces the steps of the connection before the strategy; returns their calls."""
    places = [[x, y, 0, core] for x in range(2) for y in range(2) for core in range(2)]
    topology = tf.tpu.experimental.Topology(mesh_shape=[2, 2, 1, 2], device_coordinates=[places])
    calls = []

    def connect_to_cluster(resolver):
        calls.append(("connect", *resolver.arguments))

    def initialize(resolver):
        calls.append(("initialize", *resolver.arguments))
        return topology

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", Cores)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect_to_cluster)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", initialize)
    return calls


def test_a_tpu_is_connected_before_it_is_initialized(eight_cores):
    strategy = connect_tpu(NAMED)
    assert isinstance(strategy, tf.distribute.TPUStrategy)
    assert strategy.num_replicas_in_sync == 8
    resolved = ("my-tpu", "us-z1-a", "p")
    assert eight_cores == [("connect", *resolved), ("initialize", *resolved)]


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_tpu_cores_selects_a_part_of_the_cores(eight_cores, cores):
    devices = connect(Config(tpu="my-tpu", tpu_cores=cores, batch_size=64))
    assert devices.replicas == cores
    names = devices.strategy.extended.worker_devices
    assert len(set(names)) == cores and all("device:TPU:" in name for name in names)
    assert devices.describe() == f"{cores} TPU replica{'s' if cores > 1 else ''}"


def test_more_cores_than_the_tpu_has_are_an_error(eight_cores):
    with pytest.raises(UserError, match="--tpu_cores=9, but --tpu=my-tpu has 8 cores — give at m"):
        connect_tpu(Config(tpu="my-tpu", tpu_cores=9, batch_size=72))


def test_the_batch_must_divide_over_the_cores_in_use(eight_cores):
    with pytest.raises(UserError, match="--batch_size=66 does not divide over 8 replicas"):
        connection.connect(Config(tpu="my-tpu", batch_size=66))
    with pytest.raises(UserError, match="--batch_size=66 does not divide over 4 replicas"):
        Config(tpu="my-tpu", tpu_cores=4, batch_size=66)
    assert connect(Config(tpu="my-tpu", tpu_cores=3, batch_size=66)).replicas == 3


def test_a_run_of_a_named_tpu_can_be_used_without_it(tmp_path):
    directory = RunDirectory(str(tmp_path))
    settings = {"tpu": "local", "tpu_cores": 2}
    config = resolved(Config(**settings, model_dir=str(tmp_path)))
    check_resume(directory, config)
    directory.claim(config, DataRecord(DataSpec((8, 8, 1), 0))).release()
    found = find_run(str(tmp_path), {}, LIBRARY).config
    assert [getattr(found, name) for name in settings] == [None] * 2


def test_tpu_cores_requires_a_tpu():
    with pytest.raises(UserError, match="--tpu_cores=1 needs --tpu — add --tpu"):
        Config(tpu_cores=1)


@pytest.mark.slow
def test_a_tpu_that_does_not_respond_ends_the_program_with_one_line():
    program = (
        "import time\n"
        "import tensorflow as tf\n"
        "from wgan_gp import Config\n"
        "from wgan_gp.runtime.tpu_connection import connect_tpu\n"
        "tf.config.experimental_connect_to_cluster = lambda resolver: time.sleep(600)\n"
        "connect_tpu(Config(tpu='grpc://10.0.0.2:8470'), seconds=1)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 2
    (line,) = (line for line in result.stderr.splitlines() if "error:" in line)
    late = "error: --tpu=grpc://10.0.0.2:8470 did not answer within 1 seconds"
    assert line.startswith(late)


@pytest.mark.parametrize(
    ("tpu", "remedy"),
    [
        ("local", "--mode=doctor --tpu=local"),
        ("my-tpu", "tpu-vm stop my-tpu"),
        ("grpc://a:1", "port"),
    ],
)
def test_the_remedy_for_a_silent_tpu_depends_on_the_kind_of_its_name(tpu, remedy):
    error = tpu_errors.unresponsive_error(Config(tpu=tpu), 1)
    assert remedy in error.remedy and ("gcloud" in error.remedy) == (tpu == "my-tpu")


def test_a_url_error_of_a_local_tpu_is_not_about_zones():
    error = explained(urllib.error.URLError("x"))
    assert "zone" not in str(error) and error.what.startswith("--tpu=local cannot be used")


# The files of a machine with a TPU. PCI vendor 0x1ae0 is Google.
def chip(root, number=0):
    file = root / "dev" / f"accel{number}"
    file.parent.mkdir(exist_ok=True)
    file.touch()
    return file


def process(root, pid, file):
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("python3\n")
    (folder / "fd" / "3").symlink_to(file)


def pci_device(root, address, vendor, device):
    folder = root / "sys" / "bus" / "pci" / "devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "device").write_text(f"{device}\n")


def test_chips_are_found_by_their_device_files_or_on_the_pci_bus(tmp_path):
    assert tpu_machine.find_chips(str(tmp_path)) == []
    pci_device(tmp_path, "0000:00:04.0", "0x1ae0", "0x0042")  # Google's network device
    pci_device(tmp_path, "0000:00:05.0", "0x1af4", "0x0063")
    assert tpu_machine.find_chips(str(tmp_path)) == []
    pci_device(tmp_path, "0000:00:06.0", "0x1ae0", "0x0063")
    assert tpu_machine.find_chips(str(tmp_path)) == ["0000:00:06.0"]
    for number in (10, 2):
        chip(tmp_path, number)
    found = [str(tmp_path / "dev" / name) for name in ("accel2", "accel10")]
    assert tpu_machine.find_chips(str(tmp_path)) == found
    (tmp_path / "other" / "dev" / "vfio").mkdir(parents=True)
    for name in ("vfio", "0"):
        (tmp_path / "other" / "dev" / "vfio" / name).touch()
    assert tpu_machine.find_chips(str(tmp_path / "other")) == [
        str(tmp_path / "other" / "dev" / "vfio" / "0")
    ]


def test_the_process_that_uses_the_chips_is_found(tmp_path):
    file = chip(tmp_path)
    process(tmp_path, 17, tmp_path / "unrelated")
    assert tpu_machine.find_user(str(tmp_path)) is None
    process(tmp_path, 18, file)
    assert tpu_machine.find_user(str(tmp_path)) == (18, "python3")


def test_a_machine_is_checked_in_the_order_of_causes(tmp_path, monkeypatch):
    root, good = str(tmp_path), tmp_path / "libtpu.so"
    good.write_bytes(b"\0".join(symbol.encode() for symbol in tpu_machine.SYMBOLS) + b"\0")
    bad = tmp_path / "newer.so"
    bad.write_bytes(b"TfTpu_Initialize\0GetPjrtApi\0")

    def problem(**environment):
        found = tpu_machine.find_problem(environment, root)
        return found and str(found)

    assert "no TPU chip" in problem()
    process(tmp_path, 18, chip(tmp_path))
    assert "run `unset TPU_LOAD_LIBRARY`" in problem(TPU_LOAD_LIBRARY="0")
    assert f"{bad} lacks ConfigureDistributedTpuOp_DoWork" in problem(TPU_LIBRARY_PATH=str(bad))
    assert "cannot be read at /nowhere" in problem(TPU_LIBRARY_PATH="/nowhere")
    assert "process 18 (python3) uses the TPU" in problem(TPU_LIBRARY_PATH=str(good))
    assert problem(TPU_LIBRARY_PATH=str(good), TPU_VISIBLE_CHIPS="0") is None
    monkeypatch.setattr(tpu_machine.importlib.util, "find_spec", lambda name: None)
    assert "is not installed — run make setup-tensorflow-tpu" in problem()


def test_only_tensorflow_tpu_is_checked_before_it_is_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(tpu_machine, "installed_versions", lambda names: {})
    tpu_machine.check({}, str(tmp_path))
    monkeypatch.setattr(tpu_machine, "installed_versions", lambda names: {"tensorflow-tpu": "2"})
    with pytest.raises(UserError, match="no TPU chip"):
        tpu_machine.check({}, str(tmp_path))


def test_a_wrong_machine_ends_the_program_before_tensorflow_is_imported():
    program = (
        "import sys, train\n"
        "from wgan_gp.runtime import tpu_machine\n"
        "tpu_machine.installed_versions = lambda names: {'tensorflow-tpu': '2.20.0'}\n"
        "tpu_machine.find_chips = lambda root='/': []\n"
        "status = train.main(['train.py', '--tpu=local'])\n"
        "assert 'tensorflow' not in sys.modules\n"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("error: --tpu=local: this machine has no TPU chip")
