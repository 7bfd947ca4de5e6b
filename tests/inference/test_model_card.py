"""The model card of an export: README.md and samples.png."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import yaml

import wgan_gp
from tests.helpers.runs import LIBRARY, TINY, call_main
from wgan_gp.app import exported, saved_run
from wgan_gp.data.spec import DataSpec
from wgan_gp.evaluation import results
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.run_directory.json_files import read_object, write_object
from wgan_gp.runtime.devices import connect


def export(run, folder, *arguments):
    assert call_main("--mode=export", f"--model_dir={run}", f"--output={folder}", *arguments) == 0
    return (folder / "README.md").read_text()


def header_and_body(card):
    """The YAML header, as model hubs read it, and the rest."""
    _, header, body = re.split(r"^---$", card, maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(header), body


def test_a_card_says_what_the_model_is(runs, tmp_path):
    run, folder = runs["classes"], tmp_path / "out"
    with (run / "evaluation.jsonl").open("w") as file:
        for step, value in ((5, 0.25), (3, 0.5)):
            line = {"step": step, "samples": 100, "extractor": "/home/me/network.keras"}
            file.write(json.dumps({**line, "evaluation/fid": value, "evaluation/mine": 1}) + "\n")
    card = export(run, folder, "--seed=5")
    (run / "evaluation.jsonl").unlink()
    header, body = header_and_body(card)
    assert header == {"library_name": "wgan-gp", "tags": ["wgan-gp", "gan", "tensorflow"]}
    assert "    digits: 1797 examples of 8x8 pixels and 1 channel, 10 classes (0, 1, " in body
    settings = {line.strip() for line in body.splitlines()}
    assert {"5 iterations", "--model=dcgan", "--conditioning=acgan", "--batch_size=16"} <= settings
    assert "after 5 iterations, 100 samples, features of another network:" in body
    assert re.search(r"fid +0\.25 ", body) and "mine" not in body
    picture = tf.io.decode_png((folder / "samples.png").read_bytes()).numpy()
    assert picture.shape == (8 * 34, 10 * 34, 1)  # a column for each class
    assert str(run) not in card and str(tmp_path) not in card
    assert "--seed" not in body  # that of the samples is not that of the training


def saved_run_of(path):
    saved = saved_run.find_run(str(path), {}, LIBRARY)
    return saved_run.restore(saved, saved_run.find_checkpoint(saved), connect(saved.config))


def test_text_of_the_data_and_paths_of_the_author_do_not_get_out(runs, tmp_path):
    """Names of classes and columns are of the data, which may be of another person."""
    evil = "```\n# title\n<script>`````` | ![](https://evil)\n---\x1b[31m"
    saved = saved_run.find_run(str(runs["points"]), {}, LIBRARY)
    config = type(saved.config)(
        dataset="/home/me/data.py:mine",
        data_dir="/home/me/data",
        restore_from="/home/me/run",
        label_column="a```b",
        model="mlp",
    )
    spec = DataSpec((2,), 2, class_names=(evil, "---"))
    run = saved_run_of(runs["points"])
    saved = saved_run.SavedRun(config, saved.directory, spec, LIBRARY)
    card = exported.model_card(saved, run)["README.md"]
    assert "home" not in card and "\x1b" not in card and "data of the author: examples" in card
    header, body = header_and_body(card)
    assert header["library_name"] == "wgan-gp"
    # As CommonMark defines indented code, which begins after an empty line.
    outside = [line for line in body.partition("metrics:\n\n")[2].splitlines() if line[:4].strip()]
    assert outside == []
    assert "    --label_column=a```b" in body.splitlines()


def test_an_evaluation_of_the_exported_checkpoint_is_preferred(tmp_path):
    directory = RunDirectory(str(tmp_path))
    assert results.recorded_table(directory, 5) is None
    lines = [{"step": step, "samples": 7, "evaluation/fid": step / 10} for step in (5, 5, 8)]
    (tmp_path / "evaluation.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for step, found in ((5, 5), (8, 8), (9, 8)):
        assert results.recorded_table(directory, step).startswith(f"after {found} iterations, 7 s")


def test_a_run_of_an_earlier_version_has_no_number_of_examples(runs, tmp_path):
    record = read_object(str(runs["digits"] / "data.json"))
    assert record.pop("size") == 1797
    try:
        write_object(str(runs["digits"] / "data.json"), record)
        card = export(runs["digits"], tmp_path / "out")
    finally:
        write_object(str(runs["digits"] / "data.json"), {**record, "size": 1797})
    assert "digits: examples of 8x8 pixels" in card


@pytest.mark.slow
def test_arrays_of_a_program_have_no_name_in_a_card(tmp_path):
    settings = {**TINY, "dataset": "python", "train_steps": 1, "model_dir": str(tmp_path / "run")}
    data = np.random.default_rng(0).uniform(-1, 1, [16, 4, 5, 4, 1]).astype(np.float32)
    result = wgan_gp.train(
        wgan_gp.Config(**{**settings, "model": "conv3d", "sample_interval": 0}), data=lambda: data
    )
    result.export(str(tmp_path / "out"))
    _, body = header_and_body((tmp_path / "out" / "README.md").read_text())
    assert "data of the author: 16 examples of 4x5x4 voxels and 1 channel" in body
    assert "--dataset" not in body and "--model=conv3d" in body
