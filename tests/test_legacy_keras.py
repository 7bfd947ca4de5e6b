"""Under TF_USE_LEGACY_KERAS=1, the fall-back for TPU VMs where Keras 3 fails."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# The losses' tests in which Keras has a part: a network, a layer, a metric. The others pass
# functions of tensors, which do not know which Keras is installed.
LOSSES = "keras or clip_weights or mixed or replica_context or correct_implementations"
LOSSES += " or tutorial_example or properties_of_critics or normalization_before"
LOSSES += " or without_a_second_derivative"
LOSSES = f"({LOSSES}) and not eager and not xla"  # XLA does not know Keras
EXPORT = "fresh_process"
# The programs for a TPU: a network with batch normalization, a moving average, bfloat16 and
# classes, the optimizer, and checkpoints between strategies. Keras has no further part in others.
PROGRAMS = "(bridge or compiled_programs) and conditional or counter_of_updates or resumed and mlp"
SUITES = {
    "losses": (LOSSES, ["adversarial", "conformance", "penalties", "reductions"]),
    "networks": ("", ["keras_model", "normalization"]),
    "programs for a TPU and exports": (f"{PROGRAMS} or {EXPORT}", ["tpu_strategy", "export"]),
}
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
    "test_schedules.py::test_each_network_has_its_own_adam_whose_beta_2_changes[1-True]",
    "test_resnet.py::test_blocks_and_shortcuts_are_those_of_the_paper[False]",
    "test_resnet.py::test_fused_and_plain_networks_share_checkpoints",
    "test_sampling.py::test_classes_come_in_turn_or_as_asked_for",
    "test_tpu_strategy.py::test_the_training_loop_passes_the_bridge[default]",
]


@pytest.mark.slow
def test_a_slice_is_compiled_and_its_layers_are_named(tmp_path):
    root = pathlib.Path(__file__).parent.parent
    done = subprocess.run(
        [
            sys.executable,
            "train.py",
            "--mode=compile",
            "--compile_topology=v5e-8",
            "--model=dcgan",
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
        assert any(name.startswith(f"{network}/conv_1") for name in program["cycles_by_layer"])


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
@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_of_what_touches_keras_passes(suite):
    chosen, files = SUITES[suite]
    run_tests("-k", chosen, *(f"test_{name}.py" for name in files))
