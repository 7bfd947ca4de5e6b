"""Processes that decode: the same examples as threads, and nothing of them is left."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tests.data.test_folder_source import find, numbered, write
from tests.helpers.decoders import Numbers
from wgan_gp.data.sources.encoded import Unreadable
from wgan_gp.data.store import building, processes, reading, store
from wgan_gp.errors import UserError


@pytest.fixture(autouse=True)
def _always_processes(monkeypatch):
    """Lets processes begin after 9 examples."""
    monkeypatch.setattr(building, "SHARD_BYTES", 100 * 32)
    for name, value in {
        "_CORES": 2,
        "_THREAD_ITEMS": 1,
        "_TRIAL_SECONDS": -1,
        "_WORTH_SECONDS": -1,
    }.items():
        monkeypatch.setattr(reading, name, value)


@pytest.fixture
def started(monkeypatch):
    """Returns the numbers of the processes that are started."""
    numbers = []
    start = subprocess.Popen

    def record(*arguments, **options):
        process = start(*arguments, **options)
        numbers.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", record)
    return numbers


def is_alive(process):
    try:  # a process that nothing waits for becomes a zombie
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_processes_without_tensorflow_keep_the_order(started):
    found = building.load(Numbers(events={5: "unreadable", 200: "unreadable", 300: "print"}))
    numbers, owners, threads, with_tensorflow = found.rows[:].T
    assert numbers.tolist() == [number for number in range(400) if number not in (5, 200)]
    assert found.labels.tolist() == (numbers % 2).tolist()
    assert found.record.left_out == ("5.png", "200.png")
    others = owners != os.getpid()
    assert set(owners[others]) == set(started) and len(started) == 2 and others.sum() > 300
    assert set(threads[others]) == {1} and not with_tensorflow[others].any()
    assert not any(map(is_alive, started))


@pytest.mark.parametrize("size", [400, 1])
def test_few_examples_need_no_processes(monkeypatch, started, size):
    monkeypatch.setattr(reading, "_WORTH_SECONDS", 60.0)
    assert set(building.load(Numbers(size)).rows[:][:, 1]) == {os.getpid()}
    assert not started


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_pictures_are_those_of_threads(tmp_path, monkeypatch, started, kind):
    names = [f"{'cat' if number % 3 else 'dog'}/{number:03}.png" for number in range(60)]
    files = numbered(*names) | {"dog/015.png": b"text", "cat/016.png": b""}
    source = find(write(tmp_path / "data", files, kind))
    found = building.load(source)
    assert len(started) == 2
    monkeypatch.setattr(reading, "_CORES", 1)
    expected = building.load(source)
    assert len(started) == 2 and len(expected) == 58
    assert found.record == expected.record
    np.testing.assert_array_equal(found.rows[:], expected.rows[:])
    np.testing.assert_array_equal(found.labels, expected.labels)


def test_files_of_a_bucket_are_read_here_and_decoded_there(started):
    folder = f"ram://{os.getpid()}-bucket"
    files = numbered(*(f"cat/{number:03}.png" for number in range(200)), ("cat/xyz.png", "text"))
    for name, content in files.items():
        tf.io.gfile.makedirs(os.path.dirname(f"{folder}/{name}"))
        with tf.io.gfile.GFile(f"{folder}/{name}", "wb") as file:
            file.write(content)
    source = find(folder)
    tf.io.gfile.remove(f"{folder}/cat/150.png")
    found = building.load(source)
    assert found.rows[:][:, 0, 0, 0].tolist() == [*range(150), *range(151, 200)]
    assert found.record.left_out == ("cat/150.png", "cat/xyz.png")
    assert len(started) == 2


def test_the_files_of_a_task_fit_in_memory(monkeypatch):
    monkeypatch.setattr(processes, "TASK_BYTES", 100)
    items = iter([(number, (b"x" * 40, 7)) for number in range(8)])
    assert [len(processes.take(items, 4)) for _ in range(4)] == [3, 3, 2, 0]
    assert processes.take(iter([("name", 0, None)] * 8), 5) == [("name", 0, None)] * 5


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            "killed",
            r"decoded --data_dir=numbers \(\d+.png to \d+.png\) was killed, as systems do when "
            "memory is short — free memory",
        ),
        ("crash", r"decoded --data_dir=numbers \(\d+.png to \d+.png\) ended by SIGSEGV — "),
        ("mistake", "^300.png is wrong — correct it$"),
    ],
)
def test_an_error_in_a_process_is_one_line_and_the_next_start_continues(
    tmp_path, started, event, message
):
    path = f"{tmp_path}/s"
    with pytest.raises(UserError, match=message):
        building.build(Numbers(events={300: event}), path)
    assert not any(map(is_alive, started))
    assert store.read_record(path + building.INCOMPLETE).size >= 100
    assert building.build(Numbers(), path).rows[:][:, 0].tolist() == list(range(400))


def test_a_bug_in_a_process_has_its_traceback():
    with pytest.raises(RuntimeError, match=r"(?s)decoders.py.*ZeroDivisionError: a bug"):
        building.load(Numbers(events={300: "bug"}))


def test_a_bucket_that_fails_ends_the_reading(started):
    class Unreachable(Numbers):
        def fetch(self, item):
            if item == 300:
                raise UserError("the bucket cannot be reached", "check the network")
            if item == 200:
                raise Unreadable("it was deleted")
            return item

    with pytest.raises(UserError, match="the bucket cannot be reached"):
        building.load(Unreachable())
    assert len(started) == 2 and not any(map(is_alive, started))


@pytest.mark.parametrize("program", ["/bin/false", "/missing", "", None])
def test_threads_decode_if_no_process_can_be_started(monkeypatch, capsys, program):
    monkeypatch.setattr(sys, "executable", program)
    found = building.load(Numbers())
    assert found.rows[:][:, 0].tolist() == list(range(400))
    assert set(found.rows[:][:, 1]) == {os.getpid()}
    assert capsys.readouterr().err.count("threads decode, which takes longer") == bool(program)


@pytest.mark.parametrize("decoder", [lambda item: None, None])
def test_threads_decode_what_other_processes_cannot(started, decoder):
    class Own(Numbers):
        def decoder(self):
            return decoder

    assert set(building.load(Own()).rows[:][:, 1]) == {os.getpid()}
    assert not started


def test_an_interrupt_does_not_wait_for_processes(started):
    class Interrupted(Numbers):
        def items(self, first=0):
            for number in range(self.size):
                if number == 250:
                    while len(started) < 2:
                        time.sleep(0.01)
                    raise KeyboardInterrupt
                yield number

    slow = dict.fromkeys(range(150, 250), "slow")
    with pytest.raises(KeyboardInterrupt):
        building.load(Interrupted(events=slow))
    assert len(started) == 2 and not any(map(is_alive, started))


SCRIPT = """
import os, sys
print("started", flush=True)
sys.path.insert(0, os.getcwd())
from tests.helpers.decoders import Numbers
from wgan_gp.data.store import building, processes, reading
reading._CORES, reading._THREAD_ITEMS = 2, 1
reading._TRIAL_SECONDS = reading._WORTH_SECONDS = -1
building.SHARD_BYTES = 100 * 32
begin = processes._Process.begin
def announce(process, decoder):
    begin(process, decoder)
    print(process._process.pid, flush=True)
processes._Process.begin = announce
slow = dict.fromkeys(range(250, 4000), "slow")
building.build(Numbers(4000, slow), sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_script_is_not_run_again_and_leaves_no_process(tmp_path, ending):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, f"{tmp_path}/script.py", f"{tmp_path}/s"]
    script = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert script.stdout.readline() == b"started\n"
    started = [int(script.stdout.readline()) for _ in range(2)]
    while not (tmp_path / "s.incomplete" / "data.json").exists():
        time.sleep(0.01)
    os.kill(script.pid, ending)
    assert script.stdout.read() == b""
    assert script.wait() == -ending
    deadline = time.monotonic() + 20
    while any(map(is_alive, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    built = building.build(Numbers(4000), f"{tmp_path}/s")
    assert built.rows[:][:, 0].tolist() == list(range(4000))
