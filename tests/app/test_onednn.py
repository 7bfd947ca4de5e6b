"""Tests that oneDNN is enabled on every x86 CPU, unless the user disables it."""

import os
import pathlib
import platform
import subprocess
import sys

import pytest

from tests.helpers.runs import lean_path
from tests.training.test_step import ACGAN
from wgan_gp.runtime import onednn

ROOT = pathlib.Path(__file__).parents[2]
# Runs train.py as a program, and then a convolution in the same process.
PROGRAM = """
import os, runpy, sys
sys.argv = ["train.py", "--model=gan"]  # ends before it trains
try:
    runpy.run_path("train.py", run_name="__main__")
except SystemExit as stop:
    assert stop.code == 2
assert "tensorflow" not in sys.modules
import tensorflow as tf
from wgan_gp.runtime import onednn
print(os.environ.get(onednn.VARIABLE), onednn.is_on(), flush=True)
images, kernel = tf.zeros([8, 14, 14, 64]), tf.zeros([5, 5, 64, 128])
tf.function(tf.nn.conv2d)(images, kernel, 2, "SAME")
"""
LIBRARY = """
import tensorflow as tf
from wgan_gp.config import Config
from wgan_gp.runtime.devices import connect
connect(Config())
"""


def run(program, **variables):
    environment = {key: value for key, value in os.environ.items() if key != onednn.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": lean_path(), **variables},
        capture_output=True,
        text=True,
        check=True,
    )


on_x86 = pytest.mark.skipif(not onednn.is_x86(), reason="oneDNN is enabled only on x86")


@pytest.mark.slow
@on_x86
def test_a_new_process_uses_onednn():
    said, *primitives = run(PROGRAM, ONEDNN_VERBOSE="1").stdout.splitlines()
    assert said == "1 True"
    # oneDNN prints a line for each of its operations.
    assert any(",convolution," in line for line in primitives)


@pytest.mark.parametrize(("given", "after"), [(None, "1"), ("1", "1"), ("0", "0")])
def test_onednn_is_enabled_unless_the_variable_is_set(monkeypatch, given, after):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setenv(onednn.VARIABLE, "unset")  # restores what `enable` writes
    os.environ.pop(onednn.VARIABLE)
    if given is not None:
        os.environ[onednn.VARIABLE] = given
    onednn.enable()
    assert os.environ[onednn.VARIABLE] == after


def test_a_warning_names_the_variable_if_tensorflow_was_imported_first(monkeypatch, capsys):
    """Imitates a CPU on which TensorFlow does not use oneDNN by default."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(onednn, "is_on", lambda: False)
    monkeypatch.delenv(onednn.VARIABLE, raising=False)
    onednn.enable()  # too late: this process has TensorFlow
    assert onednn.VARIABLE not in os.environ
    for given, lines in ((None, 1), ("1", 1), ("0", 0), ("false", 0)):
        if given is not None:
            monkeypatch.setenv(onednn.VARIABLE, given)
        onednn.warn_if_off()
        said = capsys.readouterr().err.splitlines()
        assert len(said) == lines
        assert all(f"set {onednn.VARIABLE}=1" in line for line in said)


@pytest.mark.slow
@on_x86
def test_connecting_from_python_warns_if_onednn_is_off():
    late = f"import os, tensorflow\nos.environ['{onednn.VARIABLE}'] = '1'\n{LIBRARY}"
    early = f"import os\nos.environ['{onednn.VARIABLE}'] = '0'\n{late}"
    assert run(early).stderr.count(f"set {onednn.VARIABLE}=1") == 1


@on_x86
def test_the_environment_decides_for_these_tests():
    assert onednn.is_on() == (os.environ[onednn.VARIABLE] == "1")


@on_x86
@pytest.mark.slow
def test_without_onednn_runs_resume_bit_for_bit_and_replicas_are_one():
    """The promises of the other tests, which run with oneDNN, hold without it.

    Convolutions are the operations that differ.
    """
    resume = "test_training.py::test_resumed_run_is_the_uninterrupted_one_bit_for_bit[dcgan]"
    replicas = "test_step.py::test_every_kind_of_network_on_two_replicas_is_that_on_one"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            "tests/app/test_onednn.py::test_the_environment_decides_for_these_tests",
            f"tests/training/{resume}",
            f"tests/training/{replicas}[generator-{ACGAN}]",
            f"tests/training/{replicas}[critic-{ACGAN}]",
        ],
        cwd=ROOT,
        env={**os.environ, onednn.VARIABLE: "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
