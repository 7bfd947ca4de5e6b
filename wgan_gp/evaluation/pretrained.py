"""Pretrained feature extractors: TF-GAN's Inception, a SavedModel or a Keras file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import posixpath
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..data.sources import listing
from ..errors import UserError, reason
from ..run_directory.files import this_machine

# The weights behind published FIDs and inception scores, as distributed by TF-GAN.
INCEPTION = "https://tfhub.dev/tensorflow/tfgan/eval/inception/1?tf-hub-format=compressed"
INCEPTION_FILE = "tfgan_eval_inception_1.tar.gz"
INCEPTION_SIDE = 299
_KERAS = (".keras", ".h5")
REMEDY = "use inception, classifier, or a Keras file or SavedModel that takes images"


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
        with contextlib.redirect_stdout(sys.stderr), listing.socket_timeout():
            archive = tf.keras.utils.get_file(INCEPTION_FILE, INCEPTION)
        with tempfile.TemporaryDirectory() as folder:
            shutil.unpack_archive(archive, folder, "gztar")
            loaded = _load_saved_model(folder)
    # Keras raises Exception for a failed download; a truncated archive raises various exceptions.
    except Exception as error:
        raise UserError(
            f"--feature_extractor={name} cannot be downloaded or loaded ({reason(error)})",
            "use the path of a SavedModel or Keras file or, for labeled images, classifier, or "
            f"none; if ~/.keras/datasets/{INCEPTION_FILE} is damaged, delete it",
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
            f"{origin} is neither a Keras file ({' or '.join(_KERAS)}) nor a SavedModel folder",
            REMEDY,
        )
    if not listing.can_be_opened(file):
        raise UserError(f"{origin}: {file} is not a regular file", REMEDY)
    try:
        network = _open_keras(path) if is_keras else _open_saved_model(path)
    # Keras and TensorFlow raise many types of exceptions for a file in another format.
    except Exception as error:
        raise UserError(f"{origin} cannot be loaded ({reason(error)})", REMEDY) from error
    status = tf.io.gfile.stat(file)
    return f"{path} {status.length} {status.mtime_nsec}", network


@dataclasses.dataclass(frozen=True)
class Network:
    """A pretrained network as a feature extractor.

    Attributes:
      call: images -> a tensor `[B, ...]`, or a dictionary of tensors by name.
      input_shape: The shape `(H, W, C)` of its input images. None stands for any size.
      owner: The object that owns the variables; the reference keeps them alive.
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
        outputs = self.call(_adapt(images, self.input_shape))
        if not isinstance(outputs, dict):
            outputs = {"features": outputs}
        names = [name for name in ("pool_3", "features") if name in outputs]
        if not names and len(outputs) == 1:
            names = list(outputs)  # TensorFlow chose the name of an unnamed output
        if not names:
            raise ValueError(
                f"none of its outputs ({', '.join(sorted(outputs))}) is named features or pool_3"
            )
        features, logits = (_flatten(outputs.get(name)) for name in (names[0], "logits"))
        return features, None if logits is None else tf.nn.softmax(logits)


def _flatten(output: tf.Tensor | None) -> tf.Tensor | None:
    if output is None:
        return None
    return tf.cast(tf.reshape(output, [tf.shape(output)[0], -1]), tf.float32)


def _adapt(images: tf.Tensor, shape: tuple[int | None, ...]) -> tf.Tensor:
    """Converts images to the size and the number of channels that a network takes."""
    height, width, channels = shape
    size = (height or images.shape[1], width or images.shape[2])
    if size != tuple(images.shape[1:3]):
        images = tf.image.resize(images, size)  # bilinear, as for published FIDs
    if channels == 3 and images.shape[3] == 1:
        return tf.repeat(images, 3, axis=3)
    if channels == 1 and images.shape[3] == 3:
        return tf.image.rgb_to_grayscale(images)
    return images


def _open_keras(path: str) -> Network:
    model = tf.keras.models.load_model(path, compile=False)
    (model_input,) = model.inputs
    return Network(functools.partial(model, training=False), _image_shape(model_input), model)


def _load_saved_model(path: str) -> Any:
    options = tf.saved_model.LoadOptions(experimental_io_device=this_machine())
    return tf.saved_model.load(path, options=options)


def _open_saved_model(path: str) -> Network:
    loaded = _load_saved_model(path)
    signature = loaded.signatures.get("serving_default")
    if signature is None:
        if not callable(loaded):
            raise ValueError("it has no signature serving_default and is not callable")
        (spec, *_), _ = loaded.__call__.concrete_functions[0].structured_input_signature
        return Network(loaded, _image_shape(spec), loaded)
    ((name, spec),) = signature.structured_input_signature[1].items()
    return Network(lambda images: signature(**{name: images}), _image_shape(spec), loaded)


def _image_shape(spec: Any) -> tuple[int | None, ...]:
    """Returns `(H, W, C)` of a network's input.

    Raises:
      ValueError: If the input is not a batch of float32 images.
    """
    shape = spec.shape
    if len(shape) != 4 or shape[0] is not None or tf.as_dtype(spec.dtype) != tf.float32:
        raise ValueError(
            f"its input has shape {tuple(shape)}; float32 images [None, H, W, C] are needed"
        )
    return tuple(shape[1:])
