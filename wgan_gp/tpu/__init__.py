"""Compiling for a TPU slice on a machine that has none; docs/compile.md says how it works."""

import importlib.metadata

from ..errors import UserError

# Exactly these: part of the way to the compiler is jaxlib's private interface. A test holds
# requirements-compile.txt and pyproject.toml to them.
REQUIRED = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.51"}


def check_installed() -> None:
    """Raises UserError unless the compiler, and the way to it, are here at their versions."""
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
