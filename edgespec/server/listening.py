"""Opening the socket of a server."""

from __future__ import annotations

import socket

from ..errors import EdgeSpecError


def open_socket(host: str, port: int, backlog: int, advice: str) -> socket.socket:
    """Listen there. Raises EdgeSpecError, with the advice, where that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be one
        why = str(error.strerror).partition(" (while")[0] if isinstance(error, OSError) else error  # Python adds that
        raise EdgeSpecError(f"cannot listen on {host}:{port}: {why}; {advice}") from None
