"""The toy of 1,000 modes: its examples, and the count of the modes of samples."""

import json

import numpy as np
import pytest

from studies import thousand_modes


def test_examples_have_equally_frequent_triples_that_the_classifier_finds():
    examples = thousand_modes.make_examples(25_600, seed=0)
    assert examples.shape == (25_600, 8, 8, 3) and examples.max() == 16
    found = thousand_modes.count_modes(thousand_modes.find_modes(examples))
    # Equal frequencies have the expected divergence 999 / (2 N) = 0.0195.
    assert found["modes"] == 1000 and found["divergence"] == pytest.approx(0.0195, abs=0.005)
    other = thousand_modes.make_examples(10, seed=1)
    assert not np.array_equal(other, examples[:10])


def test_missing_modes_are_counted():
    modes = np.repeat(np.arange(250), 4)
    assert thousand_modes.count_modes(modes) == {
        "modes": 250,
        "divergence": pytest.approx(np.log(4)),
    }


@pytest.mark.slow
def test_the_comparison_prints_a_row_for_each_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(thousand_modes, "SAMPLES", 200)
    monkeypatch.setattr(thousand_modes, "EXAMPLES", 300)
    monkeypatch.setattr(thousand_modes.outcome, "FOLDER", tmp_path / "build")
    thousand_modes.main(["--updates=12", "--seeds=1", f"--folder={tmp_path}/runs"])
    rows = json.loads((tmp_path / "build" / "thousand_modes.json").read_text())["rows"]
    data, *recipes = rows
    assert [row["recipe"] for row in recipes] == list(thousand_modes.RECIPES)
    assert all(0 < row["modes"] <= data["modes"] + 20 for row in recipes)
    with pytest.raises(SystemExit):
        thousand_modes.main(["--recipes=none"])
