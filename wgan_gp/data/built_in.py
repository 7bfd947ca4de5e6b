"""The datasets without files; this module does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib
import typing

from ..config import DataSettings, DeviceSettings
from ..errors import UserError
from .shapes import image_shape

if typing.TYPE_CHECKING:
    from .source import InMemoryData


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A dataset without files.

    Attributes:
      module: The module of this package whose `open_data` opens the dataset.
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of its labels; 0 without labels.
    """

    module: str
    example_shape: tuple[int, ...]
    classes: int = 0


BUILT_IN = {
    "digits": BuiltIn("digits", (8, 8, 1), classes=10),
    "gaussians_8": BuiltIn("toys", (2,), classes=8),
    "gaussians_25": BuiltIn("toys", (2,), classes=25),
    "swiss_roll": BuiltIn("toys", (2,)),
}


class BuiltInReader:
    """Reads a built-in dataset; see DatasetReader."""

    def __init__(self, settings: DataSettings):
        entry = BUILT_IN[settings.dataset]
        self._module = f".{entry.module}"
        self.label_count = entry.classes
        if len(entry.example_shape) == 3:
            side, _, channels = entry.example_shape
            self.example_shape: tuple[int, ...] = image_shape(settings, side, channels)
        else:
            _refuse_image_flags(settings)
            self.example_shape = entry.example_shape

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData:
        module = importlib.import_module(self._module, __package__)
        return module.open_data(settings, self.example_shape)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> InMemoryData:
        return self.open(settings, classes=0, devices=devices)

    def fingerprint(self, settings: DataSettings) -> None:
        return None


def _refuse_image_flags(settings: DataSettings) -> None:
    for name in ("image_size", "image_channels"):
        if (value := getattr(settings, name)) is not None:
            raise UserError(
                f"--{name}={value} applies only to images, but --dataset={settings.dataset} "
                "contains points",
                "omit it",
            )
