"""What a model says, taken apart: text, thoughts, and calls of tools. Piece by piece, as it comes.

Where nothing is to be taken apart, all of it is text. A call is told once it is whole, since until then it may turn out
to be none: then it is text, and nothing of it is lost but for white space around thoughts and calls.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from ..dialect import CALL_MARKS, CallForm
from ..messages import ToolCall

_FENCES = ("", "```", "```json")
_ID_LENGTH = 9  # as Mistral's templates insist on
_ID_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Reading:
    """How an answer is to be read. form: of calls; None: there are none.  names: of the functions.  thought: the marks
    around what the model thinks; None: it stays in the text.  opened: the answer begins within a thought.
    markers: texts of control tokens that are marks."""

    form: CallForm | None = None
    names: frozenset[str] = frozenset()
    thought: tuple[str, str] | None = None
    opened: bool = False
    markers: Mapping[int, str] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """All of it is text."""
        return self.form is None and self.thought is None


ALL_TEXT = Reading()


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    call: ToolCall


Part = Said | Thought | Called


class Reader:
    """Reads one answer: push() each token's text, then finish()."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._held = ""  # not told yet: it may be the beginning of a mark
        self._space = ""  # white space before _held: lost if a mark follows
        self._fresh = True  # nothing has been said yet
        self._state: Callable[[], Iterator[Part]] = self._begin if reading.thought else self._text
        self._undecided = 0  # tokens before the first mark
        self.thought_tokens = 0
        self.calls = 0

    def push(self, text: str) -> list[Part]:
        """Another token. What is known of it."""
        before = self._state
        self._held += text
        told = list(self._run())
        if before == self._begin:
            self._undecided += 1
            if self._state in (self._think, self._gap) or any(isinstance(part, Thought) for part in told):
                self.thought_tokens += self._undecided
        elif before == self._think:
            self.thought_tokens += 1
        return told

    def finish(self, more: str = "") -> list[Part]:
        """The answer has ended. more: text that came with no token."""
        self._held += more
        return [*self._run(), *self._rest()]

    def _run(self) -> Iterator[Part]:
        while True:
            state = self._state
            yield from state()
            if self._state == state:
                return

    # States: each tells what it can, and leaves in _held what it cannot decide.

    def _begin(self) -> Iterator[Part]:
        assert self._reading.thought is not None
        opening, text = self._reading.thought[0], self._held.lstrip()
        if text.startswith(opening):
            self._held = text[len(opening) :]
            self._state = self._think
        elif not opening.startswith(text):
            self._state = self._think if self._reading.opened else self._text
        return iter(())

    def _think(self) -> Iterator[Part]:
        assert self._reading.thought is not None
        found, _, rest = self._held.partition(self._reading.thought[1])
        whole = len(found) < len(self._held)
        text, self._held = (found, "") if whole else _before(self._held, self._reading.thought[1])
        yield from self._spaced(text, Thought)
        if whole:
            self._held, self._space, self._fresh = rest.lstrip(), "", True
            self._state = self._text if self._held else self._gap

    def _gap(self) -> Iterator[Part]:
        """After a thought."""
        self._held = self._held.lstrip()
        if self._held:
            self._state = self._text
        return iter(())

    def _text(self) -> Iterator[Part]:
        form = self._reading.form
        if form is None:
            yield from self._all(Said)
            return
        mark = CALL_MARKS[form][0]
        if form == "llama" and self._fresh and self._held.lstrip().startswith("{"):
            self._state = self._call
            return
        if form == "hermes" and self._fresh and (bare := self._may_be_bare()) is not False:
            self._state = self._bare if bare else self._text
            return
        text, found, rest = self._held.partition(mark)
        if found:
            self._held = mark + rest
            yield from self._spaced(text, Said)
            self._state = self._call
        else:
            text, self._held = _before(self._held, mark)
            yield from self._spaced(text, Said)

    def _may_be_bare(self) -> bool | None:
        """Whether the answer begins with a call that lacks its marks. None: that is not clear yet."""
        begun = "".join(self._held.split())
        clear: bool | None = False
        for fence in _FENCES:
            for name in self._reading.names:
                wanted = f'{fence}{{"name":"{name}","arguments":{{'
                if begun.startswith(wanted):
                    return True
                clear = None if wanted.startswith(begun) else clear
        return clear

    def _bare(self) -> Iterator[Part]:
        """Models forget the marks: then a call is the whole answer, or none."""
        return iter(())

    def _call(self) -> Iterator[Part]:
        """_held begins with the mark, if there was one."""
        form = self._reading.form
        assert form is not None
        mark, end = CALL_MARKS[form]
        if not end:
            return  # it goes on to the end of the answer
        place = len(mark)
        while (place := self._held.find(end, place)) >= 0:
            inner = self._held[len(mark) : place]
            place += len(end)
            if not _within_string(inner):
                raw, self._held = self._held[:place], self._held[place:]
                yield from self._called([inner], raw)
                self._state = self._text
                return

    def _rest(self) -> Iterator[Part]:
        held, self._held = self._held, ""
        if self._state == self._call:
            form = self._reading.form
            assert form is not None
            inner = held.lstrip().removeprefix(CALL_MARKS[form][0])
            yield from self._called(_listed(inner) if form == "mistral" else _objects(inner), held)
        elif self._state == self._bare:
            yield from self._called(_objects(_unfenced(held)), held)
        elif self._state == self._think:
            yield from self._spaced(held, Thought)
        elif held or (self._space and not self.calls):
            yield Said(self._space + held)

    # Telling.

    def _all(self, kind: type[Said] | type[Thought]) -> Iterator[Part]:
        text, self._held = self._held, ""
        if text:
            yield kind(text)

    def _spaced(self, text: str, kind: type[Said] | type[Thought]) -> Iterator[Part]:
        """Tell a text but for the white space at its end, which is told before the next; none begins a thought."""
        text = self._space + text
        told = text.rstrip()
        self._space = text[len(told) :]
        if kind is Thought and self._fresh:
            told = told.lstrip()
        if told:
            self._fresh = False
            yield kind(told)

    def _called(self, texts: list[str], raw: str) -> Iterator[Part]:
        """Calls, if all of these are calls of functions that there are; else what the model said."""
        calls = [_parsed(text, self._reading.names) for text in texts]
        if calls and all(calls):
            self._space = ""
            self.calls += len(calls)
            yield from (Called(call) for call in calls if call is not None)
        else:
            self._fresh = False
            text, self._space = self._space + raw, ""
            yield Said(text)


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


def _parsed(text: str, names: frozenset[str]) -> ToolCall | None:
    """The call that a JSON text is, if it is one of these functions."""
    try:
        found = msgspec.json.decode(text.strip(), type=_Call)
        arguments = bytes(found.arguments) or bytes(found.parameters)
        if found.name not in names or not isinstance(msgspec.json.decode(arguments), dict):
            return None
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return ToolCall("".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH)), found.name, arguments.decode())


def _listed(text: str) -> list[str]:
    """The JSON texts in a JSON list; a text that is none is one of its own."""
    try:
        return [bytes(raw).decode() for raw in msgspec.json.decode(text.strip(), type=list[msgspec.Raw])]
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return [text]


def _objects(text: str) -> list[str]:
    """The JSON texts one after the other, with a semicolon or white space between."""
    decoder, place = json.JSONDecoder(), 0
    found: list[str] = []
    while place < len(text):
        if text[place].isspace() or (found and text[place] == ";"):
            place += 1
            continue
        try:
            _, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return [text]
        found.append(text[place:end])
        place = end
    return found


def _unfenced(text: str) -> str:
    """Without the fence of a code block around it."""
    inner = text.strip()
    return inner.strip("`").removeprefix("json") if inner.startswith("```") else inner


def _within_string(text: str) -> bool:
    """Whether the end of a JSON text lies within one of its strings."""
    inside = escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and inside:
            escaped = True
        elif char == '"':
            inside = not inside
    return inside


def _before(text: str, mark: str) -> tuple[str, str]:
    """(text, what of its end may be the beginning of a mark)."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return text[:-length], text[-length:]
    return text, ""
