"""Distances between two sets of examples that need no network: marginals, correlations, spectra.

Each function takes two sets of equal size. All distances are 0 for equal distributions and
infinitely many examples; the distance between two halves of the data is the best value that a
finite number of examples allows. Distances do not depend on the units of a feature or channel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Correlations use at most this number of features, at equal distances: a pair of features costs
# memory, and neighboring samples of a signal repeat each other.
MAX_CORRELATED = 256
# Frequencies with less power than this share of the mean power hardly count. Without it, the noise
# of a generator at frequencies that the data does not have would hide everything else.
POWER_FLOOR = 1e-4
_BLOCK_ELEMENTS = 2**22  # numbers in a block of features


def feature_distances(
    samples: np.ndarray, real: np.ndarray, scale: np.ndarray | None = None
) -> np.ndarray:
    """Computes the 1-Wasserstein distance of each feature, in standard deviations of the data.

    Between two sets of N numbers it is the mean distance of the sorted numbers (Villani 2003,
    Topics in Optimal Transportation, section 2.2), as scipy.stats.wasserstein_distance.

    Args:
      samples: `[N, D]`.
      real: `[N, D]`.
      scale: The standard deviation of each feature, `[D]`; by default, of `real`.

    Returns:
      `[D]` float64. A constant feature of the data is measured in its own unit.
    """
    distances = np.empty(real.shape[1])
    for block in _blocks(real):
        first, second = (
            np.sort(each[:, block].astype(np.float64), axis=0) for each in (samples, real)
        )
        distances[block] = np.abs(first - second).mean(axis=0)
    return distances / (standard_deviations(real) if scale is None else scale)


def kolmogorov_smirnov(samples: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Computes the two-sample Kolmogorov-Smirnov statistic of each feature, `[D]` in [0, 1].

    It is the largest difference of the cumulative distributions, as scipy.stats.ks_2samp.

    Args:
      samples: `[N, D]`.
      real: `[N, D]`.
    """
    count = len(real)
    statistics = np.empty(real.shape[1])
    steps = np.repeat([1, -1], [len(samples), count])
    for block in _blocks(real):
        both = np.concatenate([samples[:, block], real[:, block]])
        order = np.argsort(both, axis=0, kind="stable")
        ordered = np.take_along_axis(both, order, axis=0)
        difference = np.abs(np.cumsum(steps[order], axis=0))
        # The distributions differ only after the last of equal numbers.
        last = np.ones(ordered.shape, bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        statistics[block] = (difference * last).max(axis=0) / count
    return statistics


def correlation_error(samples: np.ndarray, real: np.ndarray) -> float:
    """Computes the mean absolute difference of the correlations of all pairs of features.

    With more than MAX_CORRELATED features, those at equal distances are used. The correlations
    with a constant feature are 0. A single feature has the error 0. Similarity of correlations is
    a usual metric of synthetic tables, for example in Goncalves et al. 2020
    (doi:10.1186/s12874-020-00977-1).

    Args:
      samples: `[N, D]`.
      real: `[N, D]`.
    """
    size = real.shape[1]
    if size < 2:
        return 0.0
    chosen = np.unique(np.linspace(0, size - 1, min(size, MAX_CORRELATED)).astype(int))
    difference = correlations(samples[:, chosen]) - correlations(real[:, chosen])
    pairs = np.triu_indices(len(chosen), k=1)
    return float(np.abs(difference[pairs]).mean())


def correlations(examples: np.ndarray) -> np.ndarray:
    """Returns the correlation matrix of examples `[N, D]`, `[D, D]`; 0 for constant features."""
    centered = examples.astype(np.float64) - examples.mean(axis=0, dtype=np.float64)
    norms = np.sqrt((centered**2).sum(axis=0))
    # Rounding leaves a constant feature with a tiny deviation, whose correlations would be noise.
    largest = np.abs(examples.astype(np.float64)).max(axis=0)
    constant = norms <= 1e-12 * np.sqrt(len(examples)) * largest
    centered /= np.where(constant, 1, norms)
    centered[:, constant] = 0
    return centered.T @ centered


def spectrum_error(samples: np.ndarray, real: np.ndarray) -> float:
    """Computes the log-spectral distance of the mean periodograms in decibels.

    It is the root mean square of 10 log10 of the ratio of both powers over all frequencies but 0
    (Gray and Markel 1976, doi:10.1109/TASSP.1976.1162849), averaged over channels. POWER_FLOOR of
    the mean power of the data is added to all powers or, where the data has no power, of the power
    of noise of deviation 1.

    Args:
      samples: `[N, T, C]`, T >= 2.
      real: `[N, T, C]`.
    """
    first, second = power_spectrum(samples), power_spectrum(real)
    mean = second.mean(axis=0)
    unit = np.where(mean > _rounding(real) * real.shape[1], mean, 3 / 8 * real.shape[1])
    floor = POWER_FLOOR * unit
    decibels = 10 * np.log10((first + floor) / (second + floor))
    return float(np.sqrt((decibels**2).mean(axis=0)).mean())


def power_spectrum(signals: np.ndarray) -> np.ndarray:
    """Returns the mean periodogram of signals `[N, T, C]`, `[T // 2, C]`, without frequency 0.

    A Hann window keeps the power of strong frequencies out of the others (Welch 1967,
    doi:10.1109/TAU.1967.1161901).
    """
    length = signals.shape[1]
    window = np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 2
    total = np.zeros([length // 2 + 1, signals.shape[2]])
    for block in _row_blocks(signals):
        centered = block - block.mean(axis=1, keepdims=True)
        total += (np.abs(np.fft.rfft(centered * window[:, None], axis=1)) ** 2).sum(axis=0)
    return total[1:] / len(signals)


def autocorrelation_error(samples: np.ndarray, real: np.ndarray) -> float:
    """Computes the mean absolute difference of the autocorrelations over lags 1 to T // 2.

    A score of generators of time series, for example in Wiese et al. 2020 (arXiv:1907.06673,
    section 6).

    Args:
      samples: `[N, T, C]`, T >= 2.
      real: `[N, T, C]`.
    """
    return float(np.abs(autocorrelation(samples) - autocorrelation(real)).mean())


def autocorrelation(signals: np.ndarray) -> np.ndarray:
    """Returns the autocorrelations of signals `[N, T, C]` at lags 1 to T // 2, `[T // 2, C]`.

    The covariance at a lag is averaged over all signals and times, about the mean of each channel,
    and divided by the variance of the channel. It is 0 for a constant channel.
    """
    length = signals.shape[1]
    mean = signals.mean(axis=(0, 1), dtype=np.float64)
    total = np.zeros([length // 2 + 1, signals.shape[2]])
    for block in _row_blocks(signals):
        # Zeros at the end keep the two ends of a signal apart.
        spectrum = np.fft.rfft(block - mean, n=2 * length, axis=1)
        products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * length, axis=1)
        total += products[:, : length // 2 + 1].sum(axis=0)
    total /= (length - np.arange(length // 2 + 1))[:, None]
    constant = total[0] <= _rounding(signals) * len(signals)
    return np.where(constant, 0, total[1:] / np.where(constant, 1, total[0]))


def _rounding(signals: np.ndarray) -> np.ndarray:
    """Returns the largest variance that rounding leaves in a constant channel, `[C]`."""
    return (1e-12 * np.abs(signals).max(axis=(0, 1)).astype(np.float64)) ** 2


def standard_deviations(real: np.ndarray) -> np.ndarray:
    """Returns the standard deviation of each feature of `[N, D]`, `[D]`; 1 for constants."""
    deviations = np.std(real, axis=0, dtype=np.float64)
    # Rounding of the mean leaves a constant feature with a tiny deviation.
    constant = deviations <= 1e-12 * np.abs(real.astype(np.float64)).max(axis=0)
    return np.where(constant, 1, deviations)


def _blocks(examples: np.ndarray) -> Iterator[slice]:
    """Yields slices of features; the columns of each have at most _BLOCK_ELEMENTS numbers."""
    size = max(1, _BLOCK_ELEMENTS // len(examples))
    for first in range(0, examples.shape[1], size):
        yield slice(first, first + size)


def _row_blocks(signals: np.ndarray) -> Iterator[np.ndarray]:
    """Yields parts of signals `[N, T, C]` as float64, so that transforms take little memory."""
    size = max(1, _BLOCK_ELEMENTS // max(1, signals[0].size))
    for first in range(0, len(signals), size):
        yield signals[first : first + size].astype(np.float64)
