"""Under TF_USE_LEGACY_KERAS=1, the fall-back for TPU VMs where Keras 3 fails."""

import os
import pathlib
import subprocess
import sys

SUITE = ["adversarial", "conformance", "objectives", "penalties", "reductions"]


def test_the_whole_suite_of_losses_passes():
    tests = pathlib.Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *(tests / f"test_{name}.py" for name in SUITE)],
        cwd=tests.parent,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
