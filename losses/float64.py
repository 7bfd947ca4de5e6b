"""The evaluation of a traced function in float64, whatever the dtypes of its operations.

A finite difference in float32 is too coarse to judge a derivative: a step that is large enough for
its precision crosses kinks of ReLU. This module therefore runs the operations of a graph one by
one, with float64 in place of every narrower dtype. It reads variables, but never changes them.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry  # it has no public name

# Which values under tf.stop_gradient an evaluation takes as constants: none, the means of
# tf.nn.moments, or all.
STOP_NONE, STOP_MOMENTS, STOP_ALL = range(3)
_MOMENTS = "moments/StopGradient"  # the end of the name of the operation
_IGNORED = ("Assert", "NoOp", "Print", "PrintV2")
_ASSIGNMENTS = {"AssignVariableOp": 0, "AssignAddVariableOp": 1, "AssignSubVariableOp": -1}
_FLOATS = (tf.float32, tf.float16, tf.bfloat16)
_WIDE = {**dict.fromkeys(_FLOATS, tf.float64), tf.complex64: tf.complex128}
_NARROW = {tf.float64: tf.float32, tf.complex128: tf.complex64}
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # Python expects the original dtypes
_NO_KERNEL = (tf.errors.OpError, TypeError, ValueError)


class NotEvaluatedError(Exception):
    """An operation cannot be evaluated; the message names it."""


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
        outputs, exact = run_node(node, inputs)
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


# Single operations, computed in float64.


def widened(value: Any) -> Any:
    """Converts a tensor of a narrower dtype to float64 or complex128."""
    return tf.cast(value, _WIDE[value.dtype]) if _dtype(value) in _WIDE else value


def run_node(node: Any, inputs: list[Any]) -> tuple[dict[str, list[Any]], bool]:
    """Runs an operation on float64 values.

    Args:
      node: The NodeDef of the operation.
      inputs: Its inputs.

    Returns:
      The outputs by the name of the argument, and whether they are exact in float64: not if there
      is only a float32 kernel.

    Raises:
      NotEvaluatedError: If there is neither.
    """
    if node.op == "Const":
        value = tf.make_ndarray(node.attr["value"].tensor)
        return {"output": [widened(tf.constant(value))]}, True
    if node.op in _REPLACEMENTS:
        return {"": [_REPLACEMENTS[node.op](node, *inputs)]}, True
    definition = op_def_registry.get(node.op)
    function = getattr(tf.raw_ops, node.op, None)
    if definition is None or function is None or node.op in _PYTHON:
        raise NotEvaluatedError(node.op)
    # Some operations require float32 arguments, whatever the dtype of the others is.
    fixed = any(tf.as_dtype(each.type) in _WIDE for each in definition.input_arg if each.type)
    for narrow in [True] if fixed else [False, True]:
        try:
            outputs = _run(function, definition, node, inputs, narrow=narrow)
        except _NO_KERNEL as error:
            failure = error
            continue
        values = [value for group in outputs.values() for value in group]
        exact = not narrow and not any(_dtype(value) in _WIDE for value in values)
        return {name: [widened(value) for value in group] for name, group in outputs.items()}, exact
    raise NotEvaluatedError(node.op) from failure


def _run(
    function: Callable, definition: Any, node: Any, inputs: list[Any], *, narrow: bool
) -> dict[str, list[Any]]:
    names = [*inspect.signature(function).parameters]
    inferred, arguments, position = set(), {}, 0
    for index, argument in enumerate(definition.input_arg):
        inferred |= {argument.type_attr, argument.number_attr, argument.type_list_attr}
        count = _count(argument, node)
        group = inputs[position : position + (1 if count is None else count)]
        position += len(group)
        if narrow:
            group = [
                tf.cast(value, _NARROW[value.dtype]) if _dtype(value) in _NARROW else value
                for value in group
            ]
        # Python's name of an argument may differ from that of the definition.
        name = argument.name if argument.name in names else names[index]
        arguments[name] = group[0] if count is None else group
    for attribute in definition.attr:
        name = attribute.name
        if name not in inferred and name in node.attr and name in names:
            arguments[name] = _attribute(node.attr[name], narrow=narrow)
    result = function(**arguments)
    if not definition.output_arg:
        return {}
    results = [result] if len(definition.output_arg) == 1 else list(result)
    return {
        argument.name: list(value) if isinstance(value, (list, tuple)) else [value]
        for argument, value in zip(definition.output_arg, results, strict=True)
    }


def _count(argument: Any, node: Any) -> int | None:
    """Returns the number of tensors of an argument that is a list; None for a tensor."""
    if argument.number_attr:
        return node.attr[argument.number_attr].i
    if argument.type_list_attr:
        return len(node.attr[argument.type_list_attr].list.type)
    return None


def _attribute(value: Any, *, narrow: bool) -> Any:
    """Converts the value of an attribute from its protocol buffer."""
    kind = value.WhichOneof("value")
    if kind == "list":
        (found,) = [each for _, each in value.list.ListFields()] or [[]]
        parts = [type(value)(**{_kind_of(value): each}) for each in found]
        return [_attribute(each, narrow=narrow) for each in parts]
    if kind == "type":
        dtype = tf.as_dtype(value.type)
        wide = _WIDE.get(dtype, dtype)
        return _NARROW.get(wide, wide) if narrow else wide
    if kind == "shape":
        return tf.TensorShape(value.shape)
    return getattr(value, kind)


def _kind_of(value: Any) -> str:
    (field, _), *_ = value.list.ListFields()
    return field.name


def _dtype(value: Any) -> Any:
    return value.dtype if isinstance(value, tf.Tensor) else None


def _resize(node: Any, images: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Resizes images bilinearly; TensorFlow's result is float32 for every dtype."""
    rows, columns = _matrices(node, images.shape[1:3], size.numpy())
    return tf.einsum("ri,bijc,sj->brsc", rows, images, columns)


def _resize_gradient(node: Any, slopes: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    rows, columns = _matrices(node, images.shape[1:3], slopes.shape[1:3])
    return tf.einsum("ri,brsc,sj->bijc", rows, slopes, columns)


def _matrices(node: Any, before: Any, after: Any) -> list[tf.Tensor]:
    """Returns the matrices of a resize, one of its rows and one of its columns."""
    options = {name: node.attr[name].b for name in ("align_corners", "half_pixel_centers")}
    found = []
    for size, new in zip(before, after, strict=True):
        basis = tf.eye(int(size))[None, :, None, :]
        resized = tf.raw_ops.ResizeBilinear(images=basis, size=[int(new), 1], **options)
        found.append(tf.cast(resized[0, :, 0, :], tf.float64))
    return found


_REPLACEMENTS: dict[str, Callable] = {
    "ResizeBilinear": _resize,
    "ResizeBilinearGrad": _resize_gradient,
}
