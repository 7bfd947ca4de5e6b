"""A source whose decoder runs in other processes, which must not import TensorFlow."""

import dataclasses
import os
import signal
import sys
import time

import numpy as np

from wgan_gp.data.sources.encoded import Encoded, Item, Unreadable
from wgan_gp.errors import UserError


@dataclasses.dataclass(frozen=True)
class Behavior:
    """Decodes an item into its number and the state of the process, unless `events` names it."""

    events: dict

    def __call__(self, item):
        event = self.events.get(item)
        if event == "unreadable":
            raise Unreadable("it has no pixels")
        if event == "mistake":
            raise UserError("it is wrong", "correct it")
        if event == "bug":
            raise ZeroDivisionError("a bug")
        if event == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if event == "print":
            os.write(1, b"text of a library\n")
            print("text of a package", flush=True)
        if event == "asleep":
            time.sleep(600)
        if event == "slow":
            time.sleep(0.05)
        threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        state = [item, os.getpid(), threads, "tensorflow" in sys.modules]
        return np.array(state)


class Numbers(Encoded):
    """Examples `(number, process, threads of libraries, whether TensorFlow is imported)`.

    Args:
      size: The number of examples.
      events: What happens to some of them; see `Behavior`.
    """

    origin = "--data_dir=numbers"
    shape = (4,)
    dtype = np.dtype(np.int64)
    class_names = ("even", "odd")

    def __init__(self, size=400, events=None):
        self.size = size
        self.decode = Behavior(events or {})

    def identity(self):
        return {"numbers": self.size}

    fingerprint = identity

    def items(self, first=0):
        return (Item(f"{number}.png", number % 2, number) for number in range(first, self.size))

    def resized(self, settings):
        return self
