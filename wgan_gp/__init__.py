"""Wasserstein GANs with gradient penalty on Cloud TPUs, GPUs and CPUs, in TensorFlow 2.

`Config` holds the settings of a run, and `train` trains it. Writers receive what training writes:
`Writer` and `MemoryWriter`, from `wgan_gp.writers.writer`. Hooks act between loops: `Hook`,
`IntervalHook` and `LoopResult`, from `wgan_gp.training.hooks`. `train` returns a `Result`.

Importing this package does not import TensorFlow. Calling `train` does.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Sequence

from .config import Config
from .errors import UserError

if typing.TYPE_CHECKING:
    from .app.training import Result as Result
    from .training.hooks import Hook as Hook
    from .training.hooks import IntervalHook as IntervalHook
    from .training.hooks import LoopResult as LoopResult
    from .writers.writer import MemoryWriter as MemoryWriter
    from .writers.writer import Writer as Writer

__all__ = ["Config", "UserError", "train"]

# Names that are imported when they are first used, because their modules import NumPy or
# TensorFlow, which take time.
_LAZY = {
    "Hook": "training.hooks",
    "IntervalHook": "training.hooks",
    "LoopResult": "training.hooks",
    "MemoryWriter": "writers.writer",
    "Result": "app.training",
    "Writer": "writers.writer",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def train(config: Config, *, writers: Sequence[Writer] = (), hooks: Sequence[Hook] = ()) -> Result:
    """Starts or resumes the run in `config.run_directory` and trains it, like train.py.

    Ctrl-C and SIGTERM end training after the current loop, and the state is saved.

    Args:
      config: The settings of the run. `config.mode` is ignored.
      writers: Writers of scalars, images and text, in addition to those of the run directory and
        the terminal.
      hooks: Actions between loops, after those of the run.

    Returns:
      The result, with the trained networks in `result.run.state`.

    Raises:
      UserError: If the run cannot be started or continued. The message says why and what to do.
    """
    from .app import program  # noqa: PLC0415
    from .app.library import bundled_library  # noqa: PLC0415
    from .app.resolve import resolve  # noqa: PLC0415

    program.prepare_environment(config.tpu)
    library = bundled_library()
    config = dataclasses.replace(config, mode="train")
    resolved, dataset = resolve(config, library.models)
    from .app import training  # noqa: PLC0415

    return training.train(resolved, dataset, library, writers=writers, hooks=hooks)
