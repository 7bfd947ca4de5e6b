"""The evaluation of a traced function in float64, whatever the dtypes of its operations.

A finite difference in float32 is too coarse to judge a derivative: a step that is large enough for
its precision crosses kinks of ReLU. This module therefore runs the operations of a graph one by
one, with float64 in place of every narrower dtype. It reads variables, but never changes them.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry  # it has no public name

from .float64_operations import run, widened

# Which values under tf.stop_gradient an evaluation takes as constants: none, the means of
# tf.nn.moments, or all.
STOP_NONE, STOP_MOMENTS, STOP_ALL = range(3)
_MOMENTS = "moments/StopGradient"  # the end of the name of the operation
_IGNORED = ("Assert", "NoOp", "Print", "PrintV2")
_ASSIGNMENTS = {"AssignVariableOp": 0, "AssignAddVariableOp": 1, "AssignSubVariableOp": -1}


class Float64Function:
    """A traced function that is evaluated in float64.

    Args:
      concrete: The traced function.

    Attributes:
      bodies: The nested functions by name.
      rounded: The types of the operations that only have a float32 kernel.
    """

    def __init__(self, concrete: Any):
        definition = concrete.graph.as_graph_def()
        self._top = _Body(definition.node)
        self.bodies = {
            each.signature.name: _Body(each.node_def, each) for each in definition.library.function
        }
        self._outputs = [tensor.name for tensor in concrete.outputs]
        names = [tensor.op.name for tensor in concrete.inputs]
        captured = concrete.captured_inputs
        self._arguments = names[: len(names) - len(captured)]
        self._captured = dict(zip(names[len(self._arguments) :], captured, strict=True))
        self.rounded: set[str] = set()

    @property
    def operations(self) -> set[str]:
        """The types of all operations, including those of nested functions."""
        bodies = [self._top, *self.bodies.values()]
        return {node.op for body in bodies for node in body.nodes.values()}

    @property
    def has_moments(self) -> bool:
        """Is True if tf.nn.moments is a part of the function."""
        bodies = [self._top, *self.bodies.values()]
        return any(name.endswith(_MOMENTS) for body in bodies for name in body.nodes)

    def reader(self, handle: tf.Tensor) -> str:
        """Returns the scope of the first operation that uses a variable, usually its layer."""
        captured = [name for name, value in self._captured.items() if value is handle]
        users = [node.name for node in self._top.nodes.values() if set(captured) & set(node.input)]
        return users[0].rpartition("/")[0] if users else ""

    def __call__(
        self,
        arguments: Sequence[tf.Tensor],
        variables: Sequence[tuple[tf.Tensor, tf.Tensor]],
        outputs: Sequence[int],
        constants: dict[str, dict[str, list[Any]]],
        *,
        stopped: int = STOP_MOMENTS,
    ) -> list[tf.Tensor]:
        """Returns outputs of the function.

        Args:
          arguments: Its arguments.
          variables: Pairs of the handle of a variable and the value that replaces its own.
          outputs: The indices of the outputs.
          constants: The results of operations that are computed once and kept: random numbers and
            others with a state, and those of tf.stop_gradient that `stopped` selects.
          stopped: STOP_NONE, STOP_MOMENTS or STOP_ALL.

        Raises:
          NotEvaluatedError: If an operation cannot be evaluated.
        """
        evaluation = _Evaluation(self, variables, constants, stopped)
        given = dict(zip(self._arguments, arguments, strict=True)) | self._captured
        values = {name: {"": [widened(value)]} for name, value in given.items()}
        with tf.device("CPU:0"):
            return evaluation.run(self._top, values, [self._outputs[index] for index in outputs])


class _Body:
    """The nodes of a graph, or of a function in it, and the order in which they run."""

    def __init__(self, nodes: Sequence[Any], function: Any = None):
        self.nodes = {node.name: node for node in nodes}
        signature = function.signature if function else None
        self.parameters = [each.name for each in signature.input_arg] if signature else []
        self.results = (
            [function.ret[each.name] for each in signature.output_arg] if signature else []
        )
        self._orders: dict[tuple[str, ...], list[str]] = {}

    def order(self, outputs: Sequence[str]) -> list[str]:
        """Returns the nodes that the outputs and the assignments require, each after its inputs."""
        key = tuple(outputs)
        if key not in self._orders:
            assigned = [node.name for node in self.nodes.values() if node.op in _ASSIGNMENTS]
            order: dict[str, None] = {}
            stack = [*assigned[::-1], *map(_producer, outputs[::-1])]
            while stack:
                name = stack[-1]
                inputs = (
                    [_producer(each) for each in self.nodes[name].input]
                    if (name in self.nodes and name not in order)
                    else []
                )
                waiting = [each for each in inputs if each in self.nodes and each not in order]
                if waiting:
                    stack += waiting[::-1]
                else:
                    stack.pop()
                    if name in self.nodes:
                        order[name] = None
            self._orders[key] = [*order]
        return self._orders[key]


class _Evaluation:
    """One evaluation of a function, with the values that its variables have in it."""

    def __init__(
        self,
        function: Float64Function,
        variables: Sequence[tuple[tf.Tensor, tf.Tensor]],
        constants: dict[str, dict[str, list[Any]]],
        stopped: int,
    ):
        self._function = function
        self._state = {id(handle): value for handle, value in variables}
        self._constants, self._stopped = constants, stopped
        self._path: list[str] = []  # the calls that lead to the current function

    def run(self, body: _Body, values: dict[str, dict], outputs: Sequence[str]) -> list[Any]:
        for name in body.order(outputs):
            node = body.nodes[name]
            if name not in values and node.op not in _IGNORED:
                inputs = [_value(values, each) for each in node.input if not each.startswith("^")]
                values[name] = self._run_node(node, inputs)
        return [_value(values, name) for name in outputs]

    def _run_node(self, node: Any, inputs: list[Any]) -> dict[str, list[Any]]:
        kind = node.op.removeprefix("Stateful").removeprefix("Stateless")
        if kind in ("PartitionedCall", "If", "Case"):
            if kind != "PartitionedCall":
                index, *inputs = inputs
            name = node.attr["f"].func.name if kind == "PartitionedCall" else _branch(node, index)
            return {"output": self._call(node, name, inputs)}
        if kind == "While":
            condition, body = (node.attr[name].func.name for name in ("cond", "body"))
            steps = 0
            while self._call(node, condition, inputs)[0]:
                inputs = self._call(node, body, inputs, step=steps)
                steps += 1
            return {"output": inputs}
        if node.op in _VARIABLES:
            return self._use_variable(node, *inputs)
        if not self._is_constant(node, inputs):
            return self._compute(node, inputs)
        key = "/".join([*self._path, node.name])
        if key not in self._constants:
            self._constants[key] = self._compute(node, inputs)
        return self._constants[key]

    def _is_constant(self, node: Any, inputs: list[Any]) -> bool:
        if node.op == "StopGradient":
            least = STOP_MOMENTS if node.name.endswith(_MOMENTS) else STOP_ALL
            return self._stopped >= least
        return op_def_registry.get(node.op).is_stateful and not any(map(_is_handle, inputs))

    def _compute(self, node: Any, inputs: list[Any]) -> dict[str, list[Any]]:
        outputs, exact = run(node, inputs)
        if not exact:
            self._function.rounded.add(node.op)
        return outputs

    def _call(self, node: Any, name: str, inputs: list[Any], step: int = 0) -> list[Any]:
        body = self._function.bodies[name]
        values = {key: {"": [each]} for key, each in zip(body.parameters, inputs, strict=True)}
        self._path.append(f"{node.name}:{step}")
        outputs = self.run(body, values, body.results)
        self._path.pop()
        return outputs

    def _use_variable(self, node: Any, handle: tf.Tensor, *inputs: Any) -> dict[str, list[Any]]:
        key = id(handle)
        if node.op == "AssignVariableOp":
            self._state[key] = inputs[0]
            return {}
        if key not in self._state:
            dtype = tf.as_dtype(node.attr["dtype"].type)
            self._state[key] = widened(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
        if node.op == "ReadVariableOp":
            return {"value": [self._state[key]]}
        if node.op == "ResourceGather":
            batch_dims = node.attr["batch_dims"].i
            return {"output": [tf.gather(self._state[key], inputs[0], batch_dims=batch_dims)]}
        self._state[key] += _ASSIGNMENTS[node.op] * inputs[0]
        return {}


_VARIABLES = ("ReadVariableOp", "ResourceGather", *_ASSIGNMENTS)


def _branch(node: Any, index: tf.Tensor) -> str:
    """Returns the name of the function that a conditional operation calls."""
    if "branches" not in node.attr:
        return node.attr["then_branch" if index else "else_branch"].func.name
    branches = node.attr["branches"].list.func
    return branches[int(index) if 0 <= index < len(branches) else -1].name


def _value(values: dict[str, dict], name: str) -> Any:
    """Returns the tensor of a name: "node", "node:1", or "node:output:1" in a function."""
    node, *argument, index = name.split(":") if ":" in name else (name, "0")
    groups = values[node]
    if argument and argument[0] in groups:
        return groups[argument[0]][int(index)]
    return [value for group in groups.values() for value in group][int(index)]


def _producer(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def _is_handle(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and value.dtype == tf.resource
