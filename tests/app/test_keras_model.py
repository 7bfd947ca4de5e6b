"""`wgan_gp.keras.WGANGP`: the iterations of fit, predict, save, and what is refused."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import losses
import wgan_gp
from tests.helpers.runs import strategy_over
from wgan_gp.keras import WGANGP
from wgan_gp.runtime.randomness import RngStream, normal, uniform

layers = tf.keras.layers
LATENTS, N_CRITIC, BATCH = 4, 2, 8
ROWS = N_CRITIC * BATCH  # of an iteration
POINTS = np.random.default_rng(0).normal(size=(3 * ROWS, 2)).astype(np.float32)
L2 = tf.keras.regularizers.L2(0.03)
TWO = pytest.param(2, marks=pytest.mark.slow)


def generator():
    return tf.keras.Sequential([layers.Input([LATENTS]), layers.Dense(8, "tanh"), layers.Dense(2)])


def critic(**options):
    hidden = layers.Dense(8, "tanh", **options)
    return tf.keras.Sequential([layers.Input([2]), hidden, layers.Dense(1)])


def make_model(replicas=1, make_critic=critic, make_generator=generator, **settings):
    with strategy_over(replicas).scope():
        tf.keras.utils.set_random_seed(0)
        model = WGANGP(make_generator(), make_critic(), LATENTS, n_critic=N_CRITIC, **settings)
        model.compile()
    return model


def fit(model, data=POINTS, **arguments):
    sizes = {"batch_size": ROWS} if isinstance(data, np.ndarray) else {}
    return model.fit(data, shuffle=False, verbose=0, **sizes, **arguments).history


def assert_same_weights(one, other, tolerance=1e-6):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=0)


def train_by_hand(model, points):
    """Algorithm 1 of arXiv:1704.00028, eagerly; returns the critic's losses."""
    adam = [tf.keras.optimizers.Adam(1e-4, beta_1=0.0, beta_2=0.9) for _ in range(2)]
    found = []

    def draw(numbers, stream, step, size):
        return numbers(0, stream, step=step, first=0, count=BATCH, size=size)

    for iteration, batch in enumerate(np.split(points, len(points) // ROWS)):
        for k in range(N_CRITIC):
            step, real = iteration * N_CRITIC + k, batch[k::N_CRITIC]
            fake = model.generator(draw(normal, RngStream.CRITIC_LATENTS, step, LATENTS))
            alpha = draw(uniform, RngStream.INTERPOLATION, step, 1)
            points_between = real + alpha * (fake - real)
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(points_between)
                    scores = model.critic(points_between)
                slopes = tf.norm(inner.gradient(scores, points_between), axis=1)
                difference = tf.reduce_mean(model.critic(fake) - model.critic(real))
                loss = difference + 10 * tf.reduce_mean((slopes - 1) ** 2)
            weights = model.critic.trainable_variables
            adam[0].apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            found.append(float(loss))
        with tf.GradientTape() as tape:
            latents = draw(normal, RngStream.GENERATOR_LATENTS, iteration, LATENTS)
            loss = -tf.reduce_mean(model.critic(model.generator(latents)))
        weights = model.generator.trainable_variables
        adam[1].apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return found


@pytest.mark.parametrize("replicas", [1, TWO])
def test_three_iterations_are_a_loop_by_hand(replicas):
    by_hand = make_model()
    expected = train_by_hand(by_hand, POINTS)
    model = make_model(replicas)
    history = fit(model)
    assert_same_weights(model.generator, by_hand.generator)
    assert_same_weights(model.critic, by_hand.critic)
    assert history["critic/loss"] == [pytest.approx(np.mean(expected), rel=1e-5)]


def test_gradients_of_an_embedding_of_labels_are_summed_before_the_update():
    """Adam would square each row of the sparse gradient that a repeated label has."""

    def labeled(embed):
        examples, labels = layers.Input([2]), layers.Input([], dtype="int32")
        joined = layers.Concatenate()([examples, embed(labels)])
        scores = layers.Dense(1, kernel_initializer="ones")(layers.Activation("tanh")(joined))
        return tf.keras.Model([examples, labels], scores)

    def one_hot(labels):
        encoded = layers.CategoryEncoding(2, "one_hot")(labels[:, None])
        return layers.Dense(3, use_bias=False, kernel_initializer="ones")(encoded)

    def generate():
        latents, labels = layers.Input([LATENTS]), layers.Input([], dtype="int32")
        joined = layers.Concatenate()([latents, one_hot(labels)])
        return tf.keras.Model([latents, labels], layers.Dense(2, kernel_initializer="ones")(joined))

    embedded = make_model(
        make_critic=lambda: labeled(layers.Embedding(2, 3, "ones")), make_generator=generate
    )
    dense = make_model(make_critic=lambda: labeled(one_hot), make_generator=generate)
    labels = np.arange(len(POINTS), dtype=np.int32) % 2
    for model in (embedded, dense):
        model.fit(POINTS, labels, shuffle=False, verbose=0, batch_size=ROWS)
    assert_same_weights(embedded.critic, dense.critic)


def from_generator(points):
    spec = tf.TensorSpec([None, 2], tf.float32)  # of unknown number
    batches = np.split(points, len(points) // ROWS)
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)


@pytest.mark.parametrize("replicas", [1, TWO])
def test_arrays_and_datasets_train_the_same_weights_in_as_many_iterations(replicas):
    models = [make_model(replicas) for _ in range(3)]
    sliced = tf.data.Dataset.from_tensor_slices(POINTS).batch(ROWS)
    for model, data in zip(models, (POINTS, sliced, from_generator(POINTS)), strict=True):
        fit(model, data, epochs=2)
        assert model.iterations == 6
        assert_same_weights(models[0], model)
        assert int(tf.convert_to_tensor(model.critic_optimizer.iterations)) == 12


@pytest.mark.slow
def test_a_rest_of_the_data_is_a_smaller_iteration():
    model = make_model()
    history = fit(model, POINTS[: ROWS + 7])
    assert model.iterations == 2 and np.isfinite(history["critic/loss"]).all()


@pytest.mark.slow
def test_terms_of_held_out_examples_are_logged_and_nothing_is_trained():
    model = make_model(objective=losses.GanObjective(penalty="r1,dragan", penalty_weight=(1, 2)))
    history = fit(model, validation_data=POINTS[:8])
    before = model.get_weights()
    found = model.evaluate(POINTS[:8], verbose=0, return_dict=True)
    assert history["val_critic/penalty_r1"] == [pytest.approx(found["critic/penalty_r1"])]
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("replicas", [1, TWO])
def test_a_regularizer_of_a_weight_counts_once(replicas):
    model = make_model(replicas, lambda: critic(kernel_regularizer=L2))
    expected = 0.03 * np.sum(np.square(model.critic.get_weights()[0]))
    found = {
        tag: float(x) for tag, x in model.evaluate(POINTS, verbose=0, return_dict=True).items()
    }
    assert found["critic/regularization"] == pytest.approx(expected, rel=1e-5)
    rest = -found["critic/wasserstein"] + 10 * found["critic/penalty"]
    assert found["critic/loss"] - rest == pytest.approx(expected, rel=1e-4)


def conditional(size, outputs):
    inputs = [tf.keras.Input([size]), tf.keras.Input([], dtype="int32")]
    one_hot = layers.CategoryEncoding(3, output_mode="one_hot")(inputs[1])
    return tf.keras.Model(inputs, layers.Dense(outputs)(layers.Concatenate()([inputs[0], one_hot])))


@pytest.mark.parametrize("classifies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_labels_reach_both_networks(classifies):
    """Rows of the weights that only the label 2 uses change if it is in the data."""
    settings, make_critic = {}, lambda: conditional(2, 1)
    if classifies:
        weights = {"critic_class_weight": 1.0, "generator_class_weight": 1.0}
        settings = {"objective": losses.GanObjective(adversarial_loss="relativistic", **weights)}

        def make_critic():
            examples = tf.keras.Input([2])
            return tf.keras.Model(examples, [layers.Dense(1)(examples), layers.Dense(3)(examples)])

    model = make_model(1, make_critic, lambda: conditional(LATENTS, 2), **settings)
    before = model.generator.get_weights()
    labels = np.arange(ROWS) // 2 % 2 + 1  # 1 and 2 for each critic step, never 0
    model.fit(POINTS[:ROWS], labels, batch_size=ROWS, verbose=0)
    kernel = model.generator.trainable_variables[0].numpy() - before[0]
    assert np.abs(kernel[-1]).min() > 0 == np.abs(kernel[LATENTS]).max()
    samples = model.predict([np.zeros([2, LATENTS]), np.array([1, 2])], verbose=0)
    assert np.abs(samples[0] - samples[1]).max() > 1e-3


def test_a_loaded_model_continues_as_if_it_had_not_been_saved(tmp_path):
    objective = losses.GanObjective(penalty="one_sided", penalty_weight=5.0)
    model = make_model(objective=objective, seed=3)
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.objective == objective and loaded.iterations == 3
    latents = np.ones([3, LATENTS], np.float32)
    np.testing.assert_array_equal(
        loaded.predict(latents, verbose=0), model.predict(latents, verbose=0)
    )
    fit(model)
    fit(loaded)
    assert_same_weights(model, loaded, tolerance=1e-6)


WEIGHTED = tf.data.Dataset.from_tensors((POINTS, POINTS[:, 0], np.ones(len(POINTS))))


class Own(losses.GanObjective):
    """An objective that the class cannot create again."""


def lossy():
    return tf.keras.Sequential([layers.Input([2]), critic(activity_regularizer=L2)])


def frozen():
    network = generator()
    network.trainable = False
    return network


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: make_model().fit(POINTS.astype(np.uint8)), "x is uint8, which fit does not scale"),
        (
            lambda: fit(make_model(), sample_weight=np.ones(len(POINTS))),
            "no argument sample_weight",
        ),
        (lambda: fit(make_model(), WEIGHTED), "no weights of examples"),
        (lambda: fit(make_model(make_generator=frozen)), "the generator has no weights to train"),
        (lambda: fit(make_model(make_critic=lossy)), "fit: .* of the layer dense"),
        (lambda: make_model().compile(loss="mse"), "compile has no argument loss"),
        (
            lambda: make_model(make_critic=lambda: tf.keras.Sequential([layers.Dense(1)])),
            "a network has no weights yet",
        ),
        (lambda: make_model(objective=Own()).get_config(), "of your own is not"),
    ],
)
def test_what_would_be_wrong_without_a_word_is_refused_in_one_line(change, message):
    with pytest.raises(wgan_gp.UserError, match=message) as found:
        change()
    assert "\n" not in str(found.value)


def test_another_backend_of_keras_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(wgan_gp.UserError, match="with the backend jax"):
        make_model()


@pytest.mark.slow
def test_the_program_of_the_documentation_prints_what_the_page_shows(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "keras.md").read_text()
    (program,) = re.findall(r"```python\n([\s\S]*?)```", page)
    exec(program, {})
    printed = capsys.readouterr().out.strip().splitlines()[-1]
    assert f"It prints `{printed}`" in page
