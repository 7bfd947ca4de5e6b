"""The file of a sweep, its checks, and its trials."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from absl import flags as absl_flags

import flags
import models
from tests.helpers.runs import TINY, call_main
from wgan_gp.app.sweep import sweep_file
from wgan_gp.config import ranking
from wgan_gp.data import datasets
from wgan_gp.errors import UserError
from wgan_gp.evaluation import results

ROOT = pathlib.Path(__file__).parents[2]
TINY_FLAGS = {**TINY, "train_steps": 40, "summary_interval": 5, "evaluate_samples": 50}
GRID = {
    "flags": TINY_FLAGS,
    "settings": {"penalty_weight": [1, 10], "beta_2": [0.9, 0.99]},
    "seeds": [0, 1],
    "rank_by": "wasserstein",
    "rungs": [10, 20],
}


def write(tmp_path, content):
    path = tmp_path / "sweep.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def parse(*arguments):
    values = absl_flags.FlagValues()
    flags.define(values)
    config = flags.parse(["train.py", "--mode=sweep", *arguments], values)
    return config, flags.given(values)


def read(tmp_path, content, *arguments, model_dir=None):
    """Returns the plan of a sweep file with this content."""
    path = write(tmp_path, content)
    model_dir = model_dir or tmp_path / "sweep"
    config, given = parse(f"--sweep={path}", f"--model_dir={model_dir}", *arguments)
    return sweep_file.read(config, given, models.MODELS)


def test_a_grid_has_a_candidate_for_each_combination_and_a_run_for_each_seed(tmp_path):
    """Flags of the command line precede those of the file."""
    sweep = read(tmp_path, GRID, "--n_critic=3", "--train_steps=30", "--evaluate_interval=5")
    assert [candidate.name for candidate in sweep.candidates] == [
        *("penalty_weight=1,beta_2=0.9", "penalty_weight=1,beta_2=0.99"),
        *("penalty_weight=10,beta_2=0.9", "penalty_weight=10,beta_2=0.99"),
    ]
    candidate = sweep.candidates[1]
    assert [run.name for run in candidate.runs] == [
        "penalty_weight=1,beta_2=0.99,seed=0",
        "penalty_weight=1,beta_2=0.99,seed=1",
    ]
    config = candidate.runs[1].config
    assert config.run_directory == f"{tmp_path}/sweep/{candidate.runs[1].name}"
    assert (config.penalty_weight, config.beta_2, config.seed) == (1.0, 0.99, 1)
    assert (config.n_critic, config.dataset, config.train_steps) == (3, "swiss_roll", 30)
    assert "--evaluate_interval=5" in candidate.runs[1].arguments(10)
    assert (sweep.rungs, sweep.reduction_factor, sweep.maximize) == ((10, 20), 2, False)


def test_the_command_line_of_a_run_is_its_configuration(tmp_path):
    content = {
        "flags": {"random_flips": True, "evaluate_samples": 50},
        "settings": [{"generator_ema_half_life": None}, {"generator_ema_half_life": 500}],
        "rank_by": "fid",
    }
    sweep = read(tmp_path, content, "--seed=4", "--compare=latent_size")
    runs = [run for candidate in sweep.candidates for run in candidate.runs]
    assert [run.name for run in runs] == [
        "generator_ema_half_life=default,seed=4",
        "generator_ema_half_life=500,seed=4",
    ]
    for run in runs:
        values = absl_flags.FlagValues()
        flags.define(values)
        config = flags.parse(["train.py", *run.arguments(50)], values)
        expected = dataclasses.replace(run.config, stop_step=50, evaluate_interval=7500)
        assert config == expected
        assert config.compared == ("latent_size", "generator_ema_half_life", "evaluation/fid")


def test_the_folder_of_a_run_has_no_slash_and_that_of_no_other_run(tmp_path):
    content = {"settings": [{"model": "a/b.py"}, {"model": "a-b.py"}], "rank_by": "fid"}
    runs = [candidate.runs[0].name for candidate in read(tmp_path, content).candidates]
    assert runs == ["model=a%2Fb.py,seed=0", "model=a-b.py,seed=0"]


BASE = {"settings": {"penalty_weight": [1]}, "rank_by": "fid"}
LARGE_GRID = ("n_critic", "batch_size", "latent_size", "model_width", "model_depth")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is not JSON (Expecting property name"),
        ("[1]", "it is not a JSON object — give an object with flags, settings"),
        ('{"rungs": [], "rungs": []}', "it is not JSON (a name occurs twice)"),
        ({**BASE, "seed": [1]}, '"seed" is unknown — use flags, settings, seeds, rank_by'),
        ({"rank_by": "fid"}, '"settings" is null — give {"penalty_weight": [1, 10]}, or a list'),
        ({**BASE, "settings": [{"n_critic": 1}, 5]}, '"settings" is [{"n_critic": 1}, 5] — give'),
        ({**BASE, "settings": {"n_critic": 5}}, '"settings" is {"n_critic": 5} — give'),
        ({**BASE, "settings": {"n_critic": []}}, '"settings" is {"n_critic": []} — give'),
        ({**BASE, "settings": {"n_critc": [5]}}, "--n_critc is not a flag"),
        ({**BASE, "settings": {"mode": ["train"]}}, "--mode is set by the sweep itself"),
        ({**BASE, "settings": {"seed": [1]}}, "--seed is set by the sweep itself"),
        ({**BASE, "flags": {"stop_early": "fid:3"}}, "--stop_early would end runs of a can"),
        ({**BASE, "settings": {"dataset": ["digits"]}}, "only for the same data"),
        ({**BASE, "settings": {"data_dir": ["a"]}}, "only for the same data"),
        ({**BASE, "settings": {"cpu_replicas": [1]}}, "--cpu_replicas cannot vary, because the re"),
        ({**BASE, "settings": {"sample_seed": [1]}}, "--sample_seed cannot vary, because the res"),
        ({**BASE, "settings": {"n_critic": [5, 0]}}, "run n_critic=0,seed=0: --n_critic=0 is too"),
        ({**BASE, "settings": {"beta_2": [[0.9]]}}, "--beta_2=[0.9] is not a number"),
        ({**BASE, "settings": {"model": ["mlp", "resnet"]}}, "--model=resnet does not support"),
        (
            {**BASE, "settings": {"augment": ["none", "ada"]}},
            "run augment=ada,seed=0 would have --holdout=0.1, but the first one has 0.0",
        ),
        ({**BASE, "settings": {"beta_2": [0.9, 0.9]}}, '"settings" contains beta_2=0.9 twice'),
        ({**BASE, "settings": {"penalty_weight": [1, "1.0"]}}, "contains penalty_weight=1.0 twice"),
        ({**BASE, "settings": [{"model": "x" * 300}]}, "the name of model=xxx"),
        ({**BASE, "seeds": [*range(1001)]}, "it has more than 1000 runs"),
        (  # Expanded, this grid would need more memory than any machine has.
            {**BASE, "settings": {name: [*range(1, 900)] for name in LARGE_GRID}},
            "it has more than 1000 runs — give fewer settings or seeds",
        ),
        ({**BASE, "flags": [1]}, '"flags" is [1] — give names and values'),
        ({**BASE, "flags": {"n_critic": [5]}}, "--n_critic=[5] is not a whole number"),
        ({**BASE, "flags": {"nonsense": 5}}, "--nonsense is not a flag — train.py --help lists"),
        ({**BASE, "flags": {"penalty_weight": 5}}, "--penalty_weight is fixed, but"),
        ({**BASE, "flags": {"restore_from": "runs/a"}}, "start at iteration 0 — add --restore=gen"),
        ({**BASE, "seeds": 3}, '"seeds" is 3 — give a list of different whole numbers'),
        ({**BASE, "seeds": [1, 1]}, '"seeds" is [1, 1]'),
        ({**BASE, "seeds": [-1]}, '"seeds" is [-1]'),
        ({**BASE, "seeds": [1], "flags": {"seed": 2}}, '--seed and "seeds" contradict each other'),
        ({**BASE, "rank_by": None}, '"rank_by" is null — give a metric of --mode=evaluate: fid,'),
        ({**BASE, "rank_by": "density"}, 'of "rank_by": "density" is not known — add "goal"'),
        ({**BASE, "goal": "up"}, '"goal" is "up" — use minimize or maximize'),
        ({**BASE, "reduction_factor": 1}, '"reduction_factor" is 1 — give a whole number above 1'),
        ({**BASE, "rungs": 500}, '"rungs" is 500 — give a list of iterations'),
        ({**BASE, "rungs": [500, 900]}, "each rung is 2 times the one before — use [500, 1000]"),
        (
            {**BASE, "rungs": [7500]},
            '"rungs" contains 7500 — give multiples of --steps_per_loop=50',
        ),
        ({**BASE, "rungs": [120]}, "of --steps_per_loop=50 that are below --train_steps=7500"),
        (
            {**BASE, "flags": {"dataset": "gaussians_8"}},
            '"rank_by" is "fid", but evaluations of points, as --dataset=gaussians_8 has, do not '
            "contain it — use wasserstein, modes_covered or high_quality_share",
        ),
        ({**BASE, "rank_by": "wasserstein"}, "evaluations of images, as --dataset=digits has"),
        (
            {**BASE, "flags": {"feature_extractor": "none"}},
            "evaluations of arrays, as --dataset=digits has, do not contain it — use feature_wass",
        ),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path, content, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"--sweep={tmp_path}/sweep.json: ") and " — " in line
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode=sweep"], "--mode=sweep needs a file — add --sweep=FILE.json"),
        (["--sweep=a.json"], "--sweep=a.json applies only to --mode=sweep — add --mode=sweep"),
        (
            ["--mode=sweep", "--sweep=none.json"],
            "--sweep=none.json: it cannot be read (No such file or directory) — give a JSON file",
        ),
        (
            ["--mode=sweep", "--sweep=sweep_penalty.json", "--penalty_weight=3"],
            '--penalty_weight is fixed, but "settings" varies it — omit one of them',
        ),
        (
            ["--mode=sweep", "--sweep=sweep_penalty.json", "--seed=3"],
            '--seed and "seeds" contradict each other — omit one of them',
        ),
        (
            ["--mode=sweep", "--sweep=x", "--sweep_parallel=2", "--tpu=local"],
            "--sweep_parallel=2 with --tpu=local: only one process at a time can use a TPU",
        ),
        (
            ["--mode=sweep", "--sweep=sweep_penalty.json", "--stop_step=100"],
            '--stop_step is set by the sweep itself — omit it, or give "rungs"',
        ),
        (
            ["--mode=sweep", "--sweep=sweep_penalty.json", "--model_dir=gs://bucket/sweep"],
            "--model_dir=gs://bucket/sweep is not a local folder — --mode=sweep keeps its state",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(tmp_path, capsys, arguments, message):
    assert call_main(f"--model_dir={tmp_path}/sweep", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_needs_one_machine_and_optuna(monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert call_main("--mode=sweep", "--sweep=x") == 2
    assert "runs on one machine, but TF_CONFIG is set — unset TF_CONFIG" in capsys.readouterr().err
    monkeypatch.delenv("TF_CONFIG")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert call_main("--mode=sweep", "--sweep=x") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs the package optuna, which is not installed" in line
    assert line.endswith('pip install "optuna>=5,<6"')


def test_a_tpu_that_the_file_names_is_used_by_one_run_at_a_time(tmp_path):
    content = {**BASE, "flags": {"tpu": "local"}}
    assert read(tmp_path, content).candidates[0].runs[0].config.tpu == "local"
    with pytest.raises(UserError, match=r"--sweep_parallel=2 with --tpu=local: only one process"):
        read(tmp_path, content, "--sweep_parallel=2")


def test_initial_weights_of_another_run_may_differ_between_candidates(tmp_path):
    content = {"settings": {"restore": ["generator", "both"]}, "rank_by": "fid"}
    sweep = read(tmp_path, content, "--restore_from=runs/other")
    assert [each.runs[0].config.restore for each in sweep.candidates] == ["generator", "both"]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("image_folder", "is not a folder"),
        ("array", "does not exist"),
        ("tfrecord", "matches no files"),
    ],
)
def test_files_are_checked_before_the_first_run(tmp_path, dataset, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, {**BASE, "flags": {"dataset": dataset}}, f"--data_dir={tmp_path}/data.npy")
    origin = f"--sweep={tmp_path}/sweep.json: run penalty_weight=1,seed=0"
    assert f"{origin}: --data_dir={tmp_path}/data.npy {message}" in caught.value.what


def test_networks_and_the_metric_are_checked_against_the_files_of_the_data(tmp_path, monkeypatch):
    found = []

    def find_dataset(*arguments, **options):
        found.append(arguments)
        return datasets.find_dataset(*arguments, **options)

    monkeypatch.setattr("wgan_gp.app.resolve.find_dataset", find_dataset)
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(64, 10)))
    content = {"settings": {"n_critic": [1, 2, 3]}, "rank_by": "correlation_error"}
    arguments = ["--dataset=array", f"--data_dir={tmp_path}/data.npy"]
    read(tmp_path, content, *arguments)
    assert len(found) == 1  # the files are read once
    with pytest.raises(UserError, match="evaluations of arrays, as --dataset=array has, do not"):
        read(tmp_path, {**content, "rank_by": "fid"}, *arguments)
    with pytest.raises(UserError, match="run model=conv1d,seed=0: --model=conv1d generates sig"):
        read(tmp_path, {**content, "settings": {"model": ["mlp", "conv1d"]}}, *arguments)


def test_a_mistake_is_reported_before_tensorflow_is_imported(tmp_path):
    path = write(tmp_path, {**BASE, "settings": {"model": ["mlp", "resnet"]}})
    code = (
        "import sys, train\n"
        f"status = train.main(['train.py', '--mode=sweep', '--sweep={path}'])\n"
        "assert status == 2 and 'tensorflow' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "--model=resnet does not support" in done.stderr


def test_the_experiment_is_found_by_its_name_and_has_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config, given = parse("--sweep=configs/sweep_penalty.json")
    assert config.run_directory == "runs/sweep_penalty"
    sweep = sweep_file.read(config, given, models.MODELS)
    assert len(sweep.candidates) == 4 and sweep.rank_by == "fid"


def test_the_best_value_of_metrics_is_known():
    """The best value of others is neither small nor large, or they do not rank samples."""
    known = set(ranking.RANKING)
    others = {"density", "largest_class", "classifier_accuracy", "two_sample_accuracy"}
    others |= {"closest_distance_ratio", "closer_than_real"}
    others |= {name for name in results._EXPLANATIONS if name.endswith(("_floor", "_deviation"))}
    others |= {name for name in results._EXPLANATIONS if name.startswith("real_trained")}
    assert known | others == set(results._EXPLANATIONS) and not known & others
