"""The configuration of a run: every setting with its default, its range and its help text.

flags.py defines one command-line flag per setting, and config.json in the run directory stores
all settings. This package does not import TensorFlow, so that an invalid flag is rejected at once.
"""

from .augmentation import AugmentationSettings
from .code import GROUPS, registered_names
from .config import SAVED_RUN_MODES, Config
from .data import DataSettings
from .devices import DeviceSettings
from .image_size import image_size_of, sides_of
from .networks import CONDITIONINGS, CRITIC_NORMALIZATIONS, NetworkSettings
from .objective import ObjectiveSettings
from .optimization import OptimizationSettings
from .output import EXTRACTORS, OutputSettings, ScoreSettings
from .resume import settings_of_run
from .settings import Seeded, as_text, has_flag, value_type
from .sweep import SweepSettings

__all__ = [
    "CONDITIONINGS",
    "CRITIC_NORMALIZATIONS",
    "EXTRACTORS",
    "GROUPS",
    "SAVED_RUN_MODES",
    "AugmentationSettings",
    "Config",
    "DataSettings",
    "DeviceSettings",
    "NetworkSettings",
    "ObjectiveSettings",
    "OptimizationSettings",
    "OutputSettings",
    "ScoreSettings",
    "Seeded",
    "SweepSettings",
    "as_text",
    "has_flag",
    "image_size_of",
    "registered_names",
    "settings_of_run",
    "sides_of",
    "value_type",
]
