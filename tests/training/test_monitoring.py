"""Tests of the writers of TensorBoard's events, of logs and of the terminal."""

import dataclasses
import io
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

import losses
import wgan_gp
from tests.helpers.runs import LIBRARY, TINY, device_loops, train_tiny, without_tracing
from wgan_gp.config import Config, settings_with
from wgan_gp.errors import UserError
from wgan_gp.training.networks import summary_text
from wgan_gp.writers.console import ConsoleWriter
from wgan_gp.writers.files import JsonlWriter
from wgan_gp.writers.tensorboard import LAYOUT, truncate_events
from wgan_gp.writers.writer import MemoryWriter, Writer, Writers

LOSS_AND_RATE = ("loss", "learning_rate")


def events_of(model_dir):
    """Returns (tag, value) of every summary in a run's event files."""
    return [
        (value.tag, value)
        for path in sorted((model_dir / "train").glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]


def hparams_of(value):
    return plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    path, data = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("data")
    images = np.random.default_rng(0).integers(0, 256, [2, 40, 8, 8, 1]).astype(np.uint8)
    for name, part in zip(("train", "test"), images, strict=True):
        np.save(data / f"{name}.npy", part)
    for train_steps in (5, 6):  # resumed once
        with without_tracing():
            train_tiny(
                path,
                train_steps=train_steps,
                steps_per_loop=1,
                summary_interval=1,
                dataset="array",
                data_dir=f"{data}/train.npy",
                test_data_dir=f"{data}/test.npy",
                penalty_weight=3.0,
                learning_rate_schedule="constant",
                n_critic=1,
            )
    return events_of(path)


@pytest.mark.slow
def test_every_chart_of_the_layout_has_curves(events):
    (value,) = [value for tag, value in events if tag == "custom_scalars__config__"]
    layout = layout_pb2.Layout.FromString(tf.make_ndarray(value.tensor).item())
    questions = [category.title for category in layout.category]
    assert questions == ["is it converging", "is the constraint kept", "throughput"]
    tags = {tag for tag, _ in events}
    for category in layout.category:
        for chart in category.chart:
            for pattern in chart.multiline.tag:
                assert len([tag for tag in tags if re.match(pattern, tag)]) == 1, chart.title
            for band in chart.margin.series:
                assert {band.value, band.lower, band.upper} <= tags
    first, second = (category.chart for category in layout.category[:2])
    assert "^held_out/negative_critic_loss$" in first[0].multiline.tag
    assert [band.upper for band in second[0].margin.series] == ["probe/gradient_norm_upper"]


@pytest.mark.slow
def test_the_parts_of_a_combined_penalty_share_a_chart(tmp_path):
    parts = {"critic/penalty_r1", "critic/penalty_r2"}
    with without_tracing():
        train_tiny(
            tmp_path, penalty="r1,r2", penalty_weight="1,2", train_steps=1, sample_interval=0
        )
    events = events_of(tmp_path)
    assert parts <= {tag for tag, _ in events}
    (layout,) = [value for tag, value in events if tag == "custom_scalars__config__"]
    charts = {
        chart.title: {tag for tag in parts if any(re.match(p, tag) for p in chart.multiline.tag)}
        for category in layout_pb2.Layout.FromString(tf.make_ndarray(layout.tensor).item()).category
        for chart in category.chart
    }
    assert {title for title, tags in charts.items() if tags} == {"parts of the penalty"}
    assert charts["parts of the penalty"] == parts


class LossesOnly:
    """The smallest objective that the engine accepts: it has no other terms than the losses."""

    critic_term_names = generator_term_names = ("loss",)

    def critic_terms(self, critic, real, fake, **others):
        return {"loss": losses.critic_loss(critic(real), critic(fake))}

    def generator_terms(self, critic, fake, **others):
        return {"loss": losses.generator_loss(critic(fake))}

    def constrain(self, weights):
        losses.auxiliary.clip_weights(weights, 0.1)


@pytest.mark.slow
def test_an_objective_with_losses_only_can_be_trained(tmp_path):
    often = {"train_steps": 5, "steps_per_loop": 1, "summary_interval": 1}
    often |= {"sample_interval": 0, "n_critic": 1}
    with without_tracing():
        library = dataclasses.replace(LIBRARY, objective=LossesOnly())
        _, writer = train_tiny(tmp_path, library, **often)
    tags = set(writer.summaries[-1][1])
    assert {tag for tag in tags if tag.partition("/")[0] in ("critic", "generator")} == {
        f"{network}/{name}" for network in ("critic", "generator") for name in LOSS_AND_RATE
    }
    assert {tag for tag in tags if tag.startswith("probe/")} == {
        "probe/negative_critic_loss",
        "probe/distance_of_means",
        "probe/diversity",
    }
    assert [tag for _, tag, _ in writer.texts] == ["diagnosis"]
    terminal = io.StringIO()
    console = ConsoleWriter(5, file=terminal)
    console.begin(0)
    console.scalars(*writer.summaries[-1])
    assert re.match(r"5/5: losses \S+ \S+, \d+ images/s, ", terminal.getvalue())

    events = events_of(tmp_path)
    assert "probe/gradient_norms" not in {tag for tag, _ in events}
    (layout,) = [value for tag, value in events if tag == "custom_scalars__config__"]
    charts = {
        category.title: [chart.title for chart in category.chart]
        for category in layout_pb2.Layout.FromString(tf.make_ndarray(layout.tensor).item()).category
    }
    assert charts == {
        "is it converging": ["negative critic loss", "losses"],
        "throughput": ["images a second", "shares of the time"],
    }
    (experiment,) = [value for tag, value in events if tag == "_hparams_/experiment"]
    outcomes = [each.name.tag for each in hparams_of(experiment).experiment.metric_infos]
    assert outcomes == ["throughput/images_per_second"]


def test_gradient_norms_are_written_as_histograms(events):
    histograms = [
        value
        for tag, value in events
        if tag == "probe/gradient_norms" and value.metadata.plugin_data.plugin_name == "histograms"
    ]
    assert len(histograms) == 6
    assert all(tf.make_ndarray(each.tensor)[:, 2].sum() == 32 for each in histograms)


def test_samples_interpolations_and_real_images_are_written(events):
    images = [tag for tag, value in events if value.metadata.plugin_data.plugin_name == "images"]
    assert images == ["real", *["samples", "interpolation"] * 2]


def test_settings_and_metrics_are_written_for_hparams(events):
    (experiment,) = [v for tag, v in events if tag == "_hparams_/experiment"]
    names = [each.name for each in hparams_of(experiment).experiment.hparam_infos]
    assert names == list(settings_with("compared", Config))
    metrics = [each.name.tag for each in hparams_of(experiment).experiment.metric_infos]
    assert set(metrics) <= {tag for tag, _ in events}
    (session,) = [v for tag, v in events if tag == "_hparams_/session_start_info"]
    values = hparams_of(session).session_start_info.hparams
    assert values["penalty_weight"].number_value == 3.0
    assert values["penalty_target"].number_value == 1.0
    assert values["penalty"].string_value == "two_sided"


@pytest.mark.slow
def test_the_main_metric_of_the_evaluations_is_compared(tmp_path):
    train_tiny(tmp_path, train_steps=5, evaluate_interval=5, evaluate_samples=20)
    events = events_of(tmp_path)
    (experiment,) = [v for tag, v in events if tag == "_hparams_/experiment"]
    metrics = {each.name.tag for each in hparams_of(experiment).experiment.metric_infos}
    assert "evaluation/wasserstein" in metrics <= {tag for tag, _ in events}


def test_configuration_and_networks_are_written_as_text(events):
    texts = {
        tag: tf.make_ndarray(value.tensor).item().decode()
        for tag, value in events
        if value.metadata.plugin_data.plugin_name == "text"
    }
    assert set(texts) == {"config", "generator", "critic", "diagnosis"}
    assert '"penalty_weight": 3.0' in texts["config"]
    for network in ("generator", "critic"):
        assert "Total params" in texts[network] and "dense_1" in texts[network]
        assert all(line.startswith("    ") for line in texts[network].splitlines() if line)


def test_the_terminal_shows_the_remaining_time():
    file, now = io.StringIO(), iter([0.0, 10.0, 70.0])
    writer = ConsoleWriter(100, file=file, clock=lambda: next(now))
    charts = [chart for charts in LAYOUT.values() for chart in charts.values()]
    tags = {"critic/gradient_norm", *(tag for chart in charts for tag in chart.tags)}
    values = dict.fromkeys(tags, 0.25)
    writer.begin(10)
    writer.scalars(20, values)  # 10 iterations in 10 seconds
    writer.scalars(40, values)  # 20 in 60
    writer.text(40, "diagnosis", "healthy: diversity 90%")
    _, *lines, diagnosis = file.getvalue().splitlines()
    assert diagnosis == "40/100: diagnosis: healthy: diversity 90%"
    assert [line.rpartition(", ")[2] for line in lines] == ["01:20 left", "03:00 left"]
    assert lines[0].startswith("20/100: wasserstein 0.250, losses 0.250 0.250, penalty 0.250")


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, None), (b"", b""), (b"{}\n", b"{}\n"), (b'{}\n{"st', b'{}\n{"st\n')],
)
@pytest.mark.parametrize("folder", ["", "ram://terminated"])
def test_an_incomplete_last_line_is_terminated(tmp_path, folder, before, after):
    path = f"{folder or tmp_path}/evaluation.jsonl"
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
    if before is not None:
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(before)
    JsonlWriter(path).terminate_last_line()
    assert tf.io.gfile.exists(path) == (after is not None)
    if after is not None:
        with tf.io.gfile.GFile(path, "rb") as file:
            assert file.read() == after


def test_all_writers_are_closed_although_one_fails():
    closed = []

    class Closing(Writer):
        def __init__(self, name):
            self._name = name

        def close(self):
            closed.append(self._name)
            if self._name == "b":
                raise UserError("b cannot be closed", "look")

    with pytest.raises(UserError, match="b cannot be closed"):
        Writers(*map(Closing, "abc")).close()
    assert closed == ["a", "b", "c"]


@pytest.mark.parametrize("columns", ["0", "10", "400"])
def test_the_table_of_a_network_does_not_depend_on_the_terminal(columns, monkeypatch):
    layers = tf.keras.layers
    inputs = tf.keras.Input([2])
    both = layers.Concatenate(name="both")([layers.Dense(3, name="left")(inputs), inputs])
    network = tf.keras.Model(inputs, layers.Dense(1, name="last")(both))
    monkeypatch.delenv("COLUMNS", raising=False)
    table = summary_text(network)
    assert all(name in table for name in ("left (Dense)", "both (Concatenate)", "last (Dense)"))
    monkeypatch.setenv("COLUMNS", columns)
    assert summary_text(network) == table
    assert os.environ["COLUMNS"] == columns


def test_records_that_are_no_events_are_removed_on_a_resume(tmp_path):
    path = str(tmp_path / "events.1")
    events = [tf.compat.v1.Event(step=step).SerializeToString() for step in (1, 5, 6)]
    with tf.io.TFRecordWriter(path) as writer:
        for record in (events[0], b"\xff\xff\xff\xff not an event", *events[1:]):
            writer.write(record)
    truncate_events(path, 5)
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == events[:2]


class Stepped(losses.GanObjective):
    """An objective whose "penalty" is the number of the step, at every `penalty_interval`-th."""

    def critic_terms(self, *args, step, **given):
        terms = super().critic_terms(*args, step=step, **given)
        penalty = losses.lazy_regularization(
            self.penalty_interval,
            step,
            lambda: tf.ones_like(terms["loss"]) * tf.cast(step, tf.float32),
            like=terms["loss"],
        )
        return {**terms, "penalty": penalty}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_device", "settings"),
    [
        (False, {}),
        (False, {"cpu_replicas": 2}),
        (True, {}),
        (True, {"runtime": "pjrt", "cpu_replicas": 2}),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("interval", "expected"),
    # The loops have the critic steps 0 to 9, 10 to 19, and 20 and 21.
    [(1, {5: 4.5, 10: 14.5, 11: 20.5}), (4, {5: 4, 10: 14, 11: 20}), (16, {5: 0, 10: 16})],
)
def test_lazy_penalties_are_logged_as_means_over_the_steps_that_compute_them(
    on_device, settings, interval, expected, tmp_path
):
    settings = {**TINY, **settings, "n_critic": 2, "steps_per_loop": 5, "train_steps": 11}
    settings |= {"penalty_interval": interval, "summary_interval": 1, "sample_interval": 0}
    writer = MemoryWriter()
    config = Config(model_dir=str(tmp_path), **settings)
    with device_loops(on_device):
        wgan_gp.train(config, objective=Stepped, writers=[writer])
    assert [step for step, _ in writer.summaries] == [5, 10, 11]
    found = {
        step: values["critic/penalty"]
        for step, values in writer.summaries
        if "critic/penalty" in values
    }
    assert found == pytest.approx(expected, rel=1e-6)
