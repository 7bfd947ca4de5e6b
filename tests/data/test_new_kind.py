"""A new kind of files is one function, and one entry of `KINDS`."""

import sqlite3
import sys
import types

import numpy as np
import pandas as pd
import pytest

from tests.helpers.runs import train_tiny
from wgan_gp.config import DataSettings
from wgan_gp.data import datasets
from wgan_gp.data.frames import plain_frame
from wgan_gp.data.sources import table
from wgan_gp.errors import UserError


def find_source(settings, flag, like=None):
    """Reads the table `events` of a database of SQLite."""
    with sqlite3.connect(settings.data_dir) as database:
        frame = pd.read_sql("SELECT * FROM events", database)
    return table.source_of(plain_frame(frame), settings, f"{flag}={settings.data_dir}", like)


def test_a_database_is_trained_on_and_sampled(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"energy": random.gamma(2, 3, 64), "kind": random.choice(["pi", "mu"], 64)}
    ).assign(number=range(64))
    with sqlite3.connect(tmp_path / "x.db") as database:
        frame.to_sql("events", database, index=False)
    monkeypatch.setitem(sys.modules, "sqlite_files", types.SimpleNamespace(find_source=find_source))
    monkeypatch.setitem(datasets.KINDS, "sqlite", ("sqlite_files", ("drop_columns",)))
    flags = {"dataset": "sqlite", "data_dir": f"{tmp_path}/x.db", "drop_columns": "number"}
    with pytest.raises(UserError, match="applies only to --dataset=array"):
        datasets.find_dataset(DataSettings(**flags, scaling="standard"))
    dataset = datasets.find_dataset(DataSettings(**flags, holdout=0.25))
    rows = [
        each.stored[0].numpy() for each in (dataset.open(batch_size=1), dataset.open_held_out())
    ]
    restored = dataset.spec.table.restore(np.concatenate(rows))
    np.testing.assert_allclose(np.sort(restored["energy"]), np.sort(frame["energy"]), rtol=1e-3)
    run, _ = train_tiny(tmp_path / "run", **flags, train_steps=5)
    samples = run.dataset.spec.table.restore(run.sampler.sample(9))
    assert list(samples) == ["energy", "kind"] and set(samples["kind"]) <= {"pi", "mu"}
