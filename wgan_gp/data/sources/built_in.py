"""The built-in datasets, which have no files; this module does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib

from ...config import DataSettings
from ...errors import UserError
from ..source import Source
from ..spec import DataSpec, names_of_numbers
from .shapes import image_shape, is_cropped


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A dataset without files.

    Attributes:
      module: The module of this package whose `open_source` opens the dataset.
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of its labels; 0 without labels.
      size: The number of examples; None if they are endless.
    """

    module: str
    example_shape: tuple[int, ...]
    classes: int = 0
    size: int | None = None


BUILT_IN = {
    "digits": BuiltIn("digits", (8, 8, 1), classes=10, size=1797),
    "gaussians_8": BuiltIn("toys", (2,), classes=8),
    "gaussians_25": BuiltIn("toys", (2,), classes=25),
    "swiss_roll": BuiltIn("toys", (2,)),
}


def find_source(settings: DataSettings) -> Source:
    """Finds a built-in dataset.

    Raises:
      UserError: If a flag of images does not apply to it.
    """
    entry, origin = BUILT_IN[settings.dataset], f"--dataset={settings.dataset}"
    shape = entry.example_shape
    if len(shape) == 3:
        height, width, channels = shape
        shape = image_shape(settings, (height, width), channels)
        if settings.image_channels not in (None, 1, 3):
            raise UserError(
                f"--image_channels={settings.image_channels} does not apply to {origin}, which is "
                "gray",
                "use 1 or 3, or omit it",
            )
        if settings.crop == "none" and is_cropped((height, width), shape[:2]):
            raise UserError(
                f"--crop=none does not permit to crop the images of {height}x{width} pixels of "
                f"{origin} to --image_size={settings.image_size}",
                "give another size, or use --crop=center",
            )
    else:
        for name in ("image_size", "image_channels"):
            if (value := getattr(settings, name)) is not None:
                raise UserError(
                    f"--{name}={value} applies only to images, but {origin} contains points",
                    "omit it",
                )
    names = names_of_numbers(entry.classes) or None
    spec = DataSpec(shape, entry.classes, len(shape) == 3, class_names=names)
    source = Source(origin, spec, "float32", entry.size, resizable=True)
    module = f".{entry.module}"
    return dataclasses.replace(
        source,
        decode=lambda _: importlib.import_module(module, __package__).open_source(settings, source),
    )
