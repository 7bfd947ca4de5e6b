"""The ways to train, each in a process of its own: so its time and its memory are its own."""

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
USUAL = tuple(name for name in NAMES if name != "keras-xla")  # ten times as slow on a CPU


def parse(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """The arguments of a program that compares, and the names they choose; OURS is always one."""
    parser.add_argument("--only", default=",".join(USUAL), help=f"of {','.join(NAMES)}")
    given = parser.parse_args()
    return given, [name for name in NAMES if name in given.only.split(",") or name == OURS]


class Contender:
    """A process, and what it is asked; worker.py is the other end.

    Args:
      name: one of NAMES.
      work: what it trains.
      path: of the file that says where to start; OURS writes it, the others read it.
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
        self._ask(dataclasses.asdict(work))

    def replay(self) -> list[tuple[float, float]]:
        """Losses of the first iterations, see start.Trainer."""
        return [(critic, generator) for critic, generator in self._ask("replay")]

    def seconds(self, iterations: int) -> float:
        """How long it trains so many."""
        return self._ask(iterations)

    def peak_bytes(self) -> int:
        """Of resident memory, so far."""
        return self._ask("memory")

    def close(self) -> None:
        """Ends the process."""
        cast(IO, self._process.stdin).close()
        self._process.wait()

    def _ask(self, what: Any) -> Any:
        print(json.dumps(what), file=self._process.stdin, flush=True)
        answer = cast(IO, self._process.stdout).readline()
        if not answer:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        return json.loads(answer)


@contextlib.contextmanager
def contenders(names: Sequence[str], work: Work) -> Iterator[list[Contender]]:
    """All of them, ready, with the same weights; the first is OURS, whose weights they are."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(Contender(name, work, f"{folder}/start")))
            for name in names
        ]
