"""The rules of docs/architecture.md: permitted imports, and short signatures.

`make lint` checks the layers inside wgan_gp: contracts of import-linter in pyproject.toml.
"""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# The packages that each part may import, in addition to the standard library and itself.
ALLOWED = {
    "losses": {"tensorflow"},
    "models": {"tensorflow"},
    "wgan_gp": {
        "absl",
        "tensorflow",
        "tensorflow_datasets",
        "google",
        "googleapiclient",  # asks Google for the location of a bucket
        "h5py",  # Keras requires it
        "joblib",
        "numpy",
        "pandas",
        "PIL",
        "psutil",
        "pyarrow",  # optional: Parquet
        "requests",  # with which tensorflow-datasets downloads
        "scipy",  # scikit-learn requires it and threadpoolctl
        "sklearn",
        "tensorboard",
        "threadpoolctl",
        "tqdm",
    },
    "wgan_gp/tpu": {"absl", "tensorflow", "numpy", "jax"},
    "wgan_gp/pjrt": {"absl", "tensorflow", "numpy", "jax"},
    # The only file that uses private names of jax, which another version may lack.
    "wgan_gp/pjrt/client.py": {"numpy", "jax", "jaxlib"},
    # Pictures of images are drawn without Matplotlib, whose import takes a second.
    "wgan_gp/inference/plots.py": {"matplotlib", "numpy"},
    # Each of these is optional, and only one module imports it.
    "wgan_gp/writers/mlflow.py": {"mlflow", "numpy"},
    "wgan_gp/writers/notebook.py": {"IPython", "numpy", "tensorflow", "tqdm"},
    "wgan_gp/writers/wandb.py": {"numpy", "wandb"},
    "wgan_gp/data/sources/decode.py": {"absl", "numpy", "PIL", "tifffile"},
    "flags.py": {"absl", "wgan_gp", "wgan_gp.config.settings", "wgan_gp.config", "wgan_gp.errors"},
    # The packages and the module next to the engine in a checkout.
    "wgan_gp/__init__.py": {"losses", "models"},
    "wgan_gp/__main__.py": {"flags"},
    "train.py": {"flags", "wgan_gp", "wgan_gp.app", "wgan_gp.runtime"},
}


def _has_own_rule(path):
    parents = [str(each.relative_to(ROOT)) for each in (path, path.parent)]
    return any(each in ALLOWED and each != "wgan_gp" for each in parents)


FILES = [
    (part, path)
    for part in ALLOWED
    for path in sorted([*(ROOT / part).rglob("*.py")] or [ROOT / part])
    if part != "wgan_gp" or not _has_own_rule(path)
    if str(path.relative_to(ROOT)) == part or str(path.relative_to(ROOT)) not in ALLOWED
]
USER_CODE = ROOT / "wgan_gp" / "app" / "user_code" / "loading.py"


def imports(path):
    """Returns the absolute names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


@pytest.mark.parametrize(
    ("part", "path"), FILES, ids=lambda value: str(value).removeprefix(f"{ROOT}/")
)
def test_imports_are_permitted(part, path):
    for name in imports(path):
        top = name.partition(".")[0]
        allowed = {top, name} & (ALLOWED[part] | sys.stdlib_module_names)
        assert allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_one_file_uses_private_names_of_jax():
    files = {
        path.name
        for path in (ROOT / "wgan_gp").rglob("*.py")
        if any(name.startswith(("jax._", "jaxlib")) for name in imports(path))
    }
    assert files == {"client.py"}


@pytest.mark.parametrize("part", ["losses", "models"])
def test_reusable_packages_use_only_relative_imports_of_themselves(part):
    """They therefore also work as wgan_gp.losses and wgan_gp.models."""
    for path in (ROOT / part).rglob("*.py"):
        depth = len(path.relative_to(ROOT / part).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= depth, path


def test_one_file_imports_the_packages_next_to_the_engine():
    for path in (ROOT / "wgan_gp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if getattr(getattr(node, "func", None), "attr", "") == "import_module":
                # With a second argument, the name is relative to the package itself.
                # A module that the user names is not a part of this project.
                assert len(node.args) == 2 or path == USER_CODE, path


def test_a_missing_dependency_of_the_packages_is_not_hidden():
    """They are looked for in the package first, where the wheel has them."""
    code = (
        "import sys, types\n"
        "import importlib.abc\n"
        "class Broken(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'wgan_gp.losses':\n"
        "            raise ModuleNotFoundError('No module named numpy', name='numpy')\n"
        "sys.meta_path.insert(0, Broken())\n"
        "import wgan_gp\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named numpy"


def test_only_the_composition_takes_a_whole_configuration():
    """Everything else takes a section, or plain arguments."""
    for path in (ROOT / "wgan_gp").rglob("*.py"):
        part = path.relative_to(ROOT / "wgan_gp").parts[0]
        if part in ("app", "config", "__init__.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert "Config" not in [alias.name for alias in node.names], path


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def test_the_entry_point_stays_small():
    assert len((ROOT / "train.py").read_text().splitlines()) <= 80


def test_constructors_take_at_most_seven_arguments():
    for part in ("wgan_gp", "losses", "models"):
        for path in (ROOT / part).rglob("*.py"):
            for function in functions(path):
                given = function.args.args + function.args.kwonlyargs
                if function.name == "__init__":
                    assert len(given) - 1 <= 7, f"{path}:{function.lineno}"
