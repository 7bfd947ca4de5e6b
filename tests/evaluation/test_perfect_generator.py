"""A perfect generator, whose samples are new data in the form of training, is at every floor."""

import numpy as np
import pytest
import tensorflow as tf
import tifffile

from tests.helpers.runs import find_data, strategy_over
from wgan_gp.config import Config
from wgan_gp.data.datasets import find_dataset
from wgan_gp.evaluation import closest, evaluator, extractors, metrics
from wgan_gp.evaluation.examples import ArrayCache, Examples

COUNT = 200


def draw(shape, top, seed):
    """Returns strokes of many levels on black, as in pictures of digits, `[COUNT, *shape]`."""
    random = np.random.default_rng(seed)
    drawn = np.zeros([COUNT, *shape], np.uint8 if top == 255 else np.uint16)
    for example in drawn:
        begins = random.integers(0, 3, max(1, len(shape) - 1))
        place = tuple(slice(begin, begin + 3) for begin in begins)
        example[place] = random.integers(top // 3, top + 1, example[place].shape)
    drawn[0], drawn[1] = 0, top  # all draws have one range
    return drawn


def of_python(levels, settings, folder):
    return find_dataset(Config(dataset="python", **settings), function=lambda: levels)


def of_floats(levels, settings, folder):
    images = (levels / np.float32(127.5) - 1).astype(np.float32)
    return of_python(images, settings, folder)


def of_array(levels, settings, folder):
    np.save(f"{folder}/x.npy", levels)
    return find_data(Config(dataset="array", data_dir=f"{folder}/x.npy", **settings))


def of_folder(levels, settings, folder):
    for index, image in enumerate(levels):
        if levels.dtype == np.uint16 and image.shape[-1] == 3:  # PNG files of it are refused
            tifffile.imwrite(folder / f"{index:03d}.tiff", image, photometric="rgb")
        else:
            (folder / f"{index:03d}.png").write_bytes(tf.io.encode_png(image).numpy())
    channels = levels.shape[-1]
    flags = {"dataset": "image_folder", "data_dir": str(folder), "image_channels": channels}
    return find_data(Config(**flags, **settings))


KINDS = {
    "gray": (of_folder, (6, 6, 1), 255),
    "color": (of_folder, (6, 6, 3), 255),
    "gray of 16 bits": (of_folder, (6, 6, 1), 65535),
    "color of 16 bits": (of_folder, (6, 6, 3), 65535),
    "pictures of Python": (of_python, (6, 6, 1), 255),
    "pictures of real numbers": (of_floats, (6, 6, 1), 255),
    "volumes of Python": (of_python, (5, 5, 5, 1), 255),
    "array of pictures": (of_array, (6, 6, 1), 255),
    "array of volumes": (of_array, (5, 5, 5, 1), 255),
    "array of signals": (of_array, (6, 2), 255),
    "array of features": (of_array, (6,), 255),
}


class PerfectSampler:
    """Returns examples in the form in which a critic is trained with them."""

    classes, conditions = 0, None

    def __init__(self, dataset):
        self._samples = dataset.open(batch_size=COUNT).read(COUNT)[0].numpy()

    def sample(self, count):
        return self._samples[:count]


def evaluate(kind, folder, dequantization):
    """Returns the metrics of a perfect generator, the FID of levels, and how close copies are."""
    find, shape, top = KINDS[kind]
    datasets = []
    for name, seed in (("real", 0), ("new", 1)):
        path = folder / f"{name}-{dequantization}"
        path.mkdir()
        settings = {"dequantization": dequantization, "data_cache": "off"}
        datasets.append(find(draw(shape, top, seed), settings, path))
    strategy, sampler = strategy_over(1), PerfectSampler(datasets[1])
    examples = Examples(datasets[0], strategy, batch_size=COUNT)
    name = "none" if len(shape) > 2 else None
    settings = Config(evaluate_samples=COUNT, feature_extractor=name)
    values = evaluator.make_evaluator(settings, strategy, sampler, examples, None).evaluate()
    if len(shape) != 3:
        return values, None, None

    def levels(images):
        return tf.reshape(images, [COUNT, -1]), None

    extractor, cache = extractors.Extractor("levels", "", levels), ArrayCache(None)
    made = evaluator.ImageEvaluator(COUNT, strategy, sampler, examples, cache, extractor)
    copies = Examples(datasets[1], strategy, batch_size=COUNT)
    text, _ = closest.compare(sampler.sample(COUNT), copies, 2)
    return values, made.evaluate()["evaluation/fid"], text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_perfect_generator_is_at_the_floor_of_every_metric(kind, tmp_path):
    """New examples in the form of training are evaluated like the integers themselves."""
    values, fid, text = evaluate(kind, tmp_path, dequantization=True)
    plain, *_ = evaluate(kind, tmp_path, dequantization=False)
    assert values == pytest.approx(plain, rel=1e-3, abs=1e-4)
    assert abs(values["evaluation/two_sample_accuracy"] - 0.5) < 0.1
    assert values["evaluation/closest_distance_ratio"] == pytest.approx(1, abs=0.1)
    for name in (each for each in values if f"{each}_floor" in values):
        assert values[name] < 1.3 * values[f"{name}_floor"] + 0.05, name
    if fid is not None:
        _, shape, top = KINDS[kind]
        is_scaled = "array" in kind or kind == "pictures of Python"
        scale = (top + 1) / 2 if is_scaled else top / 2  # of the normalized levels
        new, real = (draw(shape, top, seed).reshape(COUNT, -1) / scale for seed in (1, 0))
        expected = metrics.frechet_distance(*map(metrics.Moments.from_features, (new, real)))
        assert fid == pytest.approx(expected, rel=1e-3)
        assert "smallest 0.0, median 0.0" in text
