"""The view of a run in TensorBoard, in Chromium through its DevTools protocol."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.helpers.runs import train_tiny
from wgan_gp.writers.tensorboard import LAYOUT

# Every text on the page, in the shadow trees of TensorBoard's elements too.
TEXTS = """(() => {
const texts = [];
const walk = (node) => {
  if (node.nodeType === Node.TEXT_NODE) texts.push(node.textContent.trim());
  if (node.shadowRoot) walk(node.shadowRoot);
  if (!["STYLE", "SCRIPT"].includes(node.nodeName)) node.childNodes.forEach(walk);
};
walk(document.body);
return texts.filter((text) => text);
})()"""
PATIENCE = 90  # seconds, for a page to show what it should

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium"),
]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextlib.contextmanager
def serving(command, port, log):
    """A server on a port of this machine, for as long as it is needed."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                yield
                return
            time.sleep(0.2)
        raise AssertionError(log.read_text())
    finally:
        process.kill()
        process.wait()


class Browser:
    """A page of Chromium, by its DevTools protocol: messages that end in NUL, on two pipes."""

    def __init__(self, profile):
        read_end, self._to = os.pipe()
        self._from, write_end = os.pipe()
        # Numbers that are free in the child, where 3 and 4 are to be Chromium's.
        theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (read_end, write_end)]
        for each in (read_end, write_end):
            os.close(each)
        command = [
            "chromium",
            "--remote-debugging-pipe",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,2000",
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", *command],
            pass_fds=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for each in theirs:
            os.close(each)
        self._number, self._rest, self._page = 0, b"", {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._page = {"sessionId": attached["sessionId"]}

    def open(self, url):
        self._call("Page.navigate", url=url)

    def texts(self):
        result = self._call("Runtime.evaluate", expression=TEXTS, returnByValue=True)["result"]
        return result.get("value", [])  # none, while it goes from page to page

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._page}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:  # past the events
            answer = self._next_message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next_message(self):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            block = os.read(self._from, 2**16) if ready else b""
            assert block, "Chromium is silent"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def close(self):
        os.killpg(self._process.pid, signal.SIGKILL)  # its helpers too
        self._process.wait()
        os.close(self._to)
        os.close(self._from)


def wait_for(browser, expected):
    """Until all of the texts are there; those on the page."""
    give_up = time.monotonic() + PATIENCE
    while True:
        texts = browser.texts()
        missing = set(expected) - set(texts)
        if not missing or time.monotonic() > give_up:
            assert not missing, texts
            return
        time.sleep(0.5)


def test_tensorboard_shows_the_charts_when_it_is_opened(tmp_path):
    train_tiny(tmp_path / "run", train_steps=25, steps_per_loop=5, summary_interval=5)
    port = free_port()
    tensorboard = [sys.executable, "-m", "tensorboard.main", "--host=127.0.0.1"]
    command = [*tensorboard, f"--port={port}", f"--logdir={tmp_path}/run"]
    with (
        serving(command, port, tmp_path / "board.log"),
        contextlib.closing(Browser(tmp_path / "profile")) as browser,
    ):
        browser.open(f"http://127.0.0.1:{port}/#custom_scalars")
        charts = [title for charts in LAYOUT.values() for title in charts]
        wait_for(browser, [*LAYOUT, *charts])
        browser.open(f"http://127.0.0.1:{port}/?tab=text#text")
        wait_for(browser, ["diagnosis"])
