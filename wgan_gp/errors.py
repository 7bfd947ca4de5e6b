"""The exceptions that are the user's to mend."""

import re


class UserError(Exception):
    """A mistake in a flag or a file, shown as `error: <what> — <what to do>`, exit status 2.

    Args:
      what: the flag or file and what is wrong with it.
      remedy: what to do about it.
    """

    def __init__(self, what: str, remedy: str):
        # A library's message or a path inside may have lines of its own; the user gets one.
        super().__init__(printable(" ".join(f"{what} — {remedy}".split())))
        self.what = what
        self.remedy = remedy


class NotFiniteError(UserError):
    """The state, or what it was to be updated with, holds NaN or infinity."""


def shorten(text: str, length: int = 120) -> str:
    """Returns a text, or what it begins and ends with where it is longer than `length`."""
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
    """The first line of another's error, without TensorFlow's names of its own operations."""
    first = str(getattr(error, "message", error)).partition("\n")[0]
    return re.sub(r"\{\{.*?\}\} ?", "", first)[:200]
