"""--runtime=pjrt trains the weights of --runtime=tensorflow, whatever the settings are.

Each run combines several settings, because most of the time is compilation.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import losses
import models
import wgan_gp
from tests.fuzz.results import differences, tensors
from tests.helpers.runs import held_in, train_tiny
from wgan_gp.app import training
from wgan_gp.config import PYTHON, Config
from wgan_gp.config.networks import CONDITIONINGS
from wgan_gp.config.optimization import OPTIMIZERS
from wgan_gp.training.ada import AdaHook

layers = tf.keras.layers
ITERATIONS = 10
COMMON = {
    "dataset": "array",
    "activation": "tanh",  # Adam amplifies the rounding errors of ReLU; see docs/numerics.md
    "train_steps": ITERATIONS,
    "summary_interval": 5,
    "sample_interval": 0,
}
SHAPES = {
    "mlp": (6,),
    "conv1d": (32, 1),
    "conv3d": (4, 8, 5, 1),
    "dcgan": (8, 8, 3),
    "resnet": (32, 32, 1),
    "r3gan": (32, 32, 1),
}

# The number of devices, and the settings.
RUNS = {
    "schedules": (
        8,
        {
            "penalty": "two_sided",
            "adversarial_loss": "wasserstein",
            "penalty_interval": 2,
            "learning_rate_schedule": "r3gan",
            "generator_ema_decay": 0.9,
            "accumulate": 2,
        },
    ),
    "one_sided": (
        4,
        {
            "penalty": "one_sided",
            "adversarial_loss": "logistic",
            "conditioning": "acgan",
            "learning_rate_schedule": "cosine",
            "optimizer": "adamw",
            "weight_decay": 0.1,
            "gradient_clip_norm": 0.5,
        },
    ),
    "r1": (
        8,
        {
            "penalty": "r1",
            "adversarial_loss": "least_squares",
            "conditioning": "concatenation",
            "accumulate": 2,
        },
    ),
    "zero_centered,r2": (
        1,
        {
            "penalty": "zero_centered,r2",
            "adversarial_loss": "relativistic",
            "conditioning": "projection",
            "accumulate": 2,
            "generator_ema_decay": 0.9,
        },
    ),
    "weight_clipping": (
        8,
        {
            "penalty": "weight_clipping",
            "learning_rate_schedule": "constant",
            "conditioning": "acgan",
            "optimizer": "lion",
            "beta_1": 0.9,
        },
    ),
    "none": (
        8,
        {
            "penalty": "none",
            "adversarial_loss": "hinge",
            "minibatch_stddev": 2,
            "batch_size": 32,
            "optimizer": "rmsprop",
        },
    ),
    "conv1d": (
        8,
        {
            "model": "conv1d",
            "penalty": "dragan",
            "adversarial_loss": "logistic",
            "conditioning": "concatenation",
            "generator_normalization": "film",
            "critic_normalization": "layer",
        },
    ),
    "conv3d": (
        2,
        {
            "model": "conv3d",
            "adversarial_loss": "hinge",
            "conditioning": "projection",
            "critic_normalization": "instance",
            "random_flips": True,
        },
    ),
    "diffaugment": (
        2,
        {
            "model": "dcgan",
            "augment": "diffaugment",
            "conditioning": "acgan",
            "penalty": "dragan",
            "adversarial_loss": "hinge",
            "penalty_interval": 2,
        },
    ),
    "projection": (
        1,
        {
            "model": "dcgan",
            "augment": "diffaugment",
            "conditioning": "projection",
            "random_flips": True,
            "penalty": "r1",
            "adversarial_loss": "logistic",
            "critic_normalization": "spectral",
        },
    ),
    "ada": (
        2,
        {
            "model": "dcgan",
            "augment": "ada",
            "seed": 1,  # the probability rises after 5 iterations
            "learning_rate_schedule": "constant",
            "holdout": 0.25,
            "conditioning": "concatenation",
        },
    ),
    "least_squares": (
        2,
        {
            "model": "dcgan",
            "adversarial_loss": "least_squares",
            "accumulate": 2,
            # The moments would be those of a micro-batch, which has other examples on 8 devices.
            "generator_normalization": "none",
            "generator_ema_decay": 0.9,
        },
    ),
    "bfloat16": (8, {"precision": "mixed_bfloat16"}),
    "resnet": (
        2,
        {"model": "resnet", "conditioning": "projection", "penalty": "one_sided", "attention": 8},
    ),
    "r3gan": (
        8,
        {
            "model": "r3gan",
            "penalty": "r1",
            "adversarial_loss": "relativistic",
        },
    ),
}
FAST = ("schedules",)
SENT = ("zero_centered,r2", "conv1d", "ada")  # whose examples the host sends
# bfloat16 has 8 bits, and XLA rounds other intermediate results than TensorFlow. In resnet's
# generator, sums cancel: with --jit_compile=on, TensorFlow's XLA differs from jax's by 1e-5, too.
TOLERANCES = {"bfloat16": 2e-2, "resnet": 1e-4}


def test_the_runs_contain_every_loss_and_network():
    def values(name, default):
        return {part for _, run in RUNS.values() for part in run.get(name, default).split(",")}

    assert values("penalty", "two_sided") == set(losses.PENALTIES)
    assert values("adversarial_loss", "wasserstein") == set(losses.ADVERSARIAL_LOSSES)
    assert values("model", "mlp") == set(models.MODELS)
    assert values("conditioning", "none") == set(CONDITIONINGS)
    assert values("optimizer", "adam") | {PYTHON} == set(OPTIMIZERS)
    assert values("augment", "none") == {"none", "diffaugment", "ada"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Returns a function that returns the path of 64 examples for a network."""
    folder = tmp_path_factory.mktemp("data")

    def path_for(model):
        shape = (64, *SHAPES[model])
        examples = np.sin(np.arange(np.prod(shape)).reshape(shape) * 0.37)
        np.savez(folder / f"{model}.npz", x=examples.astype(np.float32), y=np.arange(64) % 3)
        return str(folder / f"{model}.npz")

    return path_for


def checkpoint(path, iterations=ITERATIONS, **settings):
    """Trains, and returns the tensors of the last checkpoint, and the summaries."""
    _, writer = train_tiny(path, **{**COMMON, "train_steps": iterations, **settings})
    return tensors(path / "checkpoints" / f"ckpt-{iterations}"), writer.summaries


def bias_of_scores(values):
    """Returns the names of the bias of the critic's last layer and of its gradient's moments."""
    last = sum(name.startswith("critic_optimizer/_trainable_variables/") for name in values) - 1
    names = [f"_trainable_variables/{last}", f"_variables/{2 * last + 1}"]
    names.append(f"_variables/{2 * last + 2}")
    return {f"critic_optimizer/{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names}


def assert_close(ours, theirs, tolerance, without=()):
    """Compares each tensor by the norm of the difference, relative to its norm."""
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - without:
        one, other = (np.asarray(each[name], np.float64) for each in (ours, theirs))
        assert np.linalg.norm(other - one) <= tolerance * np.linalg.norm(one), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in RUNS]
)
def test_devices_train_the_weights_of_one_replica_of_tensorflow(tmp_path, data, name, monkeypatch):
    quick = functools.partial(AdaHook, interval=5, range_images=200, target=0.0)
    monkeypatch.setattr(training, "AdaHook", quick)
    replicas, settings = RUNS[name]
    settings = settings | {"data_dir": data(settings.get("model", "mlp"))}
    # Without XLA, TensorFlow has other kernels.
    one = {"runtime": "tensorflow", "jit_compile": "off"}
    with held_in("off" if name in SENT else "device"):
        ours, log = checkpoint(tmp_path / "tensorflow", **one, **settings)
        theirs, other_log = checkpoint(
            tmp_path / "pjrt", runtime="pjrt", cpu_replicas=replicas, **settings
        )
    relativistic = settings.get("adversarial_loss") == "relativistic"
    # Only differences of scores matter then, so the gradient of the bias is a rounding error.
    without = bias_of_scores(ours) if relativistic else set()
    assert without <= ours.keys()
    tolerance = TOLERANCES.get(name, 1e-5)
    if settings.get("augment") == "ada":
        assert log[0][1]["augment/probability"] > 0
    assert_close(ours, theirs, tolerance, without)
    assert len(log) == len(other_log) == 2
    for (step, one), (other_step, other) in zip(log, other_log, strict=True):
        assert step == other_step
        assert one.keys() == other.keys()
        for tag in one:
            if "throughput" not in tag:
                assert other[tag] == pytest.approx(one[tag], rel=10 * tolerance, abs=tolerance), tag


def generator(design):
    return tf.keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(*design.example_shape)])


def critic(design):
    return tf.keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(1)])


def endless(split):
    if split != "train":
        return None
    numbers = tf.data.Dataset.counter()
    return numbers.map(lambda i: tf.random.stateless_uniform([2], [0, i], -1.0, 1.0))


@pytest.mark.slow
def test_an_endless_stream_and_networks_of_the_user_train_for_100_iterations(tmp_path):
    """Rounding errors grow with time; a resumed run is nevertheless the same bit for bit."""

    def train(name, **settings):
        own = {"train_steps": 100, "steps_per_loop": 25, "sample_interval": 0, "latent_size": 8}
        config = Config(
            model_dir=f"{tmp_path}/{name}", batch_size=16, n_critic=2, **own, **settings
        )
        wgan_gp.train(config, generator=generator, critic=critic, data=endless)

    train("one", runtime="tensorflow", jit_compile="off")
    on_devices = {"runtime": "pjrt", "cpu_replicas": 8}
    train("whole", **on_devices)
    one, whole = (tensors(tmp_path / name / "checkpoints/ckpt-100") for name in ("one", "whole"))
    assert_close(one, whole, 1e-3)
    train("halves", **on_devices, stop_step=50)
    train("halves", **on_devices)
    assert differences(tmp_path / "whole", tmp_path / "halves", 100) == []


@pytest.mark.slow
def test_weights_are_transferred_to_a_run_in_either_runtime(tmp_path, data):
    """The new run has no labels, so a part of the weights does not fit."""
    path = data("mlp")
    source = {"data_dir": path, "conditioning": "acgan", "seed": 7}
    checkpoint(tmp_path / "source", 5, runtime="pjrt", **source)
    settings = {"data_dir": path, "restore_from": str(tmp_path / "source"), "restore": "both"}
    found = {
        runtime: checkpoint(tmp_path / runtime, 5, **settings, runtime=runtime, cpu_replicas=count)
        for runtime, count in (("tensorflow", 1), ("pjrt", 2))
    }
    (ours, _), (theirs, _) = found.values()
    assert_close(ours, theirs, 1e-5)
    # The weights of the first run, and not those of a new one, were the first ones.
    fresh, _ = checkpoint(tmp_path / "fresh", 5, data_dir=path, runtime="pjrt")
    name = "critic_optimizer/_trainable_variables/0/.ATTRIBUTES/VARIABLE_VALUE"
    assert not np.allclose(fresh[name], theirs[name], atol=0.01)
