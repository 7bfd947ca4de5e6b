"""Adds flags.py to the wheel as wgan_gp.flags; pyproject.toml has everything else.

A checkout has flags.py at its top. Installed there, under such a general name, it would collide
with other packages.
"""

import setuptools
from setuptools.command.build_py import build_py


class BuildWithFlags(build_py):
    """Builds the packages, and wgan_gp.flags from flags.py."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, package_dir)
        return [*modules, ("wgan_gp", "flags", "flags.py")] if package == "wgan_gp" else modules


setuptools.setup(cmdclass={"build_py": BuildWithFlags})
