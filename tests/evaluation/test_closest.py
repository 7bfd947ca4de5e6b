"""Tests of --closest: samples next to the training images that are closest to them."""

import re

import numpy as np
import PIL.Image
import pytest
import sklearn.neighbors

from tests.helpers.runs import call_main, train_tiny
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.evaluation import closest
from wgan_gp.evaluation.closest import Closest


def images(seed, count, shape=(6, 5, 1)):
    """Returns random images with 256 levels."""
    levels = np.random.default_rng(seed).integers(0, 256, [count, *shape])
    return (levels / 127.5 - 1).astype(np.float32)


@pytest.mark.parametrize("batch", [3, 10, 100])
def test_the_neighbors_are_those_of_scikit_learn(batch):
    """The last batch may have fewer images than there are neighbors."""
    samples, real = images(0, 8), images(1, 100)
    found = Closest(samples, 5)
    for first in range(0, 100, batch):
        found.add(real[first : first + batch])
    search = sklearn.neighbors.NearestNeighbors(n_neighbors=5, algorithm="brute")
    distances, nearest = search.fit(real.reshape(100, -1)).kneighbors(samples.reshape(8, -1))
    np.testing.assert_allclose(found.distances, distances * 127.5 / np.sqrt(30), rtol=1e-5)
    order = np.argsort(distances[:, 0])
    expected = np.concatenate([samples[order, None], real[nearest[order]]], axis=1)
    np.testing.assert_allclose(found.rows(8), expected.reshape(-1, 6, 5, 1), atol=1e-6)


def test_a_copy_comes_first():
    real, samples = images(1, 50), images(0, 20)
    samples[13] = real[31]
    found = Closest(samples)
    found.add(real)
    rows = found.rows(3)
    assert found.distances[13, 0] == 0 and len(rows) == 3 * (1 + closest.NEIGHBORS)
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_allclose(rows[0], real[31], atol=1e-6)


def test_fewer_images_than_neighbors_are_all_drawn():
    found = Closest(images(0, 4))
    found.add(images(1, 2))
    assert found.rows(4).shape == (4 * 3, 6, 5, 1)


def test_the_line_compares_samples_with_held_out_images():
    real, samples = images(1, 50), images(0, 20)
    of_samples, of_held_out = Closest(samples), Closest(images(2, 20), 1)
    for each in (of_samples, of_held_out):
        each.add(real)
    line = closest.describe(of_samples, of_held_out)
    smallest = [float(each) for each in re.findall(r"smallest (\S+),", line)]
    expected = [of_samples.distances.min(), of_held_out.distances.min()]
    assert smallest == pytest.approx(expected, abs=0.051) and "\n" not in line
    assert "held-out" not in closest.describe(of_samples, None)


@pytest.mark.parametrize(
    "spec", [DataSpec((5,), 0), DataSpec((4, 4, 2), 0), DataSpec((4, 4, 1), 0, bounded=False)]
)
def test_other_data_gives_one_line(spec):
    with pytest.raises(UserError, match="--closest=4 is for gray and color images"):
        closest.check(spec, "--closest=4")


@pytest.mark.slow
def test_an_evaluation_writes_the_picture(tmp_path, capsys):
    digits = {"dataset": "digits", "model": "mlp", "holdout": 0.1, "train_steps": 5}
    train_tiny(tmp_path / "run", **digits)
    flags = [f"--model_dir={tmp_path}/run", "--closest=4", "--evaluate_samples=20"]
    flags += ["--feature_extractor=none"]
    assert call_main("--mode=evaluate", *flags) == 0
    *_, line, path = capsys.readouterr().out.splitlines()
    assert "of a held-out image" in line
    assert path == f"{tmp_path}/run/evaluation/closest-ckpt-5.png"
    with PIL.Image.open(path) as picture:
        height, width = picture.height, picture.width
        assert width == 2 * height  # rows of 8 square images
    output = tmp_path / "closest.png"
    assert call_main("--mode=evaluate", *flags, f"--output={output}") == 0
    assert output.read_bytes() == (tmp_path / "run" / path).read_bytes()
    output.write_bytes(b"a picture of the user")
    assert call_main("--mode=evaluate", *flags, f"--output={output}") == 2
    assert "closest.png already exists" in capsys.readouterr().err
    assert output.read_bytes() == b"a picture of the user"
    assert call_main("--mode=evaluate", *flags, f"--output={tmp_path}/closest.jpg") == 2
    assert "does not end in .png, which --closest requires" in capsys.readouterr().err
