"""Tests of `--tpu=NAME` on a machine that cannot see the run directory and the data."""

import signal

import numpy as np
import pytest
import tensorflow as tf

from tests.data import test_prepared_source as prepared
from tests.data.test_holdout import write_pictures
from tests.helpers.forks import Fork, run_in_fork
from tests.tpu import remote
from tests.training.test_workers import checkpoints, free_addresses

TINY = ["--model=mlp", "--model_width=4", "--model_depth=1", "--latent_size=8", "--batch_size=16"]
FINISHED = "samples, curves and checkpoints are in runs/digits"
TINY += ["--n_critic=2", "--steps_per_loop=5", "--checkpoint_interval=5", "--summary_interval=5"]


@pytest.fixture
def machine():
    """Returns the address of a TPU's machine that can see no file of the tests."""
    (address,) = free_addresses(1)
    with Fork(remote.serve, [address]):
        yield address


def run(folder, address, *flags, killed_at=0):
    """Runs train.py in a folder, and returns the exit status and the last line of stdout."""
    arguments = [str(folder), address, str(killed_at), f"--tpu={remote.NAME}", *flags]
    with Fork(remote.main, arguments) as program:
        out, err = program.communicate(600)
    print(err)  # shown if a test fails
    return program.returncode, (out.splitlines() or [""])[-1]


def tensors(checkpoint):
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def events_of(folder):
    """Returns the steps of the events of the critic's loss, in order."""
    files = sorted(map(str, folder.glob("events.*")))
    events = [
        tf.compat.v1.Event.FromString(each.numpy()) for each in tf.data.TFRecordDataset(files)
    ]
    return [e.step for e in events if any(v.tag == "critic/loss" for v in e.summary.value)]


@pytest.mark.slow
def test_everything_of_a_run_is_on_the_machine_that_runs_python(tmp_path, machine):
    """Trains the default dataset in the default directory, without a flag for a path."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    flags = [*TINY, "--train_steps=15", "--evaluate_interval=15", "--evaluate_samples=64"]
    for folder in (whole, halves):
        folder.mkdir()
    assert run(whole, machine, *flags)[0] == 0
    assert run(halves, machine, *flags, killed_at=10)[0] == -signal.SIGKILL
    assert checkpoints(halves / "runs/digits") == ["ckpt-5"]
    assert run(halves, machine, *flags) == (0, FINISHED)
    expected, found = (
        tensors(each / "runs/digits/checkpoints/ckpt-15") for each in (whole, halves)
    )
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)

    directory = halves / "runs/digits"
    assert [events_of(each / "runs/digits/train") for each in (whole, halves)] == [[5, 10, 15]] * 2
    assert run(halves, machine, "--mode=evaluate", "--evaluate_samples=64")[0] == 0
    assert len((directory / "evaluation.jsonl").read_text().splitlines()) == 2
    sample = ["--mode=sample", "--num_samples=8"]
    assert run(halves, machine, *sample, "--output=far.npy") == (0, "far.npy")
    done = run_in_fork([*sample, f"--model_dir={directory}", f"--output={halves}/near.npy"])
    assert done.status == 0, done.err
    far, near = (np.load(halves / f"{name}.npy") for name in ("far", "near"))
    np.testing.assert_allclose(far, near, atol=1)  # levels of gray
    assert run(halves, machine, "--mode=export") == (0, "runs/digits/exported")
    draw = tf.saved_model.load(str(directory / "exported/saved_model")).signatures["seed"]
    assert draw(seed=tf.constant(0, tf.int64), count=tf.constant(3))["samples"].shape[0] == 3
    start = ["--restore_from=runs/digits", "--model_dir=transferred", "--restore=generator"]
    assert run(halves, machine, *flags, *start)[0] == 0


@pytest.mark.slow
def test_an_export_from_python_can_be_used_without_the_machine(tmp_path, machine):
    with Fork(remote.export_from_python, [str(tmp_path), machine]) as program:
        _, err = program.communicate(600)
    assert program.returncode == 0, err
    saved = tf.saved_model.load(str(tmp_path / "exported/saved_model"))
    drawn = saved.signatures["seed"](seed=tf.constant(0, tf.int64), count=tf.constant(3))
    assert drawn["samples"].shape == [3, 8, 8, 1]


class Extractor(tf.Module):
    """A feature extractor with a variable."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1])])
    def __call__(self, images):
        return self.scale * tf.reshape(images, [-1, 64])[:, :4]


def pictures(folder):
    """Writes pictures to train on, held-out ones and an extractor; returns the flags."""
    for name in ("x", "held_out"):
        write_pictures(folder / name)
    tf.saved_model.save(Extractor(), str(folder / "extractor"))
    flags = ["--dataset=image_folder", "--data_dir=x", "--test_data_dir=held_out"]
    return [*flags, "--image_size=8", "--data_cache=stores", "--feature_extractor=extractor"]


def own_data(folder):
    """Writes a file whose dataset reads another one by TensorFlow; returns the flags."""
    (folder / "own.py").write_text(
        "import tensorflow as tf\n"
        "def data():\n"
        "    rows = tf.data.FixedLengthRecordDataset('rows.bin', 12)\n"
        "    return rows.map(lambda row: tf.ensure_shape(tf.io.decode_raw(row, tf.float32), [3]))\n"
    )
    np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32).tofile(folder / "rows.bin")
    return ["--dataset=own.py:data"]


def prepared_data(folder):
    """Writes a dataset of tensorflow-datasets with held-out examples; returns the flags."""
    splits = {"train": map(prepared.example, range(40)), "test": map(prepared.example, range(20))}
    prepared.write(folder / "prepared", splits)
    return ["--dataset=shades", "--data_dir=prepared", "--data_cache=off"]


def table(folder):
    """Writes a table with texts; returns the flags."""
    rows = [f"{age},{'x' if age % 3 else 'y'}" for age in range(20, 60)]
    (folder / "a.csv").write_text("\n".join(["age,job", *rows]))
    return ["--dataset=array", "--data_dir=a.csv", "--column_types=auto"]


@pytest.mark.slow
@pytest.mark.parametrize("write", [pictures, prepared_data, own_data, table])
def test_data_that_fit_in_memory_are_read_here_and_sent(tmp_path, machine, write):
    flags = [*TINY, *write(tmp_path), "--train_steps=5", "--model_dir=run"]
    status, _ = run(tmp_path, machine, *flags, "--evaluate_interval=5", "--evaluate_samples=16")
    assert status == 0
    (summary,) = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert ("held_out/" in summary) == (write in (pictures, prepared_data))
