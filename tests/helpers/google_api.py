"""A fake of Google's Cloud TPU API on this machine, for the real client library."""

import contextlib
import http.server
import json
import pathlib
import threading

import oauth2client
import pytest

# The part of the API's description that the client library needs to request a TPU.
_GET = {
    "id": "tpu.projects.locations.nodes.get",
    "path": "v1/{+name}",
    "httpMethod": "GET",
    "parameterOrder": ["name"],
    "parameters": {"name": {"type": "string", "location": "path", "required": True}},
    "response": {"$ref": "Node"},
}
_NESTED = {"resources": {"locations": {"resources": {"nodes": {"methods": {"get": _GET}}}}}}


class FakeApi:
    """The answers of the API.

    Attributes:
      url: The address of the server.
      node: The answer for a TPU: its status, and the object that describes the TPU or an error.
      token: The answer for an access token.
      paths: The paths of all requests for a TPU.
    """

    def __init__(self, url: str):
        self.url = url
        self.node = (200, {"state": "READY"})
        self.token = (200, {"access_token": "x", "expires_in": 3600, "token_type": "Bearer"})
        self.paths: list[str] = []
        self.root = url

    def answer(self, path: str):
        """Returns the status and the object that answer a request."""
        if path.startswith("/discovery"):
            return 200, {
                "name": "tpu",
                "version": "v1",
                "rootUrl": f"{self.root}/",
                "servicePath": "",
                "batchPath": "batch",
                "schemas": {"Node": {"id": "Node", "type": "object"}},
                "resources": {"projects": _NESTED},
            }
        if path.startswith("/token"):
            return self.token
        self.paths.append(path.partition("?")[0])
        return self.node

    def configure(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lets the client library of this process use this API, with credentials of its own.

        Args:
          folder: A folder for the file of the credentials.
          monkeypatch: Sets the variables until the end of a test.
        """
        file = folder / "credentials.json"
        user = dict.fromkeys(("client_id", "client_secret", "refresh_token"), "x")
        file.write_text(json.dumps({"type": "authorized_user", **user}))
        monkeypatch.setattr(oauth2client, "GOOGLE_TOKEN_URI", f"{self.url}/token")
        for name, value in {
            "TPU_API_DISCOVERY_URL": f"{self.url}/discovery/{{api}}/{{apiVersion}}",
            "GOOGLE_APPLICATION_CREDENTIALS": str(file),
            "CLOUDSDK_CONFIG": str(folder),  # no other credentials of this machine are found
            "NO_GCE_CHECK": "True",
            "no_proxy": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)


def error(code: int, message: str):
    """Returns an answer of the API that is an error."""
    return code, {"error": {"code": code, "message": message}}


@contextlib.contextmanager
def serve_api():
    """Yields a `FakeApi` that is served on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, content = api.answer(self.path)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api = FakeApi(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield api
        server.shutdown()
