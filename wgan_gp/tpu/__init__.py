"""Compilation for a TPU slice on a machine without a TPU; see docs/compile.md."""

from .. import pjrt
from ..errors import UserError
from ..runtime.tpu_machine import installed_versions

# The exact versions matter, because the estimates depend on them.
# A test compares requirements-compile.txt and pyproject.toml with them.
REQUIRED = {**pjrt.REQUIRED, **pjrt.LIBTPU}


def check_installed() -> None:
    """Raises UserError unless jax, jaxlib and libtpu are installed in the required versions."""
    found_versions = installed_versions(REQUIRED)
    for package, version in REQUIRED.items():
        installed = found_versions.get(package)
        if installed != version:
            found = f"version {installed} is installed" if installed else "it is not installed"
            raise UserError(
                f"--mode=compile requires {package} {version} for the TPU compiler, but {found}",
                "run make setup-compile",
            )
