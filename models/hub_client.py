"""Requests to the Hugging Face Hub, with its library's HTTP client and token; answers as typed values or errors.

The library is imported at the first request. Its download functions are not used: they delete what has arrived when
they fail, so that the next try starts from nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from ..errors import (
    BadRequestError,
    DamagedDownloadError,
    DownloadError,
    GatedError,
    ModelNotFoundError,
    OfflineError,
)
from .filenames import is_safe
from .hub_files import RepoFile
from .hub_name import HubName
from .quoting import one_line, quoted

HUB = "https://huggingface.co"
_HUB_HOSTS = frozenset(("huggingface.co", "hf.co"))
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))  # statuses that a second try may not meet
_REDIRECTS = 10
_ETAG = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Patience:
    """tries: failures in a row, without progress, until it is given up.  pause_s: before the second try; it doubles up
    to longest_s, and a server that says when to come back is believed up to that.  silence_s: without a byte."""

    tries: int = 5
    pause_s: float = 1.0
    longest_s: float = 30.0
    silence_s: float = 30.0

    def pause(self, failures: int, asked: float | None = None) -> None:
        """Wait before the next try, after so many failures (1 or more)."""
        own = self.pause_s * 2 ** (failures - 1)
        time.sleep(min(self.longest_s, own if asked is None else max(own, asked)))


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the Hub describes it. etag: SHA-256 of the content, or git's hash of a small one.  size: bytes."""

    path: str
    commit: str
    etag: str
    size: int


class Interrupted(Exception):
    """A request failed in a way that another try may not. wait_s: what the server asks for."""

    def __init__(self, what: str, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class NotTheHubError(DamagedDownloadError):
    """A web page came in place of an answer."""


class HubClient:
    """Speaks to one endpoint: HF_ENDPOINT or the Hub, with the user's token. Raises BadRequestError for a bad one."""

    def __init__(self, patience: Patience) -> None:
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
        from huggingface_hub.utils import get_session, get_token_to_send

        self.patience = patience
        self.endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequestError(f"HF_ENDPOINT is {quoted(self.endpoint)}; make it an address like {HUB}")
        self.host = parts.hostname
        self._scheme = parts.scheme
        self._session: Any = get_session()
        self._offline = OfflineModeIsEnabled
        # httpx with releases 1 of the library, httpx2 with releases 2: the same interface under two names.
        self._http: Any = importlib.import_module(HfHubHTTPError.__bases__[0].__module__.partition(".")[0])
        self._token: str | None = None
        with contextlib.suppress(OSError):  # a token file of someone else
            self._token = get_token_to_send(None)
        self._agent = f"edgespec/{version('edgespec')}"
        self._reached = False

    def list_files(self, name: HubName) -> tuple[RepoFile, ...]:
        """The files of the repository that a disk can have, each with its size where the server tells it."""
        url = f"{self.endpoint}/api/models/{name.repo_id}/revision/{quote(name.revision, safe='')}?blobs=true"
        response = self._ask("GET", url, name, follow=True)
        try:
            files = [(file["rfilename"], file.get("size")) for file in response.json()["siblings"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._web_page(name.repo_id) from error
        return tuple(
            RepoFile(path, size if isinstance(size, int) else None)
            for path, size in files
            if isinstance(path, str) and all(is_safe(part) for part in path.split("/"))
        )

    def describe(self, name: HubName, path: str, revision: str) -> RemoteFile:
        """Commit, hash and size of a file at a revision."""
        url, commit = self._address(name, path, revision), ""
        for _ in range(_REDIRECTS):
            response = self._ask("HEAD", url, name, path=path)
            commit = commit or response.headers.get("X-Repo-Commit", "")
            target = urljoin(url, response.headers.get("Location", ""))
            # A large file lies on another host: what it is, is said by the answer that sends one there.
            if not response.is_redirect or "X-Linked-Etag" in response.headers or not self._is_hub(target):
                break
            url = target
        headers = response.headers
        etag = headers.get("X-Linked-Etag") or ("" if response.is_redirect else headers.get("ETag", ""))
        etag = etag.removeprefix("W/").strip('"').lower()
        size = headers.get("X-Linked-Size") or ("" if response.is_redirect else headers.get("Content-Length", ""))
        if not _ETAG.fullmatch(etag) or not re.fullmatch("[0-9a-f]{40}", commit) or not re.fullmatch("[0-9]+", size):
            if headers.get("Content-Type", "").startswith("text/html"):
                raise self._web_page(path)
            raise DownloadError(
                f"{self.host} does not say size and hash of {quoted(path)}, as the Hub does, so a download could not be"
                " checked; set HF_ENDPOINT to another mirror, or unset it"
            )
        return RemoteFile(path, commit, etag, int(size))

    @contextlib.contextmanager
    def open(self, name: HubName, file: RemoteFile, start: int) -> Iterator[Any]:
        """The answer to a request for a file's bytes from `start` on (httpx.Response, not yet read).

        Raises Interrupted, also from inside the `with`, where another try may help.
        """
        url = self._address(name, file.path, file.commit)
        headers = self._headers(url) | ({"Range": f"bytes={start}-"} if start else {})
        with (
            self._failures(),
            self._session.stream(
                "GET", url, headers=headers, timeout=self.patience.silence_s, follow_redirects=True
            ) as response,
        ):
            self._passing(response)
            # Addresses on other hosts are signed for a short time; a new try gets a new one.
            if response.status_code == 403 and not self._is_hub(str(response.url)):
                raise Interrupted("the address of the file has expired")
            if response.status_code != 416:
                self._refused(response, name, file.path)
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise self._web_page(file.path)
            yield response

    def give_up(self, why: Exception, kept: int = 0) -> DownloadError:
        """The error after the last try. kept: bytes that have arrived and stay."""
        stays = f"; {kept / 1e6:.1f} MB are kept, a new try goes on from there" if kept else "; try again later"
        return DownloadError(f"{self.host} failed {self.patience.tries} times in a row: {one_line(str(why))}{stays}")

    def _ask(self, method: str, url: str, name: HubName, *, path: str | None = None, follow: bool = False) -> Any:
        """The answer (httpx.Response) to a small request, after more tries where it fails in passing."""
        failures = 0
        while True:
            try:
                with self._failures():
                    response = self._session.request(
                        method,
                        url,
                        headers=self._headers(url),
                        timeout=self.patience.silence_s,
                        follow_redirects=follow,
                    )
                    self._passing(response)
                self._refused(response, name, path)
                return response
            except Interrupted as error:
                failures += 1
                if failures >= self.patience.tries:
                    raise self.give_up(error) from error
                self.patience.pause(failures, error.wait_s)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Errors of the client as Interrupted; as OfflineError where no connection ever came about."""
        http = self._http
        try:
            yield
        except (http.HTTPError, http.StreamError, self._offline) as error:
            what = one_line(str(error)) or type(error).__name__
            unreachable = isinstance(error, (http.ConnectError, http.ConnectTimeout, http.ProxyError, self._offline))
            if unreachable and not self._reached:
                raise OfflineError(
                    f"{self.host} cannot be reached ({what}); check the network, HTTPS_PROXY and HF_ENDPOINT"
                ) from error
            raise Interrupted(what) from error

    def _passing(self, response: Any) -> None:
        self._reached = True
        if response.status_code in _PASSING:
            asked = response.headers.get("Retry-After", "")
            raise Interrupted(f"HTTP status {response.status_code}", float(asked) if asked.isdecimal() else None)

    def _refused(self, response: Any, name: HubName, path: str | None) -> None:
        """Raise the error that a status stands for; what is wrong is in a header of the Hub's."""
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        if status < 400:
            return
        account = "log in with `hf auth login` or set HF_TOKEN" if self._token is None else "use another HF_TOKEN"
        if code == "GatedRepo" or (status == 403 and code != "RepoNotFound"):
            raise GatedError(
                f"{name.repo_id} is gated: accept its terms at {self.endpoint}/{name.repo_id}, then {account}"
            )
        if code == "RevisionNotFound":
            raise ModelNotFoundError(f"{name.repo_id} has no revision {quoted(name.revision)}; leave it out for main")
        if code == "EntryNotFound" or (status == 404 and path is not None and code != "RepoNotFound"):
            raise ModelNotFoundError(f"{name.repo_id} has no file {quoted(path or '')}; check its name on {self.host}")
        if status in (401, 404):
            raise ModelNotFoundError(
                f"there is no {name.repo_id} on {self.host}, or it is private; check the name, or {account}"
            )
        raise DownloadError(f"{self.host} refused {name.repo_id} with HTTP status {status}; check HF_ENDPOINT")

    def _web_page(self, what: str) -> NotTheHubError:
        return NotTheHubError(
            f"a web page came in place of {quoted(what)}: a login page or a proxy is between here and {self.host};"
            " log in to the network with a browser, or set HTTPS_PROXY or HF_ENDPOINT"
        )

    def _address(self, name: HubName, path: str, revision: str) -> str:
        return f"{self.endpoint}/{name.repo_id}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def _headers(self, url: str) -> dict[str, str]:
        """identity: a packed answer has no size that could be checked, and no place to go on from."""
        headers = {"User-Agent": self._agent, "Accept-Encoding": "identity"}
        parts = urlsplit(url)
        secure = parts.scheme == "https" or parts.scheme == self._scheme
        ours = parts.hostname == self.host or {parts.hostname, self.host} <= _HUB_HOSTS
        if self._token is not None and secure and ours:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _is_hub(self, url: str) -> bool:
        return urlsplit(url).hostname in (self.host, *_HUB_HOSTS)
