"""The program of a `TrainerProcess`: `python -m benchmarks.baselines.worker NAME PATH`.

It reads one request per line of standard input, as JSON, and answers with one line of JSON. Between
requests it waits and uses no processor time.
"""

import importlib
import json
import resource
import sys
import time
from typing import Any

from .initial_state import Trainer
from .work import Work

# The module of each implementation, and the arguments of its Trainer.
TRAINERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "keras": ("keras_fit", {"jit_compile": "auto"}),  # Keras's default: not on a CPU
    "keras-xla": ("keras_fit", {"jit_compile": True}),
    "torch": ("pytorch", {"compiled": False}),
    "torch-compile": ("pytorch", {"compiled": True}),
}


def main(name: str, path: str) -> None:
    """Answers requests until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # output of libraries must not mix with answers

    def answer(content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    work = Work(**json.loads(sys.stdin.readline()))
    module, options = TRAINERS[name]
    trainer: Trainer = importlib.import_module(f".{module}", __package__).Trainer(
        work, path, **options
    )
    answer("ready")
    for line in sys.stdin:
        request = json.loads(line)
        if request == "replay":
            answer(trainer.replay())
        elif request == "memory":
            answer(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        else:
            start = time.perf_counter()
            trainer.run(request)
            answer(time.perf_counter() - start)


if __name__ == "__main__":
    main(*sys.argv[1:])
