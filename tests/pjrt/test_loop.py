"""--runtime=pjrt computes what --runtime=tensorflow computes, on eight devices of jax."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import DCGAN, TINY, open_run, train_tiny
from wgan_gp.app.training import make_trainer
from wgan_gp.config import Config
from wgan_gp.training.hooks import Hook

ITERATIONS = 10
COMMON = {"train_steps": ITERATIONS, "summary_interval": 5, "sample_interval": 0}
MLP = {"activation": "tanh", "batch_size": 32}
ADA = {"augment": "ada", "ada_interval": 5, "ada_images": 2000, "holdout": 0.1}


def state_of(run):
    """Returns all variables of the state by name, as in a checkpoint."""
    state, values = run.state, {}
    for field in dataclasses.fields(state):
        part = getattr(state, field.name)
        variables = getattr(part, "variables", None) or ([part] if part is not None else [])
        for index, variable in enumerate(variables):
            values[f"{field.name}/{index}"] = np.array(variable)
    return values


def assert_close(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        distance = np.linalg.norm(other[name].astype(float) - value)
        assert distance <= tolerance * (np.linalg.norm(value) + 1e-3), name


@pytest.mark.parametrize(
    ("replicas", "settings"),
    [
        pytest.param(
            2,
            MLP
            | {
                "penalty_interval": 2,
                "generator_ema_decay": 0.9,
                "learning_rate_schedule": "linear",
            },
            id="mlp",
        ),
        pytest.param(
            4,
            DCGAN
            | {"conditioning": "acgan", "accumulate": 2, "random_flips": True, "cache": "device"},
            id="acgan",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            1,
            DCGAN | ADA | {"cache": "off"},
            id="ada",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            {
                "dataset": "digits",
                "model": "resnet",
                "conditioning": "projection",
                "augment": "bcr",
            },
            id="resnet",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            {
                "dataset": "digits",
                "model": "r3gan",
                "penalty": "r1,r2",
                "adversarial_loss": "relativistic",
                "penalty_weight": "0.05",
            },
            id="r3gan",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            8,
            {"dataset": "damped_sines", "model": "conv1d", "penalty": "dragan", "batch_size": 32},
            id="conv1d",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_both_runtimes_compute_the_same(tmp_path, replicas, settings):
    runs, logs = {}, {}
    for runtime in ("tensorflow", "pjrt"):
        runs[runtime], writer = train_tiny(
            tmp_path / runtime, runtime=runtime, cpu_replicas=replicas, **COMMON, **settings
        )
        logs[runtime] = writer.summaries
    assert_close(state_of(runs["tensorflow"]), state_of(runs["pjrt"]), 1e-5)
    assert len(logs["pjrt"]) == 2
    for (step, ours), (other_step, theirs) in zip(*logs.values(), strict=True):
        assert step == other_step
        assert ours.keys() == theirs.keys()
        for tag, value in ours.items():
            if "throughput" not in tag:
                assert theirs[tag] == pytest.approx(value, rel=1e-4, abs=1e-5), tag


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    settings = COMMON | MLP | {"runtime": "pjrt", "cpu_replicas": 4}
    whole, _ = train_tiny(tmp_path / "whole", **settings)
    train_tiny(tmp_path / "resumed", **settings | {"stop_step": 3})
    resumed, _ = train_tiny(tmp_path / "resumed", **settings)
    for name, value in state_of(whole).items():
        np.testing.assert_array_equal(state_of(resumed)[name], value, name)


def test_a_run_continues_in_the_other_runtime(tmp_path):
    settings = COMMON | MLP
    whole, _ = train_tiny(tmp_path / "whole", **settings)
    for first, second in (("pjrt", "tensorflow"), ("tensorflow", "pjrt")):
        train_tiny(tmp_path / first, **settings | {"stop_step": 5, "runtime": first})
        run, _ = train_tiny(tmp_path / first, **settings | {"runtime": second})
        assert_close(state_of(whole), state_of(run), 1e-5)


class Recorder(Hook):
    """Records a weight after each loop, and sets it to zero after the second one."""

    def __init__(self, run, *, reads):
        self.weight = run.state.critic.trainable_variables[0]
        self.reads, self.values = reads, []

    def reads_state(self, loop):
        return self.reads

    def after_loop(self, loop):
        self.values.append(np.array(self.weight))
        if len(self.values) == 2 and self.reads:
            self.weight.assign(tf.zeros_like(self.weight))


@pytest.mark.parametrize("reads", [True, False])
def test_hooks_see_and_change_the_state_if_they_say_so(tmp_path, reads):
    config = Config(
        model_dir=str(tmp_path),
        runtime="pjrt",
        critic_learning_rate=1e-30,
        **TINY | COMMON | {"train_steps": 20, "summary_interval": 0},
    )
    run = open_run(config)
    recorder = Recorder(run, reads=reads)
    make_trainer(run, hooks=[recorder]).run()
    first, *_, last = recorder.values
    assert len(recorder.values) == 4
    if reads:
        assert np.any(first) and not np.any(last)
    else:  # the last loop is read by other hooks; until then the variables have the first values
        assert np.array_equal(first, recorder.values[2]) and np.any(last)
