"""Every experiment in configs/ and examples/ trains, on data of its shape."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import flags
from models.design import Design, DesignError
from studies import synthetic
from tests.helpers.runs import LIBRARY, call_main, make_state, open_run, resolved
from wgan_gp.app import training
from wgan_gp.app.build import make_objective
from wgan_gp.app.user_code import loading
from wgan_gp.config import as_text
from wgan_gp.training import schedules
from wgan_gp.writers.writer import MemoryWriter

ROOT = pathlib.Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.flags"))
PAPER = sorted((ROOT / "examples" / "paper").glob("*.flags"))
SMALL = {
    "model_width": 8,
    "generator_width": 8,
    "model_depth": 1,
    "latent_size": 4,
    "batch_size": 8,
    "generator_batch_size": 8,
    "n_critic": 1,
    "train_steps": 1,
    "steps_per_loop": 1,
    "evaluate_samples": 20,
}
# One experiment draws samples. The tests of sampling have every kind of network.
SAMPLED = ("digits_acgan",)
FEWER_PIXELS = {
    "resnet_64": {"image_size": 32},
    "resnet_128": {"image_size": 32, "attention": 8},
}
# The shapes of an example of the experiments with arrays, and the length of its conditions.
ARRAYS = {"signals": ((16, 1), 0), "detector": ((6, 4, 3), 1)}


def parse(path, **overrides):
    values = absl_flags.FlagValues()
    flags.define(values)
    given = [f"--{name}={value}" for name, value in overrides.items()]
    return resolved(flags.parse(["train.py", f"--flagfile={path}", *given], values))


def write_array(folder, shape, conditions):
    """Writes a dataset for --dataset=array and returns its path."""
    random = np.random.default_rng(0)
    arrays = {"examples": random.normal(size=(40, *shape))}
    if conditions:
        arrays["conditions"] = random.normal(size=(40, conditions))
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def write_table(folder):
    """Writes a typed table and returns its path."""
    (folder / "data.csv").write_text("name,size\n" + "a,1.5\nb,\nc,2.25\n" * 10)
    return folder / "data.csv"


@pytest.fixture
def eager():
    """Runs functions eagerly: an iteration takes less time than the tracing of a network."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("eager")
def test_an_experiment_trains(path, prepared, tmp_path):
    data = write_array(tmp_path, *ARRAYS[path.stem]) if path.stem in ARRAYS else prepared
    if path.stem == "tables":
        data = write_table(tmp_path)
    settings = {"data_dir": data, **FEWER_PIXELS.get(path.stem, {}), "sample_interval": 0}
    if path.stem in SAMPLED:
        del settings["sample_interval"]
    config = parse(path, **SMALL, **settings, model_dir=tmp_path / "run")
    writer = MemoryWriter()
    assert training.make_trainer(open_run(config), writers=[writer]).run() is None
    ((step, values),) = writer.summaries
    assert step == 1 and all(np.isfinite(value) for value in values.values())


@pytest.mark.slow
@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
@pytest.mark.usefixtures("eager")
def test_a_hard_network_of_the_paper_trains(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    settings = {**SMALL, "image_size": 32 if "101" in path.stem else 16, "sample_interval": 0}
    given = [f"--{name}={value}" for name, value in settings.items()]
    assert call_main(f"--flagfile={path}", *given, f"--model_dir={tmp_path}") == 0
    values = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert values["step"] == 1 and np.isfinite([*values.values()]).all()


@pytest.mark.slow
def test_the_file_of_the_paper_has_networks_of_101_layers():
    resnet101 = loading.load_code("model", str(ROOT / "examples" / "paper" / "resnet101.py")).module
    design = Design(
        example_shape=(64, 128, 3), latent_size=128, model_width=8, generator_width=8, model_depth=6
    )
    for model in (resnet101.generator(design), resnet101.critic(design)):
        kernels = [weight for weight in model.trainable_variables if len(weight.shape) > 1]
        assert len(kernels) - sum("shortcut" in layer.name for layer in model.layers) == 101
        last = [layer for layer in model.layers if layer.name.endswith("_conv_3")]
        assert len(last) == 33  # blocks
        assert not any(layer.use_bias for layer in last)
    assert model.output.shape == (None, 1)
    for wrong in ({"generator_width": 3}, {"example_shape": (64, 24, 3)}, {"example_shape": (64,)}):
        with pytest.raises(ValueError, match="give"):
            resnet101.generator(dataclasses.replace(design, **wrong))


def describe(config, other):
    """Returns what differs from another configuration, as "--flag: old -> new"."""
    return sorted(
        f"--{name}: {as_text(old)} -> {as_text(getattr(config, name))}"
        for name, old in config.differences(other).items()
    )


def test_the_papers_settings():
    """arXiv:1704.00028 and its code, as far as flags say them."""
    cifar = parse(CONFIGS[0].with_name("cifar10_resnet.flags"))
    assert (cifar.model_width, cifar.latent_size, cifar.n_critic) == (128, 128, 5)
    assert (cifar.batch_size, cifar.generator_batch_size) == (64, 128)
    assert cifar.critic_learning_rate == cifar.generator_learning_rate == 2e-4
    assert (cifar.beta_1, cifar.beta_2, cifar.penalty_weight) == (0.0, 0.9, 10.0)
    assert (cifar.train_steps, cifar.learning_rate_schedule) == (100_000, "linear")
    assert cifar.critic_normalization == "none"
    acgan = parse(CONFIGS[0].with_name("cifar10_resnet_acgan.flags"))
    assert cifar.differences(acgan) == {"conditioning": "acgan"}
    objective = make_objective(acgan, LIBRARY)
    assert (objective.critic_class_weight, objective.generator_class_weight) == (1.0, 0.1)
    for name in ("dcgan_64", "resnet_64"):
        large = parse(CONFIGS[0].with_name(f"{name}.flags"))
        assert (large.image_size, large.model_width, large.train_steps) == (64, 64, 200_000)
        assert (large.critic_normalization, large.critic_learning_rate) == ("layer", 1e-4)


def test_the_settings_of_the_hard_networks():
    """arXiv:1704.00028, figure 2: what differs from the first network of the figure."""
    usual = parse(ROOT / "configs" / "dcgan_64.flags")
    found = {
        path.stem: describe(parse(path), usual)
        for path in PAPER
        if path.stem != "resnet101"  # its networks are a file
    }
    assert found == {
        "constant_filters": [
            "--generator_channels: doubling -> constant",
            "--generator_normalization: batch -> none",
        ],
        "mlp_generator": [
            "--generator_model: dcgan -> mlp",
            "--generator_width: 64 -> 512",
            "--model_depth: None -> 4",
        ],
        "no_normalization": [
            "--critic_normalization: layer -> none",
            "--generator_normalization: batch -> none",
        ],
        "tanh": ["--activation: relu -> tanh"],
    }


def test_the_settings_of_r3gan():
    """arXiv:2501.05441 and the preset for CIFAR-10 in its code, as far as flags say them."""
    config = parse(CONFIGS[0].with_name("cifar10_r3gan.flags"))
    assert (config.adversarial_loss, config.penalty, config.n_critic) == (
        "relativistic",
        "r1,r2",
        1,
    )
    # The code's gamma, which it halves: 0.05 at the beginning and 0.005 at the end.
    assert 2 * config.penalty_weight == 0.05
    objective = make_objective(config, LIBRARY)
    assert 2 * config.penalty_weight * objective.penalty_weight_end == pytest.approx(0.005)
    assert objective.penalty_decay_steps == config.train_steps
    for done, rate in ((0, 2e-4), (config.train_steps, 5e-5)):
        rates = schedules.learning_rates(config, done).values()
        assert list(rates) == pytest.approx([rate, rate])
    beta_2 = schedules.beta_2(config, 1)
    found = [float(beta_2(tf.constant(done))) for done in (0, config.train_steps)]
    assert found == pytest.approx([0.9, 0.99]) and config.beta_1 == 0
    assert config.train_steps * config.batch_size == pytest.approx(2e7, rel=1e-4)
    half_life = config.batch_size * math.log(0.5) / math.log(config.generator_ema_decay)
    assert half_life == pytest.approx(5e6, rel=1e-2)


def test_the_settings_of_the_re_implementation_with_a_published_fid():
    """github.com/w86763777/pytorch-gan-collections, as far as flags say them."""
    cifar = parse(CONFIGS[0].with_name("cifar10_resnet.flags"))
    path = CONFIGS[0].with_name("cifar10_resnet_best.flags")
    best = parse(path)
    assert set(describe(best, cifar)) == {
        "--generator_width: 128 -> 256",
        "--critic_pooling: mean -> sum",
        "--random_flips: off -> on",
        "--dequantization: on -> off",
    }
    state = make_state(parse(path, **SMALL), tf.distribute.get_strategy())
    assert state.critic.get_layer("sum").scale == 64  # 8x8 pixels


SIGNALS = ROOT / "examples" / "signals" / "damped_sines"


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_the_generator_of_damped_sines_trains_and_its_samples_are_such(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = write_array(tmp_path, (32, 2), 0)
    settings = {**SMALL, "sample_interval": 0, "data_dir": path, "model_dir": tmp_path / "run"}
    given = [f"--{name}={value}" for name, value in settings.items()]
    assert call_main(f"--flagfile={SIGNALS}.flags", *given) == 0
    given = [f"--generator_model={SIGNALS}.py", f"--model_dir={tmp_path}/run"]
    output = tmp_path / "samples.npy"
    assert call_main("--mode=sample", *given, "--num_samples=20", f"--output={output}") == 0
    samples = np.load(output)
    assert samples.shape == (20, 32, 2)
    for channel in range(2):
        fitted = synthetic.fit_sines(samples[..., channel : channel + 1])
        assert fitted.residual.max() < 1e-9 and fitted.decay.min() > 0


@pytest.mark.parametrize(
    ("shape", "latent_size", "settings", "message"),
    [
        ((16,), 8, {}, "damped sines are signals"),
        ((8, 8, 1), 8, {}, "damped sines are signals"),
        ((16, 1), 8, {"classes": 2}, "give --conditioning=none"),
        ((16, 1), 8, {"condition_size": 1}, "give --conditioning=none"),
        ((16, 1), 16, {}, "--latent_size=16 gives 16 latents for the noise and 0 for the param"),
        ((16, 2), 35, {}, "give less than 32 for no noise, or at least 36"),
    ],
)
def test_other_examples_than_signals_are_no_damped_sines(shape, latent_size, settings, message):
    example = loading.load_code("generator_model", f"{SIGNALS}.py").module
    design = Design(
        example_shape=shape,
        latent_size=latent_size,
        model_width=8,
        generator_width=8,
        **settings,
    )
    with pytest.raises(DesignError, match=message):
        example.generator(design)


def test_damped_sines_are_those_of_their_parameters_with_learned_noise():
    example = loading.load_code("generator_model", f"{SIGNALS}.py").module
    parameters = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    signals = example.DampedSines(16, 2, "float64")(parameters).numpy()
    for row, signal in zip(parameters.astype(np.float64).reshape(5, 4, 2), signals, strict=True):
        for channel, (frequency, decay, cosine, sine) in enumerate(row.T):
            root = np.exp(2j * np.pi * 0.5 / (1 + np.exp(1.4 - frequency)))
            root *= np.exp(-np.log(1 + np.exp(decay - 3.5)))
            expected = ((cosine - 1j * sine) * root ** np.arange(16)).real
            # float32 rounds the result only.
            np.testing.assert_allclose(signal[:, channel], expected, rtol=2e-7, atol=1e-7)
    design = Design(
        example_shape=(16, 2), latent_size=4 + 32, model_width=8, generator_width=8, bounded=False
    )
    generator = example.generator(design)
    latents = np.random.default_rng(1).normal(size=(3, 36)).astype(np.float32)
    silent = np.concatenate([latents[:, :4], np.zeros([3, 32], np.float32)], axis=1)
    noise = generator(latents).numpy() - generator(silent).numpy()
    np.testing.assert_allclose(noise, 0.1 * latents[:, 4:].reshape(3, 16, 2), atol=1e-6)
