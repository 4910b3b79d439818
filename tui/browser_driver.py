"""The app in a page of a browser: textual-serve's protocol over pipes, with an end in order.

Chosen by TEXTUAL_DRIVER, which edgespec/browser/visitor.py sets.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from textual import events
from textual.drivers.web_driver import WebDriver
from textual.geometry import Size

CONVERSATION = "edgespec_conversation"  # tells which conversation the page shows: {"type": ..., "id": N}, 0: none
_USUAL_SIZE = (80, 24)


class BrowserDriver(WebDriver):
    """The driver of such an app.

    on_quit: called in the loop where the page is gone or the server ends.  on_parted: in a thread of its own where the
    server itself is gone. Before they are set there is nothing that could be lost.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.on_quit: Callable[[], object] | None = None
        self.on_parted: Callable[[], object] | None = None
        self._write = partial(self._write_whole)
        self._told: int | None = None

    def tell_conversation(self, number: int) -> None:
        """Which one a page that is loaded again goes on with."""
        if number != self._told:
            self._told = number
            self.write_meta({"type": CONVERSATION, "id": number})

    def start_application_mode(self) -> None:
        """As WebDriver's, which also tells the app that it lost the focus: what is typed at once would be lost."""
        self._write(b"__GANGLION__\n")
        self.write("\x1b[?1049h\x1b[?25l")  # the other screen, no cursor
        if self._mouse:
            self._enable_mouse_support()
        size = Size(*(self._size or _USUAL_SIZE))
        self._app.post_message(events.Resize(size, size))
        self._request_terminal_sync_mode_support()
        self._enable_bracketed_paste()
        self._key_thread.start()

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        if packet_type == "quit" and self.on_quit is not None:
            self._loop.call_soon_threadsafe(self.on_quit)
        else:
            super().on_meta(packet_type, payload)

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():  # the other end of the pipe is closed
            if self.on_parted is None:
                os._exit(1)
            threading.Thread(target=self.on_parted, name="page-gone", daemon=True).start()

    def _write_whole(self, data: bytes) -> int:
        """A signal can cut a write short, and half a packet would be the end. Nothing is said where nobody reads."""
        rest = memoryview(data)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self.fileno, rest) :]
        return len(data)
