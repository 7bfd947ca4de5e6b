"""Processes that decode: the same examples as threads, and nothing of them is left."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

import numpy as np
import PIL.Image
import psutil
import pytest
import tensorflow as tf

from tests.data.test_folder_source import find, numbered, write
from tests.helpers.decoders import Numbers
from wgan_gp.data.sources import encoded as decoding
from wgan_gp.data.sources.encoded import Item, Unreadable
from wgan_gp.data.store import building, store
from wgan_gp.errors import UserError


@pytest.fixture
def started(monkeypatch):
    """Returns the numbers of the processes that decode, which begin after a few examples."""
    numbers = []

    class Waiting(decoding._Processes):
        def start(self, count):
            before = set(psutil.Process().children(recursive=True))
            super().start(count)
            if self._first is not None:
                concurrent.futures.wait([self._first])
            found = set(psutil.Process().children(recursive=True)) - before
            numbers.extend(
                each.pid for each in found if "resource_tracker" not in str(each.cmdline())
            )

    monkeypatch.setattr(building, "SHARD_BYTES", 100 * 32)
    values = {"_Processes": Waiting, "_CORES": 2, "_FIRST_ITEMS": 1}
    values |= {"_TRIAL_SECONDS": -1, "_WORTH_SECONDS": -1}
    for name, value in values.items():
        monkeypatch.setattr(decoding, name, value)
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
    assert {*owners[others]} <= set(started) and len(started) == 2 and others.sum() > 300
    assert set(threads[others]) == {1} and not with_tensorflow[others].any()
    assert not any(map(is_alive, started))


@pytest.mark.parametrize("size", [400, 1])
def test_few_examples_need_no_processes(monkeypatch, started, size):
    monkeypatch.setattr(decoding, "_WORTH_SECONDS", 60.0)
    assert set(building.load(Numbers(size)).rows[:][:, 1]) == {os.getpid()}
    assert not started


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_pictures_are_those_of_threads(tmp_path, monkeypatch, started, kind):
    names = [f"{'cat' if number % 3 else 'dog'}/{number:03}.png" for number in range(60)]
    files = numbered(*names) | {"dog/015.png": b"text", "cat/016.png": b""}
    source = find(write(tmp_path / "data", files, kind))
    found = building.load(source)
    assert len(started) == 2
    monkeypatch.setattr(decoding, "_CORES", 1)
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
    monkeypatch.setattr(decoding, "_TASK_BYTES", 100)
    for content in (b"x" * 40, np.zeros([40], np.uint8)):
        items = iter([Item(str(number), 0, content) for number in range(8)])
        assert [len(decoding.take(items, 4)) for _ in range(4)] == [3, 3, 2, 0]
    paths = [Item("name", 0, "path" * 100)] * 8
    assert decoding.take(iter(paths), 5) == paths[:5]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            "killed",
            r"decoded --data_dir=numbers was killed or crashed at \d+.png or after it, as when "
            "memory is short — free memory",
        ),
        ("crash", r"decoded --data_dir=numbers was killed or crashed at \d+.png"),
        ("mistake", "^--data_dir=numbers: 300.png: it is wrong — correct it$"),
    ],
)
def test_an_error_in_a_process_is_one_line_and_the_next_start_continues(
    tmp_path, started, event, message
):
    path = f"{tmp_path}/s"
    with pytest.raises(UserError, match=message):
        building.build(Numbers(events={300: event}), path)
    assert len(started) == 2 and not any(map(is_alive, started))
    assert store.read_record(path + building.INCOMPLETE).size >= 100
    assert building.build(Numbers(), path).rows[:][:, 0].tolist() == list(range(400))


def test_a_bug_in_a_process_has_its_traceback(started):
    with pytest.raises(ZeroDivisionError) as caught:
        building.load(Numbers(events={300: "bug"}))
    assert "decoders.py" in "".join(traceback.format_exception(caught.value))


def test_a_bucket_that_fails_ends_the_reading(started):
    class Unreachable(Numbers):
        def items(self, first=0):
            for item in super().items(first):
                if item.content == 300:
                    raise UserError("the bucket cannot be reached", "check the network")
                yield item._replace(content=Unreadable("deleted")) if item.label else item

    with pytest.raises(UserError, match="the bucket cannot be reached"):
        building.load(Unreachable())
    assert len(started) == 2 and not any(map(is_alive, started))


@pytest.mark.parametrize("program", ["/bin/false", "/missing", "", None])
def test_threads_decode_if_no_process_can_be_started(monkeypatch, started, program):
    monkeypatch.setattr(sys, "executable", program)
    store = building.load(Numbers())
    assert len(store) == Numbers().size and started == []


def test_an_interrupt_does_not_wait_for_processes(started):
    class Interrupted(Numbers):
        def items(self, first=0):
            for item in super().items(first):
                if item.content == 250:
                    raise KeyboardInterrupt
                yield item

    asleep = dict.fromkeys(range(245, 250), "asleep")  # for minutes
    with pytest.raises(KeyboardInterrupt):
        building.load(Interrupted(events=asleep))
    assert len(started) == 2 and not any(map(is_alive, started))


SCRIPT = """
import os, sys
print("started", flush=True)
sys.path.insert(0, os.getcwd())
from tests.helpers.decoders import Numbers
from wgan_gp.data.sources import encoded as decoding
from wgan_gp.data.store import building
decoding._CORES, decoding._FIRST_ITEMS = 2, 1
decoding._TRIAL_SECONDS = decoding._WORTH_SECONDS = -1
decoding._IDLE_SECONDS = 1
building.SHARD_BYTES = 100 * 32
slow = dict.fromkeys(range(250, 4000), "slow")
building.build(Numbers(4000, slow), sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_script_is_not_run_again_and_leaves_no_process(tmp_path, ending):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, f"{tmp_path}/script.py", f"{tmp_path}/s"]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert script.stdout.readline() == b"started\n"
    record = tmp_path / "s.incomplete" / "data.json"
    while len(psutil.Process(script.pid).children(recursive=True)) < 3 or not record.exists():
        time.sleep(0.01)
    started = [each.pid for each in psutil.Process(script.pid).children(recursive=True)]
    if ending == signal.SIGINT:
        os.killpg(script.pid, ending)  # as a terminal does
    else:
        os.kill(script.pid, ending)
    assert script.stdout.read() == b""
    assert script.wait() == -ending
    deadline = time.monotonic() + 30
    while any(map(is_alive, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    built = building.build(Numbers(4000), f"{tmp_path}/s")
    assert built.rows[:][:, 0].tolist() == list(range(4000))


WITHOUT_GUARD = """
import sys
print("started")
import wgan_gp
from wgan_gp.data.sources import encoded as decoding
decoding._CORES, decoding._TRIAL_SECONDS, decoding._WORTH_SECONDS = 2, -1, -1
decoding._FIRST_ITEMS = 1
start = decoding._Processes.start
def wait(self, count):
    start(self, count)
    print("process", self._first.result() > 0)
decoding._Processes.start = wait
wgan_gp.train(wgan_gp.Config(
    dataset="image_folder", data_dir=sys.argv[1], model_dir=sys.argv[2], data_cache=sys.argv[2],
    model="mlp", model_width=4, model_depth=1, batch_size=4, train_steps=2, n_critic=1,
))
"""


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path):
    for number in range(64):
        PIL.Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "script.py").write_text(WITHOUT_GUARD)
    root = pathlib.Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, f"{tmp_path}/script.py", str(tmp_path), f"{tmp_path}/run"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("started") == result.stdout.count("process True") == 1
