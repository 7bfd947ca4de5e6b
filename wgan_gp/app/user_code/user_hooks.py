"""The hooks that --hooks names: classes of the user that act between loops."""

from __future__ import annotations

import typing

from ...config import Config
from ...errors import UserError, explaining, shown
from . import loading

if typing.TYPE_CHECKING:
    from ...training.hooks import Hook


def check(value: str | None) -> None:
    """Raises UserError if --hooks does not name code; nothing is imported."""
    for name in loading.split_names(value):
        if not loading.is_reference(name):
            raise UserError(
                f"--hooks={value}: {name or 'an empty name'} is not a hook",
                "give FILE.py:NAME or MODULE:NAME, separated by commas",
            )


def load(config: Config) -> list[Hook]:
    """Imports and creates the hooks that --hooks names, each with the configuration.

    Raises:
      UserError: If a hook cannot be imported or created.
    """
    from ...training.hooks import Hook  # noqa: PLC0415

    hooks = []
    for name in loading.split_names(config.hooks):
        make = loading.load_code("hooks", name).get()
        with explaining(f"--hooks={name}"):
            hook = make(config)
        if not isinstance(hook, Hook):
            raise UserError(
                f"--hooks={name} returned {shown(hook)}, which is not a Hook",
                "let it return an object of a subclass of wgan_gp.Hook",
            )
        hooks.append(hook)
    return hooks
