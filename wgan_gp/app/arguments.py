"""Checks of the arguments of `wgan_gp.train`."""

from __future__ import annotations

from typing import Any

from ..config import Config
from ..errors import UserError, shorten
from ..training.hooks import Hook
from ..writers.writer import Writer


def check_arguments(config: Any, writers: Any, hooks: Any) -> None:
    """Raises UserError unless the arguments of `wgan_gp.train` have the documented types."""
    if not isinstance(config, Config):
        raise UserError(f"config is {shorten(repr(config))}", "pass a wgan_gp.Config")
    for name, values, kind in (("writers", writers, Writer), ("hooks", hooks, Hook)):
        if not isinstance(values, (list, tuple)):
            raise UserError(f"{name} is {shorten(repr(values))}", f"pass a list: {name}=[...]")
        for value in values:
            if not isinstance(value, kind):
                raise UserError(
                    f"{name} contains {shorten(repr(value))}",
                    f"pass objects of subclasses of wgan_gp.{kind.__name__}",
                )
