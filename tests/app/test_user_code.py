"""Networks, data and objectives of the user, from files and from Python."""

import dataclasses
import json
import os
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import wgan_gp
from tests.helpers.runs import LIBRARY, TINY, call_main
from wgan_gp.app.user_code import loading

layers = tf.keras.layers

NETWORKS = """
import tensorflow as tf

def generator(design):
    return tf.keras.Sequential([
        tf.keras.layers.Dense(8, "relu"),
        tf.keras.layers.Dense(64),
        tf.keras.layers.Reshape(design.example_shape),
    ])

def critic(design):
    return tf.keras.Sequential([
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(8, "relu"),
        tf.keras.layers.Dense(1),
    ])
"""
DATA = """
import numpy as np

def dataset(split):
    random = np.random.default_rng(len(split))
    images = random.uniform(-1, 1, (40, 8, 8, 1)).astype(np.float32)
    return (images, np.arange(40) % 5) if split in ("train", "test") else None
"""
OBJECTIVE = """
import dataclasses
from wgan_gp import losses

@dataclasses.dataclass(frozen=True, kw_only=True)
class Doubled(losses.GanObjective):
    def generator_terms(self, critic, fake, *, labels):
        terms = super().generator_terms(critic, fake, labels=labels)
        return {**terms, "loss": 2.0 * terms["loss"]}
"""
CONSTANT = {"learning_rate_schedule": "constant"}  # allows a resume with more iterations
FLAGS = [
    "--latent_size=4",
    "--batch_size=8",
    "--n_critic=2",
    "--steps_per_loop=5",
    "--summary_interval=5",
    "--sample_interval=0",
    "--checkpoint_interval=5",
    "--learning_rate_schedule=constant",
]


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a file of Python and returns its path."""

    def write_file(name, text):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write_file


def error_of(capsys, *arguments):
    """Runs the program, and returns its error without "error: "."""
    capsys.readouterr()
    assert call_main(*arguments) == 2
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    return line.removeprefix("error: ")


def config(path, **settings):
    return wgan_gp.Config(
        model_dir=str(path),
        **{**TINY, "train_steps": 5, "sample_interval": 0, **CONSTANT, **settings},
    )


def weights(run):
    return [tf.convert_to_tensor(each).numpy() for each in run.state.generator.weights]


def checkpoint_values(path):
    reader = tf.train.load_checkpoint(path)
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if "OBJECT_GRAPH" not in name
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a folder with files of networks, data and losses, and the run "once" of them."""
    folder = tmp_path_factory.mktemp("trained")
    for name, text in (("networks", NETWORKS), ("data", DATA), ("losses", OBJECTIVE)):
        (folder / f"{name}.py").write_text(text)
    assert call_main(*flags_of(folder), f"--model_dir={folder}/once", "--train_steps=10") == 0
    return folder


def flags_of(folder):
    return [
        f"--model={folder}/networks.py",
        f"--dataset={folder}/data.py",
        f"--objective={folder}/losses.py:Doubled",
        "--generator_ema_decay=0.9",
        *FLAGS,
    ]


def assert_same_checkpoints(one, other):
    a, b = (checkpoint_values(f"{each}/checkpoints/ckpt-10") for each in (one, other))
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_a_file_of_networks_data_and_losses_resumes_exactly(trained, tmp_path):
    assert call_main(*flags_of(trained), f"--model_dir={tmp_path}", "--train_steps=5") == 0
    assert call_main(*flags_of(trained), f"--model_dir={tmp_path}", "--train_steps=10") == 0
    assert_same_checkpoints(trained / "once", tmp_path)


@pytest.mark.slow
def test_config_json_records_the_files(trained):
    saved = json.loads((trained / "once" / "config.json").read_text())
    for name, file in (("model", "networks.py"), ("dataset", "data.py")):
        assert saved[name] == str(trained / file)
        assert saved[f"{name}_sha256"] == loading.load_code(name, saved[name]).sha256
    assert saved["objective_sha256"] is not None
    terms = json.loads((trained / "once" / "metrics.jsonl").read_text().splitlines()[-1])
    assert any("held_out" in name for name in terms)


@pytest.mark.slow
def test_modes_use_the_files_only_if_they_are_named(trained, capsys):
    run, (model, data, *_) = f"--model_dir={trained}/once", flags_of(trained)
    saved = json.loads((trained / "once" / "config.json").read_text())
    for mode, needed, extra in (
        ("sample", [model], ["--num_samples=4"]),
        ("export", [model], []),
        ("evaluate", [data, model], ["--evaluate_samples=40"]),
    ):
        error = error_of(capsys, f"--mode={mode}", run)
        name = needed[0].removeprefix("--").partition("=")[0]
        digest = saved[f"{name}_sha256"][:16]
        assert f"uses code from {needed[0]} (sha256 {digest})" in error
        assert call_main(f"--mode={mode}", run, *needed, *extra) == 0
    error = error_of(capsys, "--mode=evaluate", run, model)
    assert f"uses code from {data}" in error
    # Data without code are no file of the same content.
    error = error_of(capsys, "--mode=evaluate", run, model, "--dataset=swiss_roll")
    assert "contains a run with a different configuration (--dataset: " in error


@pytest.mark.slow
def test_the_command_line_and_python_give_identical_weights(trained, tmp_path):
    networks, data, objective = (
        loading.load_code("model", str(trained / f"{name}.py")).module
        for name in ("networks", "data", "losses")
    )
    result = wgan_gp.train(
        wgan_gp.Config(
            model_dir=str(tmp_path),
            train_steps=10,
            batch_size=8,
            n_critic=2,
            steps_per_loop=5,
            summary_interval=5,
            checkpoint_interval=5,
            sample_interval=0,
            latent_size=4,
            generator_ema_decay=0.9,
            **CONSTANT,
        ),
        generator=networks.generator,
        critic=networks.critic,
        data=data.dataset,
        objective=objective.Doubled,
    )
    assert_same_checkpoints(trained / "once", tmp_path)
    assert result.iteration == 10 and result.generator.name.startswith("sequential")


@pytest.mark.slow
def test_a_changed_or_moved_file_is_reported_on_a_resume(write, tmp_path, capsys):
    path = write("networks.py", NETWORKS)
    flags = [f"--model_dir={tmp_path}/run", *FLAGS]
    assert call_main(f"--model={path}", *flags, "--train_steps=5") == 0
    moved = write("moved.py", NETWORKS)
    assert call_main(f"--model={moved}", *flags, "--train_steps=5") == 0
    assert "has changed" not in capsys.readouterr().err
    write("moved.py", NETWORKS + "\n# a comment\n")
    assert call_main(f"--model={moved}", *flags, "--train_steps=5") == 0
    assert f"--model={moved} has changed since the run was started" in capsys.readouterr().err
    write("moved.py", NETWORKS.replace("Dense(8", "Dense(9"))
    assert "cannot be restored" in error_of(capsys, f"--model={moved}", *flags, "--train_steps=20")
    error = error_of(capsys, *flags, "--train_steps=20")
    assert f"give --generator_model={moved} --model={moved}" in error or f"--model={moved}" in error


@pytest.mark.slow
def test_python_objects_train_and_the_result_samples_evaluates_and_exports(tmp_path):
    random = np.random.default_rng(0)
    points = random.normal(size=(64, 2)).astype(np.float32)
    generator = tf.keras.Sequential([layers.Input([4]), layers.Dense(8, "relu"), layers.Dense(2)])
    before = generator.get_weights()

    class Critic(tf.Module):  # neither a Keras model nor aware of training
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(tf.random.normal([2, 8]), name="weight")
            self.out = tf.Variable(tf.random.normal([8]), name="out")

        def __call__(self, points):
            return tf.linalg.matvec(tf.nn.relu(points @ self.weight), self.out)

    result = wgan_gp.train(
        config(tmp_path / "run", latent_size=4, summary_interval=5),
        generator=generator,
        critic=Critic,
        data=tf.data.Dataset.from_tensor_slices(points),
    )
    assert all(
        np.array_equal(old, new) for old, new in zip(before, generator.get_weights(), strict=True)
    )
    assert not np.array_equal(before[0], result.generator.get_weights()[0])
    assert isinstance(result.critic, Critic)
    assert result.history["step"].tolist() == [5]
    assert np.isfinite(result.history["critic/loss"]).all()
    samples = result.sample(3)
    assert samples.shape == (3, 2)
    folder = result.export(f"{tmp_path}/exported")
    exported = tf.saved_model.load(f"{folder}/saved_model").signatures["seed"]
    seed = tf.constant(0, tf.int64)
    np.testing.assert_allclose(
        exported(seed=seed, count=tf.constant(3))["samples"], samples, atol=1e-6
    )
    assert os.path.exists(f"{folder}/generator.keras")


@pytest.mark.slow
def test_a_generator_alone_replaces_that_of_the_configuration(tmp_path):
    # Without an input layer, a Sequential has no weights before its first call.
    generator = tf.keras.Sequential([layers.Dense(2)])
    result = wgan_gp.train(config(tmp_path), generator=generator)
    assert result.run.state.critic.name == "critic" and len(result.generator.layers) == 1
    with pytest.raises(wgan_gp.UserError, match=r"^wgan_gp\.train has no generator"):
        wgan_gp.train(config(tmp_path / "other", model=None), critic=generator)


def test_an_objective_without_the_interface_is_named(tmp_path):
    class Nothing:
        pass

    with pytest.raises(wgan_gp.UserError, match="python has no critic_terms and no gen"):
        wgan_gp.train(config(tmp_path), objective=Nothing)


UNPRINTABLE = """
class Unprintable(Exception):
    def __str__(self):
        raise ValueError
raise Unprintable
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_this", "cannot be imported (ModuleNotFoundError: No module named"),
        ("def generator(design:", "cannot be imported (SyntaxError"),
        ("x = 1 / 0", "cannot be imported (ZeroDivisionError: division by zero, own.py, line 1)"),
        ("def generator(design): pass", "generator(design) returns None"),
        (UNPRINTABLE, "cannot be imported (Unprintable, own.py, line 5)"),
        ("import sys\ndef __getattr__(name): sys.exit(0)", "failed (SystemExit: 0)"),
    ],
)
def test_files_that_cannot_be_used(write, tmp_path, capsys, text, message):
    path = write("own.py", text)
    error = error_of(capsys, f"--model={path}", f"--model_dir={tmp_path}/run")
    assert error.startswith(f"--model={path}") and message in error
    assert not (tmp_path / "run").exists()


def test_a_file_of_a_generator_is_loaded_with_a_critic_of_python(write):
    path = write("networks.py", NETWORKS)
    settings, code = loading.from_objects(
        wgan_gp.Config(model=path), LIBRARY.models, critic=layers.Dense
    )
    assert (settings.model, settings.generator_model) == ("python", path)
    assert code.networks.keys() == {"python", path}


def test_networks_have_no_other_names(write, tmp_path, capsys):
    path = write("own.py", "def generator(design): pass\ndef critic(design): pass\nSmall = 1\n")
    error = error_of(capsys, f"--model={path}:Small", f"--model_dir={tmp_path}/run")
    assert "names an object, but networks are the functions generator and critic" in error


def test_a_design_that_is_refused_is_one_line_of_its_flag(write, tmp_path, capsys):
    text = "from models import DesignError\ndef generator(design):\n"
    text += "    raise DesignError('signals are too long', 'give shorter ones')\n"
    flag = f"--generator_model={write('own.py', text)}"
    error = error_of(capsys, flag, *FLAGS, f"--model_dir={tmp_path}/run")
    assert error == f"{flag}: signals are too long — give shorter ones"


def test_a_missing_file_and_a_missing_module_are_named(capsys):
    assert "--model=none/own.py cannot be imported (FileNotFoundError" in error_of(
        capsys, "--model=none/own.py"
    )
    error = error_of(capsys, "--model=nothing.like_this")
    assert "--model=nothing.like_this cannot be imported" in error
    assert "python stands for an object" in error_of(capsys, "--model=python")
    assert "does not name an object" in error_of(capsys, "--objective=json")


def test_the_traceback_is_shown_on_request(write, tmp_path, capsys):
    path = write("own.py", "def fail():\n    raise KeyError('deep')\nfail()")
    try:
        assert "Traceback" not in error_of(capsys, f"--model={path}")
        call_main(f"--model={path}", "--verbosity=1")
        shown = capsys.readouterr().err
        assert "Traceback" in shown and "in fail" in shown
    finally:
        call_main("--verbosity=-1", "--model=unknown")


@pytest.mark.parametrize(
    ("part", "code", "message"),
    [
        (
            "critic",
            "tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(4), "
            "tf.keras.layers.BatchNormalization(name='bad'), tf.keras.layers.Dense(1)])",
            "(bad)",
        ),
        (
            "generator",
            "tf.keras.Sequential([tf.keras.layers.Dense(63)])",
            "(4, 63) for 4 latents, but the examples have shape (8, 8, 1)",
        ),
        (
            "generator",
            "tf.keras.Sequential([tf.keras.layers.Dense(64, dtype='float64', name='wide'), "
            "tf.keras.layers.Reshape([8, 8, 1], dtype='float64')])",
            "is float64",
        ),
        ("generator", "lambda z: z", "return a Keras model, a tf.Module or another callable"),
        ("critic", "1 / 0", "critic failed (ZeroDivisionError: division by zero)"),
        (
            "critic",
            "tf.keras.Sequential([tf.keras.layers.Conv2D(4, 3), tf.keras.layers.Dense(2)])",
            "return one score per example",
        ),
    ],
)
def test_networks_that_cannot_be_trained(write, tmp_path, capsys, part, code, message):
    text = NETWORKS + f"\ndef {part}(design):\n    return {code}\n"
    path = write("own.py", text)
    flags = [f"--model={path}", *FLAGS, "--train_steps=5", f"--model_dir={tmp_path}/run"]
    error = error_of(capsys, *flags)
    assert error.startswith(f"--model={path}") and message in error
    assert not (tmp_path / "run").exists()


LATE = """
class Late(tf.Module):
    def __init__(self):
        super().__init__()
        self.first = tf.Variable(tf.random.normal([4, 64]), name="first")
        self.late = None
    def __call__(self, latents, training=False):
        if training and self.late is None:
            self.late = tf.Variable(0.0, name="late")
        return tf.reshape(latents @ self.first, [-1, 8, 8, 1])
def generator(design): return Late()
"""
DYNAMIC = """
def generator(design):
    latents = tf.keras.Input([design.latent_size])
    x = tf.keras.layers.Dense(64)(latents)
    eight = lambda x: 8 + tf.cast(0 * x[0, 0], tf.int32)
    moving = tf.keras.layers.Lambda(lambda x: tf.reshape(x, [-1, 8, eight(x), 1]), name="moving")
    return tf.keras.Model(latents, moving(x))
"""


def test_late_weights_and_dynamic_shapes_are_named(write, tmp_path, capsys):
    flags = [*FLAGS, "--train_steps=5", f"--model_dir={tmp_path}/run"]
    error = error_of(capsys, f"--model={write('late.py', NETWORKS + LATE)}", *flags)
    assert "late.py: generator creates" in error and "in the first call" in error
    error = error_of(capsys, f"--model={write('dynamic.py', NETWORKS + DYNAMIC)}", *flags)
    assert "dynamic.py: generator returns" in error and "of the static shape" in error


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_network_of_the_user_trains_alike_on_one_replica_and_on_two(tmp_path):
    def generator(design):
        return tf.keras.Sequential(
            [
                layers.Dense(8, use_bias=False),
                layers.BatchNormalization(synchronized=True),
                layers.ReLU(),
                layers.Dense(2),
            ]
        )

    def critic(design):
        return tf.keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(1)])

    data = np.random.default_rng(0).normal(size=(64, 2))
    one, two = (
        wgan_gp.train(
            config(
                tmp_path / str(replicas), cpu_replicas=replicas, precision="float32", train_steps=2
            ),
            generator=generator,
            critic=critic,
            data=data,
        )
        for replicas in (1, 2)
    )
    for a, b in zip(weights(one.run), weights(two.run), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.full([8, 8, 8, 1], 255.0), "is constant in channel 0"),
        (np.full([8, 2], np.nan), "NaN or infinity in 8 of 8 examples"),
        (np.zeros([0, 2]), "examples of shape [0, 2]"),
        ((np.zeros([8, 2]), np.zeros([7], int)), "labels of shape [7]"),
        (np.array(["a", "b"]), "give numbers of shape"),
        (lambda split: None, "returns nothing for --split=train"),
        (lambda split: 1 / 0, "failed (ZeroDivisionError"),
        (lambda split: tf.data.Dataset.from_tensor_slices({"a": [1]}), "give an array, a pair"),
    ],
)
def test_data_that_cannot_be_trained_on(tmp_path, value, message):
    with pytest.raises(wgan_gp.UserError) as caught:
        wgan_gp.train(config(tmp_path), data=value)
    assert str(caught.value).startswith("data ") and message in str(caught.value)


@pytest.mark.slow
def test_images_of_the_user_have_any_number_of_channels(tmp_path):
    images = np.random.default_rng(0).uniform(-1, 1, (16, 8, 8, 5)).astype(np.float32)
    settings = config(tmp_path, model="mlp", model_width=4, train_steps=1, sample_interval=1)
    result = wgan_gp.train(settings, data=images)
    assert result.sample(3).shape == (3, 8, 8, 5)
    assert list((tmp_path / "samples").glob("*.png"))


def test_all_forms_of_data_give_the_same_examples(tmp_path):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (20, 8, 8, 3), np.uint8)
    labels = np.arange(20) % 4
    pairs = tf.data.Dataset.from_tensor_slices((images, labels))
    named = pairs.map(lambda image, label: {"image": image, "label": label, "id": label})
    forms = [(images, labels), pairs, named, lambda split: (images, labels)]
    found = []
    for value in forms:
        from wgan_gp.app.resolve import resolve  # noqa: PLC0415
        from wgan_gp.app.user_code import loading  # noqa: PLC0415

        settings = config(tmp_path, conditioning="projection", model="dcgan", model_width=4)
        settings, user_code = loading.from_objects(settings, LIBRARY.models, data=value)
        _, dataset = resolve(settings, LIBRARY.models, user_code.dataset)
        assert dataset.spec.classes == 4 and dataset.spec.example_shape == (8, 8, 3)
        data = dataset.open(batch_size=8)
        found.append([part.numpy() for part in data.stored])
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert found[0][0].dtype == np.uint8


@pytest.mark.slow
def test_a_streamed_dataset_resumes_at_its_position(tmp_path):
    """The dataset is endless, so it cannot be held in memory."""

    def dataset(split):
        if split != "train":
            return None
        numbers = tf.data.Dataset.counter()
        return numbers.map(lambda i: tf.random.stateless_normal([2], [0, i]))

    settings = config(tmp_path / "once", train_steps=10, checkpoint_interval=5, steps_per_loop=5)
    once = wgan_gp.train(settings, data=dataset)
    for steps in (5, 10):
        part = dataclasses.replace(settings, model_dir=f"{tmp_path}/twice", train_steps=steps)
        twice = wgan_gp.train(part, data=dataset)
    for a, b in zip(weights(once.run), weights(twice.run), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.slow
def test_other_data_on_a_resume_is_reported(tmp_path, capsys):
    data = np.random.default_rng(0).normal(size=(64, 2))
    wgan_gp.train(config(tmp_path), data=data)
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("absl.logging.warning", lambda line, *_: lines.append(line))
        wgan_gp.train(config(tmp_path, train_steps=10), data=data + 1)
    assert any("the examples differ" in line for line in lines)
    with pytest.raises(wgan_gp.UserError, match=r"of shape \(1,\), but the run was"):
        wgan_gp.train(config(tmp_path, train_steps=10), data=data[:, :1])


def test_references_are_distinguished_from_names_of_datasets():
    for value in ("own.py", "a/b.py", "own.py:Name", "package.module", "package.module:Name"):
        assert loading.is_reference(value)
    for value in ("mnist", "mnist:3.0.1", "huggingface:mnist", "cifar10/x:1.2.3", "gs://b/own.py"):
        assert not loading.is_reference(value)
