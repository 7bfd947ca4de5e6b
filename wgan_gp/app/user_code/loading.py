"""Loads code of the user (networks, datasets, objectives, writers) from a file or a module."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import traceback
from types import ModuleType
from typing import Any

from absl import logging

from ...errors import UserError, shorten


@dataclasses.dataclass(frozen=True)
class UserCode:
    """A loaded module of the user.

    Attributes:
      flag: The name of the flag that names the code, without dashes.
      reference: The value of the flag, such as "networks.py" or "losses.py:MyObjective".
      module: The module, or the object that an entry point names.
      name: The name after the colon; None without one.
      sha256: The hash of the file, in hexadecimal; None if the module has no file.
    """

    flag: str
    reference: str
    module: Any
    name: str | None
    sha256: str | None

    def get(self, name: str | None = None) -> Any:
        """Returns an object of the module.

        Args:
          name: The name of the object. Defaults to the name after the colon.

        Raises:
          UserError: If the module does not define it.
        """
        name = name or self.name
        if name is None:
            raise UserError(
                f"--{self.flag}={self.reference} does not name an object",
                f"give --{self.flag}={self.reference}:NAME",
            )
        if getattr(self.module, name, None) is None:
            is_none = " except as None" if hasattr(self.module, name) else ""
            raise UserError(
                f"--{self.flag}={self.reference} does not define {shorten(name)}{is_none}",
                "define it there, or correct the name",
            )
        return getattr(self.module, name)


def is_reference(value: str) -> bool:
    """Returns True if a value refers to user code, and is not the name of something built in.

    References are paths of this machine that end in .py, module names that contain a dot, and
    either of them followed by a colon and a name.
    """
    if "://" in value:
        return False
    path = value.partition(":")[0]
    return path.endswith(".py") or ("." in path and _is_module_name(path))


def load(flag: str, reference: str) -> UserCode:
    """Imports the code that a flag names.

    Args:
      flag: The name of the flag, without dashes.
      reference: The path of a Python file or the name of a module, optionally followed by a colon
        and the name of an object in it.

    Raises:
      UserError: If the file does not exist or cannot be imported. The traceback is logged at the
        level of --verbosity=1.
    """
    origin, _, name = reference.partition(":")
    try:
        module = _import_file(origin) if origin.endswith(".py") else _import_module(origin)
    except UserError as error:
        raise UserError(f"--{flag}={reference}: {error.what}", error.remedy) from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _import_error(flag, reference, error) from None
    return UserCode(flag, reference, module, name or None, _hash(module))


def load_entry_point(flag: str, group: str, name: str) -> UserCode | None:
    """Loads the code that an installed package registers, or returns None if there is none.

    Raises:
      UserError: If it cannot be imported.
    """
    for entry in importlib.metadata.entry_points(group=group, name=name):
        try:
            found = entry.load()
            module = sys.modules.get(entry.module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _import_error(flag, name, error) from None
        return UserCode(flag, name, found, None, None if module is None else _hash(module))
    return None


def _import_file(origin: str) -> ModuleType:
    path = pathlib.Path(os.path.expanduser(origin)).absolute()
    if not path.is_file():
        raise UserError("there is no such file", "give the path of a Python file")
    # The file may import modules next to it, as a program can.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    # The name differs from those of other modules, such as a package called "models". Classes of
    # the module can be found under it, which dataclasses and Keras need.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(origin: str) -> ModuleType:
    if not _is_module_name(origin):
        raise UserError(
            "this is neither a Python file nor the name of a module", "give FILE.py or PACKAGE.NAME"
        )
    if os.getcwd() not in sys.path:  # an installed program does not have it there
        sys.path.append(os.getcwd())
    return importlib.import_module(origin)


def _is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _import_error(flag: str, reference: str, error: BaseException) -> UserError:
    """Returns the error for code that cannot be imported, and logs the traceback."""
    logging.debug("".join(traceback.format_exception(error)))
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    place = f", {os.path.basename(inside[-1].filename)}, line {inside[-1].lineno}" if inside else ""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        place = f", {os.path.basename(error.filename or '')}, line {error.lineno}"
    text = shorten(str(error).partition("\n")[0])
    return UserError(
        f"--{flag}={reference} cannot be imported ({type(error).__name__}: {text}{place})",
        "correct it; --verbosity=1 shows the traceback",
    )


def _hash(module: ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
