"""The program of a `mnist_quality.Program`: `python -m studies.baselines.mnist_worker`.

Its arguments are the cores, a name, a folder for the state, and the folder of the data: images.npy,
`[N, 28, 28, 1]` uint8, or the folder of tensorflow-datasets for this project. Further arguments are
flags of this project.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from .turns import Turns


def main(cores: str, name: str, folder: str, data: str, *flags: str) -> None:
    """Trains in turns until standard input ends."""
    os.sched_setaffinity(0, map(int, cores.split(",")))  # before a library counts its threads
    answers, sys.stdout = sys.stdout, sys.stderr  # output of libraries must not mix with answers
    turns = Turns(answers)
    if name == "keras":
        from . import mnist_keras  # noqa: PLC0415

        mnist_keras.train(turns, folder, data)
    elif name == "torch":
        from . import mnist_torch  # noqa: PLC0415

        mnist_torch.train(turns, folder, data)
    else:
        from . import mnist_ours  # noqa: PLC0415

        mnist_ours.train(turns, folder, data, flags)


if __name__ == "__main__":
    main(*sys.argv[1:])
