"""Tests of the critic's diagnostics and of the diagnosis of a run."""

import dataclasses
import itertools
import types

import numpy as np
import PIL.Image
import pytest
import sklearn.datasets
import tensorflow as tf

import losses
from tests.conftest import PROBED_EXAMPLES
from tests.helpers.runs import (
    LIBRARY,
    TINY,
    find_data,
    make_replica_step,
    open_run,
    resolved,
    train_tiny,
    without_tracing,
)
from wgan_gp.app import training
from wgan_gp.app.run_hooks import SummaryHook, can_augment
from wgan_gp.config import Config, check_requirements
from wgan_gp.data.spec import KINDS
from wgan_gp.errors import UserError
from wgan_gp.training import probe
from wgan_gp.training.diagnosis import DiagnosisMonitor
from wgan_gp.training.probe import distance_of_means, diversity

HEALTHY = {
    "critic/loss": -1.0,
    "generator/loss": 2.0,
    "critic/wasserstein": 1.1,
    "probe/gradient_norm": 1.0,
    "probe/wasserstein": 1.1,
    "probe/negative_critic_loss": 1.0,
    "probe/distance_of_means": 0.5,
    "probe/diversity": 0.9,
    "held_out/negative_critic_loss": 0.9,
}


def diagnose(histories, monitor=None, **target):
    """Returns the diagnosis after five summaries.

    Args:
      histories: Five values, or one for all summaries, by tag.
      monitor: A monitor with earlier summaries. None creates one.
      **target: Arguments of the monitor.
    """
    monitor = monitor or DiagnosisMonitor(**{"target": 1.0, **target})
    rows = {tag: np.broadcast_to(values, 5) for tag, values in {**HEALTHY, **histories}.items()}
    diagnoses = [
        monitor.update({tag: float(values[i]) for tag, values in rows.items()}) for i in range(5)
    ]
    assert diagnoses[:4] == [None] * 4
    return diagnoses[4]


GROWING = [200.0, 400.0, 800.0, 1600.0, 3200.0]


@pytest.mark.parametrize(
    ("name", "histories"),
    [
        ("healthy", {}),
        ("healthy", {"critic/loss": [-0.1, -0.2, -0.4, -0.8, -1.6]}),  # small, but growing
        ("healthy", {"generator/loss": np.array(GROWING) + 400}),  # large, but not tenfold
        ("healthy", {"generator/loss": [200, 400, 300, 1600, 3200]}),  # not at every summary
        ("diverging", {"critic/loss": GROWING}),
        ("diverging", {"generator/loss": np.negative(GROWING)}),
        ("diverging", {"generator/loss": 2e6}),
        ("diverging", {"critic/loss": [1, 1, 1, 1, np.nan]}),
        ("diverging", {"critic/loss": -np.inf}),
        ("critic too weak", {"probe/wasserstein": 0.1}),
        ("healthy", {"probe/wasserstein": 0.15}),
        ("critic too weak", {"probe/wasserstein": -0.1, "probe/distance_of_means": 0.0}),
        ("constraint violated", {"probe/gradient_norm": 1.6}),
        ("constraint violated", {"probe/gradient_norm": 0.4}),
        ("constraint violated", {"probe/gradient_norm": np.inf}),
        ("generator collapsed", {"probe/diversity": 0.2}),
        ("generator collapsed", {"probe/diversity": 0.0}),
        ("critic overfitting", {"held_out/negative_critic_loss": 0.4}),
        ("healthy", {"held_out/negative_critic_loss": 0.6}),
        # If several conditions hold, the diagnosis is the cause.
        ("critic too weak", {"probe/wasserstein": 0.1, "probe/gradient_norm": 0.1}),
        ("constraint violated", {"probe/gradient_norm": 9.0, "probe/diversity": 0.1}),
    ],
)
def test_each_diagnosis_has_its_rule(name, histories):
    assert diagnose(histories).name == name


def test_the_norm_is_not_checked_if_the_penalty_has_no_target():
    assert diagnose({"probe/gradient_norm": 40.0}, target=0.0).name == "healthy"
    assert diagnose({"probe/wasserstein": 0.1}, target=0.0).name == "healthy"
    assert diagnose({"probe/wasserstein": -0.2}, target=0.0).name == "critic too weak"
    slack = {"probe/gradient_norm": 0.4}
    assert diagnose(slack, target=1.0, one_sided=True).name == "healthy"
    assert diagnose({"probe/gradient_norm": 0.4}, target=0.5).name == "healthy"


def test_only_the_wasserstein_loss_estimates_a_distance():
    assert diagnose({"probe/wasserstein": 0.1}, estimates_distance=False).name == "healthy"
    below = diagnose({"probe/wasserstein": -0.1}, estimates_distance=False)
    assert str(below) == "critic too weak: it scores samples higher than real examples"
    violated = {"probe/gradient_norm": 1.6}
    assert diagnose(violated, estimates_distance=False).name == "constraint violated"
    for loss in losses.ADVERSARIAL_LOSSES:
        objective = losses.GanObjective(adversarial_loss=loss)
        monitor = DiagnosisMonitor.of_objective(objective, can_augment=True)
        name = "critic too weak" if loss == "wasserstein" else "healthy"
        assert diagnose({"probe/wasserstein": 0.1}, monitor).name == name


def test_an_objective_is_judged_by_its_own_penalty_and_loss():
    low = {"probe/gradient_norm": 0.2, "probe/wasserstein": 0.1}

    def found(objective):
        monitor = DiagnosisMonitor.of_objective(objective, can_augment=False)
        return diagnose(low, monitor).name

    other = types.SimpleNamespace(penalties=["gradient"])
    assert found(None) == found(object()) == found(other) == "healthy"
    assert found(losses.GanObjective(penalty="r1")) == "healthy"
    assert found(losses.GanObjective(adversarial_loss="hinge")) == "constraint violated"
    assert found(losses.GanObjective(adversarial_loss="hinge", penalty="one_sided")) == "healthy"
    assert found(losses.GanObjective()) == "critic too weak"


@pytest.mark.parametrize("shape", [(5,), (8, 2), (8, 8, 1), (4, 4, 4, 1)])
@pytest.mark.parametrize("augment", ["none", "ada"])
def test_augmentation_is_recommended_where_it_applies(shape, augment):
    is_recommended = can_augment(Config(augment=augment), shape)
    monitor = DiagnosisMonitor.of_objective(losses.GanObjective(), can_augment=is_recommended)
    reason = diagnose({"held_out/negative_critic_loss": 0.4}, monitor).reason
    try:
        check_requirements(Config(augment="diffaugment"), {"data": KINDS[len(shape)]})
        applies = augment == "none"
    except UserError:
        applies = False
    assert ("--augment=diffaugment" in reason) == applies


def test_augmentation_is_recommended_to_a_run_without_it():
    overfitting = {"held_out/negative_critic_loss": 0.4}
    assert "--augment=diffaugment" in diagnose(overfitting).reason
    assert "--augment" not in diagnose(overfitting, can_augment=False).reason


@pytest.mark.parametrize(
    ("missing", "name", "figures"),
    [
        ("wasserstein", "healthy", "gradient norm 1.00, diversity 90% of the data's"),
        ("gradient_norm", "healthy", "estimated distance 1.1, diversity 90% of the data's"),
        ("wasserstein gradient_norm", "healthy", "diversity 90% of the data's"),
        ("diversity", "healthy", "estimated distance 1.1, gradient norm 1.00"),
        ("diversity wasserstein gradient_norm", "healthy", "the losses are finite"),
        (
            "gradient_norm",
            "critic too weak",
            "it estimates a distance of 0.1, and a linear critic would",
        ),
        ("wasserstein", "constraint violated", "the gradient norm is 9"),
    ],
)
def test_rules_about_terms_that_the_objective_lacks_do_not_apply(missing, name, figures):
    values = HEALTHY | {
        "critic too weak": {"probe/wasserstein": 0.1},
        "constraint violated": {"probe/gradient_norm": 9.0},
    }.get(name, {})
    lacking = [tag for tag in values if tag.partition("/")[2] in missing.split()]
    present = {tag: value for tag, value in values.items() if tag not in lacking}
    for given in (present, values | dict.fromkeys(lacking, np.nan)):
        monitor = DiagnosisMonitor(target=1.0)
        diagnosis = [monitor.update(given) for _ in range(5)][-1]
        assert diagnosis.name == name
        assert diagnosis.reason.startswith(figures) and "nan" not in diagnosis.reason


def test_reset_discards_earlier_summaries():
    monitor = DiagnosisMonitor(target=1.0)
    diagnose({"probe/diversity": 0.1}, monitor)
    monitor.reset()
    assert diagnose({}, monitor).name == "healthy"


def pictures(folder, images):
    folder.mkdir()
    for number, image in enumerate(images):
        PIL.Image.fromarray((image * 15.9).astype(np.uint8)).save(folder / f"{number:03}.png")
    return str(folder)


@pytest.fixture
def few_pictures(tmp_path):
    images = sklearn.datasets.load_digits().images
    return {
        "dataset": "image_folder",
        "data_dir": pictures(tmp_path / "few", images[:16]),
        "test_data_dir": pictures(tmp_path / "others", images[500:550]),
        "image_channels": 1,
    }


LONG = {"dataset": "digits", "model_width": 64, "summary_interval": 20, "steps_per_loop": 20}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("healthy", {"n_critic": 5}),
        ("constraint violated", {"penalty_weight": 0.0, "critic_learning_rate": 3e-3}),
        ("critic too weak", {"critic_learning_rate": 1e-7, "generator_learning_rate": 1e-7}),
        ("diverging", {"penalty": "none", "critic_learning_rate": 0.3}),
        ("critic overfitting", {"train_steps": 200, "n_critic": 5}),
    ],
)
def test_a_run_reports_each_change_of_its_diagnosis(
    name, settings, tmp_path, few_pictures, monkeypatch
):
    monkeypatch.setattr(probe, "EXAMPLES", PROBED_EXAMPLES)
    data = few_pictures if name == "critic overfitting" else {}
    settings = {**LONG, "train_steps": 100, **data, **settings}
    _, writer = train_tiny(tmp_path / "run", **settings)
    reported = [text.partition(":")[0] for _, tag, text in writer.texts if tag == "diagnosis"]
    assert reported[-1] == name
    assert all(before != after for before, after in itertools.pairwise(reported))


@pytest.mark.slow
def test_the_probe_does_not_change_the_run(tmp_path):
    settings = {"train_steps": 2, "steps_per_loop": 1, "sample_interval": 0}
    with without_tracing():
        runs = [
            train_tiny(tmp_path / str(interval), summary_interval=interval, **settings)
            for interval in (1, 0)
        ]
    for one, other in zip(
        *(run.state.generator.weights + run.state.critic.weights for run, _ in runs), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_diagnostics_are_the_same_on_any_number_of_replicas(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "EXAMPLES", PROBED_EXAMPLES)
    results = []
    for replicas in (1, 2):
        config = resolved(
            Config(model_dir=str(tmp_path), batch_size=128, model_width=4, cpu_replicas=replicas)
        )
        run = open_run(config)
        diagnose_run = training.make_probe(run, make_replica_step(config, run.state))
        first, again = diagnose_run(), diagnose_run()
        np.testing.assert_array_equal(first.terms["loss"], again.terms["loss"])
        results.append(first)
    one, two = results
    assert len(one.terms["loss"]) == 256 and one.real.shape == one.fake.shape == (256, 64)
    for tag, value in one.scalars().items():
        np.testing.assert_allclose(two.scalars()[tag], value, rtol=1e-4, err_msg=tag)
    np.testing.assert_allclose(two.terms["gradient_norm"], one.terms["gradient_norm"], rtol=1e-4)


def test_diagnostics_are_computed_from_the_networks_and_the_first_examples(tmp_path):
    """Compares the diagnostics with scores that the critic computes outside the probe."""
    run = open_run(Config(model_dir=str(tmp_path), **{**TINY, "batch_size": 256}))
    diagnostics = training.make_probe(run, make_replica_step(run.config, run.state))()
    real = run.data.read(256)[0]
    np.testing.assert_array_equal(diagnostics.real, tf.reshape(real, [256, -1]))
    score = run.state.critic
    fake = tf.reshape(diagnostics.fake, real.shape)
    np.testing.assert_allclose(
        diagnostics.terms["wasserstein"], (score(real) - score(fake))[:, 0], atol=1e-5
    )
    values = diagnostics.scalars()
    norms = diagnostics.terms["gradient_norm"]
    assert values["probe/gradient_norm_upper"] == pytest.approx(norms.mean() + norms.std())
    assert values["probe/gradient_norm_lower"] == pytest.approx(norms.mean() - norms.std())
    assert values["probe/negative_critic_loss"] == pytest.approx(-diagnostics.terms["loss"].mean())


def test_diversity_is_the_mean_distance_between_pairs():
    points = np.random.default_rng(0).normal(5, 1, [20, 3]).astype(np.float32)
    pairs = [np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2)]
    assert diversity(points) == pytest.approx(np.mean(pairs), rel=1e-5)
    # Rounding of a mean would leave a tiny diversity of equal examples.
    for value in (1.0, 0.1, 7e5 + 1 / 3):
        for dtype in (np.float32, np.float64):
            assert diversity(np.full([256, 3], value, dtype)) == 0


def test_the_diversity_of_a_large_batch_is_that_of_its_first_examples():
    points = np.random.default_rng(0).normal(size=[probe.EXAMPLES + 9, 3])
    assert diversity(points) == diversity(points[: probe.EXAMPLES])


@pytest.mark.slow
def test_a_run_with_equal_examples_has_no_diversity(tmp_path):
    """Checks data whose 32 probed examples are all equal."""
    data = np.where(np.arange(1000)[:, None] < 2, 1.0, np.zeros((1000, 3)))
    np.save(tmp_path / "x.npy", data)
    flags = {"dataset": "array", "data_dir": f"{tmp_path}/x.npy", "scaling": "none"}
    _, writer = train_tiny(
        tmp_path / "run", **{**flags, "train_steps": 5, "steps_per_loop": 1, "summary_interval": 1}
    )
    assert len(writer.summaries) == 5
    assert all("probe/diversity" not in values for _, values in writer.summaries)
    ((_, _, text),) = [each for each in writer.texts if each[1] == "diagnosis"]
    assert "diversity" not in text and "nan" not in text


def test_the_distance_of_means_subtracts_sampling_noise():
    random = np.random.default_rng(0)
    estimates = [
        [distance_of_means(random.normal(0, 1, [64, 8]), random.normal(shift, 1, [64, 8]))]
        for shift in [0.0, 1.0]
        for _ in range(50)
    ]
    same, shifted = np.reshape(estimates, [2, 50])
    assert (same == 0).any() and same.mean() < 0.25  # sqrt(2 * 8 / 64) = 0.5 by sampling noise
    assert shifted.mean() == pytest.approx(np.sqrt(8), rel=0.05)


def test_held_out_examples_are_those_of_the_test_split(prepared):
    settings = {"dataset": "mnist", "data_dir": prepared, "batch_size": 8}
    assert find_data(Config(**settings)).open_held_out().size == 20
    assert find_data(Config(**settings, split="test")).open_held_out() is None
    assert find_data(Config()).open_held_out() is None


def test_held_out_examples_are_those_of_test_data_dir(few_pictures, tmp_path):
    assert find_data(Config(**few_pictures)).open_held_out().size == 50
    without = {**few_pictures, "test_data_dir": None}
    assert find_data(Config(**without)).open_held_out() is None
    gone = {**few_pictures, "test_data_dir": f"{tmp_path}/gone"}
    with pytest.raises(UserError, match=r"--test_data_dir=.*gone"):
        find_data(Config(**gone)).open_held_out()
    with pytest.raises(UserError, match="--test_data_dir=x applies only to image_folder, "):
        find_data(Config(test_data_dir="x")).open_held_out()


@pytest.mark.slow
def test_held_out_losses_are_on_other_examples(tmp_path):
    images = sklearn.datasets.load_digits().images[..., None].astype(np.uint8)
    np.save(tmp_path / "few.npy", images[:16])
    np.save(tmp_path / "others.npy", images[500:550])
    data = {"data_dir": f"{tmp_path}/few.npy", "test_data_dir": f"{tmp_path}/others.npy"}
    settings = {"dataset": "array", "sample_interval": 0, **data}
    run, writer = train_tiny(tmp_path / "run", train_steps=5, **settings)
    ((_, values),) = writer.summaries
    assert values["held_out/negative_critic_loss"] != values["probe/negative_critic_loss"]
    diagnostics = training.make_probe(run, make_replica_step(run.config, run.state))()
    assert values["held_out/negative_critic_loss"] == pytest.approx(
        -diagnostics.held_out["loss"].mean()
    )


def test_batches_of_the_probe_have_samples_of_their_own(tmp_path):
    settings = {**TINY, "batch_size": 4, "activation": "tanh"}
    run = open_run(Config(model_dir=str(tmp_path), **settings))
    diagnostics = training.make_probe(run, make_replica_step(run.config, run.state))()
    assert len(np.unique(diagnostics.fake, axis=0)) == len(diagnostics.fake) == probe.EXAMPLES


def test_a_summary_judges_the_objective_of_the_user(tmp_path):
    library = dataclasses.replace(LIBRARY, objective=losses.GanObjective(penalty="r1"))
    run = open_run(Config(model_dir=str(tmp_path), objective="python", **TINY), library)
    hook = SummaryHook(run, None, None)
    assert diagnose({"probe/gradient_norm": 0.2}, hook._monitor).name == "healthy"


@pytest.mark.parametrize("of_user", [False, True])
def test_the_probe_does_not_scale_a_lazy_penalty(tmp_path, of_user):
    """Compares two runs before they train, which have the same critic."""
    logged = []
    for interval in (1, 4):
        settings, library = {**TINY, "penalty_interval": interval}, LIBRARY
        if of_user:
            objective = losses.GanObjective(penalty_interval=interval)
            settings = {**TINY, "objective": "python"}
            library = dataclasses.replace(LIBRARY, objective=objective)
        run = open_run(Config(model_dir=str(tmp_path), **settings), library)
        diagnose_run = training.make_probe(run, make_replica_step(run.config, run.state))
        logged.append(diagnose_run().scalars())
    assert logged[0] == logged[1]
    assert logged[0]["probe/gradient_norm"] > 0
