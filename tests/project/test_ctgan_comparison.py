"""Tests of the comparison with CTGAN, without CTGAN."""

import numpy as np

from studies import ctgan_comparison
from studies.ctgan_comparison import Table


def test_the_halves_of_a_table_have_the_same_shares_of_classes():
    train, test = ctgan_comparison.split("wine", seed=0)
    rows = {tuple(row) for part in (train, test) for row in part.examples}
    assert len(train.labels) == len(test.labels) == 89 and len(rows) == 178
    assert np.abs(np.bincount(train.labels) - np.bincount(test.labels)).max() <= 1
    other, _ = ctgan_comparison.split("wine", seed=1)
    assert not np.array_equal(train.examples, other.examples)


def test_the_judge_sees_wrong_samples_and_wrong_labels():
    train, test = ctgan_comparison.split("wine", seed=0)
    data = ctgan_comparison.judge(train, test)
    noisy = ctgan_comparison.judge(Table(2 * train.examples, train.labels), test)
    mixed = ctgan_comparison.judge(Table(train.examples, (train.labels + 1) % 3), test)
    assert data["two-sample accuracy"] < 0.65
    assert noisy["two-sample accuracy"] > 0.95
    assert data["trained on it"] > 0.85 and mixed["trained on it"] < 0.15


def test_samples_have_the_classes_of_the_table(tmp_path, monkeypatch):
    train, _ = ctgan_comparison.split("wine", seed=0)
    settings = {**ctgan_comparison.SETTINGS, "model_width": 4, "n_critic": 1}
    monkeypatch.setattr(ctgan_comparison, "SETTINGS", settings)
    samples, seconds = ctgan_comparison.train_ours(train, 1, 0, str(tmp_path))
    assert samples.examples.shape == train.examples.shape and seconds > 0
    np.testing.assert_array_equal(samples.labels, train.labels)
    # Samples are in the units of the table.
    assert np.abs(samples.examples.mean(0) / train.examples.mean(0) - 1).max() < 5
