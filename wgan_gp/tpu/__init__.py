"""Compiles for a TPU slice on a machine without a TPU; docs/compile.md explains how."""

import importlib.metadata

from ..errors import UserError

# The exact versions matter, because the compiler is called through a private interface of jaxlib.
# A test compares requirements-compile.txt and pyproject.toml with them.
REQUIRED = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.51"}


def check_installed() -> None:
    """Raises UserError unless jax, jaxlib and libtpu are installed in the required versions."""
    for package, version in REQUIRED.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        if found != version:
            raise UserError(
                f"--mode=compile needs {package} {version} for the TPU's compiler; it is {found}",
                "make setup-compile installs it",
            )
