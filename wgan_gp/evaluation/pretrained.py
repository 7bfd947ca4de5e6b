"""Pretrained feature extractors: TF-GAN's Inception, a SavedModel or a Keras file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import posixpath
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..data import downloads, listing
from ..errors import UserError, reason

# The weights behind published FIDs and inception scores, as distributed by TF-GAN.
INCEPTION = "https://tfhub.dev/tensorflow/tfgan/eval/inception/1?tf-hub-format=compressed"
INCEPTION_FILE = "tfgan_eval_inception_1.tar.gz"
INCEPTION_SIDE = 299
_KERAS = (".keras", ".h5")
_MODULES = ("keras", "tf_keras", "builtins")  # Keras writes "builtins" for its own functions
KERAS_3 = not tf.keras.Model.__module__.startswith("tf_keras")
REMEDY = "give inception, classifier, or a Keras file or SavedModel that takes images"


def load_inception(name: str) -> tuple[str, Network]:
    """Returns the key and the network of TF-GAN's Inception, which is downloaded once.

    Call it in the scope of the strategy.

    Args:
      name: The value of --feature_extractor, for the error message.

    Raises:
      UserError: If the network cannot be downloaded or loaded.
    """
    try:
        # Keras prints the progress of the download to stdout.
        with contextlib.redirect_stdout(sys.stderr), downloads.socket_timeout():
            archive = tf.keras.utils.get_file(INCEPTION_FILE, INCEPTION)
        with tempfile.TemporaryDirectory() as folder:
            shutil.unpack_archive(archive, folder, "gztar")
            loaded = tf.saved_model.load(folder)
    # Keras raises Exception for a failed download; a truncated archive raises various exceptions.
    except Exception as error:
        raise UserError(
            f"--feature_extractor={name} cannot be fetched ({reason(error)})",
            "give the path of a SavedModel or Keras file instead, or, for labelled images, "
            f"classifier; if ~/.keras/datasets/{INCEPTION_FILE} is damaged, delete it",
        ) from error
    return INCEPTION, Network(loaded, (INCEPTION_SIDE, INCEPTION_SIDE, 3), loaded)


def load_model(path: str) -> tuple[str, Network]:
    """Returns the key and the network of a SavedModel or a Keras file.

    Call it in the scope of the strategy.

    Raises:
      UserError: If there is no such file, it cannot be loaded, or it does not take images.
    """
    origin = f"--feature_extractor={path}"
    is_keras = path.endswith(_KERAS)
    file = path if is_keras else posixpath.join(path, "saved_model.pb")
    with listing.reading(origin):
        listing.check_path(origin, path)
        exists = tf.io.gfile.exists(file)
    if not exists:
        raise UserError(
            f"{origin} is no Keras file ({' or '.join(_KERAS)}) and no folder of a SavedModel",
            REMEDY,
        )
    if not listing.can_be_opened(file):
        raise UserError(f"{origin}: {file} is no regular file", REMEDY)
    try:
        network = _open_keras(path) if is_keras else _open_saved_model(path)
    # Both libraries raise many types of exceptions for a file of another format.
    except Exception as error:
        raise UserError(f"{origin} cannot be loaded ({reason(error)})", REMEDY) from error
    found = tf.io.gfile.stat(file)
    return f"{path} {found.length} {found.mtime_nsec}", network


@dataclasses.dataclass(frozen=True)
class Network:
    """A pretrained network as a feature extractor.

    Attributes:
      call: images -> a tensor `[B, ...]`, or a dictionary of tensors by name.
      input_shape: `(H, W, C)` of the images it takes. None stands for any size.
      owner: The object that holds the variables, kept here so that they are not deleted.
    """

    call: Callable[[tf.Tensor], Any]
    input_shape: tuple[int | None, ...]
    owner: Any

    def __call__(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Computes features `[B, D]` float32 of images `[B, H, W, C]` in [-1, 1].

        Returns:
          The features, and class probabilities `[B, K]` or None if the network has no output
          "logits".

        Raises:
          ValueError: If none of the network's outputs is known to be the features.
        """
        outputs = self.call(_adapted(images, self.input_shape))
        if not isinstance(outputs, dict):
            outputs = {"features": outputs}
        names = [name for name in ("pool_3", "features") if name in outputs]
        if not names and len(outputs) == 1:
            names = list(outputs)  # a SavedModel names an output that its function did not name
        if not names:
            raise ValueError(f"of its outputs {', '.join(sorted(outputs))} none is features")
        features, logits = (_flat(outputs.get(name)) for name in (names[0], "logits"))
        return features, None if logits is None else tf.nn.softmax(logits)


def _flat(output: tf.Tensor | None) -> tf.Tensor | None:
    if output is None:
        return None
    return tf.cast(tf.reshape(output, [tf.shape(output)[0], -1]), tf.float32)


def _adapted(images: tf.Tensor, shape: tuple[int | None, ...]) -> tf.Tensor:
    """Returns the images with the size and the number of channels that a network takes."""
    height, width, channels = shape
    wanted = (height or images.shape[1], width or images.shape[2])
    if wanted != tuple(images.shape[1:3]):
        images = tf.image.resize(images, wanted)  # bilinear, as for published FIDs
    if channels == 3 and images.shape[3] == 1:
        return tf.repeat(images, 3, axis=3)
    if channels == 1 and images.shape[3] == 3:
        return tf.image.rgb_to_grayscale(images)
    return images


def _open_keras(path: str) -> Network:
    if not KERAS_3:
        _check_runs_no_code(path)
    model = tf.keras.models.load_model(path, compile=False)
    (taken,) = model.inputs
    return Network(functools.partial(model, training=False), _image_shape(taken), model)


def _check_runs_no_code(path: str) -> None:
    """Raises ValueError for a file that makes Keras 2 run code; Keras 3 rejects such files.

    Keras 2 runs any code in files of other formats than .keras archives. For an archive, it runs
    the code of Lambda layers and calls any function of any module that the archive names.
    """
    with tf.io.gfile.GFile(path, "rb") as opened:
        content = io.BytesIO(opened.read())
    if not zipfile.is_zipfile(content):
        raise ValueError("Keras 2 would run the code in it; save it as a .keras archive")
    with zipfile.ZipFile(content) as archive:
        waiting = [json.loads(archive.read("config.json"))]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            module = str(part.get("module") or "keras")
            if part.get("class_name") in ("Lambda", "__lambda__"):
                raise ValueError("Keras 2 would run the code of its Lambda layer")
            if module.partition(".")[0] not in _MODULES:
                raise ValueError(f"it names code of the module {module}, which is not Keras's")
        if isinstance(part, (dict, list)):
            waiting += part.values() if isinstance(part, dict) else part


def _open_saved_model(path: str) -> Network:
    loaded = tf.saved_model.load(path)
    signature = loaded.signatures.get("serving_default")
    if signature is None:
        if not callable(loaded):
            raise ValueError("it has no signature serving_default, and is no function")
        (taken, *_), _ = loaded.__call__.concrete_functions[0].structured_input_signature
        return Network(loaded, _image_shape(taken), loaded)
    ((name, taken),) = signature.structured_input_signature[1].items()
    return Network(lambda images: signature(**{name: images}), _image_shape(taken), loaded)


def _image_shape(taken: Any) -> tuple[int | None, ...]:
    """Returns `(H, W, C)` of a network's input.

    Raises:
      ValueError: If the input is not a batch of float32 images.
    """
    shape = taken.shape
    if len(shape) != 4 or shape[0] is not None or tf.as_dtype(taken.dtype) != tf.float32:
        raise ValueError(f"it takes {tuple(shape)}, no float32 images [None, H, W, C]")
    return tuple(shape[1:])
