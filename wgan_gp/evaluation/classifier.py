"""A small classifier fitted to the run's own images; it needs no download."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings

import numpy as np
import sklearn.exceptions
import sklearn.neural_network
import tensorflow as tf
import threadpoolctl
from absl import logging

from ..errors import UserError
from .examples import ArrayCache, Arrays, Examples

HIDDEN_UNITS = 128
MAX_EXAMPLES = 10_000  # a constant, so that features do not depend on --evaluate_samples
MAX_SHARE = 0.5  # of all examples; samples are compared with the others
TRAINING_SHARE = 0.8  # share of the examples for fitting; the others measure the accuracy
_MAX_EPOCHS = 50
_ABSENT_LOGIT = -1e9  # logit of a class without examples


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A multilayer perceptron of pixels with one hidden ReLU layer and a softmax over classes.

    Attributes:
      arrays: "hidden_kernel" `[H W C, 128]`, "hidden_bias" `[128]`, "kernel" `[128, K]` and
        "bias" `[K]`, float32; "accuracy", scalar; "examples", the number of examples used.
    """

    arrays: Arrays

    def __call__(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns features `[B, 128]` and probabilities `[B, K]` of images `[B, H, W, C]`."""
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

    @property
    def examples(self) -> int:
        """The number of first examples of the dataset that determined the weights."""
        return int(self.arrays["examples"])


def fit_or_load(examples: Examples, cache: ArrayCache, classes: int) -> Classifier:
    """Loads the classifier of a dataset from the cache, or fits it.

    It is fitted to the first half of the examples, at most MAX_EXAMPLES. Features are fitted to the
    noise of these examples, which therefore differ from new examples of the same distribution.

    Args:
      examples: The examples of the dataset, with labels 0 ... classes - 1, or -1 if unknown.
      cache: The cache that stores the classifier.
      classes: The number of classes, >= 2.
    """

    count = int(MAX_EXAMPLES / MAX_SHARE)

    def compute() -> Arrays:
        images, labels = examples.read(count)
        used = max(1, int(MAX_SHARE * len(images)))
        known = labels[:used] >= 0
        if len(np.unique(labels[:used][known])) < 2:
            raise UserError(
                "--feature_extractor=classifier needs labels of at least two classes, but the "
                f"first {used:,} examples have fewer",
                "use inception, none, or the path of a Keras file or SavedModel",
            )
        arrays = fit(images[:used][known], labels[:used][known], classes)
        arrays["examples"] = np.array(used)
        logging.info(
            f"fitted a classifier of {classes} classes: accuracy {float(arrays['accuracy']):.1%} "
            "on held-out examples"
        )
        return arrays

    name = f"classifier-{examples.key(classes)}"
    content_hash = functools.partial(examples.content_hash, count)
    return Classifier(cache.get_or_compute(name, compute, content_hash))


def fit(images: np.ndarray, labels: np.ndarray, classes: int) -> Arrays:
    """Fits a classifier to the first 80% of shuffled examples; see `Classifier.arrays`."""
    pixels = images.reshape(len(images), -1)
    count = max(1, int(TRAINING_SHARE * len(pixels)))
    model = sklearn.neural_network.MLPClassifier(
        hidden_layer_sizes=[HIDDEN_UNITS], random_state=0, max_iter=_MAX_EPOCHS
    )
    # One thread gives the same order of summation on every machine, and is not slower for small
    # matrices.
    with warnings.catch_warnings(), threadpoolctl.threadpool_limits(1):
        # The classifier is good enough long before it converges.
        warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
        model.fit(pixels[:count], labels[:count])
    present = model.classes_
    kernel, bias = model.coefs_[1], model.intercepts_[1]
    if len(present) == 2:  # scikit-learn then computes only the logit of the second class
        kernel, bias = np.insert(kernel, 0, 0, axis=1), np.insert(bias, 0, 0)
    all_kernel = np.zeros([HIDDEN_UNITS, classes], np.float32)
    all_bias = np.full([classes], _ABSENT_LOGIT, np.float32)
    all_kernel[:, present], all_bias[present] = kernel, bias
    held_out = slice(count, None) if count < len(pixels) else slice(None)
    return {
        "hidden_kernel": model.coefs_[0].astype(np.float32),
        "hidden_bias": model.intercepts_[0].astype(np.float32),
        "kernel": all_kernel,
        "bias": all_bias,
        "accuracy": np.array(model.score(pixels[held_out], labels[held_out])),
        "examples": np.array(len(pixels)),
    }
