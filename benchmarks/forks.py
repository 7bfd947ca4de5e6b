"""Runs the program in forks of a process that has imported everything it needs."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import resource
import sys
import tempfile
import threading
from collections.abc import Callable

import tqdm

import train

# `train` first: it sets what TensorFlow reads when it is imported. Nothing here starts
# TensorFlow's own threads, which a fork would not have.
_PRELOADED = ["train", "tensorflow", "losses", "benchmarks.forks", "benchmarks.kills", "h5py"]
_PRELOADED += ["wgan_gp.saved_run", "wgan_gp.events", "wgan_gp.loop", "wgan_gp.probe"]
_PRELOADED += ["wgan_gp.trainer", "wgan_gp.evaluation.evaluator", "wgan_gp.evaluation.report"]
# To start a process is to ask about all others, and of two threads that ask about the same process
# one would miss its status.
_LOCK = threading.Lock()
_SECONDS = 120  # after which a child hangs
_BYTES = 2**33  # of memory that a child may ask for


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status, None if it hung, and what it wrote."""

    status: int | None
    out: str
    err: str


def execute(arguments: list[str], target: Callable[[list[str]], int] | None = None) -> Ended:
    """Runs the program, or another function of its arguments, to its end.

    Several threads may call it.

    Args:
      arguments: flags.
      target: function of the program's name and the flags; None: train.main.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("out", "err")]
        given = (target or train.main, ["train.py", *arguments], files)
        child = context.Process(target=_child, args=given)
        with _LOCK:
            child.start()
        multiprocessing.connection.wait([child.sentinel], _SECONDS)
        with _LOCK:
            status = child.exitcode
        if status is None:
            child.kill()
            child.join()
        return Ended(status, *(file.read_text(errors="replace") for file in files))


def _child(
    target: Callable[[list[str]], int], arguments: list[str], files: list[pathlib.Path]
) -> None:
    gc.disable()  # it soon ends
    tempfile.tempdir = str(files[0].parent)  # what TensorFlow writes there, nobody else deletes
    tqdm.tqdm.set_lock(threading.RLock())  # tqdm's own would outlive a process that is killed
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.exit(target(arguments))
