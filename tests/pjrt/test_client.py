"""The private names of jax that one file uses."""

import ast
import pathlib

import pytest

from wgan_gp.pjrt import client

PRIVATE = ("compiler", "jax_mlir", "_jax", "xla_client", "_hlo", "stablehlo_dialect")
SOURCE = pathlib.Path(client.__file__).read_text()


def private_names():
    """Returns the dotted names in client.py that begin with a private module."""
    found = set()
    for node in ast.walk(ast.parse(SOURCE)):
        parts, value = [], node
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if parts and isinstance(value, ast.Name) and value.id in PRIVATE:
            found.add(".".join([value.id, *reversed(parts)]))
    return sorted(found)


@pytest.mark.parametrize("name", private_names())
def test_jax_has_what_the_client_uses(name):
    module, *attributes = name.split(".")
    value = getattr(client, module)
    for attribute in attributes:
        assert hasattr(value, attribute), f"this version of jax has no {name}"
        value = getattr(value, attribute)


def test_the_names_are_found():
    assert {"_jax.DeviceList", "compiler.compile_or_get_cached"} <= set(private_names())
