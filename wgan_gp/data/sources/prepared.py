"""Image datasets of tensorflow-datasets, read from their prepared TFRecord files."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import DataSettings, DeviceSettings
from ...errors import UserError, reason
from ..opened_data import InMemoryData, StreamedData, UnreadData
from .downloads import limit_downloads
from .encoded_images import open_images, unread_images
from .fingerprint import compute_fingerprint
from .headers import choose_declared_form
from .listing import check_path
from .records import RecordImages
from .shards import Shards

_FILE_FORMAT = "tfrecord"  # the only supported format of prepared files
_DESCRIPTION = "dataset_info.json"


@functools.lru_cache(maxsize=8)  # takes seconds
def find_builder(name: str, data_dir: str | None) -> Any:
    """Returns the builder of a dataset, which has its features even if it is not prepared.

    Raises:
      UserError: If the name is unknown to tensorflow-datasets, or prepared files are damaged.
    """
    if data_dir is not None:
        check_path(f"--data_dir={data_dir}", data_dir)
    # The import takes seconds, and only these datasets need it.
    import tensorflow_datasets as tfds  # noqa: PLC0415

    try:
        return tfds.builder(name, data_dir=data_dir)
    # tfds.builder raises many types of exceptions, and ValueError both for an unknown name and for
    # a file that it cannot read.
    except Exception as error:
        if damaged := _damaged_file(name, data_dir or tfds.core.constants.DATA_DIR):
            raise UserError(
                f"--dataset={name}: {damaged} is damaged ({reason(error)})",
                "delete its folder and prepare the dataset again, or use another --data_dir",
            ) from error
        if not isinstance(error, (tfds.core.DatasetNotFoundError, ValueError, AssertionError)):
            raise UserError(
                f"--dataset={name} cannot be looked up ({reason(error)})",
                "check the name, the network and the packages that the dataset requires",
            ) from error
        raise UserError(
            f"--dataset={name} is neither built in nor known to tensorflow-datasets "
            f"({reason(error)})",
            "use digits, gaussians_8, gaussians_25, swiss_roll, image_folder, tfrecord or a "
            "dataset of tensorflow-datasets",
        ) from error


class PreparedReader:
    """Reads a dataset of tensorflow-datasets; see datasets.DatasetReader."""

    def __init__(self, builder: Any, settings: DataSettings):
        self._builder = builder
        self._image_key, (height, width, channels), bits = image_feature(builder)
        self._label_key, self.label_count = label_feature(builder)
        self._form = choose_declared_form(
            f"--dataset={settings.dataset}",
            (height, width),
            1 if channels in (1, 2) else 3,  # without alpha
            bits,
            settings,
        )
        self.example_shape: tuple[int, ...] = self._form.shape

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        shards = Shards(
            f"--dataset={settings.dataset}",
            list_files(settings, self._builder),
            self._image_key,
            self._label_key,
            classes,
        )
        images = RecordImages(shards, settings.seed)
        return open_images(images, self._form, settings, devices)

    def open_unread(self, settings: DataSettings, *, devices: DeviceSettings) -> UnreadData:
        count = None
        if is_prepared(self._builder):
            list_files(settings, self._builder)  # checks the split
            count = self._builder.info.splits[settings.split].num_examples
        origin = f"--dataset={settings.dataset}"
        return unread_images(origin, count, self._form, settings, devices)

    @property
    def square_side(self) -> int:
        """The side of the default square, for networks that do not support rectangles."""
        return min(self.example_shape[:2])

    def resized(self, settings: DataSettings) -> PreparedReader:
        """Returns a reader of the same images for another --image_size."""
        return PreparedReader(self._builder, settings)

    def fingerprint(self, settings: DataSettings) -> dict[str, Any]:
        return compute_fingerprint("", list_files(settings, self._builder), self.label_count)

    def held_out_split(self, settings: DataSettings) -> str | None:
        """Returns "test" or "validation" if it is a prepared split other than --split."""
        splits = self._builder.info.splits if self._builder.is_prepared() else ()
        held_out = (name for name in ("test", "validation") if name in splits)
        return next((name for name in held_out if name != settings.split), None)


def find_reader(settings: DataSettings) -> PreparedReader:
    """Finds the dataset that --dataset names; see `find_builder` for errors."""
    return PreparedReader(find_builder(settings.dataset, settings.data_dir), settings)


def _damaged_file(name: str, data_dir: str) -> str | None:
    """Returns the path of the first damaged dataset_info.json of a dataset, or None."""
    if not (dataset := re.match(r"\w+", name)):
        return None
    folder = posixpath.join(data_dir, dataset[0])
    for parent, _, files in tf.io.gfile.walk(folder):
        path = posixpath.join(parent, _DESCRIPTION)
        if _DESCRIPTION in files:
            try:
                with tf.io.gfile.GFile(path) as file:
                    if "version" not in dict(json.loads(file.read())):
                        return path
            except (ValueError, TypeError, tf.errors.OpError):
                return path
    return None


def image_feature(builder: Any) -> tuple[str, tuple[int | None, ...], int]:
    """Returns key, shape and bits of the image feature: "image" or else the first image.

    Raises:
      UserError: If the dataset has no image, or its dtype is neither uint8 nor uint16.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415

    images = {
        key: feature
        for key, feature in _features(builder).items()
        if isinstance(feature, tfds.features.Image)
    }
    if not images:
        raise UserError(
            f"--dataset={builder.name} has no images, but {', '.join(_features(builder))}",
            "use a dataset of images",
        )
    key = "image" if "image" in images else next(iter(images))
    dtype = np.dtype(images[key].np_dtype)
    if dtype not in (np.uint8, np.uint16):
        raise UserError(
            f"--dataset={builder.name} has images of {dtype}",
            "use a dataset of uint8 or uint16 images",
        )
    return key, tuple(images[key].shape), 8 * dtype.itemsize


def label_feature(builder: Any) -> tuple[str | None, int]:
    """Returns the key of the label feature and its number of classes, or (None, 0).

    The label feature is "label", or else the only class label of the dataset.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415

    labels = {
        key: feature.num_classes
        for key, feature in _features(builder).items()
        if isinstance(feature, tfds.features.ClassLabel) and feature.num_classes
    }
    if "label" in labels:
        return "label", labels["label"]
    return next(iter(labels.items())) if len(labels) == 1 else (None, 0)


def _features(builder: Any) -> dict[str, Any]:
    features = builder.info.features
    return dict(features) if hasattr(features, "keys") else {}


def list_files(settings: DataSettings, builder: Any) -> list[str]:
    """Returns the TFRecord files of --split; under --download, prepares the dataset first.

    Raises:
      UserError: If the dataset cannot be prepared, is prepared in another file format, or does not
        have the split.
    """
    if not is_prepared(builder):
        prepare(settings, builder)
    splits = builder.info.splits
    if settings.split not in splits:
        raise UserError(
            f"--split={settings.split} is not a split of --dataset={settings.dataset}",
            f"use one of {', '.join(sorted(splits))}",
        )
    if builder.info.file_format.value != _FILE_FORMAT:
        raise UserError(
            f"--dataset={settings.dataset} is prepared as {builder.info.file_format.value} in "
            f"{builder.data_path}",
            f"prepare it as {_FILE_FORMAT}: "
            f'tensorflow_datasets.builder("{settings.dataset}", file_format="{_FILE_FORMAT}")',
        )
    return [str(path) for path in splits[settings.split].filepaths]


def is_prepared(builder: Any) -> bool:
    """Returns True if a dataset is completely prepared."""
    with _suppress_warnings("absl"):  # absl warns about a partially prepared folder
        return builder.is_prepared()


def prepare(settings: DataSettings, builder: Any) -> None:
    """Downloads and prepares the dataset under --download.

    Raises:
      UserError: If --download is not set, or downloading or preparing fails.
    """
    alternative = (
        "or prepare it elsewhere with tensorflow_datasets.load"
        f'("{settings.dataset}", data_dir=DIR) and use --data_dir=DIR'
    )
    if not settings.download:
        raise UserError(
            f"--dataset={settings.dataset} is not prepared: {builder.data_path} does not exist",
            f"add --download on a machine with a network connection, {alternative}",
        )
    # tensorflow-datasets would treat the folder as a prepared dataset.
    if tf.io.gfile.exists(str(builder.data_path)):
        raise UserError(
            f"--dataset={settings.dataset}: {builder.data_path} contains an incomplete dataset",
            "delete that folder, or use another --data_dir",
        )
    import tensorflow_datasets as tfds  # noqa: PLC0415

    with limit_downloads():
        try:
            builder.download_and_prepare(
                file_format=_FILE_FORMAT,
                download_config=tfds.download.DownloadConfig(try_download_gcs=False),
            )
        # Datasets fail for many reasons: no network, a full disk, files that must be downloaded
        # by hand, a missing package.
        except Exception as error:
            raise UserError(
                f"--dataset={settings.dataset} cannot be downloaded and prepared in "
                f"{builder.data_path} ({type(error).__name__}: {reason(_cause(error))})",
                f"check the network, {alternative}",
            ) from error


@contextlib.contextmanager
def _suppress_warnings(name: str) -> Iterator[None]:
    """Suppresses the warnings of a logger; the error message replaces them."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _cause(error: BaseException) -> BaseException:
    """Returns the cause of a failed request's last attempt, or `error` if it is another error."""
    return getattr(next(iter(error.args), None), "reason", None) or error
