"""--keep_best, --stop_early, --checkpoint, and hooks that stop training."""

import json
import math

import numpy as np
import pytest

from tests.fuzz.results import differences, tensors
from tests.helpers.runs import LIBRARY, TINY, call_main, open_run, without_tracing
from wgan_gp.app import run, training
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.runtime import cluster
from wgan_gp.training.hooks import Hook

# By the number of iterations. The best one is after 4, and three others follow it until 7.
VALUES = {1: 3.0, 2: 2.0, 3: 2.5, 4: 1.0, 5: 1.5, 6: math.nan, 7: 1.0, 8: 0.5}
SETTINGS = {
    **TINY,
    "train_steps": 8,
    "steps_per_loop": 1,
    "n_critic": 1,
    "evaluate_interval": 1,
    "checkpoint_interval": 1,
    "keep_checkpoints": 2,
    "learning_rate_schedule": "constant",
    "sample_interval": 0,
}
BEST = {"keep_best": "wasserstein", "stop_early": "wasserstein:3"}


@pytest.fixture(autouse=True)
def _known_evaluations(monkeypatch):
    """Evaluations have the values above; the samples of TINY are too bad to rank them."""

    class Evaluator:
        metadata = {"samples": 1, "extractor": ""}  # noqa: RUF012

        def __init__(self, state):
            self._state = state

        def evaluate(self):
            value = VALUES[int(self._state.iteration.numpy())]
            return {"evaluation/wasserstein": value, "evaluation/wasserstein_floor": 0.1}

    monkeypatch.setattr(run.Run, "open_evaluator", lambda self: Evaluator(self.state))
    with without_tracing():
        yield


def numbers(folder):
    return sorted(int(file.stem.removeprefix("ckpt-")) for file in folder.glob("ckpt-*.index"))


class KilledError(Exception):
    """Stands for the end of the process."""


class KillHook(Hook):
    """Ends training after a loop without saving."""

    def __init__(self, iteration):
        self._iteration = iteration

    def after_loop(self, loop):
        if loop.iteration == self._iteration:
            raise KilledError


def train(path, *hooks, **settings):
    config = Config(model_dir=str(path), **{**SETTINGS, **settings})
    return training.make_trainer(open_run(config), hooks=hooks).run()


@pytest.mark.slow
def test_the_best_checkpoint_is_kept_and_training_ends_without_improvement(tmp_path, caplog):
    assert train(tmp_path, **BEST) is None
    assert numbers(tmp_path / "checkpoints") == [6, 7]
    assert numbers(tmp_path / "checkpoints/best") == [4]
    message = "stopped after 7 of 8 iterations: wasserstein has not improved in 3 evaluations "
    assert f"{message}(best: 1 after 4)" in caplog.text
    # The same command does not go on, and a larger number does.
    train(tmp_path, **BEST)
    assert numbers(tmp_path / "checkpoints") == [6, 7]
    train(tmp_path, **{**BEST, "stop_early": "wasserstein:4"})
    assert numbers(tmp_path / "checkpoints") == [7, 8]
    assert numbers(tmp_path / "checkpoints/best") == [8]


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", [4, 6, 7])
def test_a_killed_run_ends_like_an_uninterrupted_one(tmp_path, killed_at):
    """The checkpoint of every second evaluation is lost with the process."""
    settings = {**BEST, "checkpoint_interval": 2, "summary_interval": 1}
    train(tmp_path / "whole", **settings)
    with pytest.raises((KilledError, UserError)):
        train(tmp_path / "killed", KillHook(killed_at), **settings)
    train(tmp_path / "killed", **settings)
    for folder in ("checkpoints", "checkpoints/best"):
        found = [numbers(tmp_path / name / folder) for name in ("whole", "killed")]
        assert found[0] == found[1] and found[0]
    assert differences(tmp_path / "whole", tmp_path / "killed", 7) == []


def test_the_evaluation_at_a_stop_decides_nothing(tmp_path):
    """The best value is that after 4, but only every third one is evaluated at the interval."""
    settings = {**BEST, "evaluate_interval": 3, "stop_early": "wasserstein:1"}
    train(tmp_path / "whole", **settings)
    for stop in (1, 4, 5, None):
        train(tmp_path / "parts", **settings, stop_step=stop)
    for folder in ("checkpoints", "checkpoints/best"):
        found = [numbers(tmp_path / name / folder) for name in ("whole", "parts")]
        assert found[0] == found[1] and found[0]
    lines = (tmp_path / "parts" / "evaluation.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 3, 4, 5, 6]


@pytest.mark.slow
def test_the_best_checkpoint_of_a_later_time_is_replaced(tmp_path, monkeypatch):
    """The run goes on from an older state, because its newer checkpoints were lost."""
    train(tmp_path, stop_step=3, keep_best="wasserstein", keep_checkpoints=5)
    monkeypatch.setitem(VALUES, 4, 1.9)
    monkeypatch.setitem(VALUES, 5, 1.8)
    train(tmp_path, stop_step=5, keep_best="wasserstein", keep_checkpoints=5)
    assert numbers(tmp_path / "checkpoints/best") == [5]
    for number in (4, 5):
        for file in (tmp_path / "checkpoints").glob(f"ckpt-{number}.*"):
            file.unlink()
    train(tmp_path, stop_step=4, keep_best="wasserstein", keep_checkpoints=5)
    assert numbers(tmp_path / "checkpoints/best") == [4]


@pytest.mark.slow
def test_a_metric_whose_large_values_are_best(tmp_path, monkeypatch):
    monkeypatch.setattr(
        run.Run,
        "open_evaluator",
        lambda self: type(
            "Evaluator",
            (),
            {
                "metadata": {"samples": 1, "extractor": ""},
                "evaluate": lambda _: {
                    "evaluation/modes_covered": VALUES[int(self.state.iteration.numpy())]
                },
            },
        )(),
    )
    train(tmp_path, keep_best="modes_covered", stop_early="modes_covered:9")
    assert numbers(tmp_path / "checkpoints/best") == [1]
    with pytest.raises(UserError, match="the evaluations of this run have no wasserstein — use"):
        train(tmp_path / "other", keep_best="wasserstein")


@pytest.mark.slow
@pytest.mark.parametrize("given", ["6", "best", "latest"])
def test_modes_use_the_checkpoint_that_the_command_line_names(tmp_path, capsys, given):
    train(tmp_path / "run", **BEST)
    number = {"6": 6, "best": 4, "latest": 7}[given]
    flags = [f"--model_dir={tmp_path}/run", f"--checkpoint={given}", "--num_samples=4"]
    assert call_main("--mode=sample", "--sample_format=npy", *flags) == 0
    assert f"ckpt-{number}" in capsys.readouterr().err
    # A new run begins with the same state.
    settings = {"restore_from": f"{tmp_path}/run", "checkpoint": given, "train_steps": number}
    config = Config(model_dir=f"{tmp_path}/new", **{**SETTINGS, **settings})
    assert training.train(*resolve(config, LIBRARY.models), LIBRARY).iteration == number
    folder = "best" if given == "best" else "."
    old = tensors(tmp_path / "run/checkpoints" / folder / f"ckpt-{number}")
    new = tensors(tmp_path / f"new/checkpoints/ckpt-{number}")
    assert old.keys() == new.keys()
    assert all(np.array_equal(old[name], new[name]) for name in old)


@pytest.mark.slow
def test_a_checkpoint_that_does_not_exist_is_one_line(tmp_path, capsys):
    train(tmp_path / "run", train_steps=2, evaluate_interval=0)
    sample = ["--mode=sample", f"--model_dir={tmp_path}/run"]
    new = [f"--model_dir={tmp_path}/new", f"--restore_from={tmp_path}/run", *flags_of(SETTINGS)]
    for arguments, message in (
        ([*sample, "--checkpoint=7"], "has no checkpoint after 7 iterations — use one of 1, 2"),
        ([*sample, "--checkpoint=best"], "has no best checkpoint — train it with --keep_best"),
        ([*new, "--checkpoint=007"], "has no checkpoint after 7 iterations — use one of 1, 2"),
        ([*new, "--checkpoint=best"], f"--restore_from={tmp_path}/run has no best checkpoint"),
        ([*sample, "--checkpoint=newest"], "--checkpoint=newest is unknown — use latest, best"),
        (
            [f"--model_dir={tmp_path}/run", "--checkpoint=1"],
            "--checkpoint=1 would not continue this run, which goes on from its newest checkpoint",
        ),
        (
            [*sample, "--checkpoint=1", f"--restore_from={tmp_path}/run/checkpoints/ckpt-2"],
            "both name a checkpoint — omit --checkpoint",
        ),
    ):
        assert call_main(*arguments) == 2
        (line,) = [
            each for each in capsys.readouterr().err.splitlines() if each.startswith("error")
        ]
        assert message in line
    assert not (tmp_path / "new").exists()
    file = tmp_path / "run/checkpoints/ckpt-1.index"
    file.write_bytes(b"damaged")
    assert call_main(*sample, "--checkpoint=1") == 2
    assert "ckpt-1 is damaged" in capsys.readouterr().err


def flags_of(settings):
    return [f"--{name}={value}" for name, value in settings.items()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_best": "fid"}, "--keep_best=fid needs --evaluate_interval — add --evaluate_int"),
        ({"keep_best": "density", "evaluate_interval": 5}, "have no metric of this name"),
        ({"stop_early": "fid", "evaluate_interval": 5}, "--stop_early=fid is not METRIC:NUMBER"),
        ({"stop_early": "fid:0", "evaluate_interval": 5}, "is not METRIC:NUMBER — give a metric"),
        ({"stop_early": "fido:5", "evaluate_interval": 5}, "have no metric of this name"),
    ],
)
def test_other_values_are_errors_of_flags(settings, message):
    with pytest.raises(UserError, match=message):
        Config(**settings)


def test_a_metric_of_other_data_is_an_error_before_training():
    config = Config(**{**TINY, "keep_best": "fid", "evaluate_interval": 5})
    with pytest.raises(
        UserError, match=r"evaluations of --dataset=swiss_roll have no .* — use wasserstein, modes"
    ):
        resolve(config, LIBRARY.models)


HOOKS = """
import wgan_gp

class Threshold(wgan_gp.Hook):
    def __init__(self, config):
        self.limit = 2.0 if config.seed == 0 else 0.0
        self.reason = None

    def after_evaluation(self, iteration, metrics):
        if metrics["evaluation/wasserstein"] <= self.limit:
            self.reason = f"the distance is below {self.limit}"

    def reason_to_stop(self):
        return self.reason


def other(config):
    return "a hook"


class Broken(wgan_gp.Hook):
    def __init__(self, config):
        pass

    def reason_to_stop(self):
        raise ValueError("broken")
"""


@pytest.mark.slow
def test_a_hook_of_a_file_receives_metrics_and_stops_training(tmp_path, capsys):
    file = tmp_path / "hooks.py"
    file.write_text(HOOKS)
    flags = flags_of(SETTINGS)
    assert call_main(*flags, f"--model_dir={tmp_path}/run", f"--hooks={file}:Threshold") == 0
    assert numbers(tmp_path / "run/checkpoints") == [1, 2]
    log = capsys.readouterr().err
    assert "stopped after 2 of 8 iterations: the distance is below 2.0" in log
    for name, message in (
        ("missing", "does not define missing"),
        ("other", "returned 'a hook', which is not a Hook"),
        ("Broken", "the hook Broken"),
    ):
        given = [*flags, f"--model_dir={tmp_path}/{name}", f"--hooks={file}:{name}"]
        assert call_main(*given) == 2
        assert message in capsys.readouterr().err
    for value, message in (
        (file, "does not name an object — give --hooks="),
        ("hooks", "--hooks=hooks: hooks is unknown — give FILE.py:NAME or MODULE:NAME"),
    ):
        assert call_main(*flags, f"--hooks={value}") == 2
        assert message in capsys.readouterr().err


def test_processes_stop_together():
    """One process received a signal, and another has a reason to stop."""

    class Peers(cluster.Peers):
        def gather(self, numbers):
            return np.array([numbers, [15, 0], [0, 1]])

        def end(self):
            pass

    assert cluster.agree_to_stop(Peers(), None, False) == (15, True)
