"""The error for choices of networks that cannot be built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Choice:
    """A parameter of `build` and a value, as part of a message.

    Attributes:
      name: the name of the parameter, or "image_size" for the sides of `example_shape`.
      value: the value.
    """

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Message = Sequence[str | Choice]  # the parts of a text, in order


class DesignError(ValueError):
    """A choice of networks that cannot be built.

    Its message names the parameters of `build`. A caller that calls them otherwise spells the two
    parts of the message with `spelled`.

    Attributes:
      problem: what is wrong.
      remedy: what to do about it.
    """

    def __init__(self, problem: Message, remedy: Message):
        super().__init__(f"{spelled(problem)}: {spelled(remedy)}")
        self.problem = problem
        self.remedy = remedy


def spelled(message: Message, choice: Callable[[Choice], str] = str) -> str:
    """Returns a message as text, with each of its choices spelled by `choice`."""
    return "".join(part if isinstance(part, str) else choice(part) for part in message)
