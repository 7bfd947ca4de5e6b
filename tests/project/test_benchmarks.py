"""Tests of the benchmarks and of the implementations that they compare."""

import dataclasses
import io
import json
import sys

import numpy as np
import pytest

from benchmarks import compilers, loop_overhead, outcome, tpu_cycles, tpu_loop
from benchmarks.baselines import keras_fit, process, worker
from benchmarks.baselines.work import DCGAN, RESNET
from benchmarks.step_time import check_losses
from tests.helpers.runs import without_tracing
from wgan_gp.config import Config
from wgan_gp.tpu import topologies

SMALL = {"width": 8, "batch_size": 8, "generator_batch_size": 16, "n_critic": 2, "latent_size": 6}
WORKS = [dataclasses.replace(work, **SMALL) for work in (DCGAN, RESNET)]


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.model)
def test_the_keras_baseline_computes_our_losses_from_our_weights(work, tmp_path, monkeypatch):
    """Compares two iterations; the second depends on the gradients and optimizer of the first."""
    requests, answers = [dataclasses.asdict(work), "replay", 1, "memory"], io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, requests))))
    monkeypatch.setattr(sys, "stdout", answers)
    with without_tracing():
        worker.main("ours", f"{tmp_path}/initial_state")
        ready, mine, seconds, peak = map(json.loads, answers.getvalue().splitlines())
        assert ready == "ready" and seconds > 0 and 1e8 < peak < 1e11
        theirs = keras_fit.Trainer(work, f"{tmp_path}/initial_state", jit_compile=False)
        check_losses("keras", mine, theirs.replay())
        assert mine[0] != pytest.approx(mine[1], rel=0.01)
        theirs.run(1)  # with `fit`
    assert int(theirs._model.critic_optimizer.iterations) == 3 * work.n_critic
    assert int(theirs._model.generator_optimizer.iterations) == 3


def test_different_losses_are_an_error():
    same = [(1.0, 2.0), (3.0, 4.0)]
    check_losses("it", same, [(1.0001, 2.0), (3.0, 4.0)])
    with pytest.raises(RuntimeError, match=r"it computes other losses in iteration 2: "):
        check_losses("it", same, [(1.0, 2.0), (3.0, 4.1)])


@pytest.mark.slow
def test_a_trainer_process_trains_and_answers_requests():
    with process.start_processes(["ours"], WORKS[0]) as (trainer,):
        replayed = trainer.replay()
        assert len(replayed) == 2 and np.isfinite(replayed).all()
        assert trainer.seconds(1) > 0
        assert 1e8 < trainer.peak_bytes() < 1e11


@pytest.mark.slow
def test_the_error_names_the_process_that_failed():
    with (
        pytest.raises(RuntimeError, match="keras ended with status 1"),
        process.start_processes(["keras"], WORKS[0]),  # there is no initial state
    ):
        pass


@pytest.mark.slow
def test_the_loop_and_the_updates_alone_are_timed_in_turns(monkeypatch):
    monkeypatch.setattr(loop_overhead, "ITERATIONS", 2)
    config = Config(
        dataset="swiss_roll", model_width=4, batch_size=8, train_steps=8, steps_per_loop=2
    )
    run, updates = loop_overhead.compare(config)
    assert len(run) == len(updates) == 3 and min(run + updates) > 0


@pytest.mark.slow
def test_the_programs_that_train_on_a_cpu_are_timed():
    speed, first = compilers.measure(["--dataset=digits", "--model=mlp", "--model_width=4"], 6)
    assert speed > 0 and first > 0
    with pytest.raises(RuntimeError, match="--model=unknown"):
        compilers.measure(["--model=unknown"], 6)


def test_the_ratio_of_a_program_is_that_to_the_usual_one():
    results = dict(
        zip(compilers.PROGRAMS, ([(10.0, 1.0)], [(20.0, 2.0)], [(5.0, 3.0)]), strict=True)
    )
    row = compilers._row("mlp", "--runtime=pjrt", results)
    assert list(row.values()) == ["mlp", "--runtime=pjrt", 5.0, 0.5, 3.0]


def test_a_table_and_its_json(tmp_path, monkeypatch, capsys):
    rows = [{"name": "a", "value": 1234.5}, {"name": "bc", "value": 0.5, "ratio": 3}]
    assert outcome.table(rows).splitlines() == [
        "name  value  ratio",
        "a     1,234",
        "bc    0.500      3",
    ]
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "results")
    outcome.save("speed", rows, rounds=5)
    assert f"{tmp_path}/results/speed.json" in capsys.readouterr().out
    written = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert written["rows"] == rows and written["rounds"] == 5
    assert written["machine"]["cores"] > 0 and "tensorflow" in written["machine"]["versions"]


def test_a_ratio_is_the_median_over_rounds():
    assert outcome.ratio([2.0, 40.0, 3.0], [1.0, 20.0, 1.0]) == 2.0


@pytest.mark.slow
def test_the_usual_networks_are_compiled_for_a_tpu_like_ours(monkeypatch):
    """The networks are so small that ours need not be the faster ones."""
    small = dataclasses.replace(WORKS[0], image_size=8)
    monkeypatch.setattr(tpu_cycles, "WORK", small)
    config = dataclasses.replace(small.config, mode="compile", steps_per_loop=2)
    usual, ours = (
        tpu_cycles.make_row(
            "v5e-1",
            "",
            tpu_cycles.compile_report(config, topologies.find("v5e-1"), usual=usual),
        )
        for usual in (True, False)
    )
    assert usual.keys() == ours.keys()
    for name in ("critic, cycles per image", "generator", "cycles per iteration, M"):
        assert 0 < ours[name] < 2 * usual[name]


@pytest.mark.slow
def test_the_two_loops_of_a_tpu_are_compared(tmp_path, monkeypatch):
    """Points are sent in float32 by both; an iteration has five critic steps."""
    flags = ["--dataset=swiss_roll", "--model=mlp", "--model_width=4", "--batch_size=16"]
    monkeypatch.setattr(sys, "argv", ["tpu_loop", "--compile_topology=v5e-8", *flags])
    monkeypatch.chdir(tmp_path)
    tpu_loop.main()
    saved = json.loads((tmp_path / "build/benchmarks/tpu_loop.json").read_text())
    host, device = saved["rows"]
    assert (host["launches"], device["launches"]) == ("6", "0.02")
    points = 5 * 16 * (2 * 4 + 4)
    # Each replica also gets two counters with each of the six launches, or three with one for 50
    # iterations.
    assert host["bytes from the host"] == points + 8 * 6 * 16
    assert device["bytes from the host"] == points + -(-8 * 24 // 50)
    assert host["bytes to the host"] == 8 * 4 * (5 * 4 + 1)
    assert 0 < device["estimated cycles"] < 1.2 * host["estimated cycles"]
