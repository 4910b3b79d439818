"""Where a server is."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import BadRequestError


@dataclass(frozen=True, slots=True)
class Address:
    """https: with TLS.  path: before /v1, without a slash at its end.  shown: as a person knows it."""

    https: bool
    host: str
    port: int
    path: str

    @staticmethod
    def parse(url: str) -> Address:
        """http(s)://HOST[:PORT][/PATH][/v1]. Raises BadRequestError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadRequestError(f"{url[:80]!r} is no address of a server: {error}") from None
        host = parts.hostname or ""
        if parts.scheme.lower() not in ("http", "https") or not host or parts.query or parts.fragment:
            raise BadRequestError(f"{url[:80]!r} is no address of a server; give one as http://127.0.0.1:8080")
        if parts.username is not None:
            raise BadRequestError("the address has a user name in it; give the key with --api-key or EDGESPEC_API_KEY")
        if not (host + parts.path).isascii() or not (host + parts.path).isprintable() or " " in host + parts.path:
            raise BadRequestError(f"{url[:80]!r} has characters that no address has; write it in ASCII, without blanks")
        https = parts.scheme.lower() == "https"
        path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        return Address(https, host, port or (443 if https else 80), path)

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.https else 80)
        return f"{'https' if self.https else 'http'}://{host}{'' if usual else f':{self.port}'}{self.path}"

    @property
    def open_to_others(self) -> bool:
        """What is said there crosses a network, and others on it can read it."""
        if self.https or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True
