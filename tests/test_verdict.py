"""The look at the critic between two loops, and the word for how a run is going."""

import itertools

import numpy as np
import PIL.Image
import pytest
import sklearn.datasets
import tensorflow as tf
from conftest import find_data, train_tiny

import train
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.probe import distance_of_means, diversity
from wgan_gp.verdict import Judge

WELL = {
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


def verdict_of(histories, judge=None, **target):
    """After five summaries; `histories`: five values, or one for all, by tag."""
    judge = judge or Judge(**{"target": 1.0, **target})
    rows = {tag: np.broadcast_to(values, 5) for tag, values in {**WELL, **histories}.items()}
    verdicts = [
        judge.judge({tag: float(values[i]) for tag, values in rows.items()}) for i in range(5)
    ]
    assert verdicts[:4] == [None] * 4
    return verdicts[4]


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
        ("critic too weak", {"probe/wasserstein": 0.1}),
        ("healthy", {"probe/wasserstein": 0.15}),
        ("critic too weak", {"probe/wasserstein": -0.1, "probe/distance_of_means": 0.0}),
        ("constraint violated", {"probe/gradient_norm": 1.6}),
        ("constraint violated", {"probe/gradient_norm": 0.4}),
        ("generator collapsed", {"probe/diversity": 0.2}),
        ("critic overfitting", {"held_out/negative_critic_loss": 0.4}),
        ("healthy", {"held_out/negative_critic_loss": 0.6}),
        # The cause, where there are several.
        ("critic too weak", {"probe/wasserstein": 0.1, "probe/gradient_norm": 0.1}),
        ("constraint violated", {"probe/gradient_norm": 9.0, "probe/diversity": 0.1}),
    ],
)
def test_each_verdict_has_its_rule(name, histories):
    assert verdict_of(histories).name == name


def test_a_penalty_without_a_target_asks_for_no_norm():
    assert verdict_of({"probe/gradient_norm": 40.0}, target=0.0).name == "healthy"
    assert verdict_of({"probe/wasserstein": 0.1}, target=0.0).name == "healthy"
    assert verdict_of({"probe/wasserstein": -0.2}, target=0.0).name == "critic too weak"
    slack = {"probe/gradient_norm": 0.4}
    assert verdict_of(slack, target=1.0, one_sided=True).name == "healthy"
    assert verdict_of({"probe/gradient_norm": 0.4}, target=0.5).name == "healthy"


@pytest.mark.parametrize(
    ("missing", "name", "figures"),
    [
        ("wasserstein", "healthy", "gradient norm 1.00, diversity 90% of the data's"),
        ("gradient_norm", "healthy", "estimated distance 1.1, diversity 90% of the data's"),
        ("wasserstein gradient_norm", "healthy", "diversity 90% of the data's"),
        ("gradient_norm", "critic too weak", "it finds a distance of 0.1, and a linear one"),
        ("wasserstein", "constraint violated", "the gradient norm is 9"),
    ],
)
def test_rules_about_terms_that_the_objective_lacks_do_not_apply(missing, name, figures):
    values = WELL | {
        "critic too weak": {"probe/wasserstein": 0.1},
        "constraint violated": {"probe/gradient_norm": 9.0},
    }.get(name, {})
    values = {tag: values[tag] for tag in values if tag.partition("/")[2] not in missing.split()}
    judge = Judge(target=1.0)
    verdict = [judge.judge(values) for _ in range(5)][-1]
    assert verdict.name == name
    assert verdict.reason.startswith(figures)


def test_a_run_that_begins_again_is_judged_afresh():
    judge = Judge(target=1.0)
    verdict_of({"probe/diversity": 0.1}, judge)
    judge.forget()
    assert verdict_of({}, judge).name == "healthy"


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
        "test_data_dir": pictures(tmp_path / "others", images[500:600]),
        "image_channels": 1,
    }


LONG = {"dataset": "digits", "model_width": 64, "summary_interval": 20, "steps_per_loop": 20}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("healthy", {"n_critic": 5}),
        ("constraint violated", {"penalty_weight": 0.0, "critic_learning_rate": 3e-3}),
        *(
            pytest.param(name, settings, marks=pytest.mark.slow)
            for name, settings in (
                (
                    "critic too weak",
                    {"critic_learning_rate": 1e-7, "generator_learning_rate": 1e-7},
                ),
                ("diverging", {"penalty": "none", "critic_learning_rate": 0.3}),
                ("critic overfitting", {"train_steps": 200, "n_critic": 5}),
            )
        ),
    ],
)
def test_a_run_is_told_what_is_wrong_with_it(name, settings, tmp_path, few_pictures):
    data = few_pictures if name == "critic overfitting" else {}
    settings = {**LONG, "train_steps": 100, **data, **settings}
    _, writer = train_tiny(tmp_path / "run", **settings)
    told = [text.partition(":")[0] for _, tag, text in writer.texts if tag == "verdict"]
    assert told[-1] == name
    assert all(before != after for before, after in itertools.pairwise(told))


def test_a_look_changes_nothing(tmp_path):
    runs = [
        train_tiny(tmp_path / str(interval), train_steps=10, summary_interval=interval)
        for interval in (5, 0)
    ]
    for one, other in zip(
        *(run.state.generator.weights + run.state.critic.weights for run, _ in runs), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_look_is_the_same_on_any_number_of_replicas(tmp_path):
    looks = []
    for replicas in (1, 4):
        config = train.resolve(
            Config(model_dir=str(tmp_path), batch_size=128, model_width=4, cpu_replicas=replicas)
        )
        run = train.open_run(config)
        probe = train.make_probe(run, train.make_step(config, run.state))
        first, again = probe(), probe()
        np.testing.assert_array_equal(first.terms["loss"], again.terms["loss"])
        looks.append(first)
    one, four = looks
    assert len(one.terms["loss"]) == 256 and one.real.shape == one.fake.shape == (256, 64)
    for tag, value in one.scalars().items():
        np.testing.assert_allclose(four.scalars()[tag], value, rtol=1e-4, err_msg=tag)
    np.testing.assert_allclose(four.terms["gradient_norm"], one.terms["gradient_norm"], rtol=1e-4)


def test_a_look_sees_what_the_step_would(tmp_path):
    """The norm and the scores of the real examples, by another way."""
    run, _ = train_tiny(tmp_path, train_steps=5, batch_size=256)
    look = train.make_probe(run, train.make_step(run.config, run.state))()
    real = run.source.read(tf.constant(0, tf.int64), 256)[0]
    np.testing.assert_array_equal(look.real, tf.reshape(real, [256, -1]))
    score = run.state.critic
    fake = tf.reshape(look.fake, real.shape)
    np.testing.assert_allclose(
        look.terms["wasserstein"], (score(real) - score(fake))[:, 0], atol=1e-5
    )
    values = look.scalars()
    norms = look.terms["gradient_norm"]
    assert values["probe/gradient_norm_upper"] == pytest.approx(norms.mean() + norms.std())
    assert values["probe/gradient_norm_lower"] == pytest.approx(norms.mean() - norms.std())
    assert values["probe/negative_critic_loss"] == pytest.approx(-look.terms["loss"].mean())


def test_diversity_is_the_mean_distance_of_pairs():
    points = np.random.default_rng(0).normal(5, 1, [20, 3]).astype(np.float32)
    pairs = [np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2)]
    assert diversity(points) == pytest.approx(np.mean(pairs), rel=1e-5)
    assert diversity(np.ones([5, 2])) == 0


def test_the_distance_of_means_leaves_chance_out():
    random = np.random.default_rng(0)
    looks = [
        [distance_of_means(random.normal(0, 1, [64, 8]), random.normal(shift, 1, [64, 8]))]
        for shift in [0.0, 1.0]
        for _ in range(50)
    ]
    same, shifted = np.reshape(looks, [2, 50])
    assert (same == 0).any() and same.mean() < 0.25  # sqrt(2 * 8 / 64) = 0.5 by chance
    assert shifted.mean() == pytest.approx(np.sqrt(8), rel=0.05)


def test_held_out_examples_are_those_of_the_test_split(prepared):
    settings = {"dataset": "mnist", "data_dir": prepared, "batch_size": 8}
    assert find_data(Config(**settings)).open_held_out().size == 20
    assert find_data(Config(**settings, split="test")).open_held_out() is None
    assert find_data(Config()).open_held_out() is None


def test_held_out_examples_are_those_of_test_data_dir(few_pictures, tmp_path):
    assert find_data(Config(**few_pictures)).open_held_out().size == 100
    without = {**few_pictures, "test_data_dir": None}
    assert find_data(Config(**without)).open_held_out() is None
    gone = {**few_pictures, "test_data_dir": f"{tmp_path}/gone"}
    with pytest.raises(UserError, match=r"--test_data_dir=.*gone"):
        find_data(Config(**gone)).open_held_out()
    with pytest.raises(UserError, match="--test_data_dir=x applies only to image_folder and"):
        find_data(Config(test_data_dir="x")).open_held_out()


def test_held_out_losses_are_on_other_examples(few_pictures, tmp_path):
    run, writer = train_tiny(tmp_path / "run", train_steps=5, **few_pictures)
    ((_, values),) = writer.summaries
    assert values["held_out/negative_critic_loss"] != values["probe/negative_critic_loss"]
    look = train.make_probe(run, train.make_step(run.config, run.state))()
    assert values["held_out/negative_critic_loss"] == pytest.approx(-look.held_out["loss"].mean())


def test_a_lazy_penalty_is_probed_as_it_is(tmp_path):
    """Without a weight it changes no update, so both runs have the same critic."""
    logged = []
    for interval in (1, 4):
        settings = {"penalty_weight": 0.0, "penalty_interval": interval, "train_steps": 5}
        _, writer = train_tiny(tmp_path / str(interval), **settings)
        ((_, values),) = writer.summaries
        logged.append({tag: values[tag] for tag in values if tag.startswith("probe/")})
    assert logged[0] == logged[1]
    assert logged[0]["probe/gradient_norm"] > 0
