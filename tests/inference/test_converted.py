"""Tests of --export_format: the generator as ONNX and TFLite files, run by their own programs."""

import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

import models
from tests.helpers.runs import call_main
from wgan_gp.config import Config
from wgan_gp.data.scaling.conditions import Conditions
from wgan_gp.data.scaling.scaling import Scaling
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.inference import converted, export

CONDITIONS = Conditions.of(np.random.default_rng(2).normal(5, 2, [20, 2]))
NETWORKS = [
    ("mlp", (5,), {"classes": 3, "conditioning": "acgan"}),
    ("conv1d", (16, 2), {"generator_normalization": "film", "classes": 3, "conditioning": "acgan"}),
    ("conv3d", (6, 8, 3, 2), {"classes": 3, "conditioning": "projection"}),
    ("dcgan", (8, 12, 3), {"classes": 3, "conditioning": "acgan"}),
    ("resnet", (32, 32, 1), {"classes": 3, "conditioning": "projection", "attention": 16}),
    ("r3gan", (32, 32, 3), {}),
]


def network(name, shape, choices):
    """Returns a generator whose weights and moving statistics are not the initial ones."""
    generator, _ = models.build(name, shape, 6, 4, **choices)
    random = np.random.default_rng(0)
    for weight in generator.weights:
        spread = (0.5, 2.0) if "variance" in weight.name else (-0.3, 0.3)
        weight.assign(random.uniform(*spread, weight.shape))
    return generator


def write(name, path, generator, spec):
    """Writes the file of a generator, and returns its function in TensorFlow."""
    exact, plain = (
        export._generator_signatures(generator, 6, spec, checks=checks)["latents"]
        for checks in (True, False)
    )
    path.write_bytes(converted.convert(name, plain, exact, export._some_inputs(6, spec)))
    return exact


def run_onnx(path, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")  # slow tests are run with the extras
    session = onnxruntime.InferenceSession(str(path))
    assert [each.shape[0] for each in session.get_inputs()] != [1] * len(inputs)
    return session.run(["samples"], inputs)[0]


def run_tflite(path, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(model_path=str(path))
    return interpreter.get_signature_runner("serving_default")(**inputs)["samples"]


def check(name, file, function, classes, conditions, tolerance=1e-5):
    """Compares a file with TensorFlow on 1 and 7 latents that the conversion did not see."""
    random = np.random.default_rng(3)
    for count in (1, 7):
        inputs = {"latents": random.standard_normal([count, 6], np.float32)}
        if conditions is not None:
            inputs["conditions"] = random.normal(5, 2, [count, 2]).astype(np.float32)
        elif classes:
            inputs["labels"] = random.integers(0, classes, count).astype(np.int32)
        expected = function(*map(tf.constant, inputs.values()))
        found = {"onnx": run_onnx, "tflite": run_tflite}[name](file, inputs)
        np.testing.assert_allclose(found, expected["samples"], atol=tolerance)
        assert np.std(found) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "tflite"])
@pytest.mark.parametrize(("model", "shape", "choices"), NETWORKS, ids=lambda each: str(each)[:9])
def test_every_network_has_the_samples_of_tensorflow(name, model, shape, choices, tmp_path):
    generator = network(model, shape, choices)
    spec = DataSpec(shape, choices.get("classes", 0))
    path = tmp_path / f"generator.{name}"
    check(name, path, write(name, path, generator, spec), spec.classes, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "tflite"])
def test_conditions_have_the_units_of_the_data(name, tmp_path):
    generator, _ = models.build("mlp", (5,), 6, 4, condition_size=2)
    spec = DataSpec((5,), 0, conditions=CONDITIONS)
    path = tmp_path / f"generator.{name}"
    check(name, path, write(name, path, generator, spec), 0, CONDITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "tflite"])
def test_samples_have_the_units_of_the_data(name, tmp_path):
    generator, _ = models.build("mlp", (2,), 6, 4)
    limits = (40.0, -6.0), (160.0, 0.0)
    numbers = (100.0, -3.0), (60.0, 3.0), *limits, (0, 2), (0.0, 5.0, 0.0)
    scaling = Scaling("minmax", *numbers, False, "float32")
    spec = DataSpec((2,), 0, scaling=scaling)
    path = tmp_path / f"generator.{name}"
    check(name, path, write(name, path, generator, spec), 0, None, tolerance=1e-3)


@pytest.mark.slow
def test_a_run_is_exported_as_tflite(runs, tmp_path):
    folder = tmp_path / "out"
    flags = [f"--model_dir={runs['classes']}", f"--output={folder}"]
    assert call_main("--mode=export", *flags, "--export_format=tflite") == 0
    names = {path.name for path in folder.iterdir()}
    assert "generator.tflite" in names and not names & {"saved_model", "generator.keras"}
    flags[1] = f"--output={tmp_path}/samples.npz"
    assert call_main("--mode=sample", *flags) == 0
    with np.load(tmp_path / "samples.npz") as arrays:
        inputs = {name: arrays[name][:7] for name in ("latents", "labels")}
        inputs["labels"] = inputs["labels"].astype(np.int32)
        found = run_tflite(folder / "generator.tflite", inputs)
        np.testing.assert_allclose(found, arrays["samples"][:7], atol=1e-5)


def linear(latents):
    return {"samples": latents * 2.0}


def traced(function):
    return export.traced(function, tf.TensorSpec([None, 6], tf.float32, "latents"))


def test_a_file_that_computes_other_samples_is_refused(monkeypatch):
    right = converted._to_tflite
    monkeypatch.setattr(
        converted, "_to_tflite", lambda _: right(traced(lambda x: {"samples": x * 2.0001}))
    )
    inputs = [np.ones([8, 6], np.float32)]
    with pytest.raises(UserError, match="--export_format=tflite computes other samples than"):
        converted.convert("tflite", traced(linear), traced(linear), inputs)
    monkeypatch.setattr(converted, "_to_tflite", right)
    assert converted.convert("tflite", traced(linear), traced(linear), inputs)


def test_integers_at_the_border_of_a_level_may_be_neighbors(monkeypatch):
    """Programs round differently, and one of 800 numbers lies between two levels."""
    random = np.random.default_rng(0)
    values = random.uniform(0.1, 0.9, [8, 100]).astype(np.float32)
    values[0, 0] = 1.0 - 2.0**-24
    for changed, has_levels, is_accepted in (
        (values + np.float32(2.0**-24), True, True),
        (values + np.float32(2.0**-24), False, False),
        (values + (np.arange(100) < 2).astype(np.float32), True, False),  # 2% of the numbers
        (np.where(values == values[0, 0], 2.0, values), True, False),  # two levels
    ):
        written = b"", lambda rows, changed=changed: np.floor(changed[: len(rows[0])])
        monkeypatch.setattr(converted, "_to_tflite", lambda _, written=written: written)
        monkeypatch.setattr(converted, "_COUNTS", (8,))

        def exact(latents):
            return {"samples": tf.floor(tf.constant(values))}

        arguments = ("tflite", linear, exact, [np.ones([8, 6], np.float32)])
        if is_accepted:
            assert converted.convert(*arguments, has_levels=has_levels) == b""
        else:
            with pytest.raises(UserError, match="computes other samples than TensorFlow"):
                converted.convert(*arguments, has_levels=has_levels)


@pytest.mark.slow
def test_an_operation_that_a_format_lacks_gives_one_line(runs, tmp_path, monkeypatch, capsys):
    def unknown(function):
        raise RuntimeError("no operation Fft\nand more lines")

    monkeypatch.setattr(converted, "_to_tflite", unknown)
    flags = [f"--model_dir={runs['digits']}", f"--output={tmp_path}/out"]
    assert call_main("--mode=export", *flags, "--export_format=keras,tflite") == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "error:" in each]
    assert "--export_format=tflite cannot express this generator (no operation Fft" in line
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_named_before_anything_is_done(monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    real = converted.importlib.util.find_spec
    monkeypatch.setattr(
        converted.importlib.util,
        "find_spec",
        lambda name: None if name == "tf2onnx" else real(name),
    )
    with pytest.raises(UserError, match=r"packages that are not installed: .*tf2onnx"):
        export.check("folder", "--output=folder", ["onnx"])
    converted.check_installed(["keras", "tflite"])


@pytest.mark.parametrize("value", ["", "onx", "keras,", "saved_model;keras"])
def test_an_unknown_format_gives_one_line(value):
    with pytest.raises(UserError, match="contains an unknown format"):
        Config(export_format=value)


def test_formats_are_given_in_any_order():
    assert Config(export_format=" onnx, keras,onnx").export_format == "onnx,keras"
