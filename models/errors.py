"""The error for settings of networks that cannot be built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Setting:
    """A parameter of `build` and its value, as part of a message.

    Attributes:
      name: The name of the parameter, or "image_size" for the sides of `example_shape`.
      value: The value.
    """

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Message = Sequence[str | Setting]  # the parts of a text, in order


class DesignError(ValueError):
    """Settings of networks that cannot be built.

    The message contains the names of the parameters of `build`. A program whose settings have
    other names formats the two parts of the message with `format_message`.

    Attributes:
      problem: What is wrong.
      remedy: What to do about it.
    """

    def __init__(self, problem: Message, remedy: Message):
        super().__init__(f"{format_message(problem)}: {format_message(remedy)}")
        self.problem = problem
        self.remedy = remedy


def format_message(message: Message, format_setting: Callable[[Setting], str] = str) -> str:
    """Returns a message as text.

    Args:
      message: The parts of the message.
      format_setting: Maps each setting in it to text.
    """
    return "".join(part if isinstance(part, str) else format_setting(part) for part in message)
