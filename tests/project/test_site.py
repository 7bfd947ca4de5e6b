"""Tests of the documentation as a site."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {path.name for path in (ROOT / "docs").glob("*.md")}
CONFIG = (ROOT / "mkdocs.yml").read_text()
NAMES = (
    "losses.gradient_penalty",
    "models.Registry.build",
    "wgan_gp.train",
    "wgan_gp.config.DataSettings.dataset",
    "wgan_gp.training.hooks.IntervalHook.act",
    "wgan_gp.writers.writer.Writer.scalars",
)


def build(folder, *arguments):
    """Builds the site with the settings and the pages of a folder."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_site_has_every_page_and_every_public_name(tmp_path):
    """Every link and every anchor is checked, because mkdocs.yml says `strict`."""
    done = build(ROOT, "--site-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in tmp_path.glob("*.html")} >= {page[:-3] for page in PAGES}
    reference = (tmp_path / "api.html").read_text()
    assert [name for name in NAMES if f'id="{name}"' not in reference] == []
    # Pages can be read without a network.
    loaded = r'<(?:script|img)[^>]* src="http|<link[^>]*stylesheet[^>]*"http'
    assert not [
        path.name for path in tmp_path.glob("*.html") if re.search(loaded, path.read_text())
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[page](dataa.md)", "'dataa.md'"),
        ("[part](data.md#no-such-part)", "no-such-part"),
        ("[code](../train.py)", "'../train.py'"),
    ],
)
def test_a_dead_link_is_an_error(tmp_path, text, message):
    (tmp_path / "docs").mkdir()
    settings = re.sub(r"(?s)  - mkdocstrings:.*?(?=markdown_extensions)|nav:.*", "", CONFIG)
    (tmp_path / "mkdocs.yml").write_text(settings)
    (tmp_path / "docs" / "data.md").write_text("# Data\n")
    page = tmp_path / "docs" / "index.md"
    page.write_text("# Page\n")
    assert build(tmp_path).returncode == 0
    page.write_text(f"# Page\n\n{text}\n")
    done = build(tmp_path)
    assert done.returncode == 1 and message in done.stderr


def test_the_index_and_the_navigation_have_every_page_in_the_same_order():
    index = re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "index.md").read_text())
    navigation = re.findall(r"      - (\w+\.md)", CONFIG)
    assert navigation == ["index.md", *index]
    assert set(navigation) == PAGES
