"""Comparison of training steps with and without XLA, for all losses and networks.

A TPU runs only programs that XLA compiles. XLA fuses operations and changes the order of sums, so
results differ by some float32 rounding errors (6e-8) of the largest operand. A tolerance of 1e-5 of
the largest element allows for sums over some hundred elements, but not for a wrong term.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
from models.design import CONDITIONINGS, CRITIC_NORMALIZATIONS
from tests.losses.test_objectives import objective_with_all_terms
from wgan_gp.config import Config
from wgan_gp.data import pixels
from wgan_gp.training.networks import bind_labels

TOLERANCE = 1e-5
BATCH, LATENTS, CLASSES = 6, 5, 3
STEP = tf.constant(0, tf.int64)
LABELS = tf.constant([0, 2, 1, 1, 0, 2])


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def drawn(shape):
    """Returns the examples and the random numbers of `critic_terms`."""
    return {
        "real": normal(BATCH, *shape),
        "fake": normal(BATCH, *shape, seed=1),
        "alpha": tf.linspace(0.1, 0.9, BATCH),
        "noise": normal(BATCH, *shape, seed=2),
    }


def assert_xla_computes_the_same(compute, network, *, tolerance=TOLERANCE):
    """Compares the terms, the weight gradients and the updated weights.

    Args:
      compute: Returns the terms of a loss, including "loss".
      network: The model whose weights are trained.
      tolerance: The tolerance of each tensor, relative to its largest element.
    """

    def terms_and_gradients():
        with tf.GradientTape() as tape:
            terms = compute()
            total = tf.reduce_sum(terms["loss"])
        weights = network.trainable_variables
        gradients = tape.gradient(total, weights, unconnected_gradients="zero")
        return terms, [tf.convert_to_tensor(each) for each in gradients]  # IndexedSlices to dense

    before, results = network.get_weights(), []
    for jit_compile in (False, True):
        network.set_weights(before)
        terms, gradients = tf.function(terms_and_gradients, jit_compile=jit_compile)()
        results.append((terms, gradients, network.get_weights()))
    assert max(np.abs(gradient).max() for gradient in results[0][1]) > 1e-3
    plain, compiled = (tf.nest.flatten(each) for each in results)
    for ours, expected in zip(compiled, plain, strict=True):
        limit = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(ours, expected, rtol=0, atol=limit)


def slow_but(fast, cases):
    """Marks all cases except `fast` as slow, because each of them is a compilation."""
    return [pytest.param(*case, marks=[] if case in fast else pytest.mark.slow) for case in cases]


@pytest.mark.slow  # test_penalties.py and test_adversarial.py test the terms with XLA
@pytest.mark.parametrize(
    ("penalty", "adversarial_loss"),
    # The two losses are only added, so a test of every pair is unnecessary.
    zip(
        [*(name for name in losses.PENALTIES if name not in ("r1", "r2")), "r1,r2"],
        itertools.cycle(losses.ADVERSARIAL_LOSSES),
        strict=False,
    ),
)
def test_every_objective(penalty, adversarial_loss):
    objective = objective_with_all_terms(penalty, adversarial_loss, penalty_interval=2)
    _, critic = models.build(
        "mlp",
        (2,),
        LATENTS,
        16,
        model_depth=2,
        activation="tanh",
        classes=CLASSES,
        conditioning="acgan",
    )
    assert_xla_computes_the_same(
        lambda: objective.critic_terms(critic, **drawn([2]), step=STEP, labels=LABELS), critic
    )


# The normalization and the head do not interact, except that the kernels of a head are normalized
# spectrally, too.
CRITICS = [
    *zip(itertools.repeat("dcgan"), CRITIC_NORMALIZATIONS, itertools.cycle(CONDITIONINGS)),
    *zip(itertools.repeat("mlp"), itertools.repeat("spectral"), CONDITIONINGS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "normalization", "conditioning"), CRITICS)
def test_every_critic(name, normalization, conditioning):
    """Compares scores, penalty, weight gradients and the state of spectral normalization."""
    shape = (8, 8, 1)
    _, critic = models.build(
        name,
        shape,
        LATENTS,
        8,
        model_depth=2,
        activation="tanh",
        classes=CLASSES if conditioning != "none" else 0,
        conditioning=conditioning,
        critic_normalization=normalization,
    )
    weight = float(conditioning == "acgan")
    objective = losses.GanObjective(critic_class_weight=weight)
    labels = LABELS if conditioning in models.LABELED_CRITICS else None
    assert_xla_computes_the_same(
        lambda: objective.critic_terms(
            bind_labels(critic, labels, training=True), **drawn(shape), step=STEP, labels=LABELS
        ),
        critic,
    )


@pytest.mark.parametrize(
    ("normalization", "classes"),
    slow_but(
        [("batch", CLASSES)], [("batch", 0), ("batch", CLASSES), ("film", CLASSES), ("none", 0)]
    ),
)
def test_every_generator(normalization, classes):
    """Compares the loss, the weight gradients and the accumulated moments."""
    conditioning = "projection" if classes else "none"
    generator, critic = models.build(
        "dcgan",
        (8, 8, 1),
        LATENTS,
        8,
        activation="tanh",
        classes=classes,
        conditioning=conditioning,
        generator_normalization=normalization,
    )
    latents = normal(BATCH, LATENTS)
    labels = LABELS if classes else None

    def terms():
        fake = bind_labels(generator, labels, training=True)(latents)
        scores = bind_labels(critic, labels, training=True)
        return losses.GanObjective().generator_terms(scores, fake)

    assert_xla_computes_the_same(terms, generator)


@pytest.mark.parametrize("dequantization", [True, False])
@pytest.mark.parametrize("random_flips", [True, False])
def test_images_are_normalized_alike_on_the_host_and_in_a_program(dequantization, random_flips):
    """A run therefore trains on the same examples wherever they are normalized."""
    config = Config(dequantization=dequantization, random_flips=random_flips)
    levels = tf.reshape(tf.cast(tf.range(4 * 16 * 16 * 3) % 256, tf.uint8), [4, 16, 16, 3])
    first = tf.constant(2**33 + 5, tf.int64)

    def normalize(levels, first):
        return pixels.normalize(config, levels, first)

    compiled = tf.function(normalize, jit_compile=True)
    expected = normalize(levels, first).numpy()
    if not (dequantization or random_flips):
        scaled = levels.numpy().astype(np.float64) / 127.5 - 1
        np.testing.assert_allclose(expected, scaled, atol=2**-25)  # rounded once
        assert (expected.min(), expected.max()) == (-1, 1)
    np.testing.assert_array_equal(compiled(levels, first), expected)
    # The host would send a captured tensor to the device with every launch.
    assert compiled.get_concrete_function(levels, first).captured_inputs == []
