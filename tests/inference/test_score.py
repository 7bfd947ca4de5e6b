"""--mode=score: critic values of examples, and distances to the nearest samples."""

import csv

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

import models
from tests.helpers.runs import LIBRARY, call_main, train_tiny
from wgan_gp.app import saved_run
from wgan_gp.config import Config
from wgan_gp.data.sources.toys import mode_centers
from wgan_gp.inference.sampling import Sampler
from wgan_gp.inference.scoring import Scorer
from wgan_gp.runtime.devices import connect


@pytest.fixture
def digits(runs):
    return runs["projection"]


def score(run, output, *arguments):
    """Runs the program, and returns the columns of the file."""
    status = call_main(
        "--mode=score", f"--model_dir={run}", f"--output={output}", "--score_steps=5", *arguments
    )
    assert status == 0
    with open(output) as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def refused(capsys, run, *arguments):
    assert call_main("--mode=score", f"--model_dir={run}", *arguments) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return line


def test_the_search_finds_the_nearest_sample_of_a_linear_generator():
    """It generates the line y = 0, so the distance to (x, y) is |y|."""
    strategy = tf.distribute.get_strategy()

    def generator(latents, training):
        return latents * [[1.0, 0.0]]

    sampler = Sampler(generator, strategy, latent_size=2, seed=0)
    scorer = Scorer(
        Config(score_starts=2, score_steps=100),
        sampler,
        lambda inputs, training: inputs[:, :1],
        LIBRARY.losses.score,
        labeled_critic=False,
    )
    examples = np.array([[0.3, 2.0], [-1.0, 0.5], [2.0, 0.0]], np.float32)
    found = scorer.score(examples, None, batch_size=4)
    np.testing.assert_allclose(found["critic"], examples[:, 0])
    np.testing.assert_allclose(found["distance"], [2.0, 0.5, 0.0], atol=2e-3)


@pytest.mark.slow
def test_scores_do_not_depend_on_the_replicas(runs, tmp_path):
    folder = runs["points"]
    saved = saved_run.find_run(str(folder), {}, LIBRARY)
    trained = saved_run.restore(saved, saved_run.find_checkpoint(saved), connect(saved.config))
    examples = np.random.default_rng(0).normal(size=(21, 2)).astype(np.float32)
    np.save(tmp_path / "examples.npy", examples)
    flag = f"--score_data={tmp_path / 'examples.npy'}"
    one = score(folder, tmp_path / "one.csv", flag)
    two = score(folder, tmp_path / "two.csv", flag, "--cpu_replicas=2")
    assert list(one) == ["index", "critic", "distance"]
    assert one["index"] == [str(index) for index in range(21)]
    expected = trained.state.critic(examples).numpy()[:, 0]
    np.testing.assert_allclose(np.float32(one["critic"]), expected, rtol=1e-5, atol=1e-6)
    for name in ("critic", "distance"):
        np.testing.assert_allclose(np.float32(two[name]), np.float32(one[name]), atol=1e-4)


@pytest.mark.slow
def test_the_dataset_of_the_run_is_scored_in_its_order(digits, tmp_path):
    found = score(digits, tmp_path / "scores.csv", "--score_examples=9999", "--score_starts=0")
    assert list(found) == ["index", "label", "critic"]
    assert found["index"] == [str(index) for index in range(1797)]
    assert found["label"][:10] == [str(digit) for digit in range(10)]


@pytest.mark.slow
def test_images_of_a_folder_are_named(digits, tmp_path):
    for label in range(10):
        (tmp_path / "images" / str(label)).mkdir(parents=True)
        image = tf.io.encode_png(np.full([8, 8, 1], 20 * label, np.uint8)).numpy()
        (tmp_path / "images" / str(label) / "a.png").write_bytes(image)
    (tmp_path / "images" / "3" / "bad.png").write_bytes(b"bad")
    found = score(digits, tmp_path / "scores.csv", f"--score_data={tmp_path / 'images'}")
    assert list(found) == ["index", "file", "label", "critic", "distance"]
    assert found["file"] == [f"{label}/a.png" for label in range(10)]


def test_mistakes_are_one_line(runs, digits, tmp_path, capsys):
    folder = runs["points"]
    path = tmp_path / "wrong.npy"
    np.save(path, np.zeros([3, 5], np.float32))
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "bad.npy").write_text("bad")
    np.save(tmp_path / "images.npy", np.zeros([3, 8, 8, 1], np.float32))
    cases = {
        f"--score_data={path}": "contains examples of shape (5,), but the run was trained on (2,)",
        f"--score_data={tmp_path}": "but the examples of the run have shape [2]",
        f"--score_data={tmp_path}/none.npy": "does not exist",
        f"--score_data={tmp_path}/old.csv": "ends in none of .npy, .npz, .h5",
        f"--score_data={tmp_path}/bad.npy": "cannot be read",
        f"--output={tmp_path}/old.csv": "already exists",
        f"--output={tmp_path}/old.txt": "does not end in .csv",
    }
    for flag, message in cases.items():
        assert message in refused(capsys, folder, flag)
    labels_missing = refused(capsys, digits, f"--score_data={tmp_path}/images.npy")
    assert "needs a label of one of 10 classes for each example" in labels_missing


@pytest.mark.slow
def test_the_critic_is_exported(digits, tmp_path):
    assert call_main("--mode=export", f"--model_dir={digits}", f"--output={tmp_path}/out") == 0
    signature = tf.saved_model.load(f"{tmp_path}/out/saved_model").signatures["critic"]
    images = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8, 1)).astype(np.float32)
    labels = np.arange(4, dtype=np.int32)
    found = signature(examples=tf.constant(images), labels=tf.constant(labels))["scores"]
    critic = models.load(f"{tmp_path}/out/critic.keras")
    np.testing.assert_allclose(found, critic([images, labels])[:, 0], atol=1e-6)
    np.savez(tmp_path / "images.npz", examples=images, labels=labels)
    scored = score(digits, tmp_path / "scores.csv", f"--score_data={tmp_path}/images.npz")
    np.testing.assert_allclose(np.float32(scored["critic"]), found, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_points_between_the_modes_are_found(tmp_path):
    """The area under the ROC curve of the distance is at least 0.99.

    Longer searches also find the few samples that a run this short generates between the modes.
    """
    train_tiny(
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
    np.save(tmp_path / "points.npy", np.concatenate([real, others]).astype(np.float32))
    found = score(
        tmp_path / "run",
        tmp_path / "scores.csv",
        f"--score_data={tmp_path / 'points.npy'}",
        "--score_steps=10",
    )
    is_other = np.repeat([0, 1], [400, len(others)])
    aurocs = {
        "critic": roc_auc_score(is_other, -np.float32(found["critic"])),
        "distance": roc_auc_score(is_other, np.float32(found["distance"])),
    }
    print(aurocs)
    assert aurocs["distance"] >= 0.99
    # The search brings samples closer to points of the data than the nearest of its starts.
    starts = score(
        tmp_path / "run",
        tmp_path / "starts.csv",
        f"--score_data={tmp_path / 'points.npy'}",
        "--score_steps=0",
    )
    found, without = (np.float32(each["distance"][:400]) for each in (found, starts))
    assert np.median(found) < 0.7 * np.median(without)
    assert found.mean() < without.mean()
