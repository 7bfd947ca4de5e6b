"""The private names of jax that one file uses."""

import ast
import pathlib

import pytest

from wgan_gp.pjrt import client

PRIVATE = ("compiler", "jax_mlir", "_jax", "xla_client", "_hlo", "stablehlo_dialect")
SOURCE = pathlib.Path(client.__file__).read_text()


def private_names(source=SOURCE):
    """Returns the dotted names in a program that begin with a private module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        parts, value = [], node
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if parts and isinstance(value, ast.Name) and value.id in PRIVATE:
            found.add(".".join([value.id, *reversed(parts)]))
    return found


@pytest.mark.parametrize("name", sorted(private_names()))
def test_jax_has_what_the_client_uses(name):
    module, *attributes = name.split(".")
    value = getattr(client, module)
    for attribute in attributes:
        assert hasattr(value, attribute), f"this version of jax has no {name}"
        value = getattr(value, attribute)


def test_all_names_are_used_when_the_client_is_imported():
    """A user with another version of jax then gets one line; see `connection.check_jax`."""
    used, rest = SOURCE.split("_USED = (", 1)[1].split("\n)\n", 1)
    names = [line.strip().rstrip(",") for line in used.splitlines() if line.strip()]
    later = private_names(rest) - {"_jax.JaxRuntimeError"}  # used where it is imported, too
    missing = [
        name for name in later if not any(f"{each}.".startswith(f"{name}.") for each in names)
    ]
    assert missing == []
