"""Tests of --mode=compile: compilation for TPU slices, its report and its error messages."""

import dataclasses
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import types

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import flags
import models
from tests.helpers.runs import DCGAN, LIBRARY, TINY, call_main, library_with, resolved
from wgan_gp import tpu
from wgan_gp.app.compiling import compile_for_slice, make_program
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.data.feed import loop_input
from wgan_gp.data.opened_data import ExampleFormat, UnreadData
from wgan_gp.errors import UserError
from wgan_gp.pjrt import lowering
from wgan_gp.pjrt.slice_strategy import SliceStrategy
from wgan_gp.tpu import (
    advice,
    aot,
    compile_errors,
    compiler,
    hlo,
    layers,
    loop_program,
    memory_limit,
    topologies,
)
from wgan_gp.tpu.compile_report import count_gradient_all_reduces

ROOT = pathlib.Path(__file__).parents[2]
TOY = {"dataset": "swiss_roll", "model": "mlp", "model_width": 16, "model_depth": 1}


def compile_report(directory, topology="v5e-8", library=LIBRARY, **settings):
    """Runs the mode and returns the report that it wrote."""
    tf.keras.backend.clear_session()  # Keras numbers layers by process, and the mode has its own
    config = Config(model_dir=str(directory), compile_topology=topology, mode="compile", **settings)
    config, dataset = resolve(config, library.models)
    compile_for_slice(config, dataset, library)
    name = topology.replace(":", "_")
    return json.loads((directory / "compile" / f"{name}.json").read_text())


@pytest.mark.slow
def test_gradients_are_summed_in_one_all_reduce(tmp_path):
    replicas = 256
    settings = {**TINY, **DCGAN, "batch_size": 2 * replicas}
    report = compile_report(tmp_path, "v5e-256", **settings)
    assert (report["topology"], report["replicas"]) == ("v5e-256", replicas)
    assert report["per_replica_batch"] == 2
    assert report["loop"]["replica_count"] == replicas
    # The dataset is in the memory of the device. The host sends an index for each example, and
    # three counters for each launch, which has five iterations.
    assert report["loop"]["resident_bytes"] == 1797 * 128 * 4
    assert report["iteration"]["launches_per_loop"] == 1
    assert report["iteration"]["iterations_per_launch"] == 5
    assert report["iteration"]["bytes_from_host"] == -(-replicas * (5 * 2 * 2 * 4 + 24) // 5)
    for program in report["programs"].values():
        # The other all-reduces sum the moments of batch normalization.
        sums = [each["bytes"] for each in program["all_reduces"] if each["layer"] == "adam"]
        assert sums == [program["gradient_bytes"]]
        assert program["gradient_all_reduce_count"] == 1
        assert program["all_reduce_count"] == len(program["all_reduces"])
        assert program["all_reduce_bytes"] > program["gradient_bytes"]
    generator = report["programs"]["generator_step"]
    norms = [each["layer"] for each in generator["all_reduces"] if each["layer"] != "adam"]
    # Two batch normalizations, forward and backward.
    assert sorted(norms) == sorted(2 * ["generator/normalization_0", "generator/normalization_1"])


@pytest.mark.slow
def test_cycles_of_the_cifar10_resnet_do_not_increase(tmp_path):
    """Guards the causes of speed in docs/performance.md, by the cycles when this was written.

    With 8 images per core instead of 64, the program compiles in two thirds of the time.
    `python -m benchmarks.tpu_cycles` prints the figures of the page.
    """
    report = compile_report(
        tmp_path,
        "v5e-8",
        dataset="cifar10",
        model="resnet",
        model_width=128,
        latent_size=128,
        batch_size=8 * 8,
        generator_batch_size=8 * 16,
    )
    critic, generator = (report["programs"][name] for name in ("critic_step", "generator_step"))
    assert critic["cycles_per_example"] < 1.01 * 100_372
    assert generator["cycles_per_example"] < 1.01 * 58_452
    iteration = report["iteration"]
    assert iteration["estimated_cycles"] < 1.01 * 4_954_103
    assert iteration["launches_per_loop"] == 1
    assert iteration["bytes_from_host"] < 2e3
    assert report["loop"]["temp_bytes"] < 22e6
    assert critic["gradient_all_reduce_count"] == generator["gradient_all_reduce_count"] == 1


@pytest.mark.slow
def test_the_command_line_compiles_for_one_core_which_needs_no_all_reduces(tmp_path, capsys):
    """Writes only the report, so that the directory can be used for a run with other settings."""
    tf.keras.backend.clear_session()
    settings = {**TINY, "mode": "compile", "compile_topology": "v5e-1", "model_dir": tmp_path}
    assert call_main(*(f"--{name}={value}" for name, value in settings.items())) == 0
    printed = capsys.readouterr()
    assert "v5e-1: 1 replicas with 16 real examples each" in printed.out
    for text in ("estimated cycles", "matrix unit utilization", "most expensive", "advice:"):
        assert text in printed.out
    assert "compiled in" in printed.err
    assert "loop: 1 launch of 5 iterations" in printed.out
    assert [path.name for path in tmp_path.iterdir()] == ["compile"]
    files = {path.name for path in (tmp_path / "compile").iterdir()}
    assert files == {"v5e-1.json", "v5e-1.hlo.txt"}
    report = json.loads((tmp_path / "compile" / "v5e-1.json").read_text())
    assert report["loop"]["replica_count"] == 1
    assert [program["all_reduce_count"] for program in report["programs"].values()] == [0, 0]
    # Points are generated by the host; an iteration has two critic steps with 16 points each.
    assert report["loop"]["resident_bytes"] == 0
    sent = {name: report["iteration"][name] for name in ("bytes_from_host", "bytes_to_host")}
    assert sent == {
        "bytes_from_host": 2 * 16 * (2 * 4 + 4) + -(-24 // 5),
        "bytes_to_host": -(-(4 * (4 + 1) + 2 * 8) // 5),
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Returns the steps of the report for a loss that does not pair samples."""
    folder = tmp_path_factory.mktemp("plain")
    return compile_report(folder, "v5e-1", **TOY, batch_size=256, n_critic=1)["programs"]


@pytest.mark.parametrize("n_critic", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_every_critic_step_of_a_loss_that_pairs_samples_is_counted(tmp_path, plain, n_critic):
    """Such a generator step needs the real examples of the last critic step."""
    settings = {**TOY, "batch_size": 256, "n_critic": n_critic, "adversarial_loss": "relativistic"}
    paired = compile_report(tmp_path, "v5e-1", **settings)["programs"]
    for step, limit in (("critic_step", 1.5), ("generator_step", 2.5)):
        flops = [programs[step]["flops"] for programs in (plain, paired)]
        assert flops[0] * 0.9 < flops[1] < flops[0] * limit, (step, flops)


@pytest.mark.slow
def test_estimates_are_deterministic_and_consistent(tmp_path):
    first, second = (
        compile_report(tmp_path / run, **TOY, batch_size=256, train_steps=1000)
        for run in ("first", "second")
    )
    assert first == second
    core = topologies.find("v5e-8").core
    for program in first["programs"].values():
        assert program["estimated_cycles"] > 0 and program["flops"] > 0
        seconds = program["estimated_cycles"] / core.clock
        assert program["estimated_seconds"] == pytest.approx(seconds)
        busy = program["flops"] / (seconds * core.peak_flops)
        assert program["matrix_unit_utilisation"] == pytest.approx(busy)
        assert sum(program["cycles_by_layer"].values()) == program["estimated_cycles"]
        costs = [row["cycles"] for row in program["costliest"]]
        assert len(costs) == 10 and costs == sorted(costs, reverse=True)
        assert program["bytes_accessed"] > 0
        assert program["cycles_per_example"] == program["estimated_cycles"] / 32
    loop = first["loop"]
    assert loop["memory_bytes"] >= loop["argument_bytes"] + loop["temp_bytes"] + loop["code_bytes"]
    steps = sum(
        count * first["programs"][name]["estimated_cycles"]
        for name, count in (("critic_step", 5), ("generator_step", 1))
    )
    # The rest is outside of the loops, and each launch has 50 iterations.
    assert steps < first["iteration"]["estimated_cycles"] < 1.01 * steps
    iteration = first["iteration"]["estimated_seconds"]
    assert iteration == first["iteration"]["estimated_cycles"] / core.clock
    assert first["estimated_images_per_second"] == pytest.approx(5 * 256 / iteration)
    per_chip = first["estimated_images_per_second_per_chip"]
    assert per_chip == pytest.approx(first["estimated_images_per_second"] / 8)
    assert first["estimated_hours"] == pytest.approx(1000 * iteration / 3600)
    assert {"tensorflow", "keras", "jax", "jaxlib", "libtpu"} == set(first["versions"])


@pytest.mark.slow
def test_a_wider_network_has_higher_estimates(tmp_path):
    settings = {**TOY, "model_depth": 3, "batch_size": 4096}
    narrow = compile_report(tmp_path, **settings)
    wide = compile_report(tmp_path, **{**settings, "model_width": 512})
    for name, program in narrow["programs"].items():
        for figure in ("flops", "estimated_cycles", "gradient_bytes"):
            assert wide["programs"][name][figure] > 2 * program[figure], (name, figure)
    assert wide["loop"]["argument_bytes"] > 2 * narrow["loop"]["argument_bytes"]
    rows = [row for program in wide["programs"].values() for row in program["costliest"]]
    updates = {(row["operation"], row["pass"]) for row in rows if row["layer"] == "adam"}
    assert updates == {("update of weights", "update")}


@pytest.mark.parametrize("data", ["resident", pytest.param("sent", marks=pytest.mark.slow)])
def test_the_loop_of_a_slice_computes_the_updates_of_one_replica(data):
    """Runs 10 iterations on 8 virtual CPU devices, with gradient descent and the same batches."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tpu.replicated_program", data],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["update"] > 0.01 and result["terms"] > 1
    assert result["apart"] < 1e-5 * result["update"]
    assert result["terms_apart"] < 1e-5 * result["terms"]


def lower(library=LIBRARY, **settings):
    """Returns the loop for v5e-8, and its conversion to HLO, which is not compiled."""
    config = Config(mode="compile", **{**TINY, **settings})
    config, dataset = resolve(config, library.models)
    topology = topologies.find(config.compile_topology)
    program = make_program(config, dataset, library, topology)
    return program, program.lower()


def test_launches_and_bytes_are_counted(monkeypatch):
    """Five iterations have two critic steps each, with two points for each of 8 replicas."""
    _, loop = lower()
    assert (loop.launches_per_loop, loop.iterations_per_launch) == (1, 5)
    # Two coordinates in float32 and a label for each point; three counters.
    assert loop.launch_bytes == 5 * 2 * 2 * (2 * 4 + 4) + 3 * 8
    # The sums of four critic terms and one generator term; the first bad iterations.
    assert loop.result_bytes == 4 * (4 + 1) + 2 * 8
    assert loop.prefetched_bytes == 2 * 5 * 2 * 2 * (2 * 4 + 4)
    # Two iterations would fit into an element, but would not divide the loop.
    monkeypatch.setattr(loop_input, "MAX_ELEMENT_BYTES", 2 * 2 * 2 * (2 * 4 + 4))
    _, small = lower()
    assert (small.launches_per_loop, small.iterations_per_launch) == (5, 1)
    assert small.launch_bytes == 2 * 2 * (2 * 4 + 4) + 3 * 8
    assert small.result_bytes == loop.result_bytes


class Table(tf.keras.layers.Layer):
    """A layer with a table that is neither a weight nor a constant."""

    def __init__(self, **options):
        super().__init__(**options)
        self.table = tf.range(1000.0)

    def call(self, x):
        return x + tf.reduce_mean(self.table)


def test_tensors_that_a_program_captures_are_sent_with_each_launch():
    """Such a tensor is a mistake, which the report shows."""
    _, plain = lower()
    _, captured = lower(library_with(models_with(Table)))
    assert captured.launch_bytes - plain.launch_bytes == 4 * 1000


def test_images_are_sent_as_levels_and_resident_images_as_indices(tmp_path):
    """cifar10 is not prepared here, so its number of images is assumed."""
    images = {"dataset": "cifar10", "data_dir": str(tmp_path), "random_flips": True}
    _, sent = lower(**images, cache="off")
    assert sent.launch_bytes == 5 * 2 * 2 * (32 * 32 * 3 + 4) + 3 * 8
    program, resident = lower(**images)
    assert program.resident and 2**30 - 3072 < program.resident_bytes <= 2**30
    assert resident.launch_bytes == 5 * 2 * 2 * 4 + 3 * 8


def program_with(data, **settings):
    settings = {"compile_topology": "v5e-1", **TINY, **DCGAN, **settings}
    config = Config(mode="compile", **settings)
    config, dataset = resolve(config, LIBRARY.models)
    topology = topologies.find(config.compile_topology)
    program = make_program(config, dataset, LIBRARY, topology)
    return dataclasses.replace(program, data=data, resident=True), topology


def levels(size):
    stored = ExampleFormat((8, 8, 1), tf.uint8, lambda images, _: tf.cast(images, tf.float32))
    return UnreadData(stored, size, in_memory=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "message"),
    [
        (1.1, "the dataset is too large for --cache=device: it requires 17.32 GiB per core, but"),
        # The labels, the networks and temporaries are in addition to the images.
        (0.999, "--batch_size=16 is too large: the loop requires "),
    ],
)
def test_the_error_for_a_large_dataset_contains_the_cache_that_fits(tmp_path, share, message):
    program, topology = program_with(levels(int(share * 15.75 * 2**30 / 128)), model="mlp")
    devices = compiler.slice_devices(topology)
    base = str(tmp_path / "v5e-1")
    with pytest.raises(UserError) as caught:
        aot.compile_program(program, devices, topology, base, penalty_interval=1)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("but a core has 15.75 GiB — use --cache=off")
    assert not list(tmp_path.iterdir()) or share < 1  # the first error needs no compilation


@dataclasses.dataclass(frozen=True)
class Priced:
    """A loop that needs a GiB per example of a micro-batch.

    Like the program, it rejects micro-batches that are not of equal size.
    """

    batch_size: int = 64
    generator_batch_size: int = 64
    accumulate: int = 1
    resident = False

    def with_settings(self, **settings):
        changed = dataclasses.replace(self, **settings)
        sizes = changed.batch_size, changed.generator_batch_size
        return None if any(size % changed.accumulate for size in sizes) else changed

    def lower(self):
        return types.SimpleNamespace(program=self, prefetched_bytes=0)

    @property
    def memory_bytes(self):
        return 2**30 * self.batch_size // self.accumulate


@pytest.mark.parametrize(
    ("gibibytes", "accumulate", "remedy"),
    [
        (
            40,
            1,
            "use --batch_size=32 --generator_batch_size=32, "
            "or --accumulate=2 (32.00 GiB, 1.25 of its cycles per example)",
        ),
        (
            16,
            1,
            "use --batch_size=16 --generator_batch_size=16, "
            "or --accumulate=4 (16.00 GiB, 1.25 of its cycles per example)",
        ),
        (
            9,
            4,
            "use --batch_size=32 --generator_batch_size=32, "
            "or --accumulate=8 (8.00 GiB, 1.00 of its cycles per example)",
        ),
        (0.2, 4, "use a smaller network, because no batch size fits"),
    ],
)
def test_the_remedies_for_a_large_batch_have_prices(gibibytes, accumulate, remedy, monkeypatch):
    def compile_within_memory(loop, devices, available):
        if loop.program.memory_bytes > available:
            raise memory_limit.OutOfMemoryError(None, "")
        return loop.program

    def iteration_cycles(program, loop, executable, penalty_interval):
        return (1.25 if program.accumulate > 1 else 1) * program.batch_size

    monkeypatch.setattr(memory_limit, "compile_within_memory", compile_within_memory)
    monkeypatch.setattr(memory_limit, "iteration_cycles", iteration_cycles)
    program = Priced(accumulate=accumulate)
    memory = compile_errors.Memory(program.memory_bytes, int(gibibytes * 2**30))
    assert memory_limit.find_remedy(program, [None], memory, penalty_interval=1) == remedy


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"accumulate": 3}, {"batch_size": 32, "generator_batch_size": 32}),
        ({}, {"accumulate": 5}),
        ({"accumulate": 2}, {"batch_size": 8, "generator_batch_size": 8}),
        ({"minibatch_stddev": 2}, {"batch_size": 8, "generator_batch_size": 8}),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_together_are_not_recommended(tmp_path, settings, changed):
    settings = {**TOY, "batch_size": 96, "cache": "off", **settings}
    config = Config(mode="compile", compile_topology="v5e-8", model_dir=str(tmp_path), **settings)
    config, dataset = resolve(config, LIBRARY.models)
    program = make_program(config, dataset, LIBRARY, topologies.find("v5e-8"))
    assert program.with_settings(**changed) is None
    larger = program.with_settings(batch_size=192, generator_batch_size=192)
    assert larger.batch_size == 192


def images_with_energies_and_angles(folder):
    random = np.random.default_rng(0)
    images, conditions = random.normal(size=[40, 8, 8, 1]), random.normal(size=[40, 2])
    np.savez(folder / "data.npz", examples=images, conditions=conditions)
    return {
        "dataset": "array",
        "data_dir": str(folder / "data.npz"),
        "conditioning": "projection",
        "cache": "off",
    }


def rectangles_of_16_bits(folder):
    for number in range(40):
        levels = np.arange(96, dtype=np.uint16).reshape(12, 8) * 600 + number
        PIL.Image.fromarray(levels).save(folder / f"{number}.png")
    return {"dataset": "image_folder", "data_dir": str(folder), "image_channels": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "resident_bytes", "sent_bytes"),
    [
        (images_with_energies_and_angles, 0, 4 * 64 + 4 * 2),
        # An image is a row of 192 bytes, which a TPU pads to 256. Its index is sent.
        (rectangles_of_16_bits, 40 * 256, 4),
    ],
)
def test_conditions_and_rectangles_of_16_bits_are_compiled(
    tmp_path, write, resident_bytes, sent_bytes
):
    """Other tests compile digits, points and features."""
    (tmp_path / "data").mkdir()
    report = compile_report(tmp_path, **{**TINY, "model": "dcgan", **write(tmp_path / "data")})
    assert report["loop"]["resident_bytes"] == resident_bytes
    # Each of five iterations has two critic steps with two examples per replica.
    assert report["iteration"]["bytes_from_host"] == -(-8 * (5 * 2 * 2 * sent_bytes + 24) // 5)
    for program in report["programs"].values():
        assert program["gradient_all_reduce_count"] == 1


@pytest.mark.slow
def test_the_prices_of_remedies_are_figures_of_their_reports(tmp_path, monkeypatch):
    """Every setting fits into the memory of a core, and prices are in bytes instead of GiB."""
    monkeypatch.setattr(memory_limit, "format_gibibytes", str)
    features = np.random.default_rng(0).normal(size=[300, 10]).astype(np.float32)
    np.save(tmp_path / "features.npy", features)
    settings = {
        **TOY,
        "dataset": "array",
        "data_dir": str(tmp_path / "features.npy"),
        "batch_size": 256,
        "n_critic": 1,
        "cache": "off",
    }
    config = Config(mode="compile", compile_topology="v5e-8", model_dir=str(tmp_path), **settings)
    topology = topologies.find("v5e-8")
    program = make_program(*resolve(config, LIBRARY.models), LIBRARY, topology)
    available = topology.core.memory_bytes
    memory = compile_errors.Memory(int(available / 0.3), available)
    remedy = memory_limit.find_remedy(
        program, compiler.slice_devices(topology), memory, penalty_interval=1
    )

    def figures(name, **changes):
        report = compile_report(tmp_path / name, **{**settings, **changes})
        cycles = report["iteration"]["estimated_cycles"]
        return report["loop"]["memory_bytes"], cycles / (8 * report["per_replica_batch"])

    _, smaller = figures("smaller", batch_size=64)
    required, cycles = figures("accumulate", accumulate=4)
    assert remedy == (
        "use --batch_size=64 --generator_batch_size=64, or --accumulate=4 "
        f"({required}, {cycles / smaller:.2f} of its cycles per example)"
    )


@pytest.mark.slow
def test_micro_batches_need_less_memory(tmp_path):
    """The features of 8,192 examples are larger than the vector memory of a core."""
    points = np.random.default_rng(0).normal(size=[65_536, 16]).astype(np.float32)
    np.save(tmp_path / "points.npy", points)
    settings = {
        "dataset": "array",
        "data_dir": str(tmp_path / "points.npy"),
        "scaling": "none",
        "cache": "off",
        "model": "mlp",
        "model_width": 512,
        "model_depth": 4,
        "generator_width": 8,
        "penalty": "r1",
        "batch_size": 65_536,
        "n_critic": 1,
    }
    plain, accumulated = (
        compile_report(tmp_path / f"{count}", "v3-8", **settings, accumulate=count)["loop"]
        for count in (1, 4)
    )
    assert plain["temp_bytes"] > 60 * 2**20
    assert accumulated["temp_bytes"] < 0.6 * plain["temp_bytes"]


class DynamicShape(tf.keras.layers.Layer):
    def call(self, x):
        return x + tf.reduce_sum(tf.boolean_mask(x, x > 0))


class ShapeFromValues(tf.keras.layers.Layer):
    def call(self, x):
        count = tf.cast(tf.reduce_max(x), tf.int32)
        return x + tf.reduce_sum(tf.cast(tf.range(count), tf.float32))


class Strings(tf.keras.layers.Layer):
    def call(self, x):
        return x + tf.cast(tf.strings.length(tf.strings.as_string(x)), tf.float32)


class Float64(tf.keras.layers.Layer):
    def call(self, x):
        return tf.cast(tf.tanh(tf.cast(x, tf.float64)), tf.float32)


def models_with(layer):
    def build(*arguments, **options):
        generator, _ = models.build(*arguments, **options)
        critic = tf.keras.Sequential(
            [
                tf.keras.Input([2]),
                tf.keras.layers.Dense(8),
                layer(name="troublesome"),
                tf.keras.layers.Dense(1),
            ],
            name="critic",
        )
        return generator, critic

    return build


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (DynamicShape, "has a dynamic shape: its size depends on values — keep all elements"),
        (ShapeFromValues, "has a dynamic shape: Range computes it from values — compute shapes in"),
        (Strings, "uses AsString, which TPUs do not support — move it to the input pipeline"),
        (Float64, "uses float64, which TPUs do not support — cast its inputs to float32"),
    ],
)
def test_errors_name_the_layer_that_a_tpu_does_not_support(tmp_path, layer, message):
    with pytest.raises(UserError) as caught:
        compile_report(tmp_path, library=library_with(models_with(layer)), **TOY)
    assert str(caught.value).startswith("layer critic/troublesome ")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    if "(" in message or layer in (Strings, ShapeFromValues):  # TensorFlow reports the line
        assert "tests/tpu/test_compile.py:" in str(caught.value)
        (text,) = (tmp_path / "compile").glob("v5e-8.error.txt")
        assert "troublesome" in text.read_text()


@pytest.mark.parametrize("kind", [pytest.param("arguments", marks=pytest.mark.slow), "temporaries"])
def test_the_error_for_a_large_batch_contains_a_batch_size_that_fits(tmp_path, kind):
    """Compiles a program that requires 8 MiB per example, but little memory to compile."""
    strategy = SliceStrategy(2)
    topology = topologies.find("v2-8")
    devices = compiler.slice_devices(topology)[:2]

    def step(x):
        big = x if kind == "arguments" else tf.tile(x, [1, 2**20])
        return tf.cumsum(tf.reverse(big, [0]), axis=1)

    @dataclasses.dataclass(frozen=True)
    class Loop:
        batch_size: int
        generator_batch_size: int
        resident = False
        accumulate = 1
        step = types.SimpleNamespace(state=types.SimpleNamespace(critic=None, generator=None))

        def with_settings(self, **settings):
            return None if "accumulate" in settings else Loop(**settings)

        def lower(self):
            width = 2**20 if kind == "arguments" else 1
            spec = tf.TensorSpec([self.batch_size // 2, width])
            hlo = lowering.lower_to_hlo(lowering.make_program(step, strategy), spec)
            return loop_program.LoweredLoop(hlo, 1, 1, 0, 0, prefetched_bytes=0)

    def compile_batch(batch):
        loop, base = Loop(batch, 2 * batch), f"{tmp_path}/v2-8"
        return aot.compile_program(loop, devices, topology, base, penalty_interval=1)

    with pytest.raises(UserError) as caught:
        compile_batch(8192)
    message = str(caught.value)
    assert message.startswith("--batch_size=8192 is too large: the loop requires ")
    assert "GiB per core, but a core has " in message and "\n" not in message
    assert (tmp_path / "v2-8.error.txt").read_text()
    found = re.search(r"use --batch_size=(\d+) --generator_batch_size=(\d+)$", message)
    fits, generated = map(int, found.groups())
    assert 256 <= fits <= 2048 and generated == 2 * fits
    compile_batch(fits)


def test_the_error_for_a_missing_compiler_contains_the_command_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(tpu.REQUIRED, "libtpu", "0.0.52")
    with pytest.raises(
        UserError, match=r"requires libtpu 0\.0\.52 .* version 0\.0\.51 is installed — run"
    ):
        compile_report(tmp_path)
    monkeypatch.setitem(tpu.REQUIRED, "no-such-package", "1.0")
    monkeypatch.delitem(tpu.REQUIRED, "libtpu")
    with pytest.raises(
        UserError, match=r"requires no-such-package 1\.0 .*, but it is not installed"
    ):
        compile_report(tmp_path)


def test_required_versions_are_equal_everywhere():
    pins = {f"{package}=={version}" for package, version in tpu.REQUIRED.items()}
    extra = re.search(r"^compile = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    lines = (ROOT / "requirements-compile.txt").read_text().splitlines()
    for found in (lines, re.findall(r'"([^"]+)"', extra[1])):
        named = [each.partition(";")[0] for each in found if not each.startswith("#")]
        assert set(named) == pins


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("linux", "aarch64"), ("darwin", "x86_64")]
)
def test_machines_for_which_no_libtpu_exists_are_named(monkeypatch, system, machine):
    """Installing it would not help there."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(UserError, match=f"only for Linux on x86_64, not for {system} on {machine}"):
        tpu.check_installed()


@pytest.mark.slow
def test_a_lazy_penalty_has_a_lower_estimate(tmp_path):
    every, fourth = (
        compile_report(
            tmp_path,
            "v5e-1",
            # Large enough that the penalty costs more than the conditional.
            image_size=16,
            model_width=16,
            model_depth=1,
            batch_size=256,
            generator_batch_size=8,
            penalty="r1",
            penalty_interval=interval,
        )
        for interval in (1, 4)
    )
    cycles = [report["programs"]["critic_step"]["estimated_cycles"] for report in (every, fourth)]
    assert cycles[1] < cycles[0]


class SubclassedCritic(tf.keras.Model):
    """A critic whose layers have no symbolic inputs."""

    def __init__(self):
        super().__init__(name="critic")
        self.inner = [tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)]
        self.build([None, 2])

    def build(self, shape):
        self.inner[0].build(shape)
        self.inner[1].build([None, 8])
        self.built = True

    def call(self, x):
        return self.inner[1](tf.tanh(self.inner[0](x)))


@pytest.mark.slow
def test_the_report_supports_subclassed_models(tmp_path):
    def build(*arguments, **options):
        generator, _ = models.build(*arguments, **options)
        return generator, SubclassedCritic()

    report = compile_report(tmp_path, "v5e:2x2", library_with(build), **TOY)
    assert (report["topology"], report["replicas"]) == ("v5e:2x2", 4)
    assert report["programs"]["critic_step"]["gradient_bytes"] == 4 * (2 * 8 + 8 + 8 + 1)


def test_an_error_removes_the_files_of_an_earlier_compilation(tmp_path):
    (tmp_path / "compile").mkdir()
    for name in ("v5e-1.json", "v5e-1.hlo.txt"):
        (tmp_path / "compile" / name).touch()
    with pytest.raises(UserError):
        compile_report(tmp_path, "v5e-1", library_with(models_with(Strings)), **TOY)
    files = [path.name for path in (tmp_path / "compile").iterdir()]
    assert files == ["v5e-1.error.txt"]


def test_the_error_for_an_unwritable_directory_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"--model_dir=\S+/file/run cannot be written"):
        compile_report(tmp_path / "file" / "run", "v5e-1", **TOY)


@pytest.mark.slow
def test_errors_distinguish_layers_of_one_class(tmp_path):
    """Keras names the layers probe and probe_1; one of the two is at fault."""

    class Probe(tf.keras.layers.Layer):
        def __init__(self, *, bad):
            super().__init__()
            self.bad = bad

        def call(self, x):
            return Strings.call(self, x) if self.bad else 2 * x

    for bad, name in ((0, "critic/probe "), (1, "critic/probe_1 ")):

        def build(*arguments, bad=bad, **options):
            generator, _ = models.build(*arguments, **options)
            probes = [Probe(bad=place == bad) for place in range(2)]
            head = tf.keras.layers.Dense(1)
            critic = tf.keras.Sequential([tf.keras.Input([2]), *probes, head], name="critic")
            return generator, critic

        with pytest.raises(UserError, match=f"layer {name}"):
            compile_report(tmp_path, "v5e-1", library_with(build), **TOY, penalty="none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compile_topology=v5e-7"], "--compile_topology=v5e-7 is unknown — use one of v2-8, "),
        (["--compile_topology=v9:2x2"], "--compile_topology=v9:2x2 is unknown"),
        (["--compile_topology=v5e:0x4"], "--compile_topology=v5e:0x4 is unknown"),
        (["--tpu=local"], "--tpu chooses devices to train on, but --mode=compile does not train"),
        (["--cpu_replicas=2"], "--cpu_replicas chooses devices to train on"),
        (["--compile_topology=v5e-256"], "--batch_size=64 does not divide over 256 replicas"),
    ],
)
def test_an_invalid_topology_is_an_error_before_tensorflow_is_imported(arguments, message):
    values = flags.flags.FlagValues()
    flags.define(values)
    config = flags.parse(["train.py", "--mode=compile", *arguments], values)
    with pytest.raises(UserError) as caught:
        resolved(config)
    assert message in str(caught.value)


def test_an_unsupported_layout_is_an_error(tmp_path):
    with pytest.raises(UserError, match="libtpu does not support --compile_topology=v5e:3x3"):
        compile_report(tmp_path, "v5e:3x3", batch_size=72)


def test_a_program_with_an_all_reduce_compiles_for_a_tpu7x():
    """The compiler's default form of this all-reduce cannot be read by jaxlib."""

    def summed(x):
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, x)

    topology = topologies.find("tpu7x-8")
    assert (topology.libtpu_name, topology.chips, topology.replicas) == ("tpu7x:2x2x1", 4, 8)
    program = lowering.make_program(summed, SliceStrategy(topology.replicas))
    hlo = lowering.lower_to_hlo(program, tf.TensorSpec([512, 512]))
    executable = compiler.compile_hlo(hlo, compiler.slice_devices(topology))
    assert "all-reduce" in executable.hlo


@pytest.mark.parametrize("name", topologies.KNOWN)
def test_the_number_of_devices_matches_the_topology(name):
    topology = topologies.find(name)
    assert len(compiler.slice_devices(topology)) == topology.replicas
    generation, _, size = name.partition("-")
    counted = topology.chips * (1 if generation in ("v5e", "v6e") else 2)
    assert counted == int(size)


def test_layer_names_are_distinguished_from_repeated_scopes():
    """Keras names layers "relu" and "relu_1"; TensorFlow names the second scope "relu" likewise."""
    network = tf.keras.Sequential(
        [
            tf.keras.Input([2]),
            *(tf.keras.layers.ReLU(name=name) for name in ("relu", "relu_1", "relu_2")),
        ],
        name="critic",
    )
    used = [f"critic_3/{scope}/Mul" for scope in ("relu_1", "relu_1_2", "relu_2_1")]
    names = layers.LayerNames([network], used)
    found = [names.find_layer(name) for name in used]
    assert found == ["critic/relu", "critic/relu_1", "critic/relu_2"]
    assert names.find_layer("gradient_tape/gradient_tape/critic_3/relu_1/Mul/Mul") == "critic/relu"
    assert names.find_layer("PartitionedCall_1/adam/Assign") == "adam"
    assert names.find_layer("critic_3/concat") == "critic"
    assert names.find_layer("mul_5") == names.find_layer("") == ""


def test_find_pass():
    assert layers.find_pass("critic/conv2d/Conv2D") == "forward"
    assert layers.find_pass("gradient_tape/critic/conv2d/Conv2D") == "gradient"
    assert layers.find_pass("gradient_tape/gradient_tape/c/d/E") == "second-order gradient"


FUSION = (
    "  %fusion = (f32[2,3]{1,0:T(8,128)S(1)}, bf16[7]{0}) fusion(%a), calls=%fused, "
    'metadata={op_name="critic/conv/Conv2D" source_line=1}, '
    'backend_config={"estimated_cycles":"70"}'
)
ALL_REDUCE = (
    "  %all-reduce.1 = (f32[2,3]{1,0:T(8,128)S(1)}, f32[]{:T(128)}) all-reduce(%b, %c), "
    'channel_id=1, metadata={op_name="adam/CollectiveReduceV2"}'
)
PROGRAM = f"""HloModule step, is_scheduled=true, replica_count=8, num_partitions=1
%fused (p: f32[8]) -> f32[8] {{
  %slow = f32[8]{{0}} multiply(%p, %p), metadata={{op_name="critic/inner/Mul"}}
}}
%yes (p: f32[]) -> f32[] {{
  %a = f32[] copy(%p), backend_config={{"estimated_cycles":"400"}}
}}
%no (p: f32[]) -> f32[] {{
  %b = f32[] copy(%p), backend_config={{"estimated_cycles":"40"}}
}}
%inner (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %e = f32[] copy(%p), backend_config={{"estimated_cycles":"2"}}
  %all-reduce.2 = f32[4]{{0}} all-reduce(%e), channel_id=3
}}
%round (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %c = f32[] copy(%p), backend_config={{"estimated_cycles":"3"}}
  %nest = f32[] while(%c), condition=%test, body=%inner, metadata={{op_name="rounds/turns"}}
}}
%test (p: (s32[], f32[8])) -> pred[] {{
  %f = pred[] compare(%p)
}}
%unused (p: f32[]) -> f32[] {{
  %d = f32[] copy(%p), backend_config={{"estimated_cycles":"1000"}}
}}
ENTRY %main (a: f32[8]) -> f32[] {{
  %copy.1 = f32[8]{{0:T(128)}} copy(%a), backend_config={{"estimated_cycles":"5"}}
{FUSION}
{ALL_REDUCE}
  %if = (f32[2]{{0:T(128)}}, f32[8]) conditional(%p), true_computation=%yes, false_computation=%no
  %loop = (s32[], f32[8]) while(%t), condition=%test, body=%round, metadata={{op_name="x/rounds"}}
  %all-reduce-start = f32[10]{{0}} all-reduce-start(%d), channel_id=2
  %all-reduce-done = f32[10]{{0}} all-reduce-done(%all-reduce-start)
  ROOT %x = f32[] add(%y, %z)
}}
"""


def test_hlo_is_parsed():
    program = hlo.Program(PROGRAM)
    assert program.replica_count == 8
    whole = program.part(hlo.ENTRY)
    always = [hlo.Operation("critic/conv/Conv2D", "fusion", 70)]
    copies = [hlo.Operation("", "copy", cycles) for cycles in (400, 5, 3, 2, 0)]
    assert whole.operations() == [copies[0], *always, *copies[1:]]
    # The more expensive branch has a weight of 1/4, the other branch 3/4.
    costs = [each.cycles for each in whole.operations(costlier_share=0.25)]
    assert costs == [100, 70, 30, 5, 3, 2]
    # Loops of 10 iterations, each with a loop of 2 iterations.
    costs = [each.cycles for each in whole.operations(lengths={"rounds": 10, "turns": 2})]
    assert costs == [400, 70, 40, 30, 5, 0]
    assert len(whole.loop_bodies()) == 2
    assert sorted(each.bytes for each in whole.all_reduces()) == [16, 4 * 6 + 4, 40]
    assert hlo.AllReduce("adam/CollectiveReduceV2", 4 * 6 + 4) in whole.all_reduces()
    assert {"critic/inner/Mul", "rounds/turns"} < whole.op_names()


def test_hlo_is_split_into_the_bodies_of_its_loops():
    program = hlo.Program(PROGRAM)
    rounds, turns = program.loop_body("rounds"), program.loop_body("turns")
    assert (rounds, turns) == ("round", "inner")
    for name in ("round", "fusion", ""):
        with pytest.raises(ValueError, match=f"0 loops have the name {name}"):
            program.loop_body(name)
    inner, outer = program.part(turns), program.part(rounds, without=turns)
    assert [each.cycles for each in inner.operations()] == [2]
    assert [each.cycles for each in outer.operations()] == [3]
    assert [each.bytes for each in inner.all_reduces()] == [16] and outer.all_reduces() == []
    assert (inner.loop_bodies(), outer.loop_bodies()) == ([], [])
    assert [name for name, _ in program.part(rounds).loop_bodies()] == ["turns"]
    once = program.part(hlo.ENTRY, without=rounds)
    assert [each.cycles for each in once.operations()] == [400, 70, 5, 0]
    assert once.op_names() >= {"critic/inner/Mul", "x/rounds"} and "unused" not in once.computations


def test_costs_of_a_part_are_those_of_its_body():
    """A loop of 7 products of matrices, in a loop of 3 larger products."""

    @tf.function(jit_compile=True, autograph=False)
    def program(x, y, count):
        def outer(index, x, y):
            def inner(index, y):
                return index + 1, tf.tanh(y @ y)

            _, y = tf.while_loop(lambda index, _: index < count, inner, (0, y), name="inner")
            return index + 1, tf.tanh(x @ x), y

        return tf.while_loop(lambda index, *_: index < count, outer, (0, x, y), name="outer")

    specs = tf.TensorSpec([256, 256]), tf.TensorSpec([128, 128]), tf.TensorSpec([], tf.int32)
    devices = compiler.slice_devices(topologies.find("v5e-1"))
    compiled = compiler.compile_hlo(lowering.lower_to_hlo(program, *specs), devices)
    parts = hlo.Program(compiled.hlo)
    inner, outer = (
        compiler.count_costs(parts.part(parts.loop_body(name)).text).flops
        for name in ("inner", "outer")
    )
    assert inner == pytest.approx(2 * 128**3, rel=0.01)
    assert outer - inner == pytest.approx(2 * 256**3, rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "count"), [([8, 100, 8], 1), ([60, 8, 40], 2), ([], 0), ([30, 30], 2)]
)
def test_count_gradient_all_reduces(sizes, count):
    assert count_gradient_all_reduces(100, sizes) == count


def test_memory_errors_are_parsed():
    text = (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
        "required for HLO temporaries (2.50T) exceeds available HBM (15.75G). HLO module: a_step."
    )
    assert compile_errors.parse_memory_error(text) == (2.5 * 2**40, 15.75 * 2**30)
    used = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.5G of 15.75G hbm."
    assert compile_errors.parse_memory_error(used) == (20.5 * 2**30, 15.75 * 2**30)
    for other in (
        "INVALID_ARGUMENT: 3.0G and 4.0G",
        "RESOURCE_EXHAUSTED: Scoped allocation with size 20.00M and limit 16.00M exceeded vmem",
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem",
    ):
        assert compile_errors.parse_memory_error(other) is None


def program_figures(**changes):
    figures = {
        "gradient_all_reduce_count": 1,
        "estimated_cycles": 1000,
        "estimated_seconds": 1.0,
        "cycles_by_layer": {"critic/first": 250},
        "loops": 0,
        "matrix_unit_utilisation": 0.02,
    }
    return {**figures, **changes}


def advise(network=(), per_replica=8, memory_share=0.1, iterations=50, **changes):
    report = {
        "replicas": 8,
        "per_replica_batch": per_replica,
        "per_replica_generator_batch": 8,
        "loop": {"memory_share": memory_share},
        "iteration": {"iterations_per_launch": iterations, "estimated_seconds": 1e-4},
        "programs": {"critic_step": program_figures(**changes)},
    }
    critic = tf.keras.Sequential([tf.keras.Input([8, 8, 128]), *network], name="critic")
    return advice.advise(report, [critic], topologies.CORES["v5e"])


@pytest.mark.parametrize(
    ("layers", "utilization", "named"),
    [
        ([256, 128, 1], 0.02, 256),
        ([256, 1], 0.5, None),  # busy enough
        ([512, 512, 1], 0.02, None),  # wide enough; the batch is small
        ([1], 0.02, None),
    ],
)
def test_small_dense_layers_that_leave_the_matrix_unit_idle_are_named(layers, utilization, named):

    def network():
        return [tf.keras.layers.Flatten(), *map(tf.keras.layers.Dense, layers)]

    given = advise(network(), matrix_unit_utilisation=utilization)
    found = [line for line in given if "critic: dense layers of" in line]
    assert len(found) == (named is not None)
    if named:
        assert f"layers of {named} use 2% of the matrix units: layers of 512" in found[0]
    assert not any("dense" in line for line in advise([tf.keras.layers.Conv2D(128, 3), *network()]))


def test_a_suitable_network_gets_no_advice():
    assert advise([tf.keras.layers.Conv2D(256, 3)]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_share": 0.95}, ["the loop uses 95% of a core's memory"]),
        (
            {"per_replica": 5},
            ["--batch_size", "5 examples", "padded to 8", "--batch_size=64 would cost"],
        ),
        (
            {"gradient_all_reduce_count": 2},
            ["critic_step sums its gradients in 2 all-reduces"],
        ),
        ({"loops": 2}, ["critic_step has 2 loops, whose bodies are counted once"]),
        ({"iterations": 2}, ["time of a launch is 200 us", "a larger --steps_per_loop"]),
        (
            {"network": [tf.keras.layers.Conv2D(100, 3, name="odd")]},
            ["multiples of 8", "odd (100)"],
        ),
        (
            {"network": [tf.keras.layers.Conv2D(192, 3, name="wide")]},
            ["multiples of 128", "wide (192)"],
        ),
        (
            {
                "network": [
                    tf.keras.layers.Conv2D(3, 3, name="image"),
                    tf.keras.layers.Conv2D(128, 3, name="first"),
                ]
            },
            [
                "critic/image has 128 input and 3 output channels",
                "critic/first has 3 input and 128 output channels",
            ],
        ),
    ],
)
def test_advice_names_the_cause(changes, words):
    given = " ".join(advise(**changes))
    for word in words:
        assert word in given


@pytest.mark.parametrize(
    ("batches", "padded"), [((8, 8), True), ((128, 8), True), ((256, 128), False)]
)
def test_narrow_layers_are_padded_unless_batches_are_multiples_of_128(batches, padded):
    narrow = tf.keras.Sequential([tf.keras.Input([8, 8, 128]), tf.keras.layers.Conv2D(192, 3)])
    (line,) = advice.advise_on_padding(*batches, 8, [narrow], 128)
    assert "matrix units idle" in line and ("in memory they are padded" in line) == padded


def test_advice_contains_the_cost_of_a_layer_with_few_channels():
    thin = [tf.keras.layers.Conv2D(3, 3), tf.keras.layers.Conv2D(128, 3, name="first")]
    assert "up to 25% of a program's cycles" in " ".join(advise(thin))
