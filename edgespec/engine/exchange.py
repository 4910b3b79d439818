"""One HTTP request to a server: bounded in size and time, and ended from any thread."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator

from ..errors import BadRequestError, Cancelled, ServerError
from .server_address import Address

CONNECT_S = 10.0
MAX_LINE = 1 << 20  # bytes of one line of a stream
MAX_STREAM = 128 << 20  # bytes of a whole stream: a very long answer with all its events
_MOST_LINES = 1 << 12  # in a row that say nothing


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """The system's certificates (or those of SSL_CERT_FILE), and these. Raises BadRequestError."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            why = (error.strerror if type(error) is not ssl.SSLError else None) if isinstance(error, OSError) else None
            raise BadRequestError(
                f"{ca_file[:200]!r} cannot be used as certificates: {why or 'it has none in PEM form'}; give a PEM file"
            ) from None
    return context


class Exchange:
    """One request and its response. Any thread, also a signal handler, may end() it; reading then raises Cancelled.

    What the server does wrong raises ServerError. Close it.
    """

    def __init__(self, address: Address, key: str | None, trust: ssl.SSLContext | None = None) -> None:
        """trust: of an https address, what trusting() returned; None: the system's certificates."""
        self._address, self._key = address, key
        self._connection = (
            http.client.HTTPSConnection(address.host, address.port, timeout=CONNECT_S, context=trust)
            if address.https
            else http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
        )
        self._response: http.client.HTTPResponse | None = None
        self._sock: socket.socket | None = None  # the connection lets go of it before the response is read
        self._ended = False

    def send(self, method: str, path: str, body: bytes | None = None, *, patience_s: float) -> int:
        """Ask, and wait so long for the status, which is returned."""
        headers = {"Accept-Encoding": "identity", "Connection": "close"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection
        with self._guarded("does not answer"):
            connection.connect()
            self._sock = sock = connection.sock
            if self._ended:
                raise Cancelled("the request was ended")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.request(method, self._address.path + path, body, headers)
            sock.settimeout(patience_s)
            self._response = connection.getresponse()
        return self._response.status

    def header(self, name: str) -> str:
        """Of the response; empty where there is none."""
        assert self._response is not None
        return self._response.getheader(name) or ""

    def body(self, most: int) -> bytes:
        """All of it."""
        assert self._response is not None
        with self._guarded("broke off"):
            found = self._response.read(most + 1)
        if len(found) > most:
            raise ServerError(f"the server at {self._address.shown} sends too much; is it the right address?")
        return found

    def data(self, patience_s: float) -> Iterator[bytes]:
        """The data of each server-sent event. patience_s: for each sign of life."""
        assert self._response is not None
        if self._sock is not None:
            self._sock.settimeout(patience_s)
        parts: list[bytes] = []
        total = idle = 0
        while True:
            with self._guarded("broke off in the middle of the answer"):
                line = self._response.readline(MAX_LINE + 1)
            total, idle = total + len(line), idle + 1
            if len(line) > MAX_LINE or total > MAX_STREAM or sum(map(len, parts)) > MAX_LINE or idle > _MOST_LINES:
                raise ServerError(f"the server at {self._address.shown} sends too much for one answer")
            if not line:
                return
            text = line.rstrip(b"\r\n")
            if text.startswith(b"data:"):
                parts.append(text[5:].removeprefix(b" "))
            elif text.startswith(b":"):
                idle = 0  # it lives
            elif not text and parts:
                yield b"\n".join(parts)
                parts, idle = [], 0

    def end(self) -> None:
        """Hang up."""
        self._ended = True
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the connection."""
        if self._response is not None:
            self._response.close()
        self._connection.close()

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        shown = self._address.shown
        try:
            yield
        except TimeoutError:
            raise ServerError(f"the server at {shown} {what}: nothing came for long") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._ended:
                raise Cancelled("the request was ended") from None
            if isinstance(error, ssl.SSLCertVerificationError):
                raise ServerError(
                    f"the certificate of the server at {shown} is not trusted: {error.verify_message.rstrip('.')}; "
                    "give its authority's with --ca-file, and use a name that it is for"
                ) from None
            if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(error):
                raise ServerError(f"the server at {shown} does not speak TLS; give the address with http://") from None
            if isinstance(error, ConnectionRefusedError | socket.gaierror):
                why = "no server answers" if isinstance(error, ConnectionRefusedError) else "there is no such host"
                raise ServerError(f"{why} at {shown}; is `edgespec serve` running, and is the address right?") from None
            if isinstance(error, http.client.BadStatusLine) and not self._address.https:  # nothing, or an alert of TLS
                raise ServerError(f"the server at {shown} {what}: it does not speak HTTP; is it https://?") from None
            words = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            raise ServerError(f"the server at {shown} {what}: {words[:120]}") from None
