"""Forks of a process that has already imported everything that the program needs."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import pathlib
import resource
import sys
import tempfile
import threading
from collections.abc import Callable

import tqdm

import train

# `tests.fuzz` comes first because it sets variables that TensorFlow reads on import. None of these
# modules may start TensorFlow's threads, because a fork does not copy threads.
_PRELOADED = ["tests.fuzz", "train", "tensorflow", "losses", "tests.fuzz.results"]
_PRELOADED += ["wgan_gp.app.training", "wgan_gp.app.saved_run"]
_PRELOADED += ["wgan_gp.evaluation.evaluator", "wgan_gp.evaluation.results"]
# Starting a process polls all others. If two threads polled the same process, one would miss its
# exit status.
_LOCK = threading.Lock()
_TIMEOUT = 120  # seconds
_MAX_BYTES = 2**33  # of address space for a child


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """The result of a process.

    Attributes:
      status: The exit status. None if the process timed out.
      out: The text that it wrote to stdout.
      err: The text that it wrote to stderr.
    """

    status: int | None
    out: str
    err: str


def forkserver() -> multiprocessing.context.ForkServerContext:
    """Returns the context whose processes have already imported what the program needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def run_in_fork(
    arguments: list[str], target: Callable[[list[str]], int] | None = None
) -> ProcessResult:
    """Runs the program, or another function of its arguments, to its end.

    It may be called from several threads.

    Args:
      arguments: The flags.
      target: [program name, *flags] -> exit status. None stands for `train.main`.
    """
    context = forkserver()
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("out", "err")]
        child_arguments = (target or train.main, ["train.py", *arguments], files)
        child = context.Process(target=_child, args=child_arguments)
        with _LOCK:
            child.start()
        multiprocessing.connection.wait([child.sentinel], _TIMEOUT)
        with _LOCK:
            status = child.exitcode
        if status is None:
            child.kill()
            child.join()
        return ProcessResult(status, *(file.read_text(errors="replace") for file in files))


def _child(
    target: Callable[[list[str]], int], arguments: list[str], files: list[pathlib.Path]
) -> None:
    gc.disable()  # the process is short
    tempfile.tempdir = str(files[0].parent)  # TensorFlow does not delete its temporary files
    tqdm.tqdm.set_lock(threading.RLock())  # a killed process would leave tqdm's own lock behind
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.exit(target(arguments))
