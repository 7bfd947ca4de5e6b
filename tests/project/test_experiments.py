"""Every experiment in configs/ trains, on data of its shape, some on one replica and on two."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import flags
from models.normalization import BatchNormalization
from tests.helpers.runs import make_state, open_run, resolved
from wgan_gp.app import training
from wgan_gp.writers.writer import MemoryWriter

CONFIGS = sorted((pathlib.Path(__file__).parents[2] / "configs").glob("*.flags"))
# The others on one replica alone, as tracing takes long; test_step.py has every kind on several.
ON_TWO = ("gaussians_25",)
FAST = ("gaussians_25", "signals")
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
}
# One experiment draws samples. The tests of sampling have every kind of network.
SAMPLED = ("digits_acgan",)
# With fewer pixels, a network of 101 layers has fewer blocks. test_models.py has all its layers.
FEWER_PIXELS = {"hard_resnet101": {"image_size": 32}, "resnet_64": {"image_size": 32}}
# The shapes of an example of the experiments with arrays, and the length of its conditions.
ARRAYS = {"signals": ((16, 1), 0), "tables": ((5,), 0), "detector": ((6, 4, 3), 1)}


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


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem in FAST else pytest.mark.slow)
        for path in CONFIGS
    ],
)
def test_it_trains_alike_on_one_replica_and_on_two(path, prepared, tmp_path, request):
    # An iteration takes less time than the tracing of a large network.
    tf.config.run_functions_eagerly(path.stem not in ON_TWO)
    request.addfinalizer(lambda: tf.config.run_functions_eagerly(False))
    logged = []
    data = write_array(tmp_path, *ARRAYS[path.stem]) if path.stem in ARRAYS else prepared
    for replicas in (1, 2) if path.stem in ON_TWO else (1,):
        config = parse(
            path,
            **SMALL,
            **({} if path.stem in SAMPLED else {"sample_interval": 0}),
            **FEWER_PIXELS.get(path.stem, {}),
            data_dir=data,
            cpu_replicas=replicas,
            model_dir=tmp_path / str(replicas),
        )
        writer = MemoryWriter()
        assert training.make_trainer(open_run(config), writers=[writer]).run() is None
        ((step, values),) = writer.summaries
        assert step == 1 and all(np.isfinite(value) for value in values.values())
        logged.append({tag: value for tag, value in values.items() if "throughput" not in tag})
    one, *rest = logged
    for two in rest:
        assert set(one) == set(two)
        for tag, value in one.items():
            # Rounding, which Adam makes more of in a step or two.
            np.testing.assert_allclose(two[tag], value, rtol=0.02, atol=1e-3, err_msg=tag)


def test_the_papers_settings():
    """arXiv:1704.00028 and its code, as far as flags say them."""
    cifar = parse(CONFIGS[0].with_name("cifar10_resnet.flags"))
    assert (cifar.model_width, cifar.latent_size, cifar.n_critic) == (128, 128, 5)
    assert (cifar.batch_size, cifar.generator_batch_size) == (64, 128)
    assert cifar.critic_learning_rate == cifar.generator_learning_rate == 2e-4
    assert (cifar.beta_1, cifar.beta_2, cifar.penalty_weight) == (0.0, 0.9, 10.0)
    assert (cifar.train_steps, cifar.learning_rate_schedule) == (100_000, "linear")
    assert (cifar.sampling_statistics, cifar.critic_normalization) == ("batch", "none")
    acgan = parse(CONFIGS[0].with_name("cifar10_resnet_acgan.flags"))
    assert cifar.differences(acgan.to_dict()) == ["--conditioning: acgan -> none"]
    assert (acgan.critic_class_weight, acgan.generator_class_weight) == (1.0, 0.1)
    for name in ("dcgan_64", "resnet_64", "hard_tanh", "hard_resnet101"):
        large = parse(CONFIGS[0].with_name(f"{name}.flags"))
        assert (large.image_size, large.model_width, large.train_steps) == (64, 64, 200_000)
        assert (large.critic_normalization, large.critic_learning_rate) == ("layer", 1e-4)


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
    assert 2 * config.penalty_weight * config.penalty_weight_end == pytest.approx(0.005)
    assert config.critic_learning_rate == config.generator_learning_rate == 2e-4
    assert 2e-4 * config.learning_rate_end == pytest.approx(5e-5)
    assert (config.beta_1, config.beta_2, config.beta_2_end) == (0, 0.9, 0.99)
    images = config.train_steps * config.batch_size
    assert images == pytest.approx(2e7, rel=1e-4)
    # At the end, the ramp has just reached the half-life.
    assert (
        config.generator_ema_half_life
        == 5e6
        == pytest.approx(config.generator_ema_ramp * images, rel=1e-3)
    )


def test_the_settings_of_the_re_implementation_with_a_published_fid():
    """github.com/w86763777/pytorch-gan-collections, as far as flags say them."""
    cifar = parse(CONFIGS[0].with_name("cifar10_resnet.flags"))
    path = CONFIGS[0].with_name("cifar10_resnet_best.flags")
    best = parse(path)
    assert set(best.differences(cifar.to_dict())) == {
        "--generator_width: 128 -> 256",
        "--critic_pooling: mean -> sum",
        "--random_flips: off -> on",
        "--dequantization: on -> off",
        "--batch_norm_momentum: 0.99 -> 0.9",
    }
    assert best.sampling_statistics == "accumulated"
    state = make_state(parse(path, **SMALL), tf.distribute.get_strategy())
    assert state.critic.get_layer("sum").scale == 64  # 8x8 pixels
    norms = [layer for layer in state.generator.layers if isinstance(layer, BatchNormalization)]
    # Three blocks of two and one behind them; PyTorch's momentum of 0.1.
    assert [layer.momentum for layer in norms] == [0.9] * 7
    assert {layer.sampling_statistics for layer in norms} == {"accumulated"}
