"""DataFrames of pandas that Python gives as data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....config import DataSettings, DeviceSettings
from ....errors import UserError
from ...opened_data import InMemoryData, StreamedData
from ...spec import DataSpec
from ..arrays.array_data import ArrayData
from ..arrays.arrays import ArrayReader
from ..labels import LABEL_NAMES
from ..tables.columns import distinct_names
from ..tables.tables import column_names, from_frame
from .user_data import call

if TYPE_CHECKING:
    import pandas as pd


def is_frame(value: Any) -> bool:
    """Returns True for a DataFrame, or a pair of a DataFrame and labels."""
    pandas = sys.modules.get("pandas")  # without it there is no DataFrame
    first = value[0] if isinstance(value, tuple) and len(value) == 2 else value
    return pandas is not None and isinstance(first, pandas.DataFrame)


class FrameReader(ArrayReader):
    """Reads DataFrames by the rules of tables in files; see `ArrayReader` and `UserReader`.

    Args:
      settings: The settings of the data.
      function: Maps a split to a DataFrame, a pair of it and labels, or None.
      flag: The name of the data for messages.
    """

    def __init__(self, settings: DataSettings, function: Callable[..., Any], flag: str):
        self._function = function
        self._frame = _with_labels(call(function, settings, settings.split, flag), flag)
        self._training_split = settings.split
        super().__init__(settings, flag, self._read(self._frame, settings, flag))

    def open(
        self, settings: DataSettings, *, classes: int, devices: DeviceSettings
    ) -> InMemoryData | StreamedData:
        if settings.split == self._training_split:
            return super().open(settings, classes=classes, devices=devices)
        flag = f"{self._flag} of the split {settings.split}"
        value = call(self._function, settings, settings.split, self._flag)
        if not is_frame(value):
            raise UserError(f"{flag} is not a DataFrame", "return one for each split")
        data = self._read(_with_labels(value, flag), settings, flag)
        reader = ArrayReader(settings, flag, data, held_out=True)
        if self._numbered and data.labels is not None:
            classes = len(self.class_names or ())
        reader.use_spec(self._spec(classes))
        return reader.open(settings, classes=classes, devices=devices)

    def with_settings(self, settings: DataSettings) -> FrameReader:
        return FrameReader(settings, self._function, self._flag)

    def held_out_split(self, settings: DataSettings) -> str | None:
        """Returns "test" or "validation" if the function returns other data for it, else None."""
        for split in ("test", "validation"):
            if split == self._training_split:
                continue
            value = call(self._function, settings, split, self._flag)
            if value is not None and not (
                is_frame(value) and _with_labels(value, self._flag).equals(self._frame)
            ):
                return split
        return None

    def to_frame(
        self, samples: np.ndarray, labels: np.ndarray | None, conditions: np.ndarray | None
    ) -> pd.DataFrame:
        """Returns samples as a DataFrame; see `Dataset.as_given`.

        Its columns are named like those of the data. A column of labels contains the names of the
        classes, in the type of the data if it is not text.
        """
        import pandas as pd  # noqa: PLC0415

        data = self._data
        columns = dict(zip(data.names or (), samples.T, strict=True))
        if labels is not None and data.label_name is not None:
            given = self._frame.iloc[:, self._names().index(data.label_name)].dtype
            known, names = data.label_of_class or {}, self.class_names or ()
            values = [known.get(name, name) for name in names]
            drawn = pd.Series([values[label] for label in labels], dtype=object)
            # A class that the data of a resumed run lacks has only its name, a text.
            columns[data.label_name] = drawn.astype(given) if {*names} <= {*known} else drawn
        if conditions is not None:
            columns |= dict(zip(data.condition_names, conditions.T, strict=True))
        return pd.DataFrame(columns)

    def _spec(self, classes: int) -> DataSpec:
        """Returns the properties of the training data, of which other splits have the scaling."""
        return DataSpec(
            self.example_shape,
            classes,
            self.bounded,
            self.conditions,
            self.class_names,
            self.scaling,
        )

    def _names(self) -> list[str]:
        return distinct_names(column_names(self._frame))

    @staticmethod
    def _read(frame: pd.DataFrame, settings: DataSettings, flag: str) -> ArrayData:
        return from_frame(frame, flag, settings)


def _with_labels(value: Any, flag: str) -> pd.DataFrame:
    """Returns a DataFrame, or a DataFrame and its labels as one with a column of labels.

    Raises:
      UserError: If there is not one label for each row.
    """
    if not isinstance(value, tuple):
        return value
    frame, labels = value
    if labels is None:
        return frame
    labels = np.asarray(labels)
    if labels.shape not in ((len(frame),), (len(frame), 1)):
        raise UserError(
            f"{flag} gives labels of shape {labels.shape} for {len(frame)} examples",
            "give one label to each row",
        )
    name = str(getattr(value[1], "name", ""))
    name = name if name.lower() in LABEL_NAMES else "label"
    return frame.assign(**{name: labels.reshape(-1)})
