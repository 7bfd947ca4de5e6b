"""The configuration of a run: every setting with its default, its range and its help text.

flags.py defines one command-line flag per setting, and config.json in the run directory stores
all settings. This package does not import TensorFlow, so that an invalid flag is rejected at once.
"""

from .augmentation import AugmentationSettings
from .config import CODE_SETTINGS, Config
from .data import (
    COLUMN_SETTINGS,
    LARGEST_SIDE,
    DataSettings,
    image_size_of,
    parse_image_size,
    sides_of,
)
from .devices import DeviceSettings
from .networks import (
    CONDITIONINGS,
    CRITIC_NORMALIZATIONS,
    GENERATOR_NORMALIZATIONS,
    NetworkSettings,
)
from .objective import GRADIENT_PENALTIES, ObjectiveSettings
from .optimization import OptimizationSettings
from .output import EXTRACTORS, EvaluationSettings, OutputSettings, SamplingSettings
from .settings import (
    PYTHON,
    SAVED_RUN_MODES,
    Seeded,
    as_text,
    check_requirements,
    has_flag,
    settings_with,
    unmet,
    value_type,
)

__all__ = [
    "CODE_SETTINGS",
    "COLUMN_SETTINGS",
    "CONDITIONINGS",
    "CRITIC_NORMALIZATIONS",
    "EXTRACTORS",
    "GENERATOR_NORMALIZATIONS",
    "GRADIENT_PENALTIES",
    "LARGEST_SIDE",
    "PYTHON",
    "SAVED_RUN_MODES",
    "AugmentationSettings",
    "Config",
    "DataSettings",
    "DeviceSettings",
    "EvaluationSettings",
    "NetworkSettings",
    "ObjectiveSettings",
    "OptimizationSettings",
    "OutputSettings",
    "SamplingSettings",
    "Seeded",
    "as_text",
    "check_requirements",
    "has_flag",
    "image_size_of",
    "parse_image_size",
    "settings_with",
    "sides_of",
    "unmet",
    "value_type",
]
