"""The built-in datasets, which have no files; this module does not import TensorFlow."""

from __future__ import annotations

import dataclasses

from ...config import DataSettings
from ...errors import UserError
from ..source import Source
from ..spec import DataSpec, names_of_numbers
from .shapes import image_shape, is_cropped

# The shape of an example, `(H, W, C)` for images and `(D,)` for points, the number of classes, and
# the number of examples, or None if they are endless.
BUILT_IN: dict[str, tuple[tuple[int, ...], int, int | None]] = {
    "digits": ((8, 8, 1), 10, 1797),
    "gaussians_8": ((2,), 8, None),
    "gaussians_25": ((2,), 25, None),
    "swiss_roll": ((2,), 0, None),
}


def find_source(settings: DataSettings) -> Source:
    """Finds a built-in dataset.

    Raises:
      UserError: If a flag of images does not apply to it.
    """
    shape, classes, size = BUILT_IN[settings.dataset]
    origin, is_image = f"--dataset={settings.dataset}", len(shape) == 3
    if is_image:
        own, shape = (shape[0], shape[1]), image_shape(settings, (shape[0], shape[1]), shape[2])
        if settings.image_channels not in (None, 1, 3):
            raise UserError(
                f"--image_channels={settings.image_channels} does not apply to {origin}, which is "
                "gray",
                "use 1 or 3, or omit it",
            )
        if settings.crop == "none" and is_cropped(own, (shape[0], shape[1])):
            raise UserError(
                f"--crop=none does not permit to crop the images of {own[0]}x{own[1]} pixels of "
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
    spec = DataSpec(shape, classes, is_image, class_names=names_of_numbers(classes) or None)
    source = Source(origin, spec, "float32", size, resizable=True)

    def decode(_: object) -> Source:
        from . import toys  # noqa: PLC0415, which imports TensorFlow

        return (toys.open_digits if is_image else toys.open_points)(settings, source)

    return dataclasses.replace(source, decode=decode)
