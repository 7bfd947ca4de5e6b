"""The loop inside the program of a replica, and its input."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import losses
from tests.helpers.runs import (
    TINY,
    device_loops,
    examples_of,
    held_in,
    make_replica_step,
    make_state,
    open_data,
    resolved,
    strategy_over,
    train_tiny,
)
from wgan_gp.app import build
from wgan_gp.config import Config
from wgan_gp.data import loop_input
from wgan_gp.data.feed import replica_batches
from wgan_gp.runtime.cluster import SINGLE_PROCESS
from wgan_gp.runtime.devices import Devices

DIGITS = {"dataset": "digits", "random_flips": True, "sample_interval": 0}
SIDE = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder of 40 random images with two labels."""
    top = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(40):
        directory = top / "ab"[number % 2]
        directory.mkdir(exist_ok=True)
        pixels = random.integers(0, 256, [SIDE, SIDE, 3]).astype(np.uint8)
        Image.fromarray(pixels).save(directory / f"{number:02}.png")
    return str(top)


def weights_of(run):
    state = run.state
    return [
        np.array(tf.convert_to_tensor(variable))
        for part in (state.critic, state.generator, state.critic_optimizer)
        for variable in part.variables
    ]


def image_settings(folder, **settings):
    return {
        "dataset": "image_folder",
        "data_dir": folder,
        "random_flips": True,
        "conditioning": "projection",
        "sample_interval": 0,
        **settings,
    }


def settings_of(name, folder):
    return {
        "streamed": image_settings(folder),
        "generated": {},
        "relativistic": {
            **DIGITS,
            "adversarial_loss": "relativistic",
            "conditioning": "projection",
            "generator_ema_decay": 0.9,
        },
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streamed", "relativistic", "generated"])
def test_both_loops_give_identical_runs(name, folder, tmp_path):
    """12 iterations of loops of 8, of which the last is shorter."""
    settings = {**settings_of(name, folder), "train_steps": 12, "steps_per_loop": 8}
    runs = [train_tiny(tmp_path / "host", **settings)]
    with device_loops(), held_in("device" if name == "relativistic" else "off"):
        runs.append(train_tiny(tmp_path / "device", **settings))
    for host, device in zip(*(weights_of(run) for run, _ in runs), strict=True):
        np.testing.assert_array_equal(device, host)
    for (step, host), (_, device) in zip(*(writer.summaries for _, writer in runs), strict=True):
        for tag in ("critic/loss", "critic/gradient_norm", "generator/loss"):
            assert device[tag] == pytest.approx(host[tag], rel=1e-4, abs=1e-5), step


@pytest.mark.slow
@device_loops()
def test_loops_of_several_launches_are_identical_too(tmp_path, monkeypatch):
    settings = {**DIGITS, "train_steps": 20, "steps_per_loop": 12, "summary_interval": 0}
    whole, _ = train_tiny(tmp_path / "whole", **settings)
    # Enough for five iterations of 2 x 16 indices, of which four divide the loop.
    monkeypatch.setattr(loop_input, "MAX_ELEMENT_BYTES", 5 * 2 * 16 * 4)
    parts, _ = train_tiny(tmp_path / "parts", **settings)
    for one, other in zip(weights_of(whole), weights_of(parts), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@device_loops()
def test_a_resumed_device_loop_continues_exactly(tmp_path):
    settings = {**DIGITS, "steps_per_loop": 6}
    settings |= {"checkpoint_interval": 1, "learning_rate_schedule": "constant"}
    settings |= {"augment": "diffaugment", "accumulate": 2, "summary_interval": 0}
    whole, _ = train_tiny(tmp_path / "whole", train_steps=20, **settings)
    train_tiny(tmp_path / "resumed", train_steps=7, **settings)  # ends in the middle of a loop
    resumed, _ = train_tiny(tmp_path / "resumed", train_steps=20, **settings)
    for one, other in zip(weights_of(whole), weights_of(resumed), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_xla_runs_the_device_loop_with_the_same_result(tmp_path):
    # Adam amplifies the rounding errors of ReLU; see docs/numerics.md.
    settings = {**DIGITS, "activation": "tanh", "train_steps": 10, "steps_per_loop": 5}
    settings["summary_interval"] = 0
    host, _ = train_tiny(tmp_path / "host", **settings)
    compiled, _ = train_tiny(tmp_path / "device", jit_compile="on", **settings)
    for one, other in zip(weights_of(host), weights_of(compiled), strict=True):
        assert np.linalg.norm(other - one) <= 1e-4 * np.linalg.norm(one) + 1e-6


def make_device_loop(config, reduce_over_replicas=losses.reduce_over_replicas):
    """Returns the device loop of a run, its state and the function that opens its input."""
    config = resolved(config)
    strategy = strategy_over(1)
    state = make_state(config, strategy)
    loop, elements = build.make_loop(
        config,
        Devices(strategy, SINGLE_PROCESS, "CPU"),
        open_data(config),
        make_replica_step(config, state),
        reduce_over_replicas,
    )
    return loop, elements, state


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "launches"), [(2**25, 1), (2 * 16 * 4, 6)])
@device_loops()
def test_means_are_reduced_once_per_launch(limit, launches, monkeypatch):
    monkeypatch.setattr(loop_input, "MAX_ELEMENT_BYTES", limit)
    count = tf.Variable(0)

    def reduce_over_replicas(strategy, shares):
        count.assign_add(1)
        return losses.reduce_over_replicas(strategy, shares)

    settings = {**TINY, **DIGITS, "steps_per_loop": 6}
    loop, elements, state = make_device_loop(Config(**settings), reduce_over_replicas)
    loop(elements(0), tf.constant(6, tf.int64))
    assert int(count) == launches
    assert int(state.iteration) == 6


@pytest.mark.slow
@pytest.mark.parametrize("place", ["critic", "generator"])
@device_loops()
def test_the_first_iteration_that_is_not_finite_is_reported(place):
    """The loop runs to its end, and no weight is updated after that iteration."""
    settings = {**TINY, **DIGITS, "steps_per_loop": 6}
    loop, elements, state = make_device_loop(Config(**settings))
    elements = elements(0)
    assert {
        name: int(bad) for name, bad in loop(elements, tf.constant(3, tf.int64)).bad.items()
    } == {
        "critic": -1,
        "generator": -1,
    }
    weight = {"critic": state.critic, "generator": state.generator}[place].trainable_variables[-1]
    spoiled = np.array(tf.convert_to_tensor(weight))
    spoiled.flat[0] = np.nan
    weight.assign(spoiled)
    before = [np.array(value) for value in state.critic.get_weights()]
    output = loop(elements, tf.constant(2, tf.int64))
    assert {name: int(bad) for name, bad in output.bad.items()} == {"critic": 3, "generator": 3}
    for old, new in zip(before, state.critic.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def read_examples(data, input_of, *, hosts, replicas, steps, batch_size):
    """Returns the examples of `steps` critic steps, assembled from the elements of all replicas."""
    parts = []
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    count = batch_size // replicas
    each_input = input_of(strategy, count)
    for host in range(hosts):
        context = tf.distribute.InputContext(hosts, host, replicas)
        elements = iter(each_input.dataset(data, context, first_step=3))
        for local in range(replicas // hosts):
            replica = host * (replicas // hosts) + local
            read = each_input.reader(next(elements))
            parts.append(
                [
                    read(tf.constant(step), tf.constant((3 + step) * batch_size + replica * count))
                    for step in range(steps)
                ]
            )
    return [
        [np.concatenate([part[step][index] for part in parts]) for index in range(2)]
        for step in range(steps)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["device", "on", "off"], indirect=True)
def test_every_replica_reads_the_examples_of_the_host_loop(cache, folder):
    """Dequantization and flips are the same as well."""
    data = open_data(Config(**{**TINY, **image_settings(folder), "batch_size": 16}))

    def input_of(strategy, count):
        if cache == "device":
            return loop_input.ResidentExamples(
                strategy, *data.stored, data.format, steps=5, count=count
            )
        return loop_input.StackedExamples(data.format, steps=5, count=count)

    found = read_examples(data, input_of, hosts=2, replicas=4, steps=5, batch_size=16)
    expected = replica_batches(data, tf.distribute.InputContext(), batch_size=16, first_step=3)
    for ours, theirs in zip(found, expected, strict=False):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_the_host_sends_the_bytes_that_the_element_spec_states(folder):
    config = Config(**{**TINY, **image_settings(folder)})
    strategy = strategy_over(1)
    with held_in("off"):
        data = open_data(config)
    options = {"batch_size": 16, "n_critic": 2, "steps_per_loop": 3}
    sent = loop_input.open_loop_input(data, strategy, resident=False, **options)
    assert sent.element_bytes == 3 * 2 * 16 * (SIDE * SIDE * 3 + 4)  # uint8 pixels and a label
    element = next(iter(sent.dataset(data, tf.distribute.InputContext(), 0)))
    assert [part.dtype for part in element] == [tf.uint8, tf.int32]
    assert sum(part.numpy().nbytes for part in element) == sent.element_bytes
    data = open_data(config)
    indices = loop_input.open_loop_input(data, strategy, resident=True, **options)
    assert indices.element_bytes == 3 * 2 * 16 * 4
    assert indices.resident_bytes == 40 * (SIDE * SIDE * 3 + 4)
    element = next(iter(indices.dataset(data, tf.distribute.InputContext(), 0)))
    assert element.dtype == tf.int32 and element.numpy().nbytes == indices.element_bytes


def stored(count, shape, dtype=np.uint8):
    return examples_of(np.zeros([count, *shape], dtype))


def test_a_dataset_is_resident_if_it_fits(monkeypatch):
    monkeypatch.setattr(loop_input, "MAX_CACHE_BYTES", 4096)
    assert loop_input.is_resident(stored(32, (128,)))
    assert not loop_input.is_resident(stored(33, (128,)))
    # A TPU pads each example to a multiple of 128 values.
    assert not loop_input.is_resident(stored(33, (4, 4, 3)))
    assert not loop_input.is_resident(stored(9, (128,), np.float32))
    generated = open_data(Config(dataset="swiss_roll"))
    assert not loop_input.is_resident(generated)


def test_the_loop_that_the_devices_permit_is_chosen():
    one = Devices(strategy_over(1), SINGLE_PROCESS, "CPU")
    two = Devices(strategy_over(2), SINGLE_PROCESS, "CPU")
    assert not one.use_device_loop(jit_compile=one.use_jit("off"))
    assert one.use_device_loop(jit_compile=one.use_jit("on"))
    assert not two.use_device_loop(jit_compile=two.use_jit("on"))


def test_an_element_is_one_iteration_at_least():
    data = open_data(Config(dataset="swiss_roll"))
    big = loop_input.open_loop_input(
        data,
        strategy_over(1),
        batch_size=2**21,
        n_critic=2,
        steps_per_loop=10,
        resident=False,
    )
    assert big.steps == 2
