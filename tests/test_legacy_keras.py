"""Under TF_USE_LEGACY_KERAS=1, the fall-back for TPU VMs where Keras 3 fails."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# Of the losses' tests, those in which Keras has a part: a network, a layer, a metric.
LOSSES = ["adversarial", "conformance", "penalties", "reductions"]
# Fused networks take long, and test_resnet has others; the rest of these are without Keras.
LEFT_OUT = "not fused_networks and not those_of_numpy and not a_fixed_seed"
EXPORT = "plain_tensorflow and classes or fresh_process"
NETWORKS = ["normalization", "resnet", "average", "sampling"]


def test_a_slice_is_compiled_and_its_layers_are_named(tmp_path):
    root = pathlib.Path(__file__).parent.parent
    done = subprocess.run(
        [
            sys.executable,
            "train.py",
            "--mode=compile",
            "--compile_topology=v5e-8",
            "--model_width=4",
            f"--model_dir={tmp_path}",
        ],
        cwd=root,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "compile" / "v5e-8.json").read_text())
    assert report["versions"]["keras"].startswith("2.")
    for network, name in (("critic", "critic_step"), ("generator", "generator_step")):
        program = report["programs"][name]
        assert program["gradient_all_reduce_count"] == 1
        assert any(layer.startswith(f"{network}/conv_1") for layer in program["cycles_by_layer"])


def test_what_is_exported_gives_the_same_samples():
    tests = pathlib.Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", tests / "test_export.py", "-k", EXPORT],
        cwd=tests.parent,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("suite", [LOSSES, NETWORKS], ids=["losses", "networks"])
def test_the_suite_of_what_touches_keras_passes(suite):
    tests = pathlib.Path(__file__).parent
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-k", LEFT_OUT),
            *(tests / f"test_{name}.py" for name in suite),
        ],
        cwd=tests.parent,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
