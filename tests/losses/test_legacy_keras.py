"""The losses under TF_USE_LEGACY_KERAS=1, because projects with Keras 2 import them, too."""

import os
import pathlib
import subprocess
import sys

import pytest

# The tests in which Keras has a part: a network, a layer, a metric. The others pass functions of
# tensors, which do not know which Keras is installed.
CHOSEN = "keras or clip_weights or mixed or replica_context or correct_implementations"
CHOSEN += " or tutorial_example or properties_of_critics or normalization_before"
CHOSEN += " or without_a_second_derivative"
CHOSEN = f"({CHOSEN}) and not eager and not xla"  # XLA does not know Keras
OF_EACH_KIND = [
    "test_adversarial.py::test_clip_weights[1-keras]",
    "test_conformance.py::test_properties_of_critics_are_found",
    "test_penalties.py::test_penalty_in_mixed_bfloat16_is_close_to_float32[graph]",
]


def run_tests(*arguments):
    """Runs pytest in the folder of the tests, with Keras 2."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=pathlib.Path(__file__).parent,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_one_test_of_each_kind_passes():
    run_tests(*OF_EACH_KIND)


@pytest.mark.slow
def test_the_tests_of_losses_with_a_part_of_keras_pass():
    files = ["adversarial", "conformance", "penalties", "reductions"]
    run_tests("-k", CHOSEN, *(f"test_{name}.py" for name in files))
