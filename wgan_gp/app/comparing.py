"""Compares a folder of images with another one, or with saved statistics, without a run."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..config import Config, DataSettings, image_size_of
from ..data.sources import listing
from ..data.sources.decode import MAX_COLOR_CHANNELS
from ..data.sources.encoded import Item, Unreadable
from ..data.sources.folder import FolderSource, find_encoded
from ..errors import UserError, printable
from ..evaluation import metrics, results
from ..evaluation.examples import check_finite, with_progress_bar
from ..evaluation.extractors import Extractor, load_pretrained, run_on_replicas
from ..evaluation.reference import Reference, read, recorded_name
from ..run_directory.files import check_new_file
from .connection import connect_for_inference

_DECODERS = 4  # threads


def compare(config: Config) -> None:
    """Prints the metrics of --samples against --reference, or saves the statistics of --reference.

    Raises:
      UserError: If a path cannot be read, or the images do not fit each other or the extractor.
    """
    name = config.feature_extractor or "inception"
    if name in ("classifier", "none"):
        raise UserError(
            f"--feature_extractor={name} is fitted to the data of a run, or needs none",
            "use inception, or the path of a Keras file or SavedModel",
        )
    if config.output is not None:
        check_new_file(config.output, ".npz", "--reference")
    of_file = str(config.reference).lower().endswith(".npz")
    paths = {"--samples": config.samples, "--reference": None if of_file else config.reference}
    sources = {flag: _find(flag, path, config) for flag, path in paths.items() if path}
    if of_file:
        # A damaged file is found before the extractor is downloaded.
        reference = read(str(config.reference))
        if name == "inception" or tf.io.gfile.exists(name):
            reference.check_extractor(f"--reference={config.reference}", recorded_name(name))
    shape = _common_shape(sources)
    for source in sources.values():
        if source.size < 2:
            raise UserError(f"{source.origin} has only one image", "add images to the folder")
    strategy = connect_for_inference(config).strategy
    extractor = load_pretrained(name, strategy, shape)
    batch_size = config.batch_size
    features = {
        flag: _features(
            source,
            shape,
            extractor,
            strategy,
            batch_size,
            flag,
            must_be_gray=source.shape[2] == 1 and config.image_channels is None,
        )
        for flag, source in sources.items()
    }
    if not of_file:
        reference = Reference(features["--reference"][0], extractor=recorded_name(name))
    if config.samples is not None:
        _print_metrics(reference, *features["--samples"], str(config.reference), name)
    if config.output is not None:
        reference.write(config.output)
        print(config.output)


def _print_metrics(
    reference: Reference,
    features: np.ndarray,
    probabilities: np.ndarray | None,
    path: str,
    extractor: str,
) -> None:
    """Prints the metrics of the features of samples, of which `path` is the reference."""
    length = len(reference.moments.mean)
    if features.shape[1] != length:
        raise UserError(
            f"--reference={path} has features of length {length}, but {extractor} computes "
            f"{features.shape[1]}",
            "use statistics of the same --feature_extractor",
        )
    values = reference.compare(features)
    if probabilities is not None:
        score, deviation = metrics.inception_score(probabilities)
        values |= {"inception_score": score, "inception_score_deviation": deviation}
    print(results.comparison(values, len(features), path, extractor), flush=True)
    if reference.features is None:
        print("the file has no features (feats), so FID is the only distance")


def _find(flag: str, path: str, config: Config) -> FolderSource:
    """Finds the images of a folder, in their own size unless --image_size is given."""
    settings = DataSettings(
        dataset="image_folder",
        data_dir=path,
        image_size=config.image_size,
        image_channels=config.image_channels,
        crop=config.crop,
    )
    source = find_encoded(settings, flag, only_pictures=True)
    sizes = {header.size for header in source.headers}
    if config.image_size is None and len(sizes) > 1:
        first, second, *_ = (f"{height}x{width}" for height, width in sorted(sizes))
        raise UserError(
            f"{flag}={path} has images of {first} and of {second} pixels",
            "give the size at which they are compared, such as --image_size=64",
        )
    is_gray = all(header.channels == 1 for header in source.headers)
    source = source.resized(
        dataclasses.replace(
            settings,
            image_size=config.image_size or image_size_of(*sizes.pop()),
            image_channels=config.image_channels or (1 if is_gray else None),
        )
    )
    # The headers of some pictures were read, and another size would be a silent resize.
    return source if config.image_size else source.of_one_size()


def _common_shape(sources: dict[str, FolderSource]) -> tuple[int, int, int]:
    """Returns the shape `(H, W, C)` of the images; gray ones are repeated if others have colors.

    Raises:
      UserError: If images have different sizes.
    """
    shapes = [source.shape for source in sources.values()]
    if len({shape[:2] for shape in shapes}) > 1:
        found = " and ".join(
            f"{source.origin} of {source.shape[0]}x{source.shape[1]} pixels"
            for source in sources.values()
        )
        raise UserError(
            f"the sizes of the images differ: {found}",
            f"give the size at which they are compared, such as --image_size="
            f"{image_size_of(*shapes[0][:2])}",
        )
    for source in sources.values():
        if (channels := source.shape[2]) not in (1, 3):
            convertible = channels <= MAX_COLOR_CHANNELS
            raise UserError(
                f"{source.origin} has images of {channels} channels",
                "give gray or color images" + (", or --image_channels=3" if convertible else ""),
            )
    height, width, _ = shapes[0]
    return height, width, max(shape[2] for shape in shapes)


def _features(
    source: FolderSource,
    shape: tuple[int, int, int],
    extractor: Extractor,
    strategy: tf.distribute.Strategy,
    batch_size: int,
    flag: str,
    *,
    must_be_gray: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the features of all images of a folder, and their class probabilities if any."""
    size = batch_size + -batch_size % strategy.num_replicas_in_sync
    compute = run_on_replicas(extractor, strategy, size)
    outputs = [
        compute(np.broadcast_to(images, (*images.shape[:3], shape[2])))
        for images in with_progress_bar(_batches(source, size, must_be_gray), f"images of {flag}")
    ]
    features, *more = (np.concatenate(parts) for parts in zip(*outputs, strict=True))
    for values in (features, *more):
        cause = f"--feature_extractor={extractor.name} computes NaN or infinite values for"
        check_finite(values, cause, f"images of {source.origin}", "use another extractor")
    return features, more[0] if more else None


def _batches(source: FolderSource, size: int, must_be_gray: bool) -> Iterator[np.ndarray]:
    """Yields the images of a folder in batches `[B, H, W, C]` float32 in [-1, 1].

    Raises:
      UserError: If an image cannot be read: without it, the metrics would be those of other images.
        Also if an image has colors that would be lost, because only some headers were read.
    """
    levels = np.iinfo(source.dtype).max

    def decode(item: Item) -> np.ndarray:
        name = f"{source.origin}: {printable(item.name)}"
        if must_be_gray and source.has_colors(item.name):
            raise UserError(
                f"{name} has colors, but others are gray",
                "add --image_channels=3, or 1 to compare all of them as gray images",
            )
        try:
            array = source.read(item)
        except Unreadable as error:
            raise UserError(
                f"{name} cannot be read ({error})", "remove it, or replace it"
            ) from error
        return (array / np.float32(levels / 2) - 1).astype(np.float32)

    items = source.items()
    with concurrent.futures.ThreadPoolExecutor(_DECODERS) as pool, listing.reading(source.origin):
        while part := list(itertools.islice(items, size)):
            yield np.stack(list(pool.map(decode, part)))
