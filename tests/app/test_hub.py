"""--mode=push and wgan_gp.load("hf://...") with a fake of the hub on this machine."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

import wgan_gp
from tests.helpers import hub as fake
from tests.helpers.runs import call_main, train_tiny
from wgan_gp.app.generator_files import FILES
from wgan_gp.config import Config
from wgan_gp.errors import UserError


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with fake.serve() as server:
        server.configure(tmp_path, monkeypatch)
        yield server


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    train_tiny(path, train_steps=2)
    return path


def push(run, *arguments):
    return call_main("--mode=push", f"--model_dir={run}", *arguments)


@pytest.mark.slow
def test_a_pushed_generator_is_loaded_with_the_same_samples(hub, run, tmp_path, capsys):
    before = sorted(path.name for path in run.iterdir())
    assert push(run, "--hub=me/digits") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{hub.url}/me/digits"
    assert hub.private == {"me/digits": True}
    files = hub.files["me/digits"]
    assert {*FILES, "README.md", "samples.png", "generator.keras"} <= set(files)
    assert any(name.startswith("saved_model/") for name in files)
    assert b'wgan_gp.load("hf://me/digits")' in files["README.md"]
    assert sorted(path.name for path in run.iterdir()) == before
    flags = [f"--model_dir={run}", f"--output={tmp_path}/samples.npy", "--num_samples=9"]
    assert call_main("--mode=sample", *flags) == 0
    expected = np.load(tmp_path / "samples.npy")
    files |= {"evil.py": b"raise SystemExit", "weights.pkl": b"x"}
    for reference in ("hf://me/digits", f"hf://me/digits@{fake.COMMIT}", "hf://me/digits@main"):
        np.testing.assert_array_equal(wgan_gp.load(reference).sample(9), expected)
    assert sorted(hub.downloads) == sorted(FILES)  # each once, and nothing else
    hub.private["me/digits"] = False
    assert push(run, "--hub=hf://me/digits", "--export_format=keras") == 0
    assert hub.private == {"me/digits": False}


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "you are not logged in, or your token is not valid — run `hf auth login`, or set HF"),
        (403, "your token has no permission for it — use a token that may write there"),
        (404, "there is no such repository, or your account may not read it — check the name"),
        (418, "the hub answers with status 418 ("),
    ],
)
def test_a_refused_upload_is_one_line(status, says, hub, run, capsys):
    hub.status = status
    assert push(run, "--hub=me/digits") == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert error.startswith("error: --hub=me/digits: ") and says in error


def test_an_upload_without_a_token_is_one_line(hub, run, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert push(run, "--hub=me/digits") == 2
    assert "error: --hub=me/digits: you are not logged in" in capsys.readouterr().err
    assert hub.files == {}


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("hf://me/other", "hf://me/other: there is no such repository, or your account may not"),
        ("hf://me/empty@v2", "hf://me/empty@v2: the repository has no such revision — check it"),
        ("hf://me/empty", r"hf://me/empty contains no generator .* \(config.json is missing\)"),
        ("hf://me", "hf://me does not name a repository — give USER/NAME"),
        ("hf://me/../../x", "does not name a repository"),
        ("hf:///etc/passwd", "does not name a repository"),
        ("hf://me/x.git", "does not name a repository"),
        ("hf://me/x@../../y", "has no valid revision"),
        ("hf://me/x@", "has no valid revision"),
    ],
)
def test_a_reference_without_a_generator_is_one_line(reference, says, hub):
    hub.files["me/empty"] = {"README.md": b"empty"}
    with pytest.raises(UserError, match=says):
        wgan_gp.load(reference)
    assert hub.downloads == []


def test_no_network_is_one_line(hub, run, monkeypatch, capsys):
    from huggingface_hub import constants  # noqa: PLC0415

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(
        UserError, match=r"hf://me/x: the request to the hub failed .* check the netw"
    ):
        wgan_gp.load("hf://me/x")
    assert push(run, "--hub=me/x") == 2
    assert "error: --hub=me/x: the request to the hub failed (Con" in capsys.readouterr().err


def test_a_downloaded_generator_needs_no_network(hub, run, monkeypatch):
    from huggingface_hub import constants  # noqa: PLC0415

    assert push(run, "--hub=me/digits") == 0
    expected = wgan_gp.load("hf://me/digits").sample(3)
    hub.status = 503
    np.testing.assert_array_equal(wgan_gp.load("hf://me/digits").sample(3), expected)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    np.testing.assert_array_equal(wgan_gp.load("hf://me/digits").sample(3), expected)
    with pytest.raises(UserError, match="hf://me/other: the request to the hub failed"):
        wgan_gp.load("hf://me/other")


def test_a_missing_package_is_one_line(run, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "huggingface_hub" else find(name)
    )
    with pytest.raises(UserError, match=r'^hf://me/x needs the package .* pip install "huggingf'):
        wgan_gp.load("hf://me/x")
    assert push(run, "--hub=me/x") == 2
    assert "--mode=push needs the package huggingface_hub" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mode": "push"}, "--mode=push needs a repository — add --hub=USER/NAME"),
        ({"hub": "me/x"}, "--hub=me/x applies only to --mode=push"),
        ({"mode": "push", "hub": "x"}, "--hub=x does not name a repository"),
        ({"mode": "push", "hub": "me/x", "output": "y"}, "--output applies to --mode=export, not"),
        ({"mode": "push", "hub": "me/x", "export": "loop"}, "--export=loop applies to --mode=exp"),
    ],
)
def test_flags_of_other_modes_are_refused(settings, says):
    with pytest.raises(UserError, match=f"^{says}"):
        Config(**settings)


@pytest.mark.slow
def test_the_address_of_the_hub_is_that_of_the_package(hub, run, tmp_path):
    """HF_ENDPOINT is read when the package is imported."""
    program = "import wgan_gp, sys; print(wgan_gp.load('hf://me/digits').sample(2).shape)"
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": fake.TOKEN,
    }
    assert push(run, "--hub=me/digits") == 0
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "(2, 2)\n", done.stderr
