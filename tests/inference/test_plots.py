"""Tests of the pictures of signals, tables and images with any number of channels."""

import io
import types
import warnings

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.helpers.runs import call_main
from wgan_gp.config import Config
from wgan_gp.data.datasets import DataSpec
from wgan_gp.data.source import ExampleFormat, StoredData
from wgan_gp.errors import UserError
from wgan_gp.inference import canvas, grids, images, sample_files, signal_plots, table_plots
from wgan_gp.inference.pictures import overview

BLUE, ORANGE = (np.array(color) for color in canvas.COLORS[:2])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def is_color(picture, color, tolerance=60):
    return np.abs(picture.astype(int) - color).sum(axis=-1) < tolerance


def test_ticks_are_round_numbers_inside_the_range():
    assert canvas.ticks(-1.05, 1.05) == [-1.0, 0.0, 1.0]
    assert canvas.ticks(0, 1) == [0.0, 0.5, 1.0]
    for low, high in ((0, 1), (-3e-7, 5e-7), (1e6, 1e6 + 2), (-250, 1250), (99.5, 99.9)):
        found = canvas.ticks(low, high)
        assert 2 <= len(found) <= 5
        assert low - 1e-6 * (high - low) <= found[0] and found[-1] <= high * (1 + 1e-9)


def test_a_value_range_has_a_length_and_ignores_what_is_not_finite():
    assert canvas.value_range(np.array([3.0, np.nan, -np.inf, 5])) == (3, 5)
    assert canvas.value_range(np.array([np.nan])) == (-1, 1)
    assert canvas.value_range(np.zeros(3)) == (-0.5, 0.5)
    assert canvas.value_range(np.full(3, -8.0)) == (-12, -4)
    assert canvas.range_text(-1e-17, 12.5) == "0 to 12.5"


def test_a_signal_is_drawn_at_its_place_on_the_scale_of_the_data():
    real = np.stack([np.full([50, 1], value) for value in (-1.0, 1.0)])
    ramp = np.linspace(-1, 1, 50)[:, None]
    picture = overview(np.stack([ramp, -ramp, 0 * ramp]), 2, real=real)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    grid = signal_plots._Grid(3, 2, 50, (-1.1, 1.1))
    drawn = is_color(picture, BLUE)
    for index, signal in enumerate((ramp, -ramp, 0 * ramp)):
        for time in (5, 25, 40):
            x, y = (
                round(float(each))
                for each in (
                    grid._x(index, np.array(time)),
                    grid._y(index, signal[time, 0]),
                )
            )
            assert drawn[y - 1 : y + 2, x - 1 : x + 2].any()
            assert drawn[:, x].sum() < 12  # only the lines of this column
    left, top, right, bottom = grid._box(3)
    assert not drawn[top:bottom, left:right].any()  # there is no fourth signal


def test_channels_have_colors_and_gaps_interrupt_lines():
    signals = np.stack([np.full([40, 2], (-0.5, 0.5))] * 2)
    signals[1, 10:30, 0] = np.nan
    signals[1, :, 1] = np.inf
    picture = overview(signals, 2, real=np.ones([1, 40, 2]) * (-1, 1), names=["a", "b"])
    grid = signal_plots._Grid(2, 2, 40, (-1.1, 1.1))
    first, second = (
        picture[top:bottom, left:right] for left, top, right, bottom in (grid._box(0), grid._box(1))
    )
    assert is_color(first, BLUE).any(axis=0).mean() > 0.9
    assert is_color(first, ORANGE).any(axis=0).mean() > 0.9
    assert 0.3 < is_color(second, BLUE).any(axis=0).mean() < 0.6
    assert not is_color(second, ORANGE).any()


def test_long_signals_keep_their_extremes():
    signal = np.zeros(5000)
    signal[1234], signal[4321], signal[7] = 5, -3, np.nan
    times, values = signal_plots._thinned(signal, 200)
    assert len(times) <= 200 and values[times == 1234] == 5 and values[times == 4321] == -3
    assert (np.diff(times) > 0).all()


@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        ((3, 1, 1), 4),
        ((200, 9, 1), 8),
        ((64, 30, 12), 16),
        ((2, 3000, 2), 100),
        ((300, 1), 8),
        ((50, 3), 8),
        ((20, 700), 8),
        ((1, 5), 8),
        ((40, 2), 8),
        ((64, 8, 8, 1), 8),
        ((64, 8, 5, 3), 8),
        ((64, 24, 12, 2), 8),
        ((16, 128, 128, 16), 8),
        ((3, 6, 7, 5), 100),
    ],
)
def test_pictures_of_all_shapes_are_small_and_survive_any_values(shape, columns):
    real = normal(*shape, seed=1)
    samples = normal(*shape).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bad in (np.nan, np.inf, -np.inf, 1e30):
            broken = samples.copy()
            broken[0] = bad
            for behind in (None, real):
                picture = overview(broken, columns, real=behind, bounded=False)
                assert picture.dtype == np.uint8 and picture.shape[2] in (1, 3)
                assert max(picture.shape) <= canvas.MAX_SIDE or len(shape) == 4
                assert max(picture.shape) <= 1.1 * canvas.MAX_SIDE
            overview(np.full_like(samples, bad), columns, real=real)
        overview(0 * samples, columns, real=0 * real)


def test_a_histogram_shows_the_data_in_gray_behind_the_samples():
    real, samples = np.linspace(0, 1, 900)[:, None], np.full([50, 1], 0.5)
    picture = table_plots.table_plot(samples, real)
    panel = picture[canvas.LINE_PIXELS + 32 :, : table_plots._PANEL_WIDTH]
    gray = is_color(panel, np.array(canvas.GRAY), 1)
    width = table_plots._PANEL_WIDTH - 10
    assert gray.any(axis=0).sum() > 0.9 * width  # every bin of the data
    tall = is_color(panel, BLUE, 1).sum(axis=0) > 40
    assert 1 <= tall.sum() <= 2 and abs(np.flatnonzero(tall).mean() - 10 - width / 2) < 6
    outside = table_plots._shares(np.array([-9.0, 0.5, 9.0, np.nan, np.inf]), 0.0, 1.0)
    assert outside[0] == 0.2 and outside[-1] == 0.4 and outside.sum() == pytest.approx(0.8)


def test_names_and_units_are_those_of_the_data(monkeypatch):
    texts = []
    monkeypatch.setattr(
        canvas, "draw_text", lambda draw, place, text, anchor="la": texts.append(text)
    )
    real = np.array([[-1.0, -1, -1], [1, 1, 1]])
    overview(
        real, 8, real=real, restore=lambda rows: 50 * rows + 50, names=["age", "a" * 99, "pay"]
    )
    assert {"age", "pay", "0 to 100", "correlations: real"} <= set(texts)
    assert any(text.startswith("aaa") and text.endswith("...") for text in texts)
    assert "real (gray) and samples (blue)" in texts
    texts.clear()
    overview(real[:, :, None], 1, restore=lambda signals: signals * 1000, names=["volts"])
    assert {"volts", "-1000", "1000", "0", "2"} <= set(texts)
    texts.clear()
    overview(real, 8, names=["too", "few"])
    assert {"feature 0", "-1 to 1"} <= set(texts)
    texts.clear()
    overview(np.zeros([1, 4, 4, 2]), 8, real=np.full([1, 4, 4, 2], 3.0), names=["red", "infra"])
    assert texts == ["red: 1.5 to 4.5", "infra: 1.5 to 4.5"]


def test_the_heatmap_shows_correlations():
    table = normal(500, 3)
    table[:, 1] = table[:, 0]
    table[:, 2] = -table[:, 0]
    table[0] = np.nan
    np.testing.assert_allclose(table_plots._correlations(table)[0], [1, 1, -1])
    colors = table_plots._diverging(np.array([-1.0, 0, 1, np.nan]))
    assert colors.tolist() == [[30, 80, 190], [255] * 3, [190, 30, 40], [255] * 3]


def test_each_channel_has_a_gray_grid_of_its_own():
    batch = np.zeros([4, 16, 16, 4])
    batch[..., 2] = 1
    batch[0, ..., 3] = np.nan
    real = np.stack([np.zeros([16, 16, 4]), np.ones([16, 16, 4])])
    picture = images.channel_grids(batch, 2, real=real)
    wide, tall = picture.shape[1] // 2, picture.shape[0] // 2
    grids = [
        picture[row * tall + 15 : (row + 1) * tall, column * wide : (column + 1) * wide]
        for row in (0, 1)
        for column in (0, 1)
    ]
    levels = [grid[3, 3].tolist() for grid in grids]
    assert levels == [[0] * 3, [0] * 3, [255] * 3, [0] * 3]
    assert grids[2][40, 40].tolist() == [255] * 3


def test_images_of_any_range_are_scaled_by_the_data():
    real = np.array([100.0, 300]).reshape(2, 1, 1, 1) * np.ones([1, 8, 8, 1])
    picture = overview(real + 50.0, 2, real=real, bounded=False)
    assert picture[0, 0, 0] == 64 and picture[0, 40, 0] == 255
    np.testing.assert_array_equal(overview(real / 300, 2), images.image_grid(real / 300, 2))


class FakeSampler:
    classes = 0
    conditions = None

    def __init__(self, shape):
        self.shape = shape

    def sample(self, count, *arguments, **options):
        return normal(count, *self.shape).astype(np.float32)

    def noise(self, count, label=None, conditions=None):
        return np.zeros([count, 4], np.float32), np.zeros(count, np.int32)

    def generate(self, latents, labels):
        return self.sample(len(latents))


@pytest.mark.parametrize("shape", [(2,), (5,), (20, 2), (8, 6, 4), (8, 6, 1)])
def test_training_draws_samples_of_every_shape(shape):
    data = StoredData(
        0,
        ExampleFormat(shape, tf.float32, lambda examples, _: examples),
        normal(70, *shape).astype(np.float32),
        np.zeros(70, np.int32),
    )
    drawn = grids.make_sample_images(FakeSampler(shape), data, bounded=False)()
    assert set(drawn) == ({"samples"} if len(shape) == 1 else {"samples", "interpolation"})
    real = grids.real_images(data, bounded=False)
    assert set(real) == (set() if len(shape) == 1 else {"real"})
    for picture in (*drawn.values(), *real.values()):
        assert picture.dtype == np.uint8 and Image.open(io.BytesIO(sample_files._png(picture)))


def test_formats_of_samples_that_are_not_pictures():
    settings = Config(sample_format="png")
    directory = types.SimpleNamespace(path="run")
    for shape, kind, remedy in (
        ((2,), "points", "points"),
        ((9, 2), "signals", "signals"),
        ((8, 8, 4), "images of 4 channels", "images"),
    ):
        with pytest.raises(UserError) as caught:
            sample_files.check(settings, DataSpec(shape, 0), directory)
        assert str(caught.value) == (
            f"--sample_format=png writes an image per sample, but this run generates {kind} — "
            f"use grid, which plots the {remedy}, or npz"
        )
    sample_files.check(settings, DataSpec((8, 6, 3), 0), directory)


def test_a_table_is_drawn_in_training_and_by_mode_sample(tmp_path, capsys):
    (tmp_path / "table.py").write_text(
        "import numpy as np\n\n"
        "def dataset():\n"
        "    return np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)\n"
    )
    flags = [f"--dataset={tmp_path}/table.py", f"--model_dir={tmp_path}/run"]
    training = ["--model_width=4", "--latent_size=4", "--batch_size=8", "--n_critic=1"]
    assert call_main(*flags, *training, "--train_steps=2", "--steps_per_loop=2") == 0
    capsys.readouterr()
    assert call_main(*flags, "--mode=sample") == 0
    for path in (tmp_path / "run/samples/step_00000002.png", capsys.readouterr().out.strip()):
        assert Image.open(path).size[0] > 300
