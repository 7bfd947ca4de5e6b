"""Continues the training loop in the folder of this file; needs only jax and numpy.

  python run.py [LAUNCHES]

It prints a line for each launch: the means of the terms and the real images per second. The first
launch includes compilation. The examples of input.npz are used again and again, so this measures
speed and shows that the program runs; it is no training on a dataset. Nothing is saved.
"""

import functools
import json
import pathlib
import sys
import time

import jax
import numpy as np
from jax import export

FOLDER = pathlib.Path(__file__).parent
jax.config.update("jax_enable_x64", True)  # iterations are counted in 64 bits


def main(launches: int) -> None:
    """Runs the loop so many times."""
    facts = json.loads((FOLDER / "bundle.json").read_text())
    device = jax.devices()[0]
    loop = export.deserialize(bytearray((FOLDER / "loop.jax").read_bytes()))
    with np.load(FOLDER / "state.npz") as file:
        # On a named device, as the results are; otherwise, the second launch would compile again.
        state = [jax.device_put(file[str(index)], device) for index in range(len(file))]
    elements: dict[str, list[np.ndarray]] = {}
    with np.load(FOLDER / "input.npz") as file:
        for name in file:
            elements.setdefault(name.partition("/")[0], []).append(file[name])
    count, parts = facts["iterations_per_launch"], len(elements["0"])
    # The new weights take the memory of the old ones.
    donated = tuple(parts + 3 + parameter for _, parameter in facts["replaced"])

    @functools.partial(jax.jit, donate_argnums=donated)
    def launch(*arguments):
        return loop.call(*arguments)

    print(f"on {device.device_kind}, {count} iterations per launch", flush=True)
    iteration = facts["first_iteration"]
    for number in range(launches):
        began = time.perf_counter()
        counters = [np.int64(each) for each in (iteration, count, facts["rollbacks"])]
        results = launch(*elements[str(number % len(elements))], *counters, *state)
        for result, parameter in facts["replaced"]:
            state[parameter] = results[result]
        critic, generator = (np.asarray(each) for each in results[:2])
        images = count * facts["n_critic"] * facts["batch_size"]
        iteration += count
        means = [
            *zip(facts["critic_terms"], critic / (count * facts["n_critic"]), strict=True),
            *zip(facts["generator_terms"], generator / count, strict=True),
        ]
        print(
            f"{iteration}: {', '.join(f'{name} {value:.4f}' for name, value in means)}, "
            f"{images / (time.perf_counter() - began):.0f} images/s",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
