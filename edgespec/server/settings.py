"""What a server is started with, checked before anything is opened."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass

from ..errors import BadRequestError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
KEY_LENGTH = 8  # characters that a key must have where other machines can try some

MAX_BODY = 16 << 20  # bytes
MAX_HEADERS = 32 << 10  # bytes
MAX_CONNECTIONS = 512
MAX_PARALLEL = 32  # each has a row of a decode
HEADERS_S, BODY_S = 30.0, 30.0  # in which headers and body of a request must have come


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where to listen, whom to answer, and how much of it.

    model: the name that clients see.  names: others that mean the same.  api_key: None: everyone on this machine may
    ask.  hosts: names beside the usual ones that a Host header may have.  origins: web pages that may ask from a
    browser.  parallel: requests that are answered at once.  waiting: requests that may wait.  deadline_s: for a
    request, waiting included.  grace_s: that running requests have to finish when the server is told to end.
    silence_s: after which a stream that has nothing to say sends a comment: proxies and clients give up one that is
    silent for long.  defaults: sampling of requests that say nothing.
    Raises BadRequestError.
    """

    model: str
    names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    parallel: int = 4
    waiting: int = 64
    deadline_s: float = 1800.0
    grace_s: float = 10.0
    silence_s: float = 15.0
    max_body: int = MAX_BODY
    headers_s: float = HEADERS_S
    body_s: float = BODY_S
    defaults: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise BadRequestError(f"the port is {self.port}; it must be from 0 (any free one) to 65535")
        if not 1 <= self.parallel <= MAX_PARALLEL:
            raise BadRequestError(f"{self.parallel} requests are to be answered at once; give 1 to {MAX_PARALLEL}")
        if not 0 <= self.waiting <= 10_000:
            raise BadRequestError(f"{self.waiting} requests may wait; give 0 to 10000")
        limits = {"time for a request": self.deadline_s, "time to finish": self.grace_s, "silence": self.silence_s}
        for name, seconds in limits.items():
            if not 0 < seconds < math.inf:
                raise BadRequestError(f"the {name} is {seconds:g} s; it must be a number above 0")
        if self.api_key is not None and (not self.api_key.isascii() or not self.api_key.strip()):
            raise BadRequestError("the API key must be ASCII text that is not empty: it travels in a header")
        if not is_loopback(self.host):
            self._check_key()
        for origin in self.origins:
            if origin == "*" or "://" not in origin:
                raise BadRequestError(f"{origin!r} is no origin; give one as http://localhost:3000, without a path")

    def _check_key(self) -> None:
        if self.api_key is None:
            raise BadRequestError(
                f"on {self.host} other machines can reach the server, so it needs a key; give --api-key, or leave "
                "--host out"
            )
        if len(self.api_key) < KEY_LENGTH:
            raise BadRequestError(
                f"other machines can guess a key of {len(self.api_key)} characters; give at least {KEY_LENGTH}"
            )

    @property
    def shown_host(self) -> str:
        """The address for a client on this machine, as it stands in a URL."""
        if self.host in ("", "0.0.0.0"):
            return "127.0.0.1"
        if self.host == "::":
            return "[::1]"
        return f"[{self.host}]" if ":" in self.host else self.host


def is_loopback(host: str) -> bool:
    """True where only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
