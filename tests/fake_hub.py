"""A Hugging Face Hub on this machine, for tests: repositories in memory, faults on request, a log of what was asked.

Large files lie on "another host", as on the real Hub: the same server under the name localhost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

PAGE = b"<!DOCTYPE html><html><body>Please log in to the network</body></html>"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one answer. status: instead of the answer.  cut: bytes of the body until the connection
    is closed.  stall: bytes of the body until nothing more comes, while the connection stays.  body: another body, with
    its own length.  page: a web page, as such or under the type of the file.  whole: Range is not heeded."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None
    stall: int | None = None
    body: bytes | None = None
    page: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. what: "list", "describe" (HEAD) or "bytes".  start: of the Range, None without one."""

    what: str
    path: str
    host: str
    start: int | None
    token: str | None


@dataclass(slots=True)
class Repo:
    """files: by path.  sizes: what is said of a file where it is not so.  small: kept in git itself.

    refusal: status and X-Error-Code for everything but the list of files."""

    files: dict[str, bytes]
    small: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    refusal: tuple[int, str] | None = None
    revisions: tuple[str, ...] = ("main", COMMIT)


class FakeHub:
    """repos: by user/repo.  moved: old names to new ones.  faults: for the next answers of each kind, in order."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, str] = {}
        self.faults: dict[str, list[Fault]] = {"list": [], "describe": [], "bytes": []}
        self.asked: list[Asked] = []
        self.connections = 0
        self.release = threading.Event()  # ends stalls
        self.pace = threading.Event()  # while clear, bytes wait after the first few
        self.pace.set()
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked_for(self, what: str) -> list[Asked]:
        return [one for one in self.asked if one.what == what]

    def next_fault(self, what: str) -> Fault:
        return self.faults[what].pop(0) if self.faults[what] else Fault()


@contextlib.contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Run the hub until the end of the block."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def process_request(self, request: Any, client_address: Any) -> None:
            hub.connections += 1
            super().process_request(request, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # connections that the test cuts

    class Handler(_Handler):
        pass

    Handler.hub = hub
    with Server(("127.0.0.1", 0), Handler) as server:
        hub.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.release.set()
            hub.pace.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._resolve(head=True)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            self._list(match[1], match[2])
        elif path.startswith("/cdn/"):
            user, repo, file = path.removeprefix("/cdn/").split("/", 2)
            self._bytes(f"{user}/{repo}", file)
        else:
            self._resolve(head=False)

    def _list(self, name: str, revision: str) -> None:
        self._note("list")
        fault = self.hub.next_fault("list")
        repo = self._repo(name, revision)
        if repo is None or self._fails(fault):
            return
        files = [
            {"rfilename": path, "size": len(content), "lfs": {"sha256": hashlib.sha256(content).hexdigest()}}
            for path, content in {"README.md": b"# a model", **repo.files}.items()
        ]
        self._answer(200, json.dumps({"id": name, "sha": COMMIT, "siblings": files}).encode(), "application/json")

    def _resolve(self, *, head: bool) -> None:
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", urlsplit(self.path).path)
        assert match, self.path
        name, revision, path = match[1], unquote(match[2]), unquote(match[3])
        if name in self.hub.moved:
            self._answer(307, b"", headers={"Location": self.path.replace(name, self.hub.moved[name])}, head=head)
            return
        fault = Fault()
        if head:
            self._note("describe")
            fault = self.hub.next_fault("describe")
        repo = self._repo(name, revision, head=head)
        if repo is None or self._fails(fault, head=head):
            return
        if repo.refusal is not None:
            self._answer(repo.refusal[0], b"", headers={"X-Error-Code": repo.refusal[1]}, head=head)
        elif path not in repo.files:
            self._answer(404, b"", headers={"X-Error-Code": "EntryNotFound"}, head=head)
        elif repo.small and not head:
            self._bytes(name, path)
        else:
            self._describe(name, repo, path, head)

    def _describe(self, name: str, repo: Repo, path: str, head: bool) -> None:
        content = repo.files[path]
        size = repo.sizes.get(path, len(content))
        if repo.small:
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            headers = {"ETag": f'"{repo.hashes.get(path, git)}"', "Content-Length": str(size)}
            self._answer(200, None, headers={**headers, "X-Repo-Commit": COMMIT}, head=head)
            return
        linked = {
            "X-Linked-Etag": f'"{repo.hashes.get(path) or hashlib.sha256(content).hexdigest()}"',
            "X-Linked-Size": str(size),
            "X-Repo-Commit": COMMIT,
            "Location": f"http://localhost:{self.hub.port}/cdn/{name}/{path}",
        }
        self._answer(302, b"", headers=linked, head=head)

    def _bytes(self, name: str, path: str) -> None:
        content = self.hub.repos[name].files[path]
        start = self._note("bytes")
        fault = self.hub.next_fault("bytes")
        if self._fails(fault):
            return
        if start is not None and start >= len(content):
            self._answer(416, b"", headers={"Content-Range": f"bytes */{len(content)}"})
            return
        if start is None or fault.whole:
            self._answer(200, content, fault=fault)
        else:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._answer(206, content[start:], headers={"Content-Range": span}, fault=fault)

    def _fails(self, fault: Fault, *, head: bool = False) -> bool:
        """Send what a fault puts in the place of an answer, if it does."""
        if fault.status is not None:
            self._answer(fault.status, b"", headers=dict(fault.headers), head=head)
        elif fault.page:
            self._answer(200, PAGE, "text/html; charset=utf-8", head=head)
        elif fault.body is not None:
            self._answer(200, fault.body)
        else:
            return False
        return True

    def _repo(self, name: str, revision: str, *, head: bool = False) -> Repo | None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self._answer(401, b"", headers={"X-Error-Code": "RepoNotFound"}, head=head)
        elif revision not in repo.revisions:
            self._answer(404, b"", headers={"X-Error-Code": "RevisionNotFound"}, head=head)
        else:
            return repo
        return None

    def _note(self, what: str) -> int | None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match else None
        host = self.headers["Host"].partition(":")[0]
        self.hub.asked.append(Asked(what, unquote(self.path), host, start, self.headers.get("Authorization")))
        return start

    def _answer(
        self,
        status: int,
        body: bytes | None,
        kind: str = "application/octet-stream",
        *,
        headers: dict[str, str] | None = None,
        head: bool = False,
        fault: Fault | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if head or body is None:
            return
        if fault is None:
            self.wfile.write(body)
            return
        limit = min(x for x in (fault.cut, fault.stall, len(body)) if x is not None)
        first = limit if self.hub.pace.is_set() else min(limit, 64)
        self.wfile.write(body[:first])
        self.hub.pace.wait(30)
        self.wfile.write(body[first:limit])
        if fault.stall is not None:
            self.hub.release.wait(30)
        if limit < len(body):
            self.close_connection = True
