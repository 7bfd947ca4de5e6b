"""A small classifier fitted to a run's own images, whose features need no download."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import warnings

import numpy as np
import sklearn.exceptions
import sklearn.neural_network
import tensorflow as tf
import threadpoolctl

from .examples import Arrays, Examples, Kept

HIDDEN = 128
EXAMPLES = 10_000  # at most; a constant, so that features do not depend on --evaluate_samples
FITTED_SHARE = 0.8  # share of the examples for fitting; the others measure the accuracy
_EPOCHS = 50  # at most
_NEVER = -1e9  # logit of a class without examples


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A multilayer perceptron of pixels with one hidden ReLU layer and a softmax over classes.

    Attributes:
      arrays: "hidden_kernel" `[H W C, 128]`, "hidden_bias" `[128]`, "kernel" `[128, K]` and
        "bias" `[K]`, float32; "accuracy", scalar.
    """

    arrays: Arrays

    def __call__(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the hidden layer `[B, 128]` and probabilities `[B, K]` of `[B, H, W, C]`."""
        pixels = tf.reshape(images, [images.shape[0], -1])
        hidden = tf.nn.relu(pixels @ self.arrays["hidden_kernel"] + self.arrays["hidden_bias"])
        return hidden, tf.nn.softmax(hidden @ self.arrays["kernel"] + self.arrays["bias"])

    @property
    def key(self) -> str:
        """A hash of the weights, which identifies the features."""
        content = b"".join(self.arrays[name].tobytes() for name in sorted(self.arrays))
        return f"classifier {hashlib.sha256(content).hexdigest()}"

    @property
    def accuracy(self) -> float:
        """The accuracy on the held-out examples."""
        return float(self.arrays["accuracy"])


def fitted(examples: Examples, kept: Kept, classes: int) -> Classifier:
    """Returns the classifier of a dataset from the cache, or fits it.

    Args:
      examples: The examples of the dataset, with labels 0 ... classes - 1.
      kept: The cache.
      classes: The number of classes, >= 2.
    """

    def compute() -> Arrays:
        arrays = _fit(*examples.read(EXAMPLES), classes)
        print(
            f"fitted a classifier of {classes} classes: {float(arrays['accuracy']):.1%} right on "
            "the examples held back",
            file=sys.stderr,
        )
        return arrays

    name = f"classifier-{examples.key(classes)}"
    return Classifier(kept.get(name, compute, functools.partial(examples.content, EXAMPLES)))


def _fit(images: np.ndarray, labels: np.ndarray, classes: int) -> Arrays:
    """Fits a classifier to the first 80% of shuffled examples; see `Classifier.arrays`."""
    pixels = images.reshape(len(images), -1)
    share = max(1, int(FITTED_SHARE * len(pixels)))
    model = sklearn.neural_network.MLPClassifier(
        hidden_layer_sizes=[HIDDEN], random_state=0, max_iter=_EPOCHS
    )
    # One thread gives the same order of summation on every machine, and is not slower for small
    # matrices.
    with warnings.catch_warnings(), threadpoolctl.threadpool_limits(1):
        # The classifier is good enough long before it converges.
        warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
        model.fit(pixels[:share], labels[:share])
    found = model.classes_
    kernel, bias = model.coefs_[1], model.intercepts_[1]
    if len(found) == 2:  # scikit-learn then has one logit, that of the second class
        kernel, bias = np.insert(kernel, 0, 0, axis=1), np.insert(bias, 0, 0)
    all_kernel = np.zeros([HIDDEN, classes], np.float32)
    all_bias = np.full([classes], _NEVER, np.float32)
    all_kernel[:, found], all_bias[found] = kernel, bias
    held_back = slice(share, None) if share < len(pixels) else slice(None)
    return {
        "hidden_kernel": model.coefs_[0].astype(np.float32),
        "hidden_bias": model.intercepts_[0].astype(np.float32),
        "kernel": all_kernel,
        "bias": all_bias,
        "accuracy": np.array(model.score(pixels[held_back], labels[held_back])),
    }
