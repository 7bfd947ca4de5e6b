import dataclasses

import pytest

import models
from tests.helpers.runs import TINY, train_config
from wgan_gp.app.start_checks import warn_of_unused_settings
from wgan_gp.config import Config
from wgan_gp.data.spec import DataSpec

IMAGES, POINTS = (28, 28, 1), (2,)


def warnings(capsys, settings, shape=IMAGES):
    config = Config(**{"model": "dcgan", **settings})
    config = dataclasses.replace(config, generator_model=config.generator_model or config.model)
    warn_of_unused_settings(config, DataSpec(shape, 0, False, None), models.MODELS)
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"augment_policy": "color"}, "with --augment=none"),
        ({"class_weight": 2.0}, "with --conditioning=none"),
        ({"class_weight": 2.0, "conditioning": "projection"}, "with --conditioning=proj"),
        ({"penalty_target": 2.0, "penalty": "r1,r2"}, "with --penalty=r1,r2"),
        ({"penalty_weight": 5.0, "penalty": "none"}, "with --penalty=none"),
        ({"penalty_interval": 4, "penalty": "weight_clipping"}, "with --penalty=weight_clipping"),
        ({"schedule_steps": 9, "learning_rate_schedule": "constant"}, "with --learning_rate_sch"),
        ({"model_depth": 5}, "with --model=dcgan"),
    ],
)
def test_a_setting_without_an_effect_is_named(settings, reason, capsys):
    name, value = next(iter(settings.items()))
    (line,) = warnings(capsys, settings)
    assert line.startswith(f"warning: --{name}={value} has no effect {reason}")


def test_only_images_and_volumes_can_be_mirrored(capsys):
    settings = {"random_flips": True, "model": "mlp"}
    assert warnings(capsys, settings, POINTS) == [
        "warning: --random_flips=on has no effect on points"
    ]
    assert warnings(capsys, settings, (8, 8, 8, 1)) == warnings(capsys, settings) == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"augment": "ada", "augment_policy": "color"},
        {"conditioning": "acgan", "class_weight": 2.0},
        {"penalty": "r1,one_sided", "penalty_target": 2.0, "penalty_weight": "1,2"},
        {"schedule_steps": 9, "learning_rate_schedule": "r3gan"},
        {"model": "mlp", "generator_model": "dcgan", "model_depth": 2},
        {"model": "dcgan", "generator_model": "mlp", "model_depth": 2},
        # Whether an objective of the user has these parameters is checked when it is created.
        {"objective": "own.py:X", "penalty": "none", "penalty_target": 2.0},
        {"objective": "own.py:X", "learning_rate_schedule": "constant", "schedule_steps": 9},
    ],
)
def test_settings_that_have_an_effect_are_not_named(settings, capsys):
    assert warnings(capsys, settings) == []


def test_training_warns(tmp_path, capsys):
    settings = {**TINY, "class_weight": 0.1, "train_steps": 5}
    train_config(Config(model_dir=str(tmp_path / "run"), **settings))
    assert "warning: --class_weight=0.1 has no effect with" in capsys.readouterr().err
