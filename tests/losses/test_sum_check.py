"""losses.check_penalty on weighted sums of penalties."""

import pytest
import tensorflow as tf

import losses
from tests.helpers.runs import strategy_over

PARTS = {"r1": 5.0, "r2": 0.5}
WITH_INTERPOLATES = {"r1": 5.0, "two_sided": 2.0}


def of_objective(parts, **settings):
    objective = losses.GanObjective(
        penalty=tuple(parts), penalty_weight=tuple(parts.values()), **settings
    )

    def penalty(critic, real, fake):
        count = real.shape[0]
        terms = objective.critic_terms(
            critic,
            real,
            fake,
            alpha=tf.random.uniform([count]),
            noise=tf.random.normal(real.shape),
            step=0,
        )
        return tf.add_n([parts[name] * terms[f"penalty_{name}"] for name in parts])

    return penalty


def found(penalty, **options):
    return {finding.name: finding for finding in losses.check_penalty(penalty, **options)}


@pytest.mark.parametrize(
    "parts",
    [PARTS, WITH_INTERPOLATES, {"zero_centred": 1.0, "r2": 3.0}, {"one_sided": 1.0, "r1": 1.0}],
    ids=str,
)
def test_correct_sums_have_no_findings(parts):
    assert losses.check_penalty(of_objective(parts), parts=parts) == []


@pytest.mark.slow
def test_a_correct_sum_on_two_replicas_has_no_findings():
    parts, strategy = PARTS, strategy_over(2)
    assert losses.check_penalty(of_objective(parts), parts=parts, strategy=strategy) == []

    def share_of_replica(critic, real, fake):
        return tf.reduce_mean(of_objective(parts)(critic, real, fake))

    names = found(share_of_replica, parts=parts, strategy=strategy)
    assert set(names) == {"mean_per_replica"}


@pytest.mark.parametrize(
    ("used", "correct", "message"),
    [
        ({"r1": 5.0, "r2": 5.0}, PARTS, "those of 5 r1 + 5 r2 (correct: 5 r1 + 0.5 r2)"),
        ({"r1": 0.5, "r2": 5.0}, PARTS, "those of 0.5 r1 + 5 r2 (correct: 5 r1 + 0.5 r2)"),
        ({"r1": 5.0, "zero_centred": 0.5}, PARTS, "5 r1 + 0.5 zero_centred (correct"),
        ({"r1": 5.0, "one_sided": 2.0}, WITH_INTERPOLATES, "5 r1 + 2 one_sided (correct"),
    ],
    ids=str,
)
def test_wrong_weights_are_named(used, correct, message):
    findings = found(of_objective(used), parts=correct)
    assert findings["wrong_weights"].fatal
    assert message in str(findings["wrong_weights"])


def test_a_missing_part_is_named():
    def only_r1(critic, real, fake):
        return 5.0 * losses.r1_penalty(critic, real)

    findings = found(only_r1, parts=PARTS)
    assert "those of 5 r1 (correct: 5 r1 + 0.5 r2)" in str(findings["wrong_weights"])


def test_mistakes_of_one_part_are_found():
    correct = of_objective(PARTS)

    def unrooted(critic, real, fake):
        norm = losses.gradient_norm(critic, real)
        return 5.0 * norm**4 + 0.5 * losses.r2_penalty(critic, fake)

    def stopped(critic, real, fake):
        return (
            correct(critic, real, fake)
            - losses.r1_penalty(critic, real)
            + tf.stop_gradient(losses.r1_penalty(critic, real))
        )

    def attached(critic, real, fake):
        norm = losses.gradient_norm(critic, fake)
        return 5.0 * losses.r1_penalty(critic, real) + 0.5 * norm**2

    def nan_at_zero(critic, real, fake):
        points = losses.interpolate(real, fake, tf.random.uniform([real.shape[0]]))
        with tf.GradientTape() as tape:
            tape.watch(points)
            scores = critic(points)
        norm = tf.sqrt(tf.reduce_sum(tape.gradient(scores, points) ** 2, axis=[1, 2, 3]))
        return 5.0 * losses.r1_penalty(critic, real) + 2.0 * (norm - 1.0) ** 2

    def raising(critic, real, fake):
        raise RuntimeError("of one's own")

    assert "check each penalty alone" in str(found(unrooted, parts=PARTS)["wrong_value"])
    assert "wrong_weight_gradient" in found(stopped, parts=PARTS)
    assert "fake_not_detached" in found(attached, parts=PARTS)
    assert "sqrt_at_zero" in found(nan_at_zero, parts=WITH_INTERPOLATES)
    assert "of one's own" in str(found(raising, parts=PARTS)["raises"])


def test_alphas_of_a_sum_are_checked():
    def one_alpha(critic, real, fake):
        alpha = tf.fill([real.shape[0]], tf.random.uniform([]))
        penalty = losses.gradient_penalty(critic, real, fake, alpha=alpha)
        return 5.0 * losses.r1_penalty(critic, real) + 2.0 * penalty

    assert "alpha_per_batch" in found(one_alpha, parts=WITH_INTERPOLATES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": {"dragan": 1.0}}, "parts has dragan, which cannot be checked: use r1, r2"),
        ({"parts": {"r1": 0.0}}, "the weights of parts must be > 0"),
        ({"parts": {}}, "without weight and one_sided"),
        ({"parts": PARTS, "weight": 2.0}, "without weight and one_sided"),
    ],
    ids=str,
)
def test_specifications_that_cannot_be_checked_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        losses.check_penalty(of_objective(PARTS), **options)
