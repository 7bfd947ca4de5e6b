"""Tests of --mode=compile: compilation for TPU slices, its report and its error messages."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from conftest import DCGAN, LIBRARY, TINY, library_with, resolved

import flags
import models.registry
from wgan_gp import tpu
from wgan_gp.app.compiling import compile_for_slice
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config
from wgan_gp.errors import UserError
from wgan_gp.tpu import advice, aot, compiler, error_messages, hlo, layers, lowering, topologies
from wgan_gp.tpu.compile_report import count_gradient_all_reduces
from wgan_gp.tpu.slice_strategy import SliceStrategy

ROOT = pathlib.Path(__file__).parent.parent
TOY = {"dataset": "swiss_roll", "model": "mlp", "model_width": 16}


def compile_report(directory, topology="v5e-8", library=LIBRARY, **settings):
    """Runs the mode and returns the report that it wrote."""
    tf.keras.backend.clear_session()  # Keras numbers layers by process, and the mode has its own
    config = Config(model_dir=str(directory), compile_topology=topology, mode="compile", **settings)
    config, dataset = resolve(config, library.models)
    compile_for_slice(config, dataset.spec, library)
    name = topology.replace(":", "_")
    return json.loads((directory / "compile" / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("topology", "replicas"),
    [
        ("v5e-8", 8),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("v3-8", 8), ("v5e-256", 256), ("v5e:2x2", 4))
        ),
    ],
)
def test_gradients_are_summed_in_one_all_reduce(tmp_path, topology, replicas):
    settings = {**TINY, **DCGAN, "batch_size": 2 * replicas}
    report = compile_report(tmp_path, topology, **settings)
    assert (report["topology"], report["replicas"]) == (topology, replicas)
    assert report["per_replica_batch"] == 2
    for program in report["programs"].values():
        assert program["replica_count"] == replicas
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
def test_cycles_of_the_cifar10_resnet_are_as_documented(tmp_path):
    """Compares with the 103,576 and 91,631 cycles of a common implementation (performance.md)."""
    report = compile_report(
        tmp_path,
        "v5e-8",
        dataset="cifar10",
        model="resnet",
        model_width=128,
        latent_size=128,
        batch_size=8 * 64,
        generator_batch_size=8 * 128,
    )
    critic, generator = (report["programs"][name] for name in ("critic_step", "generator_step"))
    assert critic["estimated_cycles"] / 64 < 44_000
    assert critic["temp_bytes"] < 20e6
    assert generator["estimated_cycles"] / 128 < 40_000
    iteration = 5 * critic["estimated_cycles"] + generator["estimated_cycles"]
    assert iteration < 0.43 * (5 * 64 * 103_576 + 128 * 91_631)
    assert critic["gradient_all_reduce_count"] == generator["gradient_all_reduce_count"] == 1


def test_one_core_needs_no_all_reduces(tmp_path):
    report = compile_report(tmp_path, "v5e-1", **TINY)
    for program in report["programs"].values():
        assert (program["replica_count"], program["all_reduce_count"]) == (1, 0)


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
        assert program["memory_bytes"] >= program["argument_bytes"] + program["temp_bytes"]
        assert {"bytes_accessed", "code_bytes"} < set(program)
    iteration = sum(
        count * first["programs"][name]["estimated_seconds"]
        for name, count in (("critic_step", 5), ("generator_step", 1))
    )
    assert first["estimated_images_per_second"] == pytest.approx(5 * 256 / iteration)
    per_chip = first["estimated_images_per_second_per_chip"]
    assert per_chip == pytest.approx(first["estimated_images_per_second"] / 8)
    assert first["estimated_hours"] == pytest.approx(1000 * iteration / 3600)
    assert {"tensorflow", "keras", "jax", "jaxlib", "libtpu"} == set(first["versions"])


@pytest.mark.slow
def test_a_wider_network_has_higher_estimates(tmp_path):
    settings = {**TOY, "batch_size": 4096}
    narrow = compile_report(tmp_path, **settings)
    wide = compile_report(tmp_path, **{**settings, "model_width": 512})
    for name, program in narrow["programs"].items():
        for figure in ("flops", "estimated_cycles", "argument_bytes", "gradient_bytes"):
            assert wide["programs"][name][figure] > 2 * program[figure], (name, figure)


def test_the_program_of_a_slice_computes_the_updates_of_one_replica():
    """Runs on 8 virtual CPU devices, with gradient descent and the same global batch."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "replicated_program.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["network"] for result in results] == ["critic", "generator"]
    for result in results:
        assert result["update"] > 0.01
        assert result["apart"] < 1e-5 * result["update"]


def test_the_command_line(tmp_path):
    """Writes only the report, so that the directory can be used for a run with other settings."""
    done = subprocess.run(
        [
            sys.executable,
            "train.py",
            "--mode=compile",
            "--compile_topology=v5e-1",
            "--dataset=swiss_roll",
            "--model=mlp",
            f"--model_dir={tmp_path}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "v5e-1: 1 replicas with 64 real examples each" in done.stdout
    for text in ("estimated cycles", "matrix unit utilization", "most expensive", "advice:"):
        assert text in done.stdout
    assert "critic_step: compiled in" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["compile"]
    files = {path.name for path in (tmp_path / "compile").iterdir()}
    assert files == {
        "v5e-1.json",
        "v5e-1.critic_step.hlo.txt",
        "v5e-1.generator_step.hlo.txt",
    }


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
        generator, _ = models.registry.build(*arguments, **options)
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
        assert "tests/test_compile.py:" in str(caught.value)
        (text,) = (tmp_path / "compile").glob("v5e-8.critic_step.error.txt")
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

    def trace(batch):
        width = 2**20 if kind == "arguments" else 1
        spec = tf.TensorSpec([batch // 2, width])
        return lowering.lower_to_hlo(lowering.make_program(step, strategy), spec)

    def compile_batch(batch):
        program = aot.Program("critic_step", "batch_size", batch, trace)
        return aot.compile_program(program, [], devices, topology.core, str(tmp_path / "v2-8"))

    with pytest.raises(UserError) as caught:
        compile_batch(8192)
    message = str(caught.value)
    assert message.startswith("--batch_size=8192 is too large: critic_step requires ")
    assert "GiB per core, but a core has " in message and "\n" not in message
    assert (tmp_path / "v2-8.critic_step.error.txt").read_text()
    fits = int(message.rpartition("--batch_size=")[2])
    assert 256 <= fits <= 2048
    compile_batch(fits)
    with pytest.raises(UserError, match="is too large"):
        compile_batch(8 * fits)


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
    lines = (ROOT / "requirements-compile.txt").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == pins
    extra = re.search(r"^compile = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(re.findall(r'"([^"]+)"', extra[1])) == pins


@pytest.mark.slow
def test_a_lazy_penalty_has_a_lower_estimate(tmp_path):
    every, fourth = (
        compile_report(
            tmp_path,
            "v5e-1",
            # Large enough that the penalty costs more than the conditional.
            image_size=16,
            model_width=16,
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
        generator, _ = models.registry.build(*arguments, **options)
        return generator, SubclassedCritic()

    report = compile_report(tmp_path, "v5e-1", library_with(build), **TOY)
    assert report["programs"]["critic_step"]["gradient_bytes"] == 4 * (2 * 8 + 8 + 8 + 1)


def test_an_error_removes_the_files_of_an_earlier_compilation(tmp_path):
    compile_report(tmp_path, "v5e-1", **TOY)
    with pytest.raises(UserError):
        compile_report(tmp_path, "v5e-1", library_with(models_with(Strings)), **TOY)
    files = [path.name for path in (tmp_path / "compile").iterdir()]
    assert files == ["v5e-1.critic_step.error.txt"]


def test_the_error_for_an_unwritable_directory_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"--model_dir=\S+/file/run cannot be written"):
        compile_report(tmp_path / "file" / "run", "v5e-1", **TOY)


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
            generator, _ = models.registry.build(*arguments, **options)
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
%round (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %c = f32[] copy(%p), backend_config={{"estimated_cycles":"3"}}
}}
%unused (p: f32[]) -> f32[] {{
  %d = f32[] copy(%p), backend_config={{"estimated_cycles":"1000"}}
}}
ENTRY %main (a: f32[8]) -> f32[] {{
  %copy.1 = f32[8]{{0:T(128)}} copy(%a), backend_config={{"estimated_cycles":"5"}}
{FUSION}
{ALL_REDUCE}
  %if = (f32[2]{{0:T(128)}}, f32[8]) conditional(%p), true_computation=%yes, false_computation=%no
  %loop = (s32[], f32[8]) while(%t), condition=%test, body=%round
  %all-reduce-start = f32[10]{{0}} all-reduce-start(%d), channel_id=2
  %all-reduce-done = f32[10]{{0}} all-reduce-done(%all-reduce-start)
  ROOT %x = f32[] add(%y, %z)
}}
"""


def test_hlo_is_parsed():
    assert hlo.parse_replica_count(PROGRAM) == 8
    always = [hlo.Operation("critic/conv/Conv2D", "fusion", 70)]
    copies = [hlo.Operation("", "copy", cycles) for cycles in (400, 5, 3, 0)]
    assert hlo.parse_operations(PROGRAM) == [copies[0], *always, *copies[1:]]
    # The more expensive branch has a weight of 1/4, the other branch 3/4.
    assert [each.cycles for each in hlo.parse_operations(PROGRAM, costlier_share=0.25)] == [
        100,
        70,
        30,
        5,
        3,
    ]
    assert hlo.count_loops(PROGRAM) == 1
    assert hlo.parse_all_reduces(PROGRAM) == [
        hlo.AllReduce("adam/CollectiveReduceV2", 4 * 6 + 4),
        hlo.AllReduce("", 40),
    ]
    assert "critic/inner/Mul" in hlo.parse_op_names(PROGRAM)


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
    assert error_messages.parse_memory_error(text) == (2.5 * 2**40, 15.75 * 2**30)
    used = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.5G of 15.75G hbm."
    assert error_messages.parse_memory_error(used) == (20.5 * 2**30, 15.75 * 2**30)
    for other in (
        "INVALID_ARGUMENT: 3.0G and 4.0G",
        "RESOURCE_EXHAUSTED: Scoped allocation with size 20.00M and limit 16.00M exceeded vmem",
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem",
    ):
        assert error_messages.parse_memory_error(other) is None
    none = error_messages.out_of_memory_error(
        "critic_step", "batch_size", 8, error_messages.Memory(2**40, 2**30), None
    )
    assert "use a smaller network, because no batch size fits" in str(none)


def program_figures(**changes):
    figures = {
        "memory_share": 0.1,
        "gradient_all_reduce_count": 1,
        "estimated_cycles": 1000,
        "estimated_seconds": 1.0,
        "cycles_by_layer": {"critic/first": 250},
        "loops": 0,
    }
    return {**figures, **changes}


def advise(network=(), per_replica=8, **changes):
    report = {
        "replicas": 8,
        "per_replica_batch": per_replica,
        "per_replica_generator_batch": 8,
        "programs": {"critic_step": program_figures(**changes)},
    }
    critic = tf.keras.Sequential([tf.keras.Input([8, 8, 128]), *network], name="critic")
    return advice.advise(report, [critic], topologies.CORES["v5e"])


def test_a_suitable_network_gets_no_advice():
    assert advise([tf.keras.layers.Conv2D(256, 3)]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_share": 0.95}, ["critic_step uses 95% of a core's memory"]),
        (
            {"per_replica": 5},
            ["--batch_size", "5 examples", "padded to 8", "--batch_size=64 would cost"],
        ),
        (
            {"gradient_all_reduce_count": 2},
            ["critic_step sums its gradients in 2 all-reduces"],
        ),
        ({"loops": 2}, ["critic_step has 2 loops, whose bodies are counted once"]),
        ({"estimated_seconds": 1e-5}, ["less than a launch takes"]),
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
