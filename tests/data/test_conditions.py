"""Continuous conditions in the place of labels."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import wgan_gp
from tests.helpers.runs import (
    LIBRARY,
    TINY,
    call_main,
    device_loops,
    find_data,
    held_in,
    reread,
    without_tracing,
)
from wgan_gp.app import build, resolve, saved_run
from wgan_gp.config import Config
from wgan_gp.data.conditions import Conditions
from wgan_gp.data.data_record import use_record
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.inference import sample_files
from wgan_gp.inference.sampling import transitions
from wgan_gp.pjrt.slice_strategy import SliceStrategy
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.runtime.devices import Devices

CONDITIONS = (1000 + 50 * np.random.default_rng(0).normal(size=(64, 2))).astype(np.float32)
POINTS = np.stack([CONDITIONS[:, 0] / 500, CONDITIONS[:, 1] / 900], axis=1).astype(np.float32)
SETTINGS = {
    **TINY,
    "dataset": "array",
    "conditioning": "concatenation",
    "train_steps": 2,
    "n_critic": 1,
    "sample_interval": 0,
    "learning_rate_schedule": "constant",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("data") / "points.npz")
    np.savez(path, examples=POINTS, conditions=CONDITIONS)
    return path


def train(folder, data=None, *, traced=False, on_device=False, **settings):
    settings = {**SETTINGS, **settings}
    if data is not None:
        settings.pop("dataset")
    config = Config(model_dir=str(folder), **settings)
    with device_loops(on_device), contextlib.nullcontext() if traced else without_tracing():
        return wgan_gp.train(config, data=data, writers=[])


@pytest.fixture(scope="module")
def trained(file, tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"), data_dir=file)


def weights(result):
    networks = result.run.state.generator, result.run.state.critic
    return [np.array(weight) for network in networks for weight in network.get_weights()]


# The distribution of conditions


def test_conditions_are_standardized_and_restored():
    conditions = Conditions.of(CONDITIONS)
    table = conditions.table
    np.testing.assert_allclose(table.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(table.std(0), 1, atol=1e-4)
    np.testing.assert_allclose(conditions.restore(table), conditions.examples, rtol=1e-5)
    np.testing.assert_array_equal(conditions.standardize_tensor(conditions.examples), table)
    assert sorted(conditions.examples[:, 0]) == sorted(CONDITIONS[:, 0])
    assert Conditions.of(np.ones([3, 1])).deviation == 1  # a constant condition


def test_data_json_contains_a_bounded_sample_of_the_conditions():
    conditions = Conditions.of(np.linspace(0, 1, 5000, dtype=np.float32)[:, None])
    recorded = reread(conditions.recorded())
    assert recorded.examples.shape == (1024, 1)
    np.testing.assert_array_equal(recorded.table, conditions.table[:1024])
    assert abs(recorded.examples[:64].mean() - 0.5) < 0.1  # a random order
    spread = conditions.spread(5)[:, 0]
    np.testing.assert_allclose(spread, [0, 0.25, 0.5, 0.75, 1], atol=1e-3)
    assert len(Conditions.of(np.zeros([100, 2048])).recorded().examples) == 4


@pytest.mark.parametrize(
    ("size", "given", "expected"),
    [(1, [1, 2, 3], (3, 1)), (1, 5.0, (1, 1)), (2, [1, 2], (1, 2)), (2, [[1, 2]] * 3, (3, 2))],
)
def test_given_conditions_may_be_one_or_several(size, given, expected):
    assert Conditions.of(np.zeros([4, size])).checked(given, "x").shape == expected


@pytest.mark.parametrize("given", [[1.0], [[1, 2, 3]], [], [[np.nan, 1]], ["a", "b"], [[[1, 2]]]])
def test_bad_given_conditions_are_one_line(given):
    with pytest.raises(UserError, match=r"^--x "):
        Conditions.of(np.zeros([4, 2])).checked(given, "--x")


def test_conditions_beyond_the_data_cause_a_warning_and_very_far_ones_an_error(caplog):
    data = np.random.default_rng(0).normal(0, 1, [1000, 2])
    data[0, 1] = 15
    conditions = Conditions.of(data)
    for given in ([4, -4], [0, 15], [0, 14.9]):
        conditions.checked(given, "--x")
    assert not caplog.text
    conditions.checked([[0, 1], [11, 1]], "--x")
    assert "--x: more than 10 standard deviations from the mean" in caplog.text
    assert "in condition 0 — are" in caplog.text
    with pytest.raises(UserError, match="too far from those of the data"):
        conditions.checked([0, -1.2e6], "--x")


# Data


def test_arrays_have_conditions_in_memory_and_streamed(file):
    settings = {"dataset": "array", "data_dir": file, "conditioning": "projection", "batch_size": 8}
    kept = find_data(Config(**settings)).open(batch_size=8)
    with held_in("off"):
        streamed = find_data(Config(**settings)).open(batch_size=8)
    for data in (kept, streamed):
        examples, conditions = (part.numpy() for part in data.read(64))
        low, high = POINTS.min(0), POINTS.max(0)
        own = (examples + 1) / 2 * (high - low) + low
        expected = (own * [500, 900] - CONDITIONS.mean(0)) / CONDITIONS.std(0)
        np.testing.assert_allclose(conditions, expected, atol=1e-3)
        assert conditions.dtype == np.float32 and data.format.condition_size == 2
    np.testing.assert_array_equal(kept.read(8)[1], streamed.read(8)[1].numpy())


@pytest.mark.slow
@held_in("off")
def test_streamed_datasets_of_the_user_have_conditions(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices((POINTS, CONDITIONS))
    result = train(tmp_path, data=dataset, train_steps=1)
    data = result.run.data
    examples, conditions = next(data.fetch(data.places(0, 4)).as_numpy_iterator())
    np.testing.assert_array_equal(examples, POINTS[:4])
    np.testing.assert_allclose(
        conditions, Conditions.of(CONDITIONS).standardize(CONDITIONS[:4]), atol=1e-4
    )


def test_held_out_conditions_are_standardized_like_the_training_data(file, tmp_path):
    other = str(tmp_path / "other.npz")
    np.savez(other, examples=POINTS, conditions=CONDITIONS + 50)
    settings = {"dataset": "array", "data_dir": file, "conditioning": "projection"}
    dataset = find_data(Config(test_data_dir=other, **settings))
    before = dataset.open(batch_size=1).read(64)[1].numpy()
    after = dataset.open_held_out().read(64)[1].numpy()
    np.testing.assert_allclose(after - before, [50 / CONDITIONS.std(0)] * 64, rtol=1e-3)
    np.savez(other, examples=POINTS)
    with pytest.raises(UserError, match=r"--test_data_dir=.*no conditions"):
        find_data(Config(test_data_dir=other, **settings)).open_held_out()


@pytest.mark.slow
def test_a_continued_run_keeps_its_standardization(trained, tmp_path):
    path = str(tmp_path / "other.npz")
    np.savez(path, examples=POINTS, conditions=3 * CONDITIONS)
    dataset = find_data(Config(dataset="array", data_dir=path, conditioning="projection"))
    use_record(dataset, RunDirectory(trained.run.directory.path))
    np.testing.assert_array_equal(dataset.spec.conditions.mean, Conditions.of(CONDITIONS).mean)
    assert dataset.spec.conditions.examples.max() > 2 * CONDITIONS.max()


def test_another_number_of_conditions_is_refused_on_a_resume(trained, tmp_path):
    path = str(tmp_path / "other.npz")
    np.savez(path, examples=POINTS, conditions=CONDITIONS[:, :1])
    with pytest.raises(
        UserError, match="conditions of 1 numbers, but those of the training data have 2"
    ):
        train(trained.run.directory.path, data_dir=path, train_steps=3)


@pytest.mark.parametrize(
    ("conditions", "settings", "message"),
    [
        (np.full([64], np.nan), {}, "NaN or infinity in the conditions of 64"),
        (np.zeros([63]), {}, "for 64 examples"),
        (CONDITIONS, {"conditioning": "acgan"}, "--conditioning=projection"),
    ],
)
def test_bad_conditions_give_one_line(tmp_path, conditions, settings, message):
    with pytest.raises(UserError, match=message):
        train(tmp_path, data=(POINTS, conditions), **settings)


@pytest.mark.slow
def test_unconditional_runs_ignore_conditions(file, tmp_path):
    result = train(tmp_path, data_dir=file, conditioning="none", train_steps=1)
    assert result.run.dataset.spec.condition_size == 0
    with pytest.raises(UserError, match="take no conditions"):
        result.sample(1, conditions=[1, 2])


# Precision

SECONDS = 1.7e9 + np.random.default_rng(0).uniform(0, 50, (64, 1))


def standardized(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


def write_conditions(path, conditions):
    np.savez(path, examples=POINTS, conditions=conditions)
    return str(path)


@pytest.mark.parametrize("source", ["npz", "arrays", "stream"])
@held_in("off")
def test_conditions_with_a_large_offset_keep_their_precision(tmp_path, capsys, source):
    """These are seconds of a clock, of which float32 has one number in 128."""
    flags = {"conditioning": "projection", "batch_size": 8}
    if source == "npz":
        path = write_conditions(tmp_path / f"x.{source}", SECONDS)
        columns = {"condition_columns": "label"} if source == "csv" else {}
        dataset = find_data(Config(dataset="array", data_dir=path, **columns, **flags))
    else:
        pair = (POINTS, SECONDS)
        data = pair if source == "arrays" else tf.data.Dataset.from_tensor_slices(pair)
        dataset = find_dataset(Config(**flags), conditioning="projection", function=lambda: data)
    opened = dataset.open(batch_size=8)
    if source == "stream":
        _, found = next(opened.fetch(opened.places(0, 64)).as_numpy_iterator())
    else:
        found = opened.read(64)[1].numpy()
    np.testing.assert_allclose(np.sort(found, 0), np.sort(standardized(SECONDS), 0), atol=1e-6)
    recorded = reread(dataset.spec.conditions)
    np.testing.assert_array_equal(np.sort(recorded.examples, 0), np.sort(SECONDS, 0))
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f8", "int64", "uint32", "bool"])
def test_conditions_of_any_dtype_are_standardized_in_float64(dtype):
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 1000, (500, 2))
    values = values.astype(dtype) if dtype == "bool" else (values + 1000).astype(dtype)
    exact = values.astype(np.float64)
    found = Conditions.of(values)
    np.testing.assert_allclose(found.standardize(values), standardized(exact), atol=1e-6)
    np.testing.assert_array_equal(found.standardize_tensor(exact), found.standardize(values))


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (SECONDS.astype(np.float32), "is constant in condition 0, which has no effect"),
        (
            np.float32(1.7e9) + 128 * np.arange(64, dtype=np.float32),
            "float32 numbers are 128 apart",
        ),
        (np.full([64], 0.1), "is constant in condition 0, which has no effect"),
        (1e16 + 2 * np.arange(64.0), "float64 numbers are 2 apart"),
        (SECONDS, ""),
        (np.arange(64.0) % 2, ""),
    ],
)
@pytest.mark.parametrize("conditioning", ["projection", "none"])
def test_conditions_that_networks_cannot_use_are_named(
    tmp_path, capsys, conditions, message, conditioning
):
    np.savez(tmp_path / "x.npz", examples=POINTS, conditions=conditions)
    find_data(Config(dataset="array", data_dir=str(tmp_path / "x.npz"), conditioning=conditioning))
    shown = capsys.readouterr().err
    if message and conditioning != "none":
        assert shown.startswith(f"warning: --data_dir={tmp_path}/x.npz is ") and message in shown
    else:
        assert not shown


def test_a_constant_condition_is_standardized_to_0():
    """The mean of equal numbers is rounded, so that their deviation would not be 0."""
    values = np.full([1000, 1], 0.1)
    assert values.std() > 0
    conditions = Conditions.of(values)
    assert conditions.deviation == 1 and not conditions.table.any()


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_conditions_that_cannot_be_standardized_are_one_line(tmp_path, size):
    exact = size * CONDITIONS.astype(np.float64)
    for conditions in (exact, exact[:, 0]):
        with pytest.raises(UserError, match=r"data has values in condition 0.* too large, or too"):
            train(tmp_path, data=(POINTS, conditions))
    with pytest.raises(UserError, match=r"--x gives conditions of up to 1e\+300 .* too far from"):
        Conditions.of(CONDITIONS).checked([1e300, 1], "--x")


def test_examples_that_cannot_be_scaled_are_not_called_nan(tmp_path):
    with pytest.raises(UserError, match=r"data has values in feature 0, .* that are too large"):
        train(tmp_path, data=1e300 * POINTS.astype(float))


@pytest.mark.slow
def test_a_run_with_conditions_of_a_large_offset(tmp_path, capsys):
    """Samples, archives, scores and exports distinguish seconds of a clock."""
    result = train(tmp_path / "run", data_dir=write_conditions(tmp_path / "x.npz", SECONDS))
    given = 1.7e9 + np.arange(5) / 8
    same = np.stack([result.sample(1, conditions=[value])[0] for value in given])
    assert len(np.unique(same[:, 0])) == 5
    path, run = str(tmp_path / "s.npz"), f"--model_dir={tmp_path}/run"
    flags = ["--sample_format=npz", "--num_samples=5", f"--output={path}"]
    text = ";".join(map(repr, given.tolist()))
    assert call_main("--mode=sample", run, *flags, f"--sample_conditions={text}") == 0
    with np.load(path) as archive:
        np.testing.assert_array_equal(archive["conditions"], given[:, None])
        samples, latents = archive["samples"], archive["latents"]
    signatures = tf.saved_model.load(result.export(str(tmp_path / "e")) + "/saved_model").signatures
    values = tf.constant(given[:, None])
    assert values.dtype == tf.float64
    found = signatures["latents"](latents=tf.constant(latents), conditions=values)["samples"]
    np.testing.assert_allclose(found, samples, atol=1e-5)
    seed = tf.constant(result.run.sampler.seed, tf.int64)
    np.testing.assert_allclose(
        signatures["seed"](seed=seed, conditions=values)["samples"], samples, atol=1e-5
    )
    examples = tf.constant(np.repeat(POINTS[:1], 5, axis=0))
    scores = signatures["critic"](examples=examples, conditions=values)["scores"].numpy()
    assert len(np.unique(scores)) == 5
    found = result.score(examples.numpy(), conditions=given)
    np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-5)
    capsys.readouterr()
    result.sample(1, conditions=np.float32([1.7e9]))
    assert "float32 numbers are 128 apart" in capsys.readouterr().err


def test_the_generator_draws_conditions_of_the_data():
    config = Config(**{**SETTINGS, "dataset": "swiss_roll"})
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    step = build.ReplicaStep(None, None, None, None, config, 8, conditions=table)
    position = tf.constant([0.0, 0.3, 0.34, 0.66, 0.67, np.nextafter(1, 0, dtype=np.float32)])
    drawn = step._labels_at(position).numpy()
    np.testing.assert_array_equal(drawn, table[[0, 0, 1, 1, 2, 2]])


@pytest.mark.slow
def test_a_resumed_run_streams_the_conditions_of_an_uninterrupted_one(file, tmp_path, trained):
    """The uninterrupted run has them in memory."""
    choices = {"steps_per_loop": 1, "data_dir": file}
    with held_in("off"):
        train(tmp_path, train_steps=1, **choices)
        assert_same_weights(trained, train(tmp_path, **choices))


@pytest.mark.slow
def test_resumed_training_of_both_loops_is_exact(file, tmp_path):
    """The device loop gets the conditions with each loop, or has them in memory ("device").

    Both loops train the same weights, so that one uninterrupted run is enough.
    """
    choices = {"traced": True, "steps_per_loop": 1, "data_dir": file}
    straight = train(tmp_path / "straight", **choices)
    for cache, first in (("on", False), ("device", True)):
        with held_in(cache):
            train(tmp_path / cache, on_device=first, train_steps=1, **choices)
            resumed = train(tmp_path / cache, on_device=True, **choices)
        assert_same_weights(straight, resumed)


def assert_same_weights(one, other):
    for mine, expected in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.slow
def test_replicas_and_loops_do_not_change_training(file, tmp_path):
    one, *others = (
        train(
            tmp_path / f"{replicas}{on_device}",
            traced=True,
            data_dir=file,
            cpu_replicas=replicas,
            on_device=on_device,
            conditioning="projection",
            generator_normalization="none",
        )
        for replicas, on_device in ((1, False), (1, True), (2, False))
    )
    for other in others:
        # Adam turns rounding errors of gradients near 0 into steps, so a few weights may differ.
        far = [np.abs(a - b) > 2e-5 for a, b in zip(weights(one), weights(other), strict=True)]
        assert np.concatenate([each.reshape(-1) for each in far]).mean() < 0.1


def test_the_program_of_a_tpu_has_conditions(file):
    config = Config(**{**SETTINGS, "data_dir": file, "conditioning": "projection"})
    config, dataset = resolve.resolve(config, LIBRARY.models)
    devices = Devices(SliceStrategy(2), None, "TPU")
    state = build.make_state(config, devices, dataset.spec, LIBRARY.models)
    step = build.make_step(config, state, dataset.spec, LIBRARY)
    assert step.conditions.shape == (64, 2)
    unread = dataset.open_unread(batch_size=16)
    labels = unread.stored[1]
    assert labels.shape == (64, 2) and labels.dtype == tf.float32


@pytest.mark.slow
def test_the_mean_of_samples_is_linear_in_the_condition(tmp_path):
    random = np.random.default_rng(0)
    energy = random.uniform(1, 10, (4096, 1)).astype(np.float32)
    points = (0.3 * random.normal(size=(4096, 2)) + energy * [1, -0.5]).astype(np.float32)
    result = train(
        tmp_path,
        data=(points, energy),
        traced=True,
        model_width=64,
        model_depth=3,
        batch_size=128,
        n_critic=5,
        train_steps=600,
        steps_per_loop=100,
        learning_rate_schedule="linear",
        critic_learning_rate=1e-3,
        generator_learning_rate=1e-3,
    )
    given = np.array([2.0, 4, 6, 8])
    means = np.array([result.sample(512, conditions=[value]).mean(axis=0) for value in given])
    slopes, offsets = np.polyfit(given, means, 1)
    np.testing.assert_allclose(slopes, [1, -0.5], rtol=0.1)
    np.testing.assert_allclose(means, given[:, None] * slopes + offsets, atol=0.5)


# Samples


def test_samples_follow_conditions_in_the_units_of_the_data(trained):
    low, high = (trained.sample(8, conditions=[value, 1000]) for value in (900, 1100))
    assert np.abs(low - high).max() > 1e-4
    each = trained.sample(8, conditions=[[900, 1000], [1100, 1000]])
    np.testing.assert_allclose(each[::2], low[::2], atol=1e-6)
    np.testing.assert_allclose(each[1::2], high[1::2], atol=1e-6)


def test_restored_runs_sample_the_same_conditions(trained, tmp_path):
    folder = trained.run.directory.path
    saved = saved_run.find_run(folder, {}, trained.run.library)
    assert saved.spec.condition_size == 2
    for output, given in {
        "all.npz": "",
        "given.npz": "--sample_conditions=900,1000;1100,1000",
    }.items():
        path = str(tmp_path / output)
        arguments = ["--sample_format=npz", "--num_samples=8", f"--output={path}"]
        arguments += [given] if given else []
        assert call_main("--mode=sample", f"--model_dir={folder}", *arguments) == 0
        with np.load(path) as archive:
            known = archive["conditions"]
            np.testing.assert_allclose(
                archive["samples"], trained.sample(8, conditions=known), atol=1e-5
            )
        if output == "all.npz":
            own = {tuple(row) for row in np.round(CONDITIONS, 1).tolist()}
            assert {tuple(row) for row in np.round(known, 1).tolist()} <= own
            np.testing.assert_allclose(trained.sample(8), trained.sample(8, conditions=known))
        else:
            np.testing.assert_allclose(known, [[900, 1000], [1100, 1000]] * 4, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sample_format", ["grid", "interpolation"])
def test_pictures_of_conditions(trained, tmp_path, sample_format):
    np.save(tmp_path / "given.npy", CONDITIONS[:3])
    np.savetxt(tmp_path / "given.csv", CONDITIONS[:3], delimiter=",")
    contents = []
    for given in (None, "900,1000", tmp_path / "given.npy", tmp_path / "given.csv"):
        path = tmp_path / f"{len(contents)}.png"
        arguments = [] if given is None else [f"--sample_conditions={given}"]
        arguments += [f"--sample_format={sample_format}", "--num_samples=16", f"--output={path}"]
        assert (
            call_main("--mode=sample", f"--model_dir={trained.run.directory.path}", *arguments) == 0
        )
        contents.append(path.read_bytes())
    assert contents[2] == contents[3]
    assert len(set(contents)) == 3


def test_transitions_keep_the_latents_of_a_row(trained):
    sampler = trained.run.sampler
    samples = transitions(sampler, 2, 5, np.float32([[900, 1000], [1100, 1000]]))
    samples = samples.reshape(2, 5, -1)
    middle = sampler.sample(2, conditions=[1000, 1000])
    np.testing.assert_allclose(samples[:, 2], middle, atol=1e-5)
    np.testing.assert_allclose(samples[:, 4], sampler.sample(2, conditions=[1100, 1000]), atol=1e-5)


@pytest.mark.parametrize(
    "text",
    ["1", "1,2,3", "a,b", "", "1,2;3", "nan,1", "1e30,2", "missing.npy", "missing.csv", "1;;2"],
)
def test_bad_sample_conditions_are_one_line(trained, capsys, text):
    folder = trained.run.directory.path
    assert call_main("--mode=sample", f"--model_dir={folder}", f"--sample_conditions={text}") == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1 and errors[0].startswith("error: --sample_conditions=")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--sample_conditions=1,2,3", "of shape [1, 3], but a condition of this run has 2 numbers"),
    ],
)
def test_errors_name_the_conditions_of_the_run(trained, capsys, flag, message):
    assert call_main("--mode=sample", f"--model_dir={trained.run.directory.path}", flag) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_sample_conditions_need_a_run_with_conditions(tmp_path, capsys):
    train(tmp_path, data=POINTS, conditioning="none", train_steps=1)
    assert call_main("--mode=sample", f"--model_dir={tmp_path}", "--sample_conditions=1") == 2
    assert "take no conditions" in capsys.readouterr().err


# Other modes


def test_export_takes_conditions_in_the_units_of_the_data(trained, tmp_path):
    folder = trained.export(str(tmp_path / "export"))
    loaded = tf.saved_model.load(folder + "/saved_model").signatures
    values = tf.constant(CONDITIONS[:4])
    seed = tf.constant(trained.run.sampler.seed, tf.int64)
    samples = loaded["seed"](seed=seed, conditions=values)["samples"]
    np.testing.assert_allclose(
        samples, trained.sample(4, conditions=CONDITIONS[:4]), rtol=1e-4, atol=1e-4
    )
    latents, _ = trained.run.sampler.noise(4)
    again = loaded["latents"](latents=tf.constant(latents), conditions=values)["samples"]
    np.testing.assert_allclose(samples, again, atol=1e-5)
    scores = loaded["critic"](examples=tf.constant(POINTS[:4]), conditions=values)["scores"]
    others = loaded["critic"](examples=tf.constant(POINTS[:4]), conditions=values + 100)["scores"]
    assert scores.shape == (4,) and np.abs(scores - others).max() > 1e-5


def test_scores_depend_on_conditions(trained):
    given, other = (
        trained.score(POINTS[:6], conditions=CONDITIONS[:6] + offset) for offset in (0, 100)
    )
    assert given.shape == (6,) and np.abs(given - other).max() > 1e-4
    with pytest.raises(UserError, match="a condition of this run has 2 numbers"):
        trained.score(POINTS[:6], conditions=CONDITIONS[:6, :1])


def test_evaluations_draw_samples_for_the_conditions_of_the_data(trained):
    values = trained.evaluate()
    assert {"evaluation/synthetic_trained_r2", "evaluation/real_trained_r2"} <= set(values)


@pytest.mark.slow
def test_own_networks_get_the_size_of_a_condition(tmp_path):
    def joined(*sizes):
        inputs = [tf.keras.Input([size]) for size in sizes]
        return inputs, tf.keras.layers.Concatenate()(inputs)

    def generator(design):
        inputs, features = joined(design.latent_size, design.condition_size)
        return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(features))

    def critic(design):
        inputs, features = joined(2, design.condition_size)
        return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(features))

    settings = {"batch_size": 16, "n_critic": 1, "train_steps": 1, "sample_interval": 0}
    config = Config(model_dir=str(tmp_path), conditioning="concatenation", **settings)
    result = wgan_gp.train(
        config, generator=generator, critic=critic, data=(POINTS, CONDITIONS), writers=[]
    )
    assert result.run.state.critic.keras_model.inputs[1].shape[1] == 2
    assert result.sample(3, conditions=[1, 2]).shape == (3, 2)


def test_an_empty_file_of_conditions_is_one_line(tmp_path):
    (tmp_path / "c.npy").write_bytes(b"")
    spec = DataSpec((2,), 0, conditions=Conditions.of(CONDITIONS))
    settings = Config(sample_conditions=f"{tmp_path}/c.npy")
    with pytest.raises(UserError, match=r"c.npy cannot be read \(.*give numbers separated"):
        sample_files.read_conditions(settings, spec)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a;b\n0,5;1,5\n2;3,5\n", [[0.5, 1.5], [2, 3.5]]),
        ("0,1\n1,0\n", [[0, 1], [1, 0]]),
        ("0.5\t1\n", [[0.5, 1]]),
    ],
)
def test_a_table_of_conditions_is_read_like_the_data(tmp_path, content, expected):
    (tmp_path / "c.csv").write_text(content)
    spec = DataSpec((2,), 0, conditions=Conditions.of(CONDITIONS))
    settings = Config(sample_conditions=f"{tmp_path}/c.csv")
    assert sample_files.read_conditions(settings, spec).tolist() == expected
    for wrong in ("a,b\n1,x\n", "a,b\n1,\n", "a,b\n1,2,3\n"):
        (tmp_path / "c.csv").write_text(wrong)
        with pytest.raises(UserError, match=r"--sample_conditions=.*c.csv"):
            sample_files.read_conditions(settings, spec)
