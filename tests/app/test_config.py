"""The values that a setting can have: as a flag, in config.json, in Python."""

import dataclasses
import json

import pytest
from absl import flags as absl_flags

import flags
import losses
import models
from wgan_gp.config import GRADIENT_PENALTIES, PYTHON, Config, has_flag, value_type
from wgan_gp.config.objective import ADVERSARIAL_LOSSES, PENALTIES
from wgan_gp.config.settings import LARGEST, largest, setting, words
from wgan_gp.data import datasets
from wgan_gp.errors import UserError
from wgan_gp.run_directory.typed_json import load_dataclass

FIELDS = dataclasses.fields(Config)
WHOLE = [f for f in FIELDS if value_type(f) is int and not f.metadata["choices"]]
FLOATS = [f for f in FIELDS if value_type(f) is float]
ORIGIN = "gs://bucket/run/config.json"


def parse(*arguments):
    values = absl_flags.FlagValues()
    flags.define(values)
    return flags.parse(["train.py", *arguments], values)


def load(saved):
    return load_dataclass(Config, saved, ORIGIN, "do this")


def as_saved(config, **changes):
    return json.loads(json.dumps({**config.to_dict(), **changes}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("n_critic", value) for value in ("5", 5.0, True, None, [5], 0, "x" * 9999)],
        *[("batch_size", value) for value in (1e308, 10**30)],
        *[("image_size", value) for value in ("x" * 9999, "48x", True)],
        *[("penalty_weight", value) for value in ("ten", "5,x", "5,-1", "5,inf", [5], None)],
        *[("penalty_weight", value) for value in (False, float("nan"), 10**400)],
        *[("penalty", value) for value in ("r1,both", "r1,r1", "r1,none", 1, "both")],
        *[("dataset", value) for value in (3, None, "")],
        *[("data_dir", value) for value in ({"a": 1}, "a\0b", "\ud800")],
        *[("image_channels", value) for value in (17, 3.0)],
        *[("random_flips", value) for value in (1, None)],
        ("beta_2", 1),
        ("dequantization", "yes"),
        ("download", ["on"]),
        ("of_the_future", 1),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_saved_value_is_checked_as_a_flag_is(name, value):
    with pytest.raises(UserError) as caught:
        load(as_saved(Config(), **{name: value}))
    error = str(caught.value)
    assert error.startswith(f"{ORIGIN} is damaged: ") and error.endswith(" — do this")
    assert name in error and len(error) < 300


@pytest.mark.parametrize("field", filter(has_flag, FIELDS), ids=lambda field: field.name)
def test_what_a_setting_declares_is_consistent(field):
    declared = field.metadata
    decides_weights = declared["kind"] in ("data", "networks", "training")
    if declared["path"]:  # a place, whose content decides
        assert declared["resume"] and declared["of_run"] is not True
    elif decides_weights and declared["of_run"]:
        assert not declared["per_process"]
    if not declared["resume"] or declared["compared"]:
        assert decides_weights
    if declared["user_code"]:
        assert f"{field.name}_sha256" in {each.name for each in FIELDS}
    names = {each.name for each in FIELDS} | {"data"}
    for other, condition in {**declared["applies"], **declared["requires"]}.items():
        assert other in names
        if other != "data" and not isinstance(condition, bool):
            (its,) = (each.metadata for each in FIELDS if each.name == other)
            assert not its["choices"] or set(condition) <= {*its["choices"], PYTHON}


def test_a_setting_must_say_its_kind():
    with pytest.raises(TypeError, match="kind"):
        setting(0, "A number.")
    with pytest.raises(TypeError, match="resumable"):  # no attribute of a kind
        setting(0, "A number.", kind="output", resumable=True)


def test_the_names_of_losses_are_those_of_the_package():
    assert list(ADVERSARIAL_LOSSES) == list(losses.ADVERSARIAL_LOSSES)
    assert list(PENALTIES) == list(losses.PENALTIES)
    differentiated = {name for name, each in losses.PENALTIES.items() if each.function is not None}
    assert set(GRADIENT_PENALTIES) == differentiated
    targets = dataclasses.fields(Config)
    (target,) = (field for field in targets if field.name == "penalty_target")
    with_target = {name for name, each in losses.PENALTIES.items() if each.has_target}
    assert set(target.metadata["applies"]["penalty"]) == with_target
    relativistic = {name for name, each in losses.ADVERSARIAL_LOSSES.items() if each.relativistic}
    assert relativistic == {"relativistic"}  # whose batches must be equal


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"weight_decay": 0.1},
            "--weight_decay=0.1 does not apply to --optimizer=adam — use --o",
        ),
        ({"optimizer": "rmsprop", "beta_1": 0.5}, "--beta_1=0.5 does not apply to --optimizer=rms"),
        ({"tpu_cores": 4}, "--tpu_cores=4 needs --tpu — add --tpu, or omit it"),
        ({"tpu": "x", "cpu_replicas": 2}, "--cpu_replicas=2 and --tpu=x exclude each other — omit"),
        ({"output": "x"}, "--output=x does not apply to --mode=train — use --mode=evaluate or sam"),
        ({"keep_best": "fid"}, "--keep_best=fid needs --evaluate_interval — add --evaluate_interv"),
        ({"restore": "both"}, "--restore=both needs --restore_from"),
        ({"mode": "compile", "tpu": "x"}, "--tpu=x does not apply to --mode=compile — use"),
        ({"samples": "x"}, "--samples=x does not apply to --mode=train"),
        ({"mode": "evaluate", "samples": "x"}, "--samples=x needs --reference — add --reference"),
    ],
)
def test_a_setting_that_requires_another_is_refused(settings, message):
    with pytest.raises(UserError) as caught:
        Config(**settings)
    assert str(caught.value).startswith(message)


def test_a_saved_configuration_may_lack_settings():
    config = load({"n_critic": 3, "penalty_weight": 5, "output": None})
    assert config == Config(n_critic=3, penalty_weight=5.0)
    assert load(as_saved(config)) == config


def test_two_saved_values_that_exclude_each_other_are_refused_by_the_files_name():
    saved = {"train_steps": 5, "stop_step": 6}
    with pytest.raises(UserError, match=f"^{ORIGIN} is damaged: --stop_step=6 is beyond --train_s"):
        load(saved)


@pytest.mark.parametrize("field", WHOLE, ids=lambda field: field.name)
def test_every_whole_number_has_a_largest_value_that_help_tells(field):
    limit = largest(field.metadata)
    assert field.metadata["minimum"] < limit <= LARGEST
    for value in (limit + 1, 10**30):
        with pytest.raises(UserError) as caught:
            parse(f"--{field.name}={value}")
        assert str(caught.value) == f"--{field.name}={value} is too large — give at most {limit}"
    values = absl_flags.FlagValues()
    flags.define(values)
    assert values[field.name].help.endswith(f"Range: {field.metadata['minimum']} to {limit}.")


def test_help_lists_the_values_of_every_choice():
    """Closed choices begin the text; flags that take any text name their values in it."""
    values = absl_flags.FlagValues()
    flags.define(values)
    open_ended = {
        "adversarial_loss": losses.ADVERSARIAL_LOSSES,
        "penalty": losses.PENALTIES,
        "model": models.MODELS,
        "dataset": datasets.BUILT_IN,
    }
    for name, choices in open_ended.items():
        assert [choice for choice in choices if choice not in values[name].help] == []
    enums = {
        field.name
        for field in FIELDS
        if value_type(field) is str and isinstance(field.metadata["choices"], tuple)
        if field.metadata["choices"]
    }
    assert enums >= {"mode", "activation", "precision", "jit_compile"}
    for name in enums:
        (field,) = (each for each in FIELDS if each.name == name)
        assert values[name].help.startswith(f"<{'|'.join(words(field.metadata))}>: ")


def test_penalties_and_weights_are_one_or_several():
    one = Config(penalty="r1", penalty_weight="5")
    assert one == Config(penalty="r1", penalty_weight=5) and one.penalty_weight == 5.0
    both = Config(penalty="r1, r2", penalty_weight="5,0.1")
    assert (both.penalty, both.penalty_weight) == ("r1,r2", "5.0,0.1")
    assert load(as_saved(both)) == both
    assert parse("--penalty=r1,r2", "--penalty_weight=5,0.1") == both
    assert parse("--penalty=r1,r2").penalty_weight == 10.0  # for each
    with pytest.raises(UserError, match=r"weight=5\.0,5\.0 has 2 numbers, but --penalty=r1 has 1"):
        Config(penalty="r1", penalty_weight="5,5")


def test_settings_that_are_on_or_off_are_booleans():
    switches = {field.name for field in FIELDS if value_type(field) is bool}
    assert switches == {"download", "random_flips", "dequantization", "profile"}
    for field in FIELDS:
        assert set(field.metadata["choices"]) != {"on", "off"}, field.name
    written = json.loads(json.dumps(Config(random_flips=True).to_dict()))
    assert [written[name] for name in sorted(switches)] == [True, False, False, True]
    with pytest.raises(UserError, match="--random_flips='on' is not true or false — give true or"):
        Config(random_flips="on")


@pytest.mark.parametrize("field", FLOATS, ids=lambda field: field.name)
def test_every_number_is_one_in_float32_too(field):
    for value, message in (("1e39", "too large for float32"), ("1e-46", "too small for float32")):
        with pytest.raises(UserError, match=message):
            parse(f"--{field.name}={value}")
    if field.metadata["below"] is not None:  # 1 in float32
        with pytest.raises(UserError, match="is too large — give less than 1"):
            parse(f"--{field.name}=0.99999999999")


def test_a_path_may_begin_with_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/of me")
    paths = {field.name for field in FIELDS if field.metadata["path"]}
    assert paths >= {field.name for field in FIELDS if field.name.endswith("_dir")} | {"output"}
    compared = ["--mode=evaluate", "--output=x.npz"]
    needed = {
        "samples": [*compared, "--reference=x"],
        "reference": compared,
        "output": ["--mode=sample"],
    }
    for name in paths:
        mode = needed.get(name, [])
        assert getattr(parse(f"--{name}=~/a/~b", *mode), name) == "/home/of me/a/~b"
        assert getattr(parse(f"--{name}=gs://b/~/a", *mode), name) == "gs://b/~/a"
        with pytest.raises(UserError, match=f"--{name}=~unknown-user/a begins with ~, but"):
            parse(f"--{name}=~unknown-user/a")
    values = absl_flags.FlagValues()
    flags.define(values)
    flags.parse(["train.py", "--model_dir=~/a"], values)
    assert flags.given(values) == {"model_dir": "/home/of me/a"}


@pytest.mark.parametrize(
    "field", [field for field in FIELDS if value_type(field) is str], ids=lambda field: field.name
)
@pytest.mark.parametrize("text", ["", " ", "a\nb", "a\x1b[31mb", "a\x00", "a\udcff"])
def test_a_text_that_cannot_be_is_one_line(field, text):
    with pytest.raises(UserError) as caught:
        parse(f"--{field.name}={text}")
    assert str(caught.value).isprintable()


def test_code_is_the_same_object_of_the_same_file():
    saved = Config(objective="a/losses.py:One", objective_sha256="x")
    for reference, is_same in (("b/losses.py:One", True), ("a/losses.py:Two", False)):
        for digest in ("x", "y"):
            config = Config(objective=reference, objective_sha256=digest)
            assert ("objective" not in config.differences(saved)) == (is_same and digest == "x"), (
                reference
            )


@pytest.mark.parametrize("mode", ["sample", "evaluate", "export"])
def test_a_saved_run_on_too_many_devices_needs_fewer(mode):
    """The batch size of a saved run cannot change."""
    with pytest.raises(UserError, match="divide over 8 replicas — use fewer devices, such as"):
        Config(mode=mode, batch_size=100, cpu_replicas=8)


@pytest.mark.parametrize(
    ("dataset", "folder"),
    [
        ("digits", "runs/digits"),
        ("../mine/data.py", "runs/data"),
        ("/home/me/data.py:cats", "runs/data-cats"),
        ("../data.py:cats", "runs/data-cats"),
    ],
)
def test_the_default_run_directory_is_in_runs(dataset, folder):
    assert Config(dataset=dataset).run_directory == folder
