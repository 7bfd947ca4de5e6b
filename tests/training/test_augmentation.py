"""Augmentation: the transformations, what the critic sees, ada's probability."""

import dataclasses
import functools

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf

import losses
from tests.helpers.runs import (
    TINY,
    call_main,
    device_loops,
    make_replica_step,
    make_state,
    open_data,
    strategy_over,
    train_tiny,
)
from wgan_gp.app import training
from wgan_gp.config import Config
from wgan_gp.data.feed import distributed_batches
from wgan_gp.errors import UserError
from wgan_gp.runtime.randomness import RngStream, uniform
from wgan_gp.training import ada
from wgan_gp.training.augmentation import (
    DRAWS,
    Parameters,
    parameters_from,
    transform,
)
from wgan_gp.training.hooks import LoopResult
from wgan_gp.training.probe import diagnose_critic

ALL = ("color", "translation", "cutout")
DIGITS = Config(**{**TINY, "dataset": "digits", "batch_size": 8, "n_critic": 1})
IMAGES = tf.random.stateless_uniform([6, 8, 16, 3], [0, 0], -1.0, 1.0)
LARGEST_DRAW = 1 - 2.0**-24


def draws(count=6, seed=0):
    return uniform(seed, RngStream.CRITIC_AUGMENTATION, step=0, first=0, count=count, size=DRAWS)


def reference(image, parameters, row):
    """The transformations of DiffAugment's code for one example, in NumPy."""
    image = np.array(image) + parameters.brightness[row].numpy()
    if image.shape[-1] == 3:
        gray = image.mean(axis=-1, keepdims=True)
        image = gray + parameters.saturation[row].numpy() * (image - gray)
    image = image.mean() + parameters.contrast[row].numpy() * (image - image.mean())
    for axis, shifts in enumerate(parameters.shifts):
        largest = round(image.shape[axis] / 8)
        padded = np.pad(
            image, [(largest, largest) if a == axis else (0, 0) for a in range(image.ndim)]
        )
        positions = np.arange(image.shape[axis]) + int(shifts[row])
        image = padded.take(positions, axis=axis)
    area = np.ones(image.shape, bool)
    for axis, starts in enumerate(parameters.cuts):
        side, start = image.shape[axis], int(starts[row])
        inside = np.isin(np.arange(side), np.arange(start, start + side // 2))
        area &= np.expand_dims(inside, tuple(a for a in range(image.ndim) if a != axis))
    return np.where(area, 0, image)


@pytest.mark.parametrize("shape", [(8, 16, 3), (8, 8, 1), (16, 8, 5), (24, 2)], ids=str)
def test_transformations_are_those_of_a_loop_over_examples(shape):
    examples = tf.random.stateless_uniform([40, *shape], [0, 1], -1.0, 1.0)
    parameters = parameters_from(draws(40), shape, ALL)
    transformed = transform(examples, parameters).numpy()
    for row in range(40):
        expected = reference(examples[row], parameters, row)
        np.testing.assert_allclose(transformed[row], expected, atol=1e-5)


def test_the_ranges_of_all_parameters():
    extremes = tf.constant([[0.0] * DRAWS, [LARGEST_DRAW] * DRAWS])
    # 17 and 25 shifts: the product of the largest draw is rounded up.
    parameters = parameters_from(extremes, (64, 96, 3), ALL)
    np.testing.assert_allclose(parameters.brightness, [-0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(parameters.saturation, [0, 2], atol=1e-6)
    np.testing.assert_allclose(parameters.contrast, [0.5, 1.5], atol=1e-6)
    np.testing.assert_array_equal(parameters.shifts, [[0, 16], [0, 24]])
    np.testing.assert_array_equal(parameters.cuts, [[-16, 48], [-24, 72]])
    many = parameters_from(draws(20_000), (8, 8, 1), ALL)
    for shifts in many.shifts:
        np.testing.assert_allclose(np.bincount(shifts) / 20_000, 1 / 3, atol=0.015)
    for starts in many.cuts:
        np.testing.assert_allclose(np.bincount(starts + 2) / 20_000, 1 / 9, atol=0.01)


def test_a_policy_selects_transformations():
    assert parameters_from(draws(), (8, 8, 1), ()) == Parameters()
    parameters = parameters_from(draws(), (8, 8, 1), ("translation",))
    assert parameters.brightness is None and parameters.cuts is None
    assert len(parameters.shifts) == 2


def test_each_transformation_has_the_probability():
    count = 5000
    examples = tf.random.stateless_uniform([count, 8, 8, 3], [0, 0], -1.0, 1.0)
    for probability, share in ((0.0, 0.0), (0.3, 0.3), (1.0, 1.0)):
        parameters = parameters_from(draws(count), (8, 8, 3), ALL, tf.constant(probability))
        chosen = {
            "brightness": parameters.brightness != 0.0,
            "saturation": parameters.saturation != 1.0,
            "contrast": parameters.contrast != 1.0,
            "cutout": parameters.cuts[0] > -8,
        }
        for name, each in chosen.items():
            assert np.mean(each) == pytest.approx(share, abs=0.03), name
        # A third of the shifts along an axis is 0.
        moved = np.mean(parameters.shifts[0] != 1)
        assert moved == pytest.approx(2 / 3 * share, abs=0.03)
        if not probability:
            np.testing.assert_allclose(transform(examples, parameters), examples, atol=1e-6)
    everything = parameters_from(draws(), (8, 16, 3), ALL)
    np.testing.assert_array_equal(
        transform(IMAGES, everything),
        transform(IMAGES, parameters_from(draws(), (8, 16, 3), ALL, tf.constant(1.0))),
    )


def test_a_point_between_two_transformed_examples_is_the_transformed_point():
    parameters = parameters_from(draws(), IMAGES.shape[1:], ALL)
    others = tf.reverse(IMAGES, [0])
    alpha = tf.reshape(tf.linspace(0.0, 1.0, 6), [6, 1, 1, 1])
    between = transform(IMAGES + alpha * (others - IMAGES), parameters)
    ends = transform(IMAGES, parameters), transform(others, parameters)
    np.testing.assert_allclose(between, ends[0] + alpha * (ends[1] - ends[0]), atol=1e-5)


def second_order(compute, *policy):
    """The gradients of |dD/dx|^2 in c and in x for D(x) = c |T x|^2 / 2 and c = 3; and T x."""
    weight = tf.Variable(3.0)

    @compute
    def differentiate(images):
        parameters = parameters_from(draws(), images.shape[1:], policy)
        with tf.GradientTape() as outer:
            outer.watch(images)
            with tf.GradientTape() as inner:
                inner.watch(images)
                transformed = transform(images, parameters)
                scores = weight * tf.reduce_sum(tf.square(transformed)) / 2
            square = tf.reduce_sum(tf.square(inner.gradient(scores, images)))
        return *outer.gradient(square, [weight, images]), transformed

    return differentiate(IMAGES)


@pytest.mark.slow
def test_transformations_are_differentiable_twice(compute):
    """dD/dx is c T'T x, of norm c |T x| if T'T is a projection."""
    gradient, _, transformed = second_order(compute, "translation", "cutout")
    square = tf.reduce_sum(tf.square(transformed))
    np.testing.assert_allclose(gradient, 2 * 3.0 * square, rtol=1e-5)
    assert 0 < float(square) < float(tf.reduce_sum(tf.square(IMAGES)))


def test_colors_are_differentiable_twice(compute):
    """dD/dx is c A y for T x = A x + b = y, so the gradient of |dD/dx|^2 in x is 2 c^2 A^3 y.

    A scales three orthogonal parts of an image: its mean, the difference of gray from the mean, and
    the difference of the image from gray.
    """
    gradient, of_images, transformed = map(np.array, second_order(compute, "color"))
    parameters = parameters_from(draws(), IMAGES.shape[1:], ("color",))
    contrast, saturation = (
        np.reshape(each, [6, 1, 1, 1]) for each in (parameters.contrast, parameters.saturation)
    )
    mean, gray = (transformed.mean(axis, keepdims=True) for axis in ((1, 2, 3), 3))
    parts = np.broadcast_arrays(mean, gray - mean, transformed - gray)
    scaled = list(zip((1.0, contrast, contrast * saturation), parts, strict=True))
    expected = sum(np.sum((scale * part) ** 2) for scale, part in scaled)
    np.testing.assert_allclose(gradient, 2 * 3.0 * expected, rtol=1e-5)
    expected = 2 * 3.0**2 * sum(scale**3 * part for scale, part in scaled)
    np.testing.assert_allclose(of_images, expected, rtol=1e-4, atol=1e-4)
    assert min(np.abs(part).max() for part in parts) > 0.1


class Shown:
    """An objective that keeps the examples it is given."""

    critic_term_names = generator_term_names = ("loss",)

    def __init__(self):
        self.pairs, self.generated = [], []

    def critic_terms(self, critic, real, fake, **inputs):
        self.pairs.append((real, fake))
        return {"loss": 0.0 * tf.reshape(critic(fake), [-1])}

    def generator_terms(self, critic, fake, **inputs):
        self.generated.append(fake)
        return {"loss": 0.0 * tf.reshape(critic(fake), [-1])}

    def constrain(self, weights): ...


def untrained_step(config, **parts):
    """A step that leaves the weights as they are, and its first batch."""
    state = make_state(config, strategy_over(1))
    for optimizer in (state.critic_optimizer, state.generator_optimizer):
        optimizer.apply_gradients = list
    step = make_replica_step(config, dataclasses.replace(state, **parts))
    return step, next(distributed_batches(open_data(config), strategy_over(1), 0, batch_size=8))


def shown_to_the_critic(augment):
    step, (real, labels) = untrained_step(dataclasses.replace(DIGITS, augment=augment))
    shown = Shown()
    step = dataclasses.replace(step, objective=shown)
    step.critic_step(real, labels, tf.constant(5, tf.int64), rollbacks=1)
    step.generator_step(tf.constant(3, tf.int64), rollbacks=1)
    diagnose_critic(step, real, labels)
    return shown


def test_real_and_fake_examples_are_transformed_with_the_same_parameters():
    plain, shown = shown_to_the_critic("none"), shown_to_the_critic("diffaugment")

    def expected(examples, stream, update):
        step = tf.constant(update + 2**40, tf.int64)  # of the first rollback
        values = uniform(0, stream, step=step, first=0, count=8, size=DRAWS)
        return transform(examples, parameters_from(values, (8, 8, 1), ALL))

    trained, probed = plain.pairs, shown.pairs[1]
    for ours, theirs in zip(shown.pairs[0], trained[0], strict=True):
        wanted = expected(theirs, RngStream.CRITIC_AUGMENTATION, 5)
        assert np.abs(wanted - theirs).max() > 0.1
        np.testing.assert_allclose(ours, wanted, atol=1e-6)
    wanted = expected(plain.generated[0], RngStream.GENERATOR_AUGMENTATION, 3)
    np.testing.assert_allclose(shown.generated[0], wanted, atol=1e-6)
    for ours, theirs in zip(probed, trained[1], strict=True):  # the probe does not transform
        np.testing.assert_array_equal(ours, theirs)


def linear_critic(slope):
    """D(x) = w.x with |w| = slope."""
    critic = tf.keras.Sequential(
        [
            tf.keras.layers.Input([8, 8, 1]),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(1, use_bias=False),
        ]
    )
    signs = np.where(np.arange(64) % 3, 1.0, -1.0)[:, None]
    critic.set_weights([slope * signs / 8])
    return critic


def test_the_penalty_takes_the_gradient_at_the_transformed_points():
    """The slope of a linear critic is 3 there, but 3 |T'w| with respect to the original points."""
    config = dataclasses.replace(DIGITS, augment="diffaugment")
    step, (real, labels) = untrained_step(config, critic=linear_critic(3.0))
    terms = step.critic_step(real, labels, tf.constant(0, tf.int64))
    assert float(terms["gradient_norm"]) == pytest.approx(3.0, rel=1e-5)
    assert float(terms["penalty"]) == pytest.approx(4.0, rel=1e-5)


@pytest.fixture(scope="module")
def few_digits(tmp_path_factory):
    """Settings of a run on 16 digits, with held-out examples that a critic soon tells apart."""
    folder = tmp_path_factory.mktemp("digits")
    images = sklearn.datasets.load_digits().images[..., None].astype(np.uint8)
    np.save(folder / "few.npy", images[:16])
    np.save(folder / "others.npy", 16 - images[16:116])
    return {
        "dataset": "array",
        "data_dir": str(folder / "few.npy"),
        "test_data_dir": str(folder / "others.npy"),
        "model": "mlp",
        "learning_rate_schedule": "constant",
        "sample_interval": 0,
    }


ADA = {
    "augment": "ada",
    "critic_learning_rate": 3e-3,  # so that the critic overfits at once
}


@pytest.fixture
def quick_ada(monkeypatch):
    """Changes the probability every 5 iterations, by more."""
    quick = functools.partial(ada.AdaHook, interval=5, range_images=1000, target=0.0)
    monkeypatch.setattr(training, "AdaHook", quick)


def variables_of(run):
    state = run.state
    parts = (state.critic, state.generator, state.critic_optimizer, state.generator_optimizer)
    return [
        *(np.array(tf.convert_to_tensor(each)) for part in parts for each in part.variables),
        *([] if state.augment_probability is None else [state.augment_probability.numpy()]),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_ada")
def test_a_run_resumed_in_the_device_loop_continues_exactly(few_digits, tmp_path):
    """At 12 iterations, between two updates of ada's probability."""
    settings = {**few_digits, "steps_per_loop": 1, "summary_interval": 10, **ADA}
    whole, _ = train_tiny(tmp_path / "whole", train_steps=17, **settings)
    with device_loops():
        first, _ = train_tiny(tmp_path / "halves", train_steps=12, **settings)
        halves, writer = train_tiny(tmp_path / "halves", train_steps=17, **settings)
    for ours, theirs in zip(variables_of(halves), variables_of(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before, after = (run.state.augment_probability.numpy() for run in (first, halves))
    assert 0 < before < after == np.float32(writer.summaries[-1][1]["augment/probability"])


@pytest.mark.slow
@pytest.mark.usefixtures("quick_ada")
def test_ada_on_two_replicas_is_that_on_one(few_digits, tmp_path):
    runs = {
        replicas: train_tiny(
            tmp_path / str(replicas), cpu_replicas=replicas, train_steps=10, **few_digits, **ADA
        )[0]
        for replicas in (1, 2)
    }
    probability = float(runs[1].state.augment_probability)
    assert probability > 0
    for replicas, run in runs.items():
        strategy, variable = run.devices.strategy, run.state.augment_probability
        on_each = strategy.experimental_local_results(variable)
        assert [float(each) for each in on_each] == [probability] * replicas
        for network in ("generator", "critic"):
            one, several = (
                np.concatenate(
                    [each.ravel() for each in getattr(each.state, network).get_weights()]
                )
                for each in (runs[1], run)
            )
            assert np.linalg.norm(several - one) < 1e-4 * np.linalg.norm(one)


class FixedDiagnostics:
    """Diagnostics of a critic with given estimates on training and on held-out examples."""

    def __init__(self, training, held_out):
        self._values = {"probe/wasserstein": training, "held_out/wasserstein": held_out}

    def scalars(self):
        return self._values


@pytest.mark.parametrize(
    ("before", "training", "held_out", "after"),
    [
        (0.5, 1.0, 0.6, 0.6),  # 40% are missing
        (0.5, 1.0, 0.9, 0.4),
        (0.0, 1.0, 0.9, 0.0),
        (0.95, 1.0, -1.0, 1.0),
        (0.5, -1.0, -2.0, 0.4),  # no distance, of which a share could be missing
    ],
)
def test_the_probability_follows_the_overfitting(before, training, held_out, after):
    hook, probability = ada_hook(before, training, held_out)
    loop = LoopResult(100, 150, True, {}, 0, 0.0, 0.0)
    hook.after_loop(loop)
    assert probability.numpy() == np.float32(before)  # between two updates
    hook.after_loop(dataclasses.replace(loop, before=150, iteration=200))
    assert probability.numpy() == pytest.approx(after)


@pytest.mark.parametrize("steps", [100, 70, 250])
def test_the_probability_rises_as_fast_with_loops_of_any_length(steps):
    hook, probability = ada_hook(0.0, 1.0, 0.0)
    for before in range(0, 500, steps):
        hook.after_loop(LoopResult(before, min(before + steps, 500), False, {}, 0, 0.0, 0.0))
    assert probability.numpy() == pytest.approx(0.5)


def ada_hook(before, training, held_out):
    """A hook that changes the returned probability by 0.1 every 100 iterations."""
    probability = tf.Variable(before)
    diagnostics = FixedDiagnostics(training, held_out)
    return ada.AdaHook(probability, lambda: diagnostics, 20, range_images=20_000), probability


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--augment=diffaugment", "--dataset=swiss_roll"], "does not apply to points — omit it"),
        (
            ["--augment=ada", "--holdout=0"],
            "and there are none — give --holdout=0.1 or --test_data",
        ),
        (["--augment_policy=color,blur"], "--augment_policy=color,blur does not consist of"),
        (["--augment_policy="], "does not consist of color, translation, cutout"),
        (["--augment=flip"], "--augment=flip"),
    ],
)
def test_mistakes_are_one_line_errors(flags, message, tmp_path, capsys):
    assert call_main("--train_steps=1", f"--model_dir={tmp_path / 'run'}", *flags) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert message in error
    assert not (tmp_path / "run").exists()


def test_an_objective_without_an_estimated_distance_has_no_measured_overfitting():
    ada.check_measured(True, losses.GanObjective().critic_term_names)
    with pytest.raises(UserError, match="wasserstein"):
        ada.check_measured(True, ("loss",))


def test_a_policy_is_recorded_in_its_usual_order():
    assert Config(augment_policy="cutout,color").augment_policy == "color,cutout"
    assert Config(augment_policy="cutout,color").transformations == ("color", "cutout")
    assert Config(augment="ada").transformations == ALL
