"""Markdown cut into prose and fenced code while it is still being written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

SEGMENT_LINES = 40  # of prose; what is older is never laid out again

_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*)")
_MAYBE_FENCE = re.compile(r" {0,3}(?:`[^\n]*|~[^\n]*)?")
_CONTINUES = re.compile(r"[ \t>|]|[-*+] |\d+[.)] |\[")  # a line that may belong to what is above a blank line


@dataclass(frozen=True, slots=True)
class Change:
    """What comes next. kind: "prose" and "code" add text; "open" begins code in the language `text`, "close" ends it;
    "cut" ends a piece of prose."""

    kind: Literal["prose", "cut", "open", "code", "close"]
    text: str = ""


class FenceSplitter:
    """Top-level fences of a growing Markdown text. The changes do not depend on how the text is cut into pieces,
    except that text inside a line may come in parts.

    Fences inside quotes and deeper lists are prose: Markdown itself draws them.
    """

    def __init__(self) -> None:
        self._line = ""  # the line being written, as far as it was not given out
        self._start = True  # nothing of this line was given out
        self._marks = ""  # of the open fence
        self._indent = 0
        self._lines = 0  # of prose since the last cut
        self._blank = False

    @property
    def in_code(self) -> bool:
        """Whether a fence is open."""
        return bool(self._marks)

    def push(self, text: str) -> list[Change]:
        """Take more text."""
        changes: list[Change] = []
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            changes += self._end_line(line)
        self._line = rest
        if rest and not self._held(rest):
            changes += self._part(rest)
            self._line = ""
        return _joined(changes)

    def finish(self) -> list[Change]:
        """The text has ended: what was held back, and the end of an open fence."""
        changes: list[Change] = []
        if self._line:
            line, self._line = self._line, ""
            changes += self._end_line(line) if self._start else self._part(line)
        if self._marks:
            self._marks = ""
            changes.append(Change("close"))
        return _joined(changes)

    def _held(self, rest: str) -> bool:
        """Whether a line that is not complete must wait: it may become a fence, or begin another segment."""
        if not self._start:
            return False
        if self._marks:
            return not rest.strip(" ") or rest.strip(" ")[0] == self._marks[0]
        return bool(_MAYBE_FENCE.fullmatch(rest))

    def _part(self, text: str) -> Iterator[Change]:
        """The beginning or the middle of a line."""
        if self._start:
            yield from self._before(text)
            text = self._undented(text)
        self._start = False
        yield Change("code" if self._marks else "prose", text)

    def _end_line(self, line: str) -> Iterator[Change]:
        start, self._start = self._start, True
        if start and self._marks:
            if re.fullmatch(rf" {{0,3}}{re.escape(self._marks[0])}{{{len(self._marks)},}}[ \t]*", line):
                self._marks = ""
                yield Change("close")
                return
            line = self._undented(line)
        elif start and (fence := _opening(line)) is not None:
            self._marks = fence["marks"]
            self._indent = len(line) - len(line.lstrip(" "))
            self._lines, self._blank = 0, False
            yield Change("open", fence["info"].strip().split(" ")[0])
            return
        if self._marks:
            yield Change("code", f"{line}\n")
            return
        if start:
            yield from self._before(line)
        self._lines += 1
        self._blank = start and not line.strip()
        yield Change("prose", f"{line}\n")

    def _undented(self, line: str) -> str:
        """The beginning of a line of code, without the blanks that its fence has too."""
        return line[min(self._indent, len(line) - len(line.lstrip(" "))) :] if self._marks else line

    def _before(self, line: str) -> Iterator[Change]:
        """A cut where a new paragraph begins and there is enough above it."""
        if not self._marks and self._blank and self._lines >= SEGMENT_LINES and not _CONTINUES.match(line):
            self._lines = 0
            yield Change("cut")


def _opening(line: str) -> re.Match[str] | None:
    found = _FENCE.fullmatch(line)
    if found is None or (found["marks"][0] == "`" and "`" in found["info"]):
        return None
    return found


def _joined(changes: list[Change]) -> list[Change]:
    """Neighbours that both add text as one."""
    joined: list[Change] = []
    for change in changes:
        if joined and change.kind in ("prose", "code") and joined[-1].kind == change.kind:
            joined[-1] = Change(change.kind, joined[-1].text + change.text)
        else:
            joined.append(change)
    return joined
