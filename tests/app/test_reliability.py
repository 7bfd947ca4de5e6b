"""Tests of damaged checkpoints, full disks and two processes in one directory."""

import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest
import tensorflow as tf

from tests.fuzz import results
from tests.helpers.forks import start_program
from tests.helpers.runs import (
    TINY,
    call_main,
    open_run,
    resolved,
    train_config,
    train_tiny,
)
from tests.training.test_diagnosis import HEALTHY
from wgan_gp.app import run_hooks, training
from wgan_gp.app.saved_run import check_resume
from wgan_gp.config import Config
from wgan_gp.data.data_record import DataRecord
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.run_directory import files, json_files, lock
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.run_directory.json_files import write_object
from wgan_gp.run_directory.lock import Lock
from wgan_gp.training import checkpoint_files, checkpointing
from wgan_gp.training.checkpoint_files import select_checkpoint
from wgan_gp.training.checkpointing import Checkpoints
from wgan_gp.writers.files import JsonlWriter
from wgan_gp.writers.writer import MemoryWriter

ROOT = pathlib.Path(__file__).parents[2]
EVERY_5 = {"summary_interval": 5, "sample_interval": 5, "checkpoint_interval": 5}
CONSTANT = {"learning_rate_schedule": "constant"}  # allows a resume with more iterations


def tiny(model_dir, *arguments):
    """Returns the flags of a tiny run."""
    flags = [f"--model_dir={model_dir}", "--model=mlp", "--model_width=4", "--model_depth=1"]
    return [*flags, "--latent_size=8", "--batch_size=16", "--n_critic=2", *arguments]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run with checkpoints and samples after 5, 10 and 15 iterations."""
    path = tmp_path_factory.mktemp("saved")
    run, _ = train_tiny(path / "run", train_steps=15, **CONSTANT, **EVERY_5)
    return run, path / "run" / "checkpoints"


def damage(dice, file):
    """Flips a bit of a file, or truncates or deletes it."""
    content = bytearray(file.read_bytes())
    kind = dice.choice(["flip", "cut", "delete"])
    if kind == "delete":
        file.unlink()
        return
    place = dice.randrange(len(content))
    if kind == "flip":
        content[place] ^= 1 << dice.randrange(8)
    else:
        del content[place:]
    file.write_bytes(content)


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_checkpoint_is_skipped(saved, tmp_path, capsys, seed):
    """The newest undamaged checkpoint is restored; without one, there is a one-line error."""
    run, original = saved
    dice = random.Random(seed)
    for attempt in range(10):
        copy = tmp_path / str(attempt)
        shutil.copytree(original, copy)
        files = sorted(copy.glob("ckpt-*"))
        spoiled = dice.sample(files, dice.choice([1, 2, 4, len(files)]))
        for file in spoiled:
            damage(dice, file)
        whole = {5, 10, 15} - {int(re.search(r"ckpt-(\d+)", file.name)[1]) for file in spoiled}
        checkpoints = Checkpoints(run.state, str(copy))
        if whole:
            assert checkpoints.restore_latest() == max(whole)
        else:
            with pytest.raises(UserError, match="contains no undamaged checkpoint, although"):
                checkpoints.restore_latest()
        warned = re.findall(
            r"warning: \S+/ckpt-(\d+) is .* and is skipped\n", capsys.readouterr().err
        )
        assert all(int(number) > max(whole, default=0) for number in warned)


@pytest.mark.slow
def test_a_run_directory_may_contain_the_characters_of_a_pattern(saved, tmp_path):
    """The name does not match itself as a pattern, even if its brackets are escaped."""
    path = tmp_path / "lr=[1e-4,3e-4] st*r what? back\\slash"
    shutil.copytree(saved[1].parent, path)
    run, _ = train_tiny(path, train_steps=20, keep_checkpoints=1, **CONSTANT, **EVERY_5)
    assert int(run.state.iteration) == 20
    assert [file.name for file in path.glob("checkpoints/ckpt-*.json")] == ["ckpt-20.json"]
    files = json.loads((path / "checkpoints" / "ckpt-20.json").read_text())["files"]
    assert set(files) == {".index", ".data-00000-of-00001"}
    steps = [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [5, 10, 15, 20]
    assert call_main("--mode=sample", f"--model_dir={path}", "--num_samples=4") == 0


def test_a_run_directory_does_not_match_its_neighbors(saved, tmp_path):
    run, original = saved
    shutil.copytree(original, tmp_path / "star_a")
    (tmp_path / "star*").mkdir()
    checkpoints = Checkpoints(run.state, f"{tmp_path}/star*", keep=1)
    for iteration in (15, 20):
        run.state.iteration.assign(iteration)
        checkpoints.save()
    assert {path.stem for path in (tmp_path / "star*").glob("ckpt-*.json")} == {"ckpt-20"}
    names = sorted(file.name for file in original.iterdir())
    assert sorted(file.name for file in (tmp_path / "star_a").iterdir()) == names


@pytest.mark.slow
def test_files_are_flushed_to_the_disk_in_order(tmp_path, monkeypatch):
    """The manifest of a checkpoint reaches the disk after its files and before its directory."""
    synced, fsync = [], os.fsync

    def record(handle):
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    train_tiny(tmp_path, train_steps=5)
    expected = ["metrics.jsonl", "checkpoints/ckpt-5.data-00000-of-00001"]
    expected += ["checkpoints/ckpt-5.index", "checkpoints/ckpt-5.json.new", "checkpoints"]
    places = [synced.index(name) for name in expected]
    assert places == sorted(places)
    assert {"config.json.new", "data.json.new", "."} < set(synced)


def test_only_a_missing_support_of_fsync_is_ignored(tmp_path, monkeypatch):
    for number, fails in ((errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)):

        def fsync(handle, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError) if fails else contextlib.nullcontext():  # noqa: PT011
            files.fsync(str(tmp_path))


def test_incomplete_files_left_by_a_crash_are_not_a_checkpoint(saved, tmp_path):
    run, original = saved
    for name in ("ckpt-5.index", "ckpt-5.data-00000-of-00001"):  # its manifest is missing
        shutil.copy(original / name, tmp_path)
    (tmp_path / "ckpt-3.data-00000-of-00001.tempstate7").write_text("torn")
    (tmp_path / "ckpt-2_temp").mkdir()
    run.state.iteration.assign(0)
    checkpoints = Checkpoints(run.state, str(tmp_path))
    assert checkpoints.restore_latest() == 0
    run.state.iteration.assign(7)
    checkpoints.save()
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"checkpoint", "ckpt-7"}


def test_a_checkpoint_of_another_version_is_refused(saved, tmp_path, monkeypatch):
    state = saved[0].state
    state.iteration.assign(15)
    checkpoints = Checkpoints(state, str(tmp_path))
    monkeypatch.setattr(json_files, "VERSION", 2)
    checkpoints.save()
    monkeypatch.setattr(json_files, "VERSION", 1)
    with pytest.raises(UserError, match=r"ckpt-15.json was written by another version of this"):
        checkpoints.restore_latest()


@pytest.mark.slow
def test_a_run_starts_from_the_checkpoint_of_another(saved, tmp_path):
    shutil.copytree(saved[1].parent, tmp_path / "a")
    settings = {"restore_from": f"{tmp_path}/a/checkpoints/ckpt-5", "critic_learning_rate": 1e-2}
    _, writer = train_tiny(tmp_path / "b", train_steps=20, **EVERY_5, **settings)
    assert [step for step, _ in writer.summaries] == [10, 15, 20]
    # Once the run has its own checkpoint, it no longer needs the other run.
    shutil.rmtree(tmp_path / "a")
    config = Config(model_dir=f"{tmp_path}/b", train_steps=20, **TINY, **EVERY_5, **settings)
    write_object(str(tmp_path / "b" / "config.json"), resolved(config).to_dict())
    assert train_config(resolved(config)) is None
    assert len((tmp_path / "b" / "metrics.jsonl").read_text().splitlines()) == 3
    # A run directory stands for its newest checkpoint.
    config = Config(model_dir=f"{tmp_path}/c", restore_from=f"{saved[1].parent}", **TINY)
    assert open_run(resolved(config)).checkpoints.restore_latest() == 15


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none", "--restore_from=none contains no checkpoint — give a run directory"),
        ("none/ckpt-3", "--restore_from=none/ckpt-3 is incomplete"),
    ],
)
def test_a_missing_checkpoint_to_start_from_is_a_one_line_error(tmp_path, path, message):
    config = resolved(Config(model_dir=str(tmp_path), restore_from=path))
    with pytest.raises(UserError, match=message):
        train_config(config)


@pytest.mark.slow
def test_tensorboard_shows_repeated_iterations_once(saved, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(saved[1].parent, path)
    for number in (10, 15):
        delete_newest(f"{path}/checkpoints/ckpt-{number}")
    events = next((path / "train").glob("events.*"))
    events.write_bytes(events.read_bytes()[:-3])  # truncated by the crash
    train_tiny(path, train_steps=20, **CONSTANT, **EVERY_5)
    assert [step for step, _ in results.curve(path)] == [5, 10, 15, 20]
    assert not (path / "train" / "cut.new").exists()


@pytest.mark.slow
def test_a_full_disk_is_a_one_line_error_and_loses_no_checkpoint(tmp_path, capsys):
    """A limit on the size of files simulates it, because a checkpoint is the largest file."""
    arguments = ["--steps_per_loop=5", "--checkpoint_interval=5", "--model_width=512"]
    arguments += ["--learning_rate_schedule=constant", "--sample_interval=0"]
    assert call_main(*tiny(tmp_path, *arguments, "--train_steps=5")) == 0
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, most))
    try:
        assert call_main(*tiny(tmp_path, *arguments, "--train_steps=20")) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    *_, error = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: \S+/ckpt-10 cannot be saved \(.*\) — free disk space .*", error)
    assert call_main(*tiny(tmp_path, *arguments, "--train_steps=10")) == 0
    # A run that had started from scratch would have removed the line of iteration 5.
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10]


@pytest.mark.slow
def test_a_disk_that_is_full_at_a_summary_is_a_one_line_error(tmp_path, monkeypatch):
    def scalars(self, step, values):
        if step == 10:
            raise tf.errors.ResourceExhaustedError(
                None, None, "{{function_node __wrapped__Flush}} No space left on device\nat"
            )

    monkeypatch.setattr(JsonlWriter, "scalars", scalars)
    config = Config(model_dir=str(tmp_path), train_steps=20, **EVERY_5, **TINY)
    run = open_run(resolved(config))
    message = re.escape(f"--model_dir={tmp_path} cannot be written (No space left on device) — ")
    with pytest.raises(UserError, match=message):
        training.make_trainer(run).run()
    assert run.checkpoints.restore_latest() == 5


def test_a_read_only_directory_is_a_one_line_error(tmp_path, monkeypatch):
    """The error is simulated, because the tests may run as root, who can write everywhere."""
    config = resolved(Config(model_dir=str(tmp_path), **TINY))

    def refuse(path):
        raise tf.errors.PermissionDeniedError(None, None, f"{path}; Read-only file system")

    monkeypatch.setattr(tf.io.gfile, "makedirs", refuse)
    with pytest.raises(UserError, match=r"cannot be written \(\S+; Read-only file system\) — free"):
        train_config(config)


@pytest.mark.slow
def test_a_disk_that_becomes_read_only_is_a_one_line_error(tmp_path, monkeypatch):
    """Errors in closing do not replace the first error."""
    config = Config(model_dir=str(tmp_path), train_steps=20, **EVERY_5, **TINY)
    run = open_run(resolved(config))
    trainer = training.make_trainer(run)

    def refuse(*_, **__):
        raise tf.errors.FailedPreconditionError(None, None, "Read-only file system")

    monkeypatch.setattr(checkpointing, "write_atomic", refuse)
    monkeypatch.setattr(tf.io.gfile, "remove", refuse)
    with pytest.raises(UserError, match=r"ckpt-5 cannot be saved \(Read-only file system\)"):
        trainer.run()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    """Its beginning would keep the disk full."""
    (tmp_path / "a").write_text("old")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for module, name in ((files, "fsync"), (tf.io.gfile, "rename")):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):  # noqa: PT012
            patch.setattr(module, name, fail)
            files.write_atomic(str(tmp_path / "a"), "new")
        assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "old")]


@pytest.mark.parametrize("name", ["write_atomic", "fsync"])
def test_a_checkpoint_that_cannot_be_written_leaves_nothing(saved, tmp_path, monkeypatch, name):
    run, _ = saved
    checkpoints = Checkpoints(run.state, str(tmp_path))

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpointing, name, fail)
    with pytest.raises(UserError, match=r"cannot be saved \(.*No space left on device\)"):
        checkpoints.save()
    assert list(tmp_path.iterdir()) == []


def delete_newest(path):
    """Deletes a checkpoint after it was found, as a run that goes on does."""
    for file in pathlib.Path(path).parent.glob(f"{pathlib.Path(path).name}.*"):
        file.unlink()
    return path


def test_a_checkpoint_that_is_deleted_after_it_was_found_is_replaced_by_another(
    saved, tmp_path, monkeypatch, capsys
):
    """This holds for training from another run, and for the modes that use a run."""
    shutil.copytree(saved[1].parent, tmp_path / "run")
    find, found = checkpoint_files.latest_checkpoint, []

    def find_and_delete(directory):
        found.append(find(directory))
        return found[-1] if len(found) % 2 == 0 else delete_newest(found[-1])

    monkeypatch.setattr(checkpoint_files, "latest_checkpoint", find_and_delete)
    fresh = open_run(
        resolved(
            Config(model_dir=f"{tmp_path}/new", restore_from=f"{tmp_path}/run", **TINY, **EVERY_5)
        )
    )
    assert fresh.checkpoints.restore_latest() == 10
    assert "ckpt-15 is incomplete (a file is missing); looking for another" in (
        capsys.readouterr().err
    )
    assert call_main("--mode=sample", f"--model_dir={tmp_path}/run", "--num_samples=2") == 0
    assert "ckpt-5: 5 iterations" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.copytree(saved[1], tmp_path / "run" / "checkpoints")
    found.clear()
    settings = {"restore_from": f"{tmp_path}/run", "restore": "both"}
    fresh = open_run(resolved(Config(model_dir=f"{tmp_path}/other", **settings, **TINY)))
    assert fresh.checkpoints.restore_latest() == 0
    assert [path[-2:] for path in found] == ["15", "10"]


def test_a_checkpoint_that_is_always_deleted_ends_in_the_right_error(saved, tmp_path, monkeypatch):
    shutil.copytree(saved[1], tmp_path / "checkpoints")
    path = f"{tmp_path}/checkpoints/ckpt-10"
    delete_newest(path)
    with pytest.raises(UserError, match=r"ckpt-10 is incomplete \(a file is missing\) — give"):
        checkpoint_files.restore_found(lambda: path, saved[0].checkpoints.restore)


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_skipped_silently(
    saved, tmp_path, monkeypatch, capsys
):
    """The run has saved new checkpoints in the meantime."""
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved[1], tmp_path / "later")
    shutil.copytree(saved[1], folder)
    for number in (5, 10):
        delete_newest(f"{folder}/ckpt-{number}")
    describe = checkpoint_files.describe_damage

    def describe_later(path):
        if path.endswith("15") and not list(folder.glob("ckpt-10.*")):
            delete_newest(path)
            for file in (tmp_path / "later").glob("ckpt-10.*"):
                shutil.copy(file, folder)
        return describe(path)

    monkeypatch.setattr(checkpoint_files, "describe_damage", describe_later)
    assert checkpointing.latest_checkpoint(str(folder)) == f"{folder}/ckpt-10"
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_run_that_starts_with_all_its_iterations_can_be_sampled(saved, tmp_path, capsys):
    """It needs no training, but a checkpoint of its own."""
    settings = {**TINY, **EVERY_5, "train_steps": 10}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    flags += [f"--model_dir={tmp_path}", f"--restore_from={saved[1].parent}"]
    assert call_main(*flags) == 0
    assert checkpointing.latest_checkpoint(f"{tmp_path}/checkpoints").endswith("ckpt-15")
    assert call_main("--mode=sample", f"--model_dir={tmp_path}", "--num_samples=2") == 0
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "checkpoints").iterdir()}
    assert call_main(*flags) == 0  # it has one now
    assert before == {
        file: file.stat().st_mtime_ns for file in (tmp_path / "checkpoints").iterdir()
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_configuration_is_refused_or_unchanged(saved, tmp_path, seed):
    run, checkpoints = saved
    dice = random.Random(seed)
    for attempt in range(10):
        copy = tmp_path / str(attempt)
        shutil.copytree(checkpoints.parent, copy)
        damage(dice, copy / "config.json")
        with contextlib.suppress(UserError):
            restored = check_resume(RunDirectory(str(copy)), run.config)
            assert run.config.differences(restored) == {}


# Records the first signal like a run, while the interpreter waits as in a loop on the device.
WAITING = """
import threading
from wgan_gp.runtime.signals import StopRequest
with StopRequest() as request:
    print("waiting", flush=True)
    while request.signal is None:
        threading.Event().wait(0.01)
    print("recorded", flush=True)
    threading.Event().wait()
"""


def test_a_second_signal_ends_the_program_at_once():
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as waiting:
        for line in ("waiting\n", "recorded\n"):
            assert waiting.stdout.readline() == line
            assert waiting.poll() is None
            waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(timeout=60) == 143


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["tensorflow", "pjrt"])
def test_a_second_signal_ends_a_long_loop_immediately(saved, tmp_path, runtime):
    shutil.copytree(saved[1].parent, tmp_path / "run")
    settings = {**TINY, **CONSTANT, "train_steps": 1_000_000, "steps_per_loop": 1_000_000}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    with start_program(*tiny(tmp_path / "run", *flags, f"--runtime={runtime}")) as run:
        while "training on" not in run.stderr.readline():
            assert run.poll() is None
        time.sleep(3)  # into the loop
        run.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert run.poll() is None  # it waits for the end of the loop
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=10) == 143
    assert checkpointing.latest_checkpoint(f"{tmp_path}/run/checkpoints").endswith("ckpt-15")


@pytest.mark.parametrize("linux", [True, False])
def test_two_runs_do_not_write_to_the_same_directory(tmp_path, monkeypatch, linux):
    """macOS has no /proc, and the system gives the start of a process as a time."""
    monkeypatch.setattr(psutil, "LINUX", linux)
    record, config = (
        DataRecord(DataSpec((8, 8, 1), 0)),
        Config(model_dir=str(tmp_path), **TINY),
    )
    with subprocess.Popen(["sleep", "600"]) as first:
        try:
            holder = {"host": socket.gethostname(), "pid": first.pid}
            holder["started"] = lock._start_time(first.pid)
            assert holder["started"] == lock._start_time(first.pid) != lock._start_time(os.getpid())
            (tmp_path / "owner.json").write_text(json.dumps(holder))
            with pytest.raises(
                UserError, match=f"process {first.pid} on this machine is writing to"
            ):
                RunDirectory(str(tmp_path)).claim(config, record)
        finally:
            first.kill()
        # The lock file of the killed process does not block the next process, also if nothing
        # waits for the killed one.
        while psutil.Process(first.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        RunDirectory(str(tmp_path)).claim(config, record)


@pytest.mark.parametrize(
    "other",
    [
        {"host": "elsewhere", "pid": 1, "started": "1"},
        {
            "host": socket.gethostname(),
            "pid": os.getppid(),
            "started": "1",
        },  # an earlier process with this ID
        [],
    ],
)
def test_the_lock_of_no_running_process_on_this_machine_does_not_block_a_run(tmp_path, other):
    (tmp_path / "owner.json").write_text(json.dumps(other))
    own = Lock(f"{tmp_path}/owner.json")
    own.acquire()
    own.check()
    own.release()
    assert not (tmp_path / "owner.json").exists()


@pytest.mark.parametrize(
    "error", [OSError(errno.ESTALE, "Stale file"), tf.errors.AbortedError(None, None, "retries")]
)
def test_a_lock_that_cannot_be_read_is_not_lost(tmp_path, monkeypatch, error):
    directory = RunDirectory(str(tmp_path))
    directory.claim(Config(**TINY), DataRecord(DataSpec((8, 8, 1), 0)))
    directory.check_lock()

    def read(path):
        raise error

    monkeypatch.setattr(lock, "read_file", read)
    with pytest.raises(UserError, match=r"cannot be read \(.*(Stale file|retries)"):
        directory.check_lock()


def test_a_diagnosis_is_written_again_after_a_rollback(tmp_path):
    """The writers delete what they have of later iterations."""
    run = open_run(Config(model_dir=str(tmp_path), **TINY))
    writer = MemoryWriter()
    hook = run_hooks.SummaryHook(run, writer, probe=None)
    for begin in (0, 5):
        hook.begin(begin)
        for step in range(20):
            hook._write_diagnosis(begin + step, HEALTHY)
    assert [text.partition(":")[0] for *_, text in writer.texts] == ["healthy"] * 2


def test_waiting_processes_that_meet_get_the_lock_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_POLL", 0.01)
    path, inside, most = str(tmp_path / "lock"), [], []
    barrier = threading.Barrier(4)

    def work():
        own = Lock(path)
        barrier.wait()
        own.wait("working")
        inside.append(own)
        most.append(len(inside))
        inside.remove(own)
        own.release()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work) for _ in range(4)]:
            each.result()
    assert most == [1] * 4 and list(tmp_path.iterdir()) == []


def test_a_process_that_is_late_does_not_overwrite_the_lock(tmp_path, monkeypatch):
    """It saw no lock, and writes long after another process has got it."""
    monkeypatch.setattr(lock, "_POLL", 0.01)
    first, late, seen = Lock(f"{tmp_path}/lock"), Lock(f"{tmp_path}/lock"), threading.Event()
    read, entered, got = lock.read_file, [], []

    def read_slowly(path):
        try:
            return read(path)
        finally:
            if threading.current_thread() is waiting and not entered:
                entered.append(path)
                first.wait("working")
                seen.set()

    waiting = threading.Thread(target=lambda: got.append(late.wait("working")))
    monkeypatch.setattr(lock, "read_file", read_slowly)
    waiting.start()
    assert seen.wait(20)
    time.sleep(0.5)
    assert not got
    first.check()
    first.release()
    waiting.join()
    late.check()


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_a_lock_shows_by_time_that_its_holder_is_alive(tmp_path, monkeypatch, seconds):
    monkeypatch.setattr(lock, "_SIGNS", seconds)
    own = Lock(f"{tmp_path}/lock")
    own.wait("working")
    before = (tmp_path / "lock").read_text()
    for _ in range(3):
        own.keep()
    assert (before != (tmp_path / "lock").read_text()) == (seconds == 0)


def test_a_run_that_lost_its_lock_stops_before_it_writes(tmp_path):
    config = Config(model_dir=str(tmp_path), train_steps=20, **EVERY_5, **TINY)
    run = open_run(config)
    trainer = training.make_trainer(run)
    newcomer = Lock(f"{tmp_path}/owner.json")
    newcomer.acquire()
    with pytest.raises(UserError, match=r"no longer holds the lock \S+owner.json; process \d+ on"):
        trainer.run()
    assert not list((tmp_path / "checkpoints").glob("ckpt-*"))
    newcomer.check()
    newcomer.release()


def test_a_damaged_best_checkpoint_names_the_latest(tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "ckpt-5.json").write_text("{}")
    with pytest.raises(
        UserError, match=r"best contains no undamaged .* — give --checkpoint=latest"
    ):
        select_checkpoint(str(tmp_path), "best", "--model_dir=run")
