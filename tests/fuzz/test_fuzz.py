"""Small runs of the programs that search for faults, and faults that they have to find."""

import json
import random
import shutil
import signal

import pytest

from tests.helpers import forks

from . import corruptions, damage, kills, results


@pytest.mark.slow
def test_a_run_that_is_killed_often_equals_the_uninterrupted_run(tmp_path):
    """Sends SIGKILL at random moments, while the run starts or writes, which every loop does."""
    signals = 3 * [signal.SIGKILL]  # the first may come before anything is saved
    assert kills.survive(tmp_path, signals, random.Random(7)) == []
    last = kills.ITERATIONS * len(signals)
    whole, killed = tmp_path / "reference", tmp_path / "killed"
    # A difference is detected.
    for name in ("metrics.jsonl", "train"):
        path = killed / name
        shutil.rmtree(path) if path.is_dir() else path.write_text('{"step": 2}\n')
    assert results.differences(whole, killed, last) == ["metrics.jsonl", "TensorBoard"]
    for suffix in ("index", "data-00000-of-00001"):
        path = killed / "checkpoints" / f"ckpt-{last - 2}.{suffix}"
        shutil.copy(path, path.with_stem(f"ckpt-{last}"))
    found = results.differences(whole, killed, last)
    assert "iteration/.ATTRIBUTES/VARIABLE_VALUE" in found
    assert any("critic" in name for name in found)


@pytest.mark.slow
def test_a_run_on_devices_of_jax_that_is_ended_often_equals_the_uninterrupted_run(tmp_path):
    """SIGTERM saves the state after the loop, and SIGKILL loses what came after a checkpoint."""
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]
    flags = ["--runtime=pjrt", "--cpu_replicas=2"]
    assert kills.survive(tmp_path, signals, random.Random(7), *flags) == []


@pytest.mark.slow
def test_a_damaged_run_directory_gives_the_same_results_or_a_line(tmp_path):
    """Runs 8 seeds of `python -m tests.fuzz.damage`, those of points, which need fewer runs."""
    seeds = [seed for seed in range(20) if damage.dataset_of(seed) == "gaussians_8"][:8]
    failures = [failure for failure in damage.Fuzz(tmp_path).run(seeds) if failure is not None]
    assert not failures, "\n".join(failures)


def test_the_fuzz_test_detects_wrong_results(tmp_path):
    error = "error: config.json is damaged — restore it\n"
    assert results.check_process(forks.ProcessResult(2, "", f"warning: odd\n{error}")) == []
    for status, err in (
        (0, error),
        (1, error),
        (2, ""),
        (2, error * 2),
        (2, error + "warning: odd\n"),
        (0, "WARNING:tensorflow:odd\n"),
        (0, "Traceback (most recent call last):\n"),
        (None, ""),
    ):
        assert results.check_process(forks.ProcessResult(status, "", err))
    assert results.compare_values({"a": [1, 2]}, {"a": [1, 2]}) == []
    assert results.compare_values({"a": [1, 2]}, {"a": [1, 3]}) and results.compare_values(
        {"a": 1}, {}
    )
    whole = ['{"step": 5, "loss": 1}', '{"step": 10, "loss": 2}', '{"step": 15, "loss": 3}']

    def problems(found, before):
        for name, lines in (("found", found), ("before", before), ("whole", whole)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        paths = (tmp_path / "found", tmp_path / "before", tmp_path / "whole")
        return results.check_lines("metrics.jsonl", *paths, start=10)

    assert problems(whole, whole[:2]) == problems(whole[1:], whole[1:2]) == []
    other = '{"step": 5, "loss": 4}'
    assert problems([other, *whole[1:]], [other, whole[1]]) == []  # this change cannot be detected
    for found, before in (
        (whole[1:], whole[:2]),
        (whole[:2], whole[:2]),
        ([other, *whole[1:]], whole[:2]),
        ([*whole[:2], '{"step": 15, "loss": 4}'], whole[:2]),
        ([whole[0], *whole], whole[:2]),
        (["{", *whole], ["{", *whole[:2]]),
    ):
        assert problems(found, before)


def test_corruptions_are_a_function_of_their_seed(tmp_path):
    original = tmp_path / "original"
    for name in ("checkpoints", "samples", "train"):
        (original / name).mkdir(parents=True)
        (original / name / "file").write_bytes(bytes(range(200)))
    (original / "config.json").write_text(json.dumps({"seed": 0, "sizes": [1, 2], "name": "a"}))
    lines = [json.dumps({"step": step, "loss": step / 7}) for step in range(5)]
    (original / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    def content(folder):
        paths = folder.rglob("*")
        return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in paths}

    said, changed = set(), 0
    for seed in range(30):
        copies = [tmp_path / f"{seed}{name}" for name in "ab"]
        for copy in copies:
            shutil.copytree(original, copy)
        words = [corruptions.corrupt(copy, random.Random(seed)) for copy in copies]
        assert words[0] == words[1] and content(copies[0]) == content(copies[1])
        changed += content(copies[0]) != content(original)
        said.add(words[0])
    assert len(said) > 20 and changed > 20  # a file may be swapped with itself
