"""Runs in gs://, through TensorFlow's own client of Cloud Storage and a fake of its server."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.helpers.cloud_storage import cloud_storage
from tests.helpers.runs import lean_path

ROOT = pathlib.Path(__file__).parents[2]
RUNS = ("first", "second")
SETTINGS = ["--steps_per_loop=5", "--summary_interval=5", "--batch_size=16", "--n_critic=2"]


@pytest.fixture
def program(tmp_path):
    """Returns a function that runs train.py with a fake gs://, whose bucket is a local folder."""
    with cloud_storage(tmp_path) as variables:
        environment = os.environ | variables | {"PYTHONPATH": lean_path()}

        def run(*arguments):
            command = [sys.executable, "train.py", *SETTINGS, *arguments]
            result = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert result.returncode == 0, result.stderr
            return result

        yield run


def weights(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.slow  # programs are started
def test_a_run_in_a_bucket_resumes_to_the_weights_of_a_local_one(tmp_path, program):
    steps = ["--dataset=gaussians_25", "--train_steps=10"]
    program(*steps, f"--model_dir={tmp_path}/local")
    program(*steps, "--model_dir=gs://bucket/run", "--stop_step=5")
    program(*steps, "--model_dir=gs://bucket/run")
    names = sorted(path.name for path in (tmp_path / "bucket").iterdir())
    assert "run%2Fmetrics.jsonl" in names and "run%2Fconfig.json" in names
    for path in (tmp_path / "bucket").glob("run%2Fcheckpoints%2Fckpt-10.*"):
        (tmp_path / path.name.rpartition("%2F")[2]).write_bytes(path.read_bytes())
    local = weights(tmp_path / "local" / "checkpoints" / "ckpt-10")
    bucket = weights(tmp_path / "ckpt-10")
    assert local.keys() == bucket.keys()
    for name, value in local.items():
        np.testing.assert_array_equal(bucket[name], value, name)


@pytest.mark.slow  # programs are started
def test_pictures_and_their_store_may_be_in_buckets(tmp_path, program):
    random = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for name in ("a", "b"):
        for index in range(16):
            picture = PIL.Image.fromarray(random.integers(0, 256, [8, 8, 3], np.uint8))
            picture.save(tmp_path / "pictures" / f"{name}%2F{index}.png")
    arguments = ["--dataset=image_folder", "--data_dir=gs://pictures", "--image_size=8"]
    arguments += ["--model=dcgan", "--model_width=4", "--data_cache=gs://stores/here"]
    first = program(*arguments, "--train_steps=5", f"--model_dir={tmp_path}/first")
    assert "32 examples" in first.stderr and "2 classes (a, b)" in first.stderr
    names = [path.name for path in (tmp_path / "stores").iterdir()]
    assert any(name.endswith("examples-00000.npy") for name in names)
    second = program(*arguments, "--train_steps=5", f"--model_dir={tmp_path}/second")
    one, other = (weights(tmp_path / run / "checkpoints" / "ckpt-5") for run in RUNS)
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, name)
    assert "decoding" in first.stderr and "decoding" not in second.stderr
