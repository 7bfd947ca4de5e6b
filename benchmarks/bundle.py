"""Writes the loop of a run for one device as a program that needs only jax and numpy.

  python -m benchmarks.bundle FOLDER --dataset=... --steps_per_loop=20

The flags are those of train.py. If --model_dir contains a checkpoint, the program continues it;
otherwise it starts with new networks. A run with an objective of the user is refused. The folder
then contains:
  loop.jax     The loop, as jax.export writes it: StableHLO in a portable form.
  state.npz    The parameters after the arguments of the loop, by index: the weights, the slots of
               the optimizers and, if the data is resident, the examples.
  input.npz    Elements of the input, by "<element>/<part>".
  bundle.json  The names of the terms and the numbers that run.py needs, and those that describe the
               networks.
  run.py       The program.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import pathlib
import sys
from typing import Any

import jax
import jax.export
import numpy as np
import tensorflow as tf
from jax._src.lib import _jax, xla_client
from jaxlib.mlir.dialects import stablehlo

import flags
from wgan_gp.app.build import make_step, open_input
from wgan_gp.app.library import Library
from wgan_gp.app.program import with_exit_status
from wgan_gp.app.resolve import resolve
from wgan_gp.app.run import open_run
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.pjrt import client, lowering
from wgan_gp.pjrt.slice_strategy import SliceStrategy

from . import bundle_program

_ELEMENTS = 4  # which the program uses in turn


def write(folder: pathlib.Path, config: Config) -> None:
    """Writes the loop of a run to a folder.

    Args:
      folder: The folder, which must be new or empty.
      config: The configuration.

    Raises:
      UserError: If the folder contains files, or the run or its loop is impossible.
    """
    if config.objective is not None:
        raise UserError("--objective is not supported here", "omit it")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} contains files", "give a new or empty folder")
    jax.config.update("jax_platforms", "cpu")  # nothing runs here; a TPU is left to training
    library = Library()
    run = open_run(*resolve(config, library.models), library)
    run.checkpoints.restore_latest()
    config = run.config
    loop_input = open_input(config, run.data, SliceStrategy(1))
    step = make_step(config, run.state, run.dataset.spec, library)
    loop = lowering.lower_loop(step, loop_input, replicas=1)
    state = [np.asarray(tf.convert_to_tensor(each)) for each in loop.captured]
    first, rollbacks = int(step.state.iteration.numpy()), int(step.state.rollbacks.numpy())
    facts = {
        "critic_terms": step.critic_term_names,
        "generator_terms": step.generator_term_names,
        "first_iteration": first,
        "rollbacks": rollbacks,
        "iterations_per_launch": loop_input.steps // config.n_critic,
        "n_critic": config.n_critic,
        "batch_size": config.batch_size,
        "generator_batch_size": config.generator_batch,
        "model": config.model,
        "model_width": config.model_width,
        "latent_size": step.latent_size,
        "generator_parameters": _count(step.state.generator),
        "critic_parameters": _count(step.state.critic),
        # [index of a result, index of the part of the state that it replaces]
        "replaced": list(loop.replaced.items()),
    }
    context = tf.distribute.InputContext(num_replicas_in_sync=1)
    dataset = loop_input.dataset(run.data, context, first * config.n_critic)
    elements = list(itertools.islice(dataset.as_numpy_iterator(), _ELEMENTS))
    parts = {
        f"{number}/{index}": part
        for number, element in enumerate(elements)
        for index, part in enumerate(tf.nest.flatten(element))
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "loop.jax").write_bytes(_export(loop.hlo))
    (folder / "state.npz").write_bytes(_npz({str(i): value for i, value in enumerate(state)}))
    (folder / "input.npz").write_bytes(_npz(parts))
    (folder / "bundle.json").write_text(json.dumps(facts, indent=2))
    (folder / "run.py").write_bytes(pathlib.Path(bundle_program.__file__).read_bytes())


def _export(hlo: bytes) -> bytes:
    """Returns the program of one replica in the form that jax.export.deserialize reads.

    It runs on all platforms. jax writes the form for a function with the same parameters and
    results, whose program is then replaced.
    """
    with client.stablehlo(hlo) as module, jax.enable_x64(True):
        shape = xla_client.XlaComputation(hlo).program_shape()
        inputs, outputs = (
            [jax.ShapeDtypeStruct(each.dimensions(), each.numpy_dtype()) for each in shapes]
            for shapes in (shape.parameter_shapes(), shape.result_shape().tuple_shapes())
        )

        def function(*arguments: jax.Array) -> list[jax.Array]:
            return [jax.numpy.zeros(each.shape, each.dtype) for each in outputs]

        exported = jax.export.export(
            jax.jit(function, keep_unused=True),
            disabled_checks=[jax.export.DisabledSafetyCheck.platform()],
        )(*inputs)
        portable = _jax.mlir.serialize_portable_artifact(
            module,
            stablehlo.get_version_from_compatibility_requirement(
                stablehlo.StablehloCompatibilityRequirement.WEEK_12
            ),
            True,
        )
        return bytes(dataclasses.replace(exported, mlir_module_serialized=portable).serialize())


def _count(network: Any) -> int:
    """Returns the number of trained numbers of a network."""
    return sum(math.prod(weight.shape) for weight in network.trainable_variables)


def _npz(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@with_exit_status
def main(argv: list[str]) -> int:
    """Writes the loop that a command line describes, and returns the exit status."""
    if len(argv) < 2 or argv[1].startswith("-"):
        raise UserError("no folder is given", "python -m benchmarks.bundle FOLDER --dataset=...")
    write(pathlib.Path(argv[1]), flags.parse([argv[0], *argv[2:]]))
    print(argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
