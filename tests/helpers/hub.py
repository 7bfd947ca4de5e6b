"""A fake of Hugging Face's hub on this machine, for the real client library."""

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse
from collections.abc import Iterator

import pytest

TOKEN = "hf_secret"
COMMIT = "c" * 40


class FakeHub:
    """The repositories of the hub, and what it was asked.

    Attributes:
      url: The address of the server.
      files: The content of the files of each repository, by name.
      private: The visibility with which each repository was created.
      downloads: The paths of all files that were downloaded.
      status: The status of all answers; None for the normal ones.
    """

    def __init__(self, url: str):
        self.url = url
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.downloads: list[str] = []
        self.status: int | None = None

    def answer(self, method: str, path: str, body: bytes, token: str | None):
        """Returns the status, the headers and the content that answer a request."""
        if self.status is not None:
            return self.status, {}, b'{"error": "of the fake"}'
        if method == "POST" and token != f"Bearer {TOKEN}":
            return 401, {}, b'{"error": "Invalid username or password."}'
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return _json({"warnings": []})
        if match := re.fullmatch(r"/api/models/(\w+/\w+)(?:/(\w+)/([^/]+))?", path):
            name, kind, revision = match.groups()
            return self._of_model(name, kind or "revision", revision or "main", body)
        if match := re.fullmatch(r"/(\w+/\w+)/resolve/(\w+)/(.+)", path):
            return self._file(method, *match.groups())
        raise AssertionError(f"the fake does not know {method} {path}")

    def _create(self, asked):
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.files:
            return 409, {}, json.dumps({"url": f"{self.url}/{name}"}).encode()
        self.files[name] = {}
        self.private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
        return _json({"url": f"{self.url}/{name}"})

    def _of_model(self, name, kind, revision, body):
        if name not in self.files:
            return 404, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        files = self.files[name]
        if revision not in ("main", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if kind == "preupload":
            return _json(
                {
                    "files": [
                        {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                        for each in json.loads(body)["files"]
                    ]
                }
            )
        if kind == "commit":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    files[value["path"]] = base64.b64decode(value["content"])
            return _json({"commitUrl": f"{self.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT})
        if kind == "tree":
            return _json(
                [
                    {"type": "file", "path": path, "size": len(content), "oid": _hash(content)}
                    for path, content in files.items()
                ]
            )
        siblings = [{"rfilename": path} for path in files]
        return _json({"id": name, "sha": COMMIT, "siblings": siblings, "tags": []})

    def _file(self, method, name, revision, path):
        content = self.files[name][path]
        if method == "GET":
            self.downloads.append(path)
        return 200, {"ETag": f'"{_hash(content)}"', "X-Repo-Commit": COMMIT}, content

    def configure(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lets the client library of this process use this hub, and a cache of its own."""
        from huggingface_hub import constants  # noqa: PLC0415

        template = f"{self.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def _json(content):
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _hash(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextlib.contextmanager
def serve() -> Iterator[FakeHub]:
    """Runs a hub on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_all(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urllib.parse.unquote(self.path.partition("?")[0])
            token = self.headers.get("Authorization")
            status, headers, content = hub.answer(self.command, path, body, token)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_HEAD = handle_all  # noqa: N815

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
