"""Where the tokens of a reply lie in lines of a given width. Only ever added to at the end.

Lines break between words, between wide characters, inside a word that is wider than a line, and after a newline. Widths
are in cells, as a terminal counts them; a character that several tokens make together lies whole in the first of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.cells import cell_len, split_graphemes

NEWLINE = "↵"  # shown where a token ends a line, so that it can be seen and selected
OVERHANG = 2  # cells by which that mark, or one of a source, may stand out of a full line
HIDDEN = -1

_TAB = "    "
_ATOMS = re.compile(r"\n|[^\S\n]+|\S+")


@dataclass(slots=True)
class Piece:
    """A part of a token on one line. token: its number.  mark: the glyph of its source, which is not in the text.
    cells: width of both."""

    token: int
    mark: str
    text: str
    cells: int


class TokenLayout:
    """The lines of a growing reply.

    width: cells of a line, without OVERHANG.  lines: pieces from left to right.  first: by token, the line where it
    begins, or HIDDEN: it has no place of its own, being empty or a part of a character that began before it.
    """

    def __init__(self, width: int) -> None:
        self.width = max(2, width)
        self.lines: list[list[Piece]] = [[]]
        self.first: list[int] = []
        self._used = 0  # cells of the last line
        self._word = 0  # pieces of the last line before its last word, which may yet move to the next line

    def append(self, text: str, mark: str = "") -> int:
        """Add one token; returns the first line that it changed. text: sanitised.  mark: a glyph before it."""
        token = len(self.first)
        self.first.append(HIDDEN)
        begin = len(self.lines) - 1
        rest = self._joined(text)
        for atom in _ATOMS.findall(rest):
            if atom == "\n":
                self._put(token, mark, NEWLINE)
                self._break()
            elif atom.isspace():
                self._add_blanks(token, atom)
                continue
            else:
                self._add_word(token, mark, atom)
            mark = ""
        if rest.isspace() and mark and self._used < self.width + OVERHANG:
            self._put(token, mark, "")
            self._word = len(self.lines[-1])
        return begin

    def _joined(self, text: str) -> str:
        """Give the last piece what continues its last character (an accent, a joiner); returns the rest."""
        if not self.lines[-1] or text.isascii():
            return text
        last = self.lines[-1][-1]
        size = len(last.text)
        spans, _ = split_graphemes(last.text + text)
        end = next((end for start, end, _ in spans if start < size < end), size)
        last.text += text[: end - size]
        cells = cell_len(last.mark + last.text)
        self._used += cells - last.cells
        last.cells = cells
        return text[end - size :]

    def _add_blanks(self, token: int, blanks: str) -> None:
        """Blanks end a word; where the line is full, they are its end."""
        spaces = "".join(_TAB if blank == "\t" else " " * cell_len(blank) for blank in blanks)
        if shown := spaces[: max(0, self.width - self._used)]:
            self._put(token, "", shown)
        self._word = len(self.lines[-1])

    def _add_word(self, token: int, mark: str, word: str) -> None:
        if self._breaks_before(word):
            self._word = len(self.lines[-1])
        while word:
            cells = cell_len(mark + word)
            if self._used + cells <= self.width:
                self._put(token, mark, word)
                return
            begun = self.lines[-1][self._word :]
            begun_cells = sum(piece.cells for piece in begun)
            if begun_cells < self._used and begun_cells + cells <= self.width:
                self._break(begun)  # the whole word fits the next line
            elif self._used and not begun:
                self._break()
            else:
                head, word = self._split(mark, word)
                if head:
                    self._put(token, mark, head)
                    mark = ""
                self._break()

    def _breaks_before(self, word: str) -> bool:
        """A line may end before and after a wide character."""
        line = self.lines[-1]
        return cell_len(word[0]) == 2 or bool(line and line[-1].text and cell_len(line[-1].text[-1]) == 2)

    def _split(self, mark: str, word: str) -> tuple[str, str]:
        """As much of a word as the line still takes behind its mark; of an empty line one character at least."""
        room = self.width - self._used - cell_len(mark)
        used = end = 0
        for _, stop, cells in split_graphemes(word)[0]:
            if used + cells > room and (end or self._used):
                break
            used, end = used + cells, stop
        return word[:end], word[end:]

    def _put(self, token: int, mark: str, text: str) -> None:
        cells = cell_len(mark + text)
        self.lines[-1].append(Piece(token, mark, text, cells))
        self._used += cells
        if self.first[token] == HIDDEN:
            self.first[token] = len(self.lines) - 1

    def _break(self, moved: list[Piece] | None = None) -> None:
        """Begin another line with pieces taken from the end of the last one."""
        moved = moved or []
        old, here = len(self.lines) - 1, len(self.lines)
        if moved:
            del self.lines[old][-len(moved) :]
        self.lines.append(moved)
        self._used, self._word = sum(piece.cells for piece in moved), 0
        stay = {piece.token for piece in self.lines[old][-1:]}
        for piece in moved:
            if self.first[piece.token] == old and piece.token not in stay:
                self.first[piece.token] = here
