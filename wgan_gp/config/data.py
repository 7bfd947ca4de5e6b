"""The settings of the data."""

from __future__ import annotations

import dataclasses

from .image_size import LARGEST_SIDE, parse_image_size
from .settings import Seeded, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(Seeded):
    """The dataset and its preparation for training."""

    dataset: str = setting(
        "digits",
        "Dataset: digits, gaussians_8, gaussians_25 or swiss_roll; image_folder, tfrecord or "
        "array, in --data_dir; your own, FILE.py or a module (docs/custom.md); or the name of any "
        "image dataset of tensorflow-datasets (docs/data.md).",
        of_run=True,
    )
    data_dir: str | None = setting(
        None,
        "Location of the data, local or gs://: a folder of images (image_folder), a pattern of "
        "files (tfrecord), a file of numbers (array: .npy, .npz, .csv, or a folder of .npy), or "
        "the folder in which tensorflow-datasets prepares its datasets.",
        changeable_on_resume=True,
        path=True,
        per_process=True,
    )
    test_data_dir: str | None = setting(
        None,
        "Location of held-out data, in the same format as --data_dir. The critic's loss on it "
        "shows whether the critic overfits. Default: for tensorflow-datasets, the split named test "
        "or validation; otherwise no held-out data.",
        changeable_on_resume=True,
        path=True,
        per_process=True,
    )
    download: bool = setting(
        False,
        "Download and prepare a dataset of tensorflow-datasets if it is missing.",
        changeable_on_resume=True,
        per_process=True,
    )
    split: str = setting("train", "Split of a dataset of tensorflow-datasets.", of_run=True)
    num_classes: int | None = setting(
        None,
        "Number of classes of a tfrecord or array dataset, whose labels are 0 to num_classes - 1.",
        minimum=1,
        maximum=1_000_000,
        of_run=True,
    )
    image_size: int | str | None = setting(
        None,
        "Size of the images in pixels: one number for a square, or HxW, such as 48x24 (height and "
        "width). The central part of each image is resized to it; see --crop. Default: the size of "
        f"the dataset's images (docs/data.md). Range of each side: 1 to {LARGEST_SIDE}.",
        parse=parse_image_size,
        of_run=True,
    )
    crop: str = setting(
        "center",
        "Images whose aspect ratio is not that of --image_size: center crops them to their "
        "largest central part that has it, none refuses them.",
        choices=("center", "none"),
        changeable_on_resume=True,
        of_run=True,
    )
    image_channels: int | None = setting(
        None,
        "Channels of the images: 1 (gray), 2 (gray and alpha), 3 (color), 4 (color and alpha), or "
        "the number of a TIFF's channels. Default: the dataset's own number; 3 for image_folder "
        "and tfrecord.",
        minimum=1,
        maximum=16,
        of_run=True,
    )
    random_flips: bool = setting(
        False, "Mirror half of the real images, chosen at random.", of_run=True
    )
    dequantization: bool = setting(
        True,
        "Add noise of less than one level to images with 256 levels and to integer arrays, so that "
        "the critic cannot recognize real images by their discrete levels.",
        of_run=True,
    )
    scaling: str = setting(
        "minmax",
        "Scaling of each feature or channel of an array, kept in data.json: minmax (to [-1, 1]), "
        "standard (mean 0, standard deviation 1), whiten (also without correlations, for features "
        "and signals) or none. Samples are saved in the data's units.",
        choices=("minmax", "standard", "whiten", "none"),
        of_run=True,
    )
    invalid: str = setting(
        "refuse",
        "What to do about an array with NaN, infinity or constant features: refuse it, or drop "
        "these examples and features.",
        choices=("refuse", "drop"),
        of_run=True,
    )
    cache: str = setting(
        "auto",
        "Keep all images in memory, decoded: on (in the memory of the host), device (also in the "
        "memory of each device, if it runs the loop; see --device_loop), off, or auto (device for "
        "up to 1 GiB).",
        choices=("auto", "on", "device", "off"),
        of_run=True,
    )
