"""Text at the edges of the engine: token bytes in, characters out; stop strings; terminal safety.

Everything here is incremental and independent of how its input is cut into pieces:

    bytes of one token -> Utf8Stream -> StopMatcher -> visible text        (OutputText joins the two)
    visible text       -> Sanitizer  -> text that is safe to print on a terminal
    prompt text        -> split_long_runs -> pieces that llama.cpp's tokenizers survive
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from .errors import BadRequestError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def replace_surrogates(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone surrogates turned into U+FFFD, so that it has a UTF-8 form."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Utf8Stream:
    """Decode UTF-8 bytes as they come: invalid bytes become U+FFFD, an unfinished character is held back."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: bytes) -> str:
        """Return the characters that `piece` completes."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """End the stream: an unfinished character becomes U+FFFD."""
        return self._decoder.decode(b"", True)


class StopMatcher:
    """Find the first stop string in a character stream while showing everything that cannot be part of one.

    The first stop is the one whose last character comes first; of several that end there, the one that starts
    earliest (the longest). Text from its start on is never shown. Held back meanwhile is exactly the longest suffix
    that could still become a stop string. Each pushed character costs amortised O(1) per stop string
    (one Knuth-Morris-Pratt automaton each).
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, (str, bytes)):
            raise BadRequestError("stop must be a list of strings, not one string; write [stop]")
        for i, stop in enumerate(stops):
            if not isinstance(stop, str):
                raise BadRequestError(f"stop[{i}] must be a string, not {type(stop).__name__}; give text")
            if not stop:
                raise BadRequestError(f"stop[{i}] is empty; give at least one character or leave it out")
            if _SURROGATE.search(stop):
                raise BadRequestError(f"stop[{i}] holds a lone surrogate, which no output can contain; remove it")
        self._stops = tuple(dict.fromkeys(stops))
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._matched = [0] * len(self._stops)  # characters of each stop that the stream's end matches
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Take more text; return (newly visible text, whether a stop string has been completed)."""
        if self.stopped:
            return "", True
        if not self._stops:
            return text, False
        matched = self._matched
        for i, char in enumerate(text):
            longest = 0
            for s, stop in enumerate(self._stops):
                borders, state = self._borders[s], matched[s]
                while state and stop[state] != char:
                    state = borders[state - 1]
                if stop[state] == char:
                    state += 1
                matched[s] = state
                if state == len(stop):
                    self.stopped = True
                    longest = max(longest, state)
            if self.stopped:
                buffer = self._held + text[: i + 1]
                self._held = ""
                return buffer[: len(buffer) - longest], True
        buffer = self._held + text
        shown = len(buffer) - max(matched)
        self._held = buffer[shown:]
        return buffer[:shown], False

    def flush(self) -> str:
        """Return the held-back text: the stream ended and no stop string was completed."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._stops)
        return held


class OutputText:
    """Turn the bytes of generated tokens into visible text, up to the first stop string.

    The pushes' results plus finish() join to the whole decoded output cut before the first stop (see StopMatcher for
    which is first), whatever the cut into pieces. Stop strings are matched on decoded characters, so one may begin and
    end in the middle of tokens; U+FFFD in a stop string matches an undecodable byte.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._matcher = StopMatcher(stops)
        self._utf8 = Utf8Stream()

    @property
    def stopped(self) -> bool:
        """Whether a stop string has been completed: generation should end."""
        return self._matcher.stopped

    def push(self, piece: bytes) -> str:
        """Take the bytes of one token; return the text that is now known to be visible."""
        return self._matcher.push(self._utf8.push(piece))[0]

    def finish(self) -> str:
        """Return what is still held back, after generation ended for another reason than a stop string."""
        visible, stopped = self._matcher.push(self._utf8.flush())
        return visible if stopped else visible + self._matcher.flush()


def _borders(word: str) -> list[int]:
    """Return for each prefix of `word` the length of its longest proper border (the KMP failure function)."""
    table = [0] * len(word)
    length = 0
    for i in range(1, len(word)):
        while length and word[i] != word[length]:
            length = table[length - 1]
        if word[i] == word[length]:
            length += 1
        table[i] = length
    return table


# Terminal safety -----------------------------------------------------------------------------------------------------

CSI_LIMIT = 256
STRING_LIMIT = 4096
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STRING_STARTS = "]PX^_"  # OSC, DCS, SOS, PM, APC after ESC
_STRING_STARTS_C1 = "\x9d\x90\x98\x9e\x9f"


class Sanitizer:
    """Strip from model text whatever a terminal would act on, across any cut into chunks.

    Removed: C0 controls except newline and tab (so CR LF becomes LF and a lone CR vanishes), DEL, C1, bidirectional
    embeddings, overrides and isolates, and whole escape sequences: ESC x, CSI, OSC, DCS, APC, PM and SOS, in their
    7-bit and 8-bit forms. A lone surrogate becomes U+FFFD. Letters, combining marks, joiners and emoji stay.
    A sequence that never ends cannot swallow the rest: CAN, SUB and another ESC end it, so do a newline
    (which is kept), STRING_LIMIT characters of a string or CSI_LIMIT of a CSI or ESC sequence; what follows is plain
    text, harmless because its introducer is gone.
    """

    def __init__(self) -> None:
        self._state = "text"
        self._taken = 0  # characters swallowed by the running sequence

    def push(self, chunk: str) -> str:
        """Return the safe part of the next `chunk`."""
        out: list[str] = []
        i = 0
        while i < len(chunk):
            if self._state == "text":
                unsafe = _UNSAFE.search(chunk, i)
                end = unsafe.start() if unsafe else len(chunk)
                out.append(chunk[i:end])
                if unsafe:
                    self._enter(unsafe.group(), out)
                i = end + 1
            elif self._swallow(chunk[i]):
                i += 1
            else:  # the sequence broke off: this character belongs to the text again
                self._state = "text"
        return "".join(out)

    def finish(self) -> str:
        """End the text: an unfinished sequence is dropped, nothing is held back."""
        self._state = "text"
        return ""

    def _enter(self, char: str, out: list[str]) -> None:
        self._taken = 0
        if char == "\x1b":
            self._state = "escape"
        elif char == "\x9b":
            self._state = "csi"
        elif char in _STRING_STARTS_C1:
            self._state = "osc" if char == "\x9d" else "string"
        elif "\ud800" <= char <= "\udfff":
            out.append(REPLACEMENT)

    def _swallow(self, char: str) -> bool:
        """Advance the running sequence by `char`; False where the sequence ends without taking it."""
        if char == "\x1b":
            self._state, self._taken = "escape", 0
            return True
        if char in "\x18\x1a":  # CAN, SUB
            self._state = "text"
            return True
        self._taken += 1
        if self._state in ("osc", "string"):
            if char == "\n" or self._taken > STRING_LIMIT:
                return False
            if char == "\x9c" or (char == "\x07" and self._state == "osc"):  # ST, or xterm's BEL
                self._state = "text"
            return True
        if not " " <= char <= "~" or self._taken > CSI_LIMIT:
            return False
        if self._state == "csi":
            if char >= "@":
                self._state = "text"
        elif self._state == "escape" and char == "[":
            self._state, self._taken = "csi", 0
        elif self._state == "escape" and char in _STRING_STARTS:
            self._state, self._taken = ("osc" if char == "]" else "string"), 0
        elif char >= "0":
            self._state = "text"  # the final character of ESC x, or of ESC and intermediates
        else:
            self._state = "intermediate"
        return True


def sanitize(text: str) -> str:
    """Return `text` made safe for a terminal (see Sanitizer)."""
    return Sanitizer().push(text)


# Long runs -----------------------------------------------------------------------------------------------------------

RUN_LIMIT = 512
_RUNS = re.compile(r"\S+|\s+")
# Words joined by single spaces: exaone-moe's pre-tokenizer takes such a line in one match.
_WORDS = re.compile(r"(?:[^\s0-9!-/:-@\[-`{-~]| (?! ))+")


def split_long_runs(text: str, atoms: Sequence[tuple[int, int]] = ()) -> tuple[str, ...]:
    """Cut `text` so that no piece holds a run of more than RUN_LIMIT characters of one kind; the pieces join to `text`.

    A run is a stretch without whitespace, one of whitespace, or one of words and single spaces. llama.cpp's
    pre-tokenizers match many runs with std::regex, which recurses once per character (about 340 bytes of stack each
    with libstdc++): 3,000 characters end the process on a 1 MB stack, 25,000 on 8 MB, and one match may take two runs
    (symbols, then newlines). Cuts fall where pre-tokenizers split anyway if the run has such a place near its limit
    (before a space, or before symbols after letters or digits), else inside the run. `atoms` are ascending, disjoint
    (start, end) spans that are not cut; one may make its piece longer.
    """
    if len(text) <= RUN_LIMIT:
        return (text,)
    cuts: set[int] = set()
    for pattern in (_RUNS, _WORDS):
        for run in pattern.finditer(text):
            start, end = run.span()
            if pattern is _WORDS and " " not in run.group():
                continue  # _RUNS has cut it
            while end - start > RUN_LIMIT:
                start = _cut(text, start, atoms)
                cuts.add(start)
    edges = [0, *sorted(cuts), len(text)]
    return tuple(text[a:b] for a, b in pairwise(edges) if a < b)


def _cut(text: str, start: int, atoms: Sequence[tuple[int, int]]) -> int:
    cut = limit = start + RUN_LIMIT
    for i in range(limit, limit - RUN_LIMIT // 4, -1):
        if _kind(text[i]) in "sy" and _kind(text[i]) != _kind(text[i - 1]):
            cut = i
            break
    before = bisect_left(atoms, (cut, 0)) - 1
    if before >= 0 and atoms[before][1] > cut:
        a, b = atoms[before]
        return a if a > start else b
    return cut


def _kind(char: str) -> str:
    """Return l(etter or mark), d(igit), s(pace) or y (symbol)."""
    if char.isalpha() or unicodedata.category(char)[0] == "M":
        return "l"
    return "s" if char.isspace() else "d" if char.isdigit() else "y"
