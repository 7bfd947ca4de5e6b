"""Short runs of the studies, and of their measures."""

import io
import json
import pathlib
import sys
import threading
import time
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import losses
from benchmarks import outcome
from studies import (
    critic_layers,
    damped_sines,
    few_images,
    mnist_quality,
    synthetic,
    tables,
    thousand_modes,
)
from studies.baselines import ctgan_worker, mnist_keras
from studies.baselines.turns import Turns, to_levels
from tests.helpers.runs import call_main

# The comparison with CTGAN and TVAE, without them.


def people(count=3000, seed=0):
    random = np.random.default_rng(seed)
    group = random.choice(["a", "b", "c"], count)
    income = np.where(group == "a", 1.0, 3.0) + random.normal(size=count)
    return pd.DataFrame(
        {
            "group": group,
            "income": np.where(random.random(count) < 0.1, np.nan, income),
            "tax": income / 2 + random.normal(0, 0.1, count),
            "member": np.where(random.random(count) < 0.3, 1, 0),
        }
    )


def test_the_halves_of_a_table_are_all_of_its_rows():
    first, second = tables.halves(people(101), seed=0)
    assert (len(first), len(second)) == (50, 51)
    both = pd.concat([first, second]).sort_values("tax", ignore_index=True)
    pd.testing.assert_frame_equal(both, people(101).sort_values("tax", ignore_index=True))
    assert not tables.halves(people(101), seed=1)[0].equals(first)


def test_texts_of_samples_are_texts_if_all_of_them_are_numbers(tmp_path):
    """An example: grades from 9 to 12, or "other" in a few rows of the data."""
    table = pd.DataFrame({"grade": ["9", "10", "other", None] * 4, "age": [15, 16, 17, 18] * 4})
    pd.DataFrame({"grade": ["9", None, "10"], "age": [15, 16, 15]}).to_csv(
        tmp_path / "samples.csv", index=False
    )
    samples = tables.read_like(f"{tmp_path}/samples.csv", table)
    np.testing.assert_array_equal(
        tables.numbers(samples, table),
        [[1, 0], [np.nan, 1], [0, 0]],  # in the order of the texts
    )


class FakeCtgan:
    """CTGAN and TVAE, whose samples are the rows with noise and without the types of the data."""

    def __init__(self, enable_gpu):
        assert not enable_gpu

    def fit(self, table, discrete):
        assert not table.isna().any().any()
        self.table = table
        self.discrete = discrete
        for _ in sys.modules["ctgan.synthesizers.ctgan"].tqdm(range(10)):
            pass

    def sample(self, count):
        random, found = np.random.default_rng(0), self.table.sample(count, random_state=0)
        numbers = [name for name in found if name not in self.discrete]
        return found.astype(dict.fromkeys(numbers, float)).assign(
            **{name: found[name] + 0.3 * random.normal(size=count) for name in numbers}
        )


def test_samples_of_ctgan_have_the_decimals_the_range_and_the_missing_values(
    tmp_path, monkeypatch, capsys
):
    """The bare packages write reals without rounding, and numbers where values were missing."""
    table = people(500).assign(age=np.arange(500) % 70)
    table = table.assign(tax=table["tax"].round(1), income=table["income"].round(2))
    table.loc[:40, "group"] = np.nan
    table.to_csv(tmp_path / "a.csv", index=False)
    fake = types.ModuleType("ctgan")
    names = ("ctgan.synthesizers", "ctgan.synthesizers.ctgan", "ctgan.synthesizers.tvae", "torch")
    modules = {name: types.ModuleType(name) for name in names} | {"ctgan": fake}
    fake.CTGAN = fake.TVAE = FakeCtgan
    fake.synthesizers = modules["ctgan.synthesizers"]
    fake.synthesizers.ctgan = modules["ctgan.synthesizers.ctgan"]
    fake.synthesizers.tvae = modules["ctgan.synthesizers.tvae"]
    modules["torch"].manual_seed = lambda seed: None
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    paths = [f"{tmp_path}/{name}.csv" for name in "ab"]
    monkeypatch.setattr(sys, "argv", ["ctgan_worker.py", "tvae", *paths, "0", "1"])
    ctgan_worker.main()
    assert json.loads(capsys.readouterr().out)["epochs"] == 1
    found = pd.read_csv(paths[1])
    assert list(found) == list(table) and found.dtypes.equals(table.dtypes)
    for name, count in (("tax", 1), ("income", 2)):
        assert (found[name].round(count).fillna(0) == found[name].fillna(0)).all()
        assert table[name].min() <= found[name].min() <= found[name].max() <= table[name].max()
    assert (found.isna().sum() == table.isna().sum()).all()


@pytest.mark.slow
def test_the_judge_sees_what_is_wrong_with_samples():
    train, test = tables.halves(people(), seed=0)
    data = tables.judge(train, train, test, "member")
    assert data["two-sample accuracy"] < 0.54 and data["association error"] < 0.03
    independent = tables.judge(tables.independent(train, 0), train, test, "tax")
    assert independent["two-sample accuracy"] > 0.7 and independent["association error"] > 0.15
    assert (
        independent["trained on it"]
        < 0.05
        < tables.judge(train, train, test, "tax")["trained on it"]
    )
    whole = train.assign(income=train["income"].fillna(0))
    assert tables.judge(whole, train, test, "tax")["two-sample accuracy"] > 0.53
    spelled = train.assign(member=train["member"].astype(float))
    assert tables.judge(spelled, train, test, "tax") == tables.judge(train, train, test, "tax")


@pytest.mark.slow
def test_samples_have_the_columns_of_the_table(tmp_path, monkeypatch):
    def run(command):
        assert command[:2] == [sys.executable, "train.py"]
        assert call_main(*command[2:]) == 0

    monkeypatch.setattr(tables, "_run", run)  # in this process, which has imported TensorFlow
    train = people(600)
    train.to_csv(tmp_path / "train.csv", index=False)
    flags = ["--train_steps=1", "--model_width=4"]
    source, output = f"{tmp_path}/train.csv", f"{tmp_path}/samples.csv"
    done = tables.train_ours(source, output, 70, 0, flags)
    assert done["seconds"] > 0 and done["rows"] == 1 * 2 * 500
    samples = pd.read_csv(output)
    assert list(samples) == list(train) and len(samples) == 70
    assert samples.dtypes.equals(train.dtypes)


# Datasets with known truth.


def test_a_fit_finds_frequency_and_decay():
    times = np.arange(128)
    frequency, decay = np.array([0.05, 0.031, 0.14]), np.array([0.02, 0.0, 0.05])
    signals = np.exp(-decay[:, None] * times) * np.cos(
        2 * np.pi * frequency[:, None] * times + np.array([[0.3], [2], [5]])
    )
    found = synthetic.fit_sines(signals[..., None])
    np.testing.assert_allclose(found.frequency, frequency, atol=1e-6)
    np.testing.assert_allclose(found.decay, decay, atol=1e-6)
    assert found.residual.max() < 1e-9
    noisy = signals + 0.05 * np.random.default_rng(0).normal(size=signals.shape)
    found = synthetic.fit_sines(noisy[..., None])
    np.testing.assert_allclose(found.frequency, frequency, atol=2e-3)
    assert found.residual.min() > 1e-3
    zero = synthetic.fit_sines(np.zeros([2, 128, 1]))  # a generator may produce it
    assert np.isfinite(zero.frequency).all() and np.isfinite(zero.residual).all()


def test_measures_of_sines_see_a_missing_half_of_the_frequencies():
    data = synthetic.make_sines(150, seed=0)
    assert data["examples"].shape == (150, 128, 1) and data["examples"].dtype == np.float32
    values = synthetic.measure_sines(data)
    assert values["frequency: Kolmogorov-Smirnov"] < 0.13 > values["decay: Kolmogorov-Smirnov"]
    fitted = synthetic.fit_sines(data["examples"])
    low = {"examples": data["examples"][fitted.frequency < 0.09]}
    assert synthetic.measure_sines(low)["frequency: Kolmogorov-Smirnov"] > 0.4


def test_noisy_sines_have_white_noise_of_the_stated_deviation():
    noise = (
        synthetic.make_noisy_sines(200, 3)["examples"] - synthetic.make_sines(200, 3)["examples"]
    )
    assert noise.std() == pytest.approx(synthetic.NOISE, rel=0.02)
    assert abs(np.corrcoef(noise[:, 1:, 0].ravel(), noise[:, :-1, 0].ravel())[0, 1]) < 0.03


@pytest.mark.slow
def test_damped_sines_are_told_from_data_by_their_rounding(monkeypatch, capsys):
    monkeypatch.setattr(damped_sines, "COUNT", 300)
    monkeypatch.setattr(damped_sines, "ERRORS", (0.1,))
    monkeypatch.setattr(sys, "argv", ["damped_sines", "--minutes=0.001"])
    rows = []
    monkeypatch.setattr(outcome, "save", lambda name, found, **_: rows.extend(found))
    damped_sines.main()
    law, in_float32, wrong_frequencies, error, network = rows
    for accuracy in (
        *(law["without noise"], law["with noise"], in_float32["with noise"]),
        *(wrong_frequencies["without noise"], wrong_frequencies["with noise"]),
    ):
        assert accuracy == pytest.approx(0.5, abs=0.1)
    assert float(in_float32["wrong power"]) < 1e-10
    assert min(row["without noise"] for row in (in_float32, error, network)) > 0.9
    assert min(error["with noise"], network["with noise"]) > 0.75
    assert "the true law, in float32" in capsys.readouterr().out


def test_the_autoregressive_process_has_its_autocorrelations():
    values = synthetic.measure_ar2(synthetic.make_ar2(2000, seed=0))
    assert values["autocorrelation: largest deviation"] < 0.03
    assert abs(values["a - true a"]) < 0.01 > abs(values["b - true b"])
    assert values["deviation of the noise (1)"] == pytest.approx(1, abs=0.01)
    noise = np.random.default_rng(0).normal(size=(500, 128, 1))
    assert synthetic.measure_ar2({"examples": noise})["autocorrelation: mean deviation"] > 0.1
    first = synthetic.true_autocorrelation(3)
    a, b = synthetic.AR2
    np.testing.assert_allclose(first, [a / (1 - b), a * first[0] + b, a * first[1] + b * first[0]])


def test_the_response_of_the_detector_is_linear_in_energy():
    data = synthetic.make_detector(3000, seed=0)
    assert data["examples"].shape == (3000, 24, 12, 3) and data["conditions"].shape == (3000, 1)
    values = synthetic.measure_detector(data)
    assert values["deviation from a line"] < 0.05 > values["deviation from the energy"]
    assert values["resolution / true resolution"] == pytest.approx(1, abs=0.1)
    assert 0.02 < values["share of cells above 0.1"] < 0.2  # sparse
    # A response that grows as E^1.3, or is too small by a tenth.
    bent = {**data, "examples": data["examples"] * data["conditions"][:, None, None] ** 0.3}
    assert synthetic.measure_detector(bent)["deviation from a line"] > 0.05
    small = {**data, "examples": 0.9 * data["examples"]}
    assert synthetic.measure_detector(small)["deviation from the energy"] > 0.08
    wrong = {**data, "conditions": np.roll(data["conditions"], 1, axis=0)}
    assert synthetic.measure_detector(wrong)["slope (1)"] < 0.2


def test_the_program_writes_reads_and_compares(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "results")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["synthetic", *arguments])
        synthetic.main()
        return capsys.readouterr().out

    for name, file in (("sines", "a.npy"), ("ar2", "b.npz"), ("detector", "c.npz")):
        path = f"{tmp_path}/{file}"
        assert call("make", name, path, "--count=60") == f"{path}\n"
        made = synthetic.MAKERS[name](60, 0)
        for key, values in synthetic.read(path).items():
            np.testing.assert_array_equal(values, made[key])
        assert call("measure", name, path).startswith(name)
    with pytest.raises(SystemExit, match=r"does not end in \.npz"):
        call("make", "detector", f"{tmp_path}/d.npy", "--count=9")
    np.savez(f"{tmp_path}/e.npz", samples=made["examples"])
    with pytest.raises(SystemExit, match="have no conditions"):
        call("measure", "detector", f"{tmp_path}/e.npz")


# The toy of 1,000 modes.


@pytest.mark.slow
def test_examples_have_equally_frequent_triples_that_the_classifier_finds():
    examples = thousand_modes.make_examples(10_000, seed=0)
    assert examples.shape == (10_000, 8, 8, 3) and examples.max() == 16
    found = thousand_modes.count_modes(thousand_modes.find_modes(examples))
    # Equal frequencies have the expected divergence 999 / (2 N) = 0.05.
    assert found["modes"] > 990 and found["divergence"] == pytest.approx(0.05, abs=0.01)
    other = thousand_modes.make_examples(10, seed=1)
    assert not np.array_equal(other, examples[:10])


def test_missing_modes_are_counted():
    modes = np.repeat(np.arange(250), 4)
    assert thousand_modes.count_modes(modes) == {
        "modes": 250,
        "divergence": pytest.approx(np.log(4)),
    }


@pytest.mark.slow
def test_the_comparison_prints_a_row_for_each_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(thousand_modes, "SAMPLES", 200)
    monkeypatch.setattr(thousand_modes, "EXAMPLES", 300)
    monkeypatch.setattr(thousand_modes.outcome, "FOLDER", tmp_path / "build")
    thousand_modes.main(["--updates=12", "--seeds=1", f"--folder={tmp_path}/runs"])
    rows = json.loads((tmp_path / "build" / "thousand_modes.json").read_text())["rows"]
    data, *recipes = rows
    assert [row["recipe"] for row in recipes] == list(thousand_modes.RECIPES)
    assert all(0 < row["modes"] <= data["modes"] + 20 for row in recipes)
    with pytest.raises(SystemExit):
        thousand_modes.main(["--recipes=none"])


# The comparison on MNIST: turns on equal cores, equal times, and the metrics of samples.


class FakeProgram:
    """A program that records its turns; `Program` without a process."""

    def __init__(self, name, limit, fails=False, first_turns=None):
        self.name, self.limit, self.fails = name, limit, fails
        self.first_turns = first_turns or iter(())
        self.seconds, self.iterations, self.turns = 0.0, 0, []
        self.lock = threading.Lock()

    @property
    def is_done(self):
        return self.seconds >= self.limit

    def turn(self, seconds, cores):
        assert self.lock.acquire(blocking=False)  # no two lanes at a time
        if self.fails:
            raise RuntimeError(f"{self.name} failed")
        next(self.first_turns, lambda: None)()
        self.turns.append(tuple(cores))
        self.seconds += seconds
        self.lock.release()


@pytest.mark.parametrize("lanes", [[[0, 1]], [[0], [1]]])
def test_programs_train_in_turns_for_equal_times(lanes):
    # Each lane has a turn before one has two.
    barrier = threading.Barrier(len(lanes), timeout=60)
    first_turns = iter([barrier.wait] * len(lanes))
    programs = [FakeProgram(name, 10, first_turns=first_turns) for name in "abc"]
    mnist_quality.train(programs, lanes, turn=1)
    assert [each.seconds for each in programs] == [10, 10, 10]
    used = {cores for each in programs for cores in each.turns}
    assert used == {tuple(each) for each in lanes}


def test_a_program_that_fails_ends_the_comparison():
    with pytest.raises(RuntimeError, match="b failed"):
        mnist_quality.train(
            [FakeProgram("a", 1e9), FakeProgram("b", 10, fails=True)], [[0], [1]], turn=1
        )


class FakeModel:
    saved = 0

    def save(self):
        self.saved += 1

    def sample(self, count):
        return np.zeros([count, 28, 28, 1], np.uint8)


def test_a_turn_ends_after_its_seconds_and_saves(monkeypatch, tmp_path):
    path = str(tmp_path / "s.npy")
    requests = [{"train": 0.05}, {"sample": [3, path]}, {"train": 0.05}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, requests))))
    answers, model, iterations = io.StringIO(), FakeModel(), 0
    turns = Turns(answers)
    while turns.wait(model, iterations):
        iterations += 1
        time.sleep(0.01)
    first, one, sampled, two = map(json.loads, answers.getvalue().splitlines())
    assert first == {"iterations": 0, "seconds": 0.0} and model.saved == 2
    assert 0 < one["iterations"] < two["iterations"] == iterations
    assert one["seconds"] >= 0.05 and two["seconds"] >= 0.05 and sampled["seconds"] == 0
    assert np.load(path).shape == (3, 28, 28, 1)


def test_samples_are_rounded_to_levels():
    images = np.array([-1.2, -1, 0.002, 1, 1.3])
    assert to_levels(images).tolist() == [0, 0, 128, 255, 255]


def test_the_keras_baseline_trains_with_the_penalty_of_the_paper(monkeypatch, tmp_path):
    monkeypatch.setattr(mnist_keras, "BATCH", 4)
    model = mnist_keras.Model(str(tmp_path), np.zeros([9, 28, 28, 1], np.uint8))
    real, fake = (tf.random.stateless_normal([4, 28, 28, 1], [0, seed]) for seed in (1, 2))
    tf.random.set_seed(5)
    alpha = tf.random.uniform([4, 1, 1, 1])
    tf.random.set_seed(5)
    monkeypatch.setattr(mnist_keras.layers.Dropout, "call", lambda self, x, training=None: x)
    found = model._penalty(real, fake)
    expected = losses.gradient_penalty(model.critic, real, fake, alpha=alpha[:, 0, 0, 0])
    np.testing.assert_allclose(found, tf.reduce_mean(expected), rtol=1e-5)


@pytest.mark.slow
def test_the_keras_baseline_continues_from_its_saved_state(monkeypatch, tmp_path):
    monkeypatch.setattr(mnist_keras, "BATCH", 4)
    images = np.random.default_rng(0).integers(0, 256, (9, 28, 28, 1)).astype(np.uint8)
    model = mnist_keras.Model(str(tmp_path), images)
    model.train_step()
    model.save()
    again = mnist_keras.Model(str(tmp_path), images)
    assert int(again.iterations) == 1
    np.testing.assert_array_equal(again.sample(5), model.sample(5))
    assert model.sample(5).shape == (5, 28, 28, 1)


@pytest.mark.slow
def test_the_comparison_resumes_and_prints_a_row_for_each_mark(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist_quality, "SAMPLES", 50)
    monkeypatch.setattr(mnist_quality, "GRID", (2, 3))
    monkeypatch.setattr(mnist_quality.outcome, "FOLDER", tmp_path / "build")
    (tmp_path / "f.flags").write_text("--dataset=mnist\n--model_width=4\n--batch_size=8\n")
    log = tmp_path / "runs" / "small" / "turns.jsonl"

    def compare(minutes, *more):
        mnist_quality.main(
            [
                f"--data_dir={prepared}",
                f"--folder={tmp_path}/runs",
                "--programs=small",
                f"--ours=small={tmp_path}/f.flags",
                "--mark=0.02",
                f"--minutes={minutes}",
                *more,
            ]
        )
        return [json.loads(line) for line in log.read_text().splitlines()]

    first = compare(0.02)
    turns = compare(first[-1]["seconds"] / 60 + 0.02, "--lanes=2")
    assert turns[: len(first)] == first and len(turns) > len(first)
    assert turns[-1]["iterations"] > first[-1]["iterations"] > 0
    *rows, real = json.loads((tmp_path / "build" / "mnist_quality.json").read_text())["rows"]
    assert len(rows) >= 2 and real["program"] == "training images"
    assert all(np.isfinite(row["FID"]) for row in rows)
    assert (tmp_path / "runs" / "curve.png").stat().st_size
    assert (tmp_path / "runs" / "small.png").stat().st_size
    with pytest.raises(SystemExit, match="other is not a program"):
        compare(1, "--programs=other")


# Layers of a critic.


def test_every_layer_of_keras_is_tried_or_left_out_with_a_reason():
    names: dict[type, set[str]] = {}  # a layer can have several
    for name, value in vars(tf.keras.layers).items():
        if isinstance(value, type) and issubclass(value, tf.keras.layers.Layer):
            names.setdefault(value, set()).add(name)
    tried = {name.partition(" (")[0] for name in critic_layers.LAYERS}
    known = tried | critic_layers.LEFT_OUT.keys()
    assert names and [each for each in names.values() if not each & known] == []
    assert not tried & critic_layers.LEFT_OUT.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "on_cpu"),
    [
        ("Activation", "yes"),
        ("BatchNormalization", "couples examples"),
        ("Embedding", "no gradient"),
        ("UpSampling2D (bilinear)", "wrong second gradient"),
        ("Dropout", "random"),
    ],
)
def test_the_verdict_on_a_layer_of_a_critic(name, on_cpu):
    """docs/losses.md has the verdict, too."""
    found = dict(critic_layers.judge(name))
    assert found["cpu"] == on_cpu
    assert documented_layers()[name] == (found["cpu"], found["xla"], found["tpu"])
    if on_cpu == "yes":
        assert found == {"cpu": "yes", "xla": "yes", "tpu": "yes"}


def documented_layers():
    """The verdicts in docs/losses.md, by layer."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "losses.md").read_text()
    verdicts = {}
    for line in page.partition("\n## Layers of a critic\n")[2].splitlines():
        if line.startswith("| ") and "on a CPU" not in line:
            *verdict, layers = line.strip("| ").split(" | ")
            verdicts |= dict.fromkeys(layers.split(", "), tuple(verdict))
    return verdicts


def test_the_page_of_losses_has_a_verdict_for_each_layer():
    documented = documented_layers()
    assert documented.keys() == critic_layers.LAYERS.keys()
    assert all(len(verdict) == 3 for verdict in documented.values())


def test_layers_with_equal_verdicts_share_a_line():
    verdicts = {"B": ("yes",) * 3, "C": ("random", "yes", "yes"), "a": ("yes",) * 3}
    assert critic_layers.table(verdicts).splitlines()[2:] == [
        "| yes | yes | yes | a, B |",
        "| random | yes | yes | C |",
    ]


# 100 images.


def test_the_digits_are_split_into_100_and_the_others():
    split, other = few_images.split_digits(0), few_images.split_digits(1)
    assert split.few.shape == (100, 8, 8, 1) and len(split.others) == 1697
    assert not np.array_equal(split.few, other.few)


@pytest.mark.slow
def test_transformed_digits_look_augmented_and_real_ones_do_not():
    looks_augmented, shares = few_images.make_leak_detector(few_images.split_digits(0))
    assert shares["real"] < 0.1 and shares["transformed"] > 0.9
    assert looks_augmented(few_images.split_digits(0).few) < 0.2


@pytest.mark.slow
def test_the_comparison_on_few_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(few_images, "SAMPLES", 200)
    few_images.main(["--seeds=1", "--steps=20", "--augment=none,diffaugment", "--folder=runs"])
    out = capsys.readouterr().out
    rows = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert {"augment", "the 100 digits", "transformed digits", "diffaugment"} < set(rows)
    assert rows["none"][2] == "1.000"  # the ratio to itself, with no deviation of one seed
