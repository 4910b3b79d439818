"""Messages typed on a terminal: lines with editing, recall and paste, where this Python has readline."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from ..text import sanitize

readline: ModuleType | None
try:
    import readline as _readline

    readline = _readline
except ImportError:  # Windows: its console edits and recalls by itself
    readline = None

_PASTE_S = 0.03  # lines that come so soon after another were pasted with it


class LineInput:
    """Reads messages one by one. A paste of several lines is one message; Alt+Enter begins another line.

    words: what Tab completes at the beginning of a line.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._editing = readline is not None and sys.stdin.isatty() and sys.stdout.isatty()
        self._pastes = self._editing and "libedit" not in (getattr(readline, "__doc__", None) or "")
        if readline is not None and self._editing:
            readline.set_auto_history(False)
            readline.set_completer_delims("\n")
            readline.set_completer(self._complete)
            for binding in ("tab: complete", "set enable-bracketed-paste on", r'"\e\C-m": "\C-v\C-j"'):
                readline.parse_and_bind(binding)

    def recall(self, messages: Iterable[str]) -> None:
        """What the up arrow brings back from now on, the latest last."""
        if readline is not None and self._editing:
            readline.clear_history()
            for message in messages:
                readline.add_history(sanitize(message))

    def read(self, prompt: str) -> str:
        """The next message. Raises EOFError where the input has ended, KeyboardInterrupt at Ctrl+C; what was typed
        until then can be recalled."""
        try:
            text = self._line(prompt)
            while not self._pastes and self._more():
                text += "\n" + self._line("")
        except KeyboardInterrupt:
            if readline is not None and self._editing:
                self._remember(readline.get_line_buffer())
            raise
        self._remember(text)
        return text

    def _line(self, prompt: str) -> str:
        if sys.stdout.isatty():
            return input(prompt)
        sys.stderr.write(prompt)  # standard output is for the answers
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _more(self) -> bool:
        """Is another line there already?"""
        if os.name != "posix":
            return False
        with contextlib.suppress(OSError, ValueError):
            return bool(select.select([sys.stdin], [], [], _PASTE_S)[0])
        return False

    def _remember(self, text: str) -> None:
        if readline is not None and self._editing and text.strip():
            readline.add_history(text)

    def _complete(self, text: str, state: int) -> str | None:
        found = [word for word in self._words if text and word.startswith(text)]
        return found[state] if state < len(found) else None
