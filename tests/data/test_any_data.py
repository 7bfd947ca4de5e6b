"""Any array: data that can be learned trains and is restored, any other is an error in one line."""

import dataclasses
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.runs import held_in, open_run, without_tracing
from wgan_gp.app.build import make_step
from wgan_gp.app.start_checks import check_critic
from wgan_gp.config import Config
from wgan_gp.errors import UserError

# The same examples every time, and no clock.
repeatable = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64", ">f4", ">i2"]
COUNT = 12  # examples


@dataclasses.dataclass(frozen=True)
class Case:
    """An array, with or without labels, and the flags of a run."""

    examples: np.ndarray
    labels: np.ndarray | None
    flags: dict


@st.composite
def arrays(draw, shapes):
    """Examples of any dtype and layout: usual, huge or tiny, with or without defects."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(shapes)
    random = np.random.default_rng(draw(st.integers(0, 9)))
    values = random.normal(size=(COUNT, *shape))
    if dtype.kind == "f":
        scale = draw(st.sampled_from([1, 1e-30, 1e4, 1e30]))
        with np.errstate(over="ignore"):
            examples = (values * min(scale, np.finfo(dtype).max / 8)).astype(dtype)
        defect = draw(st.sampled_from([None, None, None, np.nan, np.inf, -np.inf]))
        if defect is not None:
            examples[random.integers(COUNT)].flat[0] = defect
    elif dtype.kind == "b":
        examples = values > 0
    else:
        limits = np.iinfo(dtype)
        span = draw(st.sampled_from([2, 100, int(limits.max) - 1]))
        low = max(int(limits.min), -(span // 2))
        high = min(int(limits.max), low + span)
        examples = random.integers(low, high, values.shape, dtype.newbyteorder("="), endpoint=True)
        examples = examples.astype(dtype)
    if draw(st.integers(0, 9)) == 0:
        examples[..., 0] = examples.flat[0]  # a constant feature
    return np.asfortranarray(examples) if draw(st.booleans()) else examples


@st.composite
def cases(draw, models, sizes, ranks=(1, 2, 3)):
    size = st.sampled_from(sizes)
    channels = st.sampled_from([1, 2, 3, 4, 17])
    shapes = {
        1: st.tuples(st.sampled_from([1, 2, 5, 40])),
        2: st.tuples(size, channels),
        3: st.tuples(size, size, channels),
    }
    shapes = st.one_of(*(shapes[rank] for rank in ranks))
    labels = {
        "none": None,
        "classes": np.arange(COUNT) % 3,
        "number": np.linspace(-3, 5, COUNT),
        "vectors": np.arange(2.0 * COUNT).reshape(COUNT, 2) ** 2,
        "bad": np.full([COUNT], np.nan),
    }
    kind = draw(st.sampled_from([*labels][:4] * 5 + ["bad"]))
    fitting = ["projection", "concatenation"] if labels[kind] is not None else ["none"]
    conditionings = ["none", *fitting * 3, "concatenation", "acgan"]
    flags = {
        "model": draw(st.sampled_from(models)),
        "scaling": draw(st.sampled_from(["minmax", "standard", "whiten", "none"])),
        "invalid": draw(st.sampled_from(["refuse", "drop"])),
        "memory": draw(st.sampled_from(["device", "on", "off"])),
        "conditioning": draw(st.sampled_from(conditionings)),
        "dequantization": draw(st.booleans()),
        "generator_normalization": draw(st.sampled_from(["batch", "none"])),
        "generator_ema_decay": draw(st.sampled_from([0.0, 0.5])),
    }
    return Case(draw(arrays(shapes)), labels[kind], flags)


@pytest.fixture(scope="module", autouse=True)
def _eager():
    with without_tracing():
        yield


def check(case):
    """Trains two iterations and restores the networks, or returns the text of the error."""
    flags = dict(case.flags)
    with tempfile.TemporaryDirectory() as folder, held_in(flags.pop("memory", "device")):
        path, extra = f"{folder}/data.npz", {}
        if case.labels is not None:
            extra["labels" if case.labels.dtype.kind == "i" else "conditions"] = case.labels
        np.savez(path, examples=case.examples, **extra)
        config = Config(
            dataset="array",
            data_dir=path,
            model_dir=f"{folder}/run",
            model_width=4,
            latent_size=3,
            batch_size=4,
            n_critic=1,
            **flags,
        )
        try:
            run = open_run(config)
            check_critic(run)
        except UserError as error:
            text = str(error)
            assert " — " in text and "\n" not in text and len(text) < 400, text
            return text
        train(run, iterations=2)
        samples = in_units(run, run.sampler.sample(5))
        check_samples(samples, case)
        run.checkpoints.save()
        again = open_run(config)
        again.checkpoints.restore_latest()
        np.testing.assert_array_equal(samples, in_units(again, again.sampler.sample(5)))
        return None


def train(run, iterations):
    """Trains without tracing a loop."""
    step = make_step(run.config, run.state, run.dataset.spec, run.library)
    first, labels = run.data.read(4 * iterations)
    for number in range(iterations):
        part = slice(4 * number, 4 * number + 4)
        index = tf.constant(number, tf.int64)
        terms = step.critic_step(first[part], labels[part], index)
        assert np.isfinite([float(value) for value in terms.values()]).all()
        step.generator_step(index)


def in_units(run, samples):
    scaling = run.dataset.spec.scaling
    return samples if scaling is None else scaling.restore(samples)


def check_samples(samples, case):
    assert samples.shape == (5, *case.examples.shape[1:])
    assert np.isfinite(samples).all()
    if samples.dtype.kind in "iub":
        assert samples.dtype == case.examples.dtype.newbyteorder("=")
    if case.flags["scaling"] == "minmax" and samples.dtype.kind in "iu":
        assert samples.min() >= case.examples.min() and samples.max() <= case.examples.max()


def check_cases(count, *, flags=None, **choices):
    """Checks cases with additional flags, and returns the networks of those that train."""
    trained = set()

    @settings(repeatable, max_examples=count)
    @given(case=cases(**choices))
    def check_one(case):
        if check(dataclasses.replace(case, flags={**case.flags, **(flags or {})})) is None:
            trained.add(case.flags["model"])

    check_one()
    return trained


@pytest.mark.slow
def test_any_array_trains_any_network_or_is_one_line():
    models = [None, "mlp", "dcgan", "conv1d", "resnet"]
    trained = check_cases(40, models=models, sizes=[1, 2, 3, 7, 8, 16, 20, 32])
    assert trained >= {None, "mlp", "dcgan", "conv1d"}


@pytest.mark.slow
def test_any_images_train_networks_for_images_or_are_one_line():
    """Hardly any array of the test above has a size of these networks."""
    models = ["r3gan", "resnet"]
    assert check_cases(8, flags={"model_depth": 1}, models=models, sizes=[32], ranks=[3]) == set(
        models
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-30, 1e7])
def test_values_that_networks_cannot_learn_are_one_line(size):
    examples = size * np.random.default_rng(0).normal(size=(COUNT, 3))
    flags = {"model": "mlp", "scaling": "none"}
    assert "use --scaling=minmax" in check(Case(examples, None, flags))
    assert check(Case(examples, None, {**flags, "scaling": "standard"})) is None
