"""The installed wheel: its contents, its program, and the programs of docs/losses.md."""

import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import lean_path

ROOT = pathlib.Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.flags"))
PROGRAMS = dict(
    re.findall(
        r"\n## ([^\n]+)\n(?:(?!\n## )[\s\S])*?```python\n([\s\S]*?)```",
        (ROOT / "docs" / "losses.md").read_text(),
    )
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    # A copy, so that the build leaves nothing in the checkout.
    source, output = tmp_path_factory.mktemp("source") / "copy", tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=left_out)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", output, source],
        check=True,
        capture_output=True,
    )
    (path,) = output.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Returns a function that runs Python code, or a program with its arguments, from the wheel.

    The function returns what was printed. The checkout cannot be imported there.
    """
    home = tmp_path_factory.mktemp("clean")
    venv.create(home / "env")
    python = home / "env" / "bin" / "python"
    # TensorFlow and the rest come from the environment of the tests: nothing is downloaded.
    (packages,) = (home / "env").glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    subprocess.run([*pip, "check"], check=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(program, *arguments):
        # --mode=compile requires jax.
        needs_jax = "--mode=compile" in " ".join([program, *arguments])
        path = {} if needs_jax else {"PYTHONPATH": lean_path()}
        command = [program, *arguments] if arguments else ["python", "-c", program]
        command[0] = home / "env" / "bin" / command[0]
        done = subprocess.run(
            command,
            cwd=home,
            env={**environment, **path, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_wheel_holds_wgan_gp_and_nothing_of_a_generic_name(wheel):
    names = [pathlib.PurePosixPath(name) for name in zipfile.ZipFile(wheel).namelist()]
    tops = {name.parts[0] for name in names}
    assert len(tops) == 2 and {top for top in tops if not top.endswith(".dist-info")} == {"wgan_gp"}
    packaged = {name.relative_to("wgan_gp") for name in names if name.parts[0] == "wgan_gp"}
    typed = pathlib.PurePosixPath("py.typed")  # type checkers read the annotations then
    assert typed in packaged
    packaged -= {pathlib.PurePosixPath("flags.py"), typed}
    packaged -= {pathlib.PurePosixPath("configs", path.name) for path in CONFIGS}
    for part in ("losses", "models", "wgan_gp"):
        for path in (ROOT / part).rglob("*.py"):
            relative = path.relative_to(ROOT if part != "wgan_gp" else ROOT / part)
            assert relative in packaged
            packaged.remove(relative)
    assert not packaged


@pytest.mark.slow
def test_installed_names(installed):
    output = installed(
        "import importlib.util\n"
        "names = 'losses', 'models', 'flags', 'train', 'wgan_gp.losses', 'wgan_gp.models'\n"
        "found = [importlib.util.find_spec(name) for name in names]\n"
        "print([spec and spec.origin for spec in found])"
    )
    assert output.startswith("[None, None, None, None, ")
    assert output.count("site-packages/wgan_gp/") == 2


def test_the_flags_and_all_experiments_are_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert CONFIGS
    assert names >= {"wgan_gp/flags.py", *(f"wgan_gp/configs/{path.name}" for path in CONFIGS)}


@pytest.mark.slow
def test_the_wheel_alone_trains_and_samples(installed, tmp_path):
    """Uses the console script with an experiment given by its name, and `python -m wgan_gp`."""
    settings = ["--flagfile=configs/gaussians_8.flags", f"--model_dir={tmp_path}"]
    settings += ["--model_width=4", "--model_depth=1", "--steps_per_loop=5", "--train_steps=5"]
    assert "checkpoints are in" in installed("wgan-gp", *settings, "--sample_interval=0")
    assert '"dataset": "gaussians_8"' in (tmp_path / "config.json").read_text()
    sample = ["--mode=sample", f"--model_dir={tmp_path}"]
    path = installed("python", "-m", "wgan_gp", *sample).strip()
    assert path.endswith(".png") and pathlib.Path(path).stat().st_size > 0


def test_the_installed_program_names_itself_in_its_help(installed):
    assert "--generator_ema_decay" in installed("wgan-gp", "--help")


@pytest.mark.slow
def test_the_program_of_training_from_python_prints_what_the_page_shows(installed):
    page = (ROOT / "docs" / "python.md").read_text()
    program, shown = re.search(
        r"```python\n(.*?)```\n\nThis program [^\n]*\n\n((?:    [^\n]*\n)+)", page, re.DOTALL
    ).groups()
    number = r"-?\d+\.\d+"
    printed, expected = (
        re.sub(r"^ +", "", text, flags=re.MULTILINE) for text in (installed(program), shown)
    )
    assert re.sub(number, "x", printed) == re.sub(number, "x", expected)
    figures = [[float(each) for each in re.findall(number, text)] for text in (printed, expected)]
    np.testing.assert_allclose(*figures, atol=0.05)


BUCKETS = "Replicas with different numbers of tokens"


def test_an_editable_installation_has_the_program(tmp_path):
    """It finds the packages of the checkout, as links do here, but not its module flags."""
    for package in ("losses", "models", "wgan_gp"):
        (tmp_path / package).symlink_to(ROOT / package)
    run = subprocess.run(
        [sys.executable, "-m", "wgan_gp", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("wgan-gp 0.1.0 (Python ")


# What each program of docs/losses.md prints, as figures between which something must hold. Programs
# that configure two devices come first, because one process runs all of them.
EXPECTED = {
    "With tf_keras on several replicas": lambda seen, *_: abs(seen - 3.45) < 0.3,
    BUCKETS: (
        lambda *figures: (
            figures[:6] == (4, 16, 8, 8, 16, 4) and figures[6] < 2e-6 and figures[7] < 1e-6
        )
    ),
    "With Keras Model.fit": lambda radius, data: abs(radius - data) < 0.3,
    "With tf.Module only": lambda x, y, *data: abs(x - data[0]) < 0.4 and abs(y - data[1]) < 0.4,
    "Critics of several inputs": lambda *figures: figures == (3, 4, -5),
    "Lazy regularization": lambda *figures: figures == (*[100.0, 0.0, 0.0, 0.0] * 2, 25.0),
}
CHECKS = "Checking a penalty and a critic"


@pytest.mark.parametrize("lengths", ["static", "dynamic"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_documentations_token_losses_are_their_formula(smoothing, lengths):
    """The cross-entropy over its lowest value; without smoothing, the plain one."""
    (source,) = re.findall(r"^def token_losses[\s\S]*?\n(?=\n\n)", PROGRAMS[BUCKETS], re.MULTILINE)
    names = {"tf": tf}
    exec(source, names)
    token_losses = names["token_losses"]
    if lengths == "dynamic":
        signature = [
            tf.TensorSpec([None, None, 5], tf.float64),
            tf.TensorSpec([None, None], tf.int64),
            tf.TensorSpec([]),
        ]
        token_losses = tf.function(
            lambda logits, labels, _: names["token_losses"](logits, labels, smoothing),
            input_signature=signature,
        )
    logits = np.random.default_rng(0).normal(size=[2, 4, 5])
    labels = np.array([[1, 4, 2], [3, 0, 0]])  # one token fewer than logits
    with tf.GradientTape() as tape:
        given = tf.constant(logits)
        tape.watch(given)
        loss, weights = token_losses(given, tf.constant(labels), smoothing)
    np.testing.assert_array_equal(weights, [[1, 1, 1, 0], [1, 0, 0, 0]])
    padded = np.pad(labels, [(0, 0), (0, 1)])
    targets = np.where(padded[..., None] == np.arange(5), 1 - smoothing, smoothing / 4)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    lowest = sum(p * np.log(p) for p in (1 - smoothing, *[smoothing / 4] * 4) if p)
    expected = lowest - (targets * np.log(softmax)).sum(axis=-1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, given), softmax - targets, atol=1e-6)


def test_every_program_is_run():
    assert set(PROGRAMS) == {*EXPECTED, CHECKS}


@pytest.mark.parametrize("page", ["README.md", "docs/losses.md"])
def test_the_critic_step_of_the_page_has_the_loss_of_a_linear_critic(page):
    """Its score is w.x and its gradient norm |w| = 5, so that the penalty is 16."""
    weights = tf.Variable([3.0, 4.0])
    given = {
        "tf": tf,
        "generator": lambda latents: latents,
        "critic": lambda x: tf.linalg.matvec(x, weights),
        "real": tf.ones([6, 2]),
        "latents": tf.zeros([6, 2]),
    }
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / page).read_text())
    block = next(block for block in blocks if "losses.gradient_penalty(" in block)
    exec(block, given)
    if "critic_step" in given:
        given["critic"].trainable_variables = [weights]
        optimizer = tf.keras.optimizers.SGD(0.0)
        arguments = (given[name] for name in ("generator", "critic"))
        given["loss"] = given["critic_step"](*arguments, optimizer, given["real"], given["latents"])
    np.testing.assert_allclose(given["loss"], -7.0 + 10 * 16, rtol=1e-5)


@pytest.mark.slow
def test_programs_of_the_documentation_do_what_they_say(installed):
    """One process runs them, as a module each, because TensorFlow takes seconds to import."""
    program = "\n".join(
        f"exec({PROGRAMS[title]!r}, {{'__name__': '__main__'}})\nprint('end of a program')"
        for title in EXPECTED
    )
    *outputs, rest = installed(program).split("end of a program\n")
    assert rest == ""
    for (title, holds), printed in zip(EXPECTED.items(), outputs, strict=True):
        figures = re.findall(r"-?\d+\.?\d*(?:e[-+]\d+)?", printed)
        assert holds(*map(float, figures)), (title, printed)


def test_the_checks_print_what_the_documentation_shows(capsys):
    text = (ROOT / "docs" / "losses.md").read_text()
    shown = re.findall(r"^    (\w+: .*)$", text[text.index(CHECKS) :], re.MULTILINE)
    exec(PROGRAMS[CHECKS], {})
    assert shown and capsys.readouterr().out.splitlines() == shown


# Runs the installed program with several command lines, and then a program of the documentation.
# Each prints a line at its end. The flags of a command line are defined again by the next one.
ONE_PROCESS = """
import sys
from absl import flags
from wgan_gp.__main__ import main
others = set(flags.FLAGS)
for arguments in {commands!r}:
    sys.argv = ["wgan-gp", *arguments]
    assert main() == 0, arguments
    for name in set(flags.FLAGS) - others:
        delattr(flags.FLAGS, name)
    print("end of a program")
exec({program!r}, {{"__name__": "__main__"}})
"""


@pytest.mark.slow
def test_the_wheel_alone_trains_compiles_and_exports_the_files_of_custom_md(installed, tmp_path):
    """Runs all programs of docs/user_code.md; the last one prints what the page shows."""
    page = (ROOT / "docs" / "user_code.md").read_text()
    *files, program = re.findall(r"```python\n([\s\S]*?)```", page)
    paths = {}
    for text in files:
        name = re.match(r"# (\w+\.py)\n", text)[1]
        paths[name] = tmp_path / name
        paths[name].write_text(text)
    flags = [f"--model={paths['my_networks.py']}", f"--dataset={paths['my_data.py']}"]
    flags += [f"--objective={paths['my_losses.py']}:SmallSamples"]
    flags += ["--steps_per_loop=5", "--sample_interval=0", "--learning_rate_schedule=constant"]
    run = f"--model_dir={tmp_path}/run"
    commands = [
        [*flags, run, "--train_steps=5"],  # tests/app/test_user_code.py resumes such a run
        ["--mode=export", run, flags[0]],
        ["--mode=evaluate", run, *flags[:2], "--evaluate_samples=200"],
        ["--mode=compile", *flags, f"--model_dir={tmp_path}/compiled"],
    ]
    # One process, because TensorFlow takes seconds to import.
    printed = installed(ONE_PROCESS.format(commands=commands, program=program))
    _, _, table, report, last = printed.split("end of a program\n")
    assert [path.stem for path in (tmp_path / "run" / "checkpoints").glob("*.json")] == ["ckpt-5"]
    assert (tmp_path / "run" / "exported" / "generator.keras").exists()
    assert "fid" in table
    assert "generator_step" in report
    assert "[100 200] (5, 3)" in last
    assert "prints `[100 200] (5, 3)`" in page
