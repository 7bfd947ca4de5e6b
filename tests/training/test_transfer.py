"""--restore: a new run takes the weights that fit from a run with other classes, size or data."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tests.helpers.runs import TINY, call_main, open_run, train_tiny, without_tracing
from wgan_gp.config import Config
from wgan_gp.errors import UserError

SETTINGS = {
    "dataset": "digits",
    "model": "mlp",
    "model_depth": 3,
    "train_steps": 2,
    "steps_per_loop": 2,
    "conditioning": "acgan",
    "learning_rate_schedule": "constant",
    "sample_interval": 0,
}


@pytest.fixture(scope="module")
def ten_classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ten")
    with without_tracing():
        trained, _ = train_tiny(folder, **{**SETTINGS, "generator_ema_decay": 0.5})
    return folder, trained


@pytest.fixture(scope="module")
def five_classes(tmp_path_factory):
    """A folder of the digits 0 to 4, a subfolder for each class."""
    folder = tmp_path_factory.mktemp("five")
    digits = load_digits()
    for number in range(50):
        if digits.target[number] < 5:
            path = folder / str(digits.target[number]) / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            pixels = (digits.images[number] / 16 * 255).astype(np.uint8)[..., None]
            path.write_bytes(tf.io.encode_png(pixels).numpy())
    return {"dataset": "image_folder", "data_dir": str(folder), "image_channels": 1}


def values(network):
    return [tf.convert_to_tensor(weight).numpy() for weight in network.weights]


def equal(first, second):
    """Returns True or False for each weight: both networks have the same value."""
    return [
        a.shape == b.shape and bool(np.all(a == b))
        for a, b in zip(values(first), values(second), strict=True)
    ]


def transferred(folder, source, **settings):
    """Returns a run after its first restore, before training."""
    settings = {**TINY, **SETTINGS, "restore_from": str(source), "restore": "both", **settings}
    opened = open_run(Config(model_dir=str(folder), **settings))
    assert opened.checkpoints.restore_latest() == 0
    return opened


@pytest.mark.slow
def test_ten_classes_are_transferred_to_five(ten_classes, five_classes, tmp_path, capsys):
    source, trained = ten_classes
    new = transferred(tmp_path, source, **five_classes, generator_ema_decay=0.5, cpu_replicas=2)
    assert new.dataset.spec.classes == 5
    # The first kernel of the generator takes the classes, and the critic's last layer returns them.
    same = equal(new.state.generator, trained.state.generator)
    assert same == [False] + [True] * (len(same) - 1)
    same = equal(new.state.critic, trained.state.critic)
    assert same == [True] * (len(same) - 2) + [False, False]
    assert all(equal(new.state.generator_average, new.state.generator))
    for optimizer in (new.state.generator_optimizer, new.state.critic_optimizer):
        assert not any(np.any(value) for value in values_of_moments(optimizer))
    lines = capsys.readouterr().err.splitlines()
    counts = [line for line in lines if "are restored" in line]
    assert "--restore: 7 of 8 weights of the generator are restored" in counts[0]
    assert "--restore: 8 of 10 weights of the critic are restored" in counts[1]
    left = [line for line in lines if "newly initialized: " in line]
    assert len(left) == 3
    assert "(13, 4): the checkpoint has shape (18, 4)" in left[0]


def values_of_moments(optimizer):
    shapes = [tf.convert_to_tensor(value) for value in optimizer.variables]
    return [value.numpy() for value in shapes if value.shape.rank]


def test_only_the_named_network_is_transferred(ten_classes, five_classes, tmp_path):
    source, trained = ten_classes
    new = transferred(tmp_path, source, **five_classes, restore="generator", seed=1)
    kernels = slice(0, None, 2)
    assert any(equal(new.state.generator, trained.state.generator)[kernels])
    assert not any(equal(new.state.critic, trained.state.critic)[kernels])


def test_an_input_for_labels_does_not_change_which_weights_fit(ten_classes, tmp_path):
    """It changes the numbers of all layers after it in Keras 3."""
    source, trained = ten_classes
    new = transferred(tmp_path, source, conditioning="none")
    same = equal(new.state.generator, trained.state.generator)
    assert same == [False] + [True] * (len(same) - 1)


@pytest.mark.slow
def test_the_new_run_continues_from_its_own_checkpoint(ten_classes, tmp_path, capsys):
    source, _ = ten_classes
    flags = [f"--{name}={value}" for name, value in {**TINY, **SETTINGS}.items()]
    flags += [f"--model_dir={tmp_path}", f"--restore_from={source}", "--restore=both"]
    with without_tracing():
        assert call_main(*flags) == 0
    assert "are restored" in capsys.readouterr().err
    with without_tracing():
        assert call_main(*flags, "--train_steps=4") == 0
    assert "are restored" not in capsys.readouterr().err
    assert (tmp_path / "checkpoints" / "ckpt-4.json").exists()


def test_without_restore_another_network_is_refused(ten_classes, five_classes, tmp_path):
    with pytest.raises(UserError, match="cannot be restored into this run's model"):
        transferred(tmp_path, ten_classes[0], **five_classes, restore=None)


def test_a_run_of_which_no_weight_fits_is_refused(ten_classes, tmp_path):
    with pytest.raises(UserError, match="--restore=generator: no weight of --restore_from="):
        transferred(
            tmp_path,
            ten_classes[0],
            dataset="swiss_roll",
            conditioning="none",
            model_width=5,
            model_depth=1,
            restore="generator",
        )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--restore=both"], "--restore=both needs --restore_from — add --restore_from"),
        (
            ["--restore=both", "--restore_from=x", "--mode=sample"],
            "--restore=both does not apply to --mode=sample",
        ),
    ],
)
def test_restore_without_a_use_is_refused(flags, message, capsys):
    assert call_main(*flags) == 2
    assert message in capsys.readouterr().err
