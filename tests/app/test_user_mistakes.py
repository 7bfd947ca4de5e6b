"""Mistakes in code of the user: each is an error of one line that names it, or a warning."""

import dataclasses
import re
import sys
import types

import numpy as np
import pandas
import pytest
import scipy.sparse
import tensorflow as tf

import losses
import wgan_gp
from tests.helpers.runs import LIBRARY, TINY, call_main, strategy_over
from wgan_gp.app import build
from wgan_gp.app.start_checks import check_user_code
from wgan_gp.app.user_code import extensions, loading, user_objective
from wgan_gp.app.user_code.user_networks import UserNetworks
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import explaining, reason
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.devices import Devices
from wgan_gp.training.optimizer import dense

layers = tf.keras.layers
Sequential = tf.keras.Sequential
from_slices = tf.data.Dataset.from_tensor_slices
ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (16, 8, 8, 1)).astype(np.float32)


def config(path="unused", **settings):
    small = {"train_steps": 2, "steps_per_loop": 2, "summary_interval": 2, "sample_interval": 0}
    return wgan_gp.Config(model_dir=str(path), **{**TINY, **small, **settings})


@pytest.fixture
def warnings(monkeypatch):
    """Returns the list of the warnings that the test causes."""
    lines = []
    monkeypatch.setattr("absl.logging.warning", lambda line, *_: lines.append(line))
    return lines


# Data.


class WithArray:
    """An object that NumPy can convert, such as a tensor of another library."""

    def __init__(self, make):
        self.make = make

    def __array__(self, dtype=None, copy=None):
        return self.make()


def failing(fail, after, rows=ROWS):
    """Returns a tf.data.Dataset of rows that fails after some of them."""

    def examples():
        yield from rows[:after]
        fail()

    return tf.data.Dataset.from_generator(examples, output_signature=tf.TensorSpec([3]))


def exhausted():
    """Returns a tf.data.Dataset that has no examples when it is read again."""
    rows = iter(ROWS)
    signature = tf.TensorSpec([3])
    return tf.data.Dataset.from_generator(lambda: rows, output_signature=signature).repeat()


def find(function, **settings):
    return find_dataset(wgan_gp.Config(dataset="python", **settings), function=function)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: 5, "type int"),
        (lambda: "text", "type str"),
        (lambda: {"a": ROWS, "b": ROWS}, "dict"),
        (lambda: (row for row in ROWS), "type generator"),
        (lambda: np.array(3.0), "type ndarray"),
        (lambda: scipy.sparse.csr_matrix(ROWS), "type csr_matrix"),
        (lambda: tf.sparse.from_dense(ROWS), "type SparseTensor"),
        (lambda: tf.ragged.constant([[1.0, 2.0], [3.0]]), "type RaggedTensor"),
        (lambda: (None, ROWS), "type NoneType"),
        (lambda: (ROWS, 5), "type int"),
        (lambda: (ROWS, ROWS, ROWS), "a tuple of 3 values"),
        (lambda: (ROWS,), "a tuple of 1 values"),
        (lambda: [ROWS, ROWS[:5]], "setting an array element"),
        (lambda: np.zeros([64, 0]), "examples of shape [64, 0]"),
        (lambda: np.zeros([64]), "examples of shape [64]"),
        (lambda: np.zeros([4, 2, 2, 2, 2, 2]), "examples of shape [4, 2, 2, 2, 2, 2]"),
        (lambda: ROWS.astype(complex), "dtype complex128"),
        (lambda: ROWS.astype(str), "dtype <U"),
        (lambda: ROWS.astype(object), "dtype object"),
        (lambda: np.zeros([4, 2], "datetime64[s]"), "dtype datetime64[s]"),
        (lambda: pandas.DataFrame({"a": ["x"] * 8}), "is constant in all columns"),
        (lambda: np.ma.masked_greater(ROWS, 0), "missing (masked) elements"),
        (lambda: WithArray(lambda: 1 / 0), "failed (ZeroDivisionError: division by zero)"),
        (lambda: WithArray(sys.exit), "failed (SystemExit)"),
        (lambda: sys.exit(0), "failed (SystemExit: 0)"),
        (lambda: from_slices(ROWS).batch(8), "examples of shape (None, 3)"),
        (lambda: from_slices(ROWS).window(3), "a dataset of DatasetSpec"),
        (lambda: from_slices((ROWS, ROWS, ROWS)), "a dataset of (TensorSpec"),
        (lambda: from_slices(tf.RaggedTensor.from_tensor(ROWS)), "a dataset of Ragged"),
        (lambda: from_slices(ROWS.astype(str)), "a dataset of examples of string"),
        (lambda: from_slices(ROWS.astype(str)).repeat(), "a dataset of examples of string"),
        (lambda: from_slices(ROWS.astype(complex)), "a dataset of examples of complex128"),
        (lambda: from_slices((ROWS, ROWS.astype(str)[:, 0])), "a dataset of labels of string"),
        (lambda: from_slices((ROWS, ROWS[:, None])).repeat(), "labels of shape (1, 3)"),
        (lambda: from_slices(ROWS[:, :0]), "examples of shape (0,)"),
        (lambda: tf.data.Dataset.range(9), "examples of shape ()"),
        (lambda: from_slices(ROWS).take(0), "examples of shape [0, 3]"),
        (lambda: failing(lambda: 0, 0).repeat(), "a dataset without examples"),
        (lambda: failing(lambda: 1 / 0, 5), "ZeroDivisionError: division by zero)"),
        (lambda: failing(sys.exit, 5), "SystemExit"),
        (lambda: failing(lambda: 1 / 0, 0).repeat(), "ZeroDivisionError: division by zero)"),
        (lambda: from_slices(5 * IMAGES).repeat(), "an image outside [-1, 1]"),
        (lambda: from_slices(ROWS * np.nan).repeat(), "a row with NaN or infinity"),
    ],
)
def test_data_of_another_kind_is_refused(make, message):
    with pytest.raises(wgan_gp.UserError) as caught:
        find(lambda split: make() if split == "train" else None)
    assert str(caught.value).startswith("data") and message in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        ROWS.tolist,
        lambda: tf.constant(ROWS),
        lambda: tf.Variable(ROWS),
        lambda: np.ma.masked_greater(ROWS, 1000),
        lambda: WithArray(lambda: ROWS),
        lambda: (ROWS, None),
        lambda: failing(lambda: 0, 64),
    ],
)
def test_data_that_numpy_can_convert_is_accepted(make):
    found, expected = (find(lambda split, data=data: data).spec.scaling for data in (make(), ROWS))
    assert (found.minimum, found.maximum) == (expected.minimum, expected.maximum)


@pytest.mark.parametrize(
    ("training", "test", "message"),
    [
        (ROWS, ROWS[:, :2], "data of the split test contains examples of shape (2,)"),
        (
            ROWS,
            from_slices(ROWS[:, :2]).repeat(),
            "test has examples of shape (2,)",
        ),
        ((ROWS, np.arange(64) % 3), ROWS[:9], "data of the split test has no labels"),
        (
            (ROWS, np.arange(64) % 3),
            (ROWS, np.arange(64)),
            "split test contains the class '3', which",
        ),
        ((ROWS, ROWS), ROWS[:9], "data of the split test has no conditions"),
    ],
)
def test_a_split_of_another_kind_is_refused(training, test, message):
    settings = wgan_gp.Config(dataset="python")
    splits = {"train": training, "test": test}
    conditioning = "projection" if isinstance(training, tuple) else "none"
    dataset = find_dataset(
        settings, conditioning=conditioning, function=lambda split: splits[split]
    )
    with pytest.raises(wgan_gp.UserError) as caught:
        dataset.open_held_out()
    assert message in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: failing(lambda: 1 / 0, 21).repeat(), "failed (ZeroDivisionError: division by"),
        (lambda: failing(sys.exit, 21).repeat(), "failed (SystemExit"),
        (
            lambda: from_slices(np.where(np.arange(64)[:, None] == 40, np.inf, ROWS)).repeat(),
            "a row with NaN or infinity",
        ),
        (exhausted, "has no examples when it is read again"),
    ],
)
@pytest.mark.parametrize("jit_compile", ["off", "on"])
def test_a_streamed_dataset_that_fails_in_training_is_named(tmp_path, make, message, jit_compile):
    settings = config(tmp_path, train_steps=5, batch_size=8, jit_compile=jit_compile)
    with pytest.raises(wgan_gp.UserError) as caught:
        wgan_gp.train(settings, data=make())
    assert str(caught.value).startswith("data ") and message in str(caught.value)


def test_a_dataset_that_is_not_a_function_is_refused(tmp_path, capsys):
    path = tmp_path / "own.py"
    path.write_text("import numpy as np\ndataset = np.zeros([64, 3])\n")
    assert call_main(f"--dataset={path}") == 2
    assert f"--dataset={path} is array(" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "bounded"),
    [
        (50 * ROWS, True),  # scaled to their range
        (from_slices(ROWS).repeat(), False),
        (IMAGES, True),
        (np.arange(8 * 192, dtype=np.uint8).reshape(8, 8, 8, 3), True),
        (from_slices(IMAGES).repeat(), True),
    ],
)
def test_streamed_rows_of_the_user_are_not_bounded(data, bounded):
    assert find(lambda split: data).spec.bounded is bounded


@pytest.mark.parametrize(("dataset", "bounded"), [("gaussians_8", False), ("digits", True)])
def test_points_are_not_bounded(dataset, bounded):
    assert find_dataset(wgan_gp.Config(dataset=dataset)).spec.bounded is bounded


# Networks.


def generator(design):
    return Sequential([layers.Dense(4, "relu"), layers.Dense(2)])


def critic(design):
    return Sequential([layers.Dense(4, "relu"), layers.Dense(1)])


def with_output(function, units=1):
    """Returns a function that creates a network whose output a function of a tensor changes."""

    class Network(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = layers.Dense(4, "relu"), layers.Dense(units)

        def call(self, inputs):
            first = inputs[0] if isinstance(inputs, (list, tuple)) else inputs
            return function(self.out(self.hidden(first)))

    return lambda design: Network()


def check(examples=None, classes=0, generator=generator, critic=critic, replicas=1, **settings):
    """Checks the networks of the user as before training, for points in two dimensions."""
    settings = config(model="python", generator_model="python", **settings)
    networks = types.SimpleNamespace(generator=generator, critic=critic)
    devices = Devices(strategy_over(replicas), SINGLE_PROCESS, "CPU")
    data = None
    if examples is not None:
        data = find(lambda split: examples).open(batch_size=16)
    spec = DataSpec((2,), classes, bounded=False)
    networks = UserNetworks("wgan_gp.train", networks)
    library = loading.UserCode({"python": networks}).add_to(LIBRARY)
    check_user_code(settings, devices, spec, library, data)
    if data is None:  # as before a run is compiled
        build.make_state(settings, devices, spec, library.models)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: {"score": x}, "returns {'score': <tf.Tensor"),
        (lambda x: [x], "returns [<tf.Tensor"),
        (lambda x: (x, x, x), "returns (<tf.Tensor"),
        (lambda x: (), "returns ()"),
        (lambda x: None, "returns None"),
        (tf.RaggedTensor.from_tensor, "returns tf.RaggedTensor"),
        (tf.sparse.from_dense, "returns SparseTensor"),
        (lambda x: lambda: x, "failed (TypeError"),
        (lambda x: x.numpy() if tf.inside_function() else x, "failed (AttributeError"),
        (lambda x: sys.exit(0) if tf.inside_function() else x, "failed (SystemExit: 0)"),
    ],
)
def test_an_output_of_another_kind_is_refused(function, message):
    with pytest.raises(wgan_gp.UserError) as caught:
        check(critic=with_output(function))
    assert str(caught.value).startswith("wgan_gp.train: critic ") and message in str(caught.value)
    with pytest.raises(wgan_gp.UserError, match=r"^wgan_gp\.train: generator "):
        check(generator=with_output(function, units=2))


@pytest.mark.parametrize("function", [lambda x: "a", lambda x: 3, lambda x: x[:4], tf.as_string])
def test_samples_of_another_kind_are_refused(function):
    with pytest.raises(wgan_gp.UserError, match=r"^wgan_gp\.train: generator returns"):
        check(generator=with_output(function, 2))


def test_the_critic_of_acgan_returns_class_logits():
    whole = with_output(lambda x: x, 2)
    for function in (lambda x: x, lambda x: (x[:, :1], x)):
        with pytest.raises(wgan_gp.UserError, match=r"scores and class logits \[B, 3\]"):
            check(
                classes=3,
                conditioning="acgan",
                generator=whole,
                critic=with_output(function, 4),
            )
    pair = with_output(lambda x: (x[:, :1], x[:, 1:]), 4)
    check(classes=3, conditioning="acgan", generator=whole, critic=pair)


shared = Sequential([layers.Dense(4, "relu"), layers.Dense(2)])
hidden = layers.Dense(4, "relu")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda design: Sequential([layers.Dense(2, trainable=False)]), "no trainable weights"),
        (lambda design: Sequential([layers.Rescaling(0.5)]), "no trainable weights"),
        (lambda design: shared, "of an earlier one — create all networks and layers inside"),
        (lambda design: Sequential([hidden, layers.Dense(2)]), "of an earlier one"),
        (lambda design: sys.exit(0), "failed (SystemExit: 0)"),
        (lambda design: 5, "returns 5"),
        (lambda design, other: shared, "failed (TypeError"),
    ],
)
def test_networks_that_cannot_be_created_or_trained_are_refused(make, message):
    with pytest.raises(wgan_gp.UserError) as caught:
        check(generator=make)
    assert str(caught.value).startswith("wgan_gp.train: generator")
    assert message in str(caught.value)


@pytest.mark.parametrize(("replicas", "synchronized"), [(1, False), (2, False), (2, True)])
def test_statistics_of_each_replica_are_named(replicas, synchronized, warnings):
    def network(design):
        local = layers.BatchNormalization(name="local", synchronized=synchronized)
        return Sequential([layers.Dense(2), local])

    check(generator=network, replicas=replicas)
    expected = "generator: local normalizes over the batch of each replica"
    assert [expected in line for line in warnings] == [True] * (replicas > 1 and not synchronized)


def test_settings_may_be_ignored(warnings):
    check(model_width=8, generator_width=3, model_depth=2, latent_size=5, activation="tanh")
    assert warnings == []


# Weights that a loss does not depend on.


def test_a_missing_gradient_is_zero():
    kernel = Sequential([layers.Input([2]), layers.Dense(3)]).trainable_variables[0]
    found = dense([None, tf.constant([1.0])], [kernel, tf.Variable([2.0])])
    np.testing.assert_array_equal(found[0], np.zeros([2, 3]))
    assert found[0].dtype == tf.float32 and found[1].numpy() == [1.0]


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_weight_that_is_not_used_keeps_its_value(tmp_path, accumulate, warnings):
    class Critic(tf.Module):
        def __init__(self):
            super().__init__()
            self.used = tf.Variable(tf.random.normal([2, 4]), name="used")
            self.unused = tf.Variable(tf.ones([3]), name="unused")

        def __call__(self, points):
            return tf.reduce_sum(tf.tanh(points @ self.used), axis=1)

    settings = config(tmp_path, accumulate=accumulate)
    found = wgan_gp.train(settings, critic=lambda design: Critic()).critic
    np.testing.assert_array_equal(found.unused, np.ones(3))
    assert np.abs(found.used).max() > 0
    (warning,) = [line for line in warnings if "does not depend" in line]
    assert "wgan_gp.train: critic: training does not change" in warning and "unused" in warning


def test_a_generator_whose_samples_do_not_depend_on_it_is_refused(tmp_path):
    stopped = with_output(tf.stop_gradient, 2)
    with pytest.raises(wgan_gp.UserError, match="generator's loss does not depend on the weights"):
        wgan_gp.train(config(tmp_path), generator=stopped)
    assert list(tmp_path.iterdir()) == []


# Objectives.


def leave(self, *args):
    sys.exit(0)


def terms_of(**replaced):
    """Returns the class of an objective with other methods or attributes."""
    return type("Own", (losses.GanObjective,), replaced)


def of_generator(function):
    """Returns an objective whose generator's loss is a function of critic and samples."""
    return terms_of(generator_terms=lambda self, critic, fake, labels: function(critic, fake))


def of_critic(function):
    return terms_of(critic_terms=lambda self, *args, **given: function())


def check_objective(factory, **settings):
    settings = config(objective="own.py:X", **settings)
    library = dataclasses.replace(LIBRARY, objective=factory)
    networks = [generator(None), critic(None)]
    labels, latents = tf.zeros([4], tf.int32), tf.random.normal([4, 8])
    for network, inputs in zip(networks, (latents, ROWS[:4, :2]), strict=True):
        network(inputs)
    user_objective.check_objective(
        build.make_objective(settings, library),
        networks,
        lambda: networks[0](latents),
        networks[1],
        tf.constant(ROWS[:4, :2]),
        labels,
        {},
    )


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (of_critic(dict), "the critic's terms failed (KeyError"),
        (of_critic(lambda: None), "the critic's terms failed (TypeError"),
        (of_critic(sys.exit), "critic_terms failed (SystemExit)"),
        (of_generator(lambda critic, fake: {"loss": tf.zeros([])}), "term loss has the shape ()"),
        (
            of_generator(lambda critic, fake: {"loss": critic(fake)}),
            "term loss has the shape (4, 1)",
        ),
        (of_generator(lambda critic, fake: {"loss": ["a"] * 4}), "(4,) and the dtype string"),
        (of_generator(lambda critic, fake: {"loss": [1, 2, 3, 4]}), "(4,) and the dtype int32"),
        (of_generator(lambda critic, fake: {"loss": tf.zeros([4], "double")}), "dtype float64"),
        (of_generator(lambda critic, fake: {"loss": tf.zeros([4])}), "does not depend on the w"),
        (of_generator(lambda critic, fake: 1 / 0), "(ZeroDivisionError: division by zero)"),
        (
            of_generator(lambda critic, fake: {"other": fake}),
            "the generator's terms failed (KeyError",
        ),
        (terms_of(generator_term_names=("loss", "more")), "terms failed (KeyError: 'more')"),
        (terms_of(critic_term_names=property(lambda self: 1 / 0)), "failed (ZeroDivisionError"),
        (terms_of(constrain=lambda self, weights: sys.exit(0)), "constrain failed (SystemExit: 0"),
        *(
            (terms_of(**{name: property(leave)}), "failed (SystemExit: 0)")
            for name in ("generator_needs_real", "critic_term_intervals")
        ),
        (terms_of(critic_term_intervals={"penalty": 0}), "is {'penalty': 0} — let it map names"),
        (terms_of(critic_term_intervals={"loss": 2}), "critic_term_intervals is {'loss': 2}"),
        (lambda: sys.exit(0), "failed (SystemExit: 0)"),
        (lambda other: None, "failed (TypeError"),
        (lambda: None, "has no critic_terms and no generator_terms"),
        (int, "failed (ValueError"),
    ],
)
def test_objectives_that_cannot_train_are_refused(factory, message):
    with pytest.raises(wgan_gp.UserError) as caught:
        check_objective(factory)
    assert str(caught.value).startswith("--objective=own.py:X") and message in str(caught.value)


def test_objectives_of_each_form_are_accepted(warnings):
    def make(**settings):
        return losses.GanObjective(**settings)

    for factory in (losses.GanObjective, losses.GanObjective(), make):
        check_objective(factory)
    check_objective(make, penalty_weight=5.0)
    check_objective(losses.GanObjective, adversarial_loss="relativistic")
    assert warnings == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("penalty_weight", 5.0), ("adversarial_loss", "hinge"), ("penalty", "r1")],
)
def test_a_setting_that_an_objective_ignores_is_refused(name, value):
    message = f"^--{name}={value} has no effect: --objective=own.py:X has no parameter {name}"
    for factory in (losses.GanObjective(), lambda penalty_target: losses.GanObjective()):
        with pytest.raises(wgan_gp.UserError, match=message):
            check_objective(factory, **{name: value})
    check_objective(losses.GanObjective(), penalty="none")  # for the checks of the critic


def test_the_defaults_of_an_objective_hold_until_a_flag_is_given():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Own(losses.GanObjective):
        penalty: str = "r1"
        penalty_weight: float = 5.0
        generator_class_weight: float = 0.7

    def function(penalty="r1", penalty_weight=5.0, generator_class_weight=0.7, **others):
        given = {"penalty": penalty, "penalty_weight": penalty_weight}
        classes = {"generator_class_weight": generator_class_weight}
        return losses.GanObjective(**given, **classes, **others)

    def objective(factory, **settings):
        library = dataclasses.replace(LIBRARY, objective=factory)
        return build.make_objective(config(objective="own.py:X", **settings), library)

    for factory in (Own, function):
        plain = objective(factory)
        assert (plain.penalty, plain.penalty_weight) == ("r1", 5.0)
        assert (plain.generator_class_weight, plain.critic_class_weight) == (0.7, 0.0)
        given = objective(factory, penalty="r2", penalty_weight=3.0, conditioning="acgan")
        assert (given.penalty, given.penalty_weight) == ("r2", 3.0)
        assert (given.generator_class_weight, given.critic_class_weight) == (0.7, 1.0)
        heavy = objective(factory, class_weight=4.0, conditioning="acgan")
        assert (heavy.generator_class_weight, heavy.critic_class_weight) == (0.4, 4.0)
        decayed = objective(factory, learning_rate_schedule="r3gan", train_steps=100, n_critic=2)
        assert (decayed.penalty_weight_end, decayed.penalty_decay_steps) == (0.1, 200)


def test_a_refused_setting_is_shown_as_it_was_given():
    for name, value in (("class_weight", 2.0), ("penalty_weight", "5.0,0.5")):
        more = {"penalty": "r1,r2"} if name == "penalty_weight" else {}
        with pytest.raises(wgan_gp.UserError, match=f"^--{name}={re.escape(str(value))} has no"):
            check_objective(lambda penalty="none": losses.GanObjective(), **{name: value}, **more)


def test_an_error_of_an_objective_in_training_is_explained(tmp_path):
    """The error appears only where TensorFlow traces the loss, after the check."""

    class Own(losses.GanObjective):
        def critic_terms(self, *args, **given):
            if not tf.executing_eagerly():
                raise ValueError("not in a graph")
            return super().critic_terms(*args, **given)

    with pytest.raises(wgan_gp.UserError, match=r"terms failed \(ValueError: not in a graph"):
        wgan_gp.train(config(tmp_path), objective=Own)


def test_an_objective_that_does_not_take_real_examples_is_explained(tmp_path):
    with pytest.raises(wgan_gp.UserError, match="unexpected keyword argument 'real'"):
        check_objective(
            of_generator(lambda critic, fake: {"loss": critic(fake)[:, 0]}),
            adversarial_loss="relativistic",
        )


# Exits, and the arguments of train.


def test_only_ctrl_c_passes():
    with pytest.raises(wgan_gp.UserError, match=r"^it failed \(SystemExit: 0\)"), explaining("it"):
        sys.exit(0)
    with pytest.raises(KeyboardInterrupt), explaining("it"):
        raise KeyboardInterrupt


class SilentError(Exception):
    """An exception that has no text."""

    def __str__(self):
        raise ValueError

    __repr__ = __str__


def test_an_exception_without_a_text_is_named():
    with pytest.raises(wgan_gp.UserError, match=r"^it failed \(SilentError\) — "), explaining("it"):
        raise SilentError
    assert reason(SilentError()) == ""
    with pytest.raises(wgan_gp.UserError, match=r"generator failed \(TypeError"):
        check(generator=SilentError())


@pytest.mark.parametrize(
    "method", ["begin", "before_loop", "after_loop", "reads_state", "end", "close"]
)
def test_an_exit_in_a_hook_is_an_error(method):
    hook = extensions.report_errors(type("Leave", (wgan_gp.Hook,), {method: leave})(), "hook")
    arguments = {"before_loop": (0, 5), "close": ()}.get(method, (0,))
    message = rf"^the hook Leave: {method} failed \(SystemExit: 0\)"
    with pytest.raises(wgan_gp.UserError, match=message):
        getattr(hook, method)(*arguments)


@pytest.mark.parametrize("method", ["begin", "scalars", "close"])
def test_an_exit_in_a_writer_is_an_error(method):
    writer = extensions.report_errors(type("Leave", (wgan_gp.Writer,), {method: leave})(), "writer")
    arguments = {"begin": (0,), "scalars": (5, {}), "close": ()}[method]
    message = rf"^the writer Leave: {method} failed \(SystemExit: 0\)"
    with pytest.raises(wgan_gp.UserError, match=message):
        getattr(writer, method)(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["hooks", "writers"])
def test_an_exit_at_the_end_of_a_run_is_an_error(tmp_path, given):
    kind = {"hooks": wgan_gp.Hook, "writers": wgan_gp.Writer}[given]
    leaving = type("Leave", (kind,), {"close": leave})()
    with pytest.raises(wgan_gp.UserError, match=r"Leave: close failed \(SystemExit: 0\)"):
        wgan_gp.train(config(tmp_path), **{given: [leaving]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": None}, "config is None — pass a wgan_gp.Config"),
        ({"config": wgan_gp.Config}, "config is <class"),
        ({"config": {"train_steps": 5}}, "config is {'train_steps': 5}"),
        ({"hooks": [5]}, "hooks contains 5 — pass objects of subclasses of wgan_gp.Hook"),
        ({"hooks": [wgan_gp.Hook]}, "hooks contains <class"),
        ({"hooks": wgan_gp.Hook()}, "hooks is <wgan_gp"),
        ({"hooks": None}, "hooks is None — pass a list: hooks="),
        ({"writers": [5]}, "writers contains 5 — pass objects of subclasses of wgan_gp.Writer"),
        ({"writers": wgan_gp.MemoryWriter()}, "writers is <wgan_gp"),
        ({"generator": 5}, "wgan_gp.train: generator failed (TypeError"),
        ({"objective": 5}, "--objective=python failed (TypeError"),
        ({"data": 5}, "data gives an object of type int"),
    ],
)
def test_arguments_of_train_are_checked(tmp_path, arguments, message):
    with pytest.raises(wgan_gp.UserError) as caught:
        wgan_gp.train(**{"config": config(tmp_path), **arguments})
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# Saved runs.


@pytest.mark.slow
def test_all_modes_give_the_networks_the_same_design(tmp_path, capsys):
    path, data = tmp_path / "networks.py", tmp_path / "data.py"
    path.write_text(
        "from tensorflow.keras import Sequential, layers\n"
        "def generator(design):\n"
        "    print('bounded', design.bounded)\n"
        "    return Sequential([layers.Dense(3, 'tanh' if design.bounded else None)])\n"
        "def critic(design):\n"
        "    return Sequential([layers.Dense(4, 'relu'), layers.Dense(1)])\n"
    )
    data.write_text(
        "import numpy as np\n"
        "def dataset(split):\n"
        "    return 50 * np.random.default_rng(len(split)).normal(size=(64, 3))\n"
    )
    run = [f"--model={path}", f"--dataset={data}", f"--model_dir={tmp_path}/run"]
    training = ["--train_steps=2", "--steps_per_loop=2", "--batch_size=8", "--latent_size=4"]
    training += ["--sample_interval=0", "--scaling=standard"]
    assert call_main(*run, *training) == 0
    assert call_main("--mode=sample", *run, "--num_samples=4") == 0
    assert call_main("--mode=export", *run) == 0
    assert call_main("--mode=evaluate", *run, "--evaluate_samples=40") == 0
    shown = capsys.readouterr().out
    assert shown.count("bounded False") >= 4 and "bounded True" not in shown
    path.write_text("import sys\ndef generator(design): sys.exit(0)\ncritic = generator\n")
    for mode, output in (("sample", "samples.png"), ("export", "exported")):
        capsys.readouterr()
        assert call_main(f"--mode={mode}", *run, f"--output={tmp_path}/{output}") == 2
        assert f"{path}: generator failed (SystemExit: 0)" in capsys.readouterr().err
