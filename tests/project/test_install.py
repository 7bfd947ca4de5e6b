"""The installations of docs/tpu.md, the Makefile's environments, and the variables of a TPU."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest
from packaging.version import Version

from wgan_gp.app import program, tpu_environment
from wgan_gp.runtime import tpu_machine

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tpu.md").read_text()
TPU_REQUIREMENTS = (ROOT / "requirements-tpu.txt").read_text()
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
PIP += ["--dry-run", "--ignore-installed"]
FLAVORS = {"tensorflow", "tensorflow-tpu"}


def install_lines(page):
    """Returns the installation commands of a page: `pip install ...` and `make setup-tpu`."""
    commands = re.findall(r"^    (.*)$", page, re.MULTILINE) + re.findall(r"`([^`\n]*)`", page)
    found = []
    for command in commands:
        for part in re.split(r"&&|;", command.partition("  #")[0]):
            if re.search(r"\bpip install\b", part):
                found.append(part.split("pip install", 1)[1].strip())
            elif part.strip() == "make setup-tpu":
                found.append("-r requirements-tpu.txt")
    return sorted(set(found))


def resolve(arguments):
    """Returns the versions that pip would install for a command, by name."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run(
            [sys.executable, *PIP, "--report", report, *shlex.split(arguments)],
            cwd=ROOT,
            check=True,
        )
        packages = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return {each["name"].lower().replace("_", "-"): each["version"] for each in packages}


def find_conflicts(packages):
    """Returns what is wrong with the packages of an environment, from names to versions."""
    flavors = sorted(FLAVORS & set(packages))
    problems = []
    if len(flavors) != 1:
        problems.append(f"TensorFlow's packages are {flavors}")
    for flavor in flavors:
        protobuf = packages.get("protobuf", "0")
        if Version(packages[flavor]) >= Version("2.20") and Version(protobuf) < Version("5.28"):
            problems.append(f"{flavor} cannot be imported with protobuf {protobuf}")
    return problems


def test_the_page_has_the_installations():
    lines = install_lines(PAGE)
    assert "-r requirements-tpu.txt" in lines
    assert any("tensorflow-tpu==2.19" in line for line in lines)
    # Each of these is forbidden or would add a second TensorFlow.
    assert not [line for line in lines if "cloud-tpu-client" in line or "tensorflow==" in line]


def test_install_lines_are_found_in_code_and_in_sentences():
    page = (
        "Run `make setup-tpu`, or\n\n    cd x && pip install a 'b<2'  # both\n\nor `pip install c`."
    )
    assert install_lines(page) == ["-r requirements-tpu.txt", "a 'b<2'", "c"]


def test_conflicts_are_found():
    good = {"tensorflow-tpu": "2.20.0", "protobuf": "5.28.0"}
    assert find_conflicts(good) == []
    assert find_conflicts({**good, "tensorflow": "2.20.0"})
    assert find_conflicts({**good, "protobuf": "3.20.3"})
    assert find_conflicts({"protobuf": "5.28.0"})


# The packages of the environment of a TPU that decide about conflicts, so that each command is
# resolved once. The resolution of requirements-tpu.txt shows that its protobuf is as recent.
TPU_PACKAGES = {
    **dict(re.findall(r"^(tensorflow-tpu)==(\S+)", TPU_REQUIREMENTS, re.MULTILINE)),
    "protobuf": "5.28",  # or later
}


@pytest.mark.slow
@pytest.mark.parametrize("line", install_lines(PAGE))
def test_every_installation_of_the_page_resolves(line):
    """Asks pip, which reads the package index."""
    packages = resolve(line)
    if not FLAVORS & set(packages):
        # It adds to the environment of a TPU, as a second command.
        packages = {**TPU_PACKAGES, **packages}
    assert find_conflicts(packages) == []


@pytest.mark.slow
def test_the_package_that_tensorflow_recommends_is_recognized_as_a_conflict():
    """TensorFlow's own error message says to install cloud-tpu-client."""
    # pip refuses both in one command. In a second command it downgrades protobuf.
    packages = {**TPU_PACKAGES, **resolve("cloud-tpu-client")}
    (problem,) = find_conflicts(packages)
    assert problem.startswith("tensorflow-tpu cannot be imported with protobuf 3.")


def test_requirements_pin_the_versions_of_the_extra():
    text = TPU_REQUIREMENTS
    (extra,) = re.findall(r"^tpu = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    pins = re.findall(r'"([^"]+==[^"]+)"', extra)
    assert len(pins) == 2 and set(pins) <= set(text.splitlines())
    names = [re.split("[=>]", each)[0] for each in re.findall(r'"([^"]+)"', extra)]
    assert all(re.search(rf"^{re.escape(name)}==", text, re.MULTILINE) for name in names)


def planned(tmp_path, target, arguments="", existing=()):
    """Returns the commands of a make target, without their execution."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for path in ("requirements.txt", "requirements-base.txt", "requirements-tpu.txt"):
        (tmp_path / path).touch()
    for folder in existing:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".runtime").touch()
    command = ["make", "--dry-run", target, f"ARGS={arguments}"]
    # `make test` passes these on, and a make inside another prints the folder.
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(
    ("arguments", "existing", "folder"),
    [
        ("", [], ".venv"),
        ("--seed=1", [".venv", ".venv-tpu"], ".venv"),
        ("--model_dir=gs://b/--tpu", [".venv", ".venv-tpu"], ".venv"),
        ("--seed=1 --tpu=local", [".venv", ".venv-tpu"], ".venv-tpu"),
        ("-tpu=local", [".venv"], ".venv-tpu"),
        ("--mode=sample", [".venv-tpu"], ".venv-tpu"),
    ],
)
def test_make_train_uses_the_environment_of_the_device(tmp_path, arguments, existing, folder):
    commands = planned(tmp_path, "train", arguments, existing).splitlines()
    assert commands[-1].startswith(f"{folder}/bin/python train.py")
    installs = [each for each in commands if "pip install" in each]
    requirements = "requirements-tpu.txt" if folder == ".venv-tpu" else "requirements.txt"
    assert len(installs) == (folder not in existing)
    assert all(each.startswith(folder + "/") and requirements in each for each in installs)


@pytest.mark.parametrize("target", ["setup-compile", "test", "lint", "setup-bench"])
def test_nothing_else_is_installed_into_the_environment_of_a_tpu(tmp_path, target):
    for name in ("compile", "bench", "dev"):
        (tmp_path / f"requirements-{name}.txt").touch()
    commands = planned(tmp_path, target, existing=[".venv-tpu"])
    assert "pip install" in commands and ".venv-tpu/" not in commands


def fake_chips(root, *devices):
    """Writes the PCI devices of a machine, and returns the root of its file system."""
    for number, (vendor, device) in enumerate(devices):
        directory = root / "sys/bus/pci/devices" / str(number)
        directory.mkdir(parents=True)
        (directory / "vendor").write_text(f"{vendor}\n")
        (directory / "device").write_text(f"{device}\n")
    return str(root)


NETWORK_CARD = ("0x1ae0", "0x0042")


@pytest.mark.parametrize(
    ("device", "generation"), [("0x0063", "v5e"), ("0x005e", "v4"), ("0x0027", "v2 or v3")]
)
def test_the_generation_is_that_of_the_chips(tmp_path, device, generation):
    root = fake_chips(tmp_path, ("0x8086", "0x0062"), NETWORK_CARD, ("0x1ae0", device))
    assert tpu_machine.find_generation(root) == generation


def test_a_machine_without_chips_has_no_generation(tmp_path):
    root = fake_chips(tmp_path, ("0x8086", "0x0063"), NETWORK_CARD)
    (tmp_path / "sys/bus/pci/devices/broken/vendor").mkdir(parents=True)
    assert tpu_machine.find_generation(root) is None
    assert tpu_machine.find_generation(str(tmp_path / "missing")) is None


LIBRARY = "/env/libtpu.so"
PJRT = {
    "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": LIBRARY,
}


@pytest.fixture
def tpu_wheel(monkeypatch):
    monkeypatch.setattr(tpu_machine, "installed_versions", lambda names: {"tensorflow-tpu": "2"})
    monkeypatch.setattr(
        tpu_machine, "find_libtpu", lambda variables: variables.get("TPU_LIBRARY_PATH", LIBRARY)
    )
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


@pytest.mark.parametrize(
    ("tpu", "device", "given", "expected"),
    [
        ("local", "0x0063", {}, {"TPU_LIBRARY_PATH": LIBRARY, **PJRT}),
        ("local", "0x005e", {}, {"TPU_LIBRARY_PATH": LIBRARY}),
        ("local", "0x0042", {}, {"TPU_LIBRARY_PATH": LIBRARY}),
        ("name", "0x0063", {}, {"TPU_LOAD_LIBRARY": "0"}),
        (None, "0x0063", {}, {"TPU_LOAD_LIBRARY": "0"}),
        (None, "0x0063", {"TPU_LOAD_LIBRARY": "1"}, {"TPU_LOAD_LIBRARY": "1"}),
        (
            "local",
            "0x006f",
            {"TPU_LIBRARY_PATH": "/lib/libtpu.so", "NEXT_PLUGGABLE_DEVICE_USE_C_API": "false"},
            {
                "TPU_LIBRARY_PATH": "/lib/libtpu.so",
                "NEXT_PLUGGABLE_DEVICE_USE_C_API": "false",
                "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so",
            },
        ),
    ],
)
@pytest.mark.usefixtures("tpu_wheel")
def test_the_variables_of_a_tpu(tmp_path, tpu, device, given, expected):
    environment = dict(given)
    tpu_environment.prepare(tpu, environment, fake_chips(tmp_path, ("0x1ae0", device)))
    assert environment == expected


@pytest.mark.usefixtures("tpu_wheel")
def test_unknown_chips_cause_a_warning_with_the_variables(tmp_path, caplog):
    root = str(tmp_path)
    tpu_environment.prepare("local", {}, root)  # no chip, for which the next check has an error
    assert not caplog.text
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    tpu_environment.prepare("local", {}, root)
    assert "TPU chips is unknown" in caplog.text and f"LIBRARY_PATH={LIBRARY}" in caplog.text
    caplog.clear()
    tpu_environment.prepare("local", {"NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"}, root)
    assert not caplog.text


def test_the_variables_are_not_set_without_the_wheel_of_a_tpu(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    environment = {}
    tpu_environment.prepare("local", environment, fake_chips(tmp_path, ("0x1ae0", "0x0063")))
    assert environment == {}


def test_the_program_passes_the_tpu_on(monkeypatch):
    seen = []
    monkeypatch.setattr(tpu_environment, "prepare", seen.append)
    program.prepare_environment("local")
    assert seen == ["local"]
