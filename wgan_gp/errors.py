"""Exceptions for mistakes that the user can correct."""

import re


class UserError(Exception):
    """A mistake in a flag or a file, shown as `error: <what> — <what to do>`, exit status 2.

    Args:
      what: The flag or the file, and what is wrong with it.
      remedy: The action that corrects it.
    """

    def __init__(self, what: str, remedy: str):
        # A path or a library's message may contain line breaks; the user gets one line.
        super().__init__(printable(" ".join(f"{what} — {remedy}".split())))
        self.what = what
        self.remedy = remedy


class NotFiniteError(UserError):
    """The state, a loss or a gradient contains NaN or infinity."""


def shorten(text: str, length: int = 120) -> str:
    """Returns a text, or its beginning and end if it is longer than `length`."""
    if len(text) <= length:
        return text
    return f"{text[: length // 2]}...{text[-length // 4 :]}"


def printable(text: str) -> str:
    r"""Returns a text with escapes for what would not show, or would steer a terminal.

    Bytes of a path that are not UTF-8, which Python holds as surrogates, become \xff.
    """
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    byte = ord(character) - 0xDC00
    if 0x80 <= byte <= 0xFF:
        return f"\\x{byte:02x}"
    return character.encode("unicode_escape").decode()


def reason(error: Exception) -> str:
    """Returns the first line of a library's error, without TensorFlow's names of operations."""
    first = str(getattr(error, "message", error)).partition("\n")[0]
    return re.sub(r"\{\{.*?\}\} ?", "", first)[:200]
