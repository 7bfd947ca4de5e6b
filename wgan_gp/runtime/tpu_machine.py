"""The TPU chips, the TensorFlow packages and libtpu of this machine, found without TensorFlow.

On a TPU VM some errors end the process while TensorFlow is imported, before it can raise an
exception. The checks of this module therefore read only files.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import mmap
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..errors import UserError

LOCK_FILE = "/tmp/libtpu_lockfile"
OMIT = "omit --tpu to train on the CPU"
# TensorFlow 2.20 loads these functions of libtpu; 0.0.18 has them, 0.0.51 lacks the first two.
SYMBOLS = ("ConfigureDistributedTpuOp_DoWork", "TpuPlatform_New", "TfTpu_Initialize")
# With one of these, several processes share the chips of a machine.
_SHARING = ("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
# Google's network and disk devices have the same PCI vendor as its TPU chips. v2 and v3 share a
# device ID.
_VENDOR = "0x1ae0"
_GENERATIONS = {
    "0x0027": "v2 or v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "TPU7x",
}


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    name: str


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Returns the versions of those packages that are installed, by name."""
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def find_chips(root: str = "/") -> list[str]:
    """Returns the device files of the TPU chips, or else their PCI addresses.

    Args:
      root: The root of the file system; replaceable by tests.
    """
    files = _device_files(root)
    if files:
        return files
    return [device.name for device, _ in _pci_chips(root)]


def find_generation(root: str = "/") -> str | None:
    """Returns the generation of this machine's TPU chips, such as "v5e", or None if unknown.

    Args:
      root: The root of the file system; replaceable by tests.
    """
    return next((generation for _, generation in _pci_chips(root)), None)


def find_user(root: str = "/") -> Process | None:
    """Returns another process that has opened a chip or libtpu's lock file, or None.

    Processes of other users can be seen only by root.

    Args:
      root: The root of the file system; replaceable by tests.
    """
    opened = {*_device_files(root), os.path.join(root, LOCK_FILE.lstrip("/"))}
    for link in pathlib.Path(root).glob("proc/[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:  # another user's process, or it has ended
            continue
        process = link.parent.parent
        if target in opened and int(process.name) != os.getpid():
            return Process(int(process.name), _read(process / "comm"))
    return None


def find_libtpu(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns the path of the libtpu that TensorFlow loads, or None if there is none."""
    if path := environment.get("TPU_LIBRARY_PATH"):
        return path
    package = importlib.util.find_spec("libtpu")
    if package is None or package.origin is None:
        return None
    return os.path.join(os.path.dirname(package.origin), "libtpu.so")


def missing_symbols(path: str) -> list[str]:
    """Returns those functions of `SYMBOLS` that a libtpu lacks, without loading it.

    Raises:
      OSError: If the file cannot be read.
      ValueError: If the file is empty.
    """
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return [symbol for symbol in SYMBOLS if content.find(f"{symbol}\0".encode()) < 0]


def check(environment: Mapping[str, str] = os.environ, root: str = "/") -> None:
    """Raises UserError if tensorflow-tpu is installed but cannot use a TPU of this machine.

    TensorFlow without TPU support is not an error here: connecting to the TPU shows that it has
    none, whatever its package is called.

    Args:
      environment: The environment variables.
      root: The root of the file system; replaceable by tests.

    Raises:
      UserError: If the machine has no TPU chip, libtpu is disabled, missing or unsuitable, or
        another process uses the chips.
    """
    if installed_versions(["tensorflow-tpu"]) and (problem := find_problem(environment, root)):
        raise problem


def find_problem(environment: Mapping[str, str] = os.environ, root: str = "/") -> UserError | None:
    """Returns the reason why TensorFlow cannot use a TPU of this machine, or None if unknown.

    Args:
      environment: The environment variables.
      root: The root of the file system; replaceable by tests.
    """
    if not find_chips(root):
        return UserError(
            "--tpu=local: this machine has no TPU chip",
            f"run it on a TPU VM, give --tpu=NAME for another machine's TPU, or {OMIT}",
        )
    if environment.get("TPU_LOAD_LIBRARY") == "0":
        return UserError(
            "--tpu=local: TPU_LOAD_LIBRARY=0 prevents TensorFlow from using the chips",
            "run `unset TPU_LOAD_LIBRARY`; it is meant for --tpu=NAME and TensorBoard",
        )
    if problem := check_libtpu(find_libtpu(environment)):
        return problem
    user = None if any(map(environment.get, _SHARING)) else find_user(root)
    return user and in_use_error(user.pid, user.name)


def check_libtpu(path: str | None) -> UserError | None:
    """Returns the reason why TensorFlow cannot load a libtpu, or None if it can.

    Args:
      path: The path of the library; see `find_libtpu`.
    """
    install = "run make setup-tensorflow-tpu, which installs the version that TensorFlow requires"
    if path is None:
        return UserError("libtpu, the driver of TPUs, is not installed", install)
    try:
        missing = missing_symbols(path)
    except (OSError, ValueError) as error:
        return UserError(
            f"libtpu cannot be read at {path} ({getattr(error, 'strerror', None) or error})",
            f"unset TPU_LIBRARY_PATH, or {install}",
        )
    if missing:
        return UserError(
            f"{path} lacks {missing[0]}, which TensorFlow loads",
            f"unset TPU_LIBRARY_PATH if it is set; {install}",
        )
    return None


def in_use_error(pid: int | None, name: str | None = None) -> UserError:
    """Returns the error for chips that another process uses.

    Args:
      pid: The ID of the process, or None if it is unknown.
      name: The name of the process, or None if it is unknown.
    """
    process = f"process {pid}" if pid else "another process"
    end = f"end it with `kill {pid}`" if pid else f"find it with `sudo lsof -w {LOCK_FILE}`"
    return UserError(
        f"--tpu=local: {process}{f' ({name})' if name else ''} uses the TPU of this machine, and "
        "only one process can",
        f"{end}; if there is no such process, run `sudo rm -f {LOCK_FILE}`",
    )


def _pci_chips(root: str) -> list[tuple[pathlib.Path, str]]:
    """Returns the PCI device and the generation of each known TPU chip."""
    devices = sorted(pathlib.Path(root).glob("sys/bus/pci/devices/*"))
    return [
        (device, generation)
        for device in devices
        if _read(device / "vendor") == _VENDOR
        and (generation := _GENERATIONS.get(_read(device / "device")))
    ]


def _device_files(root: str) -> list[str]:
    files = glob.glob(os.path.join(root, "dev/accel[0-9]*"))
    groups = glob.glob(os.path.join(root, "dev/vfio/[0-9]*"))
    return sorted(files + groups, key=lambda path: [int(n) for n in re.findall(r"\d+", path)])


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
