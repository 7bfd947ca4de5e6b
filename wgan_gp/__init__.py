"""Wasserstein GANs with gradient penalty on Cloud TPUs, GPUs and CPUs, in TensorFlow 2.

`Config` holds the settings of a run, and `train` trains it. Writers receive what training writes:
`Writer` and `MemoryWriter`, from `wgan_gp.writers.writer`. Hooks act between loops: `Hook`,
`IntervalHook` and `LoopResult`, from `wgan_gp.training.hooks`. `train` returns a `Result`.
`losses` and `models` are the packages of losses and networks. `load` returns an exported generator,
a `LoadedGenerator`.

Importing this package does not import TensorFlow. Calling `train` or `load` does.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import typing
from collections.abc import Sequence
from typing import Any

if typing.TYPE_CHECKING:
    import losses
    import models
else:
    try:
        from . import losses, models  # the wheel contains them
    except ImportError as error:
        if error.name != __name__:  # a package that they need is missing
            raise
        import losses
        import models  # a checkout has them next to this package

from .app.library import Library
from .config import Config
from .errors import UserError, shown

if typing.TYPE_CHECKING:
    from .app.result import LoadedGenerator as LoadedGenerator
    from .app.result import Result as Result
    from .training.hooks import Hook as Hook
    from .training.hooks import IntervalHook as IntervalHook
    from .training.hooks import LoopResult as LoopResult
    from .writers.writer import MemoryWriter as MemoryWriter
    from .writers.writer import Writer as Writer

__all__ = [
    "Config",
    "Hook",
    "IntervalHook",
    "LoadedGenerator",
    "LoopResult",
    "MemoryWriter",
    "Result",
    "UserError",
    "Writer",
    "__version__",
    "load",
    "losses",
    "models",
    "train",
]

__version__ = "0.1.0"


# Names that are imported when they are first used, because their modules import NumPy or
# TensorFlow, which take time.
_LAZY = {
    "Hook": "training.hooks",
    "IntervalHook": "training.hooks",
    "LoadedGenerator": "app.result",
    "LoopResult": "training.hooks",
    "MemoryWriter": "writers.writer",
    "Result": "app.result",
    "Writer": "writers.writer",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def train(
    config: Config,
    *,
    generator: Any = None,
    critic: Any = None,
    data: Any = None,
    objective: Any = None,
    generator_optimizer: Any = None,
    critic_optimizer: Any = None,
    writers: Sequence[Writer] = (),
    hooks: Sequence[Hook] = (),
) -> Result:
    """Starts or resumes the run in `config.run_directory` and trains it, like train.py.

    Ctrl-C and SIGTERM end training after the current loop, and the state is saved.

    Args:
      config: The settings of the run. `config.mode` is ignored.
      generator: A network of your own in place of that of `config`: a Keras model, a tf.Module or
        another callable with `trainable_variables`; or, so that it can be created on several
        replicas and from a seed, a function of a `models.Design` that returns one. It maps latents
        `[B, config.latent_size]` to examples `[B, ...]`, both float32.
      critic: A network of your own, likewise. It maps examples to scores, see `losses.score`.
      data: Data of your own: an array `[N, D]`, `[N, T, C]`, `[N, H, W, C]` or `[N, D, H, W, C]`
        of numbers in any units; a DataFrame; a pair of one of these and labels `[N]`; a
        tf.data.Dataset of examples or of such pairs; or a function of the split ("train", "test")
        that returns one of these, or None. They are read by the rules of files, and samples have
        their units.
      objective: An objective of your own in place of the losses of `config`: an object with the
        interface of `wgan_gp.training.objective.Objective`, or a class.
      generator_optimizer, critic_optimizer: Keras optimizers in place of --optimizer and its
        settings; both or neither. Training uses copies, which clip gradients after the sum over
        all replicas.
      writers: Writers of scalars, images and text, in addition to those of the run directory and
        the terminal.
      hooks: Actions between loops, after those of the run.

    Returns:
      The result: the trained networks, the history, and functions that sample, evaluate and export.

    Raises:
      UserError: If the run cannot be started or continued. The message says why and what to do.
    """
    from .app import program  # noqa: PLC0415
    from .app.connection import tpu_of_tensorflow  # noqa: PLC0415
    from .app.resolve import resolve  # noqa: PLC0415
    from .app.user_code import loading  # noqa: PLC0415

    _check_arguments(config, writers, hooks)
    program.prepare_environment(tpu_of_tensorflow(config))
    library = Library()
    config, user_code = loading.from_objects(
        dataclasses.replace(config, mode="train"),
        library.models,
        generator=generator,
        critic=critic,
        data=data,
        objective=objective,
        optimizers=(generator_optimizer, critic_optimizer),
    )
    devices = program.connect_for(config, user_code)
    library = user_code.add_to(library)
    resolved, dataset = resolve(user_code.record(config), library.models, user_code.dataset)
    from .app import training  # noqa: PLC0415

    return training.train(resolved, dataset, library, devices=devices, writers=writers, hooks=hooks)


def load(path: str | os.PathLike, *, model: Any = None, seed: int | None = None) -> LoadedGenerator:
    """Loads the generator that --mode=export or `Result.export` wrote.

    Nothing in the folder is executed, and every value is checked, so the folder may come from
    another person.

    Args:
      path: The folder, local or gs://.
      model: The network, if it is your own: as `generator` of `train`, a module with a function
        `generator`, or the value of --model.
      seed: The seed of the samples, as --seed. Default: that of the run.

    Returns:
      The generator, whose `sample` returns the samples of --mode=sample.

    Raises:
      UserError: If there is no generator, a file is damaged, or `model` is missing.
    """
    from .app import program  # noqa: PLC0415

    program.prepare_environment(None)
    from .app import result  # noqa: PLC0415

    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise UserError(
            f"path={shown(path)} is no folder", "give the folder that --mode=export wrote"
        )
    return result.load(os.fspath(path), Library(), model, seed)


def _check_arguments(config: Any, writers: Any, hooks: Any) -> None:
    """Raises UserError unless the arguments of `wgan_gp.train` have the documented types."""
    from .training.hooks import Hook  # noqa: PLC0415
    from .writers.writer import Writer  # noqa: PLC0415

    if not isinstance(config, Config):
        raise UserError(f"config is {shown(config)}", "pass a wgan_gp.Config")
    for name, values, kind in (("writers", writers, Writer), ("hooks", hooks, Hook)):
        if not isinstance(values, (list, tuple)):
            raise UserError(f"{name} is {shown(values)}", f"pass a list: {name}=[...]")
        for value in values:
            if not isinstance(value, kind):
                raise UserError(
                    f"{name} contains {shown(value)}",
                    f"pass objects of subclasses of wgan_gp.{kind.__name__}",
                )
