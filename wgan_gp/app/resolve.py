"""Checks a configuration and fills in its defaults, without importing TensorFlow."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import tpu
from ..config import Config, NetworkSettings, check_requirements, image_size_of
from ..config.ranking import kinds_of_data, usable_metrics
from ..data.datasets import BUILT_IN, Dataset, find_dataset
from ..data.spec import KINDS, DataSpec
from ..errors import UserError, shorten
from ..tpu import topologies
from .library import Registry
from .user_code import extensions

_ADA_HOLDOUT = 0.1  # the share of the examples on which --augment=ada measures the overfitting


def resolve(
    config: Config,
    models: Registry,
    dataset_function: Callable[..., Any] | None = None,
    dataset: Dataset | None = None,
) -> tuple[Config, Dataset]:
    """Returns the configuration with all defaults filled in, and the dataset.

    config.json therefore records every value in use, and giving a default explicitly does not
    change it.

    Args:
      config: The configuration.
      models: The networks.
      dataset_function: Returns the data of a split, for a dataset of the user.
      dataset: The dataset, if it has been found for the same settings of the data.

    Raises:
      UserError: If a path, --writers or --hooks is invalid, if the dataset or the model does not
        exist, if they do not fit each other, or if the run does not fit the topology of
        --mode=compile or the compiler is not installed.
    """
    extensions.check(config)

    def find(**changes: Any) -> Dataset:
        settings: Any = dataclasses.replace(config, **changes)
        function = dataset_function
        return find_dataset(
            settings, conditioning=config.conditioning, devices=config, function=function
        )

    dataset = dataset or find()
    if config.holdout is None:
        needs_held_out = config.augment == "ada" and not dataset.has_held_out
        config = dataclasses.replace(config, holdout=_ADA_HOLDOUT if needs_held_out else 0.0)
        if needs_held_out:
            dataset = find(holdout=_ADA_HOLDOUT)
    if _needs_square(config, dataset, models):
        dataset = find(image_size=dataset.source.square_side, holdout=config.holdout)
    shape = dataset.spec.example_shape
    critic, generator = check_networks(
        config, dataset.spec, models, resizable=dataset.source.resizable
    )
    check_requirements(config, {"data": KINDS[len(shape)]})
    config.check_feature_extractor(KINDS[len(shape)], shorten(config.dataset))
    usable = usable_metrics(kinds_of_metrics(config, dataset.spec))
    config.check_ranking(usable, f" of --dataset={shorten(config.dataset)}")
    if config.mode == "compile":
        config.check_replicas(topologies.find(config.compile_topology).replicas)
        tpu.check_installed()
    model_name = config.model or models.default(shape)
    generator_name = config.generator_model or model_name
    width = config.model_width or critic.width
    resolved = dataclasses.replace(
        config,
        model_dir=config.run_directory,
        image_size=image_size_of(shape[0], shape[1]) if len(shape) == 3 else None,
        model=model_name,
        generator_model=generator_name,
        model_width=width,
        generator_width=config.generator_width
        or (width if generator_name == model_name else generator.width),
        generator_batch_size=config.generator_batch,
    )
    return resolved, dataset


def kinds_of_metrics(config: Config, spec: DataSpec) -> list[str]:
    """Returns the kinds of metrics that evaluations of a run may contain; see `kinds_of_data`."""
    return kinds_of_data(
        len(spec.example_shape),
        built_in=config.dataset in BUILT_IN,
        feature_extractor=config.feature_extractor,
        is_table=spec.table is not None,
    )


def check_keras() -> None:
    """Selects Keras 3 on TensorFlow, whatever KERAS_BACKEND and keras.json name.

    Raises:
      UserError: If the environment selects Keras 2, or Keras has been imported on another backend.
    """
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        raise UserError(
            "TF_USE_LEGACY_KERAS=1 selects Keras 2, which the networks and the training do not "
            "support",
            "unset it; only losses/ works with Keras 2",
        )
    keras = sys.modules.get("keras")
    if keras is None:
        os.environ["KERAS_BACKEND"] = "tensorflow"
    elif (backend := keras.backend.backend()) != "tensorflow":
        raise UserError(
            f"Keras has been imported with the backend {backend}, but training needs TensorFlow",
            "set the environment variable KERAS_BACKEND=tensorflow before the import",
        )


def _needs_square(config: Config, dataset: Dataset, models: Registry) -> bool:
    """Returns True if the default size is the central square of images.

    Otherwise the networks support their rectangle.
    """
    shape, side = dataset.spec.example_shape, dataset.source.square_side
    if side is None or config.image_size is not None or shape[0] == shape[1]:
        return False
    try:
        check_networks(config, dataset.spec, models)
    except UserError:
        return True
    return False


def check_networks(
    settings: NetworkSettings, spec: DataSpec, models: Registry, *, resizable: bool = True
) -> tuple[Any, Any]:
    """Returns the registry entries of the critic and the generator for some data.

    Args:
      settings: The settings of the networks.
      spec: The data.
      models: The networks.
      resizable: Whether --image_size can change the size of the images, for messages.

    Raises:
      UserError: If a model does not exist, or the models do not fit the examples or each other.
    """
    try:
        return models.check(
            example_shape=spec.example_shape,
            condition_size=spec.condition_size,
            resizable=resizable,
            **settings.design,
        )
    except ValueError as error:
        what, remedy = error.args
        raise UserError(what, remedy) from None
