"""Any command line: a bad one is an error in one line, a good one trains."""

import dataclasses

import numpy as np
import pytest
from absl import flags as absl_flags
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flags
import losses
from tests.helpers.runs import TINY, call_main, open_run, resolved
from wgan_gp.app import training
from wgan_gp.config import Config, value_type
from wgan_gp.errors import UserError
from wgan_gp.run_directory.typed_json import load_dataclass
from wgan_gp.writers.writer import MemoryWriter

# The same examples every time, and no clock.
repeatable = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
FIELDS = [field for field in dataclasses.fields(Config) if field.name != "model_dir"]
SWITCHES = ["on", "off", "true", "false", "t", "f", "1", "0"]
ODD = ["", " ", "0", "-1", "nan", "inf", "-inf", "1e999", "1e-320", "2147483648", "99999999999999"]
ODD += ["abc", "None", "3,1", "--seed", "größe", "a\nb", "a" * 300, "%s", "{}", "\t"]


def is_bad(field, text):
    """Returns True if no setting can have this value, whatever the others are."""
    limits = field.metadata
    if value_type(field) is bool:
        return text.lower() not in SWITCHES
    try:
        value = value_type(field)(text)
    except ValueError:
        return True
    if limits["choices"] and value not in limits["choices"]:
        return True
    if value_type(field) is str:
        return not text.strip() or not text.isprintable()
    if value_type(field) is float:
        value = float(np.float32(value))
    return (
        not np.isfinite(float(value))
        or value > (limits["maximum"] or (2**31 - 1 if value_type(field) is int else np.inf))
        or (limits["minimum"] is not None and value < limits["minimum"])
        or (limits["above"] is not None and value <= limits["above"])
        or (limits["below"] is not None and value >= limits["below"])
    )


BAD = [(field, text) for field in FIELDS for text in ODD if is_bad(field, text)]


def good_values(field):
    limits = field.metadata
    if value_type(field) is bool:
        return st.sampled_from(SWITCHES)
    if limits["choices"]:
        return st.sampled_from([str(choice) for choice in limits["choices"]])
    if value_type(field) is str:
        return st.sampled_from(ODD) | st.text(max_size=20)
    low = next(limit for limit in (limits["minimum"], limits["above"], 0) if limit is not None)
    return st.integers(low, 4 * low + 9).map(str)


@st.composite
def arguments(draw, bad):
    """Flags with their values; at least one is impossible if `bad`."""
    given = {
        field.name: draw(st.sampled_from(ODD) | good_values(field))
        for field in draw(st.lists(st.sampled_from(FIELDS), unique_by=id, max_size=4))
    }
    line = [f"--{name}={value}" for name, value in given.items()]
    if bad:
        line = [each for each in line if each != "--mode=doctor"]  # it reports errors on stdout
        kind = draw(st.sampled_from(["value", "value", "value", "unknown", "stray", "conflict"]))
        if kind == "value":
            field, text = draw(st.sampled_from(BAD))
            wrong = [f"--{field.name}={text}"]
            line = [each for each in line if not each.startswith(wrong[0].partition("=")[0] + "=")]
        elif kind == "unknown":
            wrong = ["--" + draw(st.from_regex(r"[a-z]{1,3}_[a-z]{4,9}", fullmatch=True)) + "=1"]
        elif kind == "stray":
            wrong = [draw(st.sampled_from(["digits", "1", "x=y"]))]
        else:
            wrong = draw(
                st.sampled_from(
                    [
                        ["--cpu_replicas=3", "--batch_size=64"],
                        ["--tpu=local", "--cpu_replicas=2"],
                        ["--model=resnet", "--dataset=digits", "--image_size=8"],
                        ["--dataset=gaussians_8", "--model=dcgan"],
                        ["--dataset=swiss_roll", "--conditioning=acgan"],
                        ["--mode=compile", "--tpu=local"],
                    ]
                )
            )
            names = {each.partition("=")[0] for each in wrong}
            line = [each for each in line if each.partition("=")[0] not in names]
        place = draw(st.integers(0, len(line)))
        line[place:place] = wrong
    return line


@pytest.mark.slow
@settings(repeatable, max_examples=100)
@given(line=arguments(bad=True))
def test_a_bad_command_line_is_one_line_and_status_2(line, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        training, "train", lambda config, *_: pytest.fail(f"it would train {config}")
    )
    assert call_main(f"--model_dir={tmp_path}", *line) == 2
    output = capsys.readouterr()
    (error,) = output.err.splitlines()
    assert error.startswith("error: ") and " — " in error and output.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@settings(repeatable, max_examples=150)
@given(line=arguments(bad=False))
def test_any_command_line_is_a_configuration_or_one_line(line):
    values = absl_flags.FlagValues()
    flags.define(values)
    try:
        config = resolved(flags.parse(["train.py", *line], values))
    except UserError as error:
        assert error.what and error.remedy  # noqa: PT017
    else:
        assert load_dataclass(Config, config.to_dict(), "config.json", "x") == config


def choices_of(name, *others):
    (field,) = (field for field in FIELDS if field.name == name)
    return st.sampled_from([*field.metadata["choices"], *others])


COMBINATIONS = given(
    combination=st.fixed_dictionaries(
        {
            "dataset": st.sampled_from(["digits", "gaussians_8", "swiss_roll"]),
            "model": st.sampled_from(["mlp", "dcgan"]),
            "generator_ema_decay": st.sampled_from([0.0, 0.9]),
            "cpu_replicas": st.sampled_from([1, 2]),
            "random_flips": st.booleans(),
            "dequantization": st.booleans(),
            "adversarial_loss": st.sampled_from([*losses.ADVERSARIAL_LOSSES]),
            "penalty": st.sampled_from([*losses.PENALTIES]),
            **{
                name: choices_of(name)
                for name in (
                    "critic_normalization",
                    "conditioning",
                    "activation",
                    "generator_normalization",
                    "generator_channels",
                    "learning_rate_schedule",
                    "precision",
                )
            },
        }
    )
)


def is_trained(combination, path):
    """Trains with a combination of flags; returns False if the program refuses it."""
    settings = {**TINY, "steps_per_loop": 2, "train_steps": 2, "batch_size": 8, "model_width": 8}
    try:
        config = resolved(Config(model_dir=path, **{**settings, **combination}))
    except UserError:
        return False
    writer = MemoryWriter()
    assert training.make_trainer(open_run(config), writers=[writer]).run() is None
    ((step, values),) = writer.summaries
    assert step == 2 and all(np.isfinite(value) for value in values.values())
    return True


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_accepted_combinations_train(tmp_path_factory):
    trained = []

    @settings(repeatable, max_examples=8)
    @COMBINATIONS
    def train_each(combination):
        trained.append(is_trained(combination, str(tmp_path_factory.mktemp("run"))))

    train_each()
    assert any(trained)
