"""Samples that depend on (weights, seed, index) only, and pictures of them."""

import types

import numpy as np
import pytest
import tensorflow as tf

import models
from tests.helpers.runs import open_data, strategy_over
from wgan_gp.config import Config, SamplingSettings
from wgan_gp.inference import sample_files
from wgan_gp.inference.images import GAP_GRAY, GAP_PIXELS, image_grid
from wgan_gp.inference.pictures import make_sample_images, real_images
from wgan_gp.inference.sampling import Sampler


def make_sampler(replicas, batch_size=8, classes=0, **choices):
    strategy = strategy_over(replicas)
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        generator, _ = models.build(
            "dcgan", (8, 8, 1), latent_size=6, model_width=4, classes=classes, **choices
        )
    for weight in generator.weights:  # scales and offsets of classes start alike
        if len(weight.shape) == 2 and weight.shape[0] == classes:
            weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    return Sampler(
        generator, strategy, latent_size=6, seed=3, classes=classes, batch_size=batch_size
    )


@pytest.mark.slow
def test_samples_do_not_depend_on_count_batch_or_replicas():
    expected = make_sampler(1).sample(40)
    assert expected.shape == (40, 8, 8, 1)
    assert len(np.unique(expected.reshape(40, -1), axis=0)) == 40
    np.testing.assert_array_equal(make_sampler(1).sample(5), expected[:5])
    np.testing.assert_allclose(make_sampler(1, batch_size=7).sample(40), expected, atol=1e-6)
    np.testing.assert_allclose(make_sampler(4).sample(37), expected[:37], atol=1e-6)


@pytest.mark.slow
def test_classes_come_in_turn_or_as_asked_for():
    sampler = make_sampler(1, classes=3, conditioning="acgan")
    in_turn = sampler.sample(12)
    for label in range(3):
        np.testing.assert_array_equal(sampler.sample(4, label), in_turn[label::3])
    # They are told apart by the generator, not by their place.
    other = make_sampler(1, classes=2, conditioning="acgan")
    assert np.abs(other.sample(3)[2] - in_turn[2]).max() > 1e-3
    np.testing.assert_allclose(
        make_sampler(4, classes=3, conditioning="acgan").sample(12), in_turn, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("label", [None, 2])
def test_given_noise_is_drawn_as_the_same_noise_of_the_seed(label):
    sampler = make_sampler(4, classes=3, conditioning="acgan")
    latents, labels = sampler.noise(13, label)
    np.testing.assert_allclose(
        sampler.generate(latents, labels), sampler.sample(13, label), atol=1e-6
    )


def test_a_conditional_grid_has_a_column_for_each_class():
    source = open_data(Config())
    pictures = make_sample_images(make_sampler(1, classes=10, conditioning="acgan"), source)()
    assert pictures["samples"].shape == (8 * 34, 10 * 34, 1)
    assert pictures["interpolation"].shape == (8 * 34, 8 * 34, 1)
    assert make_sample_images(make_sampler(1), source)()["samples"].shape == (8 * 34, 8 * 34, 1)


def test_real_images_are_those_that_training_reads_first():
    source = open_data(Config())
    first = source.read(64)[0].numpy()
    np.testing.assert_array_equal(real_images(source)["real"], image_grid(first, 8))
    assert real_images(open_data(Config(dataset="gaussians_8"))) == {}


def test_image_grid_places_and_scales_images():
    images = np.full([5, 8, 8, 3], -1, np.float32)
    images[4] = 1
    images[1, :, :, 0] = 0
    grid = image_grid(images, 3)
    # Five images in three columns and two rows, each of 8 pixels enlarged to 32, and a gap.
    assert (grid.shape, grid.dtype) == ((68, 102, 3), np.uint8)
    assert (grid[34:66, 34:66] == 255).all()
    assert (grid[:32, 34:66] == (128, 0, 0)).all()
    for top, left in ((0, 0), (0, 68), (34, 0)):
        assert (grid[top : top + 32, left : left + 32] == 0).all()
    assert (grid[32:34] == GAP_GRAY).all() and (grid[:, 100:] == GAP_GRAY).all()


def test_large_images_are_not_enlarged():
    assert image_grid(np.zeros([4, 64, 64, 1]), 2).shape == (132, 132, 1)


def test_latents_of_one_class_of_many_take_little_memory(monkeypatch):
    sampler = Sampler(None, strategy_over(1), latent_size=6, seed=3, classes=1000)
    expected = sampler.noise(20, 7)
    drawn = []
    latents = Sampler._latents

    def counted(self, first, count):
        drawn.append(count)
        return latents(self, first, count)

    monkeypatch.setattr(Sampler, "_latents", counted)
    monkeypatch.setattr("wgan_gp.inference.sampling._BLOCK", 300)
    found = sampler.noise(20, 7)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[0], latents(sampler, 0, 20_000).numpy()[7::1000])
    assert max(drawn) == 300 and sum(drawn) == 20_000


@pytest.mark.parametrize(
    ("classes", "label", "given", "columns"),
    [(5, None, None, 5), (5, 2, None, 8), (17, None, None, 8)]
    + [(0, None, count, expected) for count, expected in [(1, 8), (3, 3), (16, 16), (24, 8)]],
)
def test_each_class_or_given_condition_has_a_column(classes, label, given, columns):
    conditions = None if given is None else np.arange(given)[:, None]

    def sample(count, label, *, conditions, show_progress):
        number = np.arange(count) % (classes if conditions is None else len(conditions))
        levels = number / 32 if label is None else np.full(count, label / 32)
        return np.broadcast_to(levels[:, None, None, None], [count, 8, 8, 1])

    settings = SamplingSettings(num_samples=48)
    sampler = types.SimpleNamespace(classes=classes, conditions=None, sample=sample)
    picture = sample_files._overview(settings, sampler, None, conditions, label)
    tile = 32 + GAP_PIXELS
    assert picture.shape[1] == columns * tile
    tiles = picture[::tile, ::tile, 0].astype(int)
    full = 48 // columns  # rows
    is_uniform = (np.ptp(tiles[:full], axis=0) == 0).all()
    assert is_uniform == (classes != 17 and given != 24)
