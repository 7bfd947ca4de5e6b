"""--mode=sample and --mode=export: what a saved run gives, to this program and to others."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import models
from tests.helpers.runs import LIBRARY, TINY, call_main
from wgan_gp.app import saved_run
from wgan_gp.config import Config
from wgan_gp.data.conditions import Conditions
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.inference import export, sample_files
from wgan_gp.inference.images import to_pixels
from wgan_gp.inference.sampling import Sampler, interpolations
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.run_directory.lock import Lock
from wgan_gp.runtime.devices import connect

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sampling.md").read_text()
PROGRAMS = re.findall(r"```python\n([\s\S]*?)```", PAGE)
SHAPES = {"digits": (8, 8, 1), "classes": (8, 8, 1), "points": (2,)}


def use(mode, run, output, *arguments):
    """Runs the program on a saved run."""
    status = call_main(f"--mode={mode}", f"--model_dir={run}", f"--output={output}", *arguments)
    assert status == 0
    return output


def draw(run, output, *arguments):
    """The samples of --sample_format=npz, and the other arrays of the file."""
    path = output / "samples.npz"
    path.unlink(missing_ok=True)
    use("sample", run, path, "--sample_format=npz", *arguments)
    return dict(np.load(path))


def decoded(path):
    with tf.io.gfile.GFile(str(path), "rb") as file:
        return tf.io.decode_png(file.read()).numpy()


def content_of(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def elsewhere(program, tmp_path, *arguments):
    """Runs a program where this project is not to be found, unless it looks for it."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, *map(str, arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "points"])
def test_an_export_draws_the_samples_of_this_program(name, runs, tmp_path):
    """Tests both signatures and the Keras file of an export that two replicas wrote."""
    expected = draw(runs[name], tmp_path, "--seed=5", "--num_samples=23")
    folder = use("export", runs[name], tmp_path / "out", "--cpu_replicas=2")
    signatures = tf.saved_model.load(f"{folder}/saved_model").signatures
    seed = {"seed": tf.constant(5, tf.int64), "count": tf.constant(23)}
    noise = {"latents": tf.constant(expected["latents"])}
    if name == "classes":
        seed["label"] = tf.constant(-1)
        noise["labels"] = tf.constant(expected["labels"])
    network = models.load(f"{folder}/generator.keras")
    of_keras = network([*noise.values()] if name == "classes" else noise["latents"])
    assert expected["samples"].shape == (23, *SHAPES[name])
    drawn = [
        signatures[key](**each)["samples"] for key, each in (("seed", seed), ("latents", noise))
    ]
    for found in (*drawn, of_keras):
        np.testing.assert_allclose(found, expected["samples"], atol=1e-6)


@pytest.mark.parametrize("name", ["classes", "points"])
def test_programs_that_serve_models_find_the_generator(name, runs, tmp_path):
    folder = use("export", runs[name], tmp_path / "out")
    signatures = tf.saved_model.load(f"{folder}/saved_model").signatures
    inputs = {"latents": tf.random.stateless_normal([3, 8], (1, 2))}
    if name == "classes":
        inputs["labels"] = tf.constant([0, 4, 9])
    found, expected = (
        signatures[key](**inputs)["samples"] for key in ("serving_default", "latents")
    )
    np.testing.assert_array_equal(found, expected)


def one_hot_network(inputs, training):
    """A network that gives silent zeros for a label that is not one of the 3 classes."""
    values, labels = inputs
    return tf.reshape(values, [tf.shape(values)[0], -1])[:, :2] + tf.one_hot(labels, 3)[:, :2]


@pytest.mark.parametrize("label", [-2, -1, 3, 2**31 - 1])
def test_every_signature_refuses_a_label_that_is_no_class(label):
    functions = export.generator_signatures(one_hot_network, 2, DataSpec((2,), 3))
    critic = export.critic_signature(
        one_hot_network, DataSpec((2,), 3), lambda critic, examples: critic(examples)[:, 0], True
    )
    values = tf.zeros([2, 2])
    calls = [
        lambda label: functions["latents"](values, tf.constant([0, label])),
        lambda label: critic(values, tf.constant([0, label])),
    ]
    if label != -1:  # all classes in turn
        seed, count = tf.constant(0, tf.int64), tf.constant(2)
        calls.append(
            lambda label: functions["seed"](seed=seed, count=count, label=tf.constant(label))
        )
    for call in calls:
        call(0), call(2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="labels are integers from"):
            call(label)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_every_signature_refuses_conditions_that_are_not_finite(value):
    def network(inputs, training):
        return tf.clip_by_value(tf.concat(inputs, axis=1), -1.0, 1.0)  # hides infinities

    conditions = Conditions.of(np.array([[0.0], [1.0], [2.0]]))
    spec = DataSpec((2,), 0, conditions=conditions)
    functions = export.generator_signatures(network, 2, spec)
    critic = export.critic_signature(
        network,
        spec,
        lambda critic, examples: critic(examples)[:, 0],
        True,
    )
    values, seed = tf.zeros([1, 2]), tf.constant(0, tf.int64)
    for call in (
        lambda given: functions["latents"](values, given),
        lambda given: functions["seed"](seed, given),
        lambda given: critic(values, given),
    ):
        dtype = conditions.signature_dtype
        call(tf.constant([[1.0]], dtype))
        with pytest.raises(tf.errors.InvalidArgumentError, match="conditions are finite"):
            call(tf.constant([[value]], dtype))


@pytest.mark.slow
def test_a_class_is_the_same_class_everywhere(runs, tmp_path):
    of_class = draw(runs["classes"], tmp_path, "--sample_conditions=3", "--num_samples=4")
    in_turn = draw(runs["classes"], tmp_path, "--num_samples=40")
    np.testing.assert_array_equal(in_turn["labels"], np.arange(40) % 10)
    np.testing.assert_array_equal(of_class["labels"], np.full(4, 3))
    for values in ("samples", "latents"):
        np.testing.assert_array_equal(of_class[values], in_turn[values][3::10])
    folder = use("export", runs["classes"], tmp_path / "out")
    draw_seed = tf.saved_model.load(str(folder / "saved_model")).signatures["seed"]
    seed, count = tf.constant(0, tf.int64), tf.constant(4)
    found = draw_seed(seed=seed, count=count, label=tf.constant(3))["samples"]
    np.testing.assert_allclose(found, of_class["samples"], atol=1e-6)
    # Not by the gather of its noise, which says nothing on a GPU.
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        draw_seed(seed=seed, count=count, label=tf.constant(10))


def restored(path, **given):
    saved = saved_run.find_run(str(path), given, LIBRARY)
    return saved_run.restore(saved, saved_run.find_checkpoint(saved), connect(saved.config))


def test_samples_are_of_the_moving_average(runs, tmp_path):
    found = draw(runs["classes"], tmp_path, "--num_samples=16")
    run = restored(runs["classes"])
    inputs = [tf.constant(found["latents"]), tf.constant(found["labels"])]
    averaged, last = (
        np.array(network(inputs, training=False))
        for network in (run.state.generator_average, run.state.generator)
    )
    np.testing.assert_allclose(found["samples"], averaged, atol=1e-6)
    assert np.abs(found["samples"] - last).max() > 1e-4


def test_labels_change_samples_after_a_short_run(runs):
    """The scales and offsets of all classes are equal before training."""
    generator = restored(runs["classes"]).state.generator
    latents = tf.constant(np.random.default_rng(0).standard_normal([16, 8]), tf.float32)
    zeros, ones = (np.array(generator([latents, tf.fill([16], label)])) for label in (0, 1))
    assert np.abs(zeros - ones).reshape(16, -1).max(axis=1).min() > 1e-5


@pytest.mark.slow
def test_the_programs_of_the_documentation_run(runs, tmp_path):
    use("export", runs["digits"], tmp_path / "runs" / "digits" / "exported")
    expected = draw(runs["digits"], tmp_path)
    plain, with_models, _, loaded, _ = PROGRAMS
    elsewhere(
        f"{plain}\n"
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{with_models}\n{loaded}\n"
        "import numpy as np\n"
        "latents = np.load('samples.npz')['latents']\n"
        "np.savez('result.npz', plain=images, with_models=generator(latents),"
        " loaded=samples)\n",
        tmp_path,
    )
    found = np.load(tmp_path / "result.npz")
    for program in ("plain", "with_models", "loaded"):
        np.testing.assert_allclose(found[program], expected["samples"], atol=1e-6)


def run_onnx(path, latents):
    onnxruntime = pytest.importorskip("onnxruntime")  # slow tests are run with the extras
    return onnxruntime.InferenceSession(str(path)).run(["samples"], {"latents": latents})[0]


def run_tflite(path, latents):
    runner = tf.lite.Interpreter(model_path=str(path)).get_signature_runner("latents")
    return runner(latents=latents)["samples"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "tflite"])
def test_the_documented_conversions_have_the_samples_of_tensorflow(name, runs, tmp_path):
    folder = use("export", runs["digits"], tmp_path / "runs" / "digits" / "exported")
    if name == "onnx":
        pytest.importorskip("tf2onnx")
        (command,) = re.findall(r"    python (-m tf2onnx[^`]*?)\n\n", PAGE)
        words = shlex.split(command.replace("\\\n", " "))
        subprocess.run([sys.executable, *words], cwd=tmp_path, check=True)
    else:
        elsewhere(PROGRAMS[2], tmp_path)
    generator = models.load(f"{folder}/generator.keras")
    size = generator.inputs[0].shape[-1]
    for count in (1, 7):  # the number of samples is free in the file
        latents = np.random.default_rng(3).standard_normal([count, size], np.float32)
        run = {"onnx": run_onnx, "tflite": run_tflite}[name]
        found = run(tmp_path / f"generator.{name}", latents)
        np.testing.assert_allclose(found, generator(latents), atol=1e-5)
        assert np.std(found) > 1e-3


@pytest.mark.parametrize(
    ("name", "size", "choices"),
    [
        ("mlp", 8, {"classes": 3, "conditioning": "acgan", "model_depth": 2}),
        ("dcgan", 28, {"precision": "mixed_bfloat16"}),
        ("dcgan", 8, {"generator_normalization": "none", "activation": "tanh"}),
        ("resnet", 32, {"classes": 3, "conditioning": "acgan", "fused_resampling": True}),
        ("dcgan", 8, {}),
    ],
)
def test_every_generator_can_be_kept_in_a_keras_file(name, size, choices, tmp_path):
    generator, _ = models.build(name, (size, size, 3), 6, 4, **choices)
    random = np.random.default_rng(0)
    for weight in generator.weights:
        weight.assign(random.uniform(0.5, 1.0, weight.shape) * random.choice([-0.1, 0.2]))
        if "variance" in weight.name:
            weight.assign(random.uniform(0.5, 2.0, weight.shape))
    generator.save(tmp_path / "generator.keras")
    loaded = models.load(str(tmp_path / "generator.keras"))
    inputs = tf.constant(random.normal(size=[5, 6]), tf.float32)
    if "classes" in choices:
        inputs = [inputs, tf.constant([0, 1, 2, 0, 1])]
    np.testing.assert_array_equal(
        np.array(loaded(inputs, training=False)), np.array(generator(inputs, training=False))
    )


def test_an_archive_holds_the_samples_and_what_they_were_made_of(runs, tmp_path):
    found = draw(runs["digits"], tmp_path, "--num_samples=200", "--seed=9")
    assert found.keys() == {"samples", "latents", "seed", "iteration"}
    assert (found["seed"], found["iteration"]) == (9, 5)
    assert found["samples"].shape == (200, 8, 8, 1) and found["samples"].dtype == np.float32
    assert len(np.unique(found["latents"], axis=0)) == 200
    run = restored(runs["digits"], cpu_replicas=2)
    again = run.sampler.generate(found["latents"], np.zeros(200, np.int32))
    np.testing.assert_allclose(again, found["samples"], atol=1e-5)


def test_another_seed_gives_other_samples_and_its_own_by_default(runs, tmp_path):
    one, other, of_run, zero = (
        draw(runs["digits"], tmp_path, "--num_samples=8", *seed)["samples"]
        for seed in (["--seed=1"], ["--seed=2"], [], ["--seed=0"])
    )
    assert np.abs(one - other).reshape(8, -1).max(axis=1).min() > 1e-3
    np.testing.assert_array_equal(of_run, zero)


@pytest.mark.slow
def test_replicas_share_the_work_and_change_nothing(runs, tmp_path):
    one, two = (
        draw(runs["classes"], tmp_path, "--num_samples=150", f"--cpu_replicas={replicas}")
        for replicas in (1, 2)
    )
    np.testing.assert_allclose(two["samples"], one["samples"], atol=1e-5)


def test_a_picture_for_each_sample(runs, tmp_path):
    samples = draw(runs["digits"], tmp_path, "--num_samples=11")["samples"]
    folder = use(
        "sample",
        runs["digits"],
        tmp_path / "new" / "png",
        "--sample_format=png",
        "--num_samples=11",
    )
    assert sorted(os.listdir(folder)) == [f"{number:05d}.png" for number in range(11)]
    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(
            decoded(folder / f"{number:05d}.png"), to_pixels(sample, None)
        )


@pytest.mark.parametrize("name", SHAPES)
def test_the_grid_by_default_is_in_the_run_and_named_last(name, runs, capsys):
    assert call_main("--mode=sample", f"--model_dir={runs[name]}", "--num_samples=80") == 0
    path = capsys.readouterr().out.splitlines()[-1]
    assert path == f"{runs[name]}/sampled/ckpt-5-seed-0-grid-80.png"
    if name == "classes":  # as in training: a column for each class
        (during,) = (runs[name] / "samples").glob("*.png")
        np.testing.assert_array_equal(decoded(path), decoded(during))
    elif name == "digits":
        assert decoded(path).shape == (10 * 34, 8 * 34, 1)
    else:
        picture = decoded(path).astype(int)
        is_blue = picture[..., 2] > picture[..., 0] + 80
        assert 80 < is_blue.sum() <= 80 * 9  # a dot touches up to nine pixels


@pytest.mark.slow
def test_an_interpolation_goes_from_samples_to_samples(runs, tmp_path):
    options = ["--sample_format=interpolation", "--num_samples=20", "--sample_conditions=4"]
    path = use("sample", runs["classes"], tmp_path / "between.png", *options)
    samples = draw(runs["classes"], tmp_path, "--num_samples=6", "--sample_conditions=4")["samples"]
    picture = decoded(path)
    assert picture.shape == (3 * 34, 8 * 34, 1)  # 20 in rows of 8
    for row in range(3):
        tiles = np.split(picture[row * 34 : row * 34 + 32], 8, axis=1)
        ends = to_pixels(samples[[row, 3 + row]], None).repeat(4, axis=1).repeat(4, axis=2)
        np.testing.assert_array_equal(tiles[0][:, :32], ends[0])
        np.testing.assert_array_equal(tiles[-1][:, :32], ends[1])
    points = use("sample", runs["points"], tmp_path / "points.png", *options[:2])
    assert decoded(points).shape == (512, 512, 3)


def test_latents_in_between_are_distributed_as_those_trained_on():
    """And a row is of the class that it begins with."""
    seen = {}

    class Recorder(Sampler):
        def generate(self, latents, labels):
            seen.update(latents=latents, labels=labels)
            return latents

    sampler = Recorder(None, tf.distribute.get_strategy(), latent_size=4, seed=1, classes=10)
    interpolations(sampler, rows=4000, columns=5)
    latents = seen["latents"].reshape(4000, 5, 4)
    ends, _ = sampler.noise(8000)
    np.testing.assert_array_equal(latents[:, 0], ends[:4000])
    np.testing.assert_array_equal(latents[:, -1], ends[4000:])
    for column in range(5):  # more than four standard deviations of the estimates
        np.testing.assert_allclose(np.cov(latents[:, column].T), np.eye(4), atol=0.1)
    halfway = (ends[:4000] + ends[4000:]) / np.sqrt(2)
    np.testing.assert_allclose(latents[:, 2], halfway, atol=1e-6)
    np.testing.assert_array_equal(seen["labels"], (np.arange(4000) % 10).repeat(5))


@pytest.mark.parametrize(
    ("mode", "name", "arguments", "message"),
    [
        (
            "sample",
            "digits",
            ["--sample_conditions=0"],
            "--sample_conditions=0: the networks of this run take no conditions — omit it",
        ),
        (
            "sample",
            "classes",
            ["--sample_conditions=10"],
            "is none of the 10 classes of the run — give 0 to 9",
        ),
        ("sample", "points", ["--sample_format=png"], "but this run generates points"),
        ("sample", "digits", ["--output=a.txt"], "--output=a.txt does not end in .png, which"),
        ("sample", "digits", ["--sample_format=grid", "--output=a.npz"], "not end in .png, which"),
        ("sample", "digits", ["--output=a.csv"], "writes a line of features per sample, but"),
        ("sample", "digits", ["--sample_format=npz", "--output=a.png"], "end in .npz, which"),
        (
            "sample",
            "digits",
            ["--output=FOLDER.png"],
            "FOLDER.png is a folder — give the name of a file",
        ),
        (
            "sample",
            "digits",
            ["--sample_format=png", "--output=FOLDER.png"],
            "already contains files",
        ),
        ("sample", "digits", ["--sample_format=png", "--output=FILE"], "FILE is a file — give a n"),
        ("export", "digits", ["--output=FILE"], "FILE is a file — give a new or empty"),
        ("export", "digits", ["--output=FILE/in"], "FILE/in cannot be written ("),
        ("sample", "digits", ["--output=FILE/in.png"], "FILE/in.png cannot be written ("),
        ("sample", "digits", ["--model_width=8"], "configuration (--model_width: 4 -> 8) — omit"),
        ("export", "points", ["--dataset=digits"], "(--dataset: gaussians_8 -> digits) — omit"),
        ("export", "digits", ["--restore_from=FILE"], "FILE contains no checkpoint — give"),
    ],
)
def test_what_cannot_be_is_one_line(mode, name, arguments, message, runs, tmp_path, capsys):
    (tmp_path / "FILE").write_text("something")
    (tmp_path / "FOLDER.png").mkdir()
    (tmp_path / "FOLDER.png" / "00000.png").write_text("of another run")
    before = content_of(tmp_path)
    arguments = [
        argument.replace("FILE", f"{tmp_path}/FILE").replace("FOLDER", f"{tmp_path}/FOLDER")
        for argument in arguments
    ]
    assert call_main(f"--mode={mode}", f"--model_dir={runs[name]}", *arguments) == 2
    output = capsys.readouterr()
    *said, error = output.err.splitlines()
    assert all(line.endswith("/ckpt-5: 5 iterations") for line in said)
    assert error.startswith("error: ") and message in error and output.out == ""
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("mode", ["sample", "export"])
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "contains no run (config.json is missing or"),
        (
            {"config.json": '{"name": "a page"}'},
            "config.json is damaged or was edited: it is not a JSON",
        ),
        (
            {"config.json": "[1"},
            "config.json is damaged or was edited: it is not a JSON object with its checksum — r",
        ),
        ({"config.json": None, "data.json": None}, "has no checkpoint yet — train it longer"),
        ({"config.json": None}, "data.json is missing — start"),
    ],
    ids=["empty", "foreign", "torn", "not saved yet", "without data"],
)
def test_a_directory_without_a_saved_run_is_one_line(mode, files, message, runs, tmp_path, capsys):
    for name, text in files.items():
        original = (runs["digits"] / name).read_text()
        (tmp_path / name).write_text(original if text is None else text)
    assert call_main(f"--mode={mode}", f"--model_dir={tmp_path}") == 2
    output = capsys.readouterr()
    (error,) = output.err.splitlines()
    assert error.startswith("error: ") and message in error and output.out == ""
    assert {path.name for path in tmp_path.iterdir()} == files.keys()


@pytest.mark.slow
def test_a_run_that_trains_on_is_left_as_it_is(runs, tmp_path, capsys):
    """Not its files, nor the marker of the process that writes them; its data need not be there."""
    shutil.copytree(runs["digits"], tmp_path, dirs_exist_ok=True)
    with subprocess.Popen(["sleep", "600"]) as other:
        status = pathlib.Path(f"/proc/{other.pid}/stat").read_text()
        mark = {"pid": other.pid, "started": status.rpartition(")")[2].split()[19]}
        mark = {**Lock(str(tmp_path / "owner.json"))._holder, **mark}
        (tmp_path / "owner.json").write_text(json.dumps(mark))
        try:
            with pytest.raises(
                UserError, match=f"process {other.pid} on this machine is writing to"
            ):
                Lock(RunDirectory(str(tmp_path)).owner).acquire()
            before = content_of(tmp_path)
            for sample_format in ("grid", "interpolation", "png", "npz"):
                arguments = [f"--model_dir={tmp_path}", f"--sample_format={sample_format}"]
                assert call_main("--mode=sample", "--num_samples=3", *arguments) == 0
            assert call_main("--mode=export", f"--model_dir={tmp_path}") == 0
        finally:
            other.kill()
    after = content_of(tmp_path)
    new = after.keys() - before.keys()
    assert {path.parts[0] for path in new} == {"sampled", "exported"} and len(new) == 6 + 12
    assert {path: after[path] for path in before} == before
    assert "warning" not in capsys.readouterr().err


def test_the_data_is_not_asked_for(runs, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a dataset was looked for")

    run = runs["points"]
    monkeypatch.setattr(saved_run, "find_dataset", refuse)
    assert len(draw(run, tmp_path, "--num_samples=3")["samples"]) == 3
    use("export", run, tmp_path / "out")


@pytest.mark.slow
def test_a_run_need_not_be_on_this_machine(runs, tmp_path):
    """ram:// stands for gs://: what only TensorFlow can open."""
    run = f"ram://{tmp_path.name}/run"
    shutil.rmtree(shutil.copytree(runs["digits"], tmp_path / "run") / "sampled", True)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            copy = f"{run}/{path.relative_to(tmp_path / 'run')}"
            tf.io.gfile.makedirs(os.path.dirname(copy))
            tf.io.gfile.copy(str(path), copy)
    for sample_format in ("grid", "npz", "png"):
        assert (
            call_main("--mode=sample", f"--model_dir={run}", f"--sample_format={sample_format}")
            == 0
        )
    assert call_main("--mode=export", f"--model_dir={run}") == 0
    with tf.io.gfile.GFile(f"{run}/sampled/ckpt-5-seed-0-npz-64.npz", "rb") as file:
        samples = np.load(file)["samples"]
    picture = decoded(f"{run}/sampled/ckpt-5-seed-0-png-64/00063.png")
    np.testing.assert_array_equal(picture, to_pixels(samples[63], None))
    assert decoded(f"{run}/sampled/ckpt-5-seed-0-grid-64.png").shape == (8 * 34, 8 * 34, 1)
    draw_seed = tf.saved_model.load(f"{run}/exported/saved_model").signatures["seed"]
    found = draw_seed(seed=tf.constant(0, tf.int64), count=tf.constant(64))["samples"]
    np.testing.assert_allclose(found, samples, atol=1e-6)
    with tf.io.gfile.GFile(f"{run}/exported/generator.keras", "rb") as file:
        assert file.read(2) == b"PK"  # an archive, as Keras writes it


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["LOCAL/out", "ram://exports/out"])
def test_a_failed_export_is_not_in_the_way_of_the_next(runs, tmp_path, monkeypatch, folder):
    """Also one that was killed, and in an empty folder that existed before."""
    folder = folder.replace("LOCAL", str(tmp_path))
    flags = ["--mode=export", f"--model_dir={runs['points']}", f"--output={folder}"]
    write, written = export.write_durable, []

    def fail(path, content):
        written.extend(tf.io.gfile.listdir(os.path.dirname(path)))
        raise OSError("No space left on device")

    monkeypatch.setattr(export, "write_durable", fail)
    assert call_main(*flags) == 2
    assert [name.rstrip("/") for name in written] == ["saved_model"]
    assert not tf.io.gfile.exists(folder)
    tf.io.gfile.makedirs(folder)
    assert call_main(*flags) == 2
    assert tf.io.gfile.listdir(folder) == []
    monkeypatch.setattr(export, "write_durable", write)
    tf.io.gfile.makedirs(f"{folder}/.incomplete/saved_model")  # of a killed process
    tf.io.gfile.makedirs(f"{folder}/saved_model")
    assert call_main(*flags) == 2  # it may be of the user
    tf.io.gfile.rmtree(f"{folder}/saved_model")
    assert call_main(*flags) == 0
    names = [name.rstrip("/") for name in sorted(tf.io.gfile.listdir(folder))]
    assert names == [
        *("README.md", "config.json", "critic.keras", "critic.npz", "data.json"),
        *("generator.keras", "generator.npz", "samples.png", "saved_model"),
    ]
    assert "seed" in tf.saved_model.load(f"{folder}/saved_model").signatures
    assert call_main(*flags) == 2


def test_failed_pictures_are_not_in_the_way_of_the_next(runs, tmp_path, monkeypatch):
    flags = ["--mode=sample", f"--model_dir={runs['digits']}", f"--output={tmp_path}/out"]
    flags += ["--sample_format=png", "--num_samples=2"]
    write = sample_files.write_durable

    def fail(path, content):
        if path.endswith("1.png"):
            raise OSError("No space left on device")
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(sample_files, "write_durable", fail)
        assert call_main(*flags) == 2
    assert not (tmp_path / "out").exists()
    assert call_main(*flags) == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["00000.png", "00001.png"]


@pytest.mark.parametrize("mode", ["sample", "evaluate", "export"])
def test_a_checkpoint_of_another_run_is_refused(mode, runs, tmp_path, capsys):
    folders = [str(runs["points"]), shutil.copytree(runs["points"], tmp_path / "other")]
    flags = [f"--mode={mode}", f"--model_dir={folders[0]}", f"--restore_from={folders[1]}"]
    assert call_main(*flags) == 2
    assert (
        f"--restore_from={folders[1]} is not a checkpoint of --model_dir={folders[0]} — give its"
    ) in capsys.readouterr().err


def test_another_checkpoint_can_be_named(runs, tmp_path):
    earlier, later = (
        draw(runs["points"], tmp_path, *arguments)
        for arguments in ([f"--restore_from={runs['points']}/checkpoints/ckpt-3"], [])
    )
    assert (earlier["iteration"], later["iteration"]) == (3, 5)
    assert np.abs(earlier["samples"] - later["samples"]).max() > 1e-4
    np.testing.assert_array_equal(earlier["latents"], later["latents"])
    assert earlier["latents"].shape == (64, TINY["latent_size"])


def test_samples_without_bounds_are_not_clipped_to_pictures():
    settings = Config(sample_format="png")
    sample_files.check(settings, DataSpec((8, 8, 1), 0))
    with pytest.raises(UserError, match="the samples of this run have no bounds"):
        sample_files.check(settings, DataSpec((8, 8, 1), 0, bounded=False))
