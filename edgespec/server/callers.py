"""Which programs and pages may ask, by the Host and Origin headers of a request.

A page in a browser can make it send requests to a server on this machine, and by DNS rebinding even read the answers.
So a request must name this machine in its Host header, and one from a page must come from an origin that was allowed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .settings import LOOPBACK_NAMES, is_loopback

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:/@\s\[\]]+)(?::\d{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Callers:
    """host: where the server listens.  hosts: more names of this machine.  origins: pages of other servers."""

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def foreign(self, hosts: Sequence[str], origins: Sequence[str], scheme: str) -> Literal["host", "origin"] | None:
        """What is foreign about a request with these headers, if anything."""
        if len(hosts) != 1 or not self._known(hosts[0]):
            return "host"
        own = f"{scheme}://{hosts[0]}"
        return "origin" if any(origin != own and origin not in self.origins for origin in origins) else None

    def _known(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found["name"].strip("[]").lower()
        if name in {known.lower() for known in (*LOOPBACK_NAMES, self.host, *self.hosts)}:
            return True
        return not is_loopback(self.host) and _is_address(name)  # rebinding needs a name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
