"""Programs in forks of a process that has already imported everything that they need.

A program in a fork saves the import of TensorFlow, which takes longer than most of these programs.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import tqdm

import train
from wgan_gp.app.program import prepare_environment
from wgan_gp.runtime import signals, streams

# TensorFlow reads these variables when it is imported, in the server of the forks.
prepare_environment(None)
# None of these modules may start threads of TensorFlow, gRPC or jax: a fork does not copy threads.
# This module comes first because of the variables above.
_PRELOADED = ["tests.helpers.forks", "tensorflow", "losses", "tests.fuzz.results"]
_PRELOADED += ["wgan_gp.app.training", "wgan_gp.app.saved_run"]
_PRELOADED += ["wgan_gp.evaluation.evaluator", "wgan_gp.evaluation.results"]
# Starting a process polls all others. If two threads polled the same process, one would miss its
# exit status.
_LOCK = threading.Lock()
_TIMEOUT = 600  # seconds
_MAX_BYTES = 2**33  # of address space for a child

Main = Callable[[list[str]], int]  # [program name, *flags] -> exit status


class Fork(contextlib.AbstractContextManager):
    """A program in a fork, with the part of the interface of subprocess.Popen that tests use.

    Args:
      main: The main function of the program.
      arguments: Its arguments without the name of the program.
      environment: All variables of its environment. None stands for those of this process.
      stdout: A file descriptor, or subprocess.PIPE or subprocess.DEVNULL.
      stderr: A file descriptor, or subprocess.PIPE or subprocess.DEVNULL.

    Attributes:
      pid: The ID of the process.
      stdout: The text that the program writes to stdout. None if it is not a pipe.
      stderr: The text that the program writes to stderr. None if it is not a pipe.
    """

    def __init__(
        self,
        main: Main,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        variables = dict(os.environ if environment is None else environment)
        with contextlib.ExitStack() as ends:
            (self.stdout, out), (self.stderr, err) = (_open(o, ends) for o in (stdout, stderr))
            arguments = (main, ["train.py", *arguments], variables, _Sent(out), _Sent(err))
            # A daemon does not outlive this process.
            self._process = context.Process(target=_child, args=arguments, daemon=True)
            with _LOCK:
                self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Returns the exit status, which is negative after a signal, or None while it runs."""
        with _LOCK:
            return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        """The exit status, as of `poll`."""
        return self.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the program and returns its exit status.

        Raises:
          TimeoutExpired: If it still runs after the timeout.
        """
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired("fork", timeout)
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end of the program, and returns the rest of both texts.

        The text of a stream that is not a pipe is empty.

        Raises:
          TimeoutExpired: If it still ran after the timeout. It was killed, and the error has the
            texts.
        """
        with concurrent.futures.ThreadPoolExecutor(2) as readers:
            streams_read = (self.stdout, self.stderr)
            texts = [readers.submit(stream.read if stream else str) for stream in streams_read]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired as error:
                self.kill()
                error.output, error.stderr = (text.result() for text in texts)
                raise
            return texts[0].result(), texts[1].result()

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the program has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL, unless the program has ended."""
        self.send_signal(signal.SIGKILL)

    def __exit__(self, *_) -> None:
        self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def start_program(*arguments: str, **options) -> Fork:
    """Starts what `python train.py` runs; the options are those of Fork."""
    return Fork(main_program, arguments, **options)


def main_program(argv: list[str]) -> int:
    """Runs train.py from its first line on, and returns its exit status."""
    streams.ignore_output_errors()
    signals.exit_on_interrupt()
    return train.main(argv)


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


def run_in_fork(arguments: list[str], main: Main = train.main) -> ProcessResult:
    """Runs the program, or another one with limited memory, to its end.

    It may be called from several threads.
    """
    # TensorFlow does not delete its temporary files.
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "TMPDIR": folder}
        limited = functools.partial(_with_limited_memory, main)
        with Fork(limited, arguments, environment=variables) as fork:
            try:
                out, err = fork.communicate(_TIMEOUT)
            except subprocess.TimeoutExpired as error:
                return ProcessResult(None, error.output, error.stderr)
            return ProcessResult(fork.returncode, out, err)


def _with_limited_memory(main: Main, argv: list[str]) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    return main(argv)


def _open(stream: int, ends: contextlib.ExitStack):
    """Returns our end of a pipe as a text, or None, and the file descriptor for the child.

    Both are closed with `ends`, except ours and a descriptor of the caller.
    """
    if stream == subprocess.PIPE:
        ours, theirs = os.pipe()
        ends.callback(os.close, theirs)  # else our end would never be at its end
        return open(ours, errors="replace"), theirs
    if stream == subprocess.DEVNULL:
        stream = os.open(os.devnull, os.O_RDWR)
        ends.callback(os.close, stream)
    return None, stream


class _Sent:
    """A file descriptor, which becomes the number of its copy where the child unpickles it."""

    def __init__(self, number: int):
        self._number = number

    def __reduce__(self):
        return _receive, (multiprocessing.reduction.DupFd(self._number),)


def _receive(copy) -> int:
    return copy.detach()


def _child(main: Main, argv: list[str], variables: dict[str, str], out: int, err: int) -> None:
    for number, stream in ((out, 1), (err, 2)):
        os.dup2(number, stream)
        os.close(number)
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    gc.disable()  # the process is short
    tempfile.tempdir = None  # that of the variables
    tqdm.tqdm.set_lock(threading.RLock())  # a killed process would leave tqdm's own lock behind
    try:
        status = main(argv)
    finally:
        atexit._run_exitfuncs()  # of a fork, multiprocessing does not run them
    sys.exit(status)


def end_interpreter(status: int) -> NoReturn:
    """Ends a fork as the interpreter ends a program, which takes about a second.

    Without it, a fork ends before all objects are deleted, also those of TensorFlow.
    """
    ctypes.pythonapi.Py_Exit(status)
