"""Prints which layers of Keras can stand in a critic with a gradient penalty.

  python -m benchmarks.critic_layers                  all layers
  python -m benchmarks.critic_layers Conv2D Dropout   these

The critic is a layer with weights and tanh, the layer in question, tanh, and Dense(1). Each layer
is tried in a process of its own, because TensorFlow may end the process:

  on a CPU   losses.check_critic has no finding about the layer, with training=True.
  XLA        The gradient of the penalty is compiled for the CPU, and has the values of eager mode.
  TPU        TensorFlow has a kernel for a TPU for each operation of this gradient.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import losses

from .critic_layers_list import LAYERS
from .forks import run_in_fork

KERNELS = pathlib.Path(__file__).parent.parent / "tests" / "tpu_kernels.txt"
# What a finding of check_critic means for the table; other findings do not concern the layer.
REASONS = {
    "coupled_examples": "couples examples",
    "estimated_gradient": "estimated gradient",
    "no_gradient": "no gradient",
    "no_second_derivative": "no second gradient",
    "not_finite": "not finite",
    "omitted_second_derivative": "omits a term",
    "random_scores": "random",
    "unchecked_second_derivative": "not checked",
    "wrong_second_derivative": "wrong second gradient",
}
# Marks of a program for a device, and what stays on the host or disappears in compilation.
_NOT_COMPUTED = {"Placeholder", "NoOp", "Assert"}
_TOLERANCE = 1e-3  # of the largest element


def main() -> None:
    """Prints a table of verdicts in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("layers", nargs="*", help="default: all")
    print(table(verdicts(parser.parse_args().layers or [*LAYERS])))


def verdicts(names: list[str]) -> dict[str, tuple[str, str, str]]:
    """Returns the verdicts on a CPU, under XLA and on a TPU for each layer; "yes" or the reason."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(names, pool.map(_verdict_of_fork, names), strict=True))


def table(found: dict[str, tuple[str, str, str]]) -> str:
    """Returns a table with a line for each combination of verdicts, the most frequent first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, verdict in sorted(found.items(), key=lambda item: item[0].lower()):
        groups.setdefault(verdict, []).append(name)
    lines = ["| on a CPU | XLA | TPU | layers |", "|---|---|---|---|"]
    for verdict, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {' | '.join(verdict)} | {', '.join(names)} |")
    return "\n".join(lines)


def _verdict_of_fork(name: str) -> tuple[str, str, str]:
    done = run_in_fork([name], _child)
    lines = [line for line in done.out.splitlines() if line.startswith('["')]
    # Each part is printed at once, so that the others are known if one ends the process.
    found = dict(map(json.loads, lines))
    lost = "crash" if done.status is None or done.status < 0 else "error"
    return tuple(found.get(part, lost) for part in ("cpu", "xla", "tpu"))


def _child(arguments: list[str]) -> int:
    for part, verdict in judge(arguments[1]):
        print(json.dumps([part, verdict]), flush=True)
    return 0


def judge(name: str) -> Any:
    """Yields ("tpu", verdict), ("cpu", verdict) and ("xla", verdict) for a layer."""
    shape, make = LAYERS[name]
    tf.keras.utils.set_random_seed(0)
    model = make()
    examples = tf.random.stateless_normal([4, *shape], [0, 1])
    critic: Callable = lambda x: model(x, training=True)  # noqa: E731
    penalty = penalty_gradient(critic, model)
    yield "tpu", _tpu_verdict(penalty, examples)
    found = _cpu_verdict(critic, examples)
    if found == "yes":
        expected = penalty(examples)
    yield "cpu", found
    yield "xla", _xla_verdict(penalty, examples, expected if found == "yes" else None)


def penalty_gradient(critic: Callable, model: Any) -> Callable:
    """Returns a function from examples to the gradient of the penalty in the weights."""

    def compute(examples: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            norm = losses.gradient_norm(critic, examples)
            penalty = tf.reduce_mean(losses.two_sided(norm))
        weights = [variable.value for variable in model.trainable_variables]
        return tape.gradient(penalty, weights, unconnected_gradients="zero")

    return compute


def _cpu_verdict(critic: Callable, examples: tf.Tensor) -> str:
    try:
        findings = losses.check_critic(critic, examples)
    except Exception as error:
        return f"{type(error).__name__}"
    names = sorted({finding.name for finding in findings} & {*REASONS})
    return ", ".join(REASONS[name] for name in names) or "yes"


def _xla_verdict(penalty: Callable, examples: tf.Tensor, expected: Any) -> str:
    try:
        gradients = tf.function(penalty, jit_compile=True, autograph=False)(examples)
    except (LookupError, NotImplementedError, ValueError):
        return "no gradient"
    except tf.errors.OpError:
        return "not compiled"
    for ours, theirs in zip(gradients, expected or [], strict=False):
        ours, theirs = tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs)  # noqa: PLW2901
        if not tf.reduce_all(abs(ours - theirs) <= _TOLERANCE * (tf.reduce_max(abs(theirs)) + 1)):
            return "other values"
    return "yes"


def _tpu_verdict(penalty: Callable, examples: tf.Tensor) -> str:
    try:
        traced = tf.function(penalty, autograph=False).get_concrete_function(examples)
    except (LookupError, NotImplementedError, ValueError):
        return "no gradient"
    definition = traced.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    lines = KERNELS.read_text().splitlines()
    kernels = {line for line in lines if not line.startswith("#")}
    missing = sorted({node.op for node in nodes} - kernels - _NOT_COMPUTED)
    return "yes" if not missing else f"no {missing[0]}"


if __name__ == "__main__":
    main()
