"""Trained runs that the tests of this folder share."""

import contextlib
import io

import pytest

from tests.helpers.runs import DCGAN, train_tiny

SETTINGS = {
    "digits": {"dataset": "digits"},
    "classes": {**DCGAN, "conditioning": "acgan", "generator_ema_decay": 0.5},
    "projection": {"dataset": "digits", "conditioning": "projection"},
    "points": {"dataset": "gaussians_8", "checkpoint_interval": 3, "steps_per_loop": 1},
}


class Runs(dict):
    """Run directories by name, each trained for 5 iterations when a test first asks for it."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def __missing__(self, name):
        with contextlib.redirect_stderr(io.StringIO()):  # tests look at what is said
            train_tiny(self._folder / name, train_steps=5, **SETTINGS[name])
        self[name] = self._folder / name
        return self[name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Returns run directories by name: images, images of classes (two networks), and points."""
    return Runs(tmp_path_factory.mktemp("runs"))
