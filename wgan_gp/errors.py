"""Exceptions for mistakes that the user can correct, and the text of error messages."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging


class UserError(Exception):
    """A mistake that the user can correct, printed as `error: <what> — <remedy>`.

    The exit status of the program is then 2.

    Args:
      what: The flag or the file, and what is wrong with it.
      remedy: The action that corrects it.
    """

    def __init__(self, what: str, remedy: str):
        # A path or a library's message may contain line breaks, but an error is one line.
        super().__init__(printable(" ".join(f"{what} — {remedy}".split())))
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.remedy)  # so that it can be pickled


_MISSING = object()  # stands for an attribute that an object does not have


class NotFiniteError(UserError):
    """The state, a loss or a gradient contains NaN or infinity."""


@contextlib.contextmanager
def naming(origin: str) -> Iterator[None]:
    """Begins the message of each UserError with its origin, such as a file or a flag."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{origin}: {error.what}", error.remedy) from None


_COLOR = re.compile("\x1b\\[[0-9;]*m")  # Keras emphasizes a part of its messages


@contextlib.contextmanager
def explaining(what: str) -> Iterator[None]:
    """Converts errors of the user's code to a UserError of one line.

    This includes SystemExit, which would otherwise end the program with the status of a success.
    The traceback is logged at the level of --verbosity=1.

    Args:
      what: The code that may fail, at the beginning of the message.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        logging.debug("".join(traceback.format_exception(error)))
        # TensorFlow appends the traceback of Python code to its messages.
        text = reason(error) if hasattr(error, "node_def") else " ".join(text_of(error).split())
        text = shorten(_COLOR.sub("", text), 200)
        raise UserError(
            f"{what} failed ({': '.join(filter(None, (type(error).__name__, text)))})",
            "correct it; --verbosity=1 shows the traceback",
        ) from error


class Reporting:
    """Forwards everything to an object of the user, whose errors become a UserError of one line.

    Args:
      target: The object.
      name: The object at the beginning of the message, before the name of a method.
    """

    def __init__(self, target: Any, name: str):
        self._target = target
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute in ("_target", "_name"):  # a copy is being created
            raise AttributeError(attribute)
        with explaining(self._name):  # of a property
            value = getattr(self._target, attribute, _MISSING)
        if value is _MISSING:
            raise AttributeError(f"{self._name} has no {attribute}")
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            with explaining(f"{self._name}: {attribute}"):
                return value(*args, **kwargs)

        return call


def text_of(value: object, convert: Callable[[Any], str] = str) -> str:
    """Returns the text of an exception or another object of the user, "" if it fails to give one.

    Args:
      value: The object.
      convert: Returns its text: str or repr.
    """
    try:
        return convert(value)
    except BaseException:  # of the user's __str__ or __repr__
        return ""


def shown(value: object) -> str:
    """Returns the representation of an object of the user, shortened, or else its type."""
    return shorten(text_of(value, repr) or f"an object of {type(value).__name__}")


def shorten(text: str, length: int = 120) -> str:
    """Returns a text, or only its beginning and end if it is longer than `length`."""
    if len(text) <= length:
        return text
    return f"{text[: length // 2]}...{text[-length // 4 :]}"


def printable(text: str) -> str:
    r"""Returns a text in which characters that a terminal would not print are escaped.

    Bytes of a path that are not UTF-8, which Python represents as surrogates, become \xff.
    """
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    byte = ord(character) - 0xDC00
    if 0x80 <= byte <= 0xFF:
        return f"\\x{byte:02x}"
    return character.encode("unicode_escape").decode()


# TensorFlow's first lines of an error inside a function, which precede the cause.
_PREAMBLE = re.compile(
    r"Graph execution error:|Detected at node |Node: '|Stack trace|<stack traces"
    r"|\d+ root error|\s|$"
)


# What TensorFlow writes around the cause: names of nodes, of operations and of steps of a dataset.
_POSITION = re.compile(
    r"\{\{.*?\}\} ?"
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+: "
    r"| \[Op:\w+\]( name: ?\S*)?$"
)


def reason(error: BaseException | str) -> str:
    """Returns the cause of a library's error in one line, without names of TensorFlow nodes."""
    text = _POSITION.sub("", text_of(getattr(error, "message", error)).strip())
    lines = text.splitlines() or [""]
    cause = next((line for line in lines if not _PREAMBLE.match(line)), lines[0])
    return cause.strip()[:200]
