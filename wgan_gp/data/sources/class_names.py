"""The numbers of tables."""

from __future__ import annotations


def is_number(cell: str) -> bool:
    """Returns True for a number, and for an empty cell, which is read as NaN."""
    try:
        float(cell or "nan")
    except ValueError:
        return not cell.strip()
    return True
