"""Writers that --writers and writers= name: the user's own, Weights & Biases, MLflow."""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import struct
import sys
import types

import pytest

import wgan_gp
from tests.helpers.runs import TINY, call_main
from wgan_gp.app import training
from wgan_gp.app.user_code import extensions
from wgan_gp.runtime.cluster import Cluster

ROOT = pathlib.Path(__file__).parents[2]
WRITER = """
import json
import wgan_gp

class Log(wgan_gp.Writer):
    def __init__(self, config):
        self.path = config.model_dir + ".log"
        self.write("config", config.model_width)

    def write(self, *call):
        with open(self.path, "a") as file:
            print(json.dumps(call), file=file)

    def begin(self, step):
        self.write("begin", step)

    def scalars(self, step, values):
        self.write("scalars", step, sorted(values))

    def image(self, step, tag, image):
        self.write("image", step, tag)

    def close(self):
        self.write("close")

class Failing(wgan_gp.Writer):
    def __init__(self, config):
        pass

    def scalars(self, step, values):
        raise ValueError("the disk of the\\nother machine is full")

def broken(config):
    raise RuntimeError("no server")

def nothing(config):
    return None
"""
FLAGS = [
    *(f"--{name}={value}" for name, value in TINY.items()),
    "--learning_rate_schedule=constant",
    "--summary_interval=5",
    "--sample_interval=0",
]


@pytest.fixture
def own(tmp_path):
    """Returns the path of a file with writers."""
    path = tmp_path / "own.py"
    path.write_text(WRITER)
    return str(path)


def run(tmp_path, writers, *, steps=5):
    flags = [f"--model_dir={tmp_path}/run", f"--train_steps={steps}"]
    return call_main(*FLAGS, *flags, *([f"--writers={writers}"] if writers else []))


def error_of(capsys):
    lines = capsys.readouterr().err.splitlines()
    (error,) = [line for line in lines if line.startswith("error: ")]
    assert lines[-1] == error
    return error.removeprefix("error: ")


def calls(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run.log").read_text().splitlines()]


@pytest.mark.slow
def test_an_own_writer_receives_what_a_run_writes(tmp_path, own):
    assert run(tmp_path, f"{own}:Log") == 0
    found = calls(tmp_path)
    assert found[:2] == [["config", 4], ["begin", 0]]
    (summary,) = [call for call in found if call[0] == "scalars"]
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert summary == ["scalars", 5, sorted(line.keys() - {"step"})]
    assert ["image", 5, "samples"] in found and found[-1] == ["close"]
    with_writer = json.loads((tmp_path / "run" / "config.json").read_text())
    assert with_writer["writers"] == f"{own}:Log"


def test_a_resume_may_change_the_writers():
    saved = wgan_gp.Config(writers="own.py:Log")
    assert wgan_gp.Config(writers="wandb").differences(saved) == {}
    assert wgan_gp.Config().differences(saved) == {}


def test_only_the_chief_imports_them(tmp_path, capsys, monkeypatch):
    def open_run(*arguments):
        raise wgan_gp.UserError("the devices", "are next")

    monkeypatch.setattr(training, "open_run", open_run)
    assert run(tmp_path, "missing.py:Log") == 2
    assert "No such file" in error_of(capsys)
    monkeypatch.setattr(training.cluster, "find_cluster", lambda config: Cluster(("a:1", "b:1"), 1))
    assert run(tmp_path, "missing.py:Log") == 2
    assert error_of(capsys) == "the devices — are next"


@pytest.mark.parametrize(
    ("writers", "what"),
    [
        (
            "tensorbord",
            "--writers=tensorbord: tensorbord is unknown — give wandb, ",
        ),
        ("{own}:Log,", "--writers={own}:Log,: an empty name is unknown — give "),
        ("{own}", "--writers={own} does not name an object — give --writers={own}:NAME"),
        ("{own}:Loog", "--writers={own}:Loog does not define Loog — "),
        ("{own}x.py:Log", "--writers={own}x.py:Log cannot be imported (FileNotFoundError: "),
    ],
)
def test_mistakes_are_reported_in_one_line(tmp_path, own, capsys, writers, what):
    assert run(tmp_path, writers.format(own=own)) == 2
    assert error_of(capsys).startswith(what.format(own=own))


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    (program,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "writers.md").read_text(), re.DOTALL
    )
    (tmp_path / "my_writers.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    (open_writer,) = extensions.load_writers(
        wgan_gp.Config(seed=3, writers="my_writers.py:CsvWriter")
    )
    writer = open_writer(None)
    writer.begin(0)
    writer.scalars(100, {"critic/loss": -1.5, "generator/loss": 0.5, "other": 0.0})
    writer.image(100, "samples", None)
    writer.close()
    assert (tmp_path / "losses_of_seed_3.csv").read_text() == "100,-1.5,0.5\n"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("broken", "failed (RuntimeError: no server) — correct it; --verbosity=1 shows the"),
        ("nothing", "returned None, which is not a Writer — let it"),
        ("Failing", "scalars failed (ValueError: the disk of the other machine is full) — correct"),
    ],
)
def test_errors_of_a_writer_name_it(own, name, what):
    (open_writer,) = extensions.load_writers(wgan_gp.Config(writers=f"{own}:{name}"))
    with pytest.raises(wgan_gp.UserError) as raised:
        open_writer(None).scalars(1, {})
    message = str(raised.value)
    assert message.startswith(f"--writers={own}:{name}") and what in message


@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("wandb", None)])
def test_a_missing_package_is_named(tmp_path, capsys, monkeypatch, spec):
    """A folder called wandb, which W&B writes, does not count as the package."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert run(tmp_path, "wandb") == 2
    assert error_of(capsys) == (
        "--writers=wandb needs the package wandb, which is not installed — pip install wandb"
    )
    assert not (tmp_path / "run").exists()


def test_every_tracker_is_an_extra():
    text = (ROOT / "pyproject.toml").read_text()
    for name in extensions.TRACKERS:
        assert re.search(rf'^{name} = \["{name}>=', text, re.MULTILINE)


def test_an_error_of_a_passed_writer_names_it(tmp_path):
    class Full(wgan_gp.Writer):
        def begin(self, step):
            raise OSError("no space left")

    config = wgan_gp.Config(model_dir=str(tmp_path / "run"), train_steps=5, **TINY)
    with pytest.raises(wgan_gp.UserError, match=r"^the writer Full: \w+ failed \(OSError: no"):
        wgan_gp.train(config, writers=[Full()])


class FakeRun:
    """Records what W&B's run would receive."""

    id = "a1b2"

    def __init__(self):
        self.logged, self.codes = [], []

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, values):
        self.logged.append(values)

    def finish(self, exit_code):
        self.codes.append(exit_code)


@pytest.fixture
def writer_of_fake_wandb(monkeypatch):
    """Returns the class of the writer for a fake wandb, whose runs are started[i] and `run`."""
    started, run = [], FakeRun()
    fake = types.ModuleType("wandb")
    fake.init = lambda **options: started.append(options) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.delenv("WANDB_NAME", raising=False)
    sys.modules.pop("wgan_gp.writers.wandb", None)
    yield importlib.import_module("wgan_gp.writers.wandb").WandbWriter, started, run
    del sys.modules["wgan_gp.writers.wandb"]


def test_a_wandb_run_continues_after_a_rollback_and_a_resume(tmp_path, writer_of_fake_wandb):
    writer, started, run = writer_of_fake_wandb

    def make():
        return writer({"seed": 3}, "gs://bucket/digits/", str(tmp_path / "wandb.json"))

    first = make()
    first.begin(0)
    first.begin(0)  # a rollback
    first.scalars(5, {"critic/loss": 1.0})
    first.close()
    second = make()
    second.begin(5)
    try:
        raise ValueError
    except ValueError:
        second.close()
    assert [(each["id"], each["name"]) for each in started] == [(None, "digits"), ("a1b2", None)]
    assert started[0]["project"] == "wgan-gp" and started[0]["config"] == {"seed": 3}
    assert run.logged == [{"critic/loss": 1.0, "iteration": 5}]
    assert run.codes == [0, 1]


def wandb_records(path):
    """Returns the records of a file of W&B: blocks of 32 KiB of parts of Protocol Buffers."""
    from wandb.proto.wandb_internal_pb2 import Record  # noqa: PLC0415

    content, position, parts, found = path.read_bytes(), 7, b"", []
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def wandb_history(records):
    """Returns the rows that were logged: values by tag."""
    return [
        {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """Trains a run that is tracked offline, resumes it, and returns the folder."""
    folder = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # both trackers write to the current folder by default
        for name in [each for each in os.environ if each.startswith(("WANDB_", "MLFLOW_"))]:
            patch.delenv(name)
        patch.setenv("WANDB_MODE", "offline")
        for steps in (10, 15):
            assert run(folder, "wandb,mlflow", steps=steps) == 0
    return folder


def metrics_of(folder):
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_wandb_stores_the_run_offline(tracked):
    first, second = sorted(tracked.glob("wandb/offline-run-*/*.wandb"))
    (started,) = [each.run for each in wandb_records(first) if each.HasField("run")]
    (resumed,) = [each.run for each in wandb_records(second) if each.HasField("run")]
    assert started.run_id == resumed.run_id
    assert json.loads((tracked / "run" / "wandb.json").read_text())["run_id"] == started.run_id
    assert started.project == "wgan-gp" and started.display_name == "run"
    settings = {each.key: json.loads(each.value_json) for each in started.config.update}
    saved = json.loads((tracked / "run" / "config.json").read_text())
    differing = {name for name in saved if settings.get(name) != saved[name]}
    assert differing <= {"train_steps", "checksum", "version"}

    rows = wandb_history(wandb_records(first)) + wandb_history(wandb_records(second))
    for line in metrics_of(tracked):
        step = line.pop("step")
        assert [row for row in rows if row["iteration"] == step and line.items() <= row.items()]
    assert [row["iteration"] for row in rows if "samples/path" in row] == [10, 15]
    assert [row for row in rows if "probe/gradient_norms/values" in row]
    (path,) = first.parent.glob("files/media/images/samples*.png")
    sample = tracked / "run" / "samples" / "step_00000010.png"
    assert image(path) == image(sample)


@pytest.mark.slow
def test_mlflow_stores_the_run_in_its_default_store(tracked, monkeypatch):
    import mlflow  # noqa: PLC0415

    monkeypatch.chdir(tracked)
    client = mlflow.MlflowClient(f"sqlite:///{tracked}/mlflow.db")
    (experiment,) = [each for each in client.search_experiments() if each.name == "wgan-gp"]
    (found,) = client.search_runs([experiment.experiment_id])
    stored = json.loads((tracked / "run" / "mlflow.json").read_text())
    assert found.info.run_id == stored["run_id"]
    assert found.info.run_name == "run" and found.info.status == "FINISHED"
    assert found.data.params["batch_size"] == "16" and found.data.params["train_steps"] == "10"
    assert found.data.tags["train_steps"] == "15"  # of the resume
    lines = metrics_of(tracked)
    for tag in lines[0].keys() - {"step"}:
        history = client.get_metric_history(found.info.run_id, tag)
        assert [(each.step, each.value) for each in history] == [
            (line["step"], line[tag]) for line in lines
        ]
    images = [each.path for each in client.list_artifacts(found.info.run_id, "images")]
    assert len([path for path in images if "samples" in path and path.endswith(".png")]) == 2


@pytest.mark.slow
def test_a_run_of_another_store_is_reported(tracked, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # without mlflow.db
    assert run(tracked, "mlflow", steps=20) == 2
    error = error_of(capsys)
    assert f"{tracked}/run/mlflow.json names the run " in error and "MLFLOW_TRACKING_URI" in error


def image(path):
    """Returns the size and the pixels of an image."""
    from PIL import Image  # noqa: PLC0415

    with Image.open(path) as opened:
        return opened.size, opened.convert("RGB").tobytes()
