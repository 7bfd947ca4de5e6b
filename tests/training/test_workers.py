"""Tests of several processes that train together, configured by TF_CONFIG."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.helpers.forks import Fork
from tests.helpers.runs import (
    LIBRARY,
    TINY,
    open_run,
    resolved,
    train_config,
    train_tiny,
    without_tracing,
)
from tests.training import worker
from tests.training.worker import weights_of
from wgan_gp.app import training
from wgan_gp.app.connection import equal_settings
from wgan_gp.app.resolve import resolve
from wgan_gp.app.run_errors import explain_error
from wgan_gp.config import Config, as_text
from wgan_gp.errors import UserError
from wgan_gp.runtime import cluster as workers
from wgan_gp.runtime import devices as runtime_devices
from wgan_gp.runtime.devices import connect


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def tf_config(addresses, index, kind="worker"):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": kind, "index": index}})


def environments(count):
    """Returns the environment of each of the processes that train together."""
    alone = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    if count == 1:
        return [alone]
    addresses = free_addresses(count)
    return [{**alone, "TF_CONFIG": tf_config(addresses, index)} for index in range(count)]


def start(tmp_path, train_steps, directories=("run", "run"), **settings):
    """Starts one process for each directory; several processes train together."""
    processes = []
    each = zip(directories, environments(len(directories)), strict=True)
    for index, (directory, environment) in enumerate(each):
        weights = tmp_path / f"weights-{len(directories)}-{index}.npz"
        arguments = [str(tmp_path / directory), str(weights), str(train_steps)]
        arguments.append(json.dumps(settings))
        processes.append(Fork(worker.main, arguments, environment=environment))
    return processes


def finish(processes):
    """Waits for the processes and returns (exit status, error lines) of each."""
    outputs = [process.communicate(timeout=600) for process in processes]
    return [
        (process.returncode, [line for line in error.splitlines() if line.startswith("error:")])
        for process, (_, error) in zip(processes, outputs, strict=True)
    ]


def load(path):
    with np.load(path) as arrays:
        return [arrays[name] for name in arrays.files]


def checkpoints(path):
    return sorted(file.stem for file in (path / "checkpoints").glob("*.index"))


def read_until(process, line):
    for each in process.stdout:
        if each.strip() == line:
            return
    raise AssertionError(process.stderr.read())


both_runtimes = pytest.mark.parametrize("runtime", ["tensorflow", "pjrt"])


def streamed_pictures(tmp_path):
    """Returns the settings of a run on a folder of pictures."""
    folder = tmp_path / "pictures" / "all"
    folder.mkdir(parents=True)
    for index, pixels in enumerate(np.random.default_rng(0).integers(0, 256, [20, 8, 8, 3])):
        PIL.Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
    settings = {"dataset": "image_folder", "data_dir": str(folder)}
    return settings | {"image_size": 8, "conditioning": "none", "model": "mlp"}


def array_in_memory(tmp_path):
    """Returns the settings of a run on an array, which has another fingerprint than files."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(20, 3)))
    return {"dataset": "array", "data_dir": str(tmp_path / "rows.npy"), "model": "mlp"}


@pytest.mark.slow
@pytest.mark.parametrize("settings_of", [streamed_pictures, array_in_memory])
def test_two_processes_give_the_result_of_one_and_write_one_checkpoint(tmp_path, settings_of):
    """The tests of data show that processes have their parts of other data."""
    settings = settings_of(tmp_path) | {"sample_interval": 0}
    memory = "off" if settings_of is streamed_pictures else "device"
    assert finish(start(tmp_path, 4, memory=memory, **settings)) == [(0, []), (0, [])]
    chief, other = load(tmp_path / "weights-2-0.npz"), load(tmp_path / "weights-2-1.npz")
    settings |= {"steps_per_loop": 2, "learning_rate_schedule": "constant"}
    alone, _ = train_tiny(tmp_path / "alone", train_steps=4, **settings)
    for mine, theirs, expected in zip(chief, other, weights_of(alone.state), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-4)
    assert checkpoints(tmp_path / "run") == ["ckpt-2", "ckpt-4"]
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    assert len(list((tmp_path / "run" / "train").glob("events.*"))) == 1


@pytest.mark.slow
def test_a_process_of_jax_may_end_long_after_the_first_one():
    processes = [Fork(worker.leave, ["10"], environment=each) for each in environments(2)]
    assert finish(processes) == [(0, []), (0, [])]


@pytest.mark.slow
@both_runtimes
def test_a_killed_process_ends_the_other_and_a_signal_to_one_stops_both(tmp_path, runtime):
    chief, other = start(tmp_path, 100_000, runtime=runtime)
    read_until(chief, "after 6")
    other.kill()
    (status, errors), _ = finish([chief, other])
    assert status == 2 and len(errors) == 1
    assert errors[0].startswith("error: another process has ended")
    assert "start the same command on every machine" in errors[0]
    saved = max(int(name.removeprefix("ckpt-")) for name in checkpoints(tmp_path / "run"))
    assert saved >= 4
    chief, other = start(tmp_path, 100_000, runtime=runtime)
    # The first loop starts from the checkpoint.
    first = next(line for line in other.stdout if line.startswith("after"))
    assert first.strip() == f"after {saved + 2}"
    other.send_signal(signal.SIGTERM)
    # Both stop after the same loop. Otherwise one would wait for the other forever.
    assert finish([chief, other]) == [(143, []), (143, [])]
    last = max(int(name.removeprefix("ckpt-")) for name in checkpoints(tmp_path / "run"))
    assert last > saved


@pytest.mark.slow
def test_a_run_of_jax_continues_bit_for_bit_with_fewer_processes(tmp_path):
    settings = streamed_pictures(tmp_path) | {"runtime": "pjrt"}
    assert finish(start(tmp_path, 4, stop_step=2, memory="off", **settings)) == [(0, []), (0, [])]
    assert checkpoints(tmp_path / "run") == ["ckpt-2"]
    settings |= {"cpu_replicas": 2, "steps_per_loop": 2, "checkpoint_interval": 2}
    settings |= {"learning_rate_schedule": "constant", "train_steps": 4}
    resumed, alone = (train_tiny(tmp_path / name, **settings)[0] for name in ("run", "alone"))
    for mine, expected in zip(weights_of(resumed.state), weights_of(alone.state), strict=True):
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.slow
def test_a_killed_chief_ends_the_other_process_of_jax(tmp_path):
    """The chief runs the service of jax, without which jax aborts a process."""
    chief, other = start(tmp_path, 100_000, runtime="pjrt")
    read_until(chief, "after 6")
    chief.kill()
    _, (status, errors) = finish([chief, other])
    assert status == 2 and len(errors) == 1
    assert errors[0].startswith("error: another process has ended")


@pytest.mark.slow
@both_runtimes
def test_both_roll_back_together(tmp_path, runtime):
    processes = start(tmp_path, 20, runtime=runtime, spoil_after=4)
    (status, chiefs), (other_status, others) = finish(processes)
    assert status == other_status == 2
    assert chiefs == others and len(chiefs) == 1
    assert "iteration 5: the critic's loss or gradient is not finite" in chiefs[0]
    assert "and 3 attempts with other noise failed" in chiefs[0]
    assert checkpoints(tmp_path / "run") == ["ckpt-2", "ckpt-4"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", workers.SINGLE_PROCESS),
        ("{}", workers.SINGLE_PROCESS),
        (tf_config(["a:1"], 0), workers.SINGLE_PROCESS),
        (tf_config(["a:1", "b:2"], 1), workers.Cluster(("a:1", "b:2"), 1)),
        (
            '{"cluster": {"chief": ["c:65535"], "worker": ["[::1]:1"]},'
            ' "task": {"type": "worker", "index": "0"}}',
            workers.Cluster(("c:65535", "[::1]:1"), 1),
        ),
    ],
)
def test_tf_config_is_parsed(text, expected):
    found = workers.parse_tf_config({"TF_CONFIG": text})
    assert found == expected and found.is_chief == (expected.index == 0)
    assert found.has_peers == (found is not workers.SINGLE_PROCESS)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        tf_config(["a:1", "b:2"], 2),
        tf_config(["a:1", "b:2"], -1),
        tf_config(["a:1", "b:2"], 0, "boss"),
        '{"cluster": {"worker": ["a:1", "b:2"]}}',
        '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
        tf_config(["a:1", "b:2"], 0.5),
        tf_config(["a:1", "b:2"], True),
        tf_config(["a:1", "a:1"], 0),
        tf_config(["a:1", "b"], 0),
        tf_config(["a:1", ":2"], 0),
        tf_config(["a:1", "b:99999999"], 0),
        tf_config(["a:1", "b:65536"], 0),
        tf_config(["a:1", "b:-5"], 0),
        tf_config(["a:1", "b:0"], 0),
        tf_config(["a:1", "b:x"], 0),
        tf_config(["a:1", "b\n:2"], 0),
        tf_config(["a:1", "b\0:2"], 0),
        tf_config(["a:1", 5], 0),
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_an_invalid_tf_config_is_refused(text):
    with pytest.raises(UserError, match=r"TF_CONFIG does not describe a cluster .* — set it as in"):
        workers.parse_tf_config({"TF_CONFIG": text})


def test_cpu_replicas_require_a_single_machine(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1", "b:2"], 0))
    with pytest.raises(
        UserError, match="--cpu_replicas=2 requires a single machine, but TF_CONFIG"
    ):
        connect(Config(cpu_replicas=2))


def test_a_peer_that_does_not_start_is_named():
    own, other = free_addresses(2)
    message = f"no process responds at {other} of TF_CONFIG after 0.2 seconds"
    peers = workers.meeting_peers(workers.Cluster((own, other), 0), 0.2)
    with pytest.raises(UserError, match=message), peers:
        pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM when"),
            "does not fit in memory .* smaller --batch_size",
        ),
        (tf.errors.UnavailableError(None, None, "reset by peer"), None),
        (tf.errors.InvalidArgumentError(None, None, "shapes differ"), None),
    ],
)
def test_errors_of_tensorflow_that_a_user_can_correct_are_explained(error, message):
    explained = explain_error(error, Config(), workers.SINGLE_PROCESS)
    assert (explained is None) == (message is None)
    if message is not None:
        with pytest.raises(UserError, match=message):
            raise explained


def test_addresses_may_be_of_ipv6(monkeypatch):
    """The machine of the tests may have none."""
    called, connection = [], contextlib.nullcontext()
    monkeypatch.setattr(
        socket, "create_connection", lambda *address, timeout: called.append(address) or connection
    )
    monkeypatch.setattr(
        socket, "create_server", lambda *address, **kinds: called.append(kinds) or connection
    )
    with workers.meeting_peers(workers.Cluster(("[::1]:1", "[fe80::2]:2"), 0), 5):
        pass
    assert called[0]["family"] == socket.AF_INET6 and called[1] == (("fe80::2", 2),)


def test_a_process_that_cannot_use_its_address_is_refused():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        own = f"127.0.0.1:{taken.getsockname()[1]}"
        peers = workers.meeting_peers(workers.Cluster((own, "127.0.0.1:1"), 0), 5)
        with pytest.raises(UserError, match=f"cannot use its address {own} of TF_CONFIG"), peers:
            pass


class FakePeers(workers.Peers):
    """The numbers of this process, and `other` of them for a second one."""

    def __init__(self, other):
        self._other = other

    def gather(self, numbers):
        return np.array([numbers, self._other(numbers)])

    def end(self):
        pass


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (0, r"find different numbers of images \[100, 101\] in --data_dir"),
        (1, "find different file names, classes or examples in their data"),
        (2, "some processes have held-out data, and others do not"),
        (3, r"start at different iterations \[5, 6\]"),
    ],
)
def test_processes_of_different_runs_are_refused(column, message):
    peers = FakePeers(lambda numbers: [n + (i == column) for i, n in enumerate(numbers)])
    with pytest.raises(UserError, match=message):
        workers.check_same_run(peers, 100, {"names": "a", "classes": "b"}, False, 5)


def typed_table_of(tmp_path):
    (tmp_path / "a.csv").write_text("age,job\n" + "20,x\n31,y\n42,x\n")
    return {"dataset": "array", "data_dir": str(tmp_path / "a.csv"), "column_types": "auto"}


def points_of(tmp_path):
    return {"dataset": "swiss_roll"}


KINDS = [streamed_pictures, array_in_memory, typed_table_of, points_of]


@pytest.mark.parametrize("settings_of", KINDS)
def test_processes_with_the_same_data_of_any_kind_are_accepted(tmp_path, settings_of):
    dataset = resolve(Config(batch_size=2, **settings_of(tmp_path)), LIBRARY.models)[1]
    same = FakePeers(lambda numbers: numbers)
    workers.check_same_run(same, 4, dataset.fingerprint(), False, 5)


def test_processes_with_different_examples_are_refused(tmp_path):
    found = []
    for scale in (1.0, 2.0):
        settings = array_in_memory(tmp_path)
        np.save(settings["data_dir"], scale * np.load(settings["data_dir"]))
        dataset = resolve(Config(batch_size=2, **settings), LIBRARY.models)[1]
        spy = FakePeers(lambda numbers: found.append(numbers) or numbers)
        workers.check_same_run(spy, 4, dataset.fingerprint(), False, 5)
    peers = FakePeers(lambda numbers: found[0])
    with pytest.raises(UserError, match="classes or examples in their data"):
        workers.check_same_run(peers, 4, dataset.fingerprint(), False, 5)


@pytest.mark.slow
def test_processes_with_different_directories_are_refused(tmp_path):
    """The other process finds no checkpoint."""
    settings = {"steps_per_loop": 2, "learning_rate_schedule": "constant"}
    with without_tracing():
        train_tiny(tmp_path / "run", train_steps=2, **settings)
    config = Config(model_dir=str(tmp_path / "run"), train_steps=4, **{**TINY, **settings})
    run = open_run(config)
    peers = FakePeers(lambda numbers: [*numbers[:3], 0])
    run = dataclasses.replace(run, devices=dataclasses.replace(run.devices, peers=peers))
    with pytest.raises(UserError, match=r"the processes start at different iterations \[0, 2\]"):
        training.make_trainer(run)


def gathered_numbers(config):
    """Returns all numbers that `check_same_flags` gathers from a process."""
    found = []
    peers = FakePeers(lambda numbers: found.append(numbers) or numbers)
    workers.check_same_flags(peers, equal_settings(config))
    return found


def test_every_flag_that_must_be_equal_is_compared():
    base = Config(dataset="tfrecord", data_dir="a")
    for field in dataclasses.fields(Config):
        other = dataclasses.replace(base)
        # This avoids the checks of the configuration, which are not tested here.
        object.__setattr__(other, field.name, "another")
        numbers_of_other = gathered_numbers(other)
        peers = FakePeers(lambda numbers, queue=numbers_of_other: queue.pop(0))
        if field.metadata["per_process"]:
            workers.check_same_flags(peers, equal_settings(base))
            continue
        value = re.escape(f"--{field.name}={as_text(getattr(base, field.name))}")
        with pytest.raises(
            UserError, match=rf"different flags \(this process: {value}\) — start the"
        ):
            workers.check_same_flags(peers, equal_settings(base))


def test_another_version_of_the_program_is_refused():
    peers = FakePeers(lambda numbers: [numbers[0] + 1])
    with pytest.raises(UserError, match=r"run different versions of this program .* — install the"):
        workers.check_same_flags(peers, equal_settings(Config()))


def test_flags_are_compared_before_anything_is_created(tmp_path, monkeypatch):
    """Without this check, the processes would wait for each other or crash."""
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1", "b:2"], 0))
    monkeypatch.setattr(workers, "meeting_peers", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda: None)
    config = resolved(Config(seed=16, model_dir=str(tmp_path / "run")))
    queue = gathered_numbers(dataclasses.replace(config, seed=15))
    peers = FakePeers(lambda numbers: queue.pop(0))
    monkeypatch.setattr(runtime_devices, "StrategyPeers", lambda _: peers)
    with pytest.raises(UserError, match=r"different flags \(this process: --seed=16\)"):
        train_config(config)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_program_at_the_port_of_a_peer_causes_a_timeout():
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        addresses = [*free_addresses(1), f"127.0.0.1:{stranger.getsockname()[1]}"]
        environment = {**os.environ, "TF_CONFIG": tf_config(addresses, 0)}
        with Fork(connect_to_peers, (), environment=environment) as program:
            _, error = program.communicate(timeout=600)
            assert program.returncode == -signal.SIGKILL
    assert f"{addresses[1]}) responded as this program within 8 seconds" in error


def connect_to_peers(argv):
    workers.connect_cluster(workers.parse_tf_config(), seconds=8)
    return 0


def test_an_error_of_this_machine_is_not_reported_as_a_lost_peer():
    cluster = workers.Cluster(("a:1", "b:2"), 0)
    error = tf.errors.InternalError(None, None, "cuDNN launch failure")
    assert explain_error(error, Config(), cluster) is None
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer")
    with pytest.raises(
        UserError, match=r"has ended \(UnavailableError: Connection reset by peer\)"
    ):
        raise explain_error(lost, Config(), cluster)


def test_errors_before_training_are_explained(monkeypatch, tmp_path):
    def fail(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    monkeypatch.setattr(training, "open_run", fail)
    with pytest.raises(UserError, match="the run does not fit in memory"):
        train_config(Config(model_dir=str(tmp_path)))


def test_tf_config_is_ignored_on_a_tpu(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1", "b:2"], 1))
    assert workers.find_cluster(Config(tpu="local")) is workers.SINGLE_PROCESS
    assert workers.find_cluster(Config()) == workers.Cluster(("a:1", "b:2"), 1)
