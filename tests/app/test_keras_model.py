"""`wgan_gp.keras.WGANGP`: fit, predict, save and callbacks with the steps of train.py."""

import dataclasses
import inspect
import pathlib
import re

import numpy as np
import pandas
import pytest
import tensorflow as tf

import losses
import wgan_gp
from tests.helpers.runs import strategy_over
from wgan_gp.data.feed.fit_data import class_labels
from wgan_gp.data.opened_data import ExampleFormat, StoredData
from wgan_gp.keras import WGANGP

layers = tf.keras.layers
CONFIG = wgan_gp.Config(
    batch_size=8, n_critic=2, latent_size=4, learning_rate_schedule="constant", steps_per_loop=1
)
POINTS = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)


def generator(design=None):
    return tf.keras.Sequential([layers.Input([4]), layers.Dense(8, "relu"), layers.Dense(2)])


def critic(design=None):
    return tf.keras.Sequential([layers.Input([2]), layers.Dense(8, "tanh"), layers.Dense(1)])


def make_model(config=CONFIG, strategy=None, **arguments):
    with (strategy or strategy_over(1)).scope():
        tf.keras.utils.set_random_seed(config.seed)
        model = WGANGP(generator(), critic(), config)
        model.compile(**arguments)
    return model


def fit(model, points=POINTS, **arguments):
    return model.fit(points, shuffle=False, verbose=0, **arguments).history


def values(network):
    return [np.array(value) for value in network.get_weights()]


@pytest.mark.slow
def test_fit_has_the_losses_of_train(tmp_path):
    """Both read the same batches: `train` in its own order, of which `fit` gets a copy."""
    config = dataclasses.replace(
        CONFIG, model_dir=str(tmp_path), train_steps=4, summary_interval=1, sample_interval=0
    )
    result = wgan_gp.train(config, generator=generator, critic=critic, data=POINTS)
    stored = ExampleFormat((2,), tf.float32, lambda points, _: points)
    data = StoredData(config.seed, stored, POINTS, np.zeros(64))
    in_order = data.read_stored(tf.constant(0, tf.int64), 4 * 2 * 8)[0].numpy()
    model = make_model(config)
    losses = {}
    for first in range(0, 64, 16):  # an epoch for each iteration
        for name, value in fit(model, in_order[first : first + 16]).items():
            losses.setdefault(name, []).extend(value)
    for name in ("critic/loss", "critic/penalty", "critic/gradient_norm", "generator/loss"):
        np.testing.assert_allclose(losses[name], result.history[name], rtol=1e-5, atol=1e-6)
    for a, b in zip(values(model.generator), values(result.generator), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.slow
def test_fit_on_two_replicas_is_fit_on_one():
    one, two = make_model(), make_model(strategy=strategy_over(2))
    held_out = POINTS[:16]
    a = fit(one, validation_data=held_out)
    b = fit(two, validation_data=held_out)
    assert a.keys() == b.keys() and "val_critic/loss" in a
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-5)
    for x, y in zip(values(one.generator), values(two.generator), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.slow
def test_several_steps_per_execution_are_equal_to_one():
    one, two = make_model(), make_model(steps_per_execution=2)
    a, b = fit(one, epochs=2), fit(two, epochs=2)
    np.testing.assert_allclose(a["critic/loss"], b["critic/loss"], rtol=1e-5)


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
def test_weights_are_saved_by_a_callback_and_fit_continues(tmp_path):
    path = str(tmp_path / "model.weights.h5")
    callback = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    model = make_model()
    fit(model, callbacks=[callback, tf.keras.callbacks.EarlyStopping("critic/loss", mode="min")])
    other = make_model()
    fit(other, POINTS[:16])  # creates the variables
    other.load_weights(path)
    a, b = fit(model), fit(other)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
def test_a_saved_model_predicts_the_same(tmp_path):
    model = make_model()
    fit(model)
    latents = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    expected = model.predict(latents, verbose=0)
    np.testing.assert_allclose(expected, np.array(model.generator(latents)), rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(latents, verbose=0), expected, rtol=1e-5)
    assert loaded.config == model.config
    loaded.compile()
    fit(loaded)


@pytest.mark.slow
def test_labels_reach_a_conditional_generator_and_critic():
    config = dataclasses.replace(CONFIG, conditioning="projection")
    latents, label = tf.keras.Input([4]), tf.keras.Input([], dtype="int32")
    one_hot = layers.CategoryEncoding(3, output_mode="one_hot")
    joined = layers.Concatenate()([latents, one_hot(label)])
    conditional = tf.keras.Model([latents, label], layers.Dense(2)(joined))
    points, label = tf.keras.Input([2]), tf.keras.Input([], dtype="int32")
    joined = layers.Concatenate()([points, one_hot(label)])
    hidden = layers.Dense(8, "tanh")(joined)
    judge = tf.keras.Model([points, label], layers.Dense(1)(hidden))
    model = WGANGP(conditional, judge, config, classes=3)
    model.compile()
    labels = np.arange(64) % 3
    history = model.fit(POINTS, labels, verbose=0).history
    assert np.isfinite(history["critic/loss"]).all()
    assert model.predict([np.zeros([2, 4]), np.array([0, 2])], verbose=0).shape == (2, 2)
    with pytest.raises(wgan_gp.UserError, match="classes=3 requires labels"):
        model.fit(POINTS, verbose=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"generator_ema_decay": 0.9},
        {"generator_ema_half_life": 100},
        {"augment": "ada"},
        {"random_flips": True},
        {"precision": "mixed_bfloat16"},
    ],
)
def test_settings_without_an_effect_are_refused(settings):
    ((name, value),) = settings.items()
    config = wgan_gp.Config(latent_size=4, **settings)
    with pytest.raises(wgan_gp.UserError, match=f"{name}={value} is not supported in fit — use w"):
        WGANGP(generator(), critic(), config)


@pytest.mark.usefixtures("untraced")
def test_a_batch_that_is_not_finite_is_an_error_at_the_end_of_its_epoch():
    bad = POINTS.copy()
    bad[40] = np.nan
    points = tf.data.Dataset.from_tensors(bad)
    given = tf.keras.callbacks.LambdaCallback()
    for callbacks in (None, given, [given], tf.keras.callbacks.CallbackList()):
        with pytest.raises(wgan_gp.UserError, match=r"epoch 1: critic/.* is not finite, and th"):
            fit(make_model(), points, epochs=3, callbacks=callbacks)
    held_out = {"validation_data": points}
    assert np.isnan(fit(make_model(), **held_out)["val_critic/loss"]).all()


@pytest.mark.usefixtures("untraced")
def test_a_callback_list_of_a_model_keeps_it():
    """Keras gives the callbacks of a list their model when it creates the list."""
    model = make_model()
    stop = tf.keras.callbacks.TerminateOnNaN()
    bad = np.where(np.arange(len(POINTS))[:, None] == 0, np.nan, POINTS)
    batches = tf.data.Dataset.from_tensors(bad)
    callbacks = tf.keras.callbacks.CallbackList([stop], add_history=True, model=model)
    fit(model, batches, epochs=2, callbacks=callbacks)
    assert model.stop_training


@pytest.mark.parametrize("conditioning", ["acgan", "projection", "concatenation"])
def test_a_conditioning_needs_labels_or_conditions(conditioning):
    config = dataclasses.replace(CONFIG, conditioning=conditioning)
    with pytest.raises(wgan_gp.UserError, match=f"^conditioning={conditioning} of .* — pass clas"):
        WGANGP(generator(), critic(), config)


def test_labels_that_only_the_generator_gets_are_a_warning(capsys):
    WGANGP(generator(), critic(), CONFIG, classes=3, objective=losses.GanObjective())
    assert not capsys.readouterr().err
    WGANGP(generator(), critic(), CONFIG, classes=3)
    assert "warning: only the generator gets the labels or conditions" in capsys.readouterr().err


def test_the_optimizers_of_a_run_may_be_objects_of_python():
    config = dataclasses.replace(CONFIG, optimizer="python")
    model = make_model(config, generator_optimizer="sgd", critic_optimizer="adam")
    assert type(model.critic_optimizer).__name__ == "Adam"
    with pytest.raises(wgan_gp.UserError, match=r" — pass .* there, or to compile of WGANGP$"):
        make_model(config, generator_optimizer="sgd")


@pytest.mark.usefixtures("untraced")
def test_each_fit_has_another_order():
    """A batch has 16 of the 20 examples, so that each fit leaves four out."""
    numbers = np.arange(40, dtype=np.float32).reshape(20, 2)
    found, seen = [], []

    class Seen(losses.GanObjective):
        def critic_terms(self, critic, real, fake, **given):
            seen.append(real.numpy()[:, 0])
            return super().critic_terms(critic, real, fake, **given)

    tf.keras.utils.set_random_seed(0)
    model = WGANGP(generator(), critic(), CONFIG, objective=Seen(penalty="none"))
    model.compile(run_eagerly=True)
    for _ in range(6):
        seen.clear()
        model.fit(numbers, epochs=1, verbose=0)
        found.append(tuple(np.concatenate(seen)[:16]))
    assert len(set(found)) == 6
    assert set(np.concatenate(found)) == set(numbers[:, 0])


def test_the_objective_of_a_configuration_is_passed_as_an_object(capsys):
    config = dataclasses.replace(CONFIG, objective="python")
    with pytest.raises(wgan_gp.UserError, match=r"objective=python .* — pass the object as obje"):
        WGANGP(generator(), critic(), config)
    model = WGANGP(generator(), critic(), config, objective=losses.GanObjective())
    WGANGP.from_config(make_model().get_config())
    assert not capsys.readouterr().err
    assert WGANGP.from_config(model.get_config()).config == CONFIG
    assert "objective of its own, which is not saved — to continue" in capsys.readouterr().err


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("of_user", [False, True])
def test_an_evaluation_does_not_scale_a_lazy_penalty(of_user):
    found = []
    for interval in (1, 4):
        config = CONFIG if of_user else dataclasses.replace(CONFIG, penalty_interval=interval)
        objective = losses.GanObjective(penalty_interval=interval) if of_user else None
        tf.keras.utils.set_random_seed(0)
        model = WGANGP(generator(), critic(), config, objective=objective)
        model.compile()
        found.append(model.evaluate(POINTS, verbose=0, return_dict=True))
    assert found[0] == found[1] and found[0]["critic/gradient_norm"] > 0


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("penalty", ["none", "weight_clipping", "two_sided"])
def test_a_critic_is_checked_for_what_its_penalty_needs(penalty):
    """The gradient of this interpolation has no gradient."""
    judge = tf.keras.Sequential([layers.Input([2]), layers.Reshape([1, 2, 1])])
    judge.add(layers.UpSampling2D(2, interpolation="bilinear"))
    judge.add(layers.Flatten())
    judge.add(layers.Dense(1))
    model = WGANGP(generator(), judge, dataclasses.replace(CONFIG, penalty=penalty))
    model.compile()
    if penalty == "two_sided":
        with pytest.raises(wgan_gp.UserError, match="the critic cannot be trained with penalty"):
            model.fit(POINTS, verbose=0)
    else:
        assert np.isfinite(fit(model)["critic/loss"]).all()


def test_mistakes_are_one_line_errors():
    with pytest.raises(wgan_gp.UserError, match="there are 8 examples, but one batch has 16"):
        make_model().fit(POINTS[:8])
    with pytest.raises(wgan_gp.UserError, match="batch_size"):
        make_model().fit(POINTS, batch_size=3)
    with pytest.raises(wgan_gp.UserError, match="jit_compile=True cannot compile for"):
        make_model(strategy=strategy_over(2), jit_compile=True)
    coupled = [layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)]
    normalized = tf.keras.Sequential(coupled)
    model = WGANGP(generator(), normalized, CONFIG)
    model.compile()
    with pytest.raises(wgan_gp.UserError, match="the critic cannot be trained with penalty"):
        model.fit(POINTS, verbose=0)
    assert model.jit_compile is False


@pytest.mark.slow
def test_the_program_of_the_documentation_prints_what_the_page_shows(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "keras.md").read_text()
    (program,) = re.findall(r"```python\n([\s\S]*?)```", page)
    exec(program, {})
    printed = capsys.readouterr().out.strip().splitlines()[-1]
    assert f"It prints `{printed}`" in page


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
def test_a_regularizer_of_a_weight_adds_its_gradient_and_its_term():
    config = dataclasses.replace(CONFIG, n_critic=1)
    after, histories = [], []
    for regularizer in (None, tf.keras.regularizers.L2(0.03)):
        tf.keras.utils.set_random_seed(0)
        hidden = layers.Dense(8, "tanh", kernel_regularizer=regularizer)
        judge = tf.keras.Sequential([layers.Input([2]), hidden, layers.Dense(1)])
        model = WGANGP(generator(), judge, config)
        model.compile("sgd", tf.keras.optimizers.SGD(1.0))
        before = values(judge)[0]
        histories.append(fit(model, POINTS[:8], validation_data=POINTS[:8]))
        after.append(values(judge)[0])
    np.testing.assert_allclose(after[1] - after[0], -2 * 0.03 * before, atol=1e-5)
    plain, regularized = histories
    expected = 0.03 * (before**2).sum()
    np.testing.assert_allclose(regularized["critic/regularization"], [expected], rtol=1e-5)
    np.testing.assert_allclose(
        regularized["val_critic/regularization"], [0.03 * (after[1] ** 2).sum()], rtol=1e-5
    )
    assert regularized.keys() - plain.keys() == {
        "critic/regularization",
        "val_critic/regularization",
    }


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
def test_a_further_compile_sets_the_optimizers_and_continues_the_noise():
    still = tf.keras.optimizers.SGD
    model, other = make_model(), make_model()
    fit(model)
    before = values(model.generator)
    model.compile(still(0.0), still(0.0))
    continued = fit(model, POINTS[:16], epochs=1)
    for a, b in zip(values(model.generator), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.iterations == 5
    other.generator.set_weights(before)
    other.critic.set_weights(model.critic.get_weights())
    other.compile(still(0.0), still(0.0))
    from_zero = [fit(other, POINTS[:16])["critic/loss"] for _ in range(5)]
    # The noise of iteration 4, whichever optimizers made the first four.
    np.testing.assert_allclose(continued["critic/loss"], from_zero[4], rtol=1e-5)
    assert len(np.unique(from_zero)) == 5


@pytest.mark.usefixtures("untraced")
def test_the_iterations_and_the_schedule_are_saved_with_the_model(tmp_path):
    config = dataclasses.replace(CONFIG, learning_rate_schedule="linear", train_steps=16)
    model = make_model(config)
    fit(model)  # 4 of 16 iterations
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    loaded.compile()
    assert loaded.iterations == 4
    rate = float(np.array(loaded.critic_optimizer.learning_rate))
    np.testing.assert_allclose(rate, 0.75 * config.critic_learning_rate, rtol=1e-6)
    assert tf.keras.models.clone_model(model).iterations == 0


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((POINTS * 50).astype(np.uint8), r'x.astype\("float32"\) / 127.5 - 1'),
        (np.ones([32, 2], int), r'pass x.astype\("float32"\)'),
        ([[1, 2]] * 32, "dtype int64"),
        (tf.data.Dataset.from_tensors(np.ones([32, 2], np.uint8)), r"tf.float32\) / 127.5 - 1\)"),
        (tf.data.Dataset.from_tensor_slices(POINTS), r"call batch\(...\)"),
        (tf.data.Dataset.from_tensors((POINTS, POINTS, POINTS)), "yields weights"),
        (tf.data.Dataset.from_tensors({"points": POINTS}), "x yields"),
        (tf.data.Dataset.from_tensors(POINTS).repeat(), r"pass \w*steps"),
        (np.full([32, 2], np.nan, np.float32), "NaN or infinity"),
        (np.ones([32, 3], np.float32), r"shape \(3,\), but the generator's samples have .*\(2,\)"),
        (np.array([["a", "b"]] * 32), "dtype <U1"),
        ({"points": POINTS}, "x is dict"),
        (None, "x is NoneType"),
        (POINTS[:7], "there are 7 examples, but one batch has"),
    ],
    ids=range(14),
)
def test_data_that_fit_and_evaluate_refuse(points, message):
    model = make_model()
    for call in (
        model.fit,
        model.evaluate,
        lambda x: model.fit(POINTS, validation_data=x, verbose=0) if x is not None else model.fit(),
    ):
        with pytest.raises(wgan_gp.UserError, match=message):
            call(points)


class Batches(tf.keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return POINTS[32 * index : 32 * index + 32]


@pytest.mark.slow
def test_all_forms_of_data_are_the_same_examples():
    frame = pandas.DataFrame(POINTS, columns=["a", "b"])
    forms = [
        POINTS,
        POINTS.tolist(),
        tf.constant(POINTS),
        frame,
        tf.data.Dataset.from_tensor_slices(POINTS).batch(10),
        (POINTS[i : i + 10] for i in range(0, 64, 10)),
        Batches(),
    ]
    model = make_model()
    expected = model.evaluate(POINTS, verbose=0, return_dict=True)
    for form in forms:
        found = model.evaluate(form, verbose=0, return_dict=True)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_several_arrays_are_no_examples():
    with pytest.raises(wgan_gp.UserError, match="x is a list of arrays"):
        make_model().fit([POINTS, POINTS])
    history = fit(make_model(), validation_data=[POINTS, np.zeros(64)])  # examples and labels
    assert np.isfinite(history["val_critic/loss"]).all()


def test_labels_are_checked():
    with pytest.raises(wgan_gp.UserError, match="x has 64 examples, but y has 60"):
        make_model().fit(POINTS, np.zeros(60))
    for wrong in (np.full(64, 3), np.full(64, 0.5), np.zeros([64, 3])):
        with pytest.raises(wgan_gp.UserError, match="give an integer from 0 to 2"):
            class_labels(wrong, 3)
    np.testing.assert_array_equal(class_labels(np.array([[0.0], [2.0]]), 3), [0, 2])


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("wrong", [np.arange(64) % 3 + 1, np.arange(64) % 3 - 1, np.full(64, 0.7)])
def test_labels_of_datasets_are_checked(wrong):
    latents, label = tf.keras.Input([4]), tf.keras.Input([], dtype="int32")
    one_hot = layers.CategoryEncoding(3, output_mode="one_hot")(label)
    joined = layers.Concatenate()([latents, one_hot])
    conditional = tf.keras.Model([latents, label], layers.Dense(2)(joined))
    model = WGANGP(conditional, critic(), CONFIG, classes=3)
    model.compile()
    for labels in (np.arange(64) % 3, np.arange(64.0)[:, None] % 3, wrong):
        data = tf.data.Dataset.from_tensor_slices((POINTS, labels)).batch(16)
        if labels is wrong:
            for method in (model.fit, model.evaluate):
                with pytest.raises(wgan_gp.UserError, match="give an integer from 0 to 2 for each"):
                    method(data, verbose=0)
        else:
            assert np.isfinite(fit(model, data)["critic/loss"]).all()


@pytest.mark.usefixtures("untraced")
def test_examples_may_have_a_shape_that_is_known_late():
    spec = tf.TensorSpec([None, None], tf.float32)
    unknown = tf.data.Dataset.from_generator(lambda: np.split(POINTS, 4), output_signature=spec)
    found = make_model().evaluate(unknown, verbose=0, return_dict=True)
    expected = make_model().evaluate(POINTS, verbose=0, return_dict=True)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


WORKING = {
    "compile": {"run_eagerly": True, "steps_per_execution": 2, "jit_compile": "auto"},
    "fit": {
        "x": POINTS,
        "y": [0] * 64,
        "epochs": 2,
        "verbose": 0,
        "callbacks": [tf.keras.callbacks.History()],
        "validation_split": 0.25,
        "validation_data": POINTS[:16],
        "shuffle": False,
        "initial_epoch": 1,
        "steps_per_epoch": 1,
        "validation_steps": 1,
        "validation_freq": [2],
    },
    "evaluate": {
        "x": POINTS,
        "y": [0] * 64,
        "verbose": 0,
        "steps": 1,
        "callbacks": [],
        "return_dict": True,
        "kwargs": None,
    },
    "predict": {
        "x": np.zeros([4, 4]),
        "batch_size": 2,
        "verbose": 0,
        "steps": 1,
        "callbacks": [],
    },
    "train_on_batch": {"x": POINTS[:16], "y": None, "return_dict": True},
    "test_on_batch": {"x": POINTS[:8], "y": None, "return_dict": True},
    "predict_on_batch": {"x": np.zeros([4, 4])},
}
REFUSED_VALUES = {
    "compile": dict.fromkeys(
        ["optimizer", "loss", "loss_weights", "metrics", "weighted_metrics", "auto_scale_loss"],
        "adam",
    ),
    "fit": dict.fromkeys(
        ["batch_size", "class_weight", "sample_weight", "validation_batch_size"], 2
    ),
    "evaluate": dict.fromkeys(["batch_size", "sample_weight"], 2),
    "predict": {},
    "train_on_batch": dict.fromkeys(["sample_weight", "class_weight"], 2),
    "test_on_batch": {"sample_weight": 2},
    "predict_on_batch": {},
}


def documented():
    """Returns the arguments that docs/keras.md lists, as {method: (works, refused)}."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "keras.md").read_text()
    rows = re.findall(r"^\| `?(\w+)`? \|(.*)\|(.*)\|$", page, re.MULTILINE)
    return {name: tuple(re.findall(r"`(\w+)`", cell) for cell in cells) for name, *cells in rows}


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
@pytest.mark.parametrize("method", WORKING)
def test_arguments_of_keras_work_or_are_refused_as_documented(method):
    parameters = list(inspect.signature(getattr(tf.keras.Model, method)).parameters)[1:]
    works, refused = documented()[method]
    assert sorted(works + refused) == sorted(parameters)
    assert set(works) == set(WORKING[method]) and set(refused) == set(REFUSED_VALUES[method])
    model = make_model()
    data = {name: WORKING[method][name] for name in ("x",) if name in parameters}
    for name, value in REFUSED_VALUES[method].items():
        with pytest.raises(wgan_gp.UserError, match=rf"^{method}\({name}=...\) is not supported"):
            getattr(model, method)(**data, **{name: value})
    given = {name: value for name, value in WORKING[method].items() if name != "kwargs"}
    if method == "compile":
        model.compile(**given)
        assert len(fit(model)["critic/loss"]) == 1
    elif method == "fit":
        history = model.fit(**given).history
        assert np.isfinite(history["val_critic/loss"]).all()
        del given["validation_data"]
        assert model.fit(**given).history.keys() == history.keys()
    else:
        assert np.isfinite(tf.nest.flatten(getattr(model, method)(**given))[0]).all()


@pytest.mark.usefixtures("untraced")
def test_validation_split_holds_out_the_last_examples():
    still = {"generator_optimizer": tf.keras.optimizers.SGD(0.0)}
    model = make_model(**still, critic_optimizer=tf.keras.optimizers.SGD(0.0))
    history = fit(model, POINTS, validation_split=0.5)
    expected = model.evaluate(POINTS[32:], verbose=0, return_dict=True)
    np.testing.assert_allclose(history["val_critic/loss"], [expected["critic/loss"]], rtol=1e-6)
    with pytest.raises(wgan_gp.UserError, match="validation_split divides arrays only"):
        model.fit(Batches(), validation_split=0.5)


def test_optimizers_are_names_or_one_object_each():
    model = make_model(generator_optimizer="sgd", critic_optimizer="adam")
    assert isinstance(model.critic_optimizer, tf.keras.optimizers.Adam)
    assert isinstance(model.generator_optimizer, tf.keras.optimizers.SGD)
    one = tf.keras.optimizers.Adam()
    with pytest.raises(wgan_gp.UserError, match="create one for each network"):
        model.compile(one, one)
    with pytest.raises(wgan_gp.UserError, match="generator_optimizer='none' is unknown"):
        model.compile("none")
    with pytest.raises(wgan_gp.UserError, match="call compile"):
        tf.keras.models.clone_model(model).fit(POINTS)
    model.generator.trainable = False
    with pytest.raises(wgan_gp.UserError, match="the generator has no weights to train"):
        model.fit(POINTS)
    with pytest.raises(wgan_gp.UserError, match="train_on_batch needs an array of 16 examples"):
        model.train_on_batch(POINTS)


def callbacks(folder):
    return {
        "BackupAndRestore": {"backup_dir": f"{folder}/backup"},
        "CSVLogger": {"filename": f"{folder}/log.csv"},
        "EarlyStopping": {"monitor": "critic/loss", "mode": "min", "restore_best_weights": True},
        "History": {},
        "LambdaCallback": {"on_epoch_end": lambda epoch, logs: None},
        "LearningRateScheduler": {"schedule": lambda epoch, rate: rate},
        "ModelCheckpoint": {"filepath": f"{folder}/model.keras"},
        "ProgbarLogger": {},
        "ReduceLROnPlateau": {},
        "RemoteMonitor": {},
        "SwapEMAWeights": {},
        "TensorBoard": {"log_dir": f"{folder}/logs", "histogram_freq": 1},
        "TerminateOnNaN": {},
    }


@pytest.mark.usefixtures("untraced")
def test_arguments_named_callbacks_work_or_are_refused_as_documented(tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr("requests.post", lambda *args, **options: sent.append(args))
    module = tf.keras.callbacks
    kinds = {name for name in dir(module) if isinstance(getattr(module, name), type)}
    works, refused = documented()["callbacks"]
    assert kinds - {"Callback", "CallbackList"} == {*works, *refused} == set(callbacks(""))
    arguments, model = callbacks(tmp_path), make_model()
    for name in refused:
        with pytest.raises(wgan_gp.UserError, match=f"the callback {name}"):
            model.fit(POINTS, callbacks=[getattr(module, name)(**arguments[name])])
    used = [getattr(module, name)(**arguments[name]) for name in works]
    assert len(fit(model, POINTS[:32], callbacks=used)["critic/loss"]) == 1
    assert sent
    for path in ("log.csv", "model.keras", "logs/train"):
        assert (tmp_path / path).exists()


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
def test_training_stops_at_the_first_batch_with_nan():
    points = tf.data.Dataset.from_tensors(np.where(np.arange(64)[:, None] < 16, POINTS, np.nan))
    model = make_model()
    fit(model, points, callbacks=tf.keras.callbacks.TerminateOnNaN())
    assert model.iterations == 2
