"""Runs on volumes `[N, D, H, W, C]`: arrays, functions of the user, pictures, resume, replicas."""

import json

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import models
import wgan_gp
from tests.fuzz.results import tensors
from tests.helpers.runs import call_main, find_data, open_data, resolved, train_tiny
from wgan_gp.config import Config
from wgan_gp.data import pixels
from wgan_gp.data.datasets import find_dataset
from wgan_gp.errors import UserError
from wgan_gp.inference.images import middle_slices
from wgan_gp.inference.pictures import overview

SHAPE = (6, 8, 5, 2)
SETTINGS = {
    "dataset": "array",
    "model": None,
    "sample_interval": 0,
    "activation": "tanh",  # Adam amplifies the rounding errors of ReLU
    "model_width": 4,
}


def volumes(count=24, shape=SHAPE, seed=0):
    values = np.random.default_rng(seed).normal(3, 2, (count, *shape))
    return values.astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("volumes") / "volumes.npz"
    np.savez(path, x=volumes(), y=np.arange(24) % 3)
    return str(path)


@pytest.fixture(scope="module")
def trained(path, tmp_path_factory):
    """Returns the directory of a run of eight iterations."""
    directory = tmp_path_factory.mktemp("trained")
    train_tiny(directory, **SETTINGS, data_dir=path, train_steps=8, conditioning="projection")
    return directory


def test_an_array_of_five_axes_is_read_as_volumes(path):
    config = resolved(Config(dataset="array", data_dir=path, batch_size=8))
    assert (config.model, config.generator_model) == ("conv3d", "conv3d")
    assert config.image_size is None
    dataset = find_data(config)
    assert dataset.spec.example_shape == SHAPE
    assert dataset.spec.describe(24).startswith("24 examples of 6x8x5 voxels and 2 channels")
    examples = open_data(config).read(24)[0].numpy()
    restored, given = dataset.spec.scaling.restore(examples), volumes()
    in_order = [each[each[:, 0, 0, 0, 0].argsort()] for each in (restored, given)]
    np.testing.assert_allclose(*in_order, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        np.where(volumes(8) > 0, 255, 0).astype(np.uint8),
        volumes(8),
        tf.data.Dataset.from_tensors(tf.ones(SHAPE)).repeat(),
        tf.data.Dataset.from_tensors(tf.fill(SHAPE, tf.constant(255, tf.uint8))).repeat(),
    ],
    ids=["uint8", "float32", "stream", "stream of uint8"],
)
def test_a_function_of_the_user_may_give_volumes(given):
    settings = Config(dataset="python", batch_size=8)
    dataset = find_dataset(settings, function=lambda: given)
    assert dataset.spec.example_shape == SHAPE
    assert models.MODELS.default(SHAPE) == "conv3d"
    examples = dataset.open(batch_size=8).read(8)[0].numpy()
    assert examples.shape == (8, *SHAPE)
    assert 0.99 < examples.max() <= 1


@pytest.mark.parametrize("shape", [SHAPE, SHAPE[1:], (5, 2), (3,)])
def test_data_of_python_is_scaled_as_that_of_a_file(tmp_path, shape):
    """Whatever its range is: [0, 1], as in Keras and PyTorch, or other units."""
    given = 100 * volumes(8, shape)
    np.save(tmp_path / "x.npy", given)
    dataset = find_dataset(Config(dataset="python"), function=lambda: given)
    of_file = find_dataset(Config(dataset="array", data_dir=f"{tmp_path}/x.npy"))
    assert dataset.spec == of_file.spec and dataset.spec.scaling is not None
    pairs = zip(*(each.open(batch_size=1).read(8) for each in (dataset, of_file)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_equal_examples_from_python_are_refused():
    with pytest.raises(UserError, match=r"data is constant in channel 0"):
        find_dataset(Config(dataset="python"), function=lambda: np.ones([9, 4, 4, 1]))


@pytest.mark.slow
def test_every_mode_accepts_a_run_on_volumes(trained, path, capsys):
    def call(mode, *arguments):
        assert call_main(f"--mode={mode}", f"--model_dir={trained}", *arguments) == 0
        return capsys.readouterr().out

    call("sample", "--output=" + str(trained / "samples.npy"), "--num_samples=5")
    samples = np.load(trained / "samples.npy")
    assert samples.shape == (5, *SHAPE) and np.isfinite(samples).all()
    call("sample", "--num_samples=16")
    picture = next((trained / "sampled").glob("*.png"))
    assert PIL.Image.open(picture).mode == "RGB"
    call("evaluate", f"--data_dir={path}", "--evaluate_samples=20")
    metrics = json.loads((trained / "evaluation.jsonl").read_text().splitlines()[-1])
    assert metrics["evaluation/two_sample_accuracy"] >= 0.5
    call("export")
    model = wgan_gp.load(trained / "exported")
    assert model.score(samples, np.arange(5) % 3).shape == (5,)
    loaded = tf.saved_model.load(str(trained / "exported" / "saved_model"))
    found = loaded.signatures["serving_default"](
        latents=tf.zeros([2, 8]), labels=tf.constant([0, 2])
    )
    assert found["samples"].shape == (2, *SHAPE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=dcgan"], "--model=dcgan generates images, but the dataset contains volumes"),
        (["--augment=diffaugment"], "--augment=diffaugment does not apply to volumes"),
        (["--feature_extractor=inception"], "is for images, but array contains volumes"),
        (["--scaling=whiten"], "whiten is for features and signals"),
        (["--image_size=8"], "arrays are not resized"),
        (["--attention=8"], "--attention=8 does not apply to --model=conv3d"),
    ],
)
def test_settings_of_images_are_refused_in_one_line(path, tmp_path, arguments, message, capsys):
    given = ["--dataset=array", f"--data_dir={path}", "--batch_size=8", "--train_steps=1"]
    assert call_main(*given, f"--model_dir={tmp_path}/run", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("error:") == 1


@pytest.mark.slow
def test_png_files_of_volumes_are_refused(trained, capsys):
    given = ["--mode=sample", f"--model_dir={trained}", "--sample_format=png"]
    assert call_main(*given) == 2
    error = capsys.readouterr().err
    assert "--sample_format=png" in error and "this run generates volumes" in error


def test_arrays_of_six_axes_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones([3, 1, 4, 4, 4, 1]))
    with pytest.raises(UserError, match=r"\[N, H, W, C\] or \[N, D, H, W, C\]"):
        resolved(Config(dataset="array", data_dir=str(tmp_path / "x.npy")))


def test_volumes_with_the_channels_first_cause_a_warning(tmp_path, caplog):
    np.save(tmp_path / "x.npy", volumes(4, (1, 5, 6, 7)))
    resolved(Config(dataset="array", data_dir=str(tmp_path / "x.npy"), batch_size=4))
    assert "volumes of 1x5x6 voxels and 7 channels; if they are [N, C, D, H, W]" in caplog.text


@pytest.mark.parametrize(
    ("shape", "is_named"), [((28, 28), True), ((16, 12), True), ((64, 3), False), ((200, 8), False)]
)
def test_signals_that_may_be_gray_images_are_named(tmp_path, caplog, shape, is_named):
    caplog.set_level("INFO")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=[20, *shape]))
    resolved(Config(dataset="array", data_dir=str(tmp_path / "x.npy"), batch_size=4))
    assert ("if they are gray images [N, H, W], give examples" in caplog.text) == is_named


def test_flips_mirror_the_width():
    config = Config(random_flips=True)
    given = tf.constant(volumes(40, (2, 3, 4, 1)))
    flipped = pixels.flip(config, given, tf.constant(0, tf.int64)).numpy()
    mirrored = np.array([not np.array_equal(*pair) for pair in zip(flipped, given, strict=True)])
    assert 8 < mirrored.sum() < 32
    np.testing.assert_array_equal(flipped[mirrored], given.numpy()[mirrored][:, :, :, ::-1])


def test_slices_are_the_middle_ones_of_each_axis():
    given = volumes(2, (3, 33, 35, 1))
    images = middle_slices(given)
    assert images.shape == (2, 33, 35 + 1 + 35 + 1 + 33, 1)
    np.testing.assert_array_equal(images[:, :, :35], given[:, 1])
    np.testing.assert_array_equal(images[:, :3, 36:71], given[:, :, 16])
    np.testing.assert_array_equal(images[:, :3, 72:], given[:, :, :, 17])
    assert np.isnan(images[:, 3:, 36:]).all() and np.isnan(images[:, :, 35]).all()
    enlarged = middle_slices(volumes(1, (4, 8, 8, 2)))
    assert enlarged.shape == (1, 32, 3 * 32 + 2, 2)


@pytest.mark.parametrize(("channels", "planes"), [(1, 1), (3, 3), (2, 3)])
def test_a_picture_has_a_strip_of_slices_for_each_volume(channels, planes):
    given = np.clip(volumes(4, (32, 32, 32, channels)) / 10, -1, 1)
    picture = overview(given, 2)
    assert picture.dtype == np.uint8 and picture.shape[2] == planes
    if channels != 2:
        assert picture.shape[:2] == (2 * 34, 2 * (3 * 32 + 4))
        expected = np.rint((given[0, 16] + 1) * 127.5)
        np.testing.assert_array_equal(picture[:32, :32], expected)


@pytest.mark.slow
def test_two_replicas_train_the_weights_of_one(path, tmp_path):
    def weights(name, **settings):
        settings = {"train_steps": 2, "critic_normalization": "layer", **settings}
        train_tiny(tmp_path / name, **SETTINGS, data_dir=path, conditioning="acgan", **settings)
        return tensors(tmp_path / name / "checkpoints" / "ckpt-2")

    one, two = weights("one", jit_compile="off"), weights("two", cpu_replicas=2)
    for name, value in one.items():
        change = np.linalg.norm(np.asarray(two[name], np.float64) - value)
        assert change <= 1e-4 * np.linalg.norm(value), name
