"""Tests that metrics of new draws of the data are unbiased, and that planted defects move them.

studies/calibration.py derives the sampling error of each metric.
"""

import numpy as np
import pytest

from studies.calibration import (
    DEFECTS,
    LIMIT,
    PICTURES,
    POINTS,
    SIZES,
    Finding,
    judge,
    with_defect,
)

ARRAYS = ("table", "signals", "arrays")
COUNTS = (150, 300, 600)  # the study also has 2,000, which takes long
# Each number with each size of examples. Every two values of different columns meet: a kind of
# data, a number, a size, and whether there is held-out data.
GRID = [
    (ARRAYS[(row + column) % 3], count, size, (row + column) % 2 == 0)
    for row, count in enumerate(COUNTS)
    for column, size in enumerate(SIZES)
]
GRID += [(PICTURES, 150, 1024, False), (PICTURES, 300, 64, False)]
GRID += [(POINTS, count, 2, False) for count in (COUNTS[0], COUNTS[-1])]
# The direction in which a defect moves the metrics that should detect it.
MOVES = {
    "scale 1.1": {
        "two_sample_accuracy": 1,
        "closest_distance_ratio": 1,
        "closer_than_real": -1,
        "spectrum_error": 1,
    },
    "dropped mode": {"feature_wasserstein": 1, "kolmogorov_smirnov": 1, "correlation_error": 1},
    "copies": {
        "closer_than_real": 1,
        "closest_distance_ratio": -1,
        "two_sample_accuracy": -1,  # the same example with the other answer is in the training set
    },
    "shuffled": {
        "two_sample_accuracy": 1,
        "correlation_error": 1,
        "spectrum_error": 1,
        "autocorrelation_error": 1,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count", "size", "held_out"), GRID)
def test_metrics_of_new_draws_have_no_bias_for_any_number_and_size(kind, count, size, held_out):
    findings = judge(kind, size, count, held_out=held_out)
    assert len(findings) >= 3
    far = {name: finding for name, finding in findings.items() if not abs(finding.errors) < LIMIT}
    assert not far


def check_defect(defect, findings, names):
    for name in names:
        assert findings[name].errors * MOVES[defect][name] > LIMIT, name


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_move_the_metrics_of_signals(defect):
    check_defect(defect, judge("signals", 128, 300, defect=defect), MOVES[defect])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "arrays"])
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_move_the_metrics_of_tables_and_arrays(kind, defect):
    findings = judge(kind, 128, 300, defect=defect, held_out=True)
    check_defect(defect, findings, MOVES[defect].keys() & findings.keys())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "moves"),
    [
        ("scale 1.1", {"precision": -1, "coverage": -1}),
        ("dropped mode", {"fid": 1, "kid": 1, "coverage": -1}),
        ("copies", {"fid": -1, "precision": 1, "recall": 1}),
        ("shuffled", {"fid": 1, "kid": 1, "coverage": -1}),
    ],
)
def test_planted_defects_move_the_metrics_of_pictures(defect, moves):
    findings = judge(PICTURES, 256, 500, defect=defect)
    for name, direction in moves.items():
        assert findings[name].errors * direction > LIMIT, name


@pytest.mark.parametrize("defect", ["scale 1.1", "dropped mode", "shuffled"])
def test_planted_defects_move_the_metrics_of_points(defect):
    assert judge(POINTS, 2, 500, defect=defect)["wasserstein"].errors > LIMIT


def test_findings_are_measured_in_sampling_errors():
    assert Finding(value=3.0, expected=1.0, error=0.5).errors == 4
    real = np.arange(12.0).reshape(6, 2)
    random = np.random.default_rng(0)
    copies = with_defect("copies", real, lambda modes: real, random)
    np.testing.assert_array_equal(np.sort(copies, axis=0), real)
    modes = []
    with_defect("dropped mode", real, lambda count: modes.append(count) or real, random)
    assert modes == [3]
    scaled = with_defect("scale 1.1", real, lambda modes: real, random)
    np.testing.assert_allclose(scaled - 5 - [0, 1], 1.1 * (real - 5 - [0, 1]), rtol=1e-6)
