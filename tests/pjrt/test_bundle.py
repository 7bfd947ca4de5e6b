"""--mode=export --export=loop."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.runs import TINY, call_main, train_tiny
from wgan_gp.app.saved_config import needed_settings

SETTINGS = {"dataset": "gaussians_25", "summary_interval": 5, "sample_interval": 0}


@pytest.mark.slow  # a program is started
def test_the_program_continues_the_run(tmp_path, capsys):
    """It starts with the run's state, on the run's next examples, with the run's next noise."""
    path, settings = tmp_path / "run", TINY | SETTINGS
    train_tiny(path, **settings, train_steps=15, stop_step=10)
    flags = [f"--{name}={settings[name]}" for name in ("dataset", "steps_per_loop")]
    output = tmp_path / "loop"
    assert (
        call_main(
            "--mode=export", "--export=loop", f"--model_dir={path}", f"--output={output}", *flags
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines()[-1] == str(output)

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
    _, writer = train_tiny(path, **settings, train_steps=15)
    ((step, values),) = writer.summaries
    assert step == 15
    found = [float(value) for value in re.findall(r" (-?[0-9.]+),", first)]
    terms = json.loads((output / "bundle.json").read_text())
    names = [f"critic/{name}" for name in terms["critic_terms"]]
    names += [f"generator/{name}" for name in terms["generator_terms"]]
    assert found == pytest.approx([values[name] for name in names], abs=1e-4)
    assert (terms["model"], terms["model_width"]) == ("mlp", settings["model_width"])
    with np.load(output / "state.npz") as state:
        assert len(state) >= len(terms["replaced"]) > 0


@pytest.mark.slow
def test_a_folder_that_is_not_empty_is_refused(tmp_path, capsys):
    train_tiny(tmp_path / "run", **SETTINGS, train_steps=5)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "mine.txt").write_text("kept")
    arguments = [f"--model_dir={tmp_path / 'run'}", f"--output={tmp_path / 'loop'}"]
    assert call_main("--mode=export", "--export=loop", *arguments) == 2
    assert "--output=" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "loop").iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_without_jax_it_is_one_line(tmp_path, capsys, monkeypatch):
    train_tiny(tmp_path, **SETTINGS, train_steps=5)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert call_main("--mode=export", "--export=loop", f"--model_dir={tmp_path}") == 2
    assert "--export=loop requires jax, which is not installed" in capsys.readouterr().err


def test_the_loop_needs_the_data_and_the_objective_of_the_user():
    """It would otherwise be a loop with the default objective; files are used only if named."""
    networks = needed_settings("export", {})
    of_loop = set(needed_settings("export", {"export": "loop"})) - set(networks)
    assert of_loop == {"dataset", "data_dir", "column_types", "objective"}
