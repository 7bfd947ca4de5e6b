"""A bundle: the loop of a run, its state and a program that continues it without TensorFlow.

The folder contains:
  loop.jax     The loop for one device, as jax.export writes it: StableHLO in a portable form.
  state.npz    The parameters after the arguments of the loop, by index: the weights, the slots of
               the optimizers and, if the data is resident, the examples.
  input.npz    Elements of the input, by "<element>/<part>".
  bundle.json  The names of the terms and the numbers that run.py needs, and those that describe the
               networks.
  run.py       The program, which needs only jax and numpy.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import pathlib
import posixpath
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ..config import NetworkSettings
from ..data.feed.loop_input import LoopInput
from ..data.opened_data import InMemoryData, StreamedData
from ..run_directory.files import OUTPUT_REMEDY, convert_file_errors, new_folder, write_durable
from ..training.step import ReplicaStep
from . import bundle_program, client, lowering

_ELEMENTS = 4  # which the program uses in turn


def write(
    folder: str,
    step: ReplicaStep,
    loop_input: LoopInput,
    data: InMemoryData | StreamedData,
    networks: NetworkSettings,
) -> None:
    """Writes the bundle of a loop; its files appear in the folder together.

    Args:
      folder: The folder, which must be new or empty.
      step: The updates of one replica, with the state to start from.
      loop_input: The input of the loop, opened under a `SliceStrategy` of one replica.
      data: The training data.
      networks: The settings of the networks.

    Raises:
      UserError: If XLA cannot compile the loop, or the files cannot be written.
    """
    jax.config.update("jax_platforms", "cpu")  # nothing runs here; a TPU is left to training
    loop = lowering.lower_loop(step, loop_input, replicas=1)
    state = [np.asarray(tf.convert_to_tensor(each)) for each in loop.captured]
    first, rollbacks = int(step.state.iteration.numpy()), int(step.state.rollbacks.numpy())
    n_critic = step.optimization.n_critic
    facts = {
        "critic_terms": step.critic_term_names,
        "generator_terms": step.generator_term_names,
        "first_iteration": first,
        "rollbacks": rollbacks,
        "iterations_per_launch": loop_input.steps // n_critic,
        "n_critic": n_critic,
        "batch_size": step.optimization.batch_size,
        "generator_batch_size": step.optimization.generator_batch,
        "model": networks.model,
        "model_width": networks.model_width,
        "latent_size": step.latent_size,
        "generator_parameters": _count(step.state.generator),
        "critic_parameters": _count(step.state.critic),
        # [index of a result, index of the part of the state that it replaces]
        "replaced": list(loop.replaced.items()),
    }
    context = tf.distribute.InputContext(num_replicas_in_sync=1)
    dataset = loop_input.dataset(data, context, first * n_critic)
    elements = list(itertools.islice(dataset.as_numpy_iterator(), _ELEMENTS))
    files = {
        "loop.jax": client.export(loop.hlo),
        "state.npz": _npz({str(index): value for index, value in enumerate(state)}),
        "input.npz": _npz(
            {
                f"{number}/{index}": part
                for number, element in enumerate(elements)
                for index, part in enumerate(tf.nest.flatten(element))
            }
        ),
        "bundle.json": json.dumps(facts, indent=2).encode(),
        "run.py": pathlib.Path(bundle_program.__file__).read_bytes(),
    }
    with convert_file_errors(folder, "written", OUTPUT_REMEDY), new_folder(folder) as inside:
        for name, content in files.items():
            write_durable(posixpath.join(inside, name), content)


def _count(network: Any) -> int:
    """Returns the number of trained numbers of a network."""
    return sum(math.prod(weight.shape) for weight in network.trainable_variables)


def _npz(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()
