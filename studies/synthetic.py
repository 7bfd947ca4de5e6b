"""Writes datasets with known truth, and measures the truth in samples.

  python -m studies.synthetic make sines sines.npy
  python -m studies.synthetic make noisy_sines noisy_sines.npy
  python -m studies.synthetic make ar2 ar2.npy
  python -m studies.synthetic make detector detector.npz --count=20000
  python -m studies.synthetic measure sines SAMPLES.npz

The second command of each pair is training; `--mode=sample --sample_format=npz` writes the samples.
They must be in the units of the data. Each measure is printed for the samples and for as many new
draws of the data, which have the best value that this number of examples allows.

sines: signals `[N, 128, 1]`, exp(-decay t) sin(2 pi frequency t + phase), t = 0 ... 127, with
uniform frequency, decay and phase. noisy_sines: the same with white noise of deviation 0.1. ar2:
signals `[N, 128, 1]` of a stationary process x(t) = a x(t - 1) + b x(t - 2) + e(t). detector:
sparse images `[N, 24, 12, 3]` of a particle shower and conditions `[N, 1]`, the energy of the
particle. The mean response, which is the sum of an image, equals the energy.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.signal
import scipy.stats

from benchmarks import outcome

LENGTH = 128
FREQUENCIES, DECAYS = (0.03, 0.15), (0.01, 0.05)  # cycles, and e-folds, per time step
NOISE = 0.1  # the deviation of the noise of noisy_sines
MODULUS, PERIOD = 0.9, 12  # of the roots of the autoregressive process
AR2 = (2 * MODULUS * np.cos(2 * np.pi / PERIOD), -(MODULUS**2))  # a, b
LAGS = 40
ENERGIES = (10.0, 100.0)
DEPOSIT = 0.5  # mean energy of a deposit
LAYERS = (0.2, 0.5, 0.3)  # shares of the energy in the three channels
_FIT_ROWS = 1000  # signals whose frequencies are fitted

Arrays = dict[str, np.ndarray]


def draw_parameters(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws the frequencies, decays and phases of damped sines, `[count, 1]` each."""
    random = np.random.default_rng(seed)
    ranges = (FREQUENCIES, DECAYS, (0, 2 * np.pi))
    frequency, decay, phase = (random.uniform(*each, (count, 1)) for each in ranges)
    return frequency, decay, phase


def damped_sines(frequency: np.ndarray, decay: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Returns the signals of parameters `[N, 1]`, `[N, 128, 1]`, in the dtype of these."""
    times = np.arange(LENGTH, dtype=frequency.dtype)
    waves = np.sin(frequency.dtype.type(2 * np.pi) * frequency * times + phase)
    return (np.exp(-decay * times) * waves)[..., None]


def make_sines(count: int, seed: int) -> Arrays:
    """Draws damped sines, "examples" `[count, 128, 1]` float32, which are computed in float64."""
    return {"examples": damped_sines(*draw_parameters(count, seed)).astype(np.float32)}


def make_noisy_sines(count: int, seed: int) -> Arrays:
    """Draws damped sines with white noise, "examples" `[count, 128, 1]` float32."""
    signals = damped_sines(*draw_parameters(count, seed))
    # The seed of the parameters would draw noise that depends on them.
    noise = np.random.default_rng([seed, 1]).normal(scale=NOISE, size=signals.shape)
    return {"examples": (signals + noise).astype(np.float32)}


def make_ar2(count: int, seed: int) -> Arrays:
    """Draws a stationary autoregressive process, "examples" `[count, 128, 1]` float32."""
    random = np.random.default_rng(seed)
    start = 200  # after which the process has forgotten its beginning: 0.9^200 is 1e-9
    noise = random.normal(size=(count, start + LENGTH))
    signals = scipy.signal.lfilter([1], [1, *(-each for each in AR2)], noise, axis=1)
    return {"examples": signals[:, start:, None].astype(np.float32)}


def make_detector(count: int, seed: int, energies: np.ndarray | None = None) -> Arrays:
    """Draws showers: "examples" `[count, 24, 12, 3]` and "conditions" `[count, 1]`, float32.

    A Poisson number of deposits with exponential energies gives a mean response equal to the
    energy E, and a variance of 2 DEPOSIT E.

    Args:
      count: The number of showers.
      seed: The seed.
      energies: The energies of the particles, `[count]`. Without them, they are uniform.
    """
    random = np.random.default_rng(seed)
    if energies is None:
        energies = random.uniform(*ENERGIES, count)
    images = np.zeros([count, 24, 12, 3], np.float32)
    deposits = random.poisson(energies / DEPOSIT)
    owner = np.repeat(np.arange(count), deposits)
    total = len(owner)
    # The shower goes deeper with energy, and its axis is near the middle column.
    depth = 4 + 2 * np.log(energies)[owner] + 2.5 * random.normal(size=total)
    side = 5.5 + random.normal(size=count)[owner] + 1.2 * random.normal(size=total)
    place = (
        owner,
        np.clip(np.rint(depth), 0, 23).astype(int),
        np.clip(np.rint(side), 0, 11).astype(int),
        random.choice(3, total, p=LAYERS),
    )
    np.add.at(images, place, random.exponential(DEPOSIT, total).astype(np.float32))
    return {"examples": images, "conditions": energies[:, None].astype(np.float32)}


@dataclasses.dataclass(frozen=True)
class DampedSines:
    """Parameters of fitted damped sines.

    Attributes:
      frequency: Cycles per time step, `[N]`.
      decay: e-folds per time step, `[N]`; negative for a growing signal.
      residual: The share of the power that a damped sine does not explain, `[N]`.
    """

    frequency: np.ndarray
    decay: np.ndarray
    residual: np.ndarray


def fit_sines(signals: np.ndarray) -> DampedSines:
    """Fits a damped sine to each signal `[N, T, 1]`.

    The two main singular vectors of the Hankel matrix of a signal span the shifts of a damped
    sine; their eigenvalue under a shift is exp(-decay + 2 pi i frequency) (HSVD, Barkhuijsen et
    al. 1987, doi:10.1016/0022-2364(87)90023-0).
    """
    signals = signals[..., 0].astype(np.float64)
    length = signals.shape[1]
    hankel = np.lib.stride_tricks.sliding_window_view(signals, length // 2, axis=1)
    # The eigenvectors of H H^T are the left singular vectors of H, in less time.
    vectors = np.linalg.eigh(hankel @ hankel.swapaxes(1, 2))[1][..., -2:]
    shift = np.linalg.pinv(vectors[:, :-1]) @ vectors[:, 1:]
    roots = np.linalg.eigvals(shift)
    root = roots[np.arange(len(roots)), np.abs(roots.imag).argmax(axis=1)]
    frequency, decay = np.abs(np.angle(root)) / (2 * np.pi), -np.log(np.abs(root) + 1e-12)
    times = np.arange(length)
    wave = np.exp(np.clip(-decay, -1, 0.1)[:, None] * times) * np.exp(
        2j * np.pi * frequency[:, None] * times
    )
    basis = np.stack([wave.real, wave.imag], axis=2)
    explained = basis @ (np.linalg.pinv(basis) @ signals[..., None])
    power = np.maximum((signals**2).sum(axis=1), 1e-12)
    residual = ((signals - explained[..., 0]) ** 2).sum(axis=1) / power
    return DampedSines(frequency, decay, residual)


def measure_sines(samples: Arrays) -> dict[str, float]:
    """Compares fitted frequencies and decays with their uniform distributions.

    Returns:
      The Kolmogorov-Smirnov statistics of both, their means, and the median residual.
    """
    fitted = fit_sines(samples["examples"][:_FIT_ROWS])
    values = {}
    for name, found, (low, high) in (
        ("frequency", fitted.frequency, FREQUENCIES),
        ("decay", fitted.decay, DECAYS),
    ):
        uniform = scipy.stats.uniform(low, high - low)
        values[f"{name}: Kolmogorov-Smirnov"] = scipy.stats.ks_1samp(found, uniform.cdf).statistic
        values[f"{name}: mean / true mean"] = found.mean() / ((low + high) / 2)
    values["power that is no damped sine"] = float(np.median(fitted.residual))
    return values


def true_autocorrelation(lags: int = LAGS) -> np.ndarray:
    """Returns the autocorrelations of the process at lags 1 to `lags`, by Yule and Walker."""
    values = [1.0, AR2[0] / (1 - AR2[1])]
    while len(values) <= lags:
        values.append(AR2[0] * values[-1] + AR2[1] * values[-2])
    return np.array(values[1:])


def measure_ar2(samples: Arrays) -> dict[str, float]:
    """Compares the autocorrelations, the fitted coefficients and the noise with the truth."""
    signals = samples["examples"][..., 0].astype(np.float64)
    signals = signals - signals.mean()
    variance = (signals**2).mean()
    found = np.array(
        [(signals[:, lag:] * signals[:, :-lag]).mean() / variance for lag in range(1, LAGS + 1)]
    )
    deviation = np.abs(found - true_autocorrelation())
    past = np.stack([signals[:, 1:-1], signals[:, :-2]], axis=-1).reshape(-1, 2)
    future = signals[:, 2:].reshape(-1)
    coefficients = np.linalg.lstsq(past, future, rcond=None)[0]
    noise = future - past @ coefficients
    return {
        "autocorrelation: mean deviation": deviation.mean(),
        "autocorrelation: largest deviation": deviation.max(),
        "a - true a": coefficients[0] - AR2[0],
        "b - true b": coefficients[1] - AR2[1],
        "deviation of the noise (1)": noise.std(),
        "excess kurtosis of the noise (0)": float(scipy.stats.kurtosis(noise)),
    }


@dataclasses.dataclass(frozen=True)
class Response:
    """The response of a detector as a function of the energy.

    Attributes:
      energy: The mean energy in each bin, `[bins]`.
      mean: The mean response in each bin, `[bins]`.
      deviation: The standard deviation of response - energy in each bin, `[bins]`.
      slope, offset: The line fitted to the means of the bins.
    """

    energy: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    slope: float
    offset: float

    @property
    def nonlinearity(self) -> float:
        """The largest relative deviation of the mean response from the fitted line."""
        line = self.slope * self.energy + self.offset
        return float(np.abs(self.mean / line - 1).max())

    @property
    def largest_error(self) -> float:
        """The largest relative deviation of the mean response from the truth, the energy."""
        return float(np.abs(self.mean / self.energy - 1).max())


def response(images: np.ndarray, energies: np.ndarray, bins: int = 8) -> Response:
    """Measures the response of a detector in bins of equal numbers of showers.

    Args:
      images: `[N, H, W, C]`; the response is the sum of an image.
      energies: `[N]` or `[N, 1]`.
      bins: The number of bins.
    """
    energies = energies.reshape(-1).astype(np.float64)
    total = images.reshape(len(images), -1).sum(axis=1, dtype=np.float64)
    parts = np.array_split(np.argsort(energies), bins)
    energy, mean = (np.array([each[part].mean() for part in parts]) for each in (energies, total))
    deviation = np.array([(total - energies)[part].std() for part in parts])
    slope, offset = np.polyfit(energy, mean, 1)
    return Response(energy, mean, deviation, float(slope), float(offset))


def measure_detector(samples: Arrays) -> dict[str, float]:
    """Compares the response with the energy, its deviation and the occupancy with the truth."""
    images, energies = samples["examples"], samples["conditions"]
    found = response(images, energies)
    true_deviation = np.sqrt(2 * DEPOSIT * found.energy)
    layers = images.sum(axis=(0, 1, 2), dtype=np.float64)
    return {
        "deviation from a line": found.nonlinearity,
        "deviation from the energy": found.largest_error,
        "slope (1)": found.slope,
        "resolution / true resolution": float((found.deviation / true_deviation).mean()),
        "share of cells above 0.1": float((images > 0.1).mean()),
        "error of the shares of layers": float(np.abs(layers / layers.sum() - LAYERS).max()),
    }


MAKERS: dict[str, Callable[[int, int], Arrays]] = {
    "sines": make_sines,
    "noisy_sines": make_noisy_sines,
    "ar2": make_ar2,
    "detector": make_detector,
}
MEASURES: dict[str, Callable[[Arrays], dict[str, float]]] = {
    "sines": measure_sines,
    "noisy_sines": measure_sines,
    "ar2": measure_ar2,
    "detector": measure_detector,
}


def write(name: str, path: str, count: int, seed: int) -> None:
    """Writes a dataset as .npy, or as .npz with "examples" and, for the detector, "conditions"."""
    arrays = MAKERS[name](count, seed)
    if path.endswith(".npz"):
        np.savez(path, **arrays)  # type: ignore[arg-type]
    elif path.endswith(".npy") and len(arrays) == 1:
        np.save(path, arrays["examples"])
    else:
        raise SystemExit(f"error: {path} does not end in .npz, or in .npy for signals")


def read(path: str) -> Arrays:
    """Reads samples from .npy or .npz, as `write` or --mode=sample wrote them."""
    loaded: Any = np.load(path)
    if isinstance(loaded, np.ndarray):
        return {"examples": loaded}
    arrays = dict(loaded)
    examples = arrays["samples"] if "samples" in arrays else arrays["examples"]
    conditions = arrays["conditions"] if "conditions" in arrays else arrays.get("labels")
    return {"examples": examples, **({} if conditions is None else {"conditions": conditions})}


def compare(name: str, samples: Arrays, seed: int) -> list[dict[str, Any]]:
    """Returns a row for each measure, of the samples and of as many new draws of the data."""
    count = len(samples["examples"])
    if name == "detector":
        if "conditions" not in samples:
            raise SystemExit("error: the samples have no conditions — use an .npz with conditions")
        data = make_detector(count, seed, samples["conditions"].reshape(-1).astype(np.float64))
    else:
        data = MAKERS[name](count, seed)
    found, best = MEASURES[name](samples), MEASURES[name](data)
    return [
        {name: measure, "samples": float(found[measure]), "data": float(best[measure])}
        for measure in found
    ]


def main() -> None:
    """Writes a dataset, or prints the measures of samples."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("make", "measure"))
    parser.add_argument("dataset", choices=tuple(MAKERS))
    parser.add_argument("path", help="the .npy or .npz to write, or the samples to measure")
    parser.add_argument("--count", type=int, default=10_000, help="examples to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the examples to write")
    arguments = parser.parse_args()
    if arguments.action == "make":
        write(arguments.dataset, arguments.path, arguments.count, arguments.seed)
        print(pathlib.Path(arguments.path))
        return
    rows = compare(arguments.dataset, read(arguments.path), seed=arguments.seed + 1)
    print(outcome.table(rows))
    outcome.save(f"synthetic_{arguments.dataset}", rows, samples=arguments.path)


if __name__ == "__main__":
    main()
