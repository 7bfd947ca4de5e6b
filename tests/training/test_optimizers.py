"""The optimizers of --optimizer and of Python, against Keras's own and against formulas."""

import numpy as np
import pytest
import tensorflow as tf

import wgan_gp
from tests.fuzz.results import differences, tensors
from tests.helpers.runs import TINY, call_main, strategy_over, train_tiny, without_tracing
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.training.optimizer import guarded
from wgan_gp.training.state import make_optimizers

keras = tf.keras.optimizers
RATE = 0.05
STARTS = (np.float32([1.0, -2.0, 0.5]), np.float32([[3.0]]))
GRADIENTS = [
    (np.float32([0.3, -4.0, 1e-6]), np.float32([[2.0]])),
    (np.float32([-0.1, 0.5, 2e-6]), np.float32([[-1.0]])),
    (np.float32([0.2, 0.01, -1e-6]), np.float32([[0.03]])),
]
COMMON = {"learning_rate_schedule": "constant", "generator_learning_rate": RATE}
# The settings, and Keras's optimizer of the same name.
SETTINGS = {
    "adam": ({"beta_1": 0.5, "beta_2": 0.9}, lambda: keras.Adam(RATE, 0.5, 0.9, 1e-8)),
    "adamw": (
        {"beta_1": 0.5, "beta_2": 0.9, "weight_decay": 0.3},
        lambda: keras.AdamW(RATE, 0.3, 0.5, 0.9, 1e-8),
    ),
    "rmsprop": ({"beta_2": 0.99}, lambda: keras.RMSprop(RATE, 0.99, epsilon=1e-16)),
    "lion": (
        {"beta_1": 0.9, "beta_2": 0.99, "weight_decay": 0.3},
        lambda: keras.Lion(RATE, 0.9, 0.99, 0.3),
    ),
}


def trained(make_optimizer, replicas=1, gradients=GRADIENTS, trace=False):
    """Returns the weights after updates of which each replica has another share."""
    strategy = strategy_over(replicas)
    with strategy.scope():
        weights = [tf.Variable(start) for start in STARTS]
        optimizer = make_optimizer()
        optimizer.build(weights)
    total = replicas * (replicas + 1) / 2

    def update(values):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        share = (tf.cast(replica, tf.float32) + 1.0) / total
        optimizer.apply_gradients(zip([share * value for value in values], weights, strict=True))

    run = tf.function(strategy.run) if trace else strategy.run
    for values in gradients:
        run(update, args=([tf.constant(value) for value in values],))
    return [weight.numpy() for weight in weights]


def ours(name, **settings):
    settings = {**SETTINGS[name][0], **COMMON, **settings}
    return lambda: make_optimizers(Config(optimizer=name, **settings))[0]


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_each_optimizer_is_that_of_keras_on_any_number_of_replicas(name, replicas):
    expected = trained(SETTINGS[name][1])
    for mine, theirs, start in zip(trained(ours(name), replicas), expected, STARTS, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        assert np.abs(mine - start).min() > 1e-3


def test_rmsprop_divides_by_the_root_to_which_epsilon_is_added():
    """The code of WGAN does so, whose clipped critic has small gradients."""
    small = [(1e-3 * first, 1e-3 * second) for first, second in GRADIENTS]
    expected = []
    for start, gradients in zip(STARTS, zip(*small, strict=True), strict=True):
        weight, mean = start.astype(float), 0.0
        for gradient in gradients:
            mean = 0.99 * mean + 0.01 * gradient.astype(float) ** 2
            weight = weight - RATE * gradient / (np.sqrt(mean) + 1e-8)
        expected.append(weight)
    found = trained(ours("rmsprop"), gradients=small)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3)


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_gradients_are_clipped_by_their_norm_over_all_replicas(name, replicas):
    clipped = []
    for gradients in GRADIENTS:
        norm = np.sqrt(sum((gradient.astype(float) ** 2).sum() for gradient in gradients))
        clipped.append([np.float32(each * min(1.0, 0.7 / norm)) for each in gradients])
    expected = trained(SETTINGS[name][1], gradients=clipped)
    found = trained(ours(name, gradient_clip_norm=0.7), replicas, trace=True)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_an_update_that_is_not_finite_changes_no_weight(name, bad, clip):
    gradients = [tuple(np.full_like(start, bad) for start in STARTS)]
    if name == "lion" and np.isinf(bad) and not clip:
        bad = np.nan  # its update has only the sign of the gradient, so it is finite
        gradients = [tuple(np.full_like(start, bad) for start in STARTS)]
    found = trained(ours(name, gradient_clip_norm=clip), 2, gradients)
    for mine, start in zip(found, STARTS, strict=True):
        np.testing.assert_array_equal(mine, start)


def test_optimizers_of_python_are_copied_with_their_settings():
    schedule = keras.schedules.PolynomialDecay(0.1, 2, 0.01)
    for optimizer in (
        keras.SGD(schedule, momentum=0.9, nesterov=True),
        keras.Nadam(RATE, clipvalue=0.25),
        keras.Adagrad(RATE, clipnorm=0.5, weight_decay=0.1),
        keras.Adafactor(RATE),
    ):
        expected = trained(lambda kind=optimizer: type(kind).from_config(kind.get_config()))
        for replicas in (1, 2):
            found = trained(lambda kind=optimizer: guarded(kind, "it"), replicas)
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_variables_stay_excluded_from_weight_decay():
    def named(name):
        weight = tf.keras.Variable(np.ones(3, np.float32), name=name)
        optimizer = keras.AdamW(RATE, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["bias", "scale"])
        new = guarded(optimizer, "it")
        for each in (optimizer, new):
            other = tf.keras.Variable(np.ones(3, np.float32), name=name)
            each.build([other])
            each.apply_gradients([(tf.zeros(3), other)])
            weight = np.append(weight, other)
        return weight[3:]

    np.testing.assert_array_equal(named("bias"), np.ones(6))
    np.testing.assert_allclose(named("kernel"), np.full(6, 1 - 0.5 * RATE), rtol=1e-6)
    optimizer = keras.AdamW(RATE)
    optimizer.exclude_from_weight_decay(var_list=[tf.keras.Variable(1.0)])
    with pytest.raises(UserError, match="that are not those of the networks — exclude them by"):
        guarded(optimizer, "critic_optimizer")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda: keras.Adam(use_ema=True), "has use_ema — use --generator_ema_decay"),
        (lambda: keras.Adam(gradient_accumulation_steps=2), "use --accumulate"),
        (lambda: keras.Adam(loss_scale_factor=8.0), "has loss_scale_factor"),
        (lambda: keras.LossScaleOptimizer(keras.Adam()), "pass the optimizer inside of it"),
        (lambda: "adam", "is 'adam' — pass a Keras optimizer"),
    ],
)
def test_features_that_training_has_itself_are_refused(optimizer, message):
    with pytest.raises(UserError, match=message):
        guarded(optimizer(), "critic_optimizer")


RUN = {"train_steps": 3, "steps_per_loop": 1, "checkpoint_interval": 1, "sample_interval": 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "rmsprop", "lion"])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, name):
    settings = {**SETTINGS[name][0], **RUN, "optimizer": name, "gradient_clip_norm": 0.5}
    with without_tracing():
        train_tiny(tmp_path / "whole", **settings)
        train_tiny(tmp_path / "parts", stop_step=1, **settings)
        train_tiny(tmp_path / "parts", **settings)
        train_tiny(tmp_path / "adam", **RUN)
    assert differences(tmp_path / "whole", tmp_path / "parts", 3) == []
    assert differences(tmp_path / "whole", tmp_path / "adam", 3)


@pytest.mark.slow
def test_a_run_with_optimizers_of_python(tmp_path, capsys):
    def train(path, **settings):
        config = Config(model_dir=str(path), **{**TINY, **RUN, **settings})
        return wgan_gp.train(
            config,
            generator_optimizer=keras.SGD(0.02, momentum=0.9),
            critic_optimizer=keras.Nadam(0.01, clipnorm=0.5),
        )

    with without_tracing():
        result = train(tmp_path / "whole")
        train(tmp_path / "parts", stop_step=2)
        train(tmp_path / "parts")
        train(tmp_path / "two", cpu_replicas=2)
        assert differences(tmp_path / "whole", tmp_path / "parts", 3) == []
        one, two = (tensors(tmp_path / name / "checkpoints/ckpt-3") for name in ("whole", "two"))
        for name, value in one.items():
            np.testing.assert_allclose(two[name], value, rtol=1e-3, atol=1e-5)
        assert result.history["generator/learning_rate"][-1] == pytest.approx(0.02)
        assert result.history["critic/learning_rate"][-1] == pytest.approx(0.01)
        flags = [f"--model_dir={tmp_path}/whole", "--num_samples=4", "--sample_format=npy"]
        assert call_main("--mode=sample", *flags) == 0
        samples = np.load(capsys.readouterr().out.strip())
        np.testing.assert_array_equal(samples, result.sample(4))
        given = [f"--{name}={value}" for name, value in {**TINY, **RUN}.items()]
        assert call_main(*given, f"--model_dir={tmp_path}/new", "--optimizer=python") == 2
        assert "--optimizer=python is unknown — use one of adam" in capsys.readouterr().err
        assert call_main(*given, f"--model_dir={tmp_path}/whole") == 2
        assert "--optimizer: python -> adam" in capsys.readouterr().err
    with pytest.raises(UserError, match="objects that are passed to wgan_gp"):
        make_optimizers(Config(optimizer="python"))
    with pytest.raises(UserError, match="are not two optimizers — pass one for each network"):
        wgan_gp.train(Config(**TINY), critic_optimizer=keras.SGD())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "sgd"}, "--optimizer=sgd is unknown — use one of adam, adamw, rmsprop"),
        ({"weight_decay": 0.1}, "--weight_decay=0.1 does not apply to --optimizer=adam"),
        ({"optimizer": "adamw"}, "without weight decay is adam — add --weight_decay=0.01"),
        ({"optimizer": "lion"}, "forgets its momentum — add --beta_1=0.9 --beta_2=0.99"),
        (
            {"optimizer": "rmsprop", "beta_1": 0.5},
            "--beta_1=0.5 does not apply to --optimizer=rmsprop",
        ),
        (
            {"optimizer": "rmsprop", "learning_rate_schedule": "r3gan"},
            "--learning_rate_schedule=r3gan needs another optimizer than --optimizer=rmsprop",
        ),
        (
            {"optimizer": "python", "gradient_clip_norm": 1.0},
            "--gradient_clip_norm=1.0 does not apply to --optimizer=python",
        ),
        ({"gradient_clip_norm": -1.0}, "--gradient_clip_norm=-1.0 is too small"),
    ],
)
def test_settings_that_do_not_apply_are_errors(settings, message):
    with pytest.raises(UserError, match=message):
        Config(**settings)
