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


@pytest.mark.slow
def test_the_tests_of_losses_with_a_part_of_keras_pass():
    files = ["adversarial", "conformance", "penalties", "reductions"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", CHOSEN),
            *(f"test_{name}.py" for name in files),
        ],
        cwd=pathlib.Path(__file__).parent,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
