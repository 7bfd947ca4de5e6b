"""Tests of benchmarks/sample_quality.py with samples of known quality."""

import numpy as np
import pytest
import sklearn.datasets

from benchmarks.sample_quality import classify_digits, main
from tests.helpers.runs import resolved, train_tiny
from wgan_gp.config import Config
from wgan_gp.run_directory.json_files import write_object


def test_real_digits_are_recognized_and_gray_images_are_not():
    images = sklearn.datasets.load_digits().images[:500, ..., None] / 8 - 1
    figures, real = classify_digits(images.astype(np.float32))
    assert figures.confidence > 0.95 and real.confidence > 0.95
    assert 5 < figures.smallest_class < figures.largest_class < 20
    gray, _ = classify_digits(np.zeros([100, 8, 8, 1], np.float32))
    assert gray.confidence < 0.7
    assert (gray.smallest_class, gray.largest_class) == (0, 100)


@pytest.mark.slow
def test_runs_that_cannot_be_checked_are_reported(tmp_path, capsys):
    untrained = tmp_path / "untrained"
    untrained.mkdir()
    config = resolved(Config(model_width=4))
    write_object(str(untrained / "config.json"), config.to_dict())
    train_tiny(tmp_path / "roll", dataset="swiss_roll", train_steps=5)
    paths = [str(tmp_path / name) for name in ("nowhere", "untrained", "roll")]
    assert main(paths) == 2
    errors = capsys.readouterr().err.splitlines()
    expected = [
        "nowhere contains no run",
        "untrained has no checkpoint",
        "roll was trained on swiss_roll, which this program cannot check",
    ]
    found = [line for line in errors if line.startswith("error: ")]
    assert all(message in line for message, line in zip(expected, found, strict=True))


@pytest.mark.slow
def test_a_run_is_checked_at_its_newest_checkpoint(tmp_path, monkeypatch, capsys):
    run = tmp_path / "runs" / "gaussians"
    train_tiny(run, dataset="gaussians_8", train_steps=5)
    assert main([str(run)]) == 0
    out = capsys.readouterr().out
    assert f"{run}: 5 iterations\n  " in out and " of 8 modes covered, " in out
    # Without arguments, a run that cannot be checked is no error.
    (run.parent / "other").mkdir()
    config = resolved(Config(dataset="swiss_roll", model_width=4))
    write_object(str(run.parent / "other" / "config.json"), config.to_dict())
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    out, errors = capsys.readouterr()
    assert " of 8 modes covered, " in out
    assert "left out: runs/other was trained on swiss_roll" in errors
