"""Runs in gs://, through TensorFlow's own client of Cloud Storage and a fake of its server."""

import os
import shutil

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.helpers.cloud_storage import cloud_storage
from tests.helpers.forks import start_program
from tests.helpers.runs import call_main

SETTINGS = ["--steps_per_loop=5", "--summary_interval=5", "--batch_size=16", "--n_critic=2"]
SETTINGS += ["--dataset=image_folder", "--image_size=8", "--model=mlp", "--model_width=4"]
SETTINGS += ["--model_depth=1", "--latent_size=8"]


@pytest.fixture
def program(tmp_path):
    """Returns a function that runs train.py with a fake gs://, and returns what is on stderr."""
    with cloud_storage(tmp_path) as variables:

        def run(*arguments):
            flags, environment = [*SETTINGS, *arguments], os.environ | variables
            with start_program(*flags, environment=environment) as fork:
                _, error = fork.communicate()
                assert fork.returncode == 0, error
            return error

        yield run


def weights(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.slow  # programs are started
def test_a_run_with_pictures_and_their_store_in_buckets_is_a_local_run(tmp_path, program):
    """The run in a bucket is resumed, and has the weights of an uninterrupted local run."""
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "local_pictures" / name).mkdir(parents=True)
        for index in range(16):
            picture = PIL.Image.fromarray(random.integers(0, 256, [8, 8, 3], np.uint8))
            picture.save(tmp_path / "local_pictures" / name / f"{index}.png")
    (tmp_path / "pictures").mkdir()
    for path in (tmp_path / "local_pictures").glob("*/*.png"):
        shutil.copy(path, tmp_path / "pictures" / f"{path.parent.name}%2F{path.name}")

    steps = ["--train_steps=10", "--model_dir=gs://bucket/run"]
    in_buckets = ["--data_dir=gs://pictures", "--data_cache=gs://stores/here", *steps]
    first = program(*in_buckets, "--stop_step=5")
    assert "32 examples" in first and "2 classes (a, b)" in first
    names = [path.name for path in (tmp_path / "stores").iterdir()]
    assert any(name.endswith("examples-00000.npy") for name in names)
    second = program(*in_buckets)
    assert "decoding" in first and "decoding" not in second
    names = sorted(path.name for path in (tmp_path / "bucket").iterdir())
    assert "run%2Fmetrics.jsonl" in names and "run%2Fconfig.json" in names

    local = [f"--data_dir={tmp_path}/local_pictures", f"--model_dir={tmp_path}/local"]
    assert call_main(*SETTINGS, *local, "--train_steps=10", "--sample_interval=0") == 0
    for path in (tmp_path / "bucket").glob("run%2Fcheckpoints%2Fckpt-10.*"):
        (tmp_path / path.name.rpartition("%2F")[2]).write_bytes(path.read_bytes())
    expected = weights(tmp_path / "local" / "checkpoints" / "ckpt-10")
    bucket = weights(tmp_path / "ckpt-10")
    assert expected.keys() == bucket.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(bucket[name], value, name)
