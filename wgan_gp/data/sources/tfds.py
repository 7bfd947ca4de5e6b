"""Image datasets of tensorflow-datasets, in all its file formats."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import DataSettings
from ...errors import UserError, reason
from ...run_directory.files import local_path
from ...run_directory.json_files import digest
from ...runtime.streams import is_terminal
from ...runtime.tensorflow_patches import limit_requests
from ..feed import without_autotune
from ..source import NO_LABEL, Source
from ..spec import DataSpec
from ..store.opening import slow
from . import decode as pictures
from .decode import Form, make_form
from .encoded import Encoded, Item
from .listing import check_path, fingerprint_of, reading, socket_timeout
from .shapes import MAX_DEFAULT_SIDE, default_square

_FILE_FORMAT = "tfrecord"  # in which datasets are prepared
_DESCRIPTION = "dataset_info.json"
_HELD_OUT = ("test", "validation")
_RECORDS = 32  # that are read at a time
_DAMAGED = (
    *(tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError),
    RuntimeError,  # for example that tf.data does not read array_record
)


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
    # It raises many types of exceptions: for an unknown name, no network and a damaged file.
    except Exception as error:
        folder = posixpath.join(data_dir or tfds.core.constants.DATA_DIR, name.partition(":")[0])
        raise UserError(
            f"--dataset={name} is neither built in nor opened by tensorflow-datasets "
            f"({reason(error)})",
            "use digits, gaussians_8, gaussians_25, swiss_roll, image_folder, tfrecord or a "
            f"dataset of tensorflow-datasets; delete {folder} if it is damaged",
        ) from error


class PreparedSource(Encoded):
    """The images of one split of a dataset of tensorflow-datasets, in the order of its files.

    Args:
      builder: The builder of the dataset, which need not be prepared.
      settings: The settings of the data. --split may be a part, such as "train[:1000]", or a sum.
      form: The form into which the images are decoded.

    Raises:
      UserError: If the dataset is prepared and does not have the split.
    """

    def __init__(self, builder: Any, settings: DataSettings, form: Form):
        self.origin = f"--dataset={settings.dataset}"
        self.shape = form.shape
        self.dtype = form.dtype
        self.decode = functools.partial(pictures.decode, form=form)
        self.square_side = min(form.shape[:2])
        self.class_names = None
        self._builder, self._settings, self._form = builder, settings, form
        self._image_key, self._label_key = _image_feature(builder)[0], _label_key(builder)
        if self._label_key is not None:
            self.class_names = tuple(builder.info.features[self._label_key].names)
        self.is_prepared = _is_prepared(builder)
        if self.is_prepared:
            self._find_split()

    def prepare(self) -> None:
        """Downloads and prepares the dataset under --download, unless it is prepared.

        Raises:
          UserError: If it cannot be prepared, or does not have the split.
        """
        if self.is_prepared:
            return
        if not _is_prepared(self._builder):
            prepare(self._settings, self._builder)
        self.is_prepared = True
        self._find_split()

    def fingerprint(self) -> dict[str, Any]:
        self.prepare()
        return fingerprint_of(self._paths(), len(self.class_names or ()))

    def identity(self) -> dict[str, Any]:
        self.prepare()
        # Each size of a remote file would take a request.
        description = posixpath.join(str(self._builder.data_path), _DESCRIPTION)
        local = [path for path in map(local_path, [description, *self._paths()]) if path]
        with reading(self.origin):
            stats = [tf.io.gfile.stat(path) for path in local or [description]]
        return {
            "dataset": self._builder.info.full_name,
            "parts": digest([[each.skip, each.take] for each in self._parts]),
            "names": digest([each.basename() for each in self._parts]),
            "classes": digest(self.class_names),
            "sizes": digest([stat.length for stat in stats]),
            "times": digest([stat.mtime_nsec for stat in stats]),
            "features": [self._image_key, self._label_key],
            "form": dataclasses.asdict(self._form),
        }

    def items(self, first: int = 0) -> Iterator[Item]:
        """Yields the encoded image of each example.

        Raises:
          UserError: If a file is damaged or cannot be read, or a label is not that of a class.
        """
        self.prepare()
        classes = len(self.class_names or (0,))
        with reading(self.origin):
            try:
                for index, example in enumerate(self._examples(first), first):
                    name = f"example {index} of {self._settings.split}"
                    label = 0 if self._label_key is None else int(example[self._label_key])
                    if not NO_LABEL <= label < classes:
                        raise UserError(
                            f"{self.origin}: {name}: it has the label {label}, but the classes are "
                            f"0 ... {classes - 1}",
                            "prepare the dataset again",
                        )
                    yield Item(name, label, example[self._image_key])
            except _DAMAGED as error:
                raise UserError(
                    f"{self.origin}: {self._builder.data_path} cannot be read "
                    f"({reason(error) or type(error).__name__})",
                    "delete this folder, and prepare the dataset again, as tfrecord or parquet",
                ) from error

    def of_split(self, split: str) -> PreparedSource:
        """Returns the images of another split, in the same form."""
        settings = dataclasses.replace(self._settings, split=split)
        return PreparedSource(self._builder, settings, self._form)

    def resized(self, settings: DataSettings) -> PreparedSource:
        """Returns the same images for another --image_size."""
        return PreparedSource(self._builder, settings, _form_of(self._builder, settings))

    def _find_split(self) -> None:
        """Sets what is known of a prepared dataset.

        Raises:
          UserError: If it does not have the split.
        """
        import tensorflow_datasets as tfds  # noqa: PLC0415

        wanted, splits = self._settings.split, self._builder.info.splits
        try:
            self._parts = splits[wanted].file_instructions
            instruction = tfds.core.ReadInstruction.from_spec(wanted)
            used = {each.splitname for each in instruction.to_absolute(splits)}
        except (KeyError, ValueError, AssertionError) as error:
            raise UserError(
                f"--split={wanted} is not a split of {self.origin}",
                f"use one of {', '.join(sorted(splits))}, or a part such as train[:1000]",
            ) from error
        self.size = sum(part.take for part in self._parts)
        unused = set(splits) - used
        self.held_out_split = next((name for name in _HELD_OUT if name in unused), None)

    def _paths(self) -> list[str]:
        return [str(part.filename) for part in self._parts]

    def _examples(self, first: int) -> Iterator[dict[str, Any]]:
        """Yields the image, which is not decoded, and the label of each example from one on."""
        import tensorflow_datasets as tfds  # noqa: PLC0415

        builder, split = self._builder, self._settings.split
        decoders = {self._image_key: tfds.decode.SkipDecoding()}
        keys = {key: True for key in (self._image_key, self._label_key) if key is not None}
        dataset = builder.as_dataset(
            split=split,
            decoders=tfds.decode.PartialDecoding(keys, decoders),
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        )
        # Each example alone would take ten times as long.
        batches = without_autotune(dataset.skip(first).batch(_RECORDS).prefetch(2))
        for batch in batches.as_numpy_iterator():
            for row in zip(*(batch[key] for key in keys), strict=True):
                yield dict(zip(keys, row, strict=True))


def find_source(settings: DataSettings, flag: str, like: DataSpec | None = None) -> Source:
    """Finds the images of a dataset of tensorflow-datasets; see `find_encoded` and `slow`."""
    return slow(find_encoded(settings), settings, like)


def find_encoded(settings: DataSettings) -> PreparedSource:
    """Finds the dataset that --dataset names.

    Raises:
      UserError: If the name is unknown to tensorflow-datasets, prepared files are damaged, or the
        dataset has no images or does not have the split.
    """
    builder = find_builder(settings.dataset, settings.data_dir)
    return PreparedSource(builder, settings, _form_of(builder, settings))


def _form_of(builder: Any, settings: DataSettings) -> Form:
    """Returns the form into which the images are decoded, and announces cropping."""
    _, feature = _image_feature(builder)
    height, width, channels = feature.shape
    is_known = height is not None and width is not None
    size = height or MAX_DEFAULT_SIDE, width or MAX_DEFAULT_SIDE
    return make_form(
        f"--dataset={settings.dataset}",
        settings,
        size=size if is_known else default_square(size),
        channels=1 if channels in (1, 2) else 3,  # without alpha
        bits=8 * np.dtype(feature.np_dtype).itemsize,
        sizes=[("the first", size)] if is_known else [],
    )


def _image_feature(builder: Any) -> tuple[str, Any]:
    """Returns key and feature of the image: "image" or else the first image.

    Raises:
      UserError: If the dataset has no images of uint8 or uint16.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415

    images = _features(builder, tfds.features.Image)
    key = "image" if "image" in images else next(iter(images), "")
    if not images or np.dtype(images[key].np_dtype) not in (np.uint8, np.uint16):
        raise UserError(
            f"--dataset={builder.name} has no images of uint8 or uint16, but "
            f"{reason(str(builder.info.features))}",
            "use a dataset of images",
        )
    return key, images[key]


def _label_key(builder: Any) -> str | None:
    """Returns the key of the label: "label", or else the only class label; None without one."""
    import tensorflow_datasets as tfds  # noqa: PLC0415

    labels = _features(builder, tfds.features.ClassLabel)
    keys = [key for key, feature in labels.items() if feature.num_classes]
    return "label" if "label" in keys else keys[0] if len(keys) == 1 else None


def _features(builder: Any, kind: type) -> dict[str, Any]:
    """Returns the features of one kind by their keys."""
    features = builder.info.features
    named = features.items() if hasattr(features, "items") else ()
    return {key: feature for key, feature in named if isinstance(feature, kind)}


def _is_prepared(builder: Any) -> bool:
    """Returns True if the description of a dataset exists, which is written last."""
    return tf.io.gfile.exists(posixpath.join(str(builder.data_path), _DESCRIPTION))


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

    limit_requests()  # downloads that make progress are not limited
    if not is_terminal(sys.stderr):
        tfds.disable_progress_bar()
    with socket_timeout():
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
                f"{builder.data_path} ({type(error).__name__}: {reason(error)})",
                f"check the network, {alternative}",
            ) from error
