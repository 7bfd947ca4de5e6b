"""Compilation for a TPU slice on a machine without a TPU; see docs/compile.md."""

import platform
import sys

from .. import pjrt
from ..errors import UserError
from ..runtime.tpu_machine import installed_versions

# The exact versions matter, because the estimates depend on them.
# A test compares requirements-compile.txt and pyproject.toml with them.
REQUIRED = {**pjrt.REQUIRED, **pjrt.LIBTPU}


def check_installed() -> None:
    """Raises UserError unless jax, jaxlib and libtpu are installed in the required versions."""
    system = f"{sys.platform} on {platform.machine()}"
    if system != "linux on x86_64":
        raise UserError(
            f"--mode=compile needs libtpu, which exists only for Linux on x86_64, not for {system}",
            "run it on a Linux machine with an x86_64 CPU",
        )
    found_versions = installed_versions(REQUIRED)
    for package, version in REQUIRED.items():
        installed = found_versions.get(package)
        if installed != version:
            found = f"version {installed} is installed" if installed else "it is not installed"
            raise UserError(
                f"--mode=compile requires {package} {version} for the TPU compiler, but {found}",
                "run make setup-compile",
            )
