"""Shared fixtures; all tests have eight logical CPU devices.

The devices are configured here, before TensorFlow's context starts.
"""

import atexit
import functools
import gc
import os
import shutil
import signal
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in train.py, before TensorFlow is imported
# Eight devices of jax, too. It would look for a TPU, and wait, if libtpu is installed.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
# The threads of NumPy, SciPy and scikit-learn wait for each other actively. With several testers on
# few cores, a singular value decomposition would take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The stores of decoded examples, also of programs that are started, are in a folder of their own.
# The fonts of matplotlib and the packages of pip stay where they are.
os.environ.setdefault("MPLCONFIGDIR", os.path.expanduser("~/.cache/matplotlib"))
os.environ.setdefault("PIP_CACHE_DIR", os.path.expanduser("~/.cache/pip"))
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="wgan_gp-tests-")

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

from wgan_gp.runtime.streams import show_log_lines
from wgan_gp.training import probe

atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
show_log_lines()
# Shells start background jobs with SIGINT ignored, and programs that tests start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
tf.config.set_visible_devices([], "GPU")  # bit-exact results hold on the CPU only
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
)

# A change is not refused because of an example that was drawn for the first time.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.load_profile("repeatable")

# TensorFlow creates millions of objects, and garbage collection of them took a sixth of the time
# of all tests. Objects that exist now are therefore excluded from collection.
gc.freeze()
gc.set_threshold(100_000, 50, 100)

# The diagnostics of the critic are of 256 examples, which are 16 batches of TINY.
PROBED_EXAMPLES = probe.EXAMPLES
probe.EXAMPLES = 32


@pytest.fixture
def cache(request):
    """Holds examples where the parameter of the test says; see `held_in`."""
    from tests.helpers.runs import held_in  # noqa: PLC0415

    with held_in(request.param):
        yield request.param


@pytest.fixture(params=["eager", "xla"])
def compute(request):
    """Returns a decorator that runs a function eagerly, in a tf.function, or compiled by XLA.

    A function that XLA compiles is traced as for a tf.function, so that "graph" is for those tests
    in which TensorFlow's own optimization of a graph may make a difference.
    """
    return {
        "eager": lambda function: function,
        "graph": tf.function,
        "xla": functools.partial(tf.function, jit_compile=True),
    }[request.param]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Returns a folder of small prepared datasets with the names of MNIST and CIFAR-10."""
    # The import takes seconds, and few tests need it.
    import tensorflow_datasets  # noqa: PLC0415

    folder = str(tmp_path_factory.mktemp("prepared"))
    for name, shape in (("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))):
        random = np.random.default_rng(0)
        splits = {
            split: tf.data.Dataset.from_tensor_slices(
                {
                    "image": random.integers(0, 256, (count, *shape)).astype(np.uint8),
                    "label": np.arange(count) % 10,
                    "id": [str(index) for index in range(count)],
                }
            )
            for split, count in (("train", 60), ("test", 20))
        }
        tensorflow_datasets.dataset_builders.store_as_tfds_dataset(
            name=name,
            version=str(tensorflow_datasets.builder_cls(name).VERSION),
            features=tensorflow_datasets.features.FeaturesDict(
                {
                    "image": tensorflow_datasets.features.Image(shape=shape),
                    "label": tensorflow_datasets.features.ClassLabel(num_classes=10),
                    "id": tensorflow_datasets.features.Text(),
                }
            ),
            split_datasets=splits,
            data_dir=folder,
            disable_shuffling=True,
        )
    return folder


@pytest.fixture(autouse=True)
def _same_weights_every_time():
    tf.keras.utils.set_random_seed(0)
