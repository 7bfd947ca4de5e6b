"""The lines that the programs show on stderr."""

import logging
import pathlib
import subprocess
import sys

from absl import logging as absl_logging

ROOT = pathlib.Path(__file__).parents[2]


def test_warnings_have_a_prefix_and_progress_has_none(capsys):
    absl_logging.warning("x is odd")
    record = logging.LogRecord(
        "absl", logging.INFO, str(ROOT / "wgan_gp" / "x.py"), 1, "half done", (), None
    )
    absl_logging.get_absl_logger().handle(record)
    assert capsys.readouterr().err == "warning: x is odd\nhalf done\n"


def test_progress_of_other_packages_is_not_shown(capsys):
    absl_logging.info("this file is not in the package")
    assert capsys.readouterr().err == ""


def test_a_program_that_imports_the_package_keeps_its_logging():
    program = (
        "from absl import logging\n"
        "before = logging.get_verbosity(), logging.get_absl_logger().handlers[:]\n"
        "import wgan_gp; wgan_gp.Hook; wgan_gp.Config()\n"
        "assert before == (logging.get_verbosity(), logging.get_absl_logger().handlers)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_the_package_is_a_program_in_a_checkout_too():
    command = [sys.executable, "-m", "wgan_gp", "--n_critic=0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: --n_critic=0 is too small — give at least 1\n"
