"""The process of one way to train: `python -m benchmarks.contenders.worker NAME PATH`.

It takes commands on its standard input, a line of JSON each, and answers each with a line of JSON;
process.py is the other end. While it has nothing to do it waits, and takes no time from others.
"""

import importlib
import json
import resource
import sys
import time
from typing import Any

from .start import Trainer
from .work import Work

# The module, and what its Trainer is made with.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "keras": ("keras_fit", {"jit_compile": "auto"}),  # Keras's default, which is not to
    "keras-xla": ("keras_fit", {"jit_compile": True}),
    "torch": ("pytorch", {"compiled": False}),
    "torch-compile": ("pytorch", {"compiled": True}),
}


def main(name: str, path: str) -> None:
    """Serves until its input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer

    def answer(what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    work = Work(**json.loads(sys.stdin.readline()))
    module, options = WAYS[name]
    trainer: Trainer = importlib.import_module(f".{module}", __package__).Trainer(
        work, path, **options
    )
    answer("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        if asked == "replay":
            answer(trainer.replay())
        elif asked == "memory":
            answer(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        else:
            began = time.perf_counter()
            trainer.run(asked)
            answer(time.perf_counter() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
