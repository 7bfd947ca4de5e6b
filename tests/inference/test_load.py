"""wgan_gp.load: the generator of an exported folder, which may come from another person."""

import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf

import wgan_gp
from tests.helpers.runs import TINY, call_main, train_tiny, without_tracing
from wgan_gp.app.exported import CONFIG, DATA, WEIGHTS
from wgan_gp.errors import UserError
from wgan_gp.run_directory.json_files import read_object, write_object

FILES = (CONFIG, DATA, WEIGHTS)

OWN = """
import tensorflow as tf

def generator(design):
    inputs = tf.keras.Input([design.latent_size])
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="last")(inputs))

def critic(design):
    inputs = tf.keras.Input(design.example_shape)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
"""


def export(run, folder, *arguments):
    assert call_main("--mode=export", f"--model_dir={run}", f"--output={folder}", *arguments) == 0
    return folder


def samples_of(run, path, *arguments):
    flags = [f"--model_dir={run}", f"--output={path}", "--num_samples=23", *arguments]
    assert call_main("--mode=sample", *flags) == 0
    return np.load(path)


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    return export(runs["points"], tmp_path_factory.mktemp("exported") / "out")


@pytest.fixture
def folder(exported, tmp_path):
    """A copy of an export with only the files that are loaded."""
    (tmp_path / "copy").mkdir()
    for name in FILES:
        shutil.copy(exported / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def plant(folder, name="config.json", **entries):
    write_object(str(folder / name), {**read_object(str(folder / name)), **entries})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "points"])
def test_samples_are_those_of_the_program_bit_for_bit(name, runs, tmp_path):
    folder = export(runs[name], tmp_path / "out")
    model = wgan_gp.load(str(folder))
    expected = samples_of(runs[name], tmp_path / "a.npy")
    np.testing.assert_array_equal(model.sample(23), expected)
    expected = samples_of(runs[name], tmp_path / "b.npy", "--seed=5")
    np.testing.assert_array_equal(wgan_gp.load(str(folder), seed=5).sample(23), expected)
    seeded = export(runs[name], tmp_path / "seeded", "--seed=5")
    np.testing.assert_array_equal(wgan_gp.load(str(seeded)).sample(23), expected)
    if name == "classes":
        expected = samples_of(runs[name], tmp_path / "c.npy", "--sample_conditions=3")
        np.testing.assert_array_equal(model.sample(23, 3), expected)
    for label in (-1, 10 if name == "classes" else 0):
        with pytest.raises(UserError, match=f"label={label} is not a class of the generator"):
            model.sample(2, label)
    assert isinstance(model, wgan_gp.LoadedGenerator)
    assert isinstance(model.generator, tf.keras.Model)


def npy(values):
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def test_an_export_from_python_has_few_conditions_of_the_data(tmp_path):
    """They may be personal."""
    random = np.random.default_rng(0)
    config = wgan_gp.Config(
        model_dir=str(tmp_path / "run"),
        conditioning="concatenation",
        train_steps=1,
        evaluate_samples=10,
        **{name: value for name, value in TINY.items() if name not in ("dataset", "model_depth")},
    )
    data = random.normal(size=[2000, 2]).astype(np.float32), random.normal(size=[2000, 1])
    with without_tracing():
        wgan_gp.train(config, data=data).export(str(tmp_path / "out"))
    content = json.loads((tmp_path / "out" / "data.json").read_text())
    assert len(content["spec"]["conditions"]["examples"]) == 1024


@pytest.mark.slow
def test_tables_with_conditions_have_the_units_of_the_data(tmp_path):
    random = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz",
        examples=random.normal(50, 10, [40, 3]).astype(np.float32),
        conditions=random.normal(1000, 1, [40, 2]),
    )
    run, _ = train_tiny(
        tmp_path / "run",
        dataset="array",
        data_dir=str(tmp_path / "data.npz"),
        conditioning="concatenation",
        train_steps=1,
    )
    model = wgan_gp.load(str(export(tmp_path / "run", tmp_path / "out")))
    np.testing.assert_array_equal(
        model.sample(23), samples_of(tmp_path / "run", tmp_path / "a.npy")
    )
    given = [1001.0, 999.0]
    expected = samples_of(tmp_path / "run", tmp_path / "b.npy", "--sample_conditions=1001,999")
    np.testing.assert_array_equal(model.sample(23, conditions=given), expected)
    for name in ("rows.CSV", "rows.NPY"):
        path = tmp_path / name
        path.write_text("1001,999\n") if name == "rows.CSV" else path.write_bytes(npy([given]))
        flag = f"--sample_conditions={path}"
        found = samples_of(tmp_path / "run", tmp_path / f"{name}.npy", flag)
        np.testing.assert_array_equal(found, expected)
    assert model.spec.scaling == run.dataset.spec.scaling


@pytest.mark.slow
def test_a_network_of_the_user_is_passed_and_never_found_by_the_files(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    name = f"{tmp_path}/mine.py"
    flags = [f"--{key}={value}" for key, value in TINY.items() if "model" not in key]
    run = f"--model_dir={tmp_path}/run"
    assert call_main(run, *flags, f"--model={name}", "--train_steps=1") == 0
    folder = export(tmp_path / "run", tmp_path / "out", f"--model={name}")
    assert "mine" not in "".join((folder / each).read_text() for each in (*FILES[:2], "README.md"))
    expected = samples_of(tmp_path / "run", tmp_path / "a.npy", f"--model={name}")
    with pytest.raises(UserError, match="is code of its author, which a download does not contain"):
        wgan_gp.load(str(folder))
    namespace = {}
    exec(OWN, namespace)
    for model in (
        name,
        namespace["generator"],
        namespace["generator"](
            wgan_gp.models.Design(
                example_shape=(2,), latent_size=8, model_width=4, generator_width=4
            )
        ),
    ):
        found = wgan_gp.load(str(folder), model=model)
        np.testing.assert_array_equal(found.sample(23), expected)
    points = np.zeros([3, 2], np.float32)
    assert wgan_gp.load(str(folder), model=name).score(points).shape == (3,)
    with pytest.raises(UserError, match="has no critic — define the function critic"):
        wgan_gp.load(str(folder), model=namespace["generator"]).score(points)
    with pytest.raises(UserError, match="names an object, but networks are the functions"):
        wgan_gp.load(str(folder), model=f"{name}:Small")
    with pytest.raises(UserError, match="--model=unet cannot be imported"):
        wgan_gp.load(str(folder), model="unet")
    with pytest.raises(
        UserError, match=r"generator\.npz does not contain the weights of this netw"
    ):
        wgan_gp.load(
            str(folder),
            model=lambda design: tf.keras.Sequential(
                [tf.keras.Input([8]), tf.keras.layers.Dense(3)]
            ),
        )
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for planted in (f"{tmp_path}/evil.py", "evil", "os.path"):
        plant(folder, model=planted, generator_model=planted)
        with pytest.raises(UserError, match=r"names the network .* this version does not have"):
            wgan_gp.load(str(folder))
    assert not (tmp_path / "ran").exists()


def test_a_run_directory_is_not_an_export(runs):
    with pytest.raises(UserError, match=r"is not that of an export.* such as exported/ in the run"):
        wgan_gp.load(str(runs["points"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        # Only the generator is loaded, and their critics would take most of the time.
        ((32, 32, 3), {"generator_model": "resnet", "generator_ema_decay": 0.5}),
        ((32, 32, 3), {"generator_model": "r3gan", "model_depth": 1}),
        ((16, 2), {"model": "conv1d", "scaling": "whiten"}),
        (
            (8, 8, 3),
            {"model": "dcgan", "precision": "mixed_bfloat16", "conditioning": "projection"},
        ),
        ((8, 8, 1), {"model": "dcgan", "generator_model": "mlp", "critic_normalization": "layer"}),
        ((8, 8, 1), {"model": "dcgan", "seed": 3}),
    ],
)
def test_every_network_is_loaded_bit_for_bit(shape, settings, tmp_path):
    random = np.random.default_rng(0)
    arrays = {"examples": random.uniform(-1, 1, [64, *shape]).astype(np.float32)}
    if "conditioning" in settings:
        arrays["labels"] = np.arange(64) % 3
    np.savez(tmp_path / "data.npz", **arrays)
    data = {"dataset": "array", "data_dir": str(tmp_path / "data.npz"), "batch_size": 4}
    tiny = {"model_depth": None, "n_critic": 1, "train_steps": 1, **data, **settings}
    with without_tracing():
        train_tiny(tmp_path / "run", **tiny)
    model = wgan_gp.load(export(tmp_path / "run", tmp_path / "out"))
    expected = samples_of(tmp_path / "run", tmp_path / "a.npy")
    assert expected.shape == (23, *shape) and np.abs(expected).max() > 0
    np.testing.assert_array_equal(model.sample(23), expected)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_one_line(name, folder):
    (folder / name).unlink()
    with pytest.raises(UserError) as error:
        wgan_gp.load(str(folder))
    assert name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "pipe"])
def test_a_damaged_file_is_one_line(name, damage, folder):
    path = folder / name
    content = path.read_bytes()
    middle = len(content) // 2
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 8]) + content[middle + 1 :]
        path.write_bytes({"cut": content[:middle], "flipped": flipped, "empty": b""}[damage])
    with pytest.raises(UserError, match=name):
        wgan_gp.load(str(folder))


@pytest.mark.parametrize(
    "entries",
    [
        {"generator_width": 8},
        {"latent_size": 9},
        {"latent_size": "8"},
        {"latent_size": 10**400},
        {"model": None},
        {"generator_model": "dcgan"},
        {"generator_width": None},
        {"critic": None},
        {"conditioning": "magic"},
        {"model_width": 16_384, "generator_width": 16_384, "latent_size": 65_536},
    ],
)
def test_a_planted_setting_is_refused(entries, folder):
    plant(folder, **entries)
    with pytest.raises(UserError, match=r"config\.json|generator\.npz"):
        wgan_gp.load(str(folder))


def test_other_settings_have_no_effect(folder):
    expected = wgan_gp.load(str(folder)).sample(3)
    plant(folder, output="/planted", writers="evil.py:Writer", tpu="planted", data_dir="/planted")
    np.testing.assert_array_equal(wgan_gp.load(str(folder)).sample(3), expected)


@pytest.mark.parametrize(
    "entries",
    [
        {"example_shape": [3]},
        {"example_shape": [2**31 - 1]},
        {"example_shape": [2**31 - 1] * 3},
        {"example_shape": [0]},
        {"classes": 2**31 - 1},
        {"classes": 2, "class_names": ["a", "b"]},
        {"scaling": {"method": "minmax"}},
    ],
)
def test_a_planted_property_of_the_data_is_refused(entries, folder):
    saved = read_object(str(folder / "data.json"))["spec"]
    plant(folder, "data.json", spec={**saved, **entries})
    with pytest.raises(UserError) as error:
        wgan_gp.load(str(folder))
    assert "model_dir" not in str(error.value) and "start the run" not in str(error.value)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """An export of a run on bytes from 0 to 255, with two conditions."""
    folder = tmp_path_factory.mktemp("measured")
    random = np.random.default_rng(0)
    examples = random.integers(0, 256, [64, 3]).astype(np.uint8)
    examples[:2] = [[0] * 3, [255] * 3]
    np.savez(folder / "data.npz", examples=examples, conditions=random.normal(5, 2, [64, 2]))
    settings = {"dataset": "array", "data_dir": f"{folder}/data.npz", "train_steps": 1}
    train_tiny(folder / "run", conditioning="concatenation", **settings)
    return export(folder / "run", folder / "out")


@pytest.mark.parametrize(
    ("entry", "changes"),
    [
        ("scaling", {"minimum": [300.0] * 3}),
        ("scaling", {"maximum": [-5.0] * 3}),
        ("scaling", {"maximum": [300.0] * 3}),
        ("scaling", {"minimum": [0.5] * 3}),
        ("scaling", {"offset": [1e308] * 3}),
        ("scaling", {"scale": [1.0] * 3}),
        ("scaling", {"dtype": "bool"}),
        ("scaling", {"dtype": "int8"}),
        ("scaling", {"dtype": "float32"}),
        ("scaling", {"constants": [9.0] * 3}),
        ("scaling", {"method": "standard", "offset": [300.0] * 3}),
        ("scaling", {"method": "standard", "scale": [1e6] * 3}),
        ("conditions", {"mean": [1e308, 1e308]}),
        ("conditions", {"deviation": [1e-300, 1.0]}),
        ("conditions", {"examples": [[1e300, 0.0]]}),
        ("class_names", ["a", "a"]),
    ],
)
def test_statistics_that_no_data_have_are_refused(entry, changes, measured, tmp_path):
    for name in FILES:
        shutil.copy(measured / name, tmp_path / name)
    saved = read_object(str(tmp_path / "data.json"))["spec"]
    assert np.isfinite(wgan_gp.load(str(tmp_path)).sample(3)).all()
    new = {**saved[entry], **changes} if isinstance(changes, dict) else changes
    plant(tmp_path, "data.json", spec={**saved, entry: new})
    with pytest.raises(UserError, match=r"data\.json is damaged: "):
        wgan_gp.load(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count=0 — give a positive integer"),
        ({"count": -1}, "count=-1 — give a positive integer"),
        ({"count": 2.5}, "count=2.5 — give a positive integer"),
        ({"count": True}, "count=True — give a positive integer"),
        ({"label": "6"}, "label='6' is not a class of the generator"),
        ({"label": True}, "label=True is not a class of the generator"),
        ({"label": 1.0}, "label=1.0 is not a class of the generator"),
    ],
)
def test_arguments_of_sample_are_checked(arguments, message, runs, tmp_path_factory):
    model = wgan_gp.load(export(runs["classes"], tmp_path_factory.mktemp("out") / "out"))
    with pytest.raises(UserError, match=re.escape(message)):
        model.sample(**{"count": 3, **arguments})
    assert len(model.sample(np.int64(3), np.int32(1))) == 3


@pytest.mark.parametrize("path", [None, 3, "", b"out"])
def test_a_path_that_is_none_is_one_line(path):
    with pytest.raises(UserError, match=re.escape(f"path={path!r} is no folder")):
        wgan_gp.load(path)


def test_samples_that_are_not_finite_are_refused(exported):
    model = wgan_gp.load(str(exported))
    weight = model.generator.trainable_variables[-1]
    weight.assign(tf.fill(weight.shape, np.inf))
    with pytest.raises(UserError, match="returns NaN or infinity in 3 of 3 samples"):
        model.sample(3)


def test_sizes_of_a_file_take_no_memory(folder):
    """A network of 4 GB and more; the weights in the file are small."""
    plant(folder, model_width=16_384, generator_width=16_384, latent_size=65_536)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"generator\.npz does not contain the weights"):
        wgan_gp.load(str(folder))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 500_000  # KiB


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    """Writes an archive again with other content of its first array."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    first = next(iter(contents))
    contents = change(first, contents)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def saved(array, **options):
    content = io.BytesIO()
    np.save(content, array, **options)
    return content.getvalue()


def huge(content):
    """Returns a small file whose header claims an array of terabytes."""
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 4)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + content[128:]


@pytest.mark.parametrize(
    "change",
    [
        lambda name, files: {},
        lambda name, files: {**files, "more.npy": files[name]},
        lambda name, files: {f"../{key}": value for key, value in files.items()},
        lambda name, files: {**files, name: b""},
        lambda name, files: {**files, name: b"\x80\x04pickle"},
        lambda name, files: {**files, name: saved(np.zeros([8, 4]))},
        lambda name, files: {**files, name: saved(np.zeros([4, 8], np.float32))},
        lambda name, files: {**files, name: saved(np.full([8, 4], np.nan, np.float32))},
        lambda name, files: {**files, name: saved(np.array([print] * 2, object))},
        lambda name, files: {**files, name: files[name] + b"x" * 10_000},
        lambda name, files: {**files, name: files[name][:-4]},
        lambda name, files: {**files, name: huge(files[name])},
    ],
)
def test_an_archive_contains_only_the_arrays_of_the_network(change, folder):
    path = folder / "generator.npz"
    rewritten(path, lambda name, files: files)
    wgan_gp.load(str(folder))
    rewritten(path, change)
    with pytest.raises(UserError, match=r"generator\.npz") as error:
        wgan_gp.load(str(folder))
    assert str(error.value).endswith("export or download it again")


def test_a_compressed_archive_is_not_inflated(folder):
    rewritten(folder / "generator.npz", lambda name, files: files, zipfile.ZIP_DEFLATED)
    with pytest.raises(UserError, match="is compressed or too large"):
        wgan_gp.load(str(folder))


def test_an_export_may_be_in_a_bucket(exported, tmp_path):
    """ram:// stands for gs://."""
    bucket = f"ram://{tmp_path.name}/model"
    tf.io.gfile.makedirs(bucket)
    for name in FILES:
        tf.io.gfile.copy(str(exported / name), f"{bucket}/{name}")
    expected = wgan_gp.load(str(exported)).sample(3)
    np.testing.assert_array_equal(wgan_gp.load(bucket).sample(3), expected)


def test_the_record_does_not_identify_the_data(exported):
    record = json.loads((exported / "data.json").read_text())
    assert record["fingerprint"] is None and record["spec"]["example_shape"] == [2]


@pytest.mark.slow
def test_a_program_loads_an_export(exported):
    program = (
        "import sys, wgan_gp; assert 'tensorflow' not in sys.modules; "
        "print(wgan_gp.load(sys.argv[1]).sample(2).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(exported)], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "(2, 2)\n", done.stderr
