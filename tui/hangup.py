"""Notices that the terminal is gone, also where no SIGHUP tells of it: a closed window, a lost connection.

Without it the app would wait for ever: Textual's writer ends at the first write that fails, and whoever draws then
waits for it.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

EXIT_CODE = 129  # as of a program that SIGHUP ended
GRACE_S = 2.0  # for an orderly end


def watch_terminal(fd: int, leave: Callable[[], object], last_words: Callable[[], None]) -> None:
    """Once the terminal at `fd` hangs up: leave(), and if the program is still there after that, last_words() and out.

    Both are called in a thread of their own. Nothing is watched where `fd` is no terminal, or the system cannot poll.
    """
    if not hasattr(select, "poll") or not os.isatty(fd):
        return
    threading.Thread(target=_watch, args=(fd, leave, last_words), name="terminal-hangup", daemon=True).start()


def _watch(fd: int, leave: Callable[[], object], last_words: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(fd, 0)  # hangups and errors are told whatever is asked for
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        time.sleep(GRACE_S)  # only where a system cannot poll terminals and says so at once
    part(leave, last_words)


def part(leave: Callable[[], object], last_words: Callable[[], None]) -> None:
    """End this program, in order or else by force: nobody sees it any more. In any thread but the app's."""
    try:
        leave()
        time.sleep(GRACE_S)
        last_words()
    finally:
        os._exit(EXIT_CODE)
