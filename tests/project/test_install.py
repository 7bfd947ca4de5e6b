"""The installations of the pages on TPUs, environments of make, and variables of a TPU."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import types

import pytest
from packaging.version import Version

import wgan_gp
from wgan_gp import pjrt
from wgan_gp.app import program, tpu_environment
from wgan_gp.errors import UserError
from wgan_gp.runtime import tpu_machine

ROOT = pathlib.Path(__file__).parents[2]
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("tpu.md", "tpu_tensorflow.md"))
PROJECT = (ROOT / "pyproject.toml").read_text()
TENSORFLOW_TPU = "requirements-tensorflow-tpu.txt"
TPU_REQUIREMENTS = (ROOT / TENSORFLOW_TPU).read_text()
FLAVORS = {"tensorflow", "tensorflow-tpu"}
# The targets of make that install for an accelerator, each from a file of the same name.
TARGETS = ("tpu", "gpu", "tensorflow-tpu")


def install_lines(page):
    """Returns the installation commands of a page: `pip install ...` and `make setup-...`."""
    commands = re.findall(r"^    (.*)$", page, re.MULTILINE) + re.findall(r"`([^`\n]*)`", page)
    found = []
    for command in commands:
        for part in re.split(r"&&|;", command.partition("  #")[0]):
            if re.search(r"\bpip install\b", part):
                found.append(part.split("pip install", 1)[1].strip())
            elif match := re.match(rf" *make setup-({'|'.join(TARGETS)})\b", part):
                found.append(f"-r requirements-{match[1]}.txt")
    return sorted(set(found))


def index_of_pip():
    """Returns the arguments for uv that name the package indexes of pip's configuration."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"^(?:\S+)\.([a-z-]+)='(.*)'$", lines, re.MULTILINE))
    named = {"index-url": "--default-index", "extra-index-url": "--index"}
    named["find-links"] = "--find-links"
    arguments = ["--index-strategy=unsafe-best-match"]  # as pip chooses
    return arguments + [
        f"{named[name]}={url}" for name in named if name in found for url in found[name].split()
    ]


def resolve(arguments, python="3.12", platform="x86_64-manylinux_2_31"):
    """Returns the versions that `pip install` would install for its arguments, by name."""
    lines = re.sub(r"-r (\S+)", rf"-r {ROOT}/\1", arguments)
    requirements = [
        f"wgan-gp{each[1:]} @ {ROOT.as_uri()}" if each[0] == "." else each
        for each in shlex.split(lines.replace("-r ", "-r\\ "))
    ]
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate", "-"]
    command += [f"--python-version={python}", f"--python-platform={platform}", *index_of_pip()]
    text = "\n".join(requirements)
    # macOS 14 is the oldest that is supported; uv assumes 13.
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"}
    printed = subprocess.run(
        command, input=text, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(re.findall(r"^([^=\s\[]+)(?:\[.*\])?==(\S+)", printed.stdout, re.MULTILINE))


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
    libtpu = packages.get("libtpu")
    if flavors == ["tensorflow-tpu"] and libtpu and Version(libtpu) >= Version("0.0.46"):
        problems.append(f"tensorflow-tpu cannot be imported with libtpu {libtpu}")
    if flavors == ["tensorflow"] and libtpu not in (None, pjrt.LIBTPU["libtpu"]):
        problems.append(f"--mode=compile cannot use libtpu {libtpu}")
    return problems


def test_the_page_has_the_installations():
    lines = install_lines(PAGE)
    assert {"-r requirements-tpu.txt", "-r requirements-tensorflow-tpu.txt"} <= set(lines)
    assert any("tensorflow-tpu==2.19" in line for line in lines)
    # Each of these is forbidden or would add a second TensorFlow.
    assert not [line for line in lines if "cloud-tpu-client" in line or "tensorflow==" in line]


def test_install_lines_are_found_in_code_and_in_sentences():
    page = (
        "Run `make setup-tpu PYTHON=x`, or\n\n    cd x && pip install a 'b<2'  # both\n\nor "
        "`pip install c`, or `make setup-tensorflow-tpu`."
    )
    files = ["-r requirements-tensorflow-tpu.txt", "-r requirements-tpu.txt"]
    assert install_lines(page) == [*files, "a 'b<2'", "c"]


def test_conflicts_are_found():
    good = {"tensorflow-tpu": "2.20.0", "protobuf": "5.28.0"}
    assert find_conflicts(good) == []
    assert find_conflicts({**good, "tensorflow": "2.20.0"})
    assert find_conflicts({**good, "protobuf": "3.20.3"})
    assert find_conflicts({"protobuf": "5.28.0"})
    assert find_conflicts({**good, "libtpu": "0.0.18"}) == []
    assert find_conflicts({**good, "libtpu": "0.0.51"})
    plain = {"tensorflow": "2.20.0", "protobuf": "5.28.0", **pjrt.LIBTPU}
    assert find_conflicts(plain) == []
    assert find_conflicts({**plain, "libtpu": "0.0.42"})


# The packages of tensorflow-tpu's environment that decide about conflicts, so that each command
# is resolved once. The resolution of its requirements shows that its protobuf is as recent.
TPU_PACKAGES = {
    **dict(re.findall(r"^(tensorflow-tpu)==(\S+)", TPU_REQUIREMENTS, re.MULTILINE)),
    "protobuf": "5.28",  # or later
}


# `make test` installs what these pin, from the files that the first one includes.
INSTALLED = {"-r requirements-tpu.txt"}
EXTRAS = {f'".[{name}]"': name for name in TARGETS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "platform"),
    [
        ("3.10", "x86_64-manylinux_2_31"),
        ("3.13", "x86_64-manylinux_2_31"),
        ("3.12", "aarch64-manylinux_2_31"),
        ("3.12", "aarch64-apple-darwin"),
    ],
)
def test_the_installation_resolves_on_every_supported_machine(python, platform):
    files = ["requirements.txt"]
    if python != "3.10":
        files += ["requirements-compile.txt", "requirements-dev.txt", "requirements-extras.txt"]
    packages = resolve(" ".join(f"-r {file}" for file in files), python, platform)
    assert find_conflicts(packages) == []
    assert ("jax" in packages) == (python != "3.10")
    assert ("libtpu" in packages) == (python == "3.13")  # it exists for no other of these machines
    packages = resolve('".[cpu]"', python, platform)
    assert {"tensorflow", "tensorflow-datasets", "psutil"} <= packages.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("tensorflow", "python"), [("2.19", "3.10"), ("2.21", "3.13")])
def test_the_package_resolves_with_the_oldest_and_the_newest_tensorflow(tensorflow, python):
    packages = resolve(f'".[cpu]" "tensorflow=={tensorflow}.*"', python)
    assert packages["tensorflow"].startswith(f"{tensorflow}.")
    assert find_conflicts(packages) == []
    assert Version(packages["keras"]) >= Version("3.5")


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted({*install_lines(PAGE), *EXTRAS} - INSTALLED))
def test_every_installation_of_the_page_and_every_extra_resolves(line):
    """Reads the package index."""
    packages = resolve(line)
    if not FLAVORS & set(packages):
        # It adds to the environment of a TPU, as a second command.
        packages = {**TPU_PACKAGES, **packages}
    assert find_conflicts(packages) == []
    if name := EXTRAS.get(line):
        # The extras of jax have the versions that the program requires.
        required = {"tpu": {**pjrt.REQUIRED, **pjrt.LIBTPU}, "gpu": pjrt.REQUIRED}.get(name, {})
        assert required.items() <= packages.items()
        assert (name == "gpu") == bool(packages.keys() & set(pjrt.CUDA_PLUGINS))


@pytest.mark.slow
def test_the_package_that_tensorflow_recommends_is_recognized_as_a_conflict():
    """TensorFlow's own error message says to install cloud-tpu-client."""
    # pip refuses both in one command. In a second command it downgrades protobuf.
    packages = {**TPU_PACKAGES, **resolve("cloud-tpu-client")}
    (problem,) = find_conflicts(packages)
    assert problem.startswith("tensorflow-tpu cannot be imported with protobuf 3.")


def pins_of(file):
    """Returns the pinned versions of a file of requirements, by name with extras."""
    lines = (ROOT / file).read_text().splitlines()
    # A package may be pinned twice, for different versions of Python.
    pins = "\n".join(line for line in lines if "python_version" not in line)
    return dict(re.findall(r"^([^#\s]+)==([^\s;]+)", pins, re.MULTILINE))


def extra(name):
    """Returns the requirements of an extra of the package."""
    (found,) = re.findall(rf"^{name} = \[(.*)\]", PROJECT, re.MULTILINE)
    return re.findall(r'"([^"]+)"', found)


def test_requirements_pin_the_versions_of_the_extra():
    text = TPU_REQUIREMENTS
    found = extra("tensorflow-tpu")
    pins = [each for each in found if "==" in each]
    assert len(pins) == 2 and set(pins) <= set(text.splitlines())
    names = [re.split("[=>]", each)[0] for each in found]
    assert all(re.search(rf"^{re.escape(name)}==", text, re.MULTILINE) for name in names)


def test_the_environments_of_jax_have_the_versions_that_the_program_requires():
    """tests/tpu/test_compile.py checks requirements-compile.txt and its extra."""
    lines = {name: (ROOT / f"requirements-{name}.txt").read_text().splitlines() for name in TARGETS}
    assert {"-r requirements.txt", "-r requirements-compile.txt"} <= set(lines["tpu"])
    assert extra("tpu") == ["wgan-gp[cpu]", "wgan-gp[compile]"]
    plugin = f"jax[cuda12]=={pjrt.REQUIRED['jax']}"
    assert {"-r requirements.txt", plugin} <= set(lines["gpu"])
    assert extra("gpu") == ["wgan-gp[cpu]", plugin]
    assert plugin in pjrt.INSTALL_GPU and pjrt.LIBTPU["libtpu"] in pjrt.INSTALL_TPU


def test_files_of_requirements_agree():
    """Environments are made of several files. Only that of tensorflow-tpu has another libtpu."""
    versions = {}
    for path in ROOT.glob("requirements*.txt"):
        for name, version in pins_of(path.name).items():
            versions.setdefault(name.partition("[")[0], set()).add(version)
    several = {name: found for name, found in versions.items() if len(found) > 1}
    assert several == {"libtpu": {pjrt.LIBTPU["libtpu"], pins_of(TENSORFLOW_TPU)["libtpu"]}}


def planned(tmp_path, target, arguments="", existing=()):
    """Returns the commands of a make target, without their execution.

    Args:
      tmp_path: An empty folder.
      target: The target.
      arguments: The value of ARGS.
      existing: The stamps of make of what is installed.
    """
    shutil.copy(ROOT / "Makefile", tmp_path)
    for path in ROOT.glob("requirements*.txt"):
        (tmp_path / path.name).touch()
    for stamp in existing:
        (tmp_path / stamp).parent.mkdir(exist_ok=True)
        (tmp_path / stamp).touch()
    command = ["make", "--dry-run", target, f"ARGS={arguments}"]
    # `make test` passes these on, and a make inside another prints the folder.
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout


PLAIN, JAX, OTHER = ".venv/.runtime", ".venv/.tpu", ".venv-tensorflow-tpu/.runtime"


@pytest.mark.parametrize(
    ("arguments", "existing", "used"),
    [
        ("", [], PLAIN),
        ("--seed=1", [PLAIN, OTHER], PLAIN),
        ("--model_dir=gs://b/--tpu", [PLAIN, OTHER], PLAIN),
        ("--seed=1 --tpu=local", [PLAIN], JAX),
        ("-tpu local --tpu_cores=1", [], JAX),
        ("--tpu=local", [PLAIN, JAX, OTHER], JAX),
        ("--tpu=local --runtime=pjrt", [OTHER], JAX),
        ("--tpu=local", [PLAIN, OTHER], OTHER),
        ("--tpu=local --runtime=tensorflow", [PLAIN, JAX], OTHER),
        ("--tpu=NAME", [PLAIN, JAX], OTHER),
        ("--tpu z/NAME", [PLAIN, JAX], OTHER),
        ("--mode=sample", [OTHER], OTHER),
        ("--mode=sample --runtime=tensorflow", [PLAIN, OTHER], PLAIN),
    ],
)
def test_make_train_uses_the_environment_of_the_device(tmp_path, arguments, existing, used):
    commands = planned(tmp_path, "train", arguments, existing).splitlines()
    assert commands[-1].startswith(f"{used.partition('/')[0]}/bin/python train.py")
    installed = [
        re.search(r"(\S+)/bin/python -m pip install .* -r (\S+)", each).groups()
        for each in commands
        if "pip install" in each
    ]
    needed = {
        PLAIN: [(PLAIN, "requirements.txt")],
        JAX: [(PLAIN, "requirements.txt"), (JAX, "requirements-tpu.txt")],
        OTHER: [(OTHER, TENSORFLOW_TPU)],
    }[used]
    assert installed == [
        (stamp.partition("/")[0], file) for stamp, file in needed if stamp not in existing
    ]


@pytest.mark.parametrize("name", TARGETS)
def test_each_set_up_installs_its_file_once(tmp_path, name):
    commands = planned(tmp_path, f"setup-{name}", existing=[PLAIN])
    assert commands.count("pip install") == 1 and f"-r requirements-{name}.txt" in commands
    stamp = OTHER if name == "tensorflow-tpu" else f".venv/.{name}"
    assert f"touch {stamp}\n" in commands
    assert "pip install" not in planned(tmp_path, f"setup-{name}", existing=[PLAIN, stamp])


@pytest.mark.parametrize(("version", "status"), [("3.10", 1), ("3.11", 0), ("3.13", 0)])
def test_an_old_python_is_named_before_jax_is_installed(tmp_path, version, status):
    commands = planned(tmp_path, "setup-tpu", existing=[PLAIN])
    (program,) = re.findall(r'-c "(import sys; .*)"', commands)
    numbers = tuple(map(int, version.split(".")))
    program = program.replace("sys.version_info", str(numbers))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == status
    assert ("add PYTHON=python3.11 to this command" in done.stderr) == bool(status)


@pytest.mark.parametrize("target", ["setup-tpu", "setup-compile", "test", "lint", "setup-bench"])
def test_nothing_else_is_installed_into_the_environment_of_tensorflow_tpu(tmp_path, target):
    commands = planned(tmp_path, target, existing=[OTHER])
    assert "pip install" in commands and ".venv-tensorflow-tpu/" not in commands


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


def test_the_citation_has_the_version_of_the_package():
    version = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version[1] == wgan_gp.__version__


def test_windows_is_refused_before_tensorflow_is_imported(monkeypatch):
    # NumPy and others read the name of the system, too, so only the program sees another.
    monkeypatch.setattr(program, "sys", types.SimpleNamespace(platform="win32"))
    monkeypatch.setattr(tpu_environment, "prepare", lambda tpu: pytest.fail("too late"))
    with pytest.raises(UserError, match="Windows itself — use it in WSL2"):
        program.prepare_environment(None)


def test_the_program_passes_the_tpu_on(monkeypatch):
    seen = []
    monkeypatch.setattr(tpu_environment, "prepare", seen.append)
    program.prepare_environment("local")
    assert seen == ["local"]
