"""Tests of run directories of other people: they decide what is drawn, but not what is touched."""

import base64
import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import LIBRARY, call_main, train_tiny
from wgan_gp.app import saved_run
from wgan_gp.app.saved_run import needed_settings
from wgan_gp.config import EXTRACTORS, SAVED_RUN_MODES, Config, value_type
from wgan_gp.data.data_record import DataRecord
from wgan_gp.data.scaling import Whitening
from wgan_gp.errors import UserError
from wgan_gp.evaluation import examples
from wgan_gp.run_directory import files
from wgan_gp.run_directory.files import write_atomic
from wgan_gp.run_directory.json_files import (
    parse,
    read_dataclass,
    read_log,
    read_object,
    write_object,
)
from wgan_gp.run_directory.lock import Lock
from wgan_gp.run_directory.typed_json import load_dataclass, to_json
from wgan_gp.training.checkpoint_files import latest_checkpoint, make_manifest
from wgan_gp.writers.tensorboard import truncate_events
from wgan_gp.writers.writer import TrackedRun

FIELDS = {field.name: field for field in dataclasses.fields(Config)}

# The settings that only the command line decides.
COMMAND_LINE = [name for name, field in FIELDS.items() if not field.metadata["of_run"]]
# Some values are only valid together.
COMPANIONS = {
    "tpu_cores": {"tpu": "planted"},
    "restore": {"restore_from": "planted"},
    "checkpoint": {"restore_from": "planted"},
    "keep_best": {"evaluate_interval": 5},
    "stop_early": {"evaluate_interval": 5},
    "output": {"mode": "sample"},
    "samples": {"mode": "evaluate", "reference": "planted"},
    "reference": {"mode": "evaluate", "samples": "planted"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with checkpoints of 5 and 10 iterations."""
    path = tmp_path_factory.mktemp("trained") / "run"
    train_tiny(path, train_steps=10, checkpoint_interval=5)
    return path


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the trained run."""
    return pathlib.Path(shutil.copytree(trained, tmp_path / "run"))


def plant(run, name="config.json", **entries):
    """Changes entries of a file, with the right checksum."""
    write_object(str(run / name), {**read_object(str(run / name)), **entries})


def error_of(capsys, *arguments):
    capsys.readouterr()
    assert call_main(*arguments) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_only_the_command_line_decides_what_is_read_imported_connected_to_and_written():
    """Names of networks and datasets are an exception: code among them must be named."""
    assert {
        *("data_dir", "test_data_dir", "restore_from", "sample_conditions"),
        *("objective", "writers", "tpu", "download", "cpu_replicas"),
        *("mode", "model_dir", "output", "num_samples", "compile_topology", "profile"),
    } <= set(COMMAND_LINE)
    assert FIELDS["feature_extractor"].metadata["of_run"] == EXTRACTORS
    code = {name for name, field in FIELDS.items() if field.metadata["user_code"]}
    assert code - set(COMMAND_LINE) == {"model", "generator_model", "dataset"}
    for mode in SAVED_RUN_MODES:
        assert {"model", "generator_model"} <= set(needed_settings(mode))
    assert "dataset" in needed_settings("evaluate") and "dataset" not in needed_settings("export")


def planted_value(field):
    """Returns a valid value of a setting that is not its default."""
    choices = field.metadata["choices"]
    if choices:
        return next(each for each in reversed(choices) if each != field.default)
    numbers = {bool: not field.default, int: 8, float: 0.5}
    special = {"mode": "sample"}
    special |= {"output": "planted.npz"}
    special |= {"keep_best": "wasserstein", "stop_early": "wasserstein:5", "checkpoint": "best"}
    return special.get(field.name, numbers.get(value_type(field), f"planted_{field.name}"))


@pytest.mark.parametrize("name", [*COMMAND_LINE, "feature_extractor"])
def test_a_planted_setting_has_no_effect(run, name):
    before = saved_run.find_run(str(run), {}, LIBRARY).config
    value = planted_value(FIELDS[name])
    assert value != getattr(before, name)
    plant(run, **COMPANIONS.get(name, {}), **{name: value})
    assert saved_run.find_run(str(run), {}, LIBRARY).config == before
    assert before.model_dir == str(run)


def test_code_that_a_mode_does_not_need_may_have_moved(run):
    plant(run, dataset="data.py", dataset_sha256="0" * 64)
    for given in ({}, {"dataset": "/moved/data.py"}):
        assert saved_run.find_run(str(run), given, LIBRARY).config.dataset.endswith("data.py")
    for given in ({"dataset": "swiss_roll"}, {"dataset": "/moved/data.py:other"}):
        with pytest.raises(UserError, match=r"a different configuration .--dataset: data.py -> "):
            saved_run.find_run(str(run), given, LIBRARY)


def test_a_setting_that_describes_the_run_is_taken(run):
    plant(run, evaluate_samples=33, feature_extractor="none", activation="tanh")
    config = saved_run.find_run(str(run), {}, LIBRARY).config
    assert (config.evaluate_samples, config.feature_extractor) == (33, "none")
    assert (config.activation, config.model_width) == ("tanh", 4)


@pytest.mark.parametrize(
    ("planted", "flags"),
    [
        ({"feature_extractor": "a b"}, "'--feature_extractor=a b' if you trust it"),
        ({"data_dir": "/data"}, "--data_dir=/data if you trust it"),
        ({"dataset": "huggingface:x"}, "--dataset=huggingface:x if you trust it"),
        ({"dataset": "mnist/../../x"}, "--dataset=mnist/../../x if you trust it"),
        (
            {"dataset": "d.py", "data_dir": "/data", "feature_extractor": "x"},
            "--dataset=d.py --data_dir=/data --feature_extractor=x if you trust them",
        ),
    ],
)
def test_an_evaluation_reads_only_what_the_command_line_names(run, capsys, planted, flags):
    plant(run, **planted)
    error = error_of(capsys, "--mode=evaluate", f"--model_dir={run}")
    assert "only if the command line names it — add " in error and error.endswith(flags)
    assert call_main("--mode=sample", f"--model_dir={run}", "--num_samples=2") == 0


def test_held_out_data_of_a_run_is_read_only_if_it_is_named(run, capsys):
    plant(run, test_data_dir="/planted")
    assert call_main("--mode=evaluate", f"--model_dir={run}", "--evaluate_samples=10") == 0
    assert "was trained with --test_data_dir=/planted, which is read only if" in (
        capsys.readouterr().err
    )


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def link_to_zero(path):
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("replace", [pipe, link_to_zero])
def test_nothing_waits_for_a_pipe_or_reads_a_device(run, capsys, replace):
    """All checkpoints are replaced, then the files that are read before them."""
    checkpoints = run / "checkpoints"
    files = json.loads((checkpoints / "ckpt-10.json").read_text())["files"]
    reseal(checkpoints / "ckpt-10.json", {**files, ".data-00000-of-00001": [0, "x"]})
    replace(checkpoints / "ckpt-10.data-00000-of-00001")
    assert latest_checkpoint(str(checkpoints)).endswith("ckpt-5")
    assert "ckpt-10 cannot be read (" in capsys.readouterr().err
    replace(checkpoints / "ckpt-5.json")
    error = error_of(capsys, "--mode=sample", f"--model_dir={run}")
    assert "contains no undamaged checkpoint" in error
    for name in ("data.json", "config.json"):
        replace(run / name)
        error = error_of(capsys, "--mode=sample", f"--model_dir={run}")
        assert f"{run}/{name} is not a regular file" in error
    replace(run / "metrics.jsonl")
    with pytest.raises(OSError, match="is not a regular file"):
        read_log(str(run / "metrics.jsonl"))
    events = next((run / "train").iterdir())
    replace(events)
    with pytest.raises(OSError, match="is not a regular file"):
        truncate_events(str(events), 5)
    os.mkfifo(run / "owner.json")
    Lock(str(run / "owner.json")).acquire()


def reseal(path, files):
    write_object(str(path), {"files": files})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"/../../../../../../../../dev/zero": [1, "x"]}, "files names other files"),
        ({".index/../../../config.json": [1, "x"]}, "files names other files"),
        ({".index": None}, "files['.index'] is not a list"),
        ({".index": [10**400, "x"]}, "files['.index'][0] is not an integer"),
        ({".index": [-1, "x"]}, "its .index file has changed"),
        ({".index": [1]}, "files['.index'] has 1 entries"),
    ],
)
def test_a_manifest_names_only_files_of_its_checkpoint(run, capsys, change, says):
    path = run / "checkpoints" / "ckpt-10.json"
    files = json.loads(path.read_text())["files"]
    reseal(path, {**files, **change})
    assert latest_checkpoint(str(run / "checkpoints")).endswith("ckpt-5")
    error = capsys.readouterr().err
    assert "ckpt-10 is damaged (" in error and says in error


def test_a_manifest_names_all_files_of_its_checkpoint(run, capsys):
    path = run / "checkpoints" / "ckpt-10.json"
    files = json.loads(path.read_text())["files"]
    reseal(path, {".index": files[".index"]})
    assert latest_checkpoint(str(run / "checkpoints")).endswith("ckpt-5")
    assert "lists other files" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": 1' * 9],
)
def test_json_has_unique_names_and_finite_numbers(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a JSON object with its checksum"):
        read_object(str(path))
    assert parse(b'{"a": {"b": 1}, "c": {"b": 1}}') == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="is larger than 256 MiB"):
        read_object(str(path))
    with pytest.raises(OSError, match="is larger than 1024 MiB"):
        read_log(str(path))


def test_a_compressed_cache_is_not_inflated(tmp_path, capsys):
    """A megabyte of zeros has a kilobyte there; the program itself does not compress."""
    path, arrays = str(tmp_path / "features.npz"), {"features": np.zeros(2**17)}
    arrays[examples._CONTENT_HASH] = np.array("hash")
    checksum = {examples._CHECKSUM: np.array(examples._checksum(arrays))}
    np.savez(path, **arrays, **checksum)
    assert examples._load(path)["features"].shape == (2**17,)
    np.savez_compressed(path, **arrays, **checksum)
    assert examples._load(path) is None
    assert "is damaged; it will be computed again" in capsys.readouterr().err


SCALING = {
    "method": "minmax",
    "offset": [0.5],
    "scale": [0.5],
    "minimum": [0.0],
    "maximum": [1.0],
    "used": [1],
    "constants": [3.0, 0.0],
    "dequantized": False,
    "dtype": "float32",
    "names": ["a", "b"],
    "whitening": None,
}
CONDITIONS = {
    "mean": [0.0],
    "deviation": [1.0],
    "examples": [[0.5]],
    "dtype": "float32",
    "columns": None,
}
ZERO, NAN = (base64.b64encode(np.array([x]).tobytes()).decode() for x in (0.0, np.nan))
WHITENING = to_json(Whitening.of(np.zeros(1), np.eye(1)))
RECORD = {"example_shape": [1], "classes": 0, "scaling": SCALING, "conditions": CONDITIONS}
PIXELS = {"bits": 16, "dequantized": True}
OF_PICTURES = {"example_shape": [4, 4, 1], "scaling": None, "pixels": PIXELS}


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"scaling": {**SCALING, **entry}}
            for entry in (
                {"method": "other"},
                {"offset": [10**400]},
                {"scale": [0.0]},
                {"scale": [1.0, 1.0]},
                {"used": [2]},
                {"used": [-1]},
                {"used": [True]},
                {"constants": "ab"},
                {"dequantized": 1},
                {"dtype": "U100000000"},
                {"names": ["a"]},
                {"names": ["\ud800", "b"]},
                {"whitening": {"mean": 1}},
                {"whitening": WHITENING},
                {"method": "whiten"},
                {"method": "whiten", "whitening": {**WHITENING, "root": "AAAA"}},
                {"method": "whiten", "whitening": {**WHITENING, "root": "é"}},
                {"method": "whiten", "whitening": dict.fromkeys(("mean", "root"), ZERO)},
                {"method": "whiten", "whitening": dict.fromkeys(("mean", "root"), "")},
                {"method": "whiten", "whitening": {**WHITENING, "mean": NAN}},
            )
        ),
        *(
            {"conditions": {**CONDITIONS, **entry}}
            for entry in (
                {"mean": []},
                {"dtype": "int8"},
                {"deviation": [0.0]},
                {"deviation": [True]},
                {"examples": []},
                {"examples": [[1.0, 2.0]]},
                {"examples": [["1"]]},
            )
        ),
        *(
            {**OF_PICTURES, "pixels": {**PIXELS, **entry}}
            for entry in ({"bits": 9}, {"bits": 16.0}, {"dequantized": 1}, {"dequantized": None})
        ),
        {**OF_PICTURES, "example_shape": [1]},
        {"pixels": PIXELS},
        {"class_names": [1]},
        {"class_names": {"a": 1}},
        {"classes": True},
    ],
)
def test_a_data_record_is_checked_to_its_last_entry(change):
    def load(**entries):
        saved = {"spec": {**RECORD, **entries}, "fingerprint": {"files": 3, "sizes": None}}
        record = load_dataclass(DataRecord, saved, "data.json", "restore it")
        return json.loads(json.dumps(to_json(record)))["spec"].items()

    whitened = {**SCALING, "method": "whiten", "whitening": WHITENING}
    for valid in ({}, OF_PICTURES, {"scaling": whitened}):
        assert load(**valid) >= {**RECORD, **valid}.items()
    with pytest.raises(UserError, match=r"^data.json is damaged: .* — restore it$"):
        load(**change)


def test_a_fingerprint_does_not_control_the_terminal():
    saved = {"spec": {"example_shape": [2], "classes": 0}, "fingerprint": {"files": "\x1b[31m"}}
    with pytest.raises(UserError, match=r"^data.json is damaged: fingerprint has counts"):
        load_dataclass(DataRecord, saved, "data.json", "restore it")


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 5, "evaluation/fid": "low"}',
        b'{"step": 5, "evaluation/fid": null}',
        b'{"step": 5, "critic/loss": 1%s}' % (b"0" * 400),
        b'{"step": 5, "extractor": "\\ud800"}',
        b'{"step": 9999999999}',
    ],
)
def test_a_line_with_values_of_other_types_is_damaged(tmp_path, line):
    path = tmp_path / "evaluation.jsonl"
    path.write_bytes(line + b'\n{"step": 6, "extractor": "x", "evaluation/fid": NaN}\n')
    log = read_log(str(path))
    assert [number for number, _ in log.damaged] == [1]
    assert [step for step, _ in log.lines] == [6]


@pytest.mark.parametrize("identifier", ["../../x", "a/b", "", 5, None, "a\n"])
def test_the_identifier_of_a_tracked_run_is_no_path(tmp_path, identifier):
    path = f"{tmp_path}/wandb.json"
    write_object(path, TrackedRun("3f9a-B_2"))
    assert read_dataclass(TrackedRun, path) == TrackedRun("3f9a-B_2")
    write_object(path, {"run_id": identifier})
    with pytest.raises(UserError, match=f"^{path} is damaged: run_id is not "):
        read_dataclass(TrackedRun, path)


def test_a_link_does_not_redirect_what_is_written(run, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (run / "x.new").symlink_to(outside / "file")
    write_atomic(str(run / "x"), "written")
    (run / "y").symlink_to(outside / "file")
    write_atomic(str(run / "y"), "written")
    assert (run / "x").read_text() == (run / "y").read_text() == "written"
    for mode, name in (("sample", "sampled"), ("export", "exported")):
        (run / name).symlink_to(outside)
        error = error_of(capsys, f"--mode={mode}", f"--model_dir={run}")
        assert "is a symbolic link out of" in error and error.endswith("or give --output")
    (run / "evaluation.jsonl").symlink_to(outside / "file")
    error = error_of(capsys, "--mode=evaluate", f"--model_dir={run}", "--evaluate_samples=10")
    assert f"{run}/evaluation.jsonl is a symbolic link out of" in error
    files.delete(str(run))
    assert not run.exists()
    assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("file", "kept")]


def test_a_run_may_itself_be_behind_a_link(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert call_main("--mode=sample", f"--model_dir={tmp_path}/link", "--num_samples=2") == 0
    assert len(list((run / "sampled").iterdir())) == 1


def test_quoted_text_does_not_control_the_terminal(run, capsys):
    """A name of a file that is quoted in a warning."""
    (run / "checkpoints" / "ckpt-10.json").write_text("{}")
    colored = run.rename(run.parent / "\x1b[31mrun")
    assert latest_checkpoint(str(colored / "checkpoints")).endswith("ckpt-5")
    error = capsys.readouterr().err
    assert "\\x1b[31mrun/checkpoints/ckpt-10 is damaged" in error and "\x1b" not in error


def test_the_content_of_a_checkpoint_is_not_trusted(run, capsys):
    """An object graph that is no graph; the manifest is right."""
    prefix = str(run / "checkpoints" / "ckpt-10")
    for file in run.glob("checkpoints/ckpt-10.*"):
        file.unlink()
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["_CHECKPOINTABLE_OBJECT_GRAPH"],
        shape_and_slices=[""],
        tensors=[tf.constant(b"\xff\xff\xff")],
    )
    (run / "checkpoints" / "ckpt-10.json").write_text(make_manifest(prefix))
    error = error_of(capsys, "--mode=sample", f"--model_dir={run}")
    assert "ckpt-10 cannot be restored into this run's model" in error
    flags = ["--dataset=swiss_roll", "--model=mlp", "--model_width=4", "--batch_size=16"]
    new = [f"--model_dir={run}_new", f"--restore_from={run}", "--restore=both", "--train_steps=1"]
    assert "is not a checkpoint of this program (DecodeError" in error_of(capsys, *flags, *new)
