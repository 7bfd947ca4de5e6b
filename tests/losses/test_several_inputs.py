"""Critics of several inputs: every loss and penalty against plain loops in float64.

The critic is D(a, b) = v . tanh(A a + B b), whose gradient by (a, b) is known.
"""

import numpy as np
import pytest
import tensorflow as tf

import losses
from tests.helpers.runs import strategy_over

B = 6
RNG = np.random.default_rng(3)
WEIGHTS = [RNG.standard_normal(shape) * 0.7 for shape in ([5, 3], [5, 4], [5])]
REAL, FAKE, NOISE = (
    {"a": RNG.standard_normal([B, 3]), "b": RNG.standard_normal([B, 2, 2])} for _ in range(3)
)
ALPHA = RNG.uniform(size=[B])
POINTS = {
    "r1": lambda real, fake, alpha, noise: real,
    "r2": lambda real, fake, alpha, noise: fake,
    "dragan": lambda real, fake, alpha, noise: real + 0.25 * noise,
}


class Critic:
    def __init__(self):
        self.variables = [tf.Variable(each) for each in WEIGHTS]

    def __call__(self, inputs):
        by_a, by_b, v = self.variables
        a, b = inputs["a"], tf.reshape(inputs["b"], [-1, 4])
        hidden = tf.matmul(a, by_a, transpose_b=True) + tf.matmul(b, by_b, transpose_b=True)
        return tf.linalg.matvec(tf.tanh(hidden), v)


def score_and_norm(weights, a, b):
    """Returns the score of one example, and the norm of its gradient over both inputs."""
    by_a, by_b, v = weights
    hidden = np.tanh(by_a @ a + by_b @ b.reshape(4))
    slopes = v * (1 - hidden**2)
    squares = 0.0
    for each in [*(by_a.T @ slopes), *(by_b.T @ slopes)]:
        squares += each**2
    return v @ hidden, squares**0.5


def softplus(x):
    return np.log1p(np.exp(x))


CRITIC_LOSSES = {
    "wasserstein": lambda real, fake: fake - real,
    "logistic": lambda real, fake: softplus(-real) + softplus(fake),
    "hinge": lambda real, fake: max(0, 1 - real) + max(0, 1 + fake),
    "least_squares": lambda real, fake: ((real - 1) ** 2 + fake**2) / 2,
    "relativistic": lambda real, fake: softplus(fake - real),
}
GENERATOR_LOSSES = {
    "wasserstein": lambda real, fake: -fake,
    "logistic": lambda real, fake: softplus(-fake),
    "hinge": lambda real, fake: -fake,
    "least_squares": lambda real, fake: (fake - 1) ** 2 / 2,
    "relativistic": lambda real, fake: softplus(real - fake),
}
PENALTIES = {
    "two_sided": lambda norm: (norm - 1) ** 2,
    "one_sided": lambda norm: max(0, norm - 1) ** 2,
    "zero_centered": lambda norm: norm**2,
    "r1": lambda norm: norm**2,
    "r2": lambda norm: norm**2,
    "dragan": lambda norm: (norm - 1) ** 2,
    "weight_clipping": lambda norm: 0.0,
    "none": lambda norm: 0.0,
}


def expected_losses(weights, loss, penalty):
    """Returns the critic's losses and the generator's, `[B]` each, one example at a time."""

    def between(real, fake, alpha, noise):
        return real + alpha * (fake - real)

    of_critic, of_generator = [], []
    for i in range(B):
        point = {
            key: POINTS.get(penalty, between)(REAL[key][i], FAKE[key][i], ALPHA[i], NOISE[key][i])
            for key in "ab"
        }
        real, _ = score_and_norm(weights, REAL["a"][i], REAL["b"][i])
        fake, _ = score_and_norm(weights, FAKE["a"][i], FAKE["b"][i])
        _, norm = score_and_norm(weights, point["a"], point["b"])
        of_critic.append(CRITIC_LOSSES[loss](real, fake) + 10 * PENALTIES[penalty](norm))
        of_generator.append(GENERATOR_LOSSES[loss](real, fake))
    return np.array([of_critic, of_generator])


def expected_gradients(loss, penalty):
    """Returns central differences of the mean losses, by each weight of the critic."""
    gradients = [np.zeros([2, *each.shape]) for each in WEIGHTS]
    for gradient, weight in zip(gradients, WEIGHTS, strict=True):
        for index in np.ndindex(weight.shape):
            saved, moved = weight[index], []
            for step in (1e-6, -1e-6):
                weight[index] = saved + step
                moved.append(expected_losses(WEIGHTS, loss, penalty).mean(axis=1))
            weight[index] = saved
            gradient[(slice(None), *index)] = (moved[0] - moved[1]) / 2e-6
    return gradients


def test_every_loss_and_penalty_is_compared():
    assert set(CRITIC_LOSSES) == set(GENERATOR_LOSSES) == set(losses.ADVERSARIAL_LOSSES)
    assert set(PENALTIES) == set(losses.PENALTIES)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        *((loss, "two_sided") for loss in CRITIC_LOSSES),
        *(("wasserstein", penalty) for penalty in PENALTIES if penalty != "two_sided"),
        ("relativistic", "r1"),
    ],
)
def test_values_and_gradients_are_those_of_plain_loops(loss, penalty, replicas):
    strategy, objective = (
        strategy_over(replicas),
        losses.GanObjective(adversarial_loss=loss, penalty=penalty),
    )
    with strategy.scope():
        critic = Critic()
    share = B // replicas

    def local(values):
        def of_replica(context):
            first = context.replica_id_in_sync_group * share
            return tf.nest.map_structure(lambda each: each[first : first + share], values)

        return strategy.experimental_distribute_values_from_function(of_replica)

    def step(real, fake, noise, alpha):
        with tf.GradientTape(persistent=True) as tape:
            terms = objective.critic_terms(critic, real, fake, alpha=alpha, noise=noise, step=0)
            of_generator = objective.generator_terms(critic, fake, real=real)
            both = [losses.global_mean(each["loss"], B) for each in (terms, of_generator)]
        gradients = [tape.gradient(each, critic.variables) for each in both]
        return terms["loss"], of_generator["loss"], gradients

    found = strategy.run(tf.function(step), args=tuple(map(local, (REAL, FAKE, NOISE, ALPHA))))
    values = [np.concatenate(strategy.experimental_local_results(each)) for each in found[:2]]
    np.testing.assert_allclose(values, expected_losses(WEIGHTS, loss, penalty), rtol=1e-9)
    gradients = losses.reduce_over_replicas(strategy, found[2])
    for index, expected in enumerate(expected_gradients(loss, penalty)):
        for which in range(2):
            np.testing.assert_allclose(
                gradients[which][index], expected[which], rtol=1e-6, atol=1e-7
            )


def linear(inputs):
    """A critic with the gradient 2 by each of 3 elements, and 1 by each of 4 elements."""
    a, b = tf.nest.flatten(inputs)
    return 2.0 * tf.reduce_sum(a, axis=1) + tf.reduce_sum(b, axis=[1, 2])


@pytest.mark.parametrize("structure", [list, tuple, lambda each: {"x": each[0], "y": [each[1]]}])
def test_penalties_are_over_all_inputs_of_any_structure(structure, compute):
    a, b = tf.ones([2, 3]), tf.ones([2, 2, 2])  # as many examples as inputs
    inputs = structure([a, b])
    norm = 16**0.5  # 3 x 2^2 + 4 x 1^2

    def values():
        return [
            losses.gradient_norm(linear, inputs),
            losses.r1_penalty(linear, inputs),
            losses.r2_penalty(linear, inputs),
            losses.gradient_penalty(linear, inputs, structure([-a, -b])),
            losses.penalties.dragan_penalty(linear, inputs, seed=[1, 2]),
        ]

    for value, expected in zip(compute(values)(), [norm, norm**2, norm**2, 9.0, 9.0], strict=True):
        np.testing.assert_allclose(value, [expected, expected], rtol=1e-6)


def test_all_inputs_of_an_example_share_alpha_and_have_noise_of_their_own():
    zeros, ones = ((f([4, 3]), f([4, 3])) for f in (tf.zeros, tf.ones))
    seen = []

    def critic(inputs):
        seen.append([each.numpy() for each in inputs])
        return tf.reduce_sum(inputs[0] + inputs[1], axis=1)

    losses.gradient_penalty(critic, zeros, [*ones], seed=[1, 2])
    losses.penalties.dragan_penalty(critic, zeros, seed=[1, 2])
    (first, second), (noise, other) = seen
    np.testing.assert_array_equal(first, second)
    assert (np.ptp(first, axis=1) == 0).all() and len(set(first[:, 0])) == 4
    assert (noise != other).all()


def test_an_input_that_the_critic_ignores_has_no_part_in_the_norm():
    norm = losses.gradient_norm(lambda x: 3.0 * x[0][:, 0], (tf.ones([2, 1]), tf.ones([2, 5])))
    np.testing.assert_array_equal(norm, [3.0, 3.0])


def test_a_critic_of_several_inputs_can_be_checked():
    inputs = [tf.constant(REAL["a"]), tf.constant(REAL["b"])]
    critic = Critic()
    assert losses.check_critic(lambda x: critic({"a": x[0], "b": x[1]}), inputs) == []
    found = losses.check_critic(lambda x: linear([x[0], x[1] - tf.reduce_mean(x[1])]), inputs)
    assert [each.name for each in found if each.fatal] == ["coupled_examples"]


A, WIDE = tf.zeros([4, 2]), tf.zeros([4, 3])
SCALES = [tf.zeros([4, 1]), tf.zeros([4, 1])]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses.gradient_penalty(linear, [A, WIDE], [A]), "same structure"),
        (lambda: losses.gradient_penalty(linear, [A, WIDE], {"x": A, "y": WIDE}), "same structure"),
        (lambda: losses.gradient_penalty(linear, {"x": A}, {"y": A}), "same structure"),
        (lambda: losses.gradient_penalty(linear, [A, WIDE], [WIDE, A]), "same shape"),
        (lambda: losses.gradient_penalty(linear, [A, WIDE], A), "same structure"),
        (lambda: losses.r1_penalty(linear, [A, WIDE[:3]]), "same number of examples"),
        (lambda: losses.r1_penalty(linear, [A, tf.zeros([4], tf.int32)]), "floating-point"),
        (lambda: losses.r1_penalty(linear, [A, tf.zeros([])]), "axis of examples"),
        (lambda: losses.r1_penalty(linear, []), "must contain a tensor"),
        (lambda: losses.r1_penalty(linear, tf.ragged.constant([[1.0], []])), "RaggedTensor"),
        (lambda: losses.r1_penalty(linear, [A, tf.sparse.from_dense(A)]), "SparseTensor"),
        (lambda: losses.r1_penalty(linear, [A, None]), "NoneType"),
        (lambda: losses.r1_penalty(lambda x: tf.zeros([4]), [A, WIDE]), "do not depend on"),
        (lambda: losses.penalties.dragan_penalty(linear, [A, WIDE], noise=[A]), "same structure"),
        (lambda: losses.interpolate([A, WIDE], [A, WIDE], tf.zeros([3])), "alpha must have"),
        # Several scores of an example are one rule everywhere.
        (lambda: losses.r1_penalty(lambda x: [x[:, :1], x[:, 1:]], A), "one tensor"),
        (lambda: losses.r1_penalty(lambda x: {"u": x[:, :1], "v": x[:, 1:]}, A), "one tensor"),
        (lambda: losses.critic_loss(SCALES, SCALES), "one tensor"),
        (lambda: losses.critic_loss([A, WIDE], [A, WIDE]), "one tensor"),
        (lambda: losses.generator_loss({"u": A, "v": A}), "one tensor"),
        (lambda: losses.adversarial.hinge_critic_loss(tuple(SCALES), tuple(SCALES)), "one tensor"),
        (lambda: losses.adversarial.relativistic_generator_loss(SCALES, SCALES), "one tensor"),
        (lambda: losses.auxiliary.drift(SCALES), "one tensor"),
        (lambda: losses.score(lambda x: SCALES, A), "one tensor"),
        (lambda: losses.generator_loss(tf.ragged.constant([[1.0], []])), "RaggedTensor"),
        (lambda: losses.GanObjective().generator_terms(lambda x: SCALES, A), "two outputs"),
    ],
)
def test_what_is_not_one_batch_of_examples_or_scores_is_named_in_one_line(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_lists_of_numbers_are_one_tensor():
    np.testing.assert_array_equal(losses.critic_loss([1.0, 2.0], [4.0, 8.0]), [3.0, 6.0])
    critic = lambda x: 3.0 * x[:, 0] + 4.0 * x[:, 1]  # noqa: E731
    np.testing.assert_array_equal(losses.r1_penalty(critic, [[1.0, 2.0]]), [25.0])


def test_one_score_in_a_list_or_dictionary_is_that_score():
    scores = tf.constant([[1.0], [2.0]])
    for each in ([scores], (scores,), {"score": scores}):
        np.testing.assert_array_equal(losses.generator_loss(each), [-1.0, -2.0])
        np.testing.assert_array_equal(losses.score(lambda x, y=each: y, scores), [1.0, 2.0])
