"""The fixture of tests in which a training is short and not what is tested."""

import pytest

from tests.helpers.runs import without_tracing


@pytest.fixture
def untraced():
    """Runs functions without tracing them, which takes most of the time of a short training."""
    with without_tracing():
        yield
