"""The comparison on MNIST: turns on equal cores, equal times, and the figures of samples."""

import io
import json
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import losses
from studies import mnist_quality
from studies.baselines import mnist_keras
from studies.baselines.turns import Turns, to_levels


class FakeProgram:
    """A program that records its turns; `Program` without a process."""

    def __init__(self, name, limit, fails=False):
        self.name, self.limit, self.fails = name, limit, fails
        self.seconds, self.iterations, self.turns = 0.0, 0, []
        self.lock = threading.Lock()

    @property
    def is_done(self):
        return self.seconds >= self.limit

    def turn(self, seconds, cores):
        assert self.lock.acquire(blocking=False)  # no two lanes at a time
        if self.fails:
            raise RuntimeError(f"{self.name} failed")
        time.sleep(0.001)
        self.turns.append(tuple(cores))
        self.seconds += seconds
        self.lock.release()


@pytest.mark.parametrize("lanes", [[[0, 1]], [[0], [1]]])
def test_programs_train_in_turns_for_equal_times(lanes):
    programs = [FakeProgram(name, 10) for name in "abc"]
    mnist_quality.train(programs, lanes, turn=1)
    assert [each.seconds for each in programs] == [10, 10, 10]
    used = {cores for each in programs for cores in each.turns}
    assert used == {tuple(each) for each in lanes}


def test_a_program_that_fails_ends_the_comparison():
    with pytest.raises(RuntimeError, match="b failed"):
        mnist_quality.train(
            [FakeProgram("a", 1e9), FakeProgram("b", 10, fails=True)], [[0], [1]], turn=1
        )


class FakeModel:
    saved = 0

    def save(self):
        self.saved += 1

    def sample(self, count):
        return np.zeros([count, 28, 28, 1], np.uint8)


def test_a_turn_ends_after_its_seconds_and_saves(monkeypatch, tmp_path):
    path = str(tmp_path / "s.npy")
    requests = [{"train": 0.05}, {"sample": [3, path]}, {"train": 0.05}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, requests))))
    answers, model, iterations = io.StringIO(), FakeModel(), 0
    turns = Turns(answers)
    while turns.wait(model, iterations):
        iterations += 1
        time.sleep(0.01)
    first, one, sampled, two = map(json.loads, answers.getvalue().splitlines())
    assert first == {"iterations": 0, "seconds": 0.0} and model.saved == 2
    assert 0 < one["iterations"] < two["iterations"] == iterations
    assert one["seconds"] >= 0.05 and two["seconds"] >= 0.05 and sampled["seconds"] == 0
    assert np.load(path).shape == (3, 28, 28, 1)


def test_samples_are_rounded_to_levels():
    images = np.array([-1.2, -1, 0.002, 1, 1.3])
    assert to_levels(images).tolist() == [0, 0, 128, 255, 255]


def test_the_keras_baseline_trains_with_the_penalty_of_the_paper(monkeypatch, tmp_path):
    monkeypatch.setattr(mnist_keras, "BATCH", 4)
    images = np.random.default_rng(0).integers(0, 256, (9, 28, 28, 1)).astype(np.uint8)
    model = mnist_keras.Model(str(tmp_path), images)
    real, fake = (tf.random.stateless_normal([4, 28, 28, 1], [0, seed]) for seed in (1, 2))
    tf.random.set_seed(5)
    alpha = tf.random.uniform([4, 1, 1, 1])
    tf.random.set_seed(5)
    monkeypatch.setattr(mnist_keras.layers.Dropout, "call", lambda self, x, training=None: x)
    found = model._penalty(real, fake)
    expected = losses.gradient_penalty(model.critic, real, fake, alpha=alpha[:, 0, 0, 0])
    np.testing.assert_allclose(found, tf.reduce_mean(expected), rtol=1e-5)
    model.train_step()
    model.save()
    again = mnist_keras.Model(str(tmp_path), images)
    assert int(again.iterations) == 1
    np.testing.assert_array_equal(again.sample(5), model.sample(5))
    assert model.sample(5).shape == (5, 28, 28, 1)


@pytest.mark.slow
def test_the_comparison_resumes_and_prints_a_row_for_each_mark(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist_quality, "SAMPLES", 50)
    monkeypatch.setattr(mnist_quality, "GRID", (2, 3))
    monkeypatch.setattr(mnist_quality.outcome, "FOLDER", tmp_path / "build")
    (tmp_path / "f.flags").write_text("--dataset=mnist\n--model_width=4\n--batch_size=8\n")
    log = tmp_path / "runs" / "small" / "turns.jsonl"

    def compare(minutes, *more):
        mnist_quality.main(
            [
                f"--data_dir={prepared}",
                f"--folder={tmp_path}/runs",
                "--programs=small",
                f"--ours=small={tmp_path}/f.flags",
                "--mark=0.02",
                f"--minutes={minutes}",
                *more,
            ]
        )
        return [json.loads(line) for line in log.read_text().splitlines()]

    first = compare(0.02)
    turns = compare(first[-1]["seconds"] / 60 + 0.02, "--lanes=2")
    assert turns[: len(first)] == first and len(turns) > len(first)
    assert turns[-1]["iterations"] > first[-1]["iterations"] > 0
    *rows, real = json.loads((tmp_path / "build" / "mnist_quality.json").read_text())["rows"]
    assert len(rows) >= 2 and real["program"] == "training images"
    assert all(np.isfinite(row["FID"]) for row in rows)
    assert (tmp_path / "runs" / "curve.png").stat().st_size
    assert (tmp_path / "runs" / "small.png").stat().st_size
    with pytest.raises(SystemExit, match="other is not a program"):
        compare(1, "--programs=other")
