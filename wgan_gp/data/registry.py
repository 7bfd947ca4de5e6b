"""The registry of datasets, and the shapes of their examples.

For the built-in datasets, TensorFlow is not imported, so flags that do not fit the model are
rejected at once. For the other datasets, the TensorFlow runtime is not started, because it must
not start before the devices are configured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import typing
from collections.abc import Callable, Iterator
from typing import Any

from ..config import Config
from ..errors import UserError

if typing.TYPE_CHECKING:
    from .source import Source, Stream

LARGEST_SIDE = 64  # pixels, the largest image size unless --image_size is set


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset that was found but not yet opened.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of its labels; 0 without labels.
      open: config -> the opened dataset.
      fingerprint: () -> the fingerprint of the dataset's files, see fingerprint.py, or None for
        a dataset without files.
    """

    example_shape: tuple[int, ...]
    classes: int
    open: Callable[[Config], Source | Stream]
    fingerprint: Callable[[], dict[str, Any] | None] = lambda: None


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A dataset without files.

    Attributes:
      module: The module of this package whose `source` opens the dataset.
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


def example_shape(config: Config) -> tuple[int, ...]:
    """Returns the shape of the run's examples: `(H, W, C)` for images, `(D,)` for points.

    Raises:
      UserError: If the dataset does not exist or cannot be read, or flags of images are given
        for a dataset of points.
    """
    return _find(config).example_shape


def classes(config: Config) -> int:
    """Returns the number of classes of a conditional run, or 0 for an unconditional run.

    Raises:
      UserError: If the run is conditional but the dataset has no labels.
    """
    if config.conditioning == "none":
        return 0
    count = _find(config).classes
    if not count:
        remedies = {
            "tfrecord": "add --num_classes=N, for labels 0 ... N - 1",
            "image_folder": "put the pictures of each class, and no others, in a folder of its own",
        }
        raise UserError(
            f"--conditioning={config.conditioning} needs labels, which {config.dataset} has not",
            remedies.get(config.dataset, "omit it, or use another --dataset"),
        )
    return count


def label_count(config: Config) -> int:
    """Returns the number of classes of the dataset, also for an unconditional run.

    The number is 0 for a dataset without labels.

    Raises:
      UserError: See `example_shape`.
    """
    return _find(config).classes


@dataclasses.dataclass(frozen=True)
class Kind:
    """The properties of the data on which the networks depend.

    Attributes:
      example_shape: `(H, W, C)` for images, `(D,)` for points.
      classes: The number of classes of a conditional run; 0 for an unconditional run.
    """

    example_shape: tuple[int, ...]
    classes: int


def kind(config: Config) -> Kind:
    """Returns the example shape and the number of classes of the run's dataset.

    Raises:
      UserError: See `example_shape` and `classes`.
    """
    return Kind(example_shape(config), classes(config))


def open_source(config: Config) -> Source | Stream:
    """Opens the run's dataset.

    Raises:
      UserError: If the dataset cannot be read or has fewer examples than a batch.
    """
    dataset = _find(config)
    with _reading(config):
        source = dataset.open(config)
    if source.size is not None and config.batch_size > source.size:
        raise UserError(
            f"--batch_size={config.batch_size} is more than the {source.size} "
            f"image{'s' if source.size > 1 else ''} of --dataset={config.dataset}",
            f"use at most {source.size}",
        )
    return source


def fingerprint(config: Config) -> dict[str, Any] | None:
    """Returns the fingerprint of the run's dataset, or None for a dataset without files.

    Raises:
      UserError: If the dataset does not exist or is not prepared.
    """
    dataset = _find(config)
    with _reading(config):
        return dataset.fingerprint()


def open_held_out(config: Config) -> Source | Stream | None:
    """Opens the held-out data of the run, or returns None if there is none.

    The held-out data is --test_data_dir or, for a dataset of tensorflow-datasets, the split
    "test" or "validation". It is not cached in memory.

    Raises:
      UserError: If the held-out data cannot be read, or --test_data_dir does not apply to the
        dataset.
    """
    if config.test_data_dir is not None:
        if config.dataset not in ("image_folder", "tfrecord"):
            raise UserError(
                f"--test_data_dir={config.test_data_dir} is for image_folder and tfrecord",
                "omit it",
            )
        config = dataclasses.replace(config, data_dir=config.test_data_dir, cache="off")
    elif config.dataset in (*BUILT_IN, "image_folder", "tfrecord"):
        return None
    else:
        from . import prepared  # noqa: PLC0415

        split = prepared.held_out_split(config)
        if split is None:
            return None
        config = dataclasses.replace(config, split=split, cache="off")
    try:
        with _reading(config):
            return _find(config).open(config)
    except UserError as error:
        if config.test_data_dir is None:
            raise
        what, remedy = (
            text.replace("--data_dir", "--test_data_dir") for text in (error.what, error.remedy)
        )
        raise UserError(what, remedy) from error


def _find(config: Config) -> Dataset:
    """Finds the run's dataset.

    Raises:
      UserError: If the dataset does not exist or the flags of the data contradict each other.
    """
    if config.num_classes is not None and config.dataset != "tfrecord":
        raise UserError(
            f"--num_classes={config.num_classes} is for --dataset=tfrecord, and "
            f"{config.dataset} knows its own",
            "omit it",
        )
    if config.dataset in BUILT_IN:
        return _built_in(config)
    find = {"image_folder": _folder, "tfrecord": _tfrecord}.get(config.dataset, _prepared)
    with _reading(config):
        return find(config)


@contextlib.contextmanager
def _reading(config: Config) -> Iterator[None]:
    """Turns file errors into a UserError that names --data_dir."""
    from .listing import reading  # noqa: PLC0415

    with reading(f"--data_dir={config.data_dir}"):
        yield


def _built_in(config: Config) -> Dataset:
    entry = BUILT_IN[config.dataset]
    shape = entry.example_shape
    for flag, given in (
        ("image_size", config.image_size),
        ("image_channels", config.image_channels),
    ):
        if given is not None and len(shape) == 1:
            raise UserError(
                f"--{flag}={given} says nothing about {config.dataset}, which holds points",
                "omit it",
            )
    if len(shape) > 1:
        shape = _square(config, shape[0], shape[2])
    module = functools.partial(importlib.import_module, f".{entry.module}", __package__)
    return Dataset(shape, entry.classes, lambda config: module().source(config, shape))


def _square(config: Config, side: int, channels: int) -> tuple[int, int, int]:
    side = config.image_size or side
    return side, side, config.image_channels or channels


def _at_most(side: int | None) -> int:
    return min(side or LARGEST_SIDE, LARGEST_SIDE)


def _folder(config: Config) -> Dataset:
    from . import folder  # noqa: PLC0415
    from .collection import open_collection  # noqa: PLC0415
    from .fingerprint import fingerprint  # noqa: PLC0415

    found = folder.find(config.data_dir)
    shape = _square(config, config.image_size or _at_most(folder.native_side(found)), 3)
    return Dataset(
        shape,
        0 if "" in found.names else len(found.names),
        lambda config: open_collection(config, folder.collection(config, found), shape),
        lambda: fingerprint(found.path, found.files, found.names),
    )


def _tfrecord(config: Config) -> Dataset:
    from . import folder, records, shards  # noqa: PLC0415
    from .collection import open_collection  # noqa: PLC0415
    from .fingerprint import fingerprint  # noqa: PLC0415

    found = shards.find(config.data_dir, config.num_classes)
    side = config.image_size or _at_most(folder.side(found.first_image))
    shape = _square(config, side, 3)
    return Dataset(
        shape,
        found.classes,
        lambda config: open_collection(config, records.collection(config, found), shape),
        lambda: fingerprint("", found.files, found.classes),
    )


def _prepared(config: Config) -> Dataset:
    from . import prepared  # noqa: PLC0415
    from .fingerprint import fingerprint  # noqa: PLC0415

    builder = prepared.find(config.dataset, config.data_dir)
    image_key, (height, width, channels) = prepared.image_feature(builder)
    label_key, count = prepared.label_feature(builder)
    shape = _square(
        config,
        min(height or LARGEST_SIDE, width or LARGEST_SIDE),
        1 if channels in (1, 2) else 3,  # without alpha
    )

    def open_prepared(config: Config) -> Source | Stream:
        from . import records  # noqa: PLC0415
        from .collection import open_collection  # noqa: PLC0415
        from .shards import Shards  # noqa: PLC0415

        found = Shards(
            f"--dataset={config.dataset}",
            prepared.files(config, builder),
            image_key,
            label_key,
            classes(config),
        )
        return open_collection(config, records.collection(config, found), shape)

    return Dataset(
        shape,
        count,
        open_prepared,
        lambda: fingerprint("", prepared.files(config, builder), count),
    )
