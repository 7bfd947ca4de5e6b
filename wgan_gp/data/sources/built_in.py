"""The built-in datasets, which have no files; this module does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib
import typing

from ...config import DataSettings, DeviceSettings
from ...errors import UserError
from ..spec import names_of_numbers
from .shapes import image_shape, is_cropped

if typing.TYPE_CHECKING:
    from ..opened_data import InMemoryData


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
    """Reads a built-in dataset; see datasets.DatasetReader."""

    def __init__(self, settings: DataSettings):
        entry = BUILT_IN[settings.dataset]
        self._module = f".{entry.module}"
        self.class_names = names_of_numbers(entry.classes)
        if len(entry.example_shape) == 3:
            height, width, channels = entry.example_shape
            _check_channels(settings)
            shape = image_shape(settings, (height, width), channels)
            if settings.crop == "none" and is_cropped((height, width), shape[:2]):
                raise UserError(
                    f"--crop=none does not permit to crop the images of {height}x{width} pixels of "
                    f"--dataset={settings.dataset} to --image_size={settings.image_size}",
                    "give another size, or use --crop=center",
                )
            self.example_shape: tuple[int, ...] = shape
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

    def with_settings(self, settings: DataSettings) -> BuiltInReader:
        return BuiltInReader(settings)

    def fingerprint(self, settings: DataSettings) -> None:
        return None


def _check_channels(settings: DataSettings) -> None:
    if settings.image_channels not in (None, 1, 3):
        raise UserError(
            f"--image_channels={settings.image_channels} does not apply to --dataset="
            f"{settings.dataset}, which is gray",
            "use 1 or 3, or omit it",
        )


def _refuse_image_flags(settings: DataSettings) -> None:
    for name in ("image_size", "image_channels"):
        if (value := getattr(settings, name)) is not None:
            raise UserError(
                f"--{name}={value} applies only to images, but --dataset={settings.dataset} "
                "contains points",
                "omit it",
            )
