"""A server on loopback with the routes of the Hugging Face Hub that `huggingface_hub` uses to download a model."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin")  # files in LFS: the server redirects to a store, and their ETag is a SHA-256


@dataclass
class Repository:
    """Files by name, at one commit of the branch main."""

    files: dict[str, bytes]
    commit: str = "0123456789" * 4
    token: str = ""  # a gated repository is served only with it
    claimed: dict[str, bytes] = field(default_factory=dict)  # files of which the hash and the size are announced

    def describe(self, name: str) -> dict[str, Any]:
        content = self.claimed.get(name, self.files[name])
        git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
        entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": git}
        if name.endswith(LARGE):
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return entry


@dataclass
class Hub:
    """The repositories by name, the address, and every request: method and path."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    fault: int | bytes | None = 0  # a status or a content instead of every answer; None: no answer

    def downloads(self) -> list[str]:
        """The files whose contents were sent."""
        return [path.rpartition("/")[2] for method, path in self.requests if method == "GET" and "/store/" in path]


@contextmanager
def serve_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        if self.hub.fault is None:
            time.sleep(1)
            self.close_connection = True
            return None
        if self.hub.fault:
            status = self.hub.fault if isinstance(self.hub.fault, int) else 200
            return self.send(status, {}, self.hub.fault if isinstance(self.hub.fault, bytes) else b"{}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:  # api/models/ORG/NAME/(revision|tree)/REVISION
            name, action, revision, file = "/".join(parts[2:4]), parts[4], "/".join(parts[5:]), ""
        else:  # ORG/NAME/(resolve|store)/REVISION/FILE
            name, action, revision, file = "/".join(parts[:2]), parts[2], parts[3], "/".join(parts[4:])
        repository = self.hub.repositories.get(name)
        if repository is None:
            return self.refuse(401, "RepoNotFound")  # as the Hub does without a token
        if repository.token and action != "store" and self.headers.get("Authorization") != f"Bearer {repository.token}":
            return self.refuse(403, "GatedRepo")
        if revision not in ("main", repository.commit):
            return self.refuse(404, "RevisionNotFound")
        if action == "revision":
            siblings = [{"rfilename": file} for file in repository.files]
            return self.send_json({"id": name, "sha": repository.commit, "siblings": siblings})
        if action == "tree":
            return self.send_json([repository.describe(file) for file in repository.files])
        if file not in repository.files:
            return self.refuse(404, "EntryNotFound")
        return self.send_file(name, repository, file, action)

    def send_file(self, name: str, repository: Repository, file: str, action: str) -> None:
        """Metadata and a redirect to the store at `resolve`, the content at `store`."""
        if action == "store":
            return self.send(200, {"Content-Type": "application/octet-stream"}, repository.files[file])
        entry = repository.describe(file)
        headers = {"X-Repo-Commit": repository.commit, "Location": f"/{name}/store/{repository.commit}/{file}"}
        if "lfs" in entry:
            # another host, as that of large files is: the client asks it for contents only, and without its token
            headers["Location"] = self.hub.url.replace("127.0.0.1", "localhost") + headers["Location"]
            headers |= {"X-Linked-Etag": f'"{entry["lfs"]["oid"]}"', "X-Linked-Size": str(entry["size"])}
            return self.send(302, headers, b"")
        if self.command == "HEAD":
            headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{entry["oid"]}"'}
            return self.send(200, headers, b"", length=entry["size"])
        return self.send(307, headers, b"")

    def send_json(self, data: Any) -> None:
        self.send(200, {"Content-Type": "application/json"}, json.dumps(data).encode())

    def refuse(self, status: int, code: str) -> None:
        self.send(status, {"X-Error-Code": code, "X-Error-Message": code}, b"{}")

    def send(self, status: int, headers: dict[str, str], content: bytes, length: int | None = None) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content) if length is None else length)}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...
