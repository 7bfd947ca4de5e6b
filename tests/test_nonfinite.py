"""A loss or gradient that is not finite changes nothing, stops the run, and is never saved."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import TINY, strategy_over, train_tiny

import train
from wgan_gp.config import Config
from wgan_gp.data import registry
from wgan_gp.data.source import Source
from wgan_gp.errors import UserError
from wgan_gp.loop import make_train_loop
from wgan_gp.optimizer import GuardedAdam

NAN = float("nan")


def test_guarded_adam_is_adam():
    random = np.random.default_rng(0)
    start = random.normal(size=[5, 3]).astype(np.float32)
    results = []
    for kind in (GuardedAdam, tf.keras.optimizers.Adam):
        weight = tf.Variable(start)
        optimizer = kind(0.01, beta_1=0.5, beta_2=0.9, epsilon=1e-8)
        optimizer.build([weight])
        for seed in range(5):
            gradient = np.random.default_rng(seed).normal(size=[5, 3]).astype(np.float32)
            optimizer.apply_gradients([(tf.constant(gradient), weight)])
        results.append(weight.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_guarded_adam_passes_over_what_is_not_finite():
    weight = tf.Variable([1.0, 2.0])
    optimizer = GuardedAdam(0.01, beta_1=0.5)
    optimizer.build([weight])
    optimizer.apply_gradients([(tf.constant([1.0, 1.0]), weight)])
    before = [np.array(tf.convert_to_tensor(v)) for v in optimizer.variables[2:]]
    value = weight.numpy()
    optimizer.apply_gradients([(tf.constant([NAN, float("inf")]), weight)])
    np.testing.assert_array_equal(weight.numpy(), value)
    for variable, former in zip(optimizer.variables[2:], before, strict=True):
        np.testing.assert_array_equal(tf.convert_to_tensor(variable), former)


def values_of(network):
    return [np.array(value) for value in network.get_weights()]


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("where", ["data", "critic", "generator", "behind a relu", "nowhere"])
def test_no_replica_updates_what_one_finds_not_finite(replicas, where):
    config = train.resolve(Config(model="mlp", **TINY))
    strategy = strategy_over(replicas)
    state = train.make_state(config, strategy)
    loop = make_train_loop(train.make_step(config, state), strategy, n_critic=1, jit_compile=False)
    images = np.zeros([16, 8, 8, 1], np.float32)
    if where == "data":
        images[13, 2, 3] = NAN  # of the last replica
    elif where != "nowhere":
        weight = {
            "critic": state.critic.trainable_variables[0],
            "generator": state.generator.trainable_variables[-1],
            "behind a relu": state.generator.trainable_variables[0],  # which makes 0 of NaN
        }[where]
        spoiled = np.array(tf.convert_to_tensor(weight))
        spoiled.flat[0] = NAN
        weight.assign(spoiled)
    batch = tf.data.Dataset.from_tensors((images, tf.zeros([16], tf.int32))).repeat()
    critic, generator = values_of(state.critic), values_of(state.generator)
    moments = [np.array(tf.convert_to_tensor(v)) for v in state.critic_optimizer.variables[2:]]
    _, _, unsound = loop(
        iter(strategy.experimental_distribute_dataset(batch)), tf.constant(1, tf.int64)
    )
    spoilt = {"data": {"critic"}, "behind a relu": {"generator"}, "nowhere": set()}.get(
        where, {"critic", "generator"}
    )
    assert {name for name, step in unsound.items() if step == 0} == spoilt
    for name, before in (("critic", critic), ("generator", generator)):
        same = [
            np.array_equal(*pair, equal_nan=True)
            for pair in zip(values_of(getattr(state, name)), before, strict=True)
        ]
        assert all(same) == (name in spoilt), name
    if "critic" in spoilt:
        for variable, former in zip(state.critic_optimizer.variables[2:], moments, strict=True):
            np.testing.assert_array_equal(tf.convert_to_tensor(variable), former)


def test_what_is_not_finite_is_never_saved(tmp_path):
    run, _ = train_tiny(tmp_path, train_steps=5)
    statistics = run.state.generator.non_trainable_variables[0]
    statistics.assign(tf.fill(statistics.shape, NAN))
    run.state.iteration.assign(6)
    with pytest.raises(UserError, match=r"after iteration 6 generator/\S+ is not finite, so noth"):
        run.checkpoints.save()
    assert not list((tmp_path / "checkpoints").glob("ckpt-6*"))


def test_the_run_stops_and_says_where_it_was_good(tmp_path, monkeypatch, capsys):
    config = train.resolve(
        Config(model="mlp", model_dir=str(tmp_path), train_steps=30, checkpoint_interval=5, **TINY)
    )
    whole = registry.open_source(config)

    def read(first, count):
        images, labels = whole.read(first, count)
        # Critic step 26 is the first of iteration 14, whose loop has saved nothing yet.
        bad = tf.equal(first, 26 * config.batch_size)
        return tf.where(bad, images * NAN, images), labels

    monkeypatch.setattr(
        train.datasets, "open_source", lambda config: Source(whole.example_shape, read, whole.size)
    )
    for _ in range(2):  # started again, it goes on from there, and meets the same
        with pytest.raises(
            UserError,
            match=r"iteration 14: the critic's (terms are|gradient is) not finite.*"
            r"nothing was saved since iteration 10, .* lower --critic_learning_rate",
        ):
            train.train(config)
    reader = tf.train.load_checkpoint(f"{tmp_path}/checkpoints/ckpt-10")
    for name, dtype in reader.get_variable_to_dtype_map().items():
        assert dtype == tf.string or np.isfinite(reader.get_tensor(name)).all()
    steps = {path.stem for path in (tmp_path / "checkpoints").glob("*.json")}
    assert steps == {"ckpt-5", "ckpt-10"}
    assert not (tmp_path / "owner.json").exists()
