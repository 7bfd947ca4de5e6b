"""Tests of the pictures of points, signals, tables and images with any number of channels."""

import importlib.util
import io
import sys
import threading
import types
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from tests.helpers.runs import examples_of
from wgan_gp import inference
from wgan_gp.config import Config
from wgan_gp.data.datasets import DataSpec
from wgan_gp.data.scaling import Scaling
from wgan_gp.data.table import Table
from wgan_gp.errors import UserError
from wgan_gp.inference import images, plots, sample_files
from wgan_gp.inference.pictures import make_sample_images, overview, real_images


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def scaling_of(offset, scale, size, names=None):
    """Returns the scaling of features or channels x to (x - offset) / scale."""
    numbers = [(float(each),) * size for each in (offset, scale, offset - scale, offset + scale)]
    used, constants = tuple(range(size)), (0.0,) * size
    return Scaling("standard", *numbers, used, constants, False, "float32", names)


@pytest.fixture
def figures(monkeypatch):
    """The figures that were drawn."""
    drawn, canvas = [], plots.FigureCanvasAgg

    def record(figure):
        drawn.append(figure)
        return canvas(figure)

    monkeypatch.setattr(plots, "FigureCanvasAgg", record)
    return drawn


def texts_of(figure):
    """Returns all texts of a figure that are drawn."""
    found = figure.findobj(matplotlib.text.Text)
    return {line for each in found if each.get_visible() for line in each.get_text().split("\n")}


def test_a_value_range_has_a_length_and_ignores_what_is_not_finite():
    assert images.value_range(np.array([3.0, np.nan, -np.inf, 5])) == (3, 5)
    assert images.value_range(np.array([np.nan])) == (-1, 1)
    assert images.value_range(np.zeros(3)) == (-0.5, 0.5)
    assert images.value_range(np.full(3, -8.0)) == (-12, -4)
    assert images.range_text(-1e-17, 12.5) == "0 to 12.5"


def test_points_lie_over_data_that_sets_the_scale():
    real = np.array([[1.0, 100], [-1, -100]])
    samples = np.array([[1.0, -100], [1e9, 0], [np.nan, 0], [0, np.inf]])
    (axes,) = plots.plot_points(samples, real, ["x", "y"]).axes
    behind, front = axes.lines
    np.testing.assert_array_equal(behind.get_xydata(), real)
    np.testing.assert_array_equal(front.get_xydata(), samples[:1])  # the others are outside
    assert (behind.get_color(), front.get_color()) == (plots.GRAY, plots.BLUE)
    np.testing.assert_allclose([*axes.get_xlim(), *axes.get_ylim()], [-1.2, 1.2, -120, 120])
    (alone,) = plots.plot_points(samples, None, ["x", "y"]).axes
    assert alone.get_xlim()[1] > 1e9


def test_signals_have_one_scale_which_the_data_sets():
    real = np.stack([np.full([50, 1], value) for value in (-1.0, 1.0)])
    ramp = np.linspace(-1, 1, 50)[:, None]
    signals = np.stack([ramp, -ramp, 5 * ramp])
    panels = plots.plot_signals(signals, real, ["channel 0"], 2).axes
    assert len(panels) == 3
    for axes, signal in zip(panels, signals, strict=True):
        (line,) = axes.lines
        np.testing.assert_array_equal(line.get_xdata(), np.arange(50))
        np.testing.assert_allclose(line.get_ydata(), np.clip(signal[:, 0], -1.1, 1.1))
        np.testing.assert_allclose(axes.get_ylim(), (-1.1, 1.1))
    (left, top), (right, _), (_, below) = (axes.get_position().p0 for axes in panels)
    assert left < right and below < top


def test_channels_have_colors_and_gaps_interrupt_lines():
    signals = np.stack([np.full([40, 2], (-0.5, 0.5))] * 2)
    signals[1, 10:30, 0] = np.nan
    signals[1, 20, 0] = 0
    signals[1, :, 1] = np.inf
    figure = plots.plot_signals(signals, np.ones([1, 40, 2]), ["_a", "$b$"], 2)
    (first, second), (gaps, nothing) = (axes.lines for axes in figure.axes)
    assert len({to_hex(line.get_color()) for line in (first, second)}) == 2
    assert np.isfinite(first.get_ydata()).all() and list(first.get_markevery()) == []
    expected = [*range(10), 20, *range(30, 40)]
    np.testing.assert_array_equal(np.isfinite(gaps.get_ydata()).nonzero()[0], expected)
    assert gaps.get_markevery() == [20]  # a point alone would be an invisible line
    assert np.isnan(nothing.get_ydata()).all()
    assert len({to_hex(color) for color in plots.COLORS}) == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        ((3, 1, 1), 4),
        ((12, 9, 12), 16),
        ((2, 3000, 2), 100),
        ((300, 1), 8),
        ((20, 401), 8),
        ((1, 5), 8),
        ((40, 2), 8),
        ((64, 8, 8, 1), 8),
        ((64, 8, 5, 3), 8),
        ((64, 12, 8, 2), 8),
        ((4, 700, 500, 5), 2),
        ((3, 6, 7, 5), 100),
    ],
)
def test_pictures_of_all_shapes_are_small_and_survive_any_values(shape, columns):
    real = np.zeros(shape)
    broken, scaling = normal(*shape).astype(np.float32), scaling_of(0, 1, shape[-1])
    broken.reshape(-1)[:5] = np.array([np.nan, np.inf, -np.inf, 1e30, -1e-30])[: broken.size]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures = [
            overview(broken, columns, units=scaling),
            overview(np.full_like(broken, np.nan), columns, real=real, units=scaling),
        ]
    for picture in pictures:
        assert picture.dtype == np.uint8 and picture.shape[2] in (1, 3)
        assert max(picture.shape) <= images.MAX_SIDE or len(shape) == 4
        assert max(picture.shape) <= 1.1 * images.MAX_SIDE


def test_a_plot_has_as_many_signals_as_fit():
    figure = plots.plot_signals(normal(300, 2, 1), None, ["channel 0"], 2)
    assert len(figure.axes) == 2 * 14 and figure.bbox.height <= images.MAX_SIDE


@pytest.mark.slow
def test_texts_do_not_change_the_size_of_a_picture():
    """TensorBoard compares the pictures of a run."""
    for shape in ((40, 2), (40, 3), (2, 30, 3)):
        sizes = {
            overview(normal(*shape), 4, units=scaling_of(*numbers, shape[-1], names)).shape
            for numbers, name in (((0, 1), "a"), ((1e30, 1e25), "m" * 99))
            for names in [(name,) * shape[-1]]
        }
        assert len(sizes) == 1


@pytest.mark.slow
def test_no_setting_of_the_user_changes_a_picture():
    """Neither a matplotlibrc nor a program that draws in its own way, at the same time or not."""
    examples = {shape: normal(*shape) for shape in ((40, 2), (40, 3), (4, 30, 2))}
    expected = {shape: overview(each, 2) for shape, each in examples.items()}
    before = dict(matplotlib.rcParams)
    style = {"axes.facecolor": "black", "font.size": 30, "lines.linewidth": 9, "axes.grid": True}
    style |= {"text.usetex": True, "xtick.bottom": False, "axes.unicode_minus": False}
    found = {shape: [] for shape in examples}
    with matplotlib.rc_context(style):
        threads = [
            threading.Thread(target=lambda s=shape: found[s].append(overview(examples[s], 2)))
            for shape in examples
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert matplotlib.rcParams["axes.facecolor"] == "black"
    assert dict(matplotlib.rcParams) == before
    for shape, pictures in found.items():
        assert len(pictures) == 2
        for picture in pictures:
            np.testing.assert_array_equal(picture, expected[shape])


def test_a_histogram_shows_the_data_in_gray_behind_the_samples():
    real, samples = np.linspace(0, 1, 900)[:, None], np.array([[0.51]] * 49 + [[7.0]])
    panel = plots.plot_table(samples, real, ["feature 0"]).axes[0]
    behind, front = panel.patches
    np.testing.assert_allclose(behind.get_data().values, [1 / plots.BINS] * plots.BINS)
    expected = np.zeros(plots.BINS)
    expected[[15, -1]] = 0.98, 0.02  # the sample outside is counted at the edge
    np.testing.assert_allclose(front.get_data().values, expected)
    np.testing.assert_array_equal(front.get_data().edges, behind.get_data().edges)
    assert to_hex(behind.get_facecolor()) == plots.GRAY
    assert to_hex(front.get_edgecolor()) == plots.BLUE
    outside = plots.shares(np.array([-9.0, 0.5, 9.0, np.nan, np.inf]), 0.0, 1.0)
    assert outside[0] == 0.2 and outside[-1] == 0.4 and outside.sum() == pytest.approx(0.8)


def test_names_and_units_are_those_of_the_data(figures):
    real = np.array([[-1.0, -1, -1], [1, 1, 1]])
    overview(real, 8, real=real, units=scaling_of(50, 50, 3, ("$a_1$", "a" * 99, "_größe 価")))
    texts = texts_of(figures.pop())
    assert {"$a_1$", "_größe \ufffd", "0 to 100", "correlations: real"} <= texts
    assert any(text.startswith("aaa") and text.endswith("...") for text in texts)
    assert "real (gray) and samples (blue)" in texts
    overview(real[:, :2], 8, units=scaling_of(50, 50, 2, ("$x$", "_y")))
    assert {"$x$", "_y", "samples (blue)", "0", "100"} <= texts_of(figures.pop())
    overview(real[:, :, None], 1, units=scaling_of(0, 1000, 1, ("_volts",)))
    assert {"_volts", "\N{MINUS SIGN}1000", "1000", "0", "2"} <= texts_of(figures.pop())
    overview(np.zeros([2, 9, 30]), 1, units=scaling_of(0, 1, 30))
    assert {"channel 0", "and 28 more"} <= texts_of(figures.pop())
    overview(real, 8)
    assert {"feature 0", "-1 to 1"} <= texts_of(figures.pop())


def test_a_typed_table_has_the_categories_and_dates_of_its_columns(figures):
    dates = pd.date_range("2020-01-01", periods=90).repeat(2)
    jobs = ["nurse", "clerk"] * 90
    table = Table.of(pd.DataFrame({"since": dates, "job": jobs}), "data")
    examples = table.encode(pd.DataFrame({"since": dates, "job": jobs}))
    overview(examples, 8, real=examples, units=table)
    expected = {"since", "2020-01-01 to 2020-03-30", "job", "2: clerk, nurse", "associations: real"}
    assert expected <= texts_of(figures.pop())
    overview(examples[:90], 8, units=table)  # the samples determine the ranges
    assert {"2020-01-01 to 2020-02-14", "2: clerk, nurse"} <= texts_of(figures.pop())


def test_images_are_drawn_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "wgan_gp.inference.plots", None)
    monkeypatch.delattr(inference, "plots")
    spec = importlib.util.find_spec("wgan_gp.inference.pictures")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for channels in (1, 3, 4):
        assert pictures.overview(np.zeros([4, 8, 8, channels]), 2).shape[:2] > (64, 64)
    with pytest.raises(ImportError):
        pictures.overview(np.zeros([4, 2]), 2)


def test_the_heatmap_shows_correlations():
    table = normal(500, 4) * [1, 1, 1, 0]
    table[:, 1] = 1e-200 * table[:, 0]
    table[:, 2] = -1e200 * table[:, 0]
    table[0] = np.nan
    np.testing.assert_allclose(plots.correlations(table)[0], [1, 1, -1, 0])
    axes = plots.plot_table(table, table, list("abcd")).axes
    (image,) = axes[4].images
    np.testing.assert_array_equal(image.get_array(), plots.correlations(table))
    assert image.get_clim() == (-1, 1)
    red, blue, white = (image.to_rgba(np.array([[value]]))[0, 0] for value in (1, -1, 0))
    assert red[0] > red[2] and blue[0] < blue[2] and white.min() > 0.95


def test_each_channel_has_a_gray_grid_of_its_own():
    batch = np.zeros([4, 16, 16, 4])
    batch[..., 2] = 1
    batch[0, ..., 3] = np.nan
    real = np.stack([np.zeros([16, 16, 4]), np.ones([16, 16, 4])])
    picture = overview(batch, 2, real=real)
    wide, tall = picture.shape[1] // 2, picture.shape[0] // 2
    grids = [
        picture[row * tall + 15 : (row + 1) * tall, column * wide : (column + 1) * wide]
        for row in (0, 1)
        for column in (0, 1)
    ]
    levels = [grid[3, 3].tolist() for grid in grids]
    assert levels == [[0] * 3, [0] * 3, [255] * 3, [0] * 3]
    assert grids[2][40, 40].tolist() == [255] * 3
    assert (picture[:12] < 100).any()  # the title
    named = overview(batch, 2, real=real, units=scaling_of(0, 1, 4, ("red",) * 4))
    assert named.shape == picture.shape and (named != picture).any()


def test_images_of_any_range_are_scaled_by_the_data():
    real = np.array([100.0, 300]).reshape(2, 1, 1, 1) * np.ones([1, 8, 8, 1])
    picture = overview(real + 50.0, 2, real=real, units=scaling_of(0, 1, 1))
    assert picture[0, 0, 0] == 64 and picture[0, 40, 0] == 255
    np.testing.assert_array_equal(overview(real / 300, 2), images.image_grid(real / 300, 2))


class FakeSampler:
    classes = 0
    conditions = None
    seed = 0

    def __init__(self, shape):
        self.shape = shape

    def sample(self, count, *arguments, **options):
        return normal(count, *self.shape).astype(np.float32)

    def noise(self, count, label=None, conditions=None):
        return np.zeros([count, 4], np.float32), np.zeros(count, np.int32)

    def generate(self, latents, labels):
        return self.sample(len(latents))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2,), (5,), (20, 2), (8, 6, 4), (8, 6, 1)])
def test_training_draws_samples_of_every_shape(shape):
    data = examples_of(normal(70, *shape).astype(np.float32))
    scaling = scaling_of(0, 1, shape[-1])
    drawn = make_sample_images(FakeSampler(shape), data, scaling)()
    assert set(drawn) == ({"samples"} if len(shape) == 1 else {"samples", "interpolation"})
    real = real_images(data, scaling)
    assert set(real) == (set() if len(shape) == 1 else {"real"})
    for picture in (*drawn.values(), *real.values()):
        assert picture.dtype == np.uint8 and Image.open(io.BytesIO(sample_files._png(picture)))


def test_formats_of_samples_that_are_not_pictures():
    settings = Config(sample_format="png")
    for shape in ((2,), (9, 2), (8, 8, 4)):
        with pytest.raises(UserError, match=r"^--sample_format=png .* — ") as caught:
            sample_files.check(settings, DataSpec(shape, 0))
        assert str(list(shape)) in str(caught.value)
    sample_files.check(settings, DataSpec((8, 6, 3), 0))


def test_mode_sample_draws_plots(tmp_path, figures):
    scaling = scaling_of(50, 50, 3, tuple("abc"))
    path = sample_files.write(
        Config(mode="sample", num_samples=20, output=f"{tmp_path}/plot.png"),
        types.SimpleNamespace(),
        FakeSampler((3,)),
        5,
        DataSpec((3,), 0, scaling=scaling),
        None,
    )
    assert {"a", "b", "c", "correlations: samples"} <= texts_of(figures.pop())
    assert Image.open(path).size[0] > 300
