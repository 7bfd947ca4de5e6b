"""Single operations of a graph, computed in float64."""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# The definitions of operations have no public name.
from tensorflow.python.framework import op_def_registry

_FLOATS = (tf.float32, tf.float16, tf.bfloat16)
_WIDE = {**dict.fromkeys(_FLOATS, tf.float64), tf.complex64: tf.complex128}
_NARROW = {tf.float64: tf.float32, tf.complex128: tf.complex64}
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # Python expects the original dtypes
_NO_KERNEL = (tf.errors.OpError, TypeError, ValueError)


class NotEvaluatedError(Exception):
    """An operation cannot be evaluated; the message names it."""


def widened(value: Any) -> Any:
    """Converts a tensor of a narrower dtype to float64 or complex128."""
    return tf.cast(value, _WIDE[value.dtype]) if _dtype(value) in _WIDE else value


def run(node: Any, inputs: list[Any]) -> tuple[dict[str, list[Any]], bool]:
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
