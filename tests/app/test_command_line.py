"""The program as a user starts it: its errors, its exit status, and what it imports."""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import flags
import wgan_gp
from tests.helpers.forks import Fork, main_program, start_program
from tests.helpers.runs import (
    DCGAN,
    TINY,
    call_main,
    lean_path,
    make_state,
    resolved,
    strategy_over,
    without_tracing,
)
from wgan_gp.app.resolve import check_keras
from wgan_gp.app.saved_run import check_resume
from wgan_gp.config import Config, has_flag, value_type
from wgan_gp.config.config import ModeSettings
from wgan_gp.errors import UserError
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.run_directory.json_files import write_object
from wgan_gp.runtime.signals import StopRequest

ROOT = pathlib.Path(__file__).parents[2]


def run_program(*arguments, environment=(), **options):
    return subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": lean_path(), **dict(environment)},
        **options,
    )


def parse(*arguments):
    values = absl_flags.FlagValues()
    flags.define(values)
    return resolved(flags.parse(["train.py", *arguments], values))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n_critc=3"], "--n_critc is unknown — did you mean --n_critic?"),
        (["--nonsense"], "--nonsense is unknown — "),
        (["--n_critic=0"], "--n_critic=0 is too small — give at least 1"),
        (["--n_critic=two"], "--n_critic=two is not a whole number — give a whole number"),
        (["--batch_size=1.5"], "--batch_size=1.5 is not a whole number"),
        (["--batch_size=-64"], "--batch_size=-64 is too small — give at least 1"),
        (["--penalty_weight=-1"], "--penalty_weight=-1.0 is too small — give at least 0"),
        (["--critic_learning_rate=0"], "give more than 0"),
        (["--critic_learning_rate=fast"], "--critic_learning_rate=fast is not a number"),
        (["--generator_learning_rate=nan"], "is not a finite number"),
        (["--beta_1=1"], "--beta_1=1.0 is too large — give less than 1"),
        (
            ["--stop_step=8000"],
            "--stop_step=8000 is beyond --train_steps=7500 — give an iteration up to that number",
        ),
        (["--train_steps="], "--train_steps= is not a whole number"),
        (["--train_steps"], "Missing value for flag --train_steps"),
        (
            ["--penalty=both"],
            "--penalty=both is unknown — use one of two_sided, one_sided, zero_centered, r1, r2, "
            "dragan, weight_clipping, none",
        ),
        (
            ["--adversarial_loss=gan"],
            "--adversarial_loss=gan is unknown — use one of wasserstein, logistic, hinge",
        ),
        (["--penalty_interval=0"], "--penalty_interval=0 is too small — give at least 1"),
        (["--class_weight=0"], "--class_weight=0.0 is too small — give more than 0"),
        (
            ["--critic_normalization=batch"],
            "--critic_normalization=batch makes each score depend on the whole batch, but the "
            "penalty is on each example's own gradient (arXiv:1704.00028, section 4) — use layer",
        ),
        (["--critic_normalization=weight"], "use one of none, layer, group, instance, spectral"),
        (
            ["--dataset=swiss_roll", "--model=mlp", "--critic_normalization=instance"],
            "instance does not apply to --model=mlp — use none, layer, group, spectral",
        ),
        (
            ["--model=dcgan", "--conditioning=projection", "--generator_normalization=none"],
            "--generator_normalization=none with --conditioning=projection gives the generator no "
            "access to labels, which select the scales and offsets of its batch normalization — "
            "use --generator_normalization=batch or film, or --generator_model=mlp",
        ),
        (["--critic_pooling=max"], "--critic_pooling=max is unknown — use one of mean, sum"),
        (
            ["--critic_pooling=sum"],
            "--model=mlp does not have at this image size — omit it, or use --model=resnet "
            "--image_size=32",
        ),
        (
            ["--model=resnet", "--image_size=64", "--critic_pooling=sum"],
            "--critic_pooling=sum requires global pooling, which the critic of "
            "--model=resnet does not",
        ),
        (["--generator_ema_decay=1"], "--generator_ema_decay=1.0 is too large — give less than 1"),
        (["--precision=float16"], "use one of float32, mixed_bfloat16"),
        (["--scaling"], "--scaling"),
        (["--activation="], "--activation= is unknown — use one of relu, tanh"),
        (["--activation=relu: x"], "--activation=relu: x is unknown — use one of relu, tanh"),
        (
            ["--mode=trian"],
            "--mode=trian is unknown — use one of train, evaluate, sample, export",
        ),
        (
            ["--random_flips=maybe"],
            "--random_flips=maybe is not true or false — use --random_flips or --norandom_flips",
        ),
        (["--random_flips="], "--random_flips= is not true or false — use --random_flips or"),
        (["--norandom_flips=on"], "--norandom_flips=on does not take an argument"),
        (["--random_flip"], "--random_flip is unknown — did you mean --random_flips?"),
        (["--nocache"], "--nocache is unknown"),
        (["--generator_model=cnn"], "--generator_model=cnn is unknown — use one of mlp, dcgan"),
        (["--model=mlp", "--generator_model=resnet"], "--generator_model=resnet does not support"),
        (
            ["--dataset=swiss_roll", "--model=mlp", "--conditioning=acgan"],
            "=acgan needs labels, but --dataset=swiss_roll has none — omit it",
        ),
        (
            ["--cpu_replicas=8", "--batch_size=100"],
            "--batch_size=100 does not divide over 8 replicas — use 96 or 104",
        ),
        (
            ["--cpu_replicas=8", "--generator_batch_size=4"],
            "--generator_batch_size=4 does not divide over 8 replicas — use 8",
        ),
        (["--tpu=a", "--cpu_replicas=2"], "exclude each other"),
        (["--model=dcgan", "--image_size=7"], "images of 7x7 pixels — use --image_size=8 or more"),
        (["--model=resnet"], "images of 8x8 pixels — use --image_size=32, 48, 64 or 128"),
        (
            ["--dataset=digit"],
            "--dataset=digit is neither built in nor opened by tensorflow-datasets",
        ),
        (
            ["--dataset=gaussians_8", "--model=dcgan"],
            "--model=dcgan generates images, but the dataset contains points — use --model=mlp",
        ),
        (["--model=gan"], "--model=gan is unknown — use one of mlp, dcgan"),
        (["--flagfile=/nowhere"], "--flagfile cannot be read"),
        (["--model=a — b"], "--model=a — b is unknown"),
        (["--flagfile"], "--flagfile"),
        (["--flagfile=docs/images/digits.png"], "the flags cannot be read ('utf-8'"),
        (["--cpu_replicas=4", "--jit_compile=on"], "across 4 replicas — omit it"),
        (["digits"], "unexpected argument 'digits' — pass settings as --name=value"),
        (["--flagfile="], "--flagfile= is empty — give a file"),
        (["--flagfile=docs"], "--flagfile cannot be read: [Errno 21] Is a directory"),
        (["--flagfile=/proc/self/mem"], "the flags cannot be read ([Errno 5]"),
        (["--undefok=nonsense", "--nonsense=1", "--seed=-1"], "--seed=-1 is too small"),
        (["--seed=1", "--seed=-1"], "--seed=-1 is too small"),
        (["--" + "a" * 5000], "the flags cannot be read (maximum recursion depth exceeded"),
        (["--n_critic=" + "1" * 5000], "1...1"),
        (["--\x1b[31m=1"], "--\\x1b[31m is unknown"),
        (["--n_critic=\udcff"], "--n_critic=\\xff is not a whole number"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments, message):
    with pytest.raises(UserError) as caught:
        parse(*arguments)
    assert message in str(caught.value)
    assert re.fullmatch(r"[^\n]+ — [^\n]+", str(caught.value))
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


def test_data_that_no_dataset_reads_are_named(capsys):
    parse("--data_dir=photos")
    assert capsys.readouterr().err == (
        "warning: --data_dir=photos is not used: --dataset=digits needs no files; to train on "
        "them, add --dataset=image_folder, tfrecord, array or another name\n"
    )
    parse("--split=test")
    assert "warning: --split=test has no effect: --dataset=digits has" in capsys.readouterr().err
    parse("--dataset=digits")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", ["train", "compile", "doctor"])
def test_an_output_needs_a_mode_that_has_one(tmp_path, capsys, mode):
    """Otherwise a forgotten --mode=sample would train the run further."""
    flags = [f"--mode={mode}", f"--model_dir={tmp_path}/run", "--output=x.npz"]
    assert call_main(*flags) == 2
    assert f"--output=x.npz does not apply to --mode={mode} — use --m" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_flags_become_the_configuration(tmp_path):
    flagfile = tmp_path / "some.flags"
    flagfile.write_text("# a comment\n--n_critic=3\n--beta_1=0.5\n")
    config = parse(f"--flagfile={flagfile}", "--dataset=swiss_roll", "--model=mlp")
    assert config == resolved(Config(n_critic=3, beta_1=0.5, dataset="swiss_roll", model="mlp"))


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        (True, ["", "=on", "=true", "=True", "=1"]),
        (False, ["=off", "=false", "=OFF", "=0"]),
    ],
)
def test_switches_are_spelled_as_absl_does_and_as_on_and_off(value, forms, tmp_path):
    for name in ("random_flips", "dequantization", "download"):
        lines = [f"--{name}{form}" for form in forms] + ([] if value else [f"--no{name}"])
        assert [getattr(parse(line), name) for line in lines] == [value] * len(lines)
        for line in lines:
            (tmp_path / "some.flags").write_text(f"{line}\n--seed=1\n")
            config = parse(f"--flagfile={tmp_path}/some.flags")
            assert (getattr(config, name), config.seed) == (value, 1)


def test_defaults_that_depend_on_others_are_resolved():
    config = parse("--batch_size=32", "--dataset=digits")
    assert config.model_dir == "runs/digits"
    assert (config.image_size, config.model, config.generator_batch_size) == (8, "mlp", 32)
    assert config.model_width == config.generator_width == 256
    assert parse("--image_size=9").model == parse("--image_size=28").model == "dcgan"
    points = parse("--dataset=swiss_roll")
    assert (points.image_size, points.model) == (None, "mlp")
    assert resolved(config) == config


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.flags")), ids=lambda p: p.name)
def test_every_experiment_parses(path, tmp_path):
    """Each into a directory of its own, so that none is refused for another's sake."""
    np.savez(tmp_path / "x.npz", examples=np.eye(6)[..., None], conditions=np.arange(6.0))
    (tmp_path / "x.csv").write_text("a,b\n1,x\n2,y\n" * 300)
    data, flags = [], path.read_text()
    if "--dataset=array" in flags:
        name = "x.csv" if "--column_types" in flags else "x.npz"
        data = [f"--data_dir={tmp_path}/{name}"]
    assert parse(f"--flagfile={path}", *data).run_directory == f"runs/{path.stem}"


def test_digits_flags_spell_out_the_defaults():
    assert parse(f"--flagfile={ROOT}/configs/digits.flags") == parse()


def test_program_ends_a_mistake_with_status_2_and_one_line():
    done = run_program("--n_critic=0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --n_critic=0 is too small — give at least 1\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["--n_critic=0"], ["--model=gan"]]
)
def test_help_and_flag_errors_do_not_import_tensorflow(arguments):
    program = (
        "import sys, train\n"
        "try: status = train.main(sys.argv)\n"
        "except SystemExit as exit: status = exit.code\n"
        "assert 'tensorflow' not in sys.modules and 'numpy' not in sys.modules\n"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == (0 if arguments in (["--help"], ["--version"]) else 2), done.stderr


def test_help_names_the_flags_that_most_runs_need():
    common = {field.name for field in dataclasses.fields(Config) if field.metadata["common"]}
    for argument in ("--help", "-h", "--helpshort"):
        done = run_program(argument)
        assert done.returncode == 0 and done.stderr == "" and "--helpfull" in done.stdout
        listed = re.findall(r"^  --(?:\[no\])?(\w+):", done.stdout, re.MULTILINE)
        assert len(listed) == 20 and set(listed) == common


def test_full_help_names_every_flag_with_its_meaning():
    done = run_program("--helpfull")
    assert done.returncode == 0 and done.stderr == ""
    for field in filter(has_flag, dataclasses.fields(Config)):
        prefix = "--[no]" if value_type(field) is bool else "--"
        assert f"{prefix}{field.name}:" in done.stdout
    assert "Critic steps per generator step." in done.stdout
    # The flags that most runs need are first, and each flag is listed once.
    sections = re.findall(r"^(\S.*):$", done.stdout, re.MULTILINE)
    assert sections[0] == "The flags that most runs need" and len(sections) > 5
    listed = re.findall(r"^  --(?:\[no\])?(\w+):", done.stdout, re.MULTILINE)
    assert len(listed) == len(set(listed))
    common = {field.name for field in dataclasses.fields(Config) if field.metadata["common"]}
    assert set(listed[:20]) == common


def test_the_page_of_all_flags_is_up_to_date():
    """`make flags` writes it."""
    page = (ROOT / "docs" / "flags.md").read_text()
    assert page == flags.reference()
    listed = re.findall(r"^\| (?:\*\*)?`--(\w+)`", page, re.MULTILINE)
    names = [field.name for field in filter(has_flag, dataclasses.fields(Config))]
    assert listed == sorted(names, key=lambda name: name not in ModeSettings.__annotations__)
    assert listed[0] == "mode"


def test_what_stands_for_objects_of_python_is_no_choice_of_the_command_line():
    assert "<adam|adamw|rmsprop|lion>" in run_program("--helpfull").stdout
    for value in ("python", "adan"):
        done = run_program(f"--optimizer={value}")
        assert done.returncode == 2 and done.stderr.startswith(f"error: --optimizer={value} ")
        assert done.stderr.endswith(" — use one of adam, adamw, rmsprop, lion\n")


def test_the_version_is_that_of_the_package():
    done = run_program("--version")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"wgan-gp {wgan_gp.__version__} (Python 3.")
    assert re.search(r"tensorflow[a-z-]* 2\.\d+", done.stdout)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--verbosity=high", "flag --verbosity=high"),
        ("--stderrthreshold=bad", "the flags cannot be read (--stderrthreshold must be one of"),
        ("--logger_levels=a:b", "the flags cannot be read (Unknown level: 'b'"),
    ],
)
def test_a_bad_value_for_a_flag_of_absls_own(argument, message):
    done = run_program(argument)
    assert done.returncode == 2
    assert re.fullmatch(rf"error: {re.escape(message)}[^\n]+ — [^\n]+\n", done.stderr)


def test_unresolvable_tpu(monkeypatch, capsys):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    assert call_main("--tpu=nosuch", "--model_dir=ram://run") == 2
    message = "error: --tpu=nosuch: the zone and the project are unknown"
    assert re.fullmatch(rf"{message}[^\n]+ — [^\n]+\n", capsys.readouterr().err)


def test_run_directory_of_another_configuration_lists_the_differences(tmp_path, capsys):
    directory = f"--model_dir={tmp_path}"
    saved = parse(directory, *TINY_RUN, "--train_steps=1").to_dict()
    write_object(str(tmp_path / "config.json"), saved)
    config = (tmp_path / "config.json").read_bytes()
    changed = ["--penalty_weight=5", "--seed=3", "--steps_per_loop=7"]
    assert call_main(directory, *TINY_RUN, "--train_steps=1", *changed) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "(--seed: 0 -> 3; --penalty_weight: 10.0 -> 5.0)" in error
    assert "give --seed=0 --penalty_weight=10.0 to continue it" in error
    assert (tmp_path / "config.json").read_bytes() == config


def test_a_run_with_other_settings_is_refused_with_the_flags_that_continue_it(tmp_path):
    other = {"model": "dcgan", "model_width": 64, "train_steps": 4500}
    other |= {"generator_model": "dcgan", "generator_width": 64}
    directory = f"--model_dir={tmp_path}"
    saved = {**parse(directory).to_dict(), **other}
    write_object(str(tmp_path / "config.json"), saved)
    with pytest.raises(UserError, match=r"--model: dcgan -> mlp") as caught:
        check_resume(RunDirectory(str(tmp_path)), parse(directory))
    remedy = re.match(r"give (.*) to continue it", caught.value.remedy)[1].split()
    assert {f"--{name}={value}" for name, value in other.items()} == set(remedy)
    check_resume(RunDirectory(str(tmp_path)), parse(directory, *remedy))
    # The steps matter to the saved run's schedule, whatever the command line's is.
    with pytest.raises(UserError, match=r"--train_steps=4500 .*--learning_rate_schedule=linear"):
        check_resume(
            RunDirectory(str(tmp_path)), parse(directory, "--learning_rate_schedule=constant")
        )
    with pytest.raises(UserError, match=r"and omit --model_depth to continue it, or give"):
        check_resume(RunDirectory(str(tmp_path)), parse(directory, "--model_depth=4"))
    with pytest.raises(UserError, match=r" — omit --model_depth to continue it, or give"):
        check_resume(RunDirectory(str(tmp_path)), parse(directory, *remedy, "--model_depth=4"))
    write_object(str(tmp_path / "config.json"), {**saved, "newer": 1})
    with pytest.raises(UserError, match="newer is not known"):
        check_resume(RunDirectory(str(tmp_path)), parse(directory, *remedy))


def test_run_directory_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert call_main(f"--model_dir={tmp_path}/file/run") == 2
    error = capsys.readouterr().err
    assert re.fullmatch(r"error: --model_dir=\S+ cannot be written [^\n]+ — [^\n]+\n", error)


TINY_RUN = ["--dataset=swiss_roll", "--model_width=4", "--batch_size=8", "--steps_per_loop=5"]
TINY_RUN += ["--model_depth=1", "--n_critic=1", "--sample_interval=0"]
SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def start_training(tmp_path, start=start_program, **streams):
    """A program that has begun to train, and would for long."""
    settings = [f"--model_dir={tmp_path}", "--train_steps=100000000", "--summary_interval=5"]
    program = start(*settings, *TINY_RUN, **{**SILENT, **streams})
    metrics = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_text()):
        assert time.monotonic() < deadline and program.poll() is None
        time.sleep(0.1)
    return program


def start_under_nohup(*arguments, **options):
    return Fork(ignoring_hangups, arguments, **options)


def ignoring_hangups(argv):
    """Runs the program with what it inherits from nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return main_program(argv)


def saved(path):
    return list((path / "checkpoints").glob("ckpt-*.json"))


@pytest.mark.slow
def test_sigterm_saves_and_exits_with_143_and_sighup_under_nohup_stops_nothing(tmp_path):
    with start_training(tmp_path, start_under_nohup, stdout=subprocess.PIPE) as program:
        program.send_signal(signal.SIGHUP)
        size = len((tmp_path / "metrics.jsonl").read_text())
        while len((tmp_path / "metrics.jsonl").read_text()) <= size + 1000:
            assert program.poll() is None
            time.sleep(0.1)
        program.send_signal(signal.SIGTERM)
        printed, _ = program.communicate(timeout=60)
        assert program.returncode == 143
    iterations = r"\d+ of 100000000 iterations; the same command continues"
    assert re.match(f"stopped by SIGTERM after {iterations}\nsamples, curves and", printed)
    assert saved(tmp_path)


def test_a_repeated_sighup_only_asks_and_an_ignored_one_is_left_alone():
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # not that of nohup
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal == signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.signal is None
    finally:
        signal.signal(signal.SIGHUP, former)


@pytest.mark.slow
def test_a_closed_terminal_saves_and_exits_with_129(tmp_path):
    """Its shell and the kernel send SIGHUP each, and nothing can be written to it any more."""
    terminal, program_end = os.openpty()
    output = {"stdout": program_end, "stderr": program_end}
    with start_training(tmp_path, **output) as program:
        os.close(program_end)
        os.close(terminal)
        program.send_signal(signal.SIGHUP)
        program.send_signal(signal.SIGHUP)
        assert program.wait(timeout=60) == 129
    assert saved(tmp_path)


def test_a_thread_that_is_not_the_main_one_trains_without_signals():
    def ask():
        with StopRequest() as stop:
            return stop.signal

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(ask).result() is None


@pytest.mark.parametrize("module", ["flags", "tensorflow.python.eager.context"])
def test_ctrl_c_in_an_import_ends_the_program_at_once(tmp_path, module):
    """A stand-in for the module, at the head of the path, says when its import began."""
    started = tmp_path / "started"
    program = (
        "import importlib.abc, pathlib, runpy, sys, time\n"
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        f"            pathlib.Path({str(started)!r}).touch()\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
        f"sys.argv = ['train.py', '--model_dir={tmp_path}/run']\n"
        "sys.path.insert(0, '.')\n"
        "runpy.run_path('train.py', run_name='__main__')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as run:
        while not started.exists():
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=30) == 130
        assert run.stderr.read() == ""


def in_shell(command):
    command = f"set -o pipefail; {command}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": lean_path()},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ("--help >&-", 0, ""),
        ("--help >/dev/full", 0, "warning: stdout cannot be written (No space left on device)\n"),
        ("--help | head -n 1", 0, ""),
        ("--n_critic=0 2>&-", 2, ""),
        ("--n_critic=0 2>/dev/full", 2, ""),
        ("--n_critic=0 >&-", 2, "error: --n_critic=0 is too small — give at least 1\n"),
    ],
)
def test_output_that_cannot_be_written_is_lost(arguments, status, told):
    done = in_shell(f"{sys.executable} train.py {arguments}")
    assert (done.returncode, done.stderr) == (status, told)


def arguments_of_short_run(path):
    return [f"--model_dir={path}", *TINY_RUN, "--train_steps=20", "--summary_interval=5"]


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">&- 2>&-", "2>&1 | head -n 1"])
def test_streams_that_are_closed_cost_no_training(tmp_path, redirection):
    """Modules keep the streams that they find on import, which a fork has behind it."""
    arguments = " ".join(arguments_of_short_run(tmp_path))
    done = in_shell(f"{sys.executable} train.py {arguments} {redirection}")
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in saved(tmp_path)] == ["ckpt-20.json"]


@pytest.mark.slow
def test_output_to_a_full_disk_costs_no_training(tmp_path):
    with (
        open("/dev/full", "w") as full,
        start_program(*arguments_of_short_run(tmp_path), stdout=full.fileno()) as program,
    ):
        _, error = program.communicate(timeout=300)
        assert program.returncode == 0
    assert "warning: stdout cannot be written (No space left on device)" in error
    assert "Traceback" not in error
    assert [path.name for path in saved(tmp_path)] == ["ckpt-20.json"]


@pytest.mark.slow
def test_a_result_that_cannot_be_printed_is_no_success(tmp_path):
    with without_tracing():
        assert call_main(f"--model_dir={tmp_path}", *TINY_RUN, "--train_steps=5") == 0
    arguments = ["--mode=sample", f"--model_dir={tmp_path}"]
    with open("/dev/full", "w") as full, start_program(*arguments, stdout=full.fileno()) as program:
        _, error = program.communicate(timeout=300)
        assert program.returncode == 2
    assert error.endswith("warning: stdout cannot be written (No space left on device)\n")
    unread, pipe = os.pipe()
    os.close(unread)  # as of a program that has ended
    with start_program(*arguments, f"--output={tmp_path}/a.png", stdout=pipe) as program:
        os.close(pipe)
        program.communicate(timeout=300)
        assert program.returncode == 0


@pytest.mark.parametrize("columns", ["1", "3", "text"])
def test_help_fits_any_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as ended:
        call_main("--help")
    assert not ended.value.code and "--n_critic" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["train", "sample", "evaluate", "export", "compile", "doctor"])
def test_keras_2_is_refused(mode, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    arguments = [f"--mode={mode}", f"--model_dir={tmp_path}/run"]
    if mode == "compile":
        arguments.append("--compile_topology=v5e-4")
    assert call_main(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: TF_USE_LEGACY_KERAS=1 selects Keras 2") and "unset it" in line
    assert not (tmp_path / "run").exists()
    for use in (lambda: wgan_gp.load(tmp_path), lambda: wgan_gp.train(wgan_gp.Config())):
        with pytest.raises(wgan_gp.UserError, match=r"^TF_USE_LEGACY_KERAS=1 selects Keras 2"):
            use()


def test_another_backend_of_keras_is_replaced_before_its_import_and_refused_after(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    check_keras()
    assert os.environ["KERAS_BACKEND"] == "tensorflow"
    of_jax = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", of_jax)
    with pytest.raises(wgan_gp.UserError, match="imported with the backend jax"):
        check_keras()


def test_networks_have_channels_last_whatever_keras_json_says(monkeypatch):
    monkeypatch.setattr("keras.src.backend.config._IMAGE_DATA_FORMAT", "channels_first")
    state = make_state(wgan_gp.Config(**TINY | DCGAN), strategy_over(1))
    assert state.generator(tf.zeros([2, TINY["latent_size"]])).shape == [2, 8, 8, 1]
