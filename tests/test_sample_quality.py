"""The judges of benchmarks/sample_quality.py, on samples whose quality is known."""

import json

import numpy as np
import pytest
import sklearn.datasets
from conftest import open_data, train_tiny

import train
from benchmarks.sample_quality import judge_digits, judge_modes, main
from wgan_gp.config import Config
from wgan_gp.data import toys


def test_real_digits_are_recognised_and_grey_ones_are_not():
    images = sklearn.datasets.load_digits().images[:500, ..., None] / 8 - 1
    figures, real = judge_digits(images.astype(np.float32))
    assert figures.confidence > 0.95 and real.confidence > 0.95
    assert 5 < figures.smallest_class < figures.largest_class < 20
    grey, _ = judge_digits(np.zeros([100, 8, 8, 1], np.float32))
    assert grey.confidence < 0.7
    assert (grey.smallest_class, grey.largest_class) == (0, 100)


@pytest.mark.parametrize("dataset", toys.DEVIATIONS)
def test_the_data_itself_reaches_every_mode(dataset):
    points = open_data(Config(dataset=dataset)).read(0, 10_000)[0].numpy()
    figures = judge_modes(points, toys.mode_centers(dataset), toys.DEVIATIONS[dataset])
    assert figures.modes_reached == figures.modes == int(dataset.partition("_")[2])
    # Of a 2-D Gaussian, 1 - exp(-9/2) lies within three standard deviations.
    assert abs(figures.within - 100 * (1 - np.exp(-4.5))) < 0.5
    assert figures.smallest_mode > 75 / figures.modes


def test_collapse_and_scatter_are_seen():
    centres, deviation = toys.mode_centers("gaussians_25"), toys.DEVIATIONS["gaussians_25"]
    collapsed = judge_modes(np.repeat(centres[:1], 100, axis=0), centres, deviation)
    assert (collapsed.modes_reached, collapsed.within, collapsed.smallest_mode) == (1, 100, 0)
    between = judge_modes(np.ones([100, 2]), centres, deviation)
    assert (between.modes_reached, between.within) == (0, 0)


def test_runs_that_cannot_be_judged_are_named(tmp_path, capsys):
    untrained = tmp_path / "untrained"
    untrained.mkdir()
    config = train.resolve(Config(model_width=4))
    (untrained / "config.json").write_text(json.dumps({**config.to_dict(), "unknown": 1}))
    train_tiny(tmp_path / "roll", dataset="swiss_roll", train_steps=5)
    paths = [str(tmp_path / name) for name in ("nowhere", "untrained", "roll")]
    assert main(paths) == 2
    errors = capsys.readouterr().err.splitlines()
    wanted = ["nowhere holds no run", "untrained has no checkpoint yet", "roll has no judge"]
    found = [line for line in errors if line.startswith("error: ")]
    assert all(want in line for want, line in zip(wanted, found, strict=True))


def test_a_run_is_judged_by_its_newest_checkpoint(tmp_path, capsys):
    train_tiny(tmp_path, dataset="gaussians_8", train_steps=5)
    assert main([str(tmp_path)]) == 0
    assert f"{tmp_path}: 5 iterations\n  " in capsys.readouterr().out
