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
NETWORKS = ["keras_model", "normalization", "resnet", "average", "sampling"]
# One test of each kind that Keras has a part in, and little time.
OF_EACH_KIND = [
    "test_adversarial.py::test_clip_weights[1-keras]",
    "test_average.py::test_the_average_of_all_weights_and_statistics[1]",
    "test_conformance.py::test_properties_of_critics_are_found",
    "test_evaluation.py::test_a_network_from_a_file_computes_the_features[1-model.keras]",
    "test_evaluation.py::test_code_in_a_keras_file_is_not_run",
    "test_export.py::test_every_generator_can_be_kept_in_a_keras_file[mlp-8-choices0]",
    "test_labels.py",
    "test_normalization.py::test_gradients_are_those_of_the_keras_layer",
    "test_normalization.py::test_moments_and_gradients_are_those_of_the_global_batch[4]",
    "test_penalties.py::test_penalty_in_mixed_bfloat16_is_close_to_float32[graph]",
    "test_resnet.py::test_blocks_and_shortcuts_are_those_of_the_paper[False]",
    "test_sampling.py::test_classes_come_in_turn_or_as_asked_for",
    "test_tpu_strategy.py::test_the_training_loop_passes_the_bridge[default]",
]


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        pytest.param("mlp", "dense_1", id="mlp", marks=pytest.mark.slow),
        pytest.param("dcgan", "conv_1", id="dcgan", marks=pytest.mark.slow),
    ],
)
def test_a_slice_is_compiled_and_its_layers_are_named(tmp_path, model, layer):
    root = pathlib.Path(__file__).parent.parent
    done = subprocess.run(
        [
            sys.executable,
            "train.py",
            "--mode=compile",
            "--compile_topology=v5e-8",
            f"--model={model}",
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
    for network in ("critic", "generator"):
        program = report["programs"][f"{network}_step"]
        assert program["gradient_all_reduce_count"] == 1
        assert any(name.startswith(f"{network}/{layer}") for name in program["cycles_by_layer"])


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


def test_one_test_of_each_kind_passes():
    run_tests(*OF_EACH_KIND)


@pytest.mark.slow
def test_what_is_exported_gives_the_same_samples():
    run_tests("test_export.py", "-k", EXPORT)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [LOSSES, NETWORKS], ids=["losses", "networks"])
def test_the_suite_of_what_touches_keras_passes(suite):
    run_tests("-k", LEFT_OUT, *(f"test_{name}.py" for name in suite))


@pytest.mark.slow
def test_programs_for_a_tpu_are_traced_and_executed():
    # The others take long, and Keras has no further part in them.
    run_tests("test_tpu_strategy.py", "-k", "not whole_run and not pod and not dcgan")
