"""The arrows of docs/architecture.md: who may import whom."""

import ast
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# What each part may import beside the standard library and itself. train.py composes, so
# everything of the project is open to it.
ALLOWED = {
    "losses": {"tensorflow"},
    "models": {"tensorflow"},
    "wgan_gp": {
        "tensorflow",
        "tensorflow_datasets",
        "google",
        "numpy",
        "PIL",
        "requests",  # what tensorflow-datasets downloads with
        "scipy",  # with threadpoolctl, what scikit-learn itself needs
        "sklearn",
        "tensorboard",
        "threadpoolctl",
        "tqdm",
    },
    "wgan_gp/tpu": {"tensorflow", "numpy", "jax", "jaxlib"},
    "flags.py": {"absl", "wgan_gp.config.checks", "wgan_gp.config", "wgan_gp.errors"},
    "train.py": {"tensorflow", "flags", "models", "losses", "wgan_gp"},
}
FILES = [
    (part, path)
    for part in ALLOWED
    for path in sorted([*(ROOT / part).rglob("*.py")] or [ROOT / part])
    if part == "wgan_gp/tpu" or ROOT / "wgan_gp" / "tpu" not in path.parents
]


def imports(path):
    """Absolute names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


@pytest.mark.parametrize(
    ("part", "path"), FILES, ids=lambda value: str(value).removeprefix(f"{ROOT}/")
)
def test_imports_follow_the_arrows(part, path):
    for name in imports(path):
        top = name.partition(".")[0]
        allowed = {top, name} & (ALLOWED[part] | sys.stdlib_module_names)
        assert allowed, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("part", ["losses", "models"])
def test_reusable_packages_stay_inside_themselves(part):
    """Only relative imports, so that they also work as wgan_gp.losses and wgan_gp.models."""
    for path in (ROOT / part).rglob("*.py"):
        depth = len(path.relative_to(ROOT / part).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= depth, path
