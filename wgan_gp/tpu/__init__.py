"""Compiling for a TPU slice on a machine that has none; docs/compile.md says how it works."""

# Exactly these: part of the way to the compiler is jaxlib's private interface. A test holds
# requirements-compile.txt and pyproject.toml to them.
REQUIRED = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.51"}
