"""What the benchmarks compare this project with does the same work."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import loop_overhead, outcome
from benchmarks.contenders import keras_fit, ours, process
from benchmarks.contenders.work import DCGAN, RESNET
from benchmarks.step_time import check_same
from wgan_gp.config import Config

SMALL = {"width": 8, "batch_size": 8, "generator_batch_size": 16, "n_critic": 2, "latent_size": 6}
WORKS = [dataclasses.replace(work, **SMALL) for work in (DCGAN, RESNET)]


@pytest.mark.parametrize(
    "work",
    [WORKS[0], pytest.param(WORKS[1], marks=pytest.mark.slow)],
    ids=lambda work: work.model,
)
def test_the_keras_reference_computes_our_losses_from_our_weights(work, tmp_path):
    """Over two iterations: the second shows the gradients and the optimizer of the first."""
    mine = ours.Trainer(work, f"{tmp_path}/start").replay()
    theirs = keras_fit.Trainer(work, f"{tmp_path}/start", jit_compile=False)
    losses = theirs.replay()
    check_same("keras", mine, losses)
    assert mine[0] != pytest.approx(mine[1], rel=0.01)
    theirs.run(1)  # by fit
    assert int(theirs._model.critic_optimizer.iterations) == 3 * work.n_critic
    assert int(theirs._model.generator_optimizer.iterations) == 3


def test_other_work_is_refused():
    same = [(1.0, 2.0), (3.0, 4.0)]
    check_same("it", same, [(1.0001, 2.0), (3.0, 4.0)])
    with pytest.raises(RuntimeError, match=r"it does other work: .* in iteration 2"):
        check_same("it", same, [(1.0, 2.0), (3.0, 4.1)])


def test_a_contender_is_a_process_that_trains_and_answers():
    with process.contenders(["ours"], WORKS[0]) as (contender,):
        replayed = contender.replay()
        assert len(replayed) == 2 and np.isfinite(replayed).all()
        assert contender.seconds(1) > 0
        assert 1e8 < contender.peak_bytes() < 1e11


@pytest.mark.slow
def test_a_contender_that_fails_says_its_name():
    with (
        pytest.raises(RuntimeError, match="keras ended with status 1"),
        process.contenders(["keras"], WORKS[0]),  # nobody has written where to start
    ):
        pass


@pytest.mark.slow
def test_the_loop_is_timed_beside_the_updates_alone(monkeypatch):
    monkeypatch.setattr(loop_overhead, "ITERATIONS", 2)
    config = Config(
        dataset="swiss_roll", model_width=4, batch_size=8, train_steps=8, steps_per_loop=2
    )
    run, updates = loop_overhead.compare(config)
    assert len(run) == len(updates) == 3 and min(run + updates) > 0


def test_a_table_and_its_json(tmp_path, monkeypatch, capsys):
    rows = [{"name": "a", "value": 1234.5}, {"name": "bc", "value": 0.5, "of a": 3}]
    assert outcome.table(rows).splitlines() == [
        "name  value  of a",
        "a     1,234",
        "bc    0.500     3",
    ]
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "results")
    outcome.save("speed", rows, rounds=5)
    assert f"{tmp_path}/results/speed.json" in capsys.readouterr().out
    written = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert written["rows"] == rows and written["rounds"] == 5
    assert written["machine"]["cores"] > 0 and "tensorflow" in written["machine"]["versions"]


def test_a_ratio_is_of_the_rounds():
    assert outcome.ratio([2.0, 40.0, 3.0], [1.0, 20.0, 1.0]) == 2.0
