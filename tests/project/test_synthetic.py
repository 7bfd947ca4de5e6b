"""Tests of the datasets with known truth, and of the measures of their truth."""

import sys

import numpy as np
import pytest

from benchmarks import outcome
from studies import synthetic


def test_a_fit_finds_frequency_and_decay():
    times = np.arange(128)
    frequency, decay = np.array([0.05, 0.031, 0.14]), np.array([0.02, 0.0, 0.05])
    signals = np.exp(-decay[:, None] * times) * np.cos(
        2 * np.pi * frequency[:, None] * times + np.array([[0.3], [2], [5]])
    )
    found = synthetic.fit_sines(signals[..., None])
    np.testing.assert_allclose(found.frequency, frequency, atol=1e-6)
    np.testing.assert_allclose(found.decay, decay, atol=1e-6)
    assert found.residual.max() < 1e-9
    noisy = signals + 0.05 * np.random.default_rng(0).normal(size=signals.shape)
    found = synthetic.fit_sines(noisy[..., None])
    np.testing.assert_allclose(found.frequency, frequency, atol=2e-3)
    assert found.residual.min() > 1e-3
    zero = synthetic.fit_sines(np.zeros([2, 128, 1]))  # a generator may produce it
    assert np.isfinite(zero.frequency).all() and np.isfinite(zero.residual).all()


def test_measures_of_sines_see_a_missing_half_of_the_frequencies():
    data = synthetic.make_sines(400, seed=0)
    assert data["examples"].shape == (400, 128, 1) and data["examples"].dtype == np.float32
    values = synthetic.measure_sines(data)
    assert values["frequency: Kolmogorov-Smirnov"] < 0.09 > values["decay: Kolmogorov-Smirnov"]
    fitted = synthetic.fit_sines(data["examples"])
    low = {"examples": data["examples"][fitted.frequency < 0.09]}
    assert synthetic.measure_sines(low)["frequency: Kolmogorov-Smirnov"] > 0.4


def test_the_autoregressive_process_has_its_autocorrelations():
    values = synthetic.measure_ar2(synthetic.make_ar2(2000, seed=0))
    assert values["autocorrelation: largest deviation"] < 0.03
    assert abs(values["a - true a"]) < 0.01 > abs(values["b - true b"])
    assert values["deviation of the noise (1)"] == pytest.approx(1, abs=0.01)
    noise = np.random.default_rng(0).normal(size=(500, 128, 1))
    assert synthetic.measure_ar2({"examples": noise})["autocorrelation: mean deviation"] > 0.1
    first = synthetic.true_autocorrelation(3)
    a, b = synthetic.AR2
    np.testing.assert_allclose(first, [a / (1 - b), a * first[0] + b, a * first[1] + b * first[0]])


def test_the_response_of_the_detector_is_linear_in_energy():
    data = synthetic.make_detector(3000, seed=0)
    assert data["examples"].shape == (3000, 24, 12, 3) and data["conditions"].shape == (3000, 1)
    values = synthetic.measure_detector(data)
    assert values["deviation from a line"] < 0.05 > values["deviation from the energy"]
    assert values["resolution / true resolution"] == pytest.approx(1, abs=0.1)
    assert 0.02 < values["share of cells above 0.1"] < 0.2  # sparse
    # A response that grows as E^1.3, or is too small by a tenth.
    bent = {**data, "examples": data["examples"] * data["conditions"][:, None, None] ** 0.3}
    assert synthetic.measure_detector(bent)["deviation from a line"] > 0.05
    small = {**data, "examples": 0.9 * data["examples"]}
    assert synthetic.measure_detector(small)["deviation from the energy"] > 0.08
    wrong = {**data, "conditions": np.roll(data["conditions"], 1, axis=0)}
    assert synthetic.measure_detector(wrong)["slope (1)"] < 0.2


def test_the_program_writes_reads_and_compares(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "results")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["synthetic", *arguments])
        synthetic.main()
        return capsys.readouterr().out

    for name, file in (("sines", "a.npy"), ("ar2", "b.npz"), ("detector", "c.npz")):
        path = f"{tmp_path}/{file}"
        assert call("make", name, path, "--count=60") == f"{path}\n"
        made = synthetic.MAKERS[name](60, 0)
        for key, values in synthetic.read(path).items():
            np.testing.assert_array_equal(values, made[key])
        assert call("measure", name, path).startswith(name)
    with pytest.raises(SystemExit, match=r"does not end in \.npz"):
        call("make", "detector", f"{tmp_path}/d.npy", "--count=9")
    np.savez(f"{tmp_path}/e.npz", samples=made["examples"])
    with pytest.raises(SystemExit, match="have no conditions"):
        call("measure", "detector", f"{tmp_path}/e.npz")
