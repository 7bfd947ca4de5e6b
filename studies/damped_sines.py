"""Shows how well a generator must know damped sines before they cannot be told from the data.

  python -m studies.damped_sines                 with ten minutes for the network
  python -m studies.damped_sines --minutes=0     without it

Prints the accuracy with which gradient-boosted trees tell 2,000 signals from data, as an evaluation
does (`two_sample_accuracy`, 0.5 is best), for data without noise and with white noise of deviation
0.1, and the share of their power in which they differ from the true signals of the same parameters
("wrong power"). The signals are new draws of the data, the same with a given error, and those of a
network of the size of configs/signals.flags that is fitted to the signal of each parameter by least
squares. An adversarial training, which does not know the parameters, cannot be expected to be
better than it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import outcome
from studies import synthetic
from wgan_gp.evaluation.learned import two_sample_accuracy

COUNT = 2000
BATCH_SIZE, WIDTH = 256, 256
LEARNING_RATE = 1e-3
ERRORS = (1e-6, 0.01, 0.03, 0.1)  # for signals of amplitude 1


def judge(generate: Callable[..., np.ndarray]) -> dict[str, Any]:
    """Returns the accuracies for new signals, and the share of their power that is wrong.

    Args:
      generate: Frequencies, decays and phases `[N, 1]` float64 -> signals `[N, 128, 1]`.
    """
    parameters = synthetic.draw_parameters(COUNT, seed=1)
    true = synthetic.damped_sines(*parameters)
    signals = generate(*parameters).astype(np.float64)
    noise = np.random.default_rng(2).normal(scale=synthetic.NOISE, size=signals.shape)
    accuracies = [
        two_sample_accuracy(found.astype(np.float32), make(COUNT, seed=0)["examples"])
        for found, make in (
            (signals, synthetic.make_sines),
            (signals + noise, synthetic.make_noisy_sines),
        )
    ]
    wrong = ((signals - true) ** 2).sum() / (true**2).sum()
    values = {"wrong power": f"{wrong:.1e}", "without noise": accuracies[0]}
    return {**values, "with noise": accuracies[1]}


def with_error(deviation: float) -> Callable[..., np.ndarray]:
    """Returns a generator whose signals have white noise of a given deviation."""

    def generate(*parameters: np.ndarray) -> np.ndarray:
        signals = synthetic.damped_sines(*parameters)
        return signals + np.random.default_rng(3).normal(scale=deviation, size=signals.shape)

    return generate


def with_wrong_frequencies(*parameters: np.ndarray) -> np.ndarray:
    """Returns signals whose frequencies differ by 2 % of the range of all frequencies."""
    frequency, *others = parameters
    low, high = synthetic.FREQUENCIES
    error = np.random.default_rng(3).normal(scale=0.02 * (high - low), size=frequency.shape)
    return synthetic.damped_sines(frequency + error, *others)


def in_float32(*parameters: np.ndarray) -> np.ndarray:
    """Returns the true signals, computed in float32."""
    return synthetic.damped_sines(*(each.astype(np.float32) for each in parameters))


def fitted(minutes: float) -> Callable[..., np.ndarray]:
    """Returns a network of three hidden layers that is fitted to the signals of given parameters.

    Args:
      minutes: The time of the training, in which the learning rate falls to 0.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # noqa: PLC0415 - it is slow, and --minutes=0 needs none

    hidden = [tf.keras.layers.Dense(WIDTH, "relu", None, "he_uniform") for _ in range(3)]
    network = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(synthetic.LENGTH)])
    optimizer = tf.keras.optimizers.Adam(LEARNING_RATE)

    @tf.function(jit_compile=True)
    def step(inputs: tf.Tensor, targets: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((network(inputs) - targets) ** 2)
        weights = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    start = time.monotonic()
    for seed in itertools.count(1000):
        done = (time.monotonic() - start) / (60 * minutes)
        if done >= 1:
            break
        optimizer.learning_rate.assign(LEARNING_RATE * (1 - done))
        parameters = synthetic.draw_parameters(100 * BATCH_SIZE, seed)
        rows = _inputs(*parameters), synthetic.damped_sines(*parameters)[..., 0].astype(np.float32)
        for pair in zip(*(np.split(each, 100) for each in rows), strict=True):
            step(*map(tf.constant, pair))
    return lambda *parameters: network(_inputs(*parameters)).numpy()[..., None]


def _inputs(*parameters: np.ndarray) -> np.ndarray:
    """Returns what a network gets, numbers in [-1, 1], `[N, 4]` float32."""
    frequency, decay, phase = parameters
    scaled = [
        2 * (values - low) / (high - low) - 1
        for values, (low, high) in (
            (frequency, synthetic.FREQUENCIES),
            (decay, synthetic.DECAYS),
        )
    ]
    return np.concatenate([*scaled, np.cos(phase), np.sin(phase)], axis=1).astype(np.float32)


def main() -> None:
    """Prints a row for each generator."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="for the network")
    minutes = parser.parse_args().minutes
    generators: dict[str, Callable[..., np.ndarray]] = {
        "the true law": synthetic.damped_sines,
        "the true law, in float32": in_float32,
        "frequencies wrong by 2 % of their range": with_wrong_frequencies,
        **{f"errors of deviation {error:g}": with_error(error) for error in ERRORS},
    }
    if minutes > 0:
        generators[f"a network fitted for {minutes:g} minutes"] = fitted(minutes)
    rows = [{"signals": name, **judge(generate)} for name, generate in generators.items()]
    print(outcome.table(rows))
    outcome.save("damped_sines", rows, minutes=minutes)


if __name__ == "__main__":
    main()
