"""Tests of training under the real TPUStrategy, without a TPU; see tpu_strategy.py.

docs/tpu_tensorflow.md says what they prove. They are about the function that the host executes and
the programs that `strategy.run` traces, whatever the form of the device loop.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.runs import (
    DCGAN,
    LIBRARY,
    TINY,
    held_in,
    lean_path,
    make_default_loop,
    make_replica_step,
    make_state,
    open_loop,
    open_run,
    resolved,
    strategy_over,
)
from tests.helpers.tpu_strategy import executing, make_tpu_strategy, operations, pass_bridge, trace
from tests.tpu import pod
from tests.training.test_training import StopAt, snapshot
from tests.training.test_workers import free_addresses
from wgan_gp.app import compiling, training
from wgan_gp.app.resolve import resolve
from wgan_gp.app.run import Run
from wgan_gp.config import Config
from wgan_gp.evaluation.extractors import Extractor, run_on_replicas
from wgan_gp.pjrt.lowering import make_replica_program
from wgan_gp.tpu import topologies
from wgan_gp.training.checkpointing import Checkpoints
from wgan_gp.training.optimizer import GuardedAdam

CORES = 8  # the number of cores of v5e-8
SHORT = {
    "batch_size": 16,
    "n_critic": 2,
    "train_steps": 10,
    "steps_per_loop": 5,
    "learning_rate_schedule": "constant",
}
RUNS = {
    "conditional": {
        "model": "dcgan",
        "model_width": 4,
        "conditioning": "acgan",
        "generator_ema_decay": 0.99,
        "precision": "mixed_bfloat16",
    },
    "resnet": {
        "model": "resnet",
        "model_width": 4,
        "image_size": 32,
        "conditioning": "projection",
    },
    "accumulate": {"accumulate": 2, "minibatch_stddev": 2, "batch_size": 32, "model_width": 4},
    "r3gan": {
        "model": "r3gan",
        "model_width": 4,
        "model_depth": 1,
        "image_size": 32,
        "adversarial_loss": "relativistic",
        "penalty": "r1,r2",
        "augment": "diffaugment",
    },
}
# The programs of a run with the default settings are a part of these.
FAST = ("conditional", "accumulate")
ALL_RUNS = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in RUNS]
KERNELS = frozenset(
    line
    for line in (pathlib.Path(__file__).parent / "tpu_kernels.txt").read_text().splitlines()
    if not line.startswith("#")
)
# The operations whose numbers may differ between the program of a TPU and the one that
# --mode=compile compiles: constants and arguments, reads of variables, and names of tensors. None
# of them computes.
PLUMBING = {
    "Const",
    "Identity",
    "Placeholder",
    "ReadVariableOp",
    "TPUReplicateMetadata",  # marks a program for TPUs
    "XlaReplicaId",  # an argument of the program on a TPU
}


def open_tpu_run(name, model_dir, cores=CORES, **settings) -> Run:
    """Opens a run with --tpu, whose TPU has logical CPU devices as its cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "wgan_gp.runtime.devices.connect_tpu", lambda *_, **__: make_tpu_strategy(cores)
        )
        config = {**SHORT, **RUNS[name], **settings}
        return open_run(Config(tpu="local", model_dir=str(model_dir), **config))


def train_loop_call(run):
    """Returns the call of the device loop that trains a run, without arguments."""
    step = make_replica_step(run.config, run.state)
    loop, elements = open_loop(run.config, run.devices.strategy, step)
    return functools.partial(loop, elements, tf.constant(run.config.steps_per_loop, tf.int64))


@functools.cache
def traced_loop(name):
    """Returns a run for a TPU and the function that trains it, traced once for all tests."""
    run = open_tpu_run(name, f"ram://traced/{name}")
    return run, trace(train_loop_call(run))


def check_programs(function) -> collections.Counter[str]:
    """Fails unless the replica programs of a function can run on a TPU.

    Returns:
      The number of operations of the programs, by type.
    """
    counts = operations(function.graph, only_replicated=True)
    assert counts.keys() - KERNELS == {"TPUReplicateMetadata"}  # it marks a program
    assert counts["XlaSetDynamicDimensionSize"] == 0  # it marks an argument of a dynamic shape
    assert counts["AllToAll"] == 0
    assert pass_bridge(function) == counts["TPUReplicateMetadata"]
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_RUNS)
def test_the_training_loop_passes_the_bridge(name):
    run, function = traced_loop(name)
    counts = check_programs(function)
    assert counts["TPUReplicateMetadata"] == 1  # a launch for all iterations
    # One all-reduce for each gradient. Batch normalization has one for each of its two sums in each
    # step, and one for the gradient of each in the generator step.
    trained = [run.state.critic, run.state.generator]
    gradients = sum(len(network.trainable_variables) for network in trained)
    norms = [
        layer
        for layer in run.state.generator.layers
        if type(layer).__name__ == "BatchNormalization"
    ]
    assert bool(norms) == (name in ("conditional", "resnet"))
    assert counts["CrossReplicaSum"] == gradients + 6 * len(norms)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_probe_sampler_and_evaluator_pass_the_bridge(name):
    """Their programs of the other networks are a part of the training loop."""
    run, _ = traced_loop(name)
    strategy, batch_size = run.devices.strategy, run.config.batch_size
    images = np.zeros([batch_size, *run.dataset.spec.example_shape], np.float32)
    extractor = Extractor("means", "means", lambda images: (tf.reduce_mean(images, [1, 2]), None))
    calls = [
        training.make_probe(run, make_replica_step(run.config, run.state)),
        functools.partial(run.sampler.sample, 8),
        functools.partial(run.sampler.generate, *run.sampler.noise(8)),
        functools.partial(run_on_replicas(extractor, strategy, batch_size), images),
    ]
    for call in calls:
        check_programs(trace(call))


def compiled_operations(directory, **settings) -> collections.Counter[str]:
    """Counts the operations of the program that --mode=compile compiles for v5e-8."""
    config = Config(mode="compile", compile_topology="v5e-8", model_dir=str(directory), **settings)
    config, dataset = resolve(config, LIBRARY.models)
    topology = topologies.find(config.compile_topology)
    loop = compiling.make_program(config, dataset, LIBRARY, topology)
    program, specs = make_replica_program(loop.step, loop.strategy, loop.open_input())
    return operations(program.get_concrete_function(*specs).graph)


def differences(on_tpu, compiled) -> dict[str, tuple[int, int]]:
    """Returns the numbers of operations that differ, other than plumbing, by type."""
    compiled = collections.Counter(compiled)
    compiled["CrossReplicaSum"] += compiled.pop("CollectiveReduceV2", 0)
    return {
        kind: (on_tpu[kind], compiled[kind])
        for kind in {*on_tpu, *compiled} - PLUMBING
        if on_tpu[kind] != compiled[kind]
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name != "r3gan"])
def test_the_compiled_programs_are_those_of_a_tpu(name, tmp_path):
    """Omits the R3GAN, which has no operations between replicas that the others lack."""
    _, function = traced_loop(name)
    on_tpu = operations(function.graph, only_replicated=True)
    compiled = compiled_operations(tmp_path, **{**SHORT, **RUNS[name]})
    assert differences(on_tpu, compiled) == {}
    assert sum(on_tpu[kind] for kind in on_tpu.keys() - PLUMBING) > 500


@pytest.mark.slow
def test_a_different_compiled_program_is_found(tmp_path):
    _, function = traced_loop("accumulate")
    on_tpu = operations(function.graph, only_replicated=True)
    settings = {**SHORT, **RUNS["accumulate"], "penalty": "one_sided"}
    compiled = compiled_operations(tmp_path, **settings)
    assert set(differences(on_tpu, compiled))


def trace_step(step, dataset=None, strategy=None):
    """Traces a function that runs a step on batches of vectors."""
    strategy = strategy or make_tpu_strategy(2)
    dataset = dataset or tf.data.Dataset.from_tensors(tf.ones([4])).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))

    @tf.function(autograph=False)
    def function():
        return strategy.run(step, args=(next(batches),))

    return trace(function)


def with_print(x):
    tf.print(x)
    return x


@pytest.mark.parametrize(
    ("step", "missing"),
    [
        (with_print, {"PrintV2", "StringFormat"}),
        (lambda x: x + tf.cast(tf.timestamp(), tf.float32), {"Timestamp"}),
        (lambda x: tf.numpy_function(np.square, [x], tf.float32), {"PyFunc"}),
    ],
    ids=["print", "timestamp", "numpy_function"],
)
def test_operations_without_a_kernel_are_found(step, missing):
    check_programs(trace_step(tf.square))
    function = trace_step(step)
    counts = operations(function.graph, only_replicated=True)
    assert missing <= counts.keys() - KERNELS
    with pytest.raises(AssertionError):
        check_programs(function)
    with pytest.raises(tf.errors.OpError):
        pass_bridge(function)


def test_an_argument_of_a_dynamic_shape_is_found():
    batches = tf.data.Dataset.from_tensor_slices(tf.ones([6])).batch(4)  # 4 examples, then 2
    with pytest.raises(AssertionError, match="assert 1 == 0"):
        check_programs(trace_step(tf.square, batches))


def test_a_python_number_for_a_summed_variable_is_refused():
    strategy = make_tpu_strategy(2)
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    def step(x):
        total.assign_add(1.0)
        return x

    with pytest.raises(ValueError, match="cannot be reduced"):
        trace_step(step, strategy=strategy)


@pytest.mark.parametrize("guarded", [False, True])
def test_the_counter_of_updates_needs_no_all_to_all(guarded):
    strategy = make_tpu_strategy(2)
    with strategy.scope():
        weight = tf.Variable([1.0, 2.0])
        optimizer = GuardedAdam() if guarded else tf.keras.optimizers.Adam()
        optimizer.build([weight])

    def step(x):
        optimizer.apply_gradients([(x, weight)])
        return x

    function = trace_step(step, strategy=strategy)
    counts = operations(function.graph, only_replicated=True)
    assert counts["CrossReplicaSum"] == 1
    assert counts["AllToAll"] == (0 if guarded else 1)
    if counts["AllToAll"]:
        with pytest.raises(AssertionError):
            check_programs(function)


class Training:
    """A tiny run, trained loop by loop. The loop is traced once.

    Args:
      strategy: Trains the run.
      directory: The directory of its checkpoints.
      settings: Settings of the run.
      **replaced: Replaced parts of the replica step.
    """

    def __init__(self, strategy, directory, settings, **replaced):
        self.config = resolved(Config(**{**TINY, **settings}, learning_rate_schedule="constant"))
        self.strategy = strategy
        self.state = make_state(self.config, strategy)
        self.checkpoints = Checkpoints(self.state, str(directory), keep=10)
        step = dataclasses.replace(make_replica_step(self.config, self.state), **replaced)
        self.loop, self.open_input = make_default_loop(self.config, strategy, step)

    def run(self) -> list[np.ndarray]:
        """Trains for five iterations, saves a checkpoint, and returns all variables."""
        elements = self.open_input(self.checkpoints.iteration * self.config.n_critic)
        on_cores = isinstance(self.strategy, tf.distribute.TPUStrategy)
        with executing(self.strategy) if on_cores else contextlib.nullcontext():
            self.loop(elements, tf.constant(5, tf.int64))
        self.checkpoints.save()
        parts = [getattr(self.state, field.name) for field in dataclasses.fields(self.state)]
        variables = [each for part in parts for each in getattr(part, "variables", ())]
        return [np.array(tf.convert_to_tensor(each)) for each in variables]

    def restore(self, directory, iteration) -> None:
        self.checkpoints.restore(f"{directory}/ckpt-{iteration}")


def largest_difference(ours, others) -> float:
    """Returns the largest difference of two values, relative to the largest value if above 1."""
    return max(
        float(np.abs(a - b).max()) / max(1.0, float(np.abs(b).max()))
        for a, b in zip(ours, others, strict=True)
    )


@pytest.mark.slow
@held_in("off")
def test_a_run_is_resumed_exactly_and_moved_between_strategies(tmp_path):
    """The moments of batch normalization are all-reduced; the host sends the examples.

    The whole run of another test has neither.
    """
    settings = DCGAN
    whole = Training(make_tpu_strategy(2), tmp_path / "whole", settings)
    after_5, after_10 = whole.run(), whole.run()
    assert largest_difference(after_5, after_10) > 1e-3

    resumed = Training(make_tpu_strategy(2), tmp_path / "resumed", settings)
    resumed.restore(tmp_path / "whole", 5)
    for ours, others in zip(after_10, resumed.run(), strict=True):
        np.testing.assert_array_equal(ours, others)

    mirrored = Training(strategy_over(2), tmp_path / "mirrored", settings)
    assert largest_difference(after_5, mirrored.run()) < 1e-6
    mirrored.restore(tmp_path / "whole", 5)
    assert largest_difference(after_10, mirrored.run()) < 1e-5
    resumed.restore(tmp_path / "mirrored", 5)
    assert largest_difference(after_10, resumed.run()) < 1e-5


@pytest.mark.slow
def test_the_loop_on_four_cores_equals_the_host_loop_on_one_device(tmp_path):
    """Ten iterations; the examples are held in the memory of each core."""
    # Adam amplifies the rounding errors of ReLU; see docs/numerics.md.
    settings = {"dataset": "digits", "random_flips": True, "activation": "tanh"}
    four, one = (
        Training(strategy, tmp_path / name, settings)
        for name, strategy in (("four", make_tpu_strategy(4)), ("one", strategy_over(1)))
    )
    four.run(), one.run()
    for ours, others in zip(four.run(), one.run(), strict=True):
        assert np.linalg.norm(ours - others) <= 1e-4 * np.linalg.norm(others) + 1e-6


@pytest.mark.slow
def test_a_loss_scaled_by_the_batch_of_a_replica_is_found(tmp_path):
    """The optimizer sums such gradients to twice the right value."""

    def local_mean(per_example, global_batch_size):
        return tf.reduce_mean(per_example)

    wrong = Training(make_tpu_strategy(2), tmp_path / "wrong", {}, global_mean=local_mean)
    right = Training(strategy_over(1), tmp_path / "right", {})
    assert largest_difference(wrong.run(), right.run()) > 1e-3


@pytest.mark.slow
def test_a_whole_run_stops_and_continues_exactly(tmp_path):
    """Tests that samples, probe, evaluation and checkpoints work between device loops."""
    every_5 = ["summary_interval", "sample_interval", "evaluate_interval", "checkpoint_interval"]
    # The other tests have the programs of convolutions.
    settings = {**dict.fromkeys(every_5, 5), "evaluate_samples": 16, "cores": 2, "model": "mlp"}

    def train(directory, *writers):
        run = open_tpu_run("conditional", directory, **settings)
        with executing(run.devices.strategy):
            stopped_by = training.make_trainer(run, writers=writers).run()
        return run, stopped_by

    whole, _ = train(tmp_path / "whole")
    assert train(tmp_path / "halves", StopAt(5))[1] == signal.SIGTERM
    halves, stopped_by = train(tmp_path / "halves")
    assert stopped_by is None
    expected, got = snapshot(whole), snapshot(halves)
    assert expected.keys() == got.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(got[key], value, err_msg=key)
    names = {"config.json", "metrics.jsonl", "evaluation.jsonl", "samples", "checkpoints"}
    assert names <= {path.name for path in (tmp_path / "halves").iterdir()}


MACHINES = """
import sys
import tensorflow as tf

cores, *addresses = sys.argv[1:]
servers = [
    tf.distribute.Server(
        tf.train.ClusterSpec({"worker": addresses}),
        job_name="worker",
        task_index=index,
        config=tf.compat.v1.ConfigProto(device_count={"CPU": int(cores)}),
    )
    for index in range(len(addresses))
]
servers[0].join()
"""


@pytest.mark.slow
def test_a_pod_computes_the_same_as_the_cores_of_one_machine():
    """Tests a controller and, in another process, two machines, all of them over gRPC."""
    addresses = free_addresses(2)
    folder = pathlib.Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder.parents[1]), lean_path()]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    machines = subprocess.Popen(
        [sys.executable, "-c", MACHINES, str(pod.CORES_PER_MACHINE), *addresses],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        controller = subprocess.run(
            [sys.executable, "-m", "tests.tpu.pod", *addresses],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        machines.kill()
        machines.wait()
    assert controller.returncode == 0, controller.stderr
    first, second = json.loads(controller.stdout)
    assert first != second
    cores = make_tpu_strategy(2 * pod.CORES_PER_MACHINE)
    assert [first, second] == pod.train(cores)
