"""Training in a notebook: detection, progress, interruption, and notebooks/quickstart.ipynb."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from wgan_gp.runtime.signals import StopRequest, in_notebook
from wgan_gp.writers.notebook import NotebookWriter

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "notebooks" / "quickstart.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
SUMMARY = {
    "critic/loss": -1.0,
    "generator/loss": 0.5,
    "critic/wasserstein": 1.25,
    "throughput/images_per_second": 100.0,
    "throughput/data_wait_share": 0.0,
    "throughput/host_share": 0.0,
}


class Handle:
    """Records the contents of an output of a notebook."""

    def __init__(self, content, metadata):
        self.contents, self.metadata = [content], metadata

    def update(self, content, *, raw, metadata):
        assert raw
        self.contents.append(content)


@pytest.fixture
def notebook(monkeypatch):
    """Pretends to be in a notebook, and returns its outputs."""
    outputs = []

    def display(content, *, raw, metadata, display_id):
        assert raw and display_id
        outputs.append(Handle(content, metadata))
        return outputs[-1]

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return outputs


def test_a_terminal_is_not_a_notebook(notebook, monkeypatch):
    assert in_notebook()
    for shell in (None, types.SimpleNamespace()):  # plain Python, IPython in a terminal
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda shell=shell: shell)
        assert not in_notebook()


def test_detection_does_not_import_ipython():
    program = (
        "import sys; from wgan_gp.runtime.signals import in_notebook\n"
        "assert not in_notebook() and 'IPython' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_progress_and_samples_are_updated_in_place(notebook, capsys):
    writer = NotebookWriter(total=100, clock=lambda: 0.0)
    writer.begin(0)
    writer.progress(50)
    writer.scalars(50, SUMMARY)
    samples = np.zeros((16, 24, 3), np.uint8)
    for step, tag in ((50, "samples"), (50, "data"), (100, "samples")):
        writer.image(step, tag, samples)
    writer.text(100, "diagnosis", "healthy")
    writer.evaluation(100, {"evaluation/fid": 0.5})
    writer.close()
    progress, image = notebook
    texts = [content["text/plain"] for content in progress.contents]
    assert "0/100" in texts[0] and "50/100" in texts[1] and "wasserstein 1.250" in texts[2]
    assert [content["text/plain"] for content in image.contents] == [
        "samples after 50 iterations",
        "samples after 100 iterations",
    ]
    assert all(content["image/png"].startswith(b"\x89PNG") for content in image.contents)
    assert image.metadata == {"image/png": {"width": 264, "height": 176}}
    assert capsys.readouterr().out == "100/100: diagnosis: healthy\n100/100: fid 0.5\n"


@pytest.mark.parametrize(("step", "line"), [(100, "all iterations are done"), (40, "resumed")])
def test_a_resume_is_shown(notebook, step, line):
    NotebookWriter(total=100).begin(step)
    assert line in notebook[0].contents[0]["text/plain"]


def test_a_second_interrupt_keeps_the_kernel(notebook):
    """The end of the process would delete the variables of the notebook."""
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_notebook_is_stored_without_outputs():
    for cell in NOTEBOOK["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    (own_networks,) = [code for code in CODE if "generator = " in code]
    assert len([line for line in own_networks.splitlines() if line]) <= 17  # with both imports


class Kernel:
    """A kernel of Jupyter that executes code like a notebook.

    Args:
      folder: The current folder of the kernel.
    """

    def __init__(self, folder):
        from jupyter_client.manager import KernelManager  # noqa: PLC0415

        self._manager = KernelManager()
        # This Python, whatever kernels are registered on the machine.
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager.kernel_spec.argv = command
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._manager.start_kernel(cwd=str(folder), env={**os.environ, "PYTHONPATH": path})
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)

    def execute(self, code, interrupt_at=None):
        """Returns the outputs of code: data by type for displays, and texts of streams.

        Args:
          code: The content of a cell.
          interrupt_at: A text. The kernel is interrupted when it is first printed.
        """
        request, outputs, deadline = self._client.execute(code), [], time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                message = self._client.get_iopub_msg(timeout=5)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "error":
                raise AssertionError("\n".join(content["traceback"]))
            if kind == "status" and content["execution_state"] == "idle":
                return outputs
            if kind == "stream":
                outputs.append({"text/plain": content["text"]})
                if interrupt_at is not None and interrupt_at in content["text"]:
                    interrupt_at = None
                    self._manager.interrupt_kernel()
            elif "data" in content:
                outputs.append(content["data"])
        raise AssertionError(f"the cell did not end: {outputs}")

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    started = Kernel(tmp_path_factory.mktemp("notebook"))
    yield started
    started.close()


@pytest.mark.slow
def test_the_quickstart_runs(kernel):
    """Executes all cells, with fewer iterations, in one kernel."""
    outputs = []
    for code in CODE:
        shorter = code.replace("train_steps=2000", "train_steps=100").replace("=200,", "=50,")
        outputs.append(kernel.execute(shorter))
    training = next(each for each, code in zip(outputs, CODE, strict=True) if "Config(" in code)
    assert any("100/100" in output["text/plain"] for output in training)
    assert any(output["text/plain"] == "samples after 100 iterations" for output in training)
    images = [len([each for each in cell if "image/png" in each]) for cell in outputs]
    assert images == [0, 2, 1, 0, 0, 3]
    printed = "".join(each["text/plain"] for cell in outputs for each in cell)
    assert "100 iterations: estimated Wasserstein distance" in printed and "FID " in printed


@pytest.mark.slow
def test_an_interrupt_saves_and_the_cell_can_be_executed_again(kernel):
    kernel.execute(
        "import wgan_gp\n"
        "class Print(wgan_gp.Hook):\n"
        "    def after_loop(self, loop):\n"
        "        print('loop', loop.iteration, flush=True)\n"
        "config = wgan_gp.Config(dataset='swiss_roll', model='mlp', model_width=4, batch_size=16,\n"
        "    model_dir='runs/long', train_steps=1_000_000, steps_per_loop=5,\n"
        "    checkpoint_interval=0)\n"
    )
    kernel.execute("result = wgan_gp.train(config, hooks=[Print()])", interrupt_at="loop")
    (saved,) = kernel.execute(
        "print(result.stopped_by, result.run.checkpoints.last_iteration == result.iteration)"
    )
    assert saved["text/plain"] == "2 True\n"
    outputs = kernel.execute("result = wgan_gp.train(config, hooks=[Print()])", interrupt_at="loop")
    assert any("resumed after" in each["text/plain"] for each in outputs)
