"""The writer of TensorBoard's event files, and the layout of its charts."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalar
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from ..run_directory.files import check_regular, delete, list_prefix
from .writer import Writer


@dataclasses.dataclass(frozen=True)
class Curves:
    """A chart of one or several curves.

    Attributes:
      tags: The tags of the curves.
      term: The critic's term that the chart shows.
    """

    tags: tuple[str, ...]
    term: str = "loss"

    def chart(self, title: str) -> layout_pb2.Chart:
        """Returns the chart for TensorBoard's layout."""
        # TensorBoard reads these tags as regular expressions.
        tags = [f"^{re.escape(tag)}$" for tag in self.tags]
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))


@dataclasses.dataclass(frozen=True)
class Band:
    """A chart of a curve inside a band.

    Attributes:
      tag: The tag of the curve.
      lower: The tag of the lower edge of the band.
      upper: The tag of the upper edge.
      term: The critic's term that the chart shows.
    """

    tag: str
    lower: str
    upper: str
    term: str

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the curve and of the edges of the band."""
        return (self.tag, self.lower, self.upper)

    def chart(self, title: str) -> layout_pb2.Chart:
        """Returns the chart for TensorBoard's layout."""
        series = layout_pb2.MarginChartContent.Series(
            value=self.tag, lower=self.lower, upper=self.upper
        )
        return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series]))


# The charts of TensorBoard's Custom Scalars, by the question that they answer and by title.
LAYOUT: dict[str, dict[str, Curves | Band]] = {
    "is it converging": {
        "negative critic loss": Curves(
            ("probe/negative_critic_loss", "held_out/negative_critic_loss")
        ),
        "estimated distance, without the penalty": Curves(("critic/wasserstein",), "wasserstein"),
        "losses": Curves(("critic/loss", "generator/loss")),
    },
    "is the constraint kept": {
        "gradient norm, and one standard deviation": Band(
            "probe/gradient_norm",
            "probe/gradient_norm_lower",
            "probe/gradient_norm_upper",
            "gradient_norm",
        ),
        "penalty": Curves(("critic/penalty",), "penalty"),
    },
    "throughput": {
        "images a second": Curves(("throughput/images_per_second",)),
        "shares of the time": Curves(("throughput/data_wait_share", "throughput/host_share")),
    },
}


# The metrics in which TensorBoard's HParams compares runs.
COMPARED_METRICS = ("critic/wasserstein", "critic/gradient_norm", "throughput/images_per_second")
SHOWN_TERMS = ("loss", "wasserstein", "penalty", "gradient_norm")  # of the critic


class TensorBoardWriter(Writer):
    """A writer of event files, which are flushed at every summary.

    Args:
      directory: The directory, any path that tf.io.gfile can open.
      settings: The settings in which HParams compares the run with others, by name.
      metrics: The tags of further metrics in which it compares them.
      texts: Texts by tag, shown line by line.
      critic_terms: The names of the objective's critic terms; charts of other terms are omitted.
    """

    def __init__(
        self,
        directory: str,
        settings: Mapping[str, str | float] | None = None,
        metrics: Sequence[str] = (),
        texts: Mapping[str, str] | None = None,
        critic_terms: Sequence[str] = SHOWN_TERMS,
    ):
        self._directory = directory
        self._settings = dict(settings or {})
        self._metrics = tuple(metrics)
        self._texts = dict(texts or {})
        self._missing = set(SHOWN_TERMS) - set(critic_terms)
        self._penalties = tuple(
            f"critic/{term}" for term in critic_terms if term.startswith("penalty_")
        )
        self._events = tf.summary.create_noop_writer()

    def begin(self, step: int) -> None:
        self.close()
        # As in metrics.jsonl, events that will be computed again are removed.
        earlier_files = list_prefix(posixpath.join(self._directory, "events."))
        with tf.device(None):  # this machine, also if that of a TPU is the default
            for path in earlier_files:
                truncate_events(path, step)
            self._events = tf.summary.create_file_writer(self._directory)
        if not earlier_files:
            self._write_static_content()

    def _write_static_content(self) -> None:
        """Writes the layout of the charts, the settings and the texts, which do not change."""
        categories = []
        for question, charts in LAYOUT.items():
            shown = [
                chart.chart(title)
                for title, chart in charts.items()
                if chart.term not in self._missing
            ]
            if self._penalties and "penalty" in charts:
                shown.append(Curves(self._penalties).chart("parts of the penalty"))
            if shown:
                categories.append(layout_pb2.Category(title=question, chart=shown))
        layout = custom_scalar.pb(layout_pb2.Layout(category=categories))
        outcomes = [tag for tag in COMPARED_METRICS if tag.partition("/")[2] not in self._missing]
        outcomes += [tag for tag in self._metrics if tag not in outcomes]
        self._write(0, layout)
        with self._events.as_default(step=0):
            if self._settings:
                hparams.hparams_config(
                    hparams=[hparams.HParam(name) for name in self._settings],
                    metrics=[hparams.Metric(tag) for tag in outcomes],
                )
                hparams.hparams(self._settings)
            for tag, text in self._texts.items():
                tf.summary.text(tag, textwrap.indent(text, "    "))  # a Markdown code block
        self._events.flush()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        # A single operation; tf.summary.scalar would run several for each value.
        summary = Summary()
        for tag, value in values.items():
            summary.MergeFrom(scalar_pb(tag, value))
        self._write(step, summary)
        self._events.flush()

    def image(self, step: int, tag: str, image: np.ndarray) -> None:
        with self._events.as_default(step=step):
            tf.summary.image(tag, image[None])
        self._events.flush()

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        # tf.summary.histogram would count the values in dozens of operations.
        self._write(step, histogram_pb(tag, values))

    def text(self, step: int, tag: str, text: str) -> None:
        with self._events.as_default(step=step):
            tf.summary.text(tag, text)
        self._events.flush()

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        self.scalars(step, values)

    def close(self) -> None:
        self._events.close()

    def _write(self, step: int, summary: Summary) -> None:
        with self._events.as_default(step=step):
            tf.summary.experimental.write_raw_pb(summary.SerializeToString())


def truncate_events(path: str, step: int) -> None:
    """Removes what a resumed run does not continue from an event file.

    This is events later than `step`, records that are not events, and an incomplete last record.
    """

    def is_kept(record: bytes) -> bool:
        try:
            return tf.compat.v1.Event.FromString(record).step <= step
        except DecodeError:
            return False

    def records() -> Iterator[tuple[bytes, bool]]:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            yield record, is_kept(record)

    check_regular(path)
    try:
        if all(keep for _, keep in records()):
            return
    except tf.errors.DataLossError:
        pass
    # TensorBoard ignores a file with this name.
    temporary = posixpath.join(posixpath.dirname(path), "cut.new")
    delete(temporary)
    try:
        with (
            tf.io.TFRecordWriter(temporary) as writer,
            contextlib.suppress(tf.errors.DataLossError),
        ):
            for record, keep in records():
                if keep:
                    writer.write(record)
        tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        delete(temporary)
