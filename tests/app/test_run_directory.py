"""Tests of commands on a run directory whose files or data have changed since the last command."""

import json
import pathlib
import shutil

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.helpers.runs import call_main, find_data, train_tiny
from wgan_gp.app import modes, saved_run
from wgan_gp.app.saved_run import check_resume, read_config
from wgan_gp.config import Config
from wgan_gp.data.data_record import DataRecord, check_data, describe_changes, find_record
from wgan_gp.data.sources import listing
from wgan_gp.data.spec import DataSpec
from wgan_gp.errors import UserError
from wgan_gp.evaluation.examples import ArrayCache
from wgan_gp.run_directory import directory as directory_module
from wgan_gp.run_directory import files
from wgan_gp.run_directory.directory import RunDirectory
from wgan_gp.run_directory.json_files import read_dataclass, read_log, read_object, write_object
from wgan_gp.run_directory.lock import Lock
from wgan_gp.writers.files import JsonlWriter

EVERY_5 = {"checkpoint_interval": 5, "summary_interval": 5}
EVERY_5 |= {"evaluate_interval": 5, "evaluate_samples": 10, "learning_rate_schedule": "constant"}


def content_of(path):
    return {file: file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def plant(path, name="config.json", **entries):
    """Changes entries of a file, with the right checksum."""
    write_object(str(path / name), {**read_object(str(path / name)), **entries})


def resume(path, **settings):
    """Resumes the run in `path`, and lists the files of the data again, as a new process does."""
    return train_tiny(path, **{**EVERY_5, **settings})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with checkpoints, summaries and evaluations after 5 and 10 iterations."""
    path = tmp_path_factory.mktemp("trained") / "run"
    train_tiny(path, train_steps=10, **EVERY_5)
    return path


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the trained run."""
    return pathlib.Path(shutil.copytree(trained, tmp_path / "run"))


def picture(path, level=100, size=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(np.full([size, size, 3], level, np.uint8)).save(path, compress_level=0)


@pytest.fixture
def pictures(tmp_path):
    """A folder of two classes with four pictures each."""
    for number in range(8):
        picture(tmp_path / "pictures" / "ab"[number % 2] / f"{number}.png", level=20 * number)
    return tmp_path / "pictures"


def of(pictures, **settings):
    settings = {"dataset": "image_folder", "data_dir": str(pictures), "batch_size": 4, **settings}
    return {**settings, "image_size": 8}


@pytest.mark.slow
def test_a_resume_that_is_refused_changes_nothing(pictures, tmp_path, capsys):
    run = tmp_path / "run"
    settings = of(pictures, conditioning="projection", evaluate_interval=0)
    resume(run, train_steps=5, **settings)
    picture(pictures / "c" / "1.png")
    before = content_of(run)
    with pytest.raises(
        UserError, match=r"was trained on data with classes=2, but --dataset has classes=3"
    ):
        resume(run, train_steps=10, **settings)
    assert content_of(run) == before


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_restored_changes_nothing(run):
    plant(run, model_width=8, generator_width=8)
    before = content_of(run)
    with pytest.raises(UserError, match=r"ckpt-10 cannot be restored into this run's model"):
        resume(run, train_steps=15, model_width=8)
    assert content_of(run) == before


def rename_classes(pictures):
    (pictures / "a").rename(pictures / "z")


def add_a_picture(pictures):
    picture(pictures / "a" / "new.png")


def resize_a_picture(pictures):
    picture(pictures / "a" / "0.png", level=200, size=9)


def move_a_picture(pictures):
    (pictures / "a" / "0.png").rename(pictures / "a" / "00.png")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (rename_classes, "the file names differ, the classes differ"),
        (add_a_picture, "8 files became 9"),
        (resize_a_picture, "the file sizes differ"),
        (move_a_picture, "the file names differ"),
    ],
)
def test_changed_data_is_described(pictures, change, says):
    before = fingerprint_of(pictures)
    change(pictures)
    assert describe_changes(before, fingerprint_of(pictures)).startswith(says)
    assert describe_changes(before, before) == ""


def fingerprint_of(pictures):
    return find_data(Config(**of(pictures))).fingerprint()


def test_a_resume_on_changed_data_warns_once(pictures, tmp_path, capsys):
    config, directory = Config(**of(pictures)), RunDirectory(str(tmp_path / "run"))

    def start():
        """Uses the directory as a start of training does, and returns the output on stderr."""
        data = DataRecord(DataSpec((8, 8, 3), 0), fingerprint=fingerprint_of(pictures))
        check_data(directory, data)
        directory.claim(config, data).release()
        return capsys.readouterr().err

    assert start() == ""
    (tmp_path / "run" / "checkpoints" / "ckpt-5.json").write_text("{}")
    rename_classes(pictures)
    assert start().startswith(
        f"warning: the data differs from the data of --model_dir={tmp_path}/run: "
    )
    assert start() == ""
    # The fingerprint of a damaged file is unknown; it is written again.
    (tmp_path / "run" / "data.json").write_text('{"example_shape": [8, 8, 3], "classes": 0}')
    assert "data.json is damaged" in start()
    assert start() == ""
    assert find_record(directory).fingerprint == fingerprint_of(pictures)


def test_remote_copies_are_compared_by_their_names_only(monkeypatch, tmp_path):
    """Sizes would require a request for each file."""
    (tmp_path / "a.png").write_bytes(b"1234")
    local = listing.fingerprint_of([f"{tmp_path}/a.png"], ["one"])
    monkeypatch.setattr(listing.os, "stat", None)
    remote = listing.fingerprint_of(["gs://bucket/data/a.png"], ["one"])
    assert local["sizes"] is not None and remote["sizes"] is None
    assert describe_changes(local, remote) == ""
    other = listing.fingerprint_of(["gs://bucket/data/b.png"], ["one"])
    assert describe_changes(local, other) == "the file names differ"


def test_records_and_prepared_datasets_have_a_fingerprint(prepared, tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "one.tfrecord")) as writer:
        image = tf.train.Feature(
            bytes_list=tf.train.BytesList(
                value=[tf.io.encode_png(np.zeros([8, 8, 3], np.uint8)).numpy()]
            )
        )
        features = tf.train.Features(feature={"image": image})
        writer.write(tf.train.Example(features=features).SerializeToString())
    records = Config(dataset="tfrecord", data_dir=f"{tmp_path}/*.tfrecord")
    of_records = find_data(records).fingerprint()
    of_mnist = find_data(Config(dataset="mnist", data_dir=prepared)).fingerprint()
    assert of_records["files"] == of_mnist["files"] == 1
    assert of_records["sizes"] != of_mnist["sizes"]
    assert find_data(Config()).fingerprint() is None


def test_features_of_other_examples_are_computed_again(tmp_path, capsys):
    def features(value, examples):
        """Returns the features that an evaluation of `examples` uses, and computes as `value`."""
        cache = ArrayCache(str(tmp_path))
        found = cache.get_or_compute("x", lambda: {"a": np.array(value)}, lambda: examples)
        cache.write()
        return found["a"]

    assert features(1, "old") == features(2, "old") == 1
    assert capsys.readouterr().err == ""
    assert features(3, "new") == 3
    assert "x.npz was computed from other examples; it will be computed" in capsys.readouterr().err
    assert features(4, "new") == 3


@pytest.mark.slow
def test_images_replaced_by_others_of_the_same_size_are_evaluated_again(pictures, tmp_path, capsys):
    run = tmp_path / "run"
    resume(run, train_steps=5, **of(pictures, evaluate_interval=0))
    flags = ["--mode=evaluate", f"--model_dir={run}", "--evaluate_samples=8"]
    flags.append(f"--data_dir={pictures}")
    assert call_main(*flags) == 0
    before = capsys.readouterr()
    for number, file in enumerate(sorted((pictures / "a").iterdir())):
        size = file.stat().st_size
        picture(file, level=255 - 30 * number)
        assert file.stat().st_size == size
    assert call_main(*flags) == 0
    after = capsys.readouterr()
    assert ".npz was computed from other examples; it will be computed again" in after.err
    shutil.rmtree(run / "evaluation")
    assert call_main(*flags) == 0
    fresh = capsys.readouterr()
    assert fresh.out == after.out != before.out and "have changed since" not in fresh.err


@pytest.mark.slow
def test_damaged_lines_are_moved_and_training_continues(run, capsys):
    whole = {}
    for name in ("metrics.jsonl", "evaluation.jsonl"):
        path = run / name
        whole[name] = first, second = path.read_bytes().splitlines(keepends=True)
        damaged = [b"\xff{}\n", b'{"step": "5"}\n', b"[" * 100_000 + b"\n", b'{"a": 1}\n']
        damaged += [b'{"step": 5, "a": [1]}\n', b'{"step": true}\n', b'{"step": -5}\n', b"\x00\n"]
        damaged += [b"\n"]
        path.write_bytes(b"".join([first, *damaged, second, b'{"step": 15, "cri']))
    resume(run, train_steps=15)
    said = capsys.readouterr().err
    for name, lines in whole.items():
        path = run / name
        assert (
            f"warning: {path} has damaged lines (2, 3, 4, 5, 6, 7, 8, 9, 10); they were moved to "
            f"{path}.damaged\n"
        ) in said
        assert path.with_name(f"{name}.damaged").read_bytes() == b"".join(damaged)
        found = path.read_bytes().splitlines(keepends=True)
        assert found[:2] == lines and len(found) == 3 and json.loads(found[2])["step"] == 15


def test_a_warning_lists_the_first_damaged_lines(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    path.write_text("?\n" * 12 + '{"step": 5}\n')
    JsonlWriter(str(path)).begin(10)
    assert "(1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more)" in capsys.readouterr().err
    assert path.read_text() == '{"step": 5}\n'


def test_a_line_without_a_line_break_is_kept_and_a_repeated_step_is_damaged(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5}\n{"step": 10}\n{"step": 5}\n{"step": 15}')
    JsonlWriter(str(path)).begin(15)
    assert path.read_text() == '{"step": 5}\n{"step": 10}\n{"step": 15}\n'
    assert (tmp_path / "metrics.jsonl.damaged").read_text() == '{"step": 5}\n'


@pytest.mark.slow
def test_a_renamed_checkpoint_is_refused(run, capsys):
    for file in sorted((run / "checkpoints").glob("ckpt-5.*")):
        file.rename(file.with_name(file.name.replace("ckpt-5", "ckpt-18")))
    assert call_main("--mode=sample", f"--model_dir={run}") == 2
    assert (
        "ckpt-18 contains the state after 5 iterations — rename its files to ckpt-5"
        in capsys.readouterr().err
    )


def test_a_checkpoint_without_its_manifest_is_skipped_with_a_warning(run, capsys):
    (run / "checkpoints" / "ckpt-10.json").unlink()
    assert call_main("--mode=sample", f"--model_dir={run}") == 0
    said = capsys.readouterr().err
    assert f"warning: {run}/checkpoints/ckpt-10 is incomplete (a file is missing) and" in said
    assert "ckpt-5: 5 iterations" in said


def test_an_incomplete_line_does_not_damage_the_next_evaluation(run):
    log = run / "evaluation.jsonl"
    log.write_text('{"step": 5, "samp')
    assert call_main("--mode=evaluate", f"--model_dir={run}", "--evaluate_samples=10") == 0
    torn, line = log.read_text().splitlines()
    assert torn == '{"step": 5, "samp' and json.loads(line)["samples"] == 10


@pytest.mark.slow
def test_a_run_without_its_checkpoints_does_not_silently_start_from_scratch(run, capsys):
    shutil.rmtree(run / "checkpoints")
    whole = (run / "metrics.jsonl").read_text()
    lines = "".join(f'{{"step": {step}}}\n' for step in (5, 10, 15, 20))
    (run / "metrics.jsonl").write_text(lines)
    before = content_of(run)
    message = r"no checkpoint, but \S+/metrics.jsonl contains summaries of iterations 5 to 20"
    with pytest.raises(UserError, match=message):
        resume(run, train_steps=10)
    assert content_of(run) == before
    # A run that was killed before its first checkpoint starts from scratch.
    (run / "metrics.jsonl").write_text(whole)
    resumed, _ = resume(run, train_steps=5)
    said = capsys.readouterr().err
    assert "contains summaries up to iteration 10 but no checkpoint — training starts again" in said
    assert int(resumed.state.iteration) == 5


def test_a_start_reads_the_configuration_and_the_summaries_once(run, monkeypatch):
    shutil.rmtree(run / "checkpoints")
    directory, paths = RunDirectory(str(run)), []
    config = read_config(directory)
    for module, name in ((saved_run, "read_dataclass"), (directory_module, "read_log")):
        read = getattr(module, name)

        def noted(*arguments, read=read):
            paths.append(arguments[-1])
            return read(*arguments)

        monkeypatch.setattr(module, name, noted)
    data = DataRecord(DataSpec((2,), 0))
    check_resume(directory, config)
    assert directory.checked == config
    check_data(directory, data)
    directory.claim(config, data)
    assert paths == [f"{run}/config.json", f"{run}/metrics.jsonl"]


def test_a_resume_from_a_checkpoint_does_not_read_the_summaries(run, monkeypatch):
    monkeypatch.setattr(directory_module, "read_log", None)
    directory = RunDirectory(str(run))
    check_resume(directory, read_config(directory))


@pytest.mark.parametrize(
    ("settings", "steps", "refused"),
    [
        ({"checkpoint_interval": 40, "steps_per_loop": 5}, range(55, 85, 5), False),  # restore_from
        ({"checkpoint_interval": 40, "steps_per_loop": 5}, range(55, 110, 5), True),
        ({"checkpoint_interval": 5, "steps_per_loop": 50}, [50], False),
        ({"checkpoint_interval": 5, "steps_per_loop": 50}, [50, 100], False),
        ({"checkpoint_interval": 5, "steps_per_loop": 50}, [50, 100, 150], True),
        ({"checkpoint_interval": 0}, range(5, 500, 5), False),  # only at the end
        ({"checkpoint_interval": 5}, [], False),
    ],
)
def test_missing_checkpoints_are_an_error_only_if_they_must_have_been_saved(
    tmp_path, settings, steps, refused
):
    config = Config(model_dir=str(tmp_path), **settings)
    directory = RunDirectory(str(tmp_path))
    directory.claim(config, DataRecord(DataSpec((8, 8, 1), 0))).release()
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"step": {s}}}\n' for s in steps))
    if not refused:
        check_resume(directory, config)
        return
    with pytest.raises(UserError, match="contains no checkpoint, but"):
        check_resume(directory, config)


def test_a_resume_that_cannot_be_evaluated_changes_nothing(run):
    before = content_of(run)
    with pytest.raises(UserError, match="--feature_extractor=inception is for images"):
        resume(run, train_steps=15, steps_per_loop=1, feature_extractor="inception")
    assert content_of(run) == before


@pytest.mark.slow
def test_a_checkpoint_that_the_previous_process_saves_late_is_restored(run, tmp_path, monkeypatch):
    for file in sorted((run / "checkpoints").glob("ckpt-10.*")):
        file.rename(tmp_path / file.name)
    claim = RunDirectory.claim

    def claim_late(directory, config, data):
        for file in sorted(tmp_path.glob("ckpt-10.*")):
            file.rename(run / "checkpoints" / file.name)
        return claim(directory, config, data)

    monkeypatch.setattr(RunDirectory, "claim", claim_late)
    resume(run, train_steps=15)
    assert [step for step, _ in read_log(str(run / "metrics.jsonl")).lines] == [5, 10, 15]


@pytest.mark.parametrize(
    ("steps", "kept", "damaged"),
    [
        ([5, 100, 15, 20, 25], [5, 15, 20, 25], []),  # 100 is later than the checkpoint
        ([5, 10, 3, 20, 30, 35], [5, 10, 20], [3]),
        ([5, 20, 15, 25], [5, 20, 25], [15]),
        ([5, 10, 10, 15], [5, 10, 15], [10]),
        ([5, 10], [5, 10], []),
        ([], [], []),
    ],
)
def test_lines_later_than_the_checkpoint_are_removed_and_those_out_of_order_moved_aside(
    tmp_path, steps, kept, damaged
):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}}}\n' for step in steps))
    JsonlWriter(str(path)).begin(25)
    assert [step for step, _ in read_log(str(path)).lines] == kept
    aside = tmp_path / "metrics.jsonl.damaged"
    assert aside.exists() == bool(damaged)
    assert not damaged or [step for step, _ in read_log(str(aside)).lines] == damaged


@pytest.mark.parametrize("name", ["config.json", "data.json"])
def test_an_edit_and_a_missing_checksum_are_detected(run, capsys, name):
    path = run / name
    saved = json.loads(path.read_text())
    changed = {"config.json": {"seed": 8}, "data.json": {"classes": 1}}[name]
    without = {key: value for key, value in saved.items() if key != "checksum"}
    for content in ({**saved, **changed}, without):
        path.write_text(json.dumps(content))
        assert call_main("--mode=sample", f"--model_dir={run}") == 2
        error = capsys.readouterr().err
        assert f"error: {path} is damaged or was edited: it is not a JSON object with" in error


@pytest.mark.parametrize(
    "content",
    [b"[1", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"1" * 5000, b""],
)
def test_a_file_that_is_not_a_json_object_is_a_one_line_error(run, capsys, content):
    for name in ("config.json", "data.json"):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(content)
        assert call_main("--mode=sample", f"--model_dir={run}") == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"error: {run}/{name} is damaged or was edited: it is not a JSON ")
        (run / name).write_bytes(whole)


@pytest.mark.parametrize(
    "change",
    [
        {"example_shape": [2.5]},
        {"example_shape": 2},
        {"example_shape": [2, 2, 2, 2, 2]},
        {"example_shape": [-2]},
        {"example_shape": ["2"]},
        {"example_shape": [10**30]},
        {"classes": None},
        {"classes": -1},
        {"scaling": [1]},
    ],
)
def test_a_data_record_with_invalid_values_is_a_one_line_error(tmp_path, change):
    path, saved = f"{tmp_path}/data.json", {"example_shape": [2], "classes": 0, "bounded": False}
    write_object(path, {"spec": saved})
    assert read_dataclass(DataRecord, path) == DataRecord(DataSpec((2,), 0, bounded=False))
    write_object(path, {"spec": {**saved, **change}})
    with pytest.raises(UserError, match=rf"^{path} is damaged: spec\."):
        read_dataclass(DataRecord, path)


def test_training_replaces_a_damaged_data_record(run, capsys):
    whole = (run / "data.json").read_bytes()
    (run / "data.json").write_bytes(whole.replace(b"2", b"3"))
    resume(run, train_steps=10)
    assert "data.json is damaged or was edited" in capsys.readouterr().err
    assert (run / "data.json").read_bytes() == whole


@pytest.mark.parametrize("pid", ["1\x00", "../self", 10**30, -1, None, [], True])
def test_a_damaged_lock_file_does_not_block_a_run(tmp_path, pid):
    lock = Lock(f"{tmp_path}/owner.json")
    mark = {**lock._holder, "pid": pid}
    (tmp_path / "owner.json").write_text(json.dumps(mark))
    lock.acquire()
    lock.check()
    (tmp_path / "owner.json").write_text("[" * 100_000)
    lock.acquire()


@pytest.mark.slow
def test_existing_output_is_not_replaced(run, tmp_path, capsys):
    sample = ["--mode=sample", f"--model_dir={run}", f"--output={tmp_path}/a.png"]
    exports = [["--mode=export", f"--model_dir={run}"]]
    exports.append([*exports[0], f"--output={tmp_path}/export"])
    for command in (sample, *exports):
        assert call_main(*command) == 0
    before = content_of(tmp_path)
    capsys.readouterr()
    for command, says in (
        (sample, f"--output={tmp_path}/a.png already exists — give another file name, or delete"),
        (
            exports[0],
            f"{run}/exported already contains files — delete them, or give a new --output",
        ),
        (exports[1], f"--output={tmp_path}/export already contains files — delete them"),
    ):
        assert call_main(*command) == 2
        assert f"error: {says}" in capsys.readouterr().err
    assert content_of(tmp_path) == before


def test_a_read_only_run_can_be_evaluated(run, capsys, monkeypatch):
    """The error is simulated, because the tests may run as root, who can write everywhere."""
    before = content_of(run)

    def refuse(path):
        raise tf.errors.PermissionDeniedError(None, None, f"{path}; Read-only file system")

    monkeypatch.setattr(tf.io.gfile, "makedirs", refuse)
    assert call_main("--mode=evaluate", f"--model_dir={run}", "--evaluate_samples=10") == 0
    output = capsys.readouterr()
    assert "wasserstein" in output.out
    assert "Read-only file system), so these metrics are not recorded" in output.err
    assert content_of(run) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "resnet7"}, "--model=resnet7 is unknown — use one of mlp, "),
        ({"generator_model": "none"}, "--generator_model=none is unknown — use one of mlp, "),
        ({"model_width": 0}, "config.json is damaged: --model_width=0 is too small — "),
    ],
)
def test_an_impossible_configuration_is_a_one_line_error(run, capsys, change, says):
    plant(run, **change)
    for mode in ("sample", "export", "evaluate"):
        capsys.readouterr()
        assert call_main(f"--mode={mode}", f"--model_dir={run}") == 2
        assert says in capsys.readouterr().err.splitlines()[-1]


def test_an_error_while_a_run_is_used_is_one_line(run, capsys, monkeypatch):

    def fail(*arguments):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    for mode in ("sample", "export", "evaluate"):
        monkeypatch.setattr(modes, f"_{mode}", fail)
        assert call_main(f"--mode={mode}", f"--model_dir={run}") == 2
        assert "error: the run does not fit in memory (OOM" in capsys.readouterr().err


@pytest.mark.parametrize("existed", [True, False])
def test_a_folder_is_as_it_was_if_its_files_cannot_be_moved(tmp_path, monkeypatch, existed):
    move, folder = files._move, tmp_path / "out"

    def fail(source, target):
        if target.endswith("b"):
            raise OSError("No space left on device")
        move(source, target)

    monkeypatch.setattr(files, "_move", fail)
    if existed:
        folder.mkdir()

    def write():
        with files.new_folder(str(folder)) as inside:
            for name in "abc":
                (pathlib.Path(inside) / name).write_text(name)

    with pytest.raises(OSError, match="No space"):
        write()
    assert folder.exists() == existed and not list(folder.glob("*"))


def test_what_was_moved_before_a_kill_is_not_mixed_with_other_files(tmp_path):
    (tmp_path / "out" / ".incomplete").mkdir(parents=True)
    files.check_new_folder("--output=out", f"{tmp_path}/out")
    (tmp_path / "out" / "00000.png").write_text("an earlier sample")
    with pytest.raises(UserError, match="--output=out already contains files — delete them"):
        files.check_new_folder("--output=out", f"{tmp_path}/out")
