"""Typed tables: texts, dates and missing values as examples, and samples of the same types."""

import dataclasses
import importlib.util
import json
import pathlib
import re
import types

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import scipy.stats.contingency
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as pandas_of

import wgan_gp
from tests.fuzz.results import differences, tensors
from tests.helpers.runs import TINY, call_main, open_run, reread, resolved, train_tiny
from wgan_gp.app import run_hooks
from wgan_gp.config import Config
from wgan_gp.data.column_kinds import find_kinds
from wgan_gp.data.columns import Column
from wgan_gp.data.data_record import DataRecord
from wgan_gp.data.datasets import find_dataset
from wgan_gp.data.frames import read_frame
from wgan_gp.data.selection import Selection
from wgan_gp.data.spec import DataSpec
from wgan_gp.data.table import Table
from wgan_gp.errors import UserError
from wgan_gp.evaluation import results
from wgan_gp.evaluation.tables import TypedTableEvaluator, transfer
from wgan_gp.inference import export, sampling
from wgan_gp.run_directory.typed_json import load_dataclass, to_json
from wgan_gp.writers.writer import MemoryWriter

RANDOM = np.random.default_rng(0)
REALS = ["real", "single", "price"]
_DATES = st.datetimes(
    pd.Timestamp("1800-01-01").to_pydatetime(), pd.Timestamp("2200-01-01").to_pydatetime()
)


def _column(name, elements, dtype):
    return pandas_of.column(name, elements=elements, dtype=dtype)


_FRAMES = pandas_of.data_frames(
    [
        _column("integer", st.integers(-(2**63), 2**63 - 1), np.int64),
        _column("unsigned", st.integers(0, 2**64 - 1), np.uint64),
        _column("few", st.integers(0, 3), np.int8),
        _column("real", st.floats(allow_infinity=False, allow_subnormal=False), float),
        _column("single", st.floats(allow_infinity=False, width=32), np.float32),
        _column("price", st.none() | st.integers(-(10**6), 10**6).map(lambda k: k / 100), float),
        _column("boolean", st.booleans(), bool),
        _column("text", st.none() | st.text(max_size=3), object),
        _column("date", _DATES, "datetime64[ns]"),
    ],
    index=pandas_of.range_indexes(min_size=1, max_size=12),
)


def test_the_table_of_the_page_is_understood_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    exec(re.search(r"(?ms)^```python\n(.*?)^```", page)[1], {})
    config = Config(dataset="array", data_dir="customers.csv", column_types="auto")
    dataset = find_dataset(config)
    lines = [
        f"note: {dataset.describe(dataset.open(batch_size=1))}",
        *dataset.spec.table.describe().splitlines(),
    ]
    assert "".join(f"    {line}\n" for line in lines) in page


_PRICES = [f"{price:,.2f}" for price in np.linspace(900, 9000, 40)]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([*map(str, range(20, 60)), "-"], "contains numbers, but '-' is none — correct it, leave"),
        ([f"1{n},5" for n in range(40)] + ["k.A."], "contains numbers, but 'k.A.' is none"),
        (_PRICES, "contains numbers or dates in another form, such as '1,107.69'"),
        (["1,234", "999", "5,678"], "contains numbers or dates in another form, such as '1,234'"),
        (
            [f"{n},5 %" for n in range(40)],
            "contains numbers or dates in another form, such as '0,5",
        ),
        (
            [f"{n}.5 EUR" for n in range(40)],
            "contains numbers or dates in another form, such",
        ),
        (
            [f"{n % 28 + 1:02d}.12.20" for n in range(40)],
            "contains numbers or dates in another form",
        ),
        (
            [f"2020-01-{n:02d}" for n in range(10, 30)] + [f"{n}.01.2020" for n in range(10, 30)],
            "contains numbers or dates in another form, such as '2020-01-10'",
        ),
    ],
)
def test_texts_that_should_be_numbers_or_dates_are_one_line(texts, message):
    frame = pd.DataFrame({"a column": texts * 20})
    with pytest.raises(UserError, match=re.escape(f"the column 'a column' {message}")):
        find_kinds(frame, "--data_dir=x", {})
    assert find_kinds(frame, "--data_dir=x", {"a column": "category"})


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2", "3", "4", "5+"],  # grades
        [f"0{n}" for n in range(1000, 1040)] + ["none yet"],  # codes
        [f"{n} {letter}A" for n in range(10, 30) for letter in "ABC"],
        [f"1.2.{n}b" for n in range(40)],
    ],
)
def test_other_texts_with_digits_are_categories(texts):
    found = find_kinds(pd.DataFrame({"x": texts * 20}), "--data_dir=x", {})
    assert found["x"].kind == "category"


def test_columns_of_free_text_are_named_together_as_a_shell_takes_them():
    names = [f"name {n}" for n in range(200)]
    frame = pd.DataFrame({"ID x": names, "y": range(200), "remark": names[::-1]})
    found = "the columns 'ID x', 'remark' contain free text, names, or dates of several formats"
    with pytest.raises(UserError, match=f"{found} — .* '--drop_columns=ID x,remark'"):
        find_kinds(frame, "--data_dir=x", {})
    with pytest.raises(UserError, match="leave it out with '--drop_columns=ID x'"):
        find_kinds(frame[["ID x", "y"]], "--data_dir=x", {})


def test_the_first_text_in_a_column_of_numbers_is_named():
    with pytest.raises(UserError, match=r"'x' contains 'k\.A\.', which is no number"):
        find_kinds(pd.DataFrame({"x": ["1.5", "k.A.", "2"]}), "--data_dir=x", {"x": "real"})


def people(count=2000, seed=0):
    """Returns a table with a dependence, a rare category, zeros and missing values."""
    random = np.random.default_rng(seed)
    job = random.choice(["clerk", "nurse", "pilot"], count, p=[0.595, 0.4, 0.005])
    income = np.round(np.exp(random.normal(np.where(job == "nurse", 10.5, 9.5), 0.3)), 2)
    return pd.DataFrame(
        {
            "age": random.integers(18, 90, count),
            "job": job,
            "income": np.where(random.random(count) < 0.1, np.nan, income),
            "debt": np.where(random.random(count) < 0.8, 0, random.integers(1, 9999, count)),
            "since": pd.to_datetime("2020-01-01")
            + pd.to_timedelta(random.integers(0, 900, count), unit="D"),
        }
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(_FRAMES)
def test_rows_become_examples_and_back(frame):
    few = frame["few"]
    frame = frame.assign(
        Int=few.astype("Int64").mask(frame["boolean"]),
        Bool=frame["boolean"].astype("boolean").mask(few == 1),
        ordered=pd.Categorical.from_codes(few, ["x", "y", "z", "w"], ordered=True),
        unordered=pd.Categorical.from_codes(few - 1, [1, 2, 3]),
        zoned=frame["date"].dt.floor("s").dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
        day=frame["date"].dt.strftime("%Y-%m-%d"),
        string=frame["text"].astype("string"),
    )
    if (frame.nunique(dropna=False) < 2).all():
        with pytest.raises(UserError, match=r"is constant in all columns|contains a single row"):
            Table.of(frame, "data")
        return
    table = reread(Table.of(frame, "data"))
    examples = table.encode(frame)
    assert examples.shape == (len(frame), table.size) and examples.dtype == np.float32
    assert np.isfinite(examples).all()
    for first, size in table.one_hot:
        assert (examples[:, first : first + size].sum(axis=1) == 1).all()
    for feature, present in table.masked:
        assert (examples[examples[:, present] == 0, feature] == 0).all()
    found = table.restore(examples)
    pd.testing.assert_frame_equal(
        found.drop(columns=REALS), frame.drop(columns=REALS), check_exact=True
    )
    pd.testing.assert_frame_equal(found[REALS], frame[REALS], rtol=2e-5, atol=0)


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.normal(size=20_000),
        np.round(np.exp(RANDOM.normal(10, 1, 20_000)), 2),
        np.where(RANDOM.random(20_000) < 0.9, 0, RANDOM.integers(1, 10**5, 20_000)),
        RANDOM.integers(-(2**62), 2**62, 20_000),
        RANDOM.integers(0, 10**6, 20_000),
        np.concatenate([RANDOM.normal(-5, 0.1, 9000), RANDOM.normal(5, 2, 11_000)]),
        RANDOM.integers(0, 80, 20_000),
        RANDOM.standard_cauchy(20_000),
    ],
)
def test_features_of_numbers_are_normal_whatever_their_distribution(values):
    table = reread(Table.of(pd.DataFrame({"x": values}), "data"))
    features = table.encode(pd.DataFrame({"x": values}))[:, 0]
    assert scipy.stats.kstest(features, "norm").pvalue > 1e-3
    assert len(table.columns[0].levels) < 1500 or np.ptp(values) > 2**60  # without one for each
    restored = table.restore(features[:, None])["x"].to_numpy()
    if values.dtype.kind == "i":
        np.testing.assert_array_equal(restored, values)
    else:
        np.testing.assert_allclose(restored, values, rtol=2e-5)
    # Normal noise has the distribution of the data.
    noise = np.random.default_rng(1).normal(size=[20_000, 1]).astype(np.float32)
    drawn = table.restore(noise)["x"].to_numpy()
    assert scipy.stats.ks_2samp(drawn, values).pvalue > 1e-3
    assert values.min() <= drawn.min() <= drawn.max() <= values.max()


@pytest.mark.parametrize("count", [500, 2000, 20_000])
@pytest.mark.parametrize(
    "change",
    [
        lambda values: values,
        lambda values: -np.round(values, 2),  # integers to the networks
        lambda values: np.where(np.arange(len(values)) % 2, values, 0),
        lambda values: np.where(np.arange(len(values)) % 50, values, 1e6),  # a code above the tail
    ],
)
def test_a_perfect_generator_has_the_tails_of_the_data(change, count):
    """The mean and the quantiles were up to 4 times too large with a uniform last 500th."""
    quantiles = (np.arange(400_000) + 0.5) / 400_000
    normal = scipy.stats.norm.ppf(quantiles).astype(np.float32)[:, None]
    ratios = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        for drawn in (np.exp(2 * random.normal(size=count)), random.pareto(1.5, count) + 1):
            data = change(drawn)
            table = reread(Table.of(pd.DataFrame({"x": data}), "data"))
            found = table.restore(normal)["x"].to_numpy()
            assert data.min() <= found.min() and found.max() <= data.max()
            sets, code = (found, data), data.max() == 1e6
            found, data = (each[each < 1e6] for each in sets) if code else sets
            tail = [1 - 2 / count, 2 / count]  # with about two rows beyond
            pairs = zip(np.quantile(found, tail), np.quantile(data, tail), strict=True)
            ratios.append([found.mean() / data.mean(), *(a / b if b else 1 for a, b in pairs)])
    means, *tails = np.mean(ratios, axis=0)
    assert means == pytest.approx(1, abs=0.04)
    assert tails == pytest.approx([1, 1], abs=0.12)


def test_samples_have_the_decimals_and_the_values_of_the_data():
    frame = people().dropna()
    table = Table.of(frame, "data")
    noise = np.random.default_rng(0).normal(size=[5000, table.size]).astype(np.float32)
    found = table.restore(noise)
    assert (found["income"] == found["income"].round(2)).all()
    assert found["income"].nunique() > len(frame)  # there are values between those of the data
    assert set(found["job"]) == {"clerk", "nurse", "pilot"}
    assert (found["since"] == found["since"].dt.normalize()).all()
    assert found.dtypes.equals(frame.dtypes)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b", None], "category"),
        ([True, False, True], "category"),
        ([1, 2, 3], "category"),
        (list(range(30)), "integer"),
        ([0.5, 1.25, 2.0], "real, 2 decimals"),
        ([0.1, 0.2, 1 / 3], "real"),
        (["2024-01-31", "2024-02-01", "2023-12-24"], "date"),
        (["31.01.2024", "01.02.2024", "24.12.2023"], "date"),
        (["2024-01-31 10:00", "2024-02-01 11:30", "2023-12-24 00:00"], "date"),
        (["2024-01-31T10:00:00Z", "2024-02-01T11:30:59Z", "2023-12-24T00:00:00Z"], "date"),
        (["1/5/2024", "12/25/2024", "3/14/2023"], "date"),
        (["25.1.2024 9:05", "5.12.2024 13:30", "5.2.2023 10:00"], "date"),
        (["01/05/2024 9:05:00 AM", "12/25/2024 11:30:00 PM", "03/14/2023 1:00:00 PM"], "date"),
        (["2024-01-31", "soon", "2023-12-24"], "category"),
        (["1-2", "2-3", "1-2"], "category"),
        (pd.Categorical(["s", "m", "l"], ["s", "m", "l"], ordered=True), "ordered"),
    ],
)
def test_types_are_found(values, kind):
    frame = pd.DataFrame({"x": values, "more": np.arange(len(values)) % 2})
    table = reread(Table.of(frame, "data"))
    assert table.columns[0].describe_kind() == kind
    pd.testing.assert_frame_equal(table.restore(table.encode(frame)), frame)


def test_a_categorical_without_any_value_stays_one():
    frame = pd.DataFrame({"x": pd.Categorical([None] * 3), "y": [1.5, 2.5, 4.0]})
    table = reread(Table.of(frame, "data"))
    found = table.restore(table.encode(frame))
    assert str(found["x"].dtype) == "category" and found["x"].isna().all()


def test_types_can_be_given():
    frame = pd.DataFrame({"size": ["m", "s", "l", "m"], "code": [10, 20, 30, 10]})
    table = reread(Table.of(frame, "data", {"size": ["s", "m", "l"], "code": "integer"}))
    assert [column.kind for column in table.columns] == ["ordered", "integer"]
    features = table.encode(frame)
    assert features.shape == (4, 2)
    assert features[1, 0] < features[[0, 3], 0].min() <= features[[0, 3], 0].max() < features[2, 0]
    pd.testing.assert_frame_equal(table.restore(features), frame)


@pytest.mark.parametrize(
    ("frame", "kinds", "message"),
    [
        ({"name": [f"n{i}" for i in range(80)]}, {}, "80 different values in 80 rows"),
        ({"a,b": [f"n{i}" for i in range(80)]}, {}, """out with '--drop_columns="a,b"'"""),
        ({"x": [1.0, np.inf, 2.0]}, {}, "the column 'x' contains infinity in 1 rows"),
        ({"x": [1, "a", 2.5]}, {}, "the column 'x' contains float and int and str"),
        ({"x": [1j, 2j]}, {}, "the column 'x' has the type complex128"),
        ({"x": [[1], [2]]}, {}, "the column 'x' contains list"),
        ({"x": pd.to_timedelta([1, 2], unit="D")}, {}, "the column 'x' has the type timedelta64"),
        ({"x": ["a", "b"]}, {"x": "real"}, "the column 'x' contains 'a', which is no number"),
        ({"x": ["a", "b"]}, {"x": "date"}, "does not contain dates of one format"),
        ({"x": ["a", "b"]}, {"x": ["a"]}, "'b' in the column 'x' is not of the type ordered"),
        ({"x": [1.5, 2]}, {"x": "integer"}, "1.5 in the column 'x' is not of the type integer"),
        ({"size": [1, 2]}, {"sise": "real"}, "did you mean 'size'?"),
        ({"x": [1, 2]}, {"x": "number"}, "gives the column 'x' the type 'number'"),
        ({"x": [1, 1], "y": ["a", "a"]}, {}, "is constant in all columns"),
        ({"x": [1]}, {}, "contains a single row"),
        ({"x": [10**30, 1, 1]}, {}, "contains infinity, or integers of more than 64 bits"),
        ({"x": [10**400, 1, 1]}, {}, "contains infinity, or integers of more than 64 bits"),
        ({"x": [np.inf, 1.0]}, {"x": "category"}, "contains infinity, or integers of more"),
        ({"x": [1, 2]}, {"x": {"a": 1}}, "gives the column 'x' the type {'a': 1}"),
        ({"x": [1, 2]}, {"x": []}, "gives the column 'x' the type []"),
        ({"x": ["x", 1, 2.5]}, {"x": "ordered"}, "the column 'x' contains float and int and str"),
        ({"x": pd.to_datetime(["2020-01-01", "2021-01-01"])}, {"x": "real"}, "contains dates"),
        ({"x": ["9999-12-31", "2020-01-01"]}, {}, "has dates before 1678 or after 2261"),
        ({"x": ["2020-01-01"] * 30 + ["soon"]}, {}, "contains dates, but 'soon' is none"),
        ({"x": ["2020-01-01T10:00:00.125"] * 3}, {}, "an offset from UTC, or with parts of"),
        ({"x": ["2020-01-01T10:00:00+02:00"] * 3}, {}, "an offset from UTC, or with parts of"),
        ({"x": pd.Categorical([0, 1], list(range(600)))}, {}, "remove_unused_categories"),
        ({"x": pd.Categorical([0.5, np.inf])}, {}, "the column 'x' contains infinity"),
        ({"x": pd.Categorical([1, 10**30])}, {}, "the column 'x' contains infinity, or integers"),
        ({"x": [1.5, 2]}, {"x": [1.5, 2.0, np.nan]}, "gives the column 'x' the type [1.5, 2.0"),
        ({"x": [1, 2]}, {"x": [1, 2, 10**30]}, "gives the column 'x' the type [1, 2, 1000"),
        (
            {str(place): [1, 2] for place in range(5000)},
            {},
            "has 5000 columns, and a table at most 4096 — leave some out with --drop_columns",
        ),
        ({"x": pd.array([1.5, 2.5], "double[pyarrow]")}, {}, "has the type double[pyarrow]"),
    ],
)
def test_columns_without_a_usable_type_are_named(frame, kinds, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        Table.of(pd.DataFrame(frame), "data", kinds)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job": "judge"}, "has 'judge' in 'job', which the training data lacks, in 2000 of 2000"),
        ({"job": None}, "has a missing value in 'job'"),
        (
            {"age": np.nan},
            "has a missing value in 'age', which the training data lacks, in 2000 of",
        ),
        ({"age": "old"}, "'old' in the column 'age' is not of the type integer"),
        ({"since": 5}, "5 in the column 'since' is not of the type date"),
        ({"since": "2020-01-01"}, "'2020-01-01' in the column 'since' is not of the type date"),
        ({"country": "fr"}, "has other values in 'country', which is constant in the training"),
    ],
)
def test_other_data_must_fit_the_training_data(change, message):
    frame = people().assign(country="de")
    table = Table.of(frame, "data")
    with pytest.raises(UserError, match=re.escape(message)):
        table.encode(frame.assign(**change), "--test_data_dir=x")
    with pytest.raises(UserError, match="lacks the column 'job'"):
        table.encode(frame.drop(columns="job"), "--test_data_dir=x")
    beyond = table.encode(frame.assign(age=1000))  # is the largest age
    assert (table.restore(beyond)["age"] == people()["age"].max()).all()


def test_values_that_the_record_of_a_run_cannot_hold_are_refused_before_the_training():
    frame = pd.DataFrame({"x": pd.Series(["a", "\ud800"], dtype=object)})
    with pytest.raises(UserError, match=r"the column 'x' contains .* text that is not UTF-8"):
        Table.of(frame, "data")
    frame = pd.DataFrame([[1], [2]], columns=pd.Index(["\ud800"], dtype=object))
    with pytest.raises(UserError, match="the record of data is damaged"):
        Table.of(frame, "data")


def test_numbers_that_are_held_out_do_not_determine_levels():
    frame = pd.DataFrame({"x": np.arange(1000.0) + 0.123456789, "c": list("ab") * 500})
    trained_on = np.arange(1000) < 500
    table = Table.of(frame, "data", trained_on=trained_on)
    assert table.columns[0].values[-1] < 500
    assert table.columns[1].counts == (250, 250)


def test_numbers_that_vary_only_among_held_out_rows_are_numbers():
    frame = pd.DataFrame({"x": [5] * 900 + list(range(100)), "y": np.arange(1000.0)})
    table = reread(Table.of(frame, "data", trained_on=np.arange(1000) < 900))
    assert table.size == 2
    pd.testing.assert_series_equal(table.restore(table.encode(frame))["x"], frame["x"])


def test_labels_have_different_names():
    frame = pd.DataFrame({"a": ["x" * 40 + "1", "x" * 40 + "2"], "a=b": ["c", "d"]})
    names = Table.of(frame, "data").label_names
    assert len(set(names)) == 4 and names[0] == f"a={'x' * 40}1"
    clashing = pd.DataFrame({"a": ["b=c", "e"], "a=b": ["c", "d"]})
    assert len(set(Table.of(clashing, "data").label_names)) == 4


def test_associations_are_those_of_other_libraries():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 3, 3000), random.integers(0, 4, 3000)
    b = np.where(random.random(3000) < 0.3, a, b)
    x = random.normal(a, 1.0)
    frame = pd.DataFrame({"a": a, "b": b, "x": x, "y": x + random.normal(size=3000)})
    table = Table.of(frame.astype({"a": str, "b": str}), "data")
    examples = table.encode(frame.astype({"a": str, "b": str}))
    found = table.associations(examples)
    cramer = scipy.stats.contingency.association(pd.crosstab(a, b).to_numpy(), method="cramer")
    assert found[0, 1] == pytest.approx(cramer, abs=1e-5)
    pearson = np.corrcoef(examples[:, -2], examples[:, -1])[0, 1]
    assert found[2, 3] == pytest.approx(abs(pearson), abs=1e-5)
    scores = examples[:, -2].astype(np.float64)  # the correlation ratio, from its definition
    between = sum((a == k).mean() * (scores[a == k].mean() - scores.mean()) ** 2 for k in range(3))
    assert found[0, 2] == pytest.approx(np.sqrt(between / scores.var()), abs=1e-5)
    np.testing.assert_array_equal(found, found.T)


# Selections


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job=nurse", lambda rows: rows["job"] == "nurse"),
        ("job!=nurse, age>40", lambda rows: (rows["job"] != "nurse") & (rows["age"] > 40)),
        ("income>=30000", lambda rows: rows["income"] >= 30000),
        ("income<=30000.5,debt=0", lambda rows: (rows["income"] <= 30000.5) & (rows["debt"] == 0)),
        ("since<2021-06-01", lambda rows: rows["since"] < "2021-06-01"),
        ({"job": "pilot"}, lambda rows: rows["job"] == "pilot"),
    ],
)
def test_conditions_select_rows(text, expected):
    table = Table.of(people(), "data")
    selected = Selection.of(text, table, "--x").holds(people())
    np.testing.assert_array_equal(selected, expected(people()).to_numpy())
    assert selected.any() and not selected.all()


def test_conditions_have_the_order_of_their_column():
    frame = pd.DataFrame({"size": list("smlsml"), "few": [1, 2, 3, 1, 2, 3]})
    table = Table.of(frame, "data", {"size": ["s", "m", "l"]})
    holds = lambda text: Selection.of(text, table, "--x").holds(frame).tolist()  # noqa: E731
    assert holds("size>s") == [False, True, True] * 2
    assert holds("few>=1.5") == [False, True, True] * 2
    assert holds("few=2") == [False, True, False] * 2


def test_conditions_are_exact_and_may_be_on_missing_values():
    big = pd.DataFrame({"x": 2**60 + np.arange(200), "a<b": ["u ", None] * 100})
    table = Table.of(big, "data")
    for text, count in ((f"x={2**60 + 5}", 1), ("a<b=u", 100), ("a<b=", 100), ("a<b!=", 100)):
        assert Selection.of(text, table, "--x").holds(big).sum() == count, text
    assert Selection.of("a<b=", table, "--x").label is None
    few = pd.DataFrame({"k": [1, 2, 3] * 5, "flag": [True, False, True] * 5})
    table = Table.of(few, "data")
    for text, count in (("k=1.0", 5), ("k>1.5", 10), ("flag=True", 10)):
        assert Selection.of(text, table, "--x").holds(few).sum() == count, text


def test_conditions_on_dates_are_not_rounded_to_the_unit_of_the_column():
    days = pd.DataFrame({"d": pd.date_range("2020-01-05", periods=20)})
    zoned = pd.DataFrame(
        {"d": pd.date_range("2020-01-01 20:00", periods=48, freq="h", tz="Europe/Berlin")}
    )
    for frame, text in (
        (days, "d=2020-01-10"),
        (days, "d>=2020-01-10T12:00"),
        (days, "d<2020-01-10T12:00"),
        (zoned, "d>=2020-01-02"),
        (zoned, "d<2020-01-02T00:00+00:00"),
    ):
        _, comparison, value = re.fullmatch("(d)([<>=]+)(.*)", text).groups()
        value = pd.Timestamp(value)
        if frame is zoned and value.tz is None:
            value = value.tz_localize("Europe/Berlin")
        expected = frame.query("d == @value" if comparison == "=" else f"d {comparison} @value")
        found = Selection.of(text, Table.of(frame, "data"), "--x").holds(frame)
        np.testing.assert_array_equal(np.flatnonzero(found), expected.index)


def test_days_in_a_time_zone_stay_midnight_there():
    days = pd.date_range("2020-01-01", periods=300, tz="Europe/Berlin")
    frame = pd.DataFrame({"d": days, "x": np.arange(300)})
    table = reread(Table.of(frame, "data"))
    pd.testing.assert_frame_equal(table.restore(table.encode(frame)), frame)
    noise = np.random.default_rng(0).normal(size=[2000, table.size]).astype(np.float32)
    found = table.restore(noise)["d"]
    assert (found == found.dt.normalize()).all()


def test_conditions_at_the_ends_of_a_type_are_possible():
    ends = {"int64": [-(2**63), 2**63 - 1], "uint64": [0, 2**64 - 1]}
    frame = pd.DataFrame({name: np.array(each * 20, name) for name, each in ends.items()})
    table = Table.of(frame, "data", {"int64": "integer", "uint64": "integer"})
    for name, (low, high) in ends.items():
        for text in (f"{name}>={high}", f"{name}<={low}", f"{name}!={low},{name}!={low + 1}"):
            assert Selection.of(text, table, "--x").holds(frame).sum() == 20
        with pytest.raises(UserError, match="no sample has"):
            Selection.of(f"{name}>{low},{name}<{high}", table, "--x")


def test_conditions_by_column_may_be_missing_values_and_booleans():
    frame = people().assign(car=people()["age"] > 40)
    table = Table.of(frame, "data")
    found = Selection.of({"car": True}, table, "--x").holds(frame)
    np.testing.assert_array_equal(found, frame["car"])
    table = Table.of(people(), "data")
    for missing in (None, np.nan, pd.NA):
        found = Selection.of({"income": missing}, table, "--x").holds(people())
        np.testing.assert_array_equal(found, people()["income"].isna())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job=judge", "the column 'job' has no value 'judge' — use one of clerk, nurse, pilot"),
        ("jop=nurse", "there is no column 'jop' — did you mean 'job'?"),
        ("age>old", "'old' is no number, which the column 'age' contains"),
        ("job>nurse", "the values of the column 'job' have no order — use = or !="),
        ("since>never", "'never' is no date"),
        ("nurse", "is no list of conditions"),
        ("age=1;job=nurse", "is no number"),
        ("age>nan", "'nan' is no number"),
        ("since>", "'' is no date"),
        ("since>NaT", "'NaT' is no date"),
        ("age=1\nk=2", "is no list of conditions"),
        ("age>200", "no sample has a value of 'age' that meets the conditions — the column cont"),
        ("age<=17", "no sample has a value of 'age'"),
        ("age=17.5", "no sample has a value of 'age'"),
        ("age=", "no sample has a value of 'age'"),
        ("age!=", None),
        ("income=10000.01", None),
        ("income=1000000", "no sample has a value of 'income'"),
        ("since>=2023-01-01", "no sample has a value of 'since'"),
        ("since=2020-01-10T12:00", "no sample has a value of 'since'"),
        ("job!=clerk", None),
        ("country!=de", "the column contains always de"),
        ("size=xl", "no sample has a value of 'size'"),
        ("size>m", "no sample has a value of 'size'"),
        ("job=nurse,job=pilot", "no sample has a value of 'job'"),
        ("job!=nurse,job!=pilot,job!=clerk", "no sample has a value of 'job'"),
        ("job!=nurse,age>30,job!=pilot", None),
        ("age>40,age<30", "no sample has a value of 'age'"),
        ("age>40,age<41", "no sample has a value of 'age'"),
        ("age>40,age<42", None),
        ("age>=40,age<=41,age!=40,age!=41", "no sample has a value of 'age'"),
        ("income>10000.5,income<10000.5", "no sample has a value of 'income'"),
        ("income>10000.5,income<10000.53,income!=10000.51", None),
        ("income=,income>0", "no sample has a value of 'income'"),
        ("since>2020-01-10,since<2020-01-11", "no sample has a value of 'since'"),
        ("since>2020-01-10,since<2020-01-12", None),
        ("size>s,size<m", "no sample has a value of 'size'"),
    ],
)
def test_conditions_that_no_row_can_meet_are_one_line(text, message):
    frame = people().assign(country="de")
    frame["size"] = pd.Categorical(["s", "m"] * 1000, ["s", "m", "l", "xl"], ordered=True)
    table = Table.of(frame, "data")
    if message is None:
        assert Selection.of(text, table, "--sample_conditions=x")
        return
    with pytest.raises(UserError, match=re.escape(message)) as error:
        Selection.of(text, table, "--sample_conditions=x")
    assert str(error.value).startswith("--sample_conditions=x")


# Runs

SETTINGS = {"dataset": "array", "column_types": "auto", "sample_interval": 0}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("people") / "people.csv"
    people(300).to_csv(path, index=False)
    return str(path)


@pytest.fixture(scope="module")
def trained(path, tmp_path_factory):
    """Returns the directory of a conditional run."""
    folder = tmp_path_factory.mktemp("trained")
    conditional = {"conditioning": "concatenation", "label_column": "job"}
    train_tiny(folder, **SETTINGS, **conditional, data_dir=path, train_steps=5)
    return folder


_DAYS = (pd.Timestamp("2001-01-01") + pd.to_timedelta(np.arange(0, 7000, 7), unit="D")).strftime(
    "%Y%m%d"
)


@pytest.mark.parametrize(
    "days",
    [
        _DAYS.astype("int64"),
        _DAYS.astype("int64").astype("int32"),
        pd.Series(_DAYS.astype("int64")).astype("Int64").mask(np.arange(1000) % 5 == 0),
        pd.Series(_DAYS.astype("int64")).astype("float64").mask(np.arange(1000) % 5 == 0),
        _DAYS.astype("str"),
    ],
)
def test_days_that_are_written_as_numbers_are_dates(days):
    frame = pd.DataFrame({"day": days, "x": np.arange(1000)})
    table = reread(Table.of(frame, "data"))
    assert table.columns[0].describe_kind() == "date"
    pd.testing.assert_frame_equal(table.restore(table.encode(frame)), frame)
    noise = np.random.default_rng(0).normal(size=[3000, table.size]).astype(np.float32)
    found = table.restore(noise)["day"]
    assert found.dtype == frame["day"].dtype
    present = found.dropna()
    texts = present if present.dtype == "str" else present.astype("int64").astype(str)
    assert pd.to_datetime(texts, format="%Y%m%d").notna().all() and texts.nunique() > 500
    selected = Selection.of("day>=20100101", table, "--x").holds(frame)
    expected = pd.to_numeric(frame["day"]).ge(20100101).fillna(False)
    np.testing.assert_array_equal(selected, expected)


@pytest.mark.parametrize(
    "numbers",
    [
        [20240101 + n % 25 for n in range(60)],  # less than a month
        [20240101 + n for n in range(60)],  # some are no days
        [1000 + n for n in range(60)],
    ],
)
def test_other_integers_are_no_dates(numbers):
    found = find_kinds(pd.DataFrame({"x": numbers}), "--data_dir=x", {})
    assert found["x"].kind == "integer"
    days = pd.DataFrame({"x": _DAYS.astype("int64")})
    assert find_kinds(days, "--data_dir=x", {"x": "integer"})["x"].kind == "integer"


@pytest.mark.parametrize(
    ("values", "kind", "numbers"),
    [
        ([f"0{n}" for n in range(1000, 1060)], "integer", list(range(1000, 1060))),
        ([f"0{n}.5" for n in range(60)], "real", [n + 0.5 for n in range(60)]),
        ([True, False] * 30, "real", [1.0, 0.0] * 30),
        ([True, False] * 30, "integer", [1, 0] * 30),
        (pd.array([True, False, None] * 20, "boolean"), "real", [1.0, 0.0, None] * 20),
    ],
)
def test_texts_and_booleans_become_numbers_if_their_type_is_one(values, kind, numbers):
    frame = pd.DataFrame({"x": values, "y": np.arange(60)})
    table = reread(Table.of(frame, "data", {"x": kind}))
    assert table.describe()
    found = table.restore(table.encode(frame))["x"]
    assert [None if pd.isna(value) else value for value in found] == numbers
    largest = max(number for number in numbers if number is not None)
    selected = Selection.of(f"x>={largest}", table, "--x").holds(found.to_frame())
    assert selected.tolist() == [number == largest for number in numbers]


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx", "csv.gz", "tsv"])
def test_files_have_the_types_of_their_columns(tmp_path, ending):
    frame = people(40)
    path = f"{tmp_path}/people.{ending}"
    if ending.startswith("csv"):
        frame.to_csv(path, index=False)
    elif ending == "tsv":
        frame.to_csv(path, index=False, sep="\t")
    elif ending == "xlsx":
        frame.to_excel(path, index=False)
    else:
        getattr(frame, f"to_{ending}")(path)
    table = find_dataset(Config(dataset="array", data_dir=path, column_types="auto")).spec.table
    assert [column.describe_kind() for column in table.columns] == [
        "integer",
        "category",
        "real, 2 decimals",
        "integer",
        "date",
    ]
    assert table.columns[2].has_missing


def test_whole_numbers_with_missing_values_stay_whole_in_text_files(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,?,a\n,7,b\n" + "3,9,a\n" * 30)
    data = find_dataset(Config(dataset="array", data_dir=f"{tmp_path}/a.csv", column_types="auto"))
    frame = data.spec.table.restore(data.open(batch_size=1).stored[0].numpy())
    assert frame.iloc[:3].to_csv(index=False) == "x,y,z\n1,,a\n,7,b\n3,9,a\n"


@pytest.mark.parametrize(
    ("cells", "kind", "written"),
    [
        ([10**18, None, 10**18 + 1], "integer", ["1000000000000000000", "", "1000000000000000001"]),
        ([2**64 - 1, None, 2**64 - 2], "integer", [str(2**64 - 1), "", str(2**64 - 2)]),
        (["True", None, "False"], "category", ["True", "", "False"]),
        (["01000", "02000", "01000"], "category", ["01000", "02000", "01000"]),
        (["0,5", "1,25", "2,0"], "real, 2 decimals", ["0.5", "1.25", "2.0"]),
    ],
)
def test_texts_of_a_file_keep_their_values(tmp_path, cells, kind, written):
    few = [cells[place % 3] for place in range(33)]
    if kind == "integer":
        few = [None if cell is None else cell - 5 * n for n, cell in enumerate(few)]
        few[:3] = cells
    few = [None if cell is None else str(cell) for cell in few]
    pd.DataFrame({"x": few, "y": range(33)}).to_csv(tmp_path / "a.csv", index=False, sep=";")
    path = f"{tmp_path}/a.csv"
    data = find_dataset(Config(dataset="array", data_dir=path, column_types="auto"))
    assert data.spec.table.columns[0].describe_kind() == kind
    frame = data.spec.table.restore(data.open(batch_size=1).stored[0].numpy())
    assert [line.split(",")[0] for line in frame.to_csv(index=False).split()[1:4]] == written


def test_parquet_files_may_have_dates_and_decimal_numbers(tmp_path):
    import datetime  # noqa: PLC0415
    import decimal  # noqa: PLC0415

    days = [datetime.date(2020, 1, 1 + n % 28) for n in range(40)]
    prices = [decimal.Decimal(n) / 4 for n in range(40)]
    pd.DataFrame({"day": days, "price": prices}).to_parquet(tmp_path / "a.parquet")
    path = f"{tmp_path}/a.parquet"
    table = find_dataset(Config(dataset="array", data_dir=path, column_types="auto")).spec.table
    assert [column.describe_kind() for column in table.columns] == ["date", "real, 2 decimals"]


@pytest.mark.parametrize("conditioning", ["none", "concatenation"])
def test_the_number_of_examples_is_known_before_they_are_read(path, conditioning):
    settings = {"dataset": "array", "data_dir": path, "column_types": "auto"}
    data = find_dataset(Config(**settings), conditioning=conditioning)
    assert data.open_unread(batch_size=1).size == data.open(batch_size=1).size


def test_a_run_samples_rows_with_the_types_of_the_data(trained, path, tmp_path):
    run = f"--model_dir={trained}"
    for ending, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        output = f"{tmp_path}/samples.{ending}"
        assert call_main("--mode=sample", run, f"--output={output}", "--num_samples=50") == 0
        found, expected = read(output), pd.read_csv(path)
        assert list(found) == list(expected) and len(found) == 50
        assert found.dtypes.equals(expected.dtypes)
        assert set(found["job"]) <= {"clerk", "nurse", "pilot"}
        assert (found["income"].dropna() == found["income"].dropna().round(2)).all()


@pytest.mark.slow
def test_samples_meet_conditions(trained, tmp_path, capsys, monkeypatch):
    run, output = f"--model_dir={trained}", f"--output={tmp_path}/some.csv"
    conditions = "--sample_conditions=job=pilot,age>40"
    assert call_main("--mode=sample", run, output, "--num_samples=20", conditions) == 0
    assert re.search(r"note: [\d.]+% of the samples that were dr", capsys.readouterr().err)
    found = pd.read_csv(tmp_path / "some.csv")
    assert len(found) == 20 and (found["job"] == "pilot").all() and (found["age"] > 40).all()
    assert call_main("--mode=sample", run, conditions) == 2
    assert "add --sample_format=csv or parquet" in capsys.readouterr().err
    monkeypatch.setattr(sampling, "_MOST_DRAWN", 5000)
    none = "--sample_conditions=job=pilot,age>85,since>2022-05-01,debt>1000"
    assert call_main("--mode=sample", run, "--sample_format=csv", none) == 2
    assert "only 0 of 5000 samples meet the conditions" in capsys.readouterr().err


@pytest.mark.slow
def test_a_conditional_generator_meets_its_label(trained):
    assert call_main("--mode=export", f"--model_dir={trained}") == 0
    model = wgan_gp.load(str(trained / "exported"))
    names = model.spec.class_names
    assert names == ("job=clerk", "job=nurse", "job=pilot")
    for label, name in enumerate(names):
        assert set(model.sample(40, label)["job"]) == {name.partition("=")[2]}
    assert (model.sample(30, conditions={"job": "nurse"})["job"] == "nurse").all()
    with pytest.raises(UserError, match="label and conditions are given"):
        model.sample(30, 1, conditions={"job": "nurse"})
    shares = model.sample(4000)["job"].value_counts(normalize=True)
    expected = people(300)["job"].value_counts(normalize=True)
    assert (shares - expected).abs().max() < 0.03


def test_an_exported_seed_draws_the_samples_of_a_conditional_run(path, tmp_path):
    choices = {**TINY, **SETTINGS, "conditioning": "concatenation", "data_dir": path}
    run = open_run(Config(**choices, model_dir=str(tmp_path)))
    spec, sampler = run.dataset.spec, run.sampler
    latent_size = spec.latent_size(run.config.latent_size)
    draw = export.generator_signatures(run.state.generator, latent_size, spec)["seed"]
    seed = tf.constant(run.config.seed, tf.int64)
    for label in (None, 2):
        given = tf.constant(-1 if label is None else label)
        found = draw(seed=seed, count=tf.constant(9), label=given)["samples"]
        np.testing.assert_allclose(found, sampler.sample(9, label), rtol=1e-5, atol=1e-6)


def test_parquet_files_need_pyarrow(trained, tmp_path, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name)
    )
    flags = ["--sample_format=parquet", f"--output={tmp_path}/a.parquet"]
    assert call_main("--mode=sample", f"--model_dir={trained}", *flags) == 2
    assert "--sample_format=parquet needs pyarrow, which is not" in capsys.readouterr().err


def test_as_many_rows_are_drawn_as_frequent_conditions_need(trained, monkeypatch, tmp_path):
    monkeypatch.setattr(sampling, "_MOST_DRAWN", 10)
    flags = ["--sample_conditions=age>0,age<55", "--num_samples=40", f"--output={tmp_path}/a.csv"]
    assert call_main("--mode=sample", f"--model_dir={trained}", *flags) == 0
    assert len(pd.read_csv(tmp_path / "a.csv")) == 40


def test_pictures_of_a_conditional_run_show_the_data_as_it_is(path, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(run_hooks, "make_sample_images", lambda _, data, units: shown.append(data))
    choices = {**TINY, **SETTINGS, "conditioning": "concatenation", "data_dir": path}
    run = open_run(Config(**choices, model_dir=str(tmp_path)))
    run_hooks.SampleHook(run, MemoryWriter())
    assert run.data.size > 300 == shown[0].size
    jobs = run.dataset.spec.table.restore(shown[0].stored[0].numpy())["job"]
    assert jobs.value_counts().to_dict() == people(300)["job"].value_counts().to_dict()


def test_held_out_rows_need_not_be_a_table_of_their_own(tmp_path):
    train = pd.DataFrame({"zip": [f"z{n % 300}" for n in range(5000)], "x": np.arange(5000)})
    train.to_csv(tmp_path / "train.csv", index=False)
    for count in (1, 100):
        train[:count].to_csv(tmp_path / "test.csv", index=False)
        paths = {"data_dir": f"{tmp_path}/train.csv", "test_data_dir": f"{tmp_path}/test.csv"}
        data = find_dataset(Config(dataset="array", column_types="auto", **paths))
        assert data.open_held_out().size == count
    train[:1].to_csv(tmp_path / "one.csv", index=False)
    with pytest.raises(UserError, match="contains a single row"):
        resolved(Config(dataset="array", column_types="auto", data_dir=f"{tmp_path}/one.csv"))


def test_values_outside_of_the_range_are_named(tmp_path, caplog):
    train = pd.DataFrame({"age": np.arange(20, 60), "w": np.arange(40) / 8, "job": ["a", "b"] * 20})
    train.to_csv(tmp_path / "train.csv", index=False)
    other = train.assign(age=[10**9, *train.age[1:]], w=[-1, 9, *train.w[2:]])
    other.to_csv(tmp_path / "other.csv", index=False)
    paths = {"data_dir": f"{tmp_path}/train.csv", "test_data_dir": f"{tmp_path}/other.csv"}
    settings = Config(dataset="array", column_types="auto", **paths)
    data = find_dataset(settings)
    data.open(batch_size=4)
    assert "outside" not in caplog.text
    warning = (
        "{}: {} of 40 values of '{}' are outside the range of the training data, {}, and count"
    )
    data.open_held_out()
    flag = f"--test_data_dir={tmp_path}/other.csv"
    assert warning.format(flag, 1, "age", "20 to 59") in caplog.text
    assert warning.format(flag, 2, "w", "0 to 4.875") in caplog.text


def test_other_integers_keep_their_order():
    frame = pd.DataFrame({"a": np.arange(60), "b": np.arange(60) / 4})
    table = Table.of(frame, "data")
    large = pd.Series([2**63 + 5, 7], dtype=np.uint64)
    with pytest.raises(UserError, match="9223372036854775813 in the column 'a' is not of the type"):
        table.encode(frame[:2].assign(a=large))


def test_long_identifiers_stay_different(tmp_path):
    rows = "".join(f"{10**24 + n % 3},{n}\n" for n in range(60))
    (tmp_path / "a.csv").write_text(f"id,x\n{rows}")
    flags = {"dataset": "array", "column_types": "auto", "data_dir": f"{tmp_path}/a.csv"}
    table = find_dataset(Config(**flags)).spec.table
    assert table.columns[0].values == tuple(str(10**24 + n) for n in range(3))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"columns": {"age": "real"}}, "'age'"),
        ({"columns": {"job": "ordered"}}, "'job'"),
        ({"columns": {"job": ["pilot", "nurse", "clerk"], "debt": "real"}}, "'job', 'debt'"),
    ],
)
def test_types_cannot_change_after_the_beginning_of_a_run(tmp_path, content, named):
    kinds, path = tmp_path / "types.json", tmp_path / "a.csv"
    people(60).to_csv(path, index=False)
    flags = SETTINGS | {"data_dir": str(path)}
    spec = find_dataset(Config(**flags)).spec
    kinds.write_text(json.dumps(content))
    dataset = find_dataset(Config(**flags | {"column_types": str(kinds)}))
    with pytest.raises(UserError, match=f"gives types to {named} that the run did not have"):
        dataset.use_recorded(spec)


def test_types_that_a_run_had_at_its_beginning_can_be_given_again(tmp_path):
    content = {"columns": {"debt": "real", "job": ["nurse", "clerk", "pilot"]}}
    kinds, path = tmp_path / "types.json", tmp_path / "a.csv"
    kinds.write_text(json.dumps(content))
    people(60).to_csv(path, index=False)
    config = Config(**SETTINGS | {"data_dir": str(path), "column_types": str(kinds)})
    spec = find_dataset(config).spec
    dataset = find_dataset(config)
    dataset.use_recorded(dataclasses.replace(spec, table=reread(spec.table)))
    assert dataset.spec.table == reread(spec.table)


def test_a_number_that_other_rows_lack_is_one_line(tmp_path):
    """The column is missing in the data of a resumed run, or in held-out data."""
    people(60).to_csv(tmp_path / "a.csv", index=False)
    people(60).drop(columns="age").to_csv(tmp_path / "b.csv", index=False)
    spec = find_dataset(Config(**SETTINGS, data_dir=f"{tmp_path}/a.csv")).spec
    others = find_dataset(Config(**SETTINGS, data_dir=f"{tmp_path}/b.csv"))
    with pytest.raises(
        UserError, match=r"b\.csv lacks the column 'age' — give the columns age, job"
    ):
        others.use_recorded(spec)


def test_the_index_of_a_typed_table_is_noted(tmp_path):
    frame = people(60).set_index("age")
    frame.to_parquet(tmp_path / "a.parquet")
    flags = SETTINGS | {"data_dir": f"{tmp_path}/a.parquet"}
    from_file = find_dataset(Config(**flags))
    python = Config(dataset="python", column_types="auto")
    from_python = find_dataset(python, function=lambda: frame)
    for dataset in (from_file, from_python):
        assert "without the index age" in dataset.describe(dataset.open(batch_size=1))
    with pytest.raises(UserError, match=r"--drop_columns=age: 'age' is the index of .*reset_index"):
        find_dataset(Config(**flags, drop_columns="age"))


def test_a_record_has_the_number_of_rows(path, tmp_path):
    flags = {**SETTINGS, "data_dir": path, "conditioning": "concatenation"}
    train_tiny(tmp_path, **flags, train_steps=1)
    assert json.loads((tmp_path / "data.json").read_text())["size"] == 300


@pytest.mark.parametrize(
    ("header", "rare"),
    [
        ("kind,grade,size", "other"),
        ("kind,grade,size", "09"),
        ("kind,grade,size", "1.5 m"),
        ("kind,grade,size", "True"),
        ("size,size,size", "other"),
        ("kind,,size", "other"),
    ],
)
def test_texts_of_other_files_are_texts_if_all_of_them_are_numbers(tmp_path, header, rare):
    """An example: grades from 9 to 12, or "other" in a few rows of the training data."""
    cells = [rare, *["9", "10", "11.50"] * 13]
    for name, grades in (("train", cells), ("test", cells[1:])):
        rows = "".join(f"x{n % 2},{grade},{n / 2}\n" for n, grade in enumerate(grades))
        (tmp_path / f"{name}.csv").write_text(f"{header}\n{rows}")
    config = {"dataset": "array", "column_types": "auto", "data_dir": f"{tmp_path}/train.csv"}
    settings = Config(**config, test_data_dir=f"{tmp_path}/test.csv")
    data = find_dataset(settings)
    held_out = data.open_held_out()
    rows = data.spec.table.restore(held_out.stored[0].numpy())
    assert rows.iloc[:, 1].tolist() == cells[1:]


@pytest.mark.parametrize(
    ("values", "kind", "cells"),
    [
        (np.array([True, False, None] * 14, object), "category", ["True", "False", ""] * 14),
        (np.array([1, 2, 3] * 14, object), "category", ["1", "2", "3"] * 14),
        (["09", "10", None] * 14, "integer", ["9", "10", "?"] * 14),
    ],
)
def test_only_texts_of_other_files_are_read_as_texts(tmp_path, values, kind, cells):
    """Columns of any objects have the type of texts in pandas."""
    table = Table.of(pd.DataFrame({"a": values, "x": np.arange(42) / 2}), "it", {"a": kind})
    (tmp_path / "a.csv").write_text(
        "a,x\n" + "".join(f"{cell},{n / 2}\n" for n, cell in enumerate(cells))
    )
    frame = read_frame(f"{tmp_path}/a.csv", "it", table.texts).frame
    assert table.encode(frame, "it").shape == (42, table.size)


def test_every_metric_of_a_typed_table_is_explained(trained, path, capsys):
    data = [f"--data_dir={path}", "--dataset=array", "--column_types=auto"]
    assert call_main("--mode=evaluate", f"--model_dir={trained}", *data) == 0
    lines = capsys.readouterr().out
    for name in ("total variation", "missing error", "association error", "two sample accuracy"):
        assert f"  {name}  " in lines
    assert "synthetic trained accuracy" in lines and "farthest" not in lines


def test_metrics_of_the_data_itself_are_those_of_the_floor(path):
    dataset = find_dataset(Config(dataset="array", data_dir=path, column_types="auto"))
    table = dataset.spec.table
    examples = table.encode(people(300))
    evaluator = TypedTableEvaluator.__new__(TypedTableEvaluator)
    evaluator._table = table
    evaluator._scale = examples.std(axis=0)
    assert set(evaluator.compare(examples, examples).values()) == {0.0}
    changed = people(300).assign(job="clerk", income=1.0)
    values = evaluator.compare(table.encode(changed), examples)
    shares = people(300)["job"].value_counts(normalize=True)
    assert values["total_variation"] == pytest.approx(1 - shares["clerk"], abs=1e-6)
    assert values["missing_error"] == pytest.approx(people(300)["income"].isna().mean(), abs=1e-6)
    assert values["association_error"] > 0.02
    named = Table(**{**vars(table), "target": "job"})
    name, accuracy = transfer(named, examples, examples)
    assert name == "accuracy" and accuracy > 0.95


class Fakes:
    """Samples and real examples for an evaluator."""

    classes, conditions = 0, None

    def __init__(self, samples, real):
        self._samples, self._real = samples, real
        spec = types.SimpleNamespace(example_shape=samples.shape[1:])
        self.dataset = types.SimpleNamespace(spec=spec, label_count=0)

    def sample(self, count):
        return self._samples[:count]

    def read(self, count):
        return self._real[:count], np.zeros([len(self._real)], np.int32)

    def read_held_out(self, count):
        return None


def evaluator_of(table, samples, real):
    fakes = Fakes(samples, real)
    return TypedTableEvaluator(len(real), fakes, fakes, table)


@pytest.mark.slow
def test_a_perfect_generator_cannot_be_told_from_the_data():
    """With the levels of the compared rows themselves, the accuracy was 0.45."""
    found = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        frame = pd.DataFrame({f"c{k}": random.normal(size=300) for k in range(6)})
        frame["few"] = random.integers(0, 40, 300)
        table = Table.of(frame, "data")
        rows = table.encode(frame)
        samples = random.normal(size=rows.shape).astype(np.float32)
        values = evaluator_of(table, samples, rows).evaluate()
        found.append(values["evaluation/two_sample_accuracy"])
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - 0.5) < 2 * error and error < 0.02


@pytest.mark.slow
def test_the_evaluation_sees_values_and_not_only_ranks(capsys):
    frame = people(400).drop(columns="job")
    frame["size"] = pd.Categorical(["s", "m", "l", "l"] * 100, ["s", "m", "l"], ordered=True)
    table = Table.of(frame, "data")
    rows = table.encode(frame)
    low = rows.copy()
    low[:, 0] = np.minimum(low[:, 0], 0)  # no person is older than the median
    evaluator = evaluator_of(table, low, rows)
    values = evaluator.evaluate()
    samples, data = table.restore(low)["age"], frame["age"]
    expected = scipy.stats.wasserstein_distance(samples, data) / data.std(ddof=0)
    columns = evaluator.metadata["columns"]
    head, first, *_ = columns.splitlines()
    assert head.split("  ")[0] == "column" and first.split()[:2] == ["age", f"{expected:.3g}"]
    assert f"{samples.mean():.7g}, {data.mean():.7g}" in first
    assert f"{samples.min()}, {data.min()}" in first and f"{samples.max()}, {data.max()}" in first
    assert (
        str(frame["since"].max())[:10] in columns
        and "l, l" in columns
        and str(frame["income"].max()) in columns
    )
    assert len(columns.splitlines()) == 6
    halves = [slice(200), slice(200, None)]
    largest = np.mean(
        [
            scipy.stats.wasserstein_distance(samples[half], data[half]) / data[half].std(ddof=0)
            for half in halves
        ]
    )
    assert values["evaluation/value_wasserstein_largest"] == pytest.approx(largest)
    assert 0 < 2 * values["evaluation/value_wasserstein_largest_floor"] < largest
    printed = results.table(3, values, evaluator.metadata)
    assert all(f"  {line}" in printed.splitlines() for line in columns.splitlines())
    json.dumps(evaluator.metadata)


def test_targets_that_are_all_missing_have_no_accuracy():
    frame = pd.DataFrame({"x": np.arange(100)})
    frame["a"] = np.where(frame.x % 2, np.nan, frame.x / 4)
    frame["kind"] = np.where(frame.a.isna(), None, "k" + (frame.x % 3).astype(str))
    for target, metric in (("a", "r2"), ("kind", "accuracy")):
        table = Table.of(frame, "data", {"a": "real"}, target=target)
        examples = table.encode(frame)
        missing = examples[1::2]
        for sets in ((missing, examples), (examples, missing)):
            name, value = transfer(table, *sets)
            assert name == metric and np.isnan(value)


def test_copies_of_rows_have_no_distance_whatever_their_places():
    table = Table.of(people(), "data")
    one, other = (table.encode(people(), seed=seed) for seed in (1, 2))
    assert np.abs(one - other).max() > 0.5  # the zeros of debt
    np.testing.assert_allclose(table.canonical(one), table.canonical(other), atol=1e-3)


def test_samples_have_the_index_of_the_columns_of_the_data():
    frame = people(60)[["age", "income"]]
    frame.columns = pd.MultiIndex.from_tuples([("a", "age"), ("b", "income")])
    dataset = find_dataset(Config(dataset="python", column_types="auto"), function=lambda: frame)
    rows = dataset.spec.table.restore(dataset.open(batch_size=1).stored[0].numpy())
    pd.testing.assert_frame_equal(rows.set_axis(dataset.source.columns, axis=1), frame)


@pytest.mark.slow
def test_a_dataframe_in_gives_a_dataframe_out(tmp_path):
    frame = people(100).rename(columns={"age": 7})
    config = Config(
        model_dir=str(tmp_path / "run"),
        column_types="auto",
        train_steps=2,
        steps_per_loop=1,
        batch_size=16,
        model_width=4,
        sample_interval=0,
    )
    result = wgan_gp.train(config, data=frame)
    found = result.sample(30)
    assert list(found) == list(frame) and found.dtypes.equals(frame.dtypes)
    assert (result.sample(30, conditions="job=nurse")["job"] == "nurse").all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--column_types=missing.json"], "--column_types=missing.json cannot be read"),
        (["--model=dcgan"], "--model=dcgan generates images, but the dataset contains points"),
        (["--minibatch_stddev=3"], "does not divide over 3 examples of --minibatch_stddev"),
        (["--drop_columns=nothing"], "has no column 'nothing'"),
        (
            ["--keep_best=fid", "--evaluate_interval=1"],
            "evaluations of --dataset=array have no metric",
        ),
        (["--conditioning=acgan"], "--conditioning=acgan"),
    ],
)
def test_flags_that_do_not_fit_are_one_line(path, tmp_path, arguments, message, capsys):
    given = ["--dataset=array", f"--data_dir={path}", "--batch_size=16", "--train_steps=1"]
    given += ["--column_types=auto", f"--model_dir={tmp_path}/run"]
    assert call_main(*given, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("error: ") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON file"),
        ("[1]", "does not contain columns alone"),
        ('{"columns": []}', "does not contain columns alone"),
        ('{"columns": {}, "constraints": []}', "does not contain columns alone"),
        ('{"columns": {"jop": "category"}}', "did you mean 'job'?"),
    ],
)
def test_a_file_of_types_that_cannot_be_used_is_named(path, tmp_path, content, message):
    (tmp_path / "types.json").write_text(content)
    with pytest.raises(UserError, match=re.escape(message)):
        find_dataset(Config(dataset="array", data_dir=path, column_types=f"{tmp_path}/types.json"))


def test_types_of_columns_are_refused_for_arrays(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(4))
    with pytest.raises(UserError, match=r"--column_types=a\.json, but .*a\.npy is not a table"):
        find_dataset(Config(dataset="array", data_dir=f"{tmp_path}/a.npy", column_types="a.json"))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("columns", [to_json(Table.of(people(), "data").columns[0])] * 2),
        ("target", "nothing"),
        ("columns", []),
        ("columns", [{"name": "a", "kind": "real", "dtype": "float64", "has_missing": True}]),
    ],
)
def test_an_edited_record_is_refused(entry, value):
    table = Table.of(people(), "data")
    assert reread(table) == table
    with pytest.raises(UserError, match=r"^data.json is damaged: "):
        load_dataclass(Table, {**to_json(table), entry: value}, "data.json", "restore it")


@pytest.mark.parametrize("types", [{"age": "nothing"}, {"job": "date"}, {"since": "decimal"}])
def test_edited_types_are_refused(types):
    table = Table.of(people(), "data")
    record = DataRecord(DataSpec((table.size,), 0, table=table, types={"age": "int32[pyarrow]"}))
    assert load_dataclass(DataRecord, to_json(record), "data.json", "restore it").spec.types
    edited = {**to_json(record), "spec": {**to_json(record.spec), "types": types}}
    with pytest.raises(UserError, match=r"^data.json is damaged: spec.types "):
        load_dataclass(DataRecord, edited, "data.json", "restore it")


_NUMBER = {"kind": "integer", "levels": [0.0, 0.2, 0.2, 1.0], "values": [1, 1, 2, 3]}
_CATEGORY = {"kind": "category", "values": [1, 2, 3], "counts": [5, 4, 0]}


@pytest.mark.parametrize(
    ("column", "change"),
    [
        (_NUMBER, {"levels": [0.0, 0.7, 0.6, 1.0]}),
        (_NUMBER, {"levels": [0.0, 0.5, 1.0]}),
        (_NUMBER, {"levels": [0.0, 0.5, 1.0, 1.0]}),
        (_NUMBER, {"levels": [0.1, 0.5, 0.5, 1.0]}),
        (_NUMBER, {"values": [1, 1, 3, 2]}),
        (_NUMBER, {"values": [1, 1, 2, True]}),
        (_NUMBER, {"values": [1, 1, 2, 2**70]}),
        (_NUMBER, {"values": [1.0, 1.0, 2.0, 2.5]}),
        (_NUMBER, {"kind": "category"}),
        (_NUMBER, {"kind": "ordered"}),
        (_NUMBER, {"kind": "real"}),
        (_NUMBER, {"kind": "real", "decimals": -1}),
        (_NUMBER, {"dtype": "nothing"}),
        (_NUMBER, {"kind": "date", "unit": "week"}),
        (_NUMBER, {"kind": "date", "dtype": "category"}),
        (_NUMBER, {"counts": [1, 2, 3, 4]}),
        (_CATEGORY, {"values": [1, 2, 2]}),
        (_CATEGORY, {"values": [1, 2, "x"]}),
        (_CATEGORY, {"values": ["x", "y", "z"]}),
        (_CATEGORY, {"counts": [5, 4]}),
        (_CATEGORY, {"counts": [0, 0, 0]}),
        (_CATEGORY, {"counts": [5, 4, -1]}),
        (_CATEGORY, {"categories": ["a", "b", "c"]}),
        (_CATEGORY, {"categories": ["a", "b", "c", "c"]}),
        (_CATEGORY, {"dtype": "category"}),
    ],
)
def test_an_edited_column_is_refused(column, change):
    column = {"name": "x", "dtype": "int64", **column}
    load_dataclass(Column, column, "data.json", "restore it")
    with pytest.raises(UserError, match=r"^data.json is damaged: "):
        load_dataclass(Column, {**column, **change}, "data.json", "restore it")


@pytest.mark.slow
def test_replicas_and_resumes_train_the_same_weights(path, tmp_path):
    choices = {**SETTINGS, "data_dir": path, "conditioning": "concatenation"}
    choices |= {"activation": "tanh", "train_steps": 6, "batch_size": 32, "steps_per_loop": 2}
    runs = {"one": {}, "several": {"cpu_replicas": 4}, "cut": {"stop_step": 2}}
    for name, more in runs.items():
        train_tiny(tmp_path / name, **choices, **more)
    train_tiny(tmp_path / "cut", **choices)
    assert differences(tmp_path / "one", tmp_path / "cut", 6) == []
    one, several = (
        tensors(tmp_path / name / "checkpoints" / "ckpt-6") for name in ("one", "several")
    )
    for key, value in one.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(several[key], value, rtol=2e-3, atol=2e-5, err_msg=key)


@pytest.mark.slow
def test_a_rare_category_a_mode_and_a_dependence_are_learned(tmp_path):
    people(4000).to_csv(tmp_path / "people.csv", index=False)
    flags = ["--flagfile=configs/tables.flags", f"--data_dir={tmp_path}/people.csv"]
    run = f"--model_dir={tmp_path}/run"
    assert call_main(*flags, run, "--train_steps=600", "--sample_interval=0", "--seed=1") == 0
    output = f"--output={tmp_path}/samples.csv"
    assert call_main("--mode=sample", run, output, "--num_samples=20000") == 0
    found, real = pd.read_csv(tmp_path / "samples.csv"), people(4000)
    assert 0.001 < (found["job"] == "pilot").mean() < 0.01
    assert abs((found["debt"] == 0).mean() - 0.8) < 0.04
    assert abs(found["income"].isna().mean() - 0.1) < 0.03
    for job in ("nurse", "clerk"):
        medians = [each.loc[each["job"] == job, "income"].median() for each in (found, real)]
        assert medians[0] == pytest.approx(medians[1], rel=0.15)
