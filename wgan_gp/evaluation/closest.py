"""Samples next to the real examples that are closest to them, to see whether they are copies."""

from __future__ import annotations

import numpy as np

from ..data.spec import DataSpec
from ..errors import UserError
from ..inference.images import image_grid, to_pixels
from .examples import Examples, check_samples
from .extractors import quantizers

MOST_SAMPLES = 1000  # of which the most suspicious are drawn
NEIGHBORS = 7  # real images in a row


class Closest:
    """The real images that are closest to each of some samples.

    Distances are root mean squares of the differences of two images' levels, 0 to 255.

    Args:
      samples: `[N, H, W, C]` float32 in [-1, 1], quantized as by `quantizers`.
      count: The number of real images to keep for each sample.
    """

    def __init__(self, samples: np.ndarray, count: int = NEIGHBORS):
        self._samples = to_pixels(samples, None)
        self._flat = self._samples.reshape(len(samples), -1).astype(np.float64)
        self._count = count
        self.distances = np.empty([len(samples), 0])  # [N, up to count], ascending
        self._images = np.empty([len(samples), 0, *samples.shape[1:]], np.uint8)

    def add(self, images: np.ndarray) -> None:
        """Takes real images into account, which are like the samples."""
        levels = to_pixels(images, None)
        flat = levels.reshape(len(levels), -1).astype(np.float64)
        # Exact, because squares and sums of levels are integers below 2^53.
        squares = (self._flat**2).sum(1)[:, None] + (flat**2).sum(1) - 2 * self._flat @ flat.T
        distances = np.sqrt(squares / flat.shape[1])
        kept = min(self._count, len(levels))
        nearest = np.argpartition(distances, kept - 1, axis=1)[:, :kept]
        both = np.concatenate(
            [self.distances, np.take_along_axis(distances, nearest, axis=1)], axis=1
        )
        order = np.argsort(both, axis=1, kind="stable")[:, : self._count]
        known = self.distances.shape[1]
        found = np.empty([len(order), order.shape[1], *levels.shape[1:]], np.uint8)
        for row, columns in enumerate(order):
            for place, column in enumerate(columns):
                is_known = column < known
                found[row, place] = (
                    self._images[row, column] if is_known else levels[nearest[row, column - known]]
                )
        self.distances, self._images = np.take_along_axis(both, order, axis=1), found

    def rows(self, count: int) -> np.ndarray:
        """Returns images in [-1, 1]: a sample and its neighbors in each row, the closest first.

        Args:
          count: The number of rows.

        Returns:
          `[count * (1 + neighbors), H, W, C]` float32.
        """
        first = np.argsort(self.distances[:, 0], kind="stable")[:count]
        rows = np.concatenate([self._samples[first, None], self._images[first]], axis=1)
        return (rows.reshape(-1, *rows.shape[2:]) / 127.5 - 1).astype(np.float32)


def check(spec: DataSpec, flag: str) -> None:
    """Raises UserError, which names `flag`, unless the examples are gray or color images."""
    shape = spec.example_shape
    if len(shape) != 3 or shape[2] not in (1, 3) or not spec.bounded:
        raise UserError(
            f"{flag} is for gray and color images, but the examples have shape {shape}",
            "omit it; the metric closer_than_real also finds copies",
        )


def compare(samples: np.ndarray, examples: Examples, rows: int) -> tuple[str, np.ndarray]:
    """Compares samples and held-out images with all training images.

    Args:
      samples: `[N, H, W, C]` in [-1, 1].
      examples: The training images, and held-out ones if there are any.
      rows: The number of samples to draw, at most N.

    Returns:
      The distances in one line, and a picture uint8 `[H', W', C]`; see `Closest.rows`.

    Raises:
      UserError: If samples are not finite, or the data cannot be read.
    """
    check_samples(samples)
    quantize, quantize_real = quantizers(examples.dataset.spec)
    of_samples, of_held_out = Closest(quantize(samples)), None
    if (held_out := examples.read_held_out(MOST_SAMPLES)) is not None:
        of_held_out = Closest(quantize_real(held_out[0]), 1)
    for images, _ in examples.batches(None):
        real = quantize_real(images)
        of_samples.add(real)
        if of_held_out is not None:
            of_held_out.add(real)
    columns = 1 + of_samples.distances.shape[1]
    return describe(of_samples, of_held_out), image_grid(of_samples.rows(rows), columns)


def describe(closest: Closest, held_out: Closest | None) -> str:
    """Returns in one line how close samples are, and held-out images, which are no copies."""
    nearest = closest.distances[:, 0]
    text = (
        f"distance of a sample to the closest real image (levels of 255, root mean square): "
        f"smallest {nearest.min():.1f}, median {np.median(nearest):.1f}"
    )
    if held_out is None:
        return text
    scale = held_out.distances[:, 0]
    return f"{text}; of a held-out image: smallest {scale.min():.1f}, median {np.median(scale):.1f}"
