"""The typed reader of saved files, and random damages of each of these files."""

import dataclasses
import json
import pathlib
import random
import shutil
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import wgan_gp
from tests.fuzz.corruptions import corrupt
from tests.helpers.runs import TINY, call_main, reread, train_tiny
from wgan_gp.config import Config
from wgan_gp.data.conditions import Conditions
from wgan_gp.data.data_record import DataRecord
from wgan_gp.data.pixels import Pixels
from wgan_gp.data.scaling import Statistics, Whitening
from wgan_gp.data.spec import DataSpec
from wgan_gp.data.store.store import Record, read_record, write_record
from wgan_gp.data.table import Table
from wgan_gp.errors import UserError
from wgan_gp.evaluation.results import recorded_table
from wgan_gp.run_directory import json_files
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.run_directory.files import convert_file_errors
from wgan_gp.run_directory.json_files import digest, read_dataclass, write_object
from wgan_gp.run_directory.typed_json import load_dataclass, to_json
from wgan_gp.training.checkpoint_files import Manifest, describe_damage, make_manifest
from wgan_gp.writers.writer import TrackedRun

SEEDS = 200  # damages of each file


@dataclasses.dataclass(frozen=True)
class Circle:
    radius: float
    kind: Literal["circle"] = "circle"

    def __post_init__(self):
        if self.radius < 0:
            raise ValueError("radius is negative")


@dataclasses.dataclass(frozen=True)
class Square:
    side: int
    kind: Literal["square"] = "square"


@dataclasses.dataclass(frozen=True)
class Drawing:
    size: tuple[int, float]
    shapes: tuple[Circle | Square, ...]
    name: str | None = None
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    cell: bool | int | float | str = False
    points: np.ndarray | None = None
    area: float = dataclasses.field(default=0.0, init=False)  # derived, so it is not saved


SAVED = {"size": [3, 2], "shapes": [{"radius": 1}, {"side": 2, "kind": "square"}]}


def load(**entries):
    return load_dataclass(Drawing, {**SAVED, **entries}, "x.json", "restore it")


def test_a_dataclass_is_read_as_it_was_written():
    drawing = load()
    assert drawing == Drawing((3, 2.0), (Circle(1.0), Square(2)))
    assert type(drawing.size[1]) is type(drawing.shapes[0].radius) is float
    other = dataclasses.replace(drawing, name="a", weights={"x": 0.5, "y": 1.0}, cell=1.0)
    assert reread(other) == other and type(reread(other).cell) is float
    assert "area" not in to_json(other)
    found = reread(dataclasses.replace(drawing, points=np.array([[1.0, 2.0]]))).points
    assert found.dtype == np.float64 and found.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"size": [3]}, "size has 1 entries in place of 2"),
        ({"size": "32"}, "size is not a list"),
        ({"size": [True, 2]}, "size[0] is not an integer of 64 bits"),
        ({"size": [3.0, 2]}, "size[0] is not an integer of 64 bits"),
        ({"size": [2**64, 2]}, "size[0] is not an integer of 64 bits"),
        ({"size": [3, 10**400]}, "size[1] is not a finite number"),
        ({"size": [3, float("nan")]}, "size[1] is not a finite number"),
        ({"size": [3, None]}, "size[1] is not a finite number"),
        ({"shapes": [{"radius": 1, "kind": "square"}]}, "shapes[0] has none of the types"),
        ({"shapes": [{"radius": -1}]}, "shapes[0] has none of the types"),
        ({"name": 5}, "name is not a text in UTF-8"),
        ({"name": "\ud800"}, "name is not a text in UTF-8"),
        ({"weights": []}, "weights is not an object"),
        ({"weights": {"x": "1"}}, "weights['x'] is not a finite number"),
        ({"cell": None}, "cell has none of the types"),
        ({"points": [[1.0], [1.0, 2.0]]}, "points is not an array of finite numbers"),
        ({"points": ["1"]}, "points is not an array of finite numbers"),
        ({"points": 1.0}, "points is not an array of finite numbers"),
        ({"area": 1.0}, "area is not known"),
        ({"\x1b[31m": 1}, "\\x1b[31m is not known"),
    ],
)
def test_what_does_not_fit_is_one_line(entries, says):
    with pytest.raises(UserError) as caught:
        load(**entries)
    assert str(caught.value).startswith(f"x.json is damaged: {says}")
    assert str(caught.value).endswith(" — restore it")


def test_rules_and_missing_fields_are_named_with_their_place():
    for value, says in (
        ([], "the content is not an object"),
        ({}, "radius is missing"),
        ({"radius": -1}, "radius is negative"),
        ({"radius": 1, "kind": "square"}, "kind is not one of 'circle'"),
    ):
        with pytest.raises(UserError, match=f"^x.json is damaged: {says} — restore it$"):
            load_dataclass(Circle, value, "x.json", "restore it")


def test_a_file_of_another_version_is_refused(tmp_path, monkeypatch):
    path = f"{tmp_path}/wandb.json"
    with monkeypatch.context() as later:
        later.setattr(json_files, "VERSION", json_files.VERSION + 1)
        write_object(path, TrackedRun("a"))
    with pytest.raises(UserError, match=f"^{path} was written by another version of this program"):
        read_dataclass(TrackedRun, path)


def _scaling(method, dtype=np.float64):
    values = np.random.default_rng(0).integers(0, 9, [40, 3]).astype(dtype)
    values[0], values[1] = 0, 9
    statistics = Statistics(3)
    statistics.add(values)
    names = ("a", "b", "c")
    scaling = statistics.scaling(method, dtype=np.dtype(dtype), dequantize=True, names=names)
    whitening = Whitening.of(np.zeros(3), np.cov(values.T)) if method == "whiten" else None
    return DataSpec((3,), 0, False, scaling=dataclasses.replace(scaling, whitening=whitening))


def _table():
    random = np.random.default_rng(0)
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(60), "D")
    columns = {"job": ["nurse", "pilot", None] * 20, "age": random.integers(20, 60, 60)}
    columns |= {"income": random.normal(size=60).round(3), "since": days, "same": ["x"] * 60}
    table = Table.of(pd.DataFrame(columns), "data", {"job": ["nurse", "pilot"]}, target="age")
    return DataSpec((table.size,), 0, False, table=table)


def _conditions():
    values = np.random.default_rng(0).normal(5, 2, [40, 2])
    return DataSpec((2,), 2, False, Conditions.of(values), class_names=("a", "b"))


SPECS = {
    "minmax": lambda: _scaling("minmax", np.uint8),
    "standard": lambda: _scaling("standard"),
    "whiten": lambda: _scaling("whiten"),
    "table": _table,
    "conditions": _conditions,
    "pictures": lambda: DataSpec((4, 4, 3), 0, pixels=Pixels(16, dequantized=False)),
}


def reading(cls):
    return lambda path: read_dataclass(cls, path)


def _write_record(name):
    def write(folder):
        record = DataRecord(SPECS[name](), {"files": 3, "names": "x", "sizes": None}, 60)
        write_object(f"{folder}/data.json", record)
        return f"{folder}/data.json", reading(DataRecord)

    return write


def _write_config(folder):
    path = f"{folder}/config.json"
    write_object(path, Config(**TINY, model_dir="runs/a"))
    return path, reading(Config)


def _write_store(folder):
    record = Record("k", "--data_dir=x", (4, 4, 3), "|u1", ("a", "b"), (10, 5), 16, 1, ("x.png",))
    write_record(folder, record)
    return f"{folder}/data.json", lambda path: read_record(str(pathlib.Path(path).parent))


def _write_manifest(folder):
    path = f"{folder}/ckpt-5"
    content = {".index": (3, "a" * 64), ".data-00000-of-00001": (70, "b" * 64)}
    write_object(f"{path}.json", Manifest(content, {"rollbacks": 1.0}))
    return f"{path}.json", reading(Manifest)


def _write_evaluations(folder):
    path = f"{folder}/evaluation.jsonl"
    lines = [
        {"step": step, "samples": 10, "extractor": None, "evaluation/wasserstein": step / 7}
        for step in (5, 10, 15)
    ]
    pathlib.Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, lambda _: recorded_table(RunDirectory(folder), 10)


FILES = {f"data.json of {name}": _write_record(name) for name in SPECS}
FILES |= {"config.json": _write_config, "data.json of a store": _write_store}
FILES |= {"ckpt-5.json": _write_manifest, "evaluation.jsonl": _write_evaluations}


def seal(path):
    """Makes the checksum of a damaged file right, so that the typed reader sees its content."""
    try:
        content = json.loads(path.read_text())
        content.pop("checksum", None)
        path.write_text(json.dumps({**content, "checksum": digest(content)}))
    except (ValueError, TypeError, AttributeError, RecursionError, OSError):
        pass  # it is no JSON object, which is damage enough


def outcome_of(read, path):
    """Returns what was read, or the error."""
    try:
        with convert_file_errors(str(path), "read", "restore it"):
            return read(str(path))
    except UserError as error:
        return error


@pytest.mark.parametrize("name", FILES)
def test_random_damage_is_one_line_or_harmless(tmp_path, name):
    """Half of the damaged files get the right checksum of their new content."""
    path, read = FILES[name](str(tmp_path))
    path, whole = pathlib.Path(path), to_json(read(path))
    content, errors, changed = path.read_bytes(), 0, 0
    for seed in range(SEEDS):
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)
        rng, is_sealed = random.Random(seed), seed % 2
        corrupt(tmp_path, rng)
        if is_sealed:
            seal(path)
        found = outcome_of(read, path)
        if isinstance(found, UserError):
            assert str(path) in str(found) and " — " in str(found)
            errors += 1
        elif found is not None or not path.exists():
            is_equal = to_json(found) == whole
            changed += not is_equal
            if not is_sealed and name != "evaluation.jsonl":  # whose lines have no checksum
                assert is_equal or found is None
            elif dataclasses.is_dataclass(found):
                assert to_json(reread(found)) == to_json(found)
    assert changed and (errors > SEEDS / 2 or name == "evaluation.jsonl")


def test_a_damaged_checkpoint_is_described(tmp_path):
    for suffix in ("index", "data-00000-of-00001"):
        (tmp_path / f"ckpt-5.{suffix}").write_text(suffix)
    path, manifest = str(tmp_path / "ckpt-5"), tmp_path / "ckpt-5.json"
    content = make_manifest(path)
    manifest.write_text(content)
    assert describe_damage(path) is None
    kinds = set()
    for seed in range(SEEDS):
        shutil.rmtree(manifest) if manifest.is_dir() else manifest.unlink(missing_ok=True)
        manifest.write_text(content)
        folder = tmp_path / "alone"
        folder.mkdir()
        shutil.move(manifest, folder)
        corrupt(folder, random.Random(seed))
        if (folder / manifest.name).exists():
            seal(folder / manifest.name)
            shutil.move(folder / manifest.name, manifest)
        shutil.rmtree(folder)
        found = outcome_of(describe_damage, path)
        assert not isinstance(found, UserError) or "another version" in str(found)
        kinds.add(str(found).partition(" (")[0])
    assert kinds >= {"is damaged", "is incomplete"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The files of an exported generator of points."""
    folder = tmp_path_factory.mktemp("exported")
    train_tiny(folder / "run", train_steps=1)
    command = ["--mode=export", f"--model_dir={folder}/run", f"--output={folder}/out"]
    assert call_main(*command) == 0
    return folder / "out"


@pytest.mark.parametrize("name", ["config.json", "data.json"])
def test_a_damaged_export_is_one_line_or_harmless(exported, tmp_path, name):
    folder, alone = tmp_path / "out", tmp_path / "alone"
    folder.mkdir()
    for file in ("config.json", "data.json", "generator.npz", "critic.npz"):
        shutil.copy(exported / file, folder)
    errors = 0
    for seed in range(40):
        alone.mkdir()
        shutil.copy(exported / name, alone)
        corrupt(alone, random.Random(seed))
        if seed % 2 and (alone / name).is_file():
            seal(alone / name)
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if (alone / name).exists():
            shutil.move(alone / name, folder)
        shutil.rmtree(alone)
        found = outcome_of(wgan_gp.load, folder)
        if isinstance(found, UserError):
            assert any(file in str(found) for file in (name, "generator.npz", "critic.npz"))
            errors += 1
        else:
            assert np.isfinite(found.sample(2)).all()
    assert errors > 20
    tf.keras.backend.clear_session()
