"""A stand-in for the Hugging Face hub, which keeps in memory what is uploaded to it."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_secretOfTheTests"
LARGE = (".safetensors", ".onnx", ".pt2", ".ts", ".png")  # what .gitattributes of a new repository names, and pictures


class Hub(ThreadingHTTPServer):
    """Knows one user, `ann`.

    Args:
        refusals: status of a request by the last part of its path, such as create.
        repositories: files by path, by the name of the repository.
    """

    def __init__(
        self, refusals: dict[str, int] | None = None, repositories: dict[str, dict[str, bytes]] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.refusals = refusals or {}
        self.repositories = repositories or {}
        self.blobs: dict[str, bytes] = {}
        self.created: list[dict[str, Any]] = []
        self.requests: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Requests(BaseHTTPRequestHandler):
    """Its API, as far as uploads use it: see huggingface_hub's hf_api.py, _commit_api.py and lfs.py."""

    server: Hub

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_PUT(self) -> None:
        self._answer(self._body())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append(f"{self.command} {path}")
        if blob := re.fullmatch(r"/blobs/(\w+)", path):  # a link to a store, which takes no token
            self.server.blobs[blob[1]] = body
            return self._send(200, {})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"error": f"Invalid credentials: {self.headers.get('Authorization')}"})
        if (status := self.server.refusals.get(path.rpartition("/")[2])) is not None:
            return self._send(status, {"error": "no,\nby the stand-in"})
        if path == "/api/whoami-v2":
            return self._send(200, {"type": "user", "name": "ann", "orgs": []})
        if path == "/api/validate-yaml":
            return self._send(200, {"warnings": [], "errors": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if call := re.fullmatch(r"/api/models/(.+/.+)/(preupload|commit)/main", path):
            files = self.server.repositories.get(call[1])
            if files is None:
                return self._send(404, {"error": "Repository not found"})
            return self._preupload(json.loads(body)) if call[2] == "preupload" else self._commit(call[1], files, body)
        if re.fullmatch(r"/.+/.+\.git/info/lfs/objects/batch", path):
            return self._batch(json.loads(body))
        return self._send(404, {"error": f"no {path}"})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization'] or 'ann'}/{wanted['name']}"
        is_new = name not in self.server.repositories
        if is_new:
            self.server.created.append(wanted)
            self.server.repositories[name] = {}
        self._send(200 if is_new else 409, {"url": f"{self.server.endpoint}/{name}", "name": name})

    def _preupload(self, wanted: dict[str, Any]) -> None:
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for file in wanted["files"]
        ]
        self._send(200, {"files": modes})

    def _batch(self, wanted: dict[str, Any]) -> None:
        objects = [
            {**entry, "actions": {"upload": {"href": f"{self.server.endpoint}/blobs/{entry['oid']}"}}}
            for entry in wanted["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def _commit(self, name: str, files: dict[str, bytes], body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            entry = line["value"]
            if line["key"] == "file":
                files[entry["path"]] = base64.b64decode(entry["content"])
            elif line["key"] == "lfsFile":
                files[entry["path"]] = self.server.blobs[entry["oid"]]
                assert hashlib.sha256(files[entry["path"]]).hexdigest() == entry["oid"]
        url = f"{self.server.endpoint}/{name}/commit/{'1' * 40}"
        self._send(200, {"success": True, "commitOid": "1" * 40, "commitUrl": url})

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


@contextmanager
def serving(**options: Any) -> Iterator[Hub]:
    """Runs a hub in a thread."""
    with Hub(**options) as hub:
        thread = Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def settings(endpoint: str, home: Path, token: str | None = TOKEN) -> dict[str, str]:
    """Environment of a process that uses a stand-in, and nothing of the machine's own login."""
    login = {} if token is None else {"HF_TOKEN": token}
    return {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", **login}


def contents(folder: Path) -> dict[str, bytes]:
    """Files of a folder by their paths in it."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
