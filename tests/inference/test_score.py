"""`score` of a result and of an export: critic values, and distances to the nearest samples."""

import pathlib
import re

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

import losses
import models
import wgan_gp
from tests.helpers.runs import LIBRARY, TINY, call_main, train_tiny
from wgan_gp.app import saved_run
from wgan_gp.data.conditions import Conditions
from wgan_gp.data.pixels import Pixels
from wgan_gp.data.sources.toys import mode_centers
from wgan_gp.data.spec import DataSpec
from wgan_gp.data.table import Table
from wgan_gp.errors import UserError
from wgan_gp.inference.sampling import Sampler
from wgan_gp.inference.scoring import Scorer, score_in_units
from wgan_gp.runtime.devices import connect

ROOT = pathlib.Path(__file__).parents[2]


def make_scorer(critic=lambda inputs, training: inputs[:, :1], **options):
    def generator(latents, training):
        return latents * [[1.0, 0.0]]

    strategy = options.pop("strategy", tf.distribute.get_strategy())
    sampler = Sampler(generator, strategy, latent_size=2, seed=0)
    return Scorer(sampler, critic, losses.score, **{"labeled_critic": False, **options})


def scorer_of(path, replicas=1):
    saved = saved_run.find_run(str(path), {"cpu_replicas": replicas}, LIBRARY)
    run = saved_run.restore(saved, saved_run.find_checkpoint(saved), connect(saved.config))
    score = losses.score
    return run, Scorer(run.sampler, run.state.critic, score, labeled_critic=False, steps=5)


def test_the_search_finds_the_nearest_sample_of_a_linear_generator():
    """It generates the line y = 0, so the distance to (x, y) is |y|."""
    examples = np.array([[0.3, 2.0], [-1.0, 0.5], [2.0, 0.0]], np.float32)
    spec = DataSpec((2,), 0)
    scores, distances = score_in_units(
        make_scorer(starts=2, steps=100), spec, examples, distances=True
    )
    np.testing.assert_allclose(scores, examples[:, 0])
    np.testing.assert_allclose(distances, [2.0, 0.5, 0.0], atol=2e-3)
    np.testing.assert_array_equal(score_in_units(make_scorer(), spec, examples), scores)


def test_examples_of_many_batches_keep_their_order():
    examples = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    found = score_in_units(make_scorer(), DataSpec((2,), 0), examples)
    np.testing.assert_array_equal(found, examples[:, 0])


def test_images_are_levels_or_normalized():
    """The critic here is the mean of an image, of levels in the middle of their noise."""

    def critic(inputs, training):
        return tf.reduce_mean(inputs, axis=[1, 2, 3])[:, None]

    levels = np.full([3, 4, 4, 1], 51, np.uint8)
    spec = DataSpec((4, 4, 1), 0, pixels=Pixels())
    for images in (levels, (levels + 0.5) / 128 - 1):
        found = score_in_units(make_scorer(critic), spec, images)
        np.testing.assert_allclose(found, [51.5 / 128 - 1] * 3, atol=1e-6)


def test_rows_of_a_table_are_scored_by_their_values():
    """Equal rows have equal scores, and the label is the category."""
    frame = pd.DataFrame({"x": np.repeat(np.arange(20) / 4, 2), "job": ["a", "b"] * 20})
    table = Table.of(frame, "it", {})
    seen = []

    def critic(inputs, training):
        rows, labels = inputs
        seen.append(labels)
        return rows[:, :1] + 10.0 * tf.cast(labels, tf.float32)[:, None]

    spec = DataSpec((table.size,), 2, False, class_names=("job=a", "job=b"), table=table)
    scorer = make_scorer(critic, labeled_critic=True)
    found = score_in_units(scorer, spec, pd.concat([frame[:4], frame[:4]]))
    np.testing.assert_array_equal(found[:4], found[4:])
    np.testing.assert_allclose(found[1] - found[0], 10.0, atol=1e-5)
    with pytest.raises(UserError, match="give a DataFrame"):
        score_in_units(scorer, spec, np.zeros([3, 2]))


def test_conditions_have_the_units_of_the_data():
    def critic(inputs, training):
        examples, conditions = inputs
        return examples[:, :1] + conditions[:, :1]

    conditions = Conditions.of(np.array([[10.0], [30.0]]))  # of mean 20 and deviation 10
    spec = DataSpec((2,), 0, conditions=conditions)
    scorer = make_scorer(critic, labeled_critic=True)
    examples = np.array([[1.0, 0.0], [2.0, 0.0]])
    found = score_in_units(scorer, spec, examples, conditions=[[20.0], [40.0]])
    np.testing.assert_allclose(found, [1.0, 4.0], atol=1e-6)
    for given, message in ((None, "conditions are missing"), ([[1.0]] * 3, "3 conditions for 2")):
        with pytest.raises(UserError, match=message):
            score_in_units(scorer, spec, examples, conditions=given)


def test_mistakes_are_one_line():
    points, classes = DataSpec((2,), 0), DataSpec((2,), 3)
    for spec, examples, labels, message in (
        (points, np.zeros([3, 5]), None, r"of shape \(5,\), but the run was trained on \(2,\)"),
        (points, np.full([3, 2], np.nan), None, "contain NaN"),
        (points, np.zeros([0, 2]), None, "no numbers"),
        (classes, np.eye(2), None, "labels are not 2 integers from 0 to 2"),
        (classes, np.eye(2), [0, 3], "labels are not 2 integers from 0 to 2"),
    ):
        with pytest.raises(UserError, match=message):
            score_in_units(make_scorer(), spec, examples, labels)


@pytest.mark.slow
def test_scores_do_not_depend_on_the_replicas(runs):
    examples = np.random.default_rng(0).normal(size=(21, 2)).astype(np.float32)
    run, one = scorer_of(runs["points"])
    _, two = scorer_of(runs["points"], replicas=2)
    one, two = (each.score(examples, None) for each in (one, two))
    np.testing.assert_allclose(one["critic"], run.state.critic(examples)[:, 0], atol=1e-6)
    for name in ("critic", "distance"):
        np.testing.assert_allclose(two[name], one[name], atol=1e-4)


@pytest.mark.parametrize("name", ["projection", "points"])
def test_an_export_has_the_scores_of_the_run(name, runs, tmp_path):
    folder = tmp_path / "out"
    assert call_main("--mode=export", f"--model_dir={runs[name]}", f"--output={folder}") == 0
    random, labels = np.random.default_rng(0), None
    if name == "projection":
        examples, labels = random.uniform(-1, 1, (4, 8, 8, 1)).astype(np.float32), np.arange(4)
    else:
        examples = random.normal(size=(4, 2)).astype(np.float32)
    found = wgan_gp.load(folder).score(examples, labels)
    critic = models.load(f"{folder}/critic.keras")
    expected = critic(examples if labels is None else [examples, labels.astype(np.int32)])
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-6)
    signature = tf.saved_model.load(f"{folder}/saved_model").signatures["critic"]
    given = {} if labels is None else {"labels": tf.constant(labels, tf.int32)}
    np.testing.assert_allclose(
        found, signature(examples=tf.constant(examples), **given)["scores"], atol=1e-5
    )


@pytest.mark.slow
def test_a_result_scores_in_the_units_of_the_data(tmp_path):
    array = np.random.default_rng(0).integers(1000, 1100, (40, 3)).astype(np.int16)
    settings = {**TINY, "dataset": "python", "train_steps": 2, "sample_interval": 0}
    config = wgan_gp.Config(**settings, model_dir=f"{tmp_path}/run", scaling="minmax")
    result = wgan_gp.train(config, data=array)
    scores, distances = result.score(array, distances=True)
    assert scores.shape == distances.shape == (40,) and distances.min() >= 0
    low, high = array.min(axis=0).astype(float), array.max(axis=0).astype(float)
    # Integers are the middles of intervals of length 1.
    normalized = tf.constant(2 * (array - low + 0.5) / (high - low + 1) - 1, tf.float32)
    np.testing.assert_allclose(scores, result.critic(normalized)[:, 0], atol=1e-5)
    loaded = wgan_gp.load(result.export())
    np.testing.assert_allclose(loaded.score(array), scores, atol=1e-5)
    with pytest.raises(UserError, match="NaN, infinity, or values that are too far"):
        loaded.score(np.full([2, 3], np.nan))


@pytest.mark.slow
def test_a_result_scores_the_rows_of_a_table(tmp_path):
    values = np.random.default_rng(0).integers(1000, 1100, (40, 3))
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    settings = {**TINY, "dataset": "python", "train_steps": 2, "sample_interval": 0}
    result = wgan_gp.train(wgan_gp.Config(**settings, model_dir=f"{tmp_path}/run"), data=frame)
    scores = result.score(frame[["c", "a", "b"]])
    assert scores.shape == (40,) and scores.std() > 0
    loaded = wgan_gp.load(result.export())
    np.testing.assert_allclose(loaded.score(frame), scores, atol=1e-5)
    np.testing.assert_allclose(loaded.score(frame[::-1]), scores[::-1], atol=1e-5)
    with pytest.raises(UserError, match="lacks the column 'b'"):
        loaded.score(frame[["a", "c"]])


@pytest.mark.slow
def test_the_documented_program_writes_a_csv_file(runs, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "sampling.md").read_text()
    (program,) = re.findall(r"## Score examples\n[\s\S]*?```python\n([\s\S]*?)```", page)
    flags = [f"--model_dir={runs['digits']}", f"--output={tmp_path}/runs/digits/exported"]
    assert call_main("--mode=export", *flags) == 0
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), np.uint8)
    np.save(tmp_path / "pictures.npy", images)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    table = pd.read_csv(tmp_path / "scores.csv", index_col="index")
    assert list(table) == ["critic", "distance"] and sorted(table.index) == list(range(5))
    assert (table.distance.diff().dropna() <= 0).all()
    critic = models.load(f"{tmp_path}/runs/digits/exported/critic.keras")
    expected = critic(images.astype(np.float32) / 127.5 - 1)[:, 0]
    np.testing.assert_allclose(table.critic.sort_index(), expected, atol=1e-5)


@pytest.mark.slow
def test_points_between_the_modes_are_found(tmp_path):
    """The area under the ROC curve of the distance is at least 0.99.

    Longer searches also find the few samples that a run this short generates between the modes.
    """
    run, _ = train_tiny(
        tmp_path / "run",
        dataset="gaussians_8",
        model_width=64,
        model_depth=3,
        latent_size=2,
        batch_size=256,
        n_critic=5,
        train_steps=2000,
        steps_per_loop=100,
        penalty_weight=0.1,
        generator_ema_decay=0.99,
        jit_compile="on",
    )
    centers = mode_centers("gaussians_8")
    random = np.random.default_rng(0)
    real = centers[np.arange(400) % 8] + random.normal(0, 0.02, (400, 2))
    others = random.uniform(-3, 3, (2000, 2))
    far = np.linalg.norm(others[:, None] - centers, axis=2).min(axis=1) > 0.25
    others = others[far][:400]
    points = np.concatenate([real, others]).astype(np.float32)

    def distances(steps):
        score = losses.score
        scorer = Scorer(run.sampler, run.state.critic, score, labeled_critic=False, steps=steps)
        return score_in_units(scorer, run.dataset.spec, points, distances=True)[1]

    found, without = distances(10), distances(0)
    assert roc_auc_score(np.repeat([0, 1], [400, len(others)]), found) >= 0.99
    # The search brings samples closer to points of the data than the nearest of its starts.
    assert np.median(found[:400]) < 0.7 * np.median(without[:400])
    assert found[:400].mean() < without[:400].mean()
