"""The terminal: colours, how wide it draws characters, and whether programs may set its clipboard.

A terminal is asked where there is one, and only that says how wide it draws.
"""

from __future__ import annotations

import functools
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console

from .finding import Finding, ok, warn

_PATIENCE_S = 1.0  # for an answer: a terminal at the other end of a slow line takes half of that
_SAMPLES = {"wide characters": ("漢", 2), "emoji": ("🙂", 2), "combining marks": ("e\N{COMBINING ACUTE ACCENT}", 1)}
# Each sample at the start of the line, then "where is the cursor?"; at last "what are you?", which all answer.
QUERY = "".join(f"\r{text}\x1b[6n" for text, _ in _SAMPLES.values()) + "\r\x1b[K\x1b[c"
_PLACE, _ATTRIBUTES = re.compile(r"\x1b\[\d+;(\d+)R"), re.compile(r"\x1b\[\?([\d;]*)c")
_CLIPBOARD = "52"  # among the attributes
_NOT_ASKED = "not checked: standard input and output are no terminal"
_KNOWN = ("kitty", "alacritty", "foot", "ghostty", "contour", "wezterm", "iterm", "vscode", "rio")
_UNABLE = ("apple_terminal", "linux", "vte")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a terminal said. columns: how wide each sample was drawn.  attributes: numbers of what it can do."""

    columns: tuple[int, ...]
    attributes: frozenset[str]


def colours() -> Finding:
    """As rich sees it."""
    if os.environ.get("NO_COLOR"):
        return ok("off: NO_COLOR is set")
    console = Console()
    size = shutil.get_terminal_size()
    if console.color_system:
        return ok(f"{console.color_system}, {size.columns} x {size.lines} characters")
    if not console.is_terminal:
        return ok("not checked: standard output is no terminal")
    return warn("none", "set TERM to what your terminal is, such as xterm-256color")


def width() -> Finding:
    """Encoding, and the columns that wide characters take."""
    encoding = (sys.stdout.encoding or "none").lower()
    if "utf" not in encoding:
        return warn(f"the encoding is {encoding}: other characters show as ?", "set LANG to a UTF-8 locale: C.UTF-8")
    answer = _answer()
    if answer is None:
        return ok(f"{encoding}; {_NOT_ASKED}")
    if len(answer.columns) != len(_SAMPLES):
        return ok(f"{encoding}; this terminal does not tell where its cursor is")
    drawn = zip(_SAMPLES.items(), answer.columns, strict=True)
    odd = [f"{name} take {had}, not {want}" for (name, (_, want)), had in drawn if had != want]
    if odd:
        return warn(f"{encoding}; columns: {', '.join(odd)}", "tables may look ragged: use a newer terminal or font")
    return ok(f"{encoding}; {' and '.join(_SAMPLES)} are as wide as they should be")


def clipboard() -> Finding:
    """OSC 52, with which a program on another machine, too, can copy."""
    answer = _answer()
    if answer is None:
        return ok(_NOT_ASKED)
    if _CLIPBOARD in answer.attributes:
        return ok("programs may set it (OSC 52)")
    return clipboard_by_name(os.environ)


def clipboard_by_name(environ: Mapping[str, str]) -> Finding:
    """Of a terminal that does not say so by itself."""
    names = [environ.get("TERM_PROGRAM", "").lower(), environ.get("TERM", "").lower()]
    names += ["vte"] if environ.get("VTE_VERSION") else []
    if environ.get("TMUX") or names[0] == "tmux":
        return warn("tmux passes OSC 52 on only if told to", "`tmux set -s set-clipboard on`")
    if environ.get("WT_SESSION") or any(known in name for known in _KNOWN for name in names):
        return ok(f"programs may set it (OSC 52), as {next(filter(None, names), 'Windows Terminal')} is known to allow")
    fix = "copy with the terminal's own selection (Shift and drag), or use one with OSC 52: kitty, foot, WezTerm"
    if any(unable in names for unable in _UNABLE):
        return warn("this terminal does not let programs set it (no OSC 52)", fix)
    return warn("this terminal does not say whether programs may set it (OSC 52)", f"if copying has no effect, {fix}")


def parse(reply: str) -> Answer:
    """A terminal's reply to QUERY."""
    columns = tuple(int(column) - 1 for column in _PLACE.findall(reply))
    attributes = _ATTRIBUTES.search(reply)
    return Answer(columns, frozenset(attributes[1].split(";") if attributes else ()))


@functools.cache
def _answer() -> Answer | None:
    """None where there is no terminal to ask."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return None
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()
    try:
        if os.tcgetpgrp(keyboard) != os.getpgrp():  # in the background: it would be stopped
            return None
    except OSError:  # a terminal of another session
        return None
    sys.stdout.flush()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        os.write(screen, QUERY.encode())
        return parse(_reply(keyboard))
    finally:
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)  # what comes later is not for the shell


def _reply(keyboard: int) -> str:
    """What comes until the terminal has said what it is."""
    reply = b""
    end = time.monotonic() + _PATIENCE_S
    while (left := end - time.monotonic()) > 0 and select.select([keyboard], [], [], left)[0]:
        part = os.read(keyboard, 1024)
        reply += part
        if not part or _ATTRIBUTES.search(reply.decode("latin-1")):
            break
    return reply.decode("latin-1")
