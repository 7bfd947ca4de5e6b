"""Tests of GanObjective: its terms, their sum, and the constraint on the critic's weights."""

import dataclasses
import functools
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import losses
from wgan_gp import config

ROOT = pathlib.Path(__file__).parents[2]

B = 16
RNG = np.random.default_rng(3)
REAL, FAKE, NOISE = (tf.constant(x, tf.float32) for x in RNG.standard_normal([3, B, 5]))
DRAWN = {"alpha": tf.linspace(0.0, 0.9, B), "noise": NOISE}


def critic(x):
    return tf.reduce_sum(tf.tanh(x) + x**2 / 4, axis=1, keepdims=True)


def two_headed(x):
    return critic(x), tf.stack([x[:, 0], x[:, 1], 2 * x[:, 2]], axis=1)


def objective_with_all_terms(penalty, adversarial_loss, **options):
    return losses.GanObjective(
        penalty=penalty,
        adversarial_loss=adversarial_loss,
        penalty_weight=3.0,
        drift_weight=0.5,
        critic_class_weight=2.0,
        **options,
    )


def test_names_and_limits_are_known_without_tensorflow():
    program = (
        "import sys, losses\n"
        "assert losses.PENALTIES['none'].function is None\n"
        "assert losses.ADVERSARIAL_LOSSES['relativistic'].relativistic\n"
        "losses.GanObjective(penalty='r1,r2')\n"
        "assert 'tensorflow' not in sys.modules\n"
        # A call imports TensorFlow, which takes seconds and therefore is not done here.
        "sys.modules['tensorflow'] = None\n"
        "try:\n"
        "    losses.penalties.two_sided([3.0])\n"
        "except ImportError:\n"
        "    sys.exit()\n"
        "sys.exit('TensorFlow was not imported')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_defaults_are_those_of_the_configuration():
    defaults = {field.name: field.default for field in dataclasses.fields(config.Config)}
    for field in dataclasses.fields(losses.GanObjective):
        # A critic has no classifier by default, so the default weights are 0.
        if field.name in defaults and not field.name.endswith("class_weight"):
            assert field.default == defaults[field.name], field.name


@pytest.mark.parametrize("adversarial_loss", losses.ADVERSARIAL_LOSSES)
@pytest.mark.parametrize("penalty", losses.PENALTIES)
def test_logged_terms_add_up_to_the_loss(adversarial_loss, penalty):
    objective = objective_with_all_terms(penalty, adversarial_loss)
    labels = tf.constant([0, 1, 2, 0] * 4)
    terms = objective.critic_terms(two_headed, REAL, FAKE, step=0, labels=labels, **DRAWN)
    assert set(terms) == set(objective.critic_term_names)
    assert all(term.shape == [B] and term.dtype == tf.float32 for term in terms.values())
    real, fake = (tf.squeeze(critic(x), 1) for x in (REAL, FAKE))
    np.testing.assert_allclose(terms["wasserstein"], real - fake, rtol=1e-5, atol=1e-6)
    adversarial = losses.ADVERSARIAL_LOSSES[adversarial_loss].critic(real, fake)
    logged = terms["adversarial"] if "adversarial" in terms else -terms["wasserstein"]
    np.testing.assert_allclose(logged, adversarial, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(terms["drift"], real**2, rtol=1e-5)
    np.testing.assert_allclose(
        terms["classification"],
        losses.auxiliary.classification_loss(two_headed(REAL)[1], labels),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        terms["loss"],
        logged + 3.0 * terms["penalty"] + 0.5 * terms["drift"] + 2.0 * terms["classification"],
        rtol=1e-5,
        atol=1e-5,
    )
    has_penalty = losses.PENALTIES[penalty].function is not None
    assert has_penalty == bool(tf.reduce_any(terms["penalty"] > 0))


def test_the_default_is_wgan_gp():
    terms = losses.GanObjective().critic_terms(critic, REAL, FAKE, step=0, **DRAWN)
    penalty = losses.gradient_penalty(critic, REAL, FAKE, alpha=DRAWN["alpha"])
    expected = losses.critic_loss(critic(REAL), critic(FAKE)) + 10.0 * penalty
    np.testing.assert_allclose(terms["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(terms["penalty"], (terms["gradient_norm"] - 1) ** 2, rtol=1e-4)
    assert set(terms) == {"loss", "wasserstein", "penalty", "gradient_norm"}


@pytest.mark.parametrize("interval", [1, 2])
def test_several_penalties_are_a_weighted_sum(interval):
    """Values and gradients are those of the named functions, and the terms add up."""
    tf.keras.utils.set_random_seed(0)
    critic = tf.keras.Sequential(
        [tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(1)]
    )
    critic(REAL)
    objective = losses.GanObjective(
        penalty="r1,r2,two_sided", penalty_weight=(5.0, 0.5, 2.0), penalty_interval=interval
    )
    with tf.GradientTape(persistent=True) as tape:
        terms = objective.critic_terms(critic, REAL, FAKE, step=tf.constant(0), **DRAWN)
        parts = {
            "r1": losses.r1_penalty(critic, REAL),
            "r2": losses.r2_penalty(critic, FAKE),
            "two_sided": losses.gradient_penalty(critic, REAL, FAKE, alpha=DRAWN["alpha"]),
        }
        loss = losses.critic_loss(critic(REAL), critic(FAKE)) + interval * tf.add_n(
            [5.0 * parts["r1"], 0.5 * parts["r2"], 2.0 * parts["two_sided"]]
        )
    assert set(terms) == set(objective.critic_term_names)
    for name, value in parts.items():
        np.testing.assert_allclose(terms[f"penalty_{name}"], interval * value, rtol=1e-4)
    np.testing.assert_allclose(terms["penalty"], interval * tf.add_n([*parts.values()]), rtol=1e-4)
    np.testing.assert_allclose(terms["gradient_norm"] / interval, parts["r1"] ** 0.5, rtol=1e-4)
    np.testing.assert_allclose(terms["loss"], loss, rtol=1e-4)
    weights = critic.trainable_variables
    for found, expected in zip(
        tape.gradient(terms["loss"], weights), tape.gradient(loss, weights), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_one_weight_applies_to_each_of_several_penalties():
    found = losses.GanObjective(penalty=("r1", "r2"), penalty_weight=5).penalties
    assert [(part.name, part.weight) for part in found] == [("r1", 5), ("r2", 5)]
    alone = losses.GanObjective(penalty="r1", penalty_weight=5)
    assert alone.critic_term_names == ("loss", "wasserstein", "penalty", "gradient_norm")


def test_target_and_noise_reach_the_penalty():
    objective = losses.GanObjective(penalty="dragan", penalty_target=2.0, penalty_noise=0.7)
    terms = objective.critic_terms(critic, REAL, FAKE, step=0, **DRAWN)
    expected = losses.penalties.dragan_penalty(critic, REAL, noise=NOISE, scale=0.7, target=2.0)
    np.testing.assert_allclose(terms["penalty"], expected, rtol=1e-5)


@pytest.mark.parametrize("penalty", ["none", "weight_clipping"])
def test_the_gradient_norm_is_logged_without_a_penalty(penalty):
    objective = losses.GanObjective(penalty=penalty)
    terms = objective.critic_terms(critic, REAL, FAKE, step=0, **DRAWN)
    between = losses.interpolate(REAL, FAKE, DRAWN["alpha"])
    np.testing.assert_allclose(
        terms["gradient_norm"], losses.gradient_norm(critic, between), rtol=1e-6
    )
    np.testing.assert_array_equal(terms["penalty"], np.zeros(B))


def test_penalty_interval():
    every, lazy = (losses.GanObjective(penalty_interval=k) for k in (1, 3))
    now = every.critic_terms(critic, REAL, FAKE, step=0, **DRAWN)
    for step in range(4):
        terms = lazy.critic_terms(critic, REAL, FAKE, step=tf.constant(step), **DRAWN)
        due = 3.0 * (step % 3 == 0)
        for name in ("penalty", "gradient_norm"):
            np.testing.assert_allclose(terms[name], due * now[name], rtol=1e-6)
        np.testing.assert_allclose(
            terms["loss"], -now["wasserstein"] + 10 * due * now["penalty"], rtol=1e-5
        )


@pytest.mark.parametrize("penalty", ["two_sided", "r1,r2"])
def test_the_terms_of_lazy_penalties_are_those_with_an_interval(penalty):
    objective = losses.GanObjective(penalty=penalty, penalty_interval=3)
    terms = objective.critic_terms(critic, REAL, FAKE, step=tf.constant(1), **DRAWN)
    skipped = {name for name, values in terms.items() if not np.any(values)}
    intervals = objective.critic_term_intervals
    assert skipped == {name for name in terms if intervals.get(name, 1) == 3}


@pytest.mark.parametrize("penalty", losses.PENALTIES)
def test_the_loss_of_the_critic_has_no_gradient_in_the_generator(penalty):
    size = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        terms = losses.GanObjective(penalty=penalty).critic_terms(
            critic, REAL, size * FAKE, step=0, **DRAWN
        )
    assert tape.gradient(terms["loss"], size) is None


@pytest.mark.parametrize("adversarial_loss", losses.ADVERSARIAL_LOSSES)
def test_generator_terms_have_a_gradient_in_the_fakes(adversarial_loss):
    objective = losses.GanObjective(
        adversarial_loss=adversarial_loss, generator_class_weight=0.1, critic_class_weight=1.0
    )
    labels = tf.zeros([B], tf.int32)
    with tf.GradientTape() as tape:
        tape.watch(FAKE)
        terms = objective.generator_terms(two_headed, FAKE, labels=labels, real=REAL)
    assert set(terms) == set(objective.generator_term_names)
    scores = [critic(REAL)] * objective.generator_needs_real + [critic(FAKE)]
    expected = losses.ADVERSARIAL_LOSSES[adversarial_loss].generator(*scores)
    classification = losses.auxiliary.classification_loss(two_headed(FAKE)[1], labels)
    np.testing.assert_allclose(terms["loss"], expected + 0.1 * classification, rtol=1e-5)
    assert np.abs(tape.gradient(terms["loss"], FAKE)).max() > 0.1


def test_the_relativistic_generator_loss_requires_real_examples():
    objective = losses.GanObjective(adversarial_loss="relativistic")
    assert objective.generator_needs_real and not losses.GanObjective().generator_needs_real
    with pytest.raises(ValueError, match=r"pass real=.*, as many as there are samples"):
        objective.generator_terms(critic, FAKE)
    with pytest.raises(ValueError, match="real"):
        objective.generator_terms(critic, FAKE, real=REAL[:-1])


@pytest.mark.parametrize(
    ("step", "fraction"),
    [(0, 1.0), (25, 0.1 + 0.9 * 0.8535534), (50, 0.55), (100, 0.1), (200, 0.1)],
)
def test_the_weights_of_penalties_follow_half_a_cosine(step, fraction):
    objective = losses.GanObjective(
        penalty="r1,r2",
        penalty_weight=(5.0, 0.5),
        penalty_weight_end=0.1,
        penalty_decay_steps=100,
    )
    terms = objective.critic_terms(critic, REAL, FAKE, step=tf.constant(step, tf.int64), **DRAWN)
    expected = 5.0 * fraction * terms["penalty_r1"] + 0.5 * fraction * terms["penalty_r2"]
    np.testing.assert_allclose(terms["loss"] + terms["wasserstein"], expected, rtol=1e-4, atol=1e-5)
    alone = losses.GanObjective(penalty="r1").critic_terms(critic, REAL, FAKE, step=0, **DRAWN)
    np.testing.assert_allclose(terms["penalty_r1"], alone["penalty"], rtol=1e-5)  # unweighted


def test_only_weight_clipping_constrains_weights():
    for penalty in losses.PENALTIES:
        for given in (penalty, (penalty,), [penalty]):
            weight = tf.Variable([-3.0, 0.001])
            losses.GanObjective(penalty=given, clip_value=0.5).constrain([weight])
            clipped = -0.5 if penalty == "weight_clipping" else -3.0
            np.testing.assert_allclose(weight, [clipped, 0.001])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty_weight_end": 0.1}, "penalty_decay_steps must be positive, got 0"),
        ({"penalty_decay_steps": 0.5}, "penalty_decay_steps must be an int, got 0.5"),
        ({"penalty": "r3"}, "penalty='r3' is unknown: use one of two_sided, one_sided"),
        ({"penalty": "r1,none"}, "penalty='r1,none' is not a sum: combine different penalties"),
        ({"penalty": ("r1", "r1")}, "is not a sum: combine different penalties"),
        ({"penalty_weight": (1, 2)}, "has 2 numbers, but there are 1 penalties: give one number"),
        ({"penalty_weight": float("nan")}, "penalty_weight must be a number >= 0, got nan"),
        ({"adversarial_loss": "gan"}, "adversarial_loss='gan' is unknown: use one of wasserstein"),
        ({"penalty_weight": -1.0}, "penalty_weight must be a number >= 0, got -1.0"),
        ({"penalty_target": -1.0}, "penalty_target must be a number >= 0"),
        ({"drift_weight": float("nan")}, "drift_weight must be a number >= 0, got nan"),
        ({"generator_class_weight": -0.1}, "generator_class_weight must be a number"),
        ({"penalty_weight": "10"}, "penalty_weight must be a number >= 0, got '10'"),
        ({"penalty_interval": 0}, "penalty_interval must be positive"),
        ({"penalty_interval": 1.5}, "penalty_interval must be an int, got 1.5"),
        ({"clip_value": 0.0}, "clip_value must be positive"),
    ],
)
def test_invalid_objectives_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        losses.GanObjective(**options)


def test_critic_terms_require_matching_batches():
    for penalty in losses.PENALTIES:
        objective = losses.GanObjective(penalty=penalty)
        with pytest.raises(ValueError, match=r"real \(16, 5\) and fake \(14, 5\) must have"):
            objective.critic_terms(critic, REAL, FAKE[2:], step=0, **DRAWN)
        with pytest.raises(ValueError, match=r"one score per example, \(32,\), got \(5,\)"):
            objective.critic_terms(lambda x: tf.reduce_sum(x, 0), REAL, FAKE, step=0, **DRAWN)


@pytest.mark.parametrize("count", [1, 32])
def test_batches_of_unknown_size_are_compared_when_they_are_known(count):
    relativistic = losses.GanObjective(adversarial_loss="relativistic")
    unknown = [tf.TensorSpec([None, 5])]

    @functools.partial(tf.function, input_signature=unknown)
    def generator_loss(real):
        return relativistic.generator_terms(critic, FAKE, real=real)["loss"]

    @functools.partial(tf.function, input_signature=unknown)
    def difference(real):
        return losses.critic_loss(critic(real), critic(FAKE))

    @functools.partial(tf.function, input_signature=unknown)
    def mean(weights):
        return losses.weighted_global_mean(FAKE, weights)

    both = tf.function(lambda real, fake: losses.interpolate(real, fake, DRAWN["alpha"]))
    trace = both.get_concrete_function(*unknown, *unknown)

    few = tf.tile(REAL, [2, 1])[:count]
    for function in (generator_loss, difference, mean):
        assert function(tf.abs(REAL)).shape.rank in (0, 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected shape|same shape"):
            function(tf.abs(few))
    assert trace(REAL, FAKE).shape == REAL.shape
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the same shape"):
        trace(few, FAKE)


def test_values_for_a_batch_of_unknown_size_are_one_for_each_example():
    unknown = [tf.TensorSpec([None, 5]), tf.TensorSpec([None])]

    @functools.partial(tf.function, input_signature=unknown)
    def points(real, alpha):
        return losses.interpolate(real, real, alpha)

    @functools.partial(tf.function, input_signature=unknown)
    def scores(real, values):
        return losses.score(lambda x: values, real)

    for function, name in ((points, "alpha"), (scores, "scores")):
        assert function(REAL, DRAWN["alpha"]).shape[0] == len(REAL)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} must have shape"):
            function(REAL, DRAWN["alpha"][:1])


def test_points_of_unknown_rank_are_named():
    @functools.partial(tf.function, input_signature=[tf.TensorSpec(None)])
    def norm(points):
        return losses.gradient_norm(lambda x: tf.ensure_shape(x, [32, 5])[:, 0], points)

    with pytest.raises(ValueError, match=r"points has a shape of unknown rank: set it with"):
        norm(REAL)


def test_a_decaying_weight_has_the_precision_of_the_penalty():
    wide = losses.GanObjective(penalty_weight_end=0.1, penalty_decay_steps=10)
    real, fake = (tf.cast(each, tf.float64) for each in (REAL, FAKE))
    drawn = {name: tf.cast(each, tf.float64) for name, each in DRAWN.items()}
    found = wide.critic_terms(critic, real, fake, step=10, **drawn)["loss"]
    assert found.dtype == tf.float64
    expected = losses.GanObjective(penalty_weight=1.0).critic_terms(
        critic, real, fake, step=10, **drawn
    )["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("weight", [np.float32(3), np.int64(3), np.float64(3)])
def test_settings_may_be_numbers_of_numpy(weight):
    found = losses.GanObjective(penalty="r1,r2", penalty_weight=weight)
    expected = losses.GanObjective(penalty="r1,r2", penalty_weight=3.0)
    assert found.penalties == expected.penalties
    assert losses.GanObjective(penalty_target=weight, drift_weight=weight).drift_weight == 3
    assert losses.GanObjective(penalty_interval=np.int32(4)).penalty_interval == 4


@pytest.mark.parametrize("dtype", [tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64])
def test_labels_may_be_any_integers(dtype):
    logits = tf.random.stateless_normal([4, 3], [0, 0])
    labels = tf.constant([0, 2, 1, 1])
    expected = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    found = losses.auxiliary.classification_loss(logits, tf.cast(labels, dtype))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_list_of_one_output_is_the_scores():
    objective = losses.GanObjective()
    expected = objective.critic_terms(critic, REAL, FAKE, step=0, **DRAWN)
    for each in (lambda x: [critic(x)], lambda x: (critic(x),), lambda x: (critic(x), None)):
        found = objective.critic_terms(each, REAL, FAKE, step=0, **DRAWN)
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    ("count", "shape", "message"),
    [
        (3, [B, 1], "must be one tensor"),
        (0, [B, 1], "must be one tensor"),
        (2, [B, 1], "two outputs"),
        (2, [B, 4], "two outputs"),
        (2, [B], "two outputs"),
    ],
)
def test_several_scores_are_not_left_out(count, shape, message):
    def scales(x):
        return [tf.zeros([len(x), *shape[1:]]) + tf.reduce_sum(x)] * count

    with pytest.raises(ValueError, match=message):
        losses.GanObjective().critic_terms(scales, REAL, FAKE, step=0, **DRAWN)
    with pytest.raises(ValueError, match=message):
        losses.GanObjective().generator_terms(scales, FAKE)


def test_the_logits_of_one_class_are_no_scores():
    objective = losses.GanObjective(critic_class_weight=1.0)
    labels = tf.zeros([B], tf.int32)
    terms = objective.critic_terms(
        lambda x: (critic(x), x[:, :1]), REAL, FAKE, step=0, labels=labels, **DRAWN
    )
    np.testing.assert_array_equal(terms["classification"], np.zeros([B]))


@pytest.mark.parametrize("interval", [1, 2])
def test_float64_examples_may_have_float32_scores(interval):
    """Keras casts its inputs."""
    objective = losses.GanObjective(penalty_interval=interval, drift_weight=0.1)
    wide = [tf.cast(each, tf.float64) for each in (REAL, FAKE)]
    drawn = {**DRAWN, "noise": tf.cast(NOISE, tf.float64)}
    found = objective.critic_terms(
        lambda x: critic(tf.cast(x, tf.float32)), *wide, step=tf.constant(0), **drawn
    )
    expected = objective.critic_terms(critic, REAL, FAKE, step=tf.constant(0), **DRAWN)
    assert {term.dtype for term in found.values()} == {tf.float32}
    tf.nest.map_structure(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), found, expected
    )


def test_scores_of_unknown_rank_are_named():
    @tf.function
    def score(examples):
        return losses.score(lambda x: tf.py_function(critic, [x], tf.float32), examples)

    with pytest.raises(ValueError, match=r"unknown rank: set it with tf.ensure_shape"):
        score(REAL)


def test_half_precision_scores_are_subtracted_in_float32():
    """Tests scores whose small differences bfloat16 would round."""

    def half(x):
        return tf.cast(1000.0 + critic(x), tf.bfloat16)

    for name in ("wasserstein", "least_squares"):
        objective = losses.GanObjective(penalty="none", adversarial_loss=name)
        terms = objective.critic_terms(half, REAL, FAKE, step=0, **DRAWN)
        generator = objective.generator_terms(half, FAKE)
        assert {term.dtype for term in (*terms.values(), *generator.values())} == {tf.float32}
        real, fake = (tf.cast(tf.squeeze(half(x), 1), tf.float32) for x in (REAL, FAKE))
        np.testing.assert_array_equal(terms["wasserstein"], real - fake)


def test_class_weights_require_labels_and_logits():
    objective = losses.GanObjective(critic_class_weight=1.0, generator_class_weight=0.1)
    for network in (critic, two_headed):
        with pytest.raises(ValueError, match="require labels and a critic that returns"):
            objective.critic_terms(
                network,
                REAL,
                FAKE,
                step=0,
                labels=tf.zeros([B], tf.int32) if network is critic else None,
                **DRAWN,
            )
        with pytest.raises(ValueError, match="require labels"):
            objective.generator_terms(network, FAKE)
