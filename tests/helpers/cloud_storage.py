"""A fake of Cloud Storage for TensorFlow's own client of gs://, which reaches it through a proxy.

  python -m tests.helpers.cloud_storage FOLDER

The client connects to www.googleapis.com through the proxy that https_proxy names, trusts the
certificate in CURL_CA_BUNDLE, and takes its token from GOOGLE_AUTH_TOKEN_FOR_TESTING. This program
is the proxy, and answers the requests itself. Objects are files of FOLDER/BUCKET, whose names are
quoted. It is a process of its own, because TensorFlow waits for answers with Python's lock.
"""

import contextlib
import http.server
import json
import pathlib
import re
import ssl
import subprocess
import sys
from urllib.parse import parse_qsl, quote, unquote, urlsplit

OBJECT = r"/storage/v1/b/([^/]+)/o/([^/]+)"


@contextlib.contextmanager
def cloud_storage(folder):
    """Yields the environment variables with which gs:// means the fake in a folder."""
    create = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=fake"
    names = "-addext subjectAltName=DNS:www.googleapis.com,DNS:storage.googleapis.com"
    subprocess.run(
        [*create.split(), *names.split(), "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    command = [sys.executable, "-m", "tests.helpers.cloud_storage", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline())
            yield {
                "https_proxy": f"http://127.0.0.1:{port}",
                "no_proxy": "",
                "CURL_CA_BUNDLE": f"{folder}/cert.pem",
                "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            }
        finally:
            server.kill()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of the JSON interface that TensorFlow sends."""

    protocol_version = "HTTP/1.1"
    folder: pathlib.Path

    def log_message(self, format, *args):
        pass

    def do_CONNECT(self):
        self.send_response(200)
        self.end_headers()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "cert.pem", self.folder / "key.pem")
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_GET(self):
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        if match := re.fullmatch("/storage/v1/b/([^/]+)", address.path):
            self._answer(200, {"name": match[1], "location": "US-WEST4"})
        elif match := re.fullmatch("/storage/v1/b/([^/]+)/o", address.path):
            self._list(match[1], query)
        elif match := re.fullmatch(OBJECT, address.path):
            path = self._path(*match.groups())
            self._answer(200, described(path)) if path.exists() else self._answer(404)
        else:
            bucket, name = address.path.lstrip("/").split("/", 1)
            self._read(self._path(bucket, name))

    def do_POST(self):
        address = urlsplit(self.path)
        query, content = dict(parse_qsl(address.query)), self._content()
        if match := re.fullmatch("/upload/storage/v1/b/([^/]+)/o", address.path):
            name = quote(query["name"], safe="")
            if query["uploadType"] == "resumable":
                location = f"https://www.googleapis.com/upload/{match[1]}/{name}"
                self._answer(200, headers={"Location": location})
            else:
                self._write(self._path(match[1], name), content)
        elif match := re.fullmatch(OBJECT + "/rewriteTo/b/([^/]+)/o/([^/]+)", address.path):
            content = self._path(match[1], match[2]).read_bytes()
            self._path(match[3], match[4]).write_bytes(content)
            self._answer(200, {"done": True})
        else:
            self._answer(400)

    def do_PUT(self):
        bucket, name = urlsplit(self.path).path.removeprefix("/upload/").split("/", 1)
        self._write(self._path(bucket, name), self._content())

    def do_DELETE(self):
        path = self._path(*re.fullmatch(OBJECT, urlsplit(self.path).path).groups())
        if path.exists():
            path.unlink()
            self._answer(204)
        else:
            self._answer(404)

    def _path(self, bucket, name):
        folder = self.folder / bucket
        folder.mkdir(exist_ok=True)
        return folder / quote(unquote(name), safe="")

    def _list(self, bucket, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        items, folders = [], set()
        for path in sorted(self._path(bucket, "x").parent.iterdir()):
            name = unquote(path.name)
            if name.startswith(prefix):
                first, found, _ = name[len(prefix) :].partition(delimiter or "\0")
                if found:
                    folders.add(prefix + first + delimiter)
                else:
                    items.append(described(path))
        count = int(query.get("maxResults", 1000))
        self._answer(200, {"items": items[:count], "prefixes": sorted(folders)[:count]})

    def _read(self, path):
        if not path.exists():
            self._answer(404)
            return
        content = path.read_bytes()
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups()
        part = content[int(first) : int(last) + 1]
        self._answer(206, part) if part else self._answer(416)

    def _write(self, path, content):
        path.write_bytes(content)
        self._answer(200, described(path))

    def _content(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _answer(self, status, body=b"", headers=()):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def described(path):
    """Returns the resource of an object."""
    status = path.stat()
    return {
        "name": unquote(path.name),
        "size": str(status.st_size),
        "generation": str(status.st_mtime_ns),
        "updated": "2026-01-01T00:00:00.000Z",
    }


if __name__ == "__main__":
    Handler.folder = pathlib.Path(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
