"""The commands of the documents: their flags exist, and no command is in the way of another."""

import pathlib
import re
import shlex

import pytest
from absl import flags as absl_flags

import flags
from wgan_gp.config import Config
from wgan_gp.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = ("configs/*.flags", "examples/*/*", "studies/*.md", "notebooks/*.ipynb", ".github/*/*.yml")
FILES = [*PAGES, ROOT / "Dockerfile", *(path for each in OTHERS for path in ROOT.glob(each))]
COMMAND = re.compile(
    r'make (?P<target>train|doctor) ARGS="(?P<of_make>[^"]*)"'
    r"|(?:python train\.py|\bwgan-gp) (?P<own>--[^`#|\n]*)"
)
ENDS_AT_ONCE = ("--help", "--version")


def commands(path):
    """Returns the flags of each command of a file, whose lines may be continued by backslashes."""
    text = re.sub(r"\\\n\s*(?:#\s+)?", " ", path.read_text())
    found = []
    for match in COMMAND.finditer(text):
        words = shlex.split((match["of_make"] or match["own"]).replace("\n", " "))
        words += ["--mode=doctor"] if match["target"] == "doctor" else []
        found.append([word for word in words if word != "..."])
    return [words for words in found if not words[0].startswith(ENDS_AT_ONCE)]


def parse(words):
    values = absl_flags.FlagValues()
    flags.define(values)
    return flags.parse(["train.py", *words], values)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_has_flags_that_exist(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in commands(path):
        assert isinstance(parse(words), Config), words


def test_a_command_with_another_flag_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('    make train ARGS="--seed=1 \\\n        --iterations=20"\n')
    ((seed, iterations),) = commands(page)
    assert parse([seed]).seed == 1
    with pytest.raises(UserError, match="--iterations is unknown"):
        parse([seed, iterations])


def test_the_commands_are_found():
    assert ["--mode=evaluate"] in commands(ROOT / "README.md")
    assert sum(len(commands(path)) for path in FILES) > 100


def test_the_pages_can_be_followed_in_any_order(monkeypatch):
    """A run is refused if another one has left its files in the same directory."""
    monkeypatch.chdir(ROOT)
    first = {}
    for path in PAGES:
        for words in commands(path):
            config = parse(words)
            if config.mode != "train":
                continue
            other = first.setdefault(config.run_directory, config)
            where = f"{path.name}: {shlex.join(words)}"
            assert config.differences(other) == {}, where
            assert config.data_dir == other.data_dir, where
    programs = [
        block
        for path in PAGES
        for block in re.findall(r"(?ms)^```python\n(.*?)^```", path.read_text())
        if "wgan_gp.train(" in block
    ]
    directories = [re.findall(r'model_dir="(.*?)"', block) for block in programs]
    assert all(len(each) == 1 for each in directories), programs
    names = [name for (name,) in directories]
    assert len(names) > 5 and len({*names, *first}) == len(names) + len(first)
