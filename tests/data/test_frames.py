"""Tests of `read_frame`, `plain_frame` and of the flags that name columns."""

import csv
import dataclasses
import datetime
import decimal
import gzip
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import wgan_gp
from tests.helpers.runs import call_main
from wgan_gp.config import DataSettings
from wgan_gp.data import frames
from wgan_gp.data.column_kinds import flag_of
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.frames import plain_frame, read_frame, restore_types
from wgan_gp.data.sources.table import find_use
from wgan_gp.errors import UserError

FRAME = pd.DataFrame(
    {
        "radius": [0.1, 1e-300, -2.5, 1 / 3],
        "height": [10.0, 20.5, 1e22, -7.25],
        "count": [2**63 - 1, -(2**63), 0, 7],
        "is old": [True, False, True, True],
        "Class": ["oak", "fir, red", 'a "b"', "élm"],
    }
)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(path, content=None, texts=()):
    if content is not None:
        write(path, content)
    return read_frame(str(path), f"--data_dir={path.name}", texts)


def refusal(path, content=None):
    """Returns the message of a table that is refused, which is one line that names the file."""
    with pytest.raises(UserError) as caught:
        read(path, content)
    text = str(caught.value)
    assert f"--data_dir={path.name}" in text and "\n" not in text and " — " in text
    return text


def values(frame):
    """Returns the cells, with None for missing ones."""
    return [[None if pd.isna(cell) else cell for cell in row] for row in frame.to_numpy(object)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.csv", {"index": False}),
        ("x.csv", {}),
        ("x.dat", {"index": False, "sep": ";", "decimal": ","}),
        ("x.tsv", {"index": False, "sep": "\t", "quoting": csv.QUOTE_ALL}),
        ("x.TXT", {"index": False, "lineterminator": "\r\n"}),
        ("x.csv.gz", {"index": False}),
        ("x.data", {"index": False, "encoding": "utf-8-sig"}),
        ("x.csv", {"index": False, "encoding": "utf-16"}),
        ("x.csv", {"index": False, "encoding": "cp1252", "sep": ";"}),
    ],
)
def test_what_pandas_writes_is_read_exactly(tmp_path, name, options):
    FRAME.to_csv(tmp_path / name, **options)
    found, notes, labels, _ = read(tmp_path / name)
    pd.testing.assert_frame_equal(found, FRAME)
    assert list(labels) == list(FRAME)
    assert ("without the first column, an index without a name" in notes) == (not options)
    assert ("decimal commas" in notes) == ("decimal" in options)
    assert any("1252" in note for note in notes) == (options.get("encoding") == "cp1252")


@pytest.mark.parametrize("seed", range(20))
def test_random_tables_are_read_as_they_were(tmp_path, seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 300))
    make = {
        "float": lambda: random.normal(size=count) * 10.0 ** random.integers(-300, 300),
        "round": lambda: np.round(random.normal(size=count), 2) + 0.001,
        "int": lambda: random.integers(-(2**63), 2**63 - 1, count),
        "bool": lambda: random.integers(0, 2, count) > 0,
        "code": lambda: [f"{number:05d}" for number in random.integers(0, 9999, count)],
        "text": lambda: random.choice(
            ["a,b", "1,5 m", '"', "x y", "a;b", "é\t", "l\nm", "#"], count
        ),
        "day": lambda: pd.date_range("2020-01-01", periods=count).astype(str),
    }
    kinds = random.choice(list(make), int(random.integers(2, 6)))
    frame = pd.DataFrame({f"{kind} {i}": make[kind]() for i, kind in enumerate(kinds)})
    frame = frame.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    frame = frame.mask(random.uniform(size=frame.shape) < random.choice([0, 0.2]))
    frame = frame.convert_dtypes(convert_floating=False, convert_string=False)
    if frame.iloc[:2].isna().all(axis=None):
        frame = frame.iloc[2:]
    separator = random.choice([",", ";", "\t"])
    frame.to_csv(tmp_path / "x.csv", index=False, sep=separator)
    found = read(tmp_path / "x.csv").frame
    assert list(found) == list(frame) and values(found) == values(frame)


@pytest.mark.parametrize(
    ("content", "names", "rows", "note"),
    [
        ("0,1\n0.5,2\n", ["0", "1"], [[0.5, 2]], "taken for names"),
        ("0,1,2\n3,4,5\n", ["0", "1", "2"], [[3, 4, 5]], "taken for names"),
        (",0,1\n0,7,2\n1,3,4\n", ["0", "1"], [[7, 2], [3, 4]], "without the first column"),
        (",2019,2020\nAl,3,4\n", ["2019", "2020"], [[3, 4]], "taken for names"),
        (",2019,2020\n0,3,4\n1,5,6\n", ["2019", "2020"], [[3, 4], [5, 6]], "taken for names"),
        ("1,2,3\nx,4,y\n", None, [["1", 2, "3"], ["x", 4, "y"]], "taken for an example"),
        ("0,1\n1,0\n", ["column 1", "column 2"], [[0, 1], [1, 0]], ""),
        ("1,2,rose\n3,4,iris\n", None, [[1, 2, "rose"], [3, 4, "iris"]], "taken for an example"),
        ("1,2,label\n3,4,iris\n", ["1", "2", "label"], [[3, 4, "iris"]], ""),
        ("red,S\nblue,M\n", ["red", "S"], [["blue", "M"]], "taken for names"),
        ("a,b\nNA,0.5\n?, null \n2,-1e3\n", ["a", "b"], [[None, 0.5], [None] * 2, [2, -1e3]], ""),
        ("a,b\nNone,x\nNULL,?\n", ["a", "b"], [["None", "x"], [None, "?"]], ""),
        ("a,b\nTrue,x\n,y\n", ["a", "b"], [[True, "x"], [None, "y"]], ""),
        ("zip,b\n01234,1\n94110,2\n", ["zip", "b"], [["01234", 1], ["94110", 2]], ""),
        (f"a,b\n{2**64 - 1},1\n,2\n", ["a", "b"], [[2**64 - 1, 1], [None, 2]], ""),
        (f"a,b\n{2**65},1\n", ["a", "b"], [[str(2**65), 1]], ""),
        ("sep=;\nx;y\n1;2,5\n", ["x", "y"], [[1, 2.5]], "decimal commas"),
        ("a,b,\n1,2,\n3,4,\n", ["a", "b"], [[1, 2], [3, 4]], "without the empty column 3"),
        ("a,,b\n1,7,2\n", ["a", "column 2", "b"], [[1, 7, 2]], ""),
        ("a,a\n1,2\n", ["a", "a.1"], [[1, 2]], "columns of the same name are numbered"),
        ("#,b\n1,2\n", ["#", "b"], [[1, 2]], ""),
        ("\n\n a , b \r\n\r\n1,2\r\n   \r\n3,4\r\n", ["a", "b"], [[1, 2], [3, 4]], ""),
        ('a\n1\n""\n3\n', ["a"], [[1], [None], [3]], ""),
        ('t,n\n"two\nlines",1\n', ["t", "n"], [["two\nlines", 1]], ""),
    ],
)
def test_the_forms_of_text_tables(tmp_path, content, names, rows, note):
    found, notes, _, _ = read(tmp_path / "x.csv", content)
    assert list(found) == (names or ["column 1", "column 2", "column 3"])
    assert values(found) == rows and note in "; ".join(notes)
    assert bool(notes) == bool(note)
    assert read_frame((tmp_path / "x.csv").read_bytes(), "x").frame.equals(found)


@pytest.mark.parametrize(
    ("content", "types", "first"),
    [
        ("x\ty\n" + "1,234\ta\n" * 200 + "0,5\tb\n", ["float64", "str"], 1.234),
        ("x\ty\n" + "1,234\ta\n" * 200 + "5,678\tb\n", ["str", "str"], "1,234"),
        ("x\ty\n" + "1,234\t0,5\n" * 20, ["float64", "float64"], 1.234),
        ("x;y\n1,234;0.5\n5,678;1.5\n", ["str", "float64"], "1,234"),
        ("x\ty\tz\n1,234\t0.5\t1,2\n", ["str", "float64", "float64"], "1,234"),
        ("x;y\n" + "1,234;a\n" * 20, ["float64", "str"], 1.234),
        ("y;x\n1,234;1\n999;2\n", ["str", "int64"], "1,234"),
        ("a,b\n" + '"0,5",2\n', ["str", "int64"], "0,5"),
        ("a;b\n1.234,5;2\n", ["str", "int64"], "1.234,5"),
        ("a;b\n0.5;2\n1,5;3\n", ["str", "int64"], "0.5"),
    ],
)
def test_commas_are_decimal_marks_if_numbers_show_it(tmp_path, content, types, first):
    frame = read(tmp_path / "x.tsv", content).frame
    assert [str(dtype).replace("object", "str") for dtype in frame.dtypes] == types
    assert frame.iloc[0, 0] == first


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('a,label\n1,x\n2,"y\n3,x\n', "line 3"),
        ("a,b\n1,2\n\n3,4,5\n", "line 4"),
        ("a,b,c\n1,2\n", "line 2"),
        ("a,b\n" + "1,2\n" * 5000 + "1\n", "line 5002"),
        ('a,b\n1,"x" y\n', "line 2"),
        ("x\ty\n1\t2\n1\t2\t1,234\n", "line 3"),
        ("x,y\né,1\n".encode() + "ü,2\n".encode("cp1252"), "line 3"),
        (b"x,y\n" + "ü,2\n".encode("cp1252") + "é,1\n".encode(), "line 2"),
        (bytes(range(256)), "text file"),
        (b"\xef\xbb\xbfa\xe9,b\n1,2\n", "text file"),
        ("a\tb\n1\t2\n".encode("utf-16-le"), "text file"),
        ("a,b\n1,2\n".encode("utf-32"), "text file"),
        ("x y\n0.5 1\n2   3\n", "blanks"),
        ("0,5 1,5\n2,5 3,5\n", "blanks"),
        ('"mpg" "cyl"\n"Mazda RX4" 21 6\n"Datsun" 22.8 4\n', "blanks"),
        ('"mpg","cyl"\n"Mazda RX4",21,6\n', "line 2"),
        ("x|y\n1|2\n", "|"),
        ("1,234|5\n2,345|6\n", "|"),
        ("# by me, 2020\nname,age\nAl,30\n", "#"),
        ("#ff0000,1.5\n#00ff00,3\n", "#"),
        ("", "no examples"),
        ("a,b\n", "no examples"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:20], "unpacked"),
        ("a,b\n" + "x" * 200_000 + ",1\n", "line 2"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, content, part):
    assert part in refusal(tmp_path / "x.csv", content)


def test_packed_files_cannot_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "UNPACKED_BYTES", 10_000)
    assert "200 times" in refusal(tmp_path / "x.csv.gz", gzip.compress(b"0,0\n" * 10**6))
    pd.DataFrame({"x": np.zeros(10**6)}).to_parquet(tmp_path / "x.parquet")
    assert "200 times" in refusal(tmp_path / "x.parquet")
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(10**7))
    assert "200 times" in refusal(tmp_path / "x.xlsx")


def test_columns_can_stay_texts(tmp_path):
    frame = read(tmp_path / "x.csv", "a;b;b\n1;2;3\n4;5;6,5\n", ["a", "b.1"]).frame
    assert values(frame) == [["1", 2, "3"], ["4", 5, "6,5"]]


# Other files.


@pytest.mark.parametrize("ending", ["parquet", "feather", "xlsx"])
def test_binary_tables_are_those_of_pandas(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    # Excel has no integers of 64 bits.
    frame = FRAME[["radius", "is old", "Class"]] if ending == "xlsx" else FRAME
    {"parquet": frame.to_parquet, "feather": frame.to_feather, "xlsx": frame.to_excel}[ending](path)
    pd.testing.assert_frame_equal(read(path).frame, frame)
    assert "cannot be read" in refusal(path, path.read_bytes()[:300])


@pytest.mark.parametrize("ending", ["parquet", "feather", "xlsx"])
def test_a_package_that_is_not_installed_is_named(tmp_path, monkeypatch, ending):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    text = refusal(tmp_path / f"x.{ending}", b"")
    assert ("openpyxl" if ending == "xlsx" else "pyarrow") in text and "pip install" in text


def test_missing_integers_and_booleans_of_parquet_stay_exact(tmp_path):
    columns = {
        "id": pa.array([2**53 + 1, None, 2**63 - 1], pa.int64()),
        "small": pa.array([None, 3, 200], pa.uint8()),
        "full": pa.array([1, 2, 3], pa.int16()),
        "is": pa.array([True, None, False]),
        "day": pa.array([datetime.date(2020, 1, 31), None, datetime.date(1600, 1, 1)]),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("7.25")]),
        "text": ["a", None, "b"],
    }
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    found = read(tmp_path / "x.parquet")
    types = {name: str(dtype) for name, dtype in found.frame.dtypes.items()}
    assert types.pop("text") in ("str", "object") and types == {
        "id": "Int64",
        "small": "UInt8",
        "full": "int16",
        "is": "boolean",
        "day": "datetime64[s]",
        "price": "float64",
    }
    assert values(found.frame)[0] == [
        2**53 + 1, None, 1, True, pd.Timestamp("2020-01-31"), 1.5, "a"
    ]  # fmt: skip
    restore_types(found.frame, found.types).to_parquet(tmp_path / "y.parquet", index=False)
    written = parquet.read_table(tmp_path / "y.parquet")
    assert [written[name].to_pylist() for name in columns] == [
        pa.array(column).to_pylist() for column in columns.values()
    ]
    for name in ("id", "small", "full", "is", "day"):
        assert written.schema.field(name).type == columns[name].type


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([datetime.date(2020, 1, 1), None], "datetime64[s]"),
        ([decimal.Decimal("1.5"), decimal.Decimal("2.25")], "float64"),
        (pd.array([1, 2], "int64[pyarrow]"), "int64"),
        (pd.array([1, None], "int64[pyarrow]"), "Int64"),
        (pd.array([True, None], "bool[pyarrow]"), "boolean"),
        (pd.array([datetime.date(2020, 1, 1), None], "date32[pyarrow]"), "datetime64[s]"),
        (pd.array([1.5, None], "double[pyarrow]"), "float64"),
        (pd.array([1, None], "Int64"), "Int64"),
        (pd.array([True, None], "boolean"), "boolean"),
        (pd.Categorical(["a", "b"]), "category"),
    ],
)
def test_types_of_python_are_those_of_files_and_back(column, expected):
    frame = pd.DataFrame({"c": column, "x": [0.5, 1.5]}, index=[7, 3])
    found = plain_frame(frame)
    assert str(found.frame["c"].dtype) == expected and found.frame["x"].equals(frame["x"])
    pd.testing.assert_frame_equal(restore_types(found.frame, found.types), frame)


def test_names_of_python_are_those_of_files():
    frame = pd.DataFrame([[1, 2, None, 4, 5]], columns=["Unnamed: 0", ("a", 1), "", 3, "a 1"])
    found = plain_frame(frame)
    assert list(found.frame) == ["a 1", "3", "a 1.1"]
    assert found.labels.tolist() == [("a", 1), 3, "a 1"] and len(found.notes) == 3


def test_formulas_without_values_are_refused_and_others_are_read(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "twice a"], [1, "=2*A2"], [2, "=2*A3"]):
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    settings = DataSettings(dataset="array", data_dir=f"{tmp_path}/x.xlsx")
    with pytest.raises(UserError, match=r"'twice a' contains formulas that were never computed"):
        find_dataset(settings)
    dropped = find_dataset(dataclasses.replace(settings, drop_columns="twice a"))
    assert dropped.spec.table.names == ("a",)
    with zipfile.ZipFile(tmp_path / "x.xlsx") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for place, value in ((2, 2), (3, "")):  # the text of the second one is empty
        old = f'<c r="B{place}"><f>2*A{place}</f><v /></c>'.encode()
        new = f'<c r="B{place}"><f>2*A{place}</f><v>{value}</v></c>'.encode()
        sheet = files["xl/worksheets/sheet1.xml"]
        assert old in sheet
        files["xl/worksheets/sheet1.xml"] = sheet.replace(old, new)
    with zipfile.ZipFile(tmp_path / "y.xlsx", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert values(read(tmp_path / "y.xlsx").frame) == [[1, 2], [2, None]]


def test_the_first_sheet_is_read(tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "x.xlsx") as writer:
        FRAME[["radius", "Class"]].to_excel(writer, sheet_name="trees", index=False)
        FRAME.to_excel(writer, sheet_name="other")
    found = read(tmp_path / "x.xlsx")
    pd.testing.assert_frame_equal(found.frame, FRAME[["radius", "Class"]])
    assert found.notes == ("from the first of 2 sheets, trees",)


# Tables in parts.


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_parts_and_a_pattern_are_one_table(tmp_path, ending):
    folder = tmp_path / "table"
    folder.mkdir()
    parts = [FRAME[:2], FRAME[2:2], FRAME[2:]]
    for number, part in enumerate(parts):
        path = folder / f"part-0000{number}-abc.{ending}"
        part.to_csv(path, index=False) if ending == "csv" else part.to_parquet(path, index=False)
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / f".part-00000-abc.{ending}.crc").write_bytes(b"crc")
    assert frames.is_table(str(folder))
    found = read(folder)
    pd.testing.assert_frame_equal(found.frame, FRAME)
    assert "from 2 files" in found.notes
    pattern = tmp_path / "table" / f"part-*.{ending}"
    pd.testing.assert_frame_equal(read(pattern).frame, FRAME)
    assert refusal(folder / f"other-*.{ending}")
    (folder / f"part-00009-abc.{ending}").write_bytes(
        (folder / f"part-00000-abc.{ending}").read_bytes().replace(b"radius", b"radios")
    )
    assert f"part-00009-abc.{ending}" in refusal(folder)
    (folder / f"part-00009-abc.{ending}").rename(folder / "notes.md")
    assert not frames.is_table(str(folder))
    assert "one kind" in refusal(folder)


def test_the_type_of_a_column_is_that_of_all_parts(tmp_path):
    for name, content in (("a", "x,y\n1,2\n"), ("b", "x,y\n012,\n")):
        write(tmp_path / f"{name}.csv", content)
    frame = read(tmp_path / "*.csv").frame
    assert values(frame) == [["1", 2], ["012", None]] and str(frame["y"].dtype) == "Int64"


def test_a_file_with_the_name_of_a_pattern_is_that_file(tmp_path):
    write(tmp_path / "x[1].csv", "a,b\n1,2\n")
    write(tmp_path / "x1.csv", "a,b\n3,4\n")
    assert values(read(tmp_path / "x[1].csv").frame) == [[1, 2]]
    folder = tmp_path / "of[1]"
    folder.mkdir()
    write(folder / "a.csv", "a,b\n5,6\n")
    assert values(read(folder).frame) == [[5, 6]]
    assert "exist" in refusal(tmp_path / "none.csv")


# Columns that flags name.


def use(names, **settings):
    frame = pd.DataFrame(columns=names)
    found = find_use(frame, "data", DataSettings(**settings))
    return found.features, found.label, found.conditions


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (["a", "TARGET"], {}, (("a",), "TARGET", ())),
        (["a", "TARGET"], {"label_column": "none"}, (("a", "TARGET"), None, ())),
        (["a", "none"], {"label_column": "none"}, (("a",), "none", ())),
        (["a", "b,c", "D"], {"drop_columns": '"b,c", d'}, (("a",), None, ())),
        (["a", "A", "b"], {"drop_columns": "A"}, (("a", "b"), None, ())),
        (["column 1", "column 2"], {"label_column": "2"}, (("column 1",), "column 2", ())),
        (["a", "b", "label"], {"condition_columns": "b", "drop_columns": "label"},
         (("a",), None, ("b",))),
    ],
)  # fmt: skip
def test_columns_are_found_by_name(names, settings, expected):
    assert use(names, **settings) == expected


@pytest.mark.parametrize(
    ("names", "settings", "part"),
    [
        (["a", "b"], {"drop_columns": "z"}, "--drop_columns=z"),
        (["a", "label", "class"], {}, "label, class"),
        (["label"], {}, "features"),
        (["a", "label"], {"condition_columns": "a"}, "--condition_columns=a"),
        (["a", "b"], {"label_column": "b", "drop_columns": "b"}, "--label_column=b"),
    ],
)
def test_columns_that_do_not_fit_are_named(names, settings, part):
    with pytest.raises(UserError, match=part):
        use(names, **settings)


def test_an_index_with_a_name_is_no_column(tmp_path):
    FRAME.set_index("radius").to_parquet(tmp_path / "x.parquet")
    frame = read(tmp_path / "x.parquet").frame
    assert find_use(frame, "data", DataSettings()).notes == ("without the index radius",)
    with pytest.raises(UserError, match="reset_index"):
        find_use(frame, "data", DataSettings(label_column="radius"))
    assert flag_of("drop_columns", "a,b", "c") == "'--drop_columns=\"a,b\",c'"


# Tables as data.


def find(path, **settings):
    return find_dataset(DataSettings(dataset="array", data_dir=str(path), **settings))


def test_numbers_that_may_have_thousands_are_refused_if_they_are_used(tmp_path):
    for header in ("x\tid", "x\tlabel"):
        write(tmp_path / "x.tsv", f"{header}\n1\t1,000\n2\t2,000\n3\t1\n")
        with pytest.raises(UserError, match=rf"x\.tsv.*{header[2:]}"):
            find(tmp_path / "x.tsv")
    write(tmp_path / "x.tsv", "x\tid\n1\t1,000\n2\t2,000\n3\t1\n")
    assert find(tmp_path / "x.tsv", drop_columns="id").spec.table.names == ("x",)


def test_held_out_rows_may_be_constant(tmp_path):
    random = np.random.default_rng(0)
    train, test = (pd.DataFrame(random.uniform(size=(20, 3))) for _ in range(2))
    train.to_csv(tmp_path / "a.csv", index=False)
    for changed in (test.assign(**{"0": 0.5})[["0", 1, 2]], test[:1], test * 0 + 0.5):
        changed.to_csv(tmp_path / "b.csv", index=False)
        data = find(tmp_path / "a.csv", test_data_dir=f"{tmp_path}/b.csv")
        assert data.open_held_out().size == len(changed)


def test_a_dataframe_is_the_same_data_as_its_file(tmp_path):
    frame = pd.concat([FRAME[["radius", "is old", "Class"]]] * 8, ignore_index=True)
    frame.to_csv(tmp_path / "x.csv")
    in_file = find(tmp_path / "x.csv")

    def split_of(split):
        return {"train": frame, "test": frame[:9]}.get(split)

    in_python = find_dataset(DataSettings(dataset="python"), function=split_of)
    assert in_python.spec.table == in_file.spec.table
    assert in_python.open_held_out().size == 9
    pair = (frame.drop(columns="Class"), frame["Class"].rename("kind"))
    labeled = find_dataset(DataSettings(dataset="python"), function=lambda split: pair)
    assert labeled.spec.table.names == ("radius", "is old", "label")
    settings = DataSettings(dataset="python", drop_columns="a")
    with pytest.raises(UserError, match="--drop_columns=a"):
        find_dataset(settings, function=lambda: np.ones([9, 2]))


@pytest.mark.slow
@pytest.mark.parametrize("is_file", [True, False])
def test_samples_have_the_types_of_the_data(tmp_path, is_file):
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(7 * day) for day in range(40)]
    frame = pd.DataFrame(
        {
            "day": [None, *days[1:]],
            "price": [decimal.Decimal(cents) / 100 for cents in range(40)],
            "count": pd.array([None, *range(1, 40)], "Int64"),
            "size": pd.array([*range(40)], "Int64" if is_file else "int64[pyarrow]"),
        }
    )
    frame.to_parquet(tmp_path / "x.parquet")
    data = {} if is_file else {"data": frame}
    source = {"dataset": "array", "data_dir": f"{tmp_path}/x.parquet"} if is_file else {}
    small = {"batch_size": 8, "n_critic": 1, "model_width": 4, "latent_size": 4, "train_steps": 1}
    config = wgan_gp.Config(model_dir=f"{tmp_path}/run", model="mlp", **small, **source)
    samples = wgan_gp.train(config, **data).sample(20)
    expected = frame.astype({"size": "int64"}) if is_file else frame
    assert samples.dtypes.equals(expected.dtypes)
    assert {type(day) for day in samples["day"].dropna()} == {datetime.date}
    assert {type(price) for price in samples["price"]} == {decimal.Decimal}
    written = ["--mode=sample", "--num_samples=9", f"--output={tmp_path}/y.parquet"]
    if is_file:
        assert call_main(*written, f"--model_dir={tmp_path}/run") == 0
        schema = parquet.read_schema(tmp_path / "y.parquet")
        assert schema.field("day").type == pa.date32() and schema.field("count").type == pa.int64()
