"""benchmarks.bundle: the loop of a run as a program that needs only jax and numpy."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import bundle
from tests.helpers.runs import TINY, train_tiny
from wgan_gp.config import Config
from wgan_gp.errors import UserError

SETTINGS = TINY | {"dataset": "gaussians_25", "summary_interval": 5, "sample_interval": 0}


@pytest.mark.slow  # a program is started
def test_the_program_continues_the_run(tmp_path):
    """It starts with the run's state, on the run's next examples, with the run's next noise."""
    path, output = tmp_path / "run", tmp_path / "loop"
    train_tiny(path, **SETTINGS, train_steps=15, stop_step=10)
    bundle.write(output, Config(model_dir=str(path), **SETTINGS, train_steps=15))

    # Python without this project and TensorFlow
    program = (
        "import runpy, sys; sys.modules['tensorflow'] = None; sys.argv = ['run.py', '2'];"
        f"runpy.run_path({str(output / 'run.py')!r}, run_name='__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    _, first, second = result.stdout.splitlines()
    assert first.startswith("15: ") and second.startswith("20: ")
    _, writer = train_tiny(path, **SETTINGS, train_steps=15)
    ((step, values),) = writer.summaries
    assert step == 15
    found = [float(value) for value in re.findall(r" (-?[0-9.]+),", first)]
    terms = json.loads((output / "bundle.json").read_text())
    names = [f"critic/{name}" for name in terms["critic_terms"]]
    names += [f"generator/{name}" for name in terms["generator_terms"]]
    assert found == pytest.approx([values[name] for name in names], abs=1e-4)
    assert (terms["model"], terms["model_width"]) == ("mlp", SETTINGS["model_width"])
    with np.load(output / "state.npz") as state:
        assert len(state) >= len(terms["replaced"]) > 0


def test_mistakes_are_one_line(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(UserError, match="contains files — give a new or empty folder"):
        bundle.write(tmp_path, Config())
    with pytest.raises(UserError, match="--objective is not supported"):
        bundle.write(tmp_path / "new", Config(objective="mine.py:Mine"))
    assert bundle.main(["bundle", "--dataset=digits"]) == 2
    assert capsys.readouterr().err.startswith("error: no folder is given")
