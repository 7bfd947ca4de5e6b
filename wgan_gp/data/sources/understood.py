"""A line for the user that says how data were understood."""

from __future__ import annotations

from collections.abc import Sequence

from .array_files import ArrayData


def describe(data: ArrayData, count: int) -> str:
    """Returns a line such as "569 examples of 30 features (radius, ...), 2 classes (b, m)".

    Args:
      data: The content of a file or a DataFrame.
      count: The number of examples that are used.
    """
    rows, *shape = data.examples.shape
    text = f"{_number(count, 'example')} of "
    if len(shape) == 1:
        text += _number(shape[0], "feature") + _listed(data.names or (), 2)
    else:
        text += f"shape {shape}"
    if data.class_names is not None:
        count_of_classes = len(data.class_names)
        kind = "class" if count_of_classes == 1 else "classes"
        text += f", {count_of_classes} {kind}{_listed(data.class_names, 5)}"
    if data.label_name is not None:
        text += f" from column {data.label_name}"
    if data.condition_names:
        size = len(data.condition_names)
        text += f", {_number(size, 'condition')}{_listed(data.condition_names, 5)}"
    if left_out := data.left_out + rows - count:
        text += f"; {_number(left_out, 'row')} left out: missing values"
    return "; ".join([text, *data.notes])


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _listed(names: Sequence[str], most: int) -> str:
    """Returns the first names in parentheses, after a blank."""
    if not names:
        return ""
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names[:most]]
    return f" ({', '.join([*shown, '...'] if len(names) > most else shown)})"
