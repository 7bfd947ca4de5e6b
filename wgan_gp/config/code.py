"""The settings for code of the user, and the record of its files."""

from __future__ import annotations

import dataclasses
import importlib.metadata

from .settings import Section, recorded, setting

PYTHON = "python"  # the value of a setting for an object that was passed to wgan_gp.train

# The settings that may name code of the user; see app/user_code/loading.py.
CODE_SETTINGS = ("model", "generator_model", "dataset", "objective")


# The groups of entry points in which installed packages register values of a setting.
GROUPS = {
    "model": "wgan_gp.models",
    "generator_model": "wgan_gp.models",
    "dataset": "wgan_gp.datasets",
}


def registered_names(setting: str) -> list[str]:
    """Returns the values of a setting that installed packages register.

    Args:
      setting: A key of GROUPS.
    """
    entries = importlib.metadata.entry_points(group=GROUPS[setting])
    return sorted({entry.name for entry in entries})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSettings(Section):
    """Code of the user that the other sections do not name, and the hashes of all its files.

    Attributes:
      model_sha256, generator_model_sha256, dataset_sha256, objective_sha256: The hash of the file
        that the setting names, in hexadecimal. None if it names no file.
    """

    objective: str | None = setting(
        None,
        "Objective of your own, FILE.py:NAME or MODULE:NAME, in place of the flags of the losses "
        "(docs/custom.md).",
    )
    model_sha256: str | None = recorded()
    generator_model_sha256: str | None = recorded()
    dataset_sha256: str | None = recorded()
    objective_sha256: str | None = recorded()
