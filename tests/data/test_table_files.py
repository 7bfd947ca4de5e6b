"""Tests of tables in files and DataFrames, which pandas and other programs wrote."""

import csv
import dataclasses
import gzip

import numpy as np
import pandas
import pytest

import wgan_gp
from tests.helpers.runs import call_main
from wgan_gp.config import DataSettings
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.sources.tables import tables, text_tables
from wgan_gp.errors import UserError

FRAME = pandas.DataFrame(
    {
        "radius": [0.1, 1e-300, -2.5, 1 / 3],
        "height": [10.0, 20.5, 1e22, -7.25],
        "Class": ["oak", "fir", "oak", "elm"],
    }
)
FEATURES, CLASSES = FRAME.iloc[:, :2].to_numpy(), ("elm", "fir", "oak")
SMALL = {"batch_size": 8, "n_critic": 1, "model_width": 4, "latent_size": 4, "train_steps": 1}


def read(path, content=None, **settings):
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tables.open_table(str(path), f"--data_dir={path.name}", DataSettings(**settings))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.csv", {"index": False}),
        ("x.csv", {}),
        ("x.csv", {"index": False, "sep": ";", "decimal": ","}),
        ("x.tsv", {"index": False, "sep": "\t", "quoting": csv.QUOTE_ALL}),
        ("x.txt", {"index": False, "sep": " "}),
        ("x.csv", {"index": False, "sep": "|", "lineterminator": "\r\n"}),
        ("x.csv.gz", {"index": False}),
        ("x.csv", {"index": False, "encoding": "utf-8-sig"}),
        ("x.csv", {"index": False, "encoding": "utf-16"}),
        ("x.txt", {"index": False, "encoding": "utf-16-le", "sep": "\t", "decimal": ","}),
    ],
)
def test_what_pandas_writes_is_read_exactly(tmp_path, name, options):
    FRAME.to_csv(tmp_path / name, **options)
    data = read(tmp_path / name)
    np.testing.assert_array_equal(data.examples, FEATURES)
    assert data.names == ("radius", "height") and data.class_names == CLASSES
    assert data.labels.tolist() == [2, 1, 2, 0] and data.label_name == "Class"
    assert ("without the first column, an index without a name" in data.notes) == (not options)


@pytest.mark.parametrize("ending", ["parquet", "feather", "xlsx"])
def test_binary_tables_are_those_of_pandas(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    package = "openpyxl" if ending == "xlsx" else "pyarrow"
    pytest.importorskip(package)
    {"parquet": FRAME.to_parquet, "feather": FRAME.to_feather, "xlsx": FRAME.to_excel}[ending](path)
    data = read(path)
    np.testing.assert_array_equal(data.examples, FEATURES)
    assert data.names == ("radius", "height") and data.labels.tolist() == [2, 1, 2, 0]
    with pytest.raises(UserError, match="cannot be read"):
        read(path, path.read_bytes()[:300])


@pytest.mark.parametrize("ending", ["parquet", "xlsx"])
def test_a_package_that_is_not_installed_is_named(tmp_path, monkeypatch, ending):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs (pyarrow|openpyxl), .* pip install"):
        read(tmp_path / f"x.{ending}", b"")


@pytest.mark.parametrize(
    ("content", "examples", "note"),
    [
        ("0,1\n0.5,2\n3,4\n", [[0.5, 2], [3, 4]], "the first line is taken for names"),
        (",0,1\n0,0.5,2\n1,3,4\n", [[0.5, 2], [3, 4]], "without the first column"),
        ("1,2\n0.5,2\n", [[1, 2], [0.5, 2]], ""),
        ("0\n5\n", [[0], [5]], ""),
        ("0\n5.5\n", [[5.5]], "the first line"),
        ("NA,0.5\nTrue, null \n?,-1e3\n", [[np.nan, 0.5], [1, np.nan], [np.nan, -1000]], ""),
        ('"mpg" "cyl"\n"Mazda RX4" 21 6\n"Datsun" 22.8 4\n', [[21, 6], [22.8, 4]], "index"),
        ("# x y\n0.5 1\n2   3\n", [[0.5, 1], [2, 3]], "separated by blanks"),
        ("sep=;\nx;y\n1;2,5\n", [[1, 2.5]], "decimal commas"),
        ("x;y\n" + "1;2\n" * 200 + "0,5;2\n", [[1, 2]] * 200 + [[0.5, 2]], "decimal commas"),
        ("a,b,\n1,2,\n3,4,\n", [[1, 2], [3, 4]], "without the empty column 3"),
        ("a,a\n1,2\n", [[1, 2]], "columns of the same name are numbered, such as a.1"),
        ("Größe;y\n1;2\n".encode("cp1252"), [[1, 2]], "read as Windows-1252"),
        ("x;y\n1,234;2\n0,500;3\n", [[1.234, 2], [0.5, 3]], "decimal commas"),
        (
            "x;y\n" + "1;2\n" * 200 + "1,234;2\n0,5;2\n",
            [[1, 2]] * 200 + [[1.234, 2], [0.5, 2]],
            "decimal commas",
        ),
        ("x;y\n1,234;2,5\n999;3\n", [[1.234, 2.5], [999, 3]], "decimal commas"),
        ("x\ty\n1,25\t1,250\n", [[1.25, 1.25]], "decimal commas"),
        ("#x,y\n1,2\n3,4\n", [[1, 2], [3, 4]], ""),
        ("# made by me, 2020\nx,y\n1,2\n", [[1, 2]], ""),
        ("\n\n a , b \r\n\r\n1,2\r\n   \r\n3,4\r\n", [[1, 2], [3, 4]], ""),
    ],
)
def test_the_forms_of_text_tables(tmp_path, content, examples, note):
    data = read(tmp_path / "x.csv", content)
    np.testing.assert_array_equal(data.examples, examples)
    assert note in "; ".join(data.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('a,label\n1,x\n2,"y\n3,x\n', "a quote in line 3 is not closed"),
        ('a,label\n1,x\n2,"y\n3,x"\n4,x\n', "a quote in line 3 is not closed"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 columns in place of 2"),
        ("a,b,c\n1,2\n", "line 2 has 2 columns in place of 3"),
        ('a,b\n"1,234.5",2\n', "line 2: '1,234.5' in a has separators of thousands"),
        ("a;b\n1.234,5;2\n", "line 2: '1.234,5' in a has separators of thousands"),
        ('a,b\n"0,5",2\n', "line 2: '0,5' in a has a decimal comma"),
        ("a;b\n0,5;2\n3;0.5\n", "line 3: '0.5' in b has a decimal point"),
        (f"a,b\n1,2\n{10**400},2\n", "line 3: '1000.* in a is not a number"),
        ("day,s,x\n2020-01-02,k,1\n", "is a date, not a number .* --drop_columns=day,s"),
        ("1,2,rose\n3,4,iris\n", "'rose' in column 3 .* --label_column=3"),
        (
            "a,label\n1,0\n2,0.5\n",
            "line 3: 0.5 in the column of labels, .*--condition_columns=label",
        ),
        ("a,label\n1,0\n2,NA\n", "line 3 has no label"),
        ("a,Label,target\n1,0,1\n", "several columns of labels: Label, target"),
        ("label\n1\n", "has no columns of features"),
        ("x\ty\n1,234\t1\n999\t2\n", "the commas of numbers in x, such as 1,234, may be decimal"),
        ("x;y\n1;1,234\n2;999\n", "the commas of numbers in y, such as 1,234, may be decimal"),
        ("1,234|5\n2,345|6\n", "the commas of numbers in column 1, .* with --drop_columns=1"),
        ("x\ty\n1\t2\n1\t2\t1,234\n", "line 3 has 3 columns in place of 2"),
        ("x\ty\n" + "1\t2\n" * 200 + "1,234\t2\n", "line 202: '1,234' in x has separators of th"),
        ("x,y\né,1\n".encode() + "ü,2\n".encode("cp1252"), "line 3 is not in UTF-8, but other"),
        (
            "x,y\né,1\n".encode() + b"a,3\n" * 9000 + "ü,2\n".encode("cp1252"),
            "line 9003 is not in UTF-8, but other",
        ),
        (bytes(range(256)), "is not a text file"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:20], "cannot be unpacked"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, content, message):
    with pytest.raises(UserError, match=f"--data_dir=x.csv.*{message}"):
        read(tmp_path / "x.csv", content)


def test_a_packed_file_cannot_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "UNPACKED_BYTES", 10_000)
    with pytest.raises(UserError, match="unpacks to more than 200 times its size"):
        read(tmp_path / "x.csv", gzip.compress(b"0,0\n" * 10**6))


def test_long_tables_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "_rows_of_chunk", lambda width: 2)
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    data = read(tmp_path / "x.csv")
    np.testing.assert_array_equal(data.examples, FEATURES)
    with pytest.raises(UserError, match="line 5: 'z' in b"):
        read(tmp_path / "x.csv", "a,b\n1,2\n3,4\n5,6\n7,z\n")


@pytest.mark.parametrize(
    ("column", "labels", "names"),
    [
        ("0.0,2.0,0.0", [0, 1, 0], ("0", "2")),
        ("10,9,-1", [2, 1, 0], ("-1", "9", "10")),
        ("True,False,True", [1, 0, 1], ("False", "True")),
        ("b, a ,b ", [1, 0, 1], ("a", "b")),
        ("None,x,x", [0, 1, 1], ("None", "x")),
        ("1_1,11,11", [1, 0, 0], ("11", "1_1")),  # Python reads both as 11
        ("01,1,001", [1, 2, 0], ("001", "01", "1")),
    ],
)
def test_labels_are_numbered_by_their_values(tmp_path, column, labels, names):
    rows = "".join(f"{i}.5,{cell}\n" for i, cell in enumerate(column.split(",")))
    data = read(tmp_path / "x.csv", f"a, TARGET\n{rows}")
    assert data.labels.tolist() == labels and data.class_names == names


def test_columns_are_chosen_by_name(tmp_path):
    content = 'id,"a,b",energy,kind,label\nx,1,0.5,u,3\ny,2,,v,4\nz,3,1.5,u,5\n'
    data = read(tmp_path / "x.csv", content, label_column="Kind", drop_columns='id,"a,b",energy')
    assert data.names == ("label",) and data.class_names == ("u", "v")
    chosen = {"condition_columns": "energy", "drop_columns": "id,kind,label"}
    with pytest.raises(UserError, match="line 3 has no energy"):
        read(tmp_path / "x.csv", content, **chosen)
    data = read(tmp_path / "x.csv", content, **chosen, invalid="drop")
    assert data.conditions.tolist() == [[0.5], [1.5]] and data.examples.tolist() == [[1], [3]]
    flags = {"dataset": "array", "data_dir": f"{tmp_path}/x.csv", **chosen, "invalid": "drop"}
    described = find_dataset(DataSettings(**flags)).describe(2)
    assert described == (
        f"--data_dir={tmp_path}/x.csv: 2 examples of 1 feature (a,b), 1 condition (energy); 1 row "
        "left out: missing values"
    )
    with pytest.raises(UserError, match="has no column 'z' — give some of id, a,b"):
        read(tmp_path / "x.csv", drop_columns="z")
    with pytest.raises(UserError, match="has labels in column label, but --condition_columns"):
        read(tmp_path / "x.csv", condition_columns="energy")
    both = {"label_column": "none", "condition_columns": "energy", "drop_columns": "id,kind"}
    assert read(tmp_path / "x.csv", **both, invalid="drop").names == ("a,b", "label")


@pytest.mark.slow
def test_the_first_line_says_what_was_understood(tmp_path, capsys):
    rows = "".join(f"{i % 7 / 7},{i % 5},{'mb'[i % 2]}\n" for i in range(20))
    (tmp_path / "x.csv").write_text(f"radius,size,diagnosis\n{rows},1,m\n")
    flags = [f"--data_dir={tmp_path}/x.csv", "--label_column=diagnosis", "--invalid=drop"]
    flags += [f"--{name}={value}" for name, value in SMALL.items()]
    assert not call_main("--dataset=array", *flags, f"--model_dir={tmp_path}/run")
    shown = capsys.readouterr().err
    assert (
        "20 examples of 2 features (radius, size), 2 classes (b, m) from column diagnosis; 1 row "
        "left out: missing values\n"
    ) in shown


@pytest.mark.parametrize(
    ("lines", "names", "first"),
    [
        (["#ff0000,1.5", "#00ff00,3", "red,6"], None, ["#ff0000", "1.5"]),
        (["#ff0000,1.5", "#00ff00,3"], None, ["#ff0000", "1.5"]),
        (["#color,size", "#ff0000,1.5", "#00ff00,3"], ("color", "size"), ["#ff0000", "1.5"]),
        (["# color,size", "red,6", "blue,3"], ("color", "size"), ["red", "6"]),
        (["#job,city", "nurse,Rome", "clerk,Oslo"], ("job", "city"), ["nurse", "Rome"]),
        (["#job,city,", "nurse,Rome,", "clerk,Oslo,"], ("job", "city", ""), ["nurse", "Rome", ""]),
        (["#id,NA", "nurse,Rome", "clerk,Oslo"], ("id", "NA"), ["nurse", "Rome"]),
        (["#job,city", "job,age", "nurse,30"], ("job", "age"), ["nurse", "30"]),
        (["# by me, 2020", "name,age", "Al,30"], ("name", "age"), ["Al", "30"]),
        (["#version,2", "name,age", "Al,30", "Bo,40"], ("name", "age"), ["Al", "30"]),
        (["#Source: UN, 2020", "name,city", "Al,Rome"], ("name", "city"), ["Al", "Rome"]),
    ],
)
def test_lines_that_begin_like_comments(tmp_path, lines, names, first):
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    table = text_tables.find_table(f"{tmp_path}/x.csv", "--data_dir=x.csv")
    assert table.names == names
    assert next(table.rows())[1] == first
    is_doubtful = names is None
    assert ("the first line is taken for an example, not names" in table.notes) == is_doubtful
    is_comment = lines[0].startswith("#") and names is not None and names[0] in lines[0]
    of_comment = "the names of columns are those of the comment above the first line"
    assert (of_comment in table.notes) == (is_comment and "job,age" not in lines)


def test_columns_that_are_not_used_may_have_thousands(tmp_path):
    content = "x\tid\n1\t1,234\n2\t5,678\n"
    data = read(tmp_path / "x.tsv", content, drop_columns="id")
    assert data.examples.tolist() == [[1], [2]]
    assert not any("decimal" in note for note in data.notes)


@pytest.mark.parametrize("last", ["2,345", "0.5"])
def test_columns_that_are_not_used_do_not_determine_the_decimal_mark(tmp_path, last):
    content = "x\tid\n" + "1\t1,234\n" * 200 + f"{last}\t1,234\n"
    if last == "0.5":
        assert read(tmp_path / "x.tsv", content, drop_columns="id").examples[-1] == 0.5
    else:
        with pytest.raises(UserError, match="'2,345' in x has separators of thousands"):
            read(tmp_path / "x.tsv", content, drop_columns="id")


def test_labels_with_thousands_are_refused(tmp_path):
    content = "x\tlabel\n1\t1,000\n2\t2,000\n3\t1\n"
    with pytest.raises(UserError, match="the commas of numbers in label, such as 1,234, may be"):
        read(tmp_path / "x.tsv", content)


@pytest.mark.parametrize(
    ("content", "types", "first"),
    [
        ("x\ty\n" + "1,234\ta\n" * 200 + "0,5\tb\n", ["float64", "str"], 1.234),
        ("x\ty\n" + "1,234\ta\n" * 200 + "5,678\tb\n", ["str", "str"], "1,234"),
        ("x\ty\n" + "1,234\t0,5\n" * 20, ["float64", "float64"], 1.234),
        ("x;y\n1,234;0.5\n5,678;1.5\n", ["str", "float64"], "1,234"),
        ("x\ty\tz\n1,234\t0.5\t1,2\n", ["str", "float64", "float64"], "1,234"),
        ("x;y\n" + "1,234;a\n" * 20, ["float64", "str"], 1.234),
        ("x\tid\n" + "1\t1,234\n" * 200 + "2,345\t1,234\n", ["str", "str"], "1"),
    ],
)
def test_commas_of_typed_tables_are_decimal_marks_if_numbers_show_it(
    tmp_path, content, types, first
):
    (tmp_path / "x.tsv").write_text(content)
    frame, _ = tables.open_frame(f"{tmp_path}/x.tsv", "data")
    assert [str(dtype).replace("object", "str") for dtype in frame.dtypes] == types
    assert frame.iloc[0, 0] == first


@pytest.mark.parametrize("drop", [True, False])
def test_an_index_with_a_name_is_noted(tmp_path, drop):
    frame = FRAME.set_index("radius", drop=drop)
    frame.to_parquet(tmp_path / "x.parquet")
    from_file = read(tmp_path / "x.parquet")
    from_python = tables.from_frame(frame, "data", DataSettings())
    names = ("height",) if drop else ("radius", "height")
    assert from_file.names == from_python.names == names
    assert from_file.notes == from_python.notes == ("without the index radius",)
    if drop:
        with pytest.raises(UserError, match=r"'radius' is the index of .*, not a column.*reset_i"):
            read(tmp_path / "x.parquet", label_column="radius")
    FRAME.to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet").notes == ()


@pytest.mark.parametrize(
    "labels",
    [
        pandas.Series([2, 10, 2, 7]).astype("category"),
        pandas.Series([2.0, 10.0, 2.0, 7.0]).astype("category"),
        pandas.Series(["b", "a", "b", "c"]).astype("category"),
        pandas.Series(["2.0", "+10", "2.0", "7"]).astype("category"),
        pandas.Series(["2.0", "10", "2.0", "7"]),
        pandas.Series([True, False, True, True]).astype("category"),
        pandas.Series([2, 10, 2, 7]),
        pandas.Series([True, False, True, True]),
    ],
)
@pytest.mark.parametrize("name", [" label", "label", ("label", "a")])
def test_labels_have_the_type_of_those_of_the_frame(labels, name):
    frame = pandas.DataFrame({"x": [0.5, 1.5, 2.0, 4.0], name: labels})
    settings = DataSettings(
        dataset="python", label_column="label" if isinstance(name, str) else "label a"
    )
    data = find_dataset(settings, conditioning="projection", function=lambda split: frame)
    numbers = data.open(batch_size=1, plain=True).labels.numpy()
    examples = data.open(batch_size=1, plain=True).examples.numpy()
    assert len(examples) == 4
    found = data.as_given(examples, numbers, None).iloc[:, 1]
    assert found.dtype == labels.dtype and found.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([True, True], ("False", "True"), ["False", True]),
        (pandas.array([1, 1], "Int64"), ("1", "2"), [1, "2"]),
        (pandas.Categorical(["a", "a"]), ("a", "b"), ["a", "b"]),
    ],
)
def test_classes_that_resumed_data_lack_have_their_names(labels, classes, expected):
    frame = pandas.DataFrame({"x": [0.5, 1.5], "label": labels})
    data = find_dataset(
        DataSettings(dataset="python"), conditioning="projection", function=lambda split: frame
    )
    data.use_recorded(dataclasses.replace(data.spec, classes=2, class_names=classes))
    numbers = np.array([0, 1])
    assert data.as_given(np.zeros([2, 1]), numbers, None)["label"].tolist() == expected


def test_bytes_after_a_byte_order_mark_of_utf_8_are_utf_8(tmp_path):
    with pytest.raises(UserError, match="is not a text file"):
        read(tmp_path / "x.csv", b"\xef\xbb\xbfa\xe9,b\n1,2\n")
    with pytest.raises(ValueError, match="it is not a text"):
        text_tables.decode_text(b"\xef\xbb\xbfa\xe9,b\n1,2\n")


def test_held_out_rows_may_be_constant(tmp_path):
    random = np.random.default_rng(0)
    train, test = (pandas.DataFrame(random.uniform(size=(20, 3))) for _ in range(2))
    train.to_csv(tmp_path / "a.csv", index=False)
    one_constant = test.copy()
    one_constant[0] = 0.5
    for changed in (one_constant, test[:1], test * 0 + 0.5):
        changed.to_csv(tmp_path / "b.csv", index=False)
        for scaling in ("minmax", "standard", "whiten"):
            choices = {"dataset": "array", "scaling": scaling, "data_dir": f"{tmp_path}/a.csv"}
            settings = DataSettings(**choices, test_data_dir=f"{tmp_path}/b.csv")
            assert find_dataset(settings).open_held_out().size == len(changed)
        splits = {"train": train, "test": changed}
        from_python = DataSettings(dataset="python")
        data = find_dataset(from_python, function=lambda split, splits=splits: splits.get(split))
        assert data.open_held_out().size == len(changed)


def test_frames_follow_the_rules_of_tables():
    frame = pandas.concat([FRAME] * 8).assign(
        height=np.arange(32) % 5, is_old=np.arange(32) % 2 > 0
    )
    splits = {"train": frame, "test": frame[:9]}
    settings = DataSettings(dataset="python")
    dataset = find_dataset(
        settings, conditioning="projection", function=lambda split="train": splits.get(split)
    )
    assert dataset.names == ("radius", "height", "is_old")
    assert dataset.spec.class_names == CLASSES
    examples, labels = dataset.open(batch_size=4).read(32)
    assert np.abs(examples).max() <= 1 and sorted(labels.numpy()) == [0] * 8 + [1] * 8 + [2] * 16
    assert dataset.open_held_out().size == 9
    pair = (frame.drop(columns="Class"), frame["Class"])
    other = find_dataset(settings, conditioning="projection", function=lambda split: pair)
    assert other.spec.class_names == CLASSES and other.names == dataset.names
    with pytest.raises(UserError, match="--drop_columns=a, but data is not a table"):
        find_dataset(DataSettings(dataset="python", drop_columns="a"), function=lambda: FEATURES)


@pytest.mark.slow
def test_samples_of_a_frame_are_a_frame(tmp_path):
    frame = pandas.concat([FRAME.assign(height=[1, 2, 3, 4])] * 8, ignore_index=True)
    config = wgan_gp.Config(model_dir=str(tmp_path), conditioning="projection", **SMALL)
    samples = wgan_gp.train(config, data=frame).sample(6)
    assert list(samples) == ["radius", "height", "Class"] and len(samples) == 6
    assert samples["Class"].tolist() == [*CLASSES] * 2
