"""Separate processes for the implementations, so that time and memory are measured alone."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from .work import Work

OURS = "ours"
NAMES = {
    OURS: "this project",
    "keras": "Keras, fit",
    "keras-xla": "Keras, fit, jit_compile=True",
    "torch": "PyTorch, eager",
    "torch-compile": "PyTorch, torch.compile",
}
DEFAULT_NAMES = tuple(name for name in NAMES if name != "keras-xla")  # ten times slower on a CPU


def parse(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """Parses the arguments of a benchmark.

    Returns:
      The arguments, and the names of the selected implementations, which always include OURS.
    """
    parser.add_argument(
        "--only",
        default=",".join(DEFAULT_NAMES),
        help=f"implementations to compare with; some of {','.join(NAMES)}",
    )
    arguments = parser.parse_args()
    selected = arguments.only.split(",")
    return arguments, [name for name in NAMES if name in selected or name == OURS]


class TrainerProcess:
    """A process that trains on request; worker.py is the program that it runs.

    Args:
      name: The name of the implementation, one of NAMES.
      work: The workload.
      path: The path of the initial state, which OURS writes and the others read.

    Attributes:
      name: The name of the implementation.
    """

    def __init__(self, name: str, work: Work, path: str):
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", name, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
        )
        self._request(dataclasses.asdict(work))

    def replay(self) -> list[tuple[float, float]]:
        """Returns the losses of the first iterations; see `initial_state.Trainer.replay`."""
        return [(critic, generator) for critic, generator in self._request("replay")]

    def seconds(self, iterations: int) -> float:
        """Returns the time of training for a number of iterations, in seconds."""
        return self._request(iterations)

    def peak_bytes(self) -> int:
        """Returns the peak of the process's resident memory so far, in bytes."""
        return self._request("memory")

    def close(self) -> None:
        """Ends the process."""
        cast(IO, self._process.stdin).close()
        self._process.wait()

    def _request(self, content: Any) -> Any:
        print(json.dumps(content), file=self._process.stdin, flush=True)
        answer = cast(IO, self._process.stdout).readline()
        if not answer:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        return json.loads(answer)


@contextlib.contextmanager
def start_processes(names: Sequence[str], work: Work) -> Iterator[list[TrainerProcess]]:
    """Starts processes with the same initial state and ends them on exit.

    Args:
      names: The names of the implementations. The first must be OURS, which writes the state.
      work: The workload.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = f"{folder}/initial_state"
        yield [
            stack.enter_context(contextlib.closing(TrainerProcess(name, work, path)))
            for name in names
        ]
