"""The settings of the data, and the values of --image_size."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

from ..errors import UserError, printable, shorten
from .settings import Seeded, setting

LARGEST_SIDE = 4096  # pixels


def parse_image_size(name: str, value: Any) -> int | str:
    """Returns an image size in its only form in a configuration: 32, or "48x24".

    Args:
      name: The name of the setting, for messages.
      value: An integer, or a text such as "32", "32x32" or "48x24" (height and width).

    Raises:
      UserError: If it is not a size, or a side is not in 1 ... LARGEST_SIDE.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    flag = f"--{name}={printable(shorten(str(value)))}"
    match = re.fullmatch(r"(-?[0-9]{1,999})(?:x([0-9]{1,999}))?", str(value), re.ASCII)
    if not (is_number or isinstance(value, str)) or match is None:
        raise UserError(
            f"{flag} is not a size of images",
            "give a number of pixels, such as 64, or HxW, such as 48x24",
        )
    height, width = int(match[1]), int(match[2] or match[1])
    for side in (height, width):
        if side < 1:
            raise UserError(f"{flag} is too small", "give at least 1")
        if side > LARGEST_SIDE:
            raise UserError(f"{flag} is too large", f"give at most {LARGEST_SIDE}")
    return image_size_of(height, width)


def image_size_of(height: int, width: int) -> int | str:
    """Returns the image size of a height and a width: an integer if they are equal."""
    return height if height == width else f"{height}x{width}"


def sides_of(image_size: int | str) -> tuple[int, int]:
    """Returns the height and the width of a valid image size."""
    height, _, width = str(image_size).partition("x")
    return int(height), int(width or height)


_setting = functools.partial(setting, kind="data")

# The settings of the columns of a table.
COLUMN_SETTINGS = ("label_column", "drop_columns", "condition_columns", "column_types")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(Seeded):
    """The dataset and its preparation for training."""

    dataset: str = _setting(
        "digits",
        "Dataset: digits, gaussians_8, gaussians_25 or swiss_roll; image_folder, tfrecord or "
        "array, in --data_dir; your own, FILE.py or a module (docs/user_code.md); or the name of "
        "any image dataset of tensorflow-datasets (docs/data.md).",
        user_code=True,
        common=True,
    )
    data_dir: str | None = _setting(
        None,
        "Location of the data, local or gs://: a folder of images (image_folder), files, a "
        "folder or patterns (tfrecord), a table, a file of arrays or a folder of them (array), or "
        "the folder in which tensorflow-datasets prepares its datasets.",
        path=True,
        common=True,
    )
    test_data_dir: str | None = _setting(
        None,
        "Location of held-out data, in the same format as --data_dir. The critic's loss on it "
        "shows whether the critic overfits. Default: the split named test or validation, if there "
        "is one; see also --holdout.",
        path=True,
    )
    holdout: float | None = _setting(
        None,
        "Share of the examples, such as 0.1, that are held-out data in place of --test_data_dir: "
        "they are not trained on. A fixed rule selects them. Default: 0.1 for --augment=ada if "
        "there is no other held-out data, else 0.",
        minimum=0,
        below=1,
        requires={"test_data_dir": False},
    )
    label_column: str | None = _setting(
        None,
        "Name of the column of a table that contains the class of each example, or none; for "
        "image_folder, a column of its metadata.csv or metadata.jsonl. Default: the column named "
        "label, labels, class or target, in any case.",
    )
    drop_columns: str | None = _setting(
        None,
        "Names of columns of a table that are left out, separated by commas.",
    )
    condition_columns: str | None = _setting(
        None,
        "Names of columns of a table whose numbers are the condition of each example, separated by "
        "commas (docs/conditions.md).",
    )
    column_types: str = _setting(
        "auto",
        "Types of the columns of a table, such as numbers, categories and dates: auto finds that "
        "of each column, and a JSON file gives those of some (docs/tables.md).",
        path=True,
        of_run=("auto",),
        per_process=False,
    )
    download: bool = setting(
        False,
        "Download and prepare a dataset of tensorflow-datasets if it is missing.",
        kind="place",
    )
    split: str = _setting(
        "train",
        "Split of a dataset of tensorflow-datasets, which may be a part or a sum, such as "
        "train[:80%] or train+test; or of a folder of images with the subfolders train, validation "
        "and test.",
    )
    image_size: int | str | None = _setting(
        None,
        "Size of the images in pixels: one number for a square, or HxW, such as 48x24 (height and "
        "width). The central part of each image is resized to it; see --crop. Default: the size of "
        f"the dataset's images (docs/data.md). Range of each side: 1 to {LARGEST_SIDE}.",
        parse=parse_image_size,
        common=True,
    )
    crop: str = _setting(
        "center",
        "Images whose aspect ratio is not that of --image_size: center crops them to their "
        "largest central part that has it, none refuses them.",
        choices=("center", "none"),
        resume=True,
    )
    image_channels: int | None = _setting(
        None,
        "Channels of the images: 1 (gray), 2 (gray and alpha), 3 (color), 4 (color and alpha), or "
        "the number of a TIFF's channels. Default: the dataset's own number; 3 for image_folder "
        "and tfrecord.",
        minimum=1,
        maximum=16,
    )
    random_flips: bool = setting(
        False,
        "Mirror half of the real images or volumes, chosen at random, along their width.",
        kind="training",
        applies={"data": ("images", "volumes")},
    )
    dequantization: bool = setting(
        True,
        "Add noise of less than one level to images with 256 levels and to integer arrays, so that "
        "the critic cannot recognize real images by their discrete levels.",
        kind="training",
    )
    scaling: str = _setting(
        "minmax",
        "Scaling of each feature or channel of an array, kept in data.json: minmax (to [-1, 1]), "
        "standard (mean 0, standard deviation 1), whiten (also without correlations, for features "
        "and signals) or none. Samples are saved in the data's units.",
        choices=("minmax", "standard", "whiten", "none"),
    )
    invalid: str = _setting(
        "refuse",
        "What to do about an array with NaN, infinity or constant features: refuse it, or drop "
        "these examples and features.",
        choices=("refuse", "drop"),
    )
    data_cache: str | None = setting(
        None,
        "Folder, local or gs://, in which the decoded examples of files are kept for the next "
        "start. Default: wgan_gp in the cache folder of the user. off: decode them at every start.",
        path=True,
        kind="place",
    )
