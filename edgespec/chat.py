"""Chat messages to token ids: the model's own template, and user text that stays text.

    messages -> parse_messages -> ChatTemplate.render -> encode_chat -> ids

A rendered prompt is tokenized with special texts (<|im_start|> ...) becoming control tokens, so message content must
not spell one. Before rendering, a sentinel (a noncharacter found nowhere else) is put inside every special text of the
contents; after rendering the prompt is cut at the sentinels and the pieces are tokenized one by one: the template's own
markers match, the broken ones cannot, and templates still see contents that start, end and trim as before. Texts that
only the joint of contents and template would spell are found by a second rendering (see _safe_pieces). Not covered: a
template that rewrites content (replaces, changes case) into a special text. Ordinary prompts hold none of this and are
tokenized in one go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from jinja2 import TemplateError

from .budget import TemplateLimitError, budget
from .errors import BadRequestError, ModelLoadError
from .message_fields import arguments_of, parse_messages
from .messages import Message
from .template import MAX_SOURCE, TemplateEnvironment, TemplateRaised, render_bounded, variables_of
from .text import RUN_LIMIT, replace_surrogates, sanitize, split_long_runs

_RAW_FIX = "complete plain text with --raw, or use another file of this model"
_SENTINELS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
# Tags that some vocabularies (gemma) hold as tokens of ordinary text: user text may become these.
_MARKUP = re.compile(
    r"\s*|</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|sub|sup|code|a|html|body|img|"
    r"span|ul|li|div|iframe|footer)>"
)


class ChatVocab(Protocol):
    """What chat needs of a model's vocabulary."""

    @property
    def size(self) -> int: ...
    @property
    def bos(self) -> int | None: ...
    @property
    def eos(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def add_space_prefix(self) -> bool: ...

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids of `text`, without BOS; with `special`, texts of control tokens become these tokens."""
        ...

    def special_texts(self) -> Mapping[str, int]:
        """Texts and ids of the CONTROL and USER_DEFINED tokens."""
        ...

    def is_eog(self, token: int) -> bool: ...
    def piece(self, token: int) -> bytes: ...
    def text(self, token: int) -> str: ...


class ChatTemplate:
    """A GGUF's chat template, compiled in a sandbox with bounded work (see template.py).

    variables: names that it looks up, such as messages and tools. Raises ModelLoadError where the source is not a
    template, asks for something that is not available, or is too large.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        if len(source) > MAX_SOURCE:
            raise ModelLoadError(f"the chat template has more than {MAX_SOURCE} characters; {_RAW_FIX}")
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            with budget():
                environment = TemplateEnvironment()
                self._template = environment.from_string(source)
                self.variables = variables_of(environment, source)
        except (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
            raise ModelLoadError(f"the chat template cannot be compiled: {_one_line(error)}; {_RAW_FIX}") from None

    def render(
        self,
        messages: Sequence[Message | Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        **template_kwargs: object,
    ) -> str:
        """Return the prompt text.

        template_kwargs are further variables of plain data (tools, documents, enable_thinking ...). Raises
        BadRequestError where the template refuses the messages, ModelLoadError where it fails or wants too much.
        """
        variables: dict[str, object] = {"tools": None, "documents": None}
        for name, value in template_kwargs.items():
            if name in self._tokens:
                raise BadRequestError(f"{name} comes from the model; leave it out")
            variables[name] = _map_text(value, str, name)
        variables |= self._tokens
        variables["messages"] = [_shown(m, _unchanged) if isinstance(m, Message) else m for m in messages]
        variables["add_generation_prompt"] = add_generation_prompt
        try:
            with budget():
                return render_bounded(self._template, variables)
        except TemplateRaised as error:
            raise BadRequestError(f"the chat template refuses the messages: {_one_line(error)}; change them") from None
        except TemplateLimitError as error:
            raise ModelLoadError(f"the chat template wants too much: {_one_line(error)}; {_RAW_FIX}") from None
        except Exception as error:  # whatever a template's code can raise, RecursionError and MemoryError included
            raise ModelLoadError(f"the chat template failed: {_one_line(error)}; {_RAW_FIX}") from None

    def inspects(self, text: str) -> bool:
        """Tell whether the template looks for the literal `text` inside other text, as for </think> in old replies."""
        quoted = rf"""(?:'{re.escape(text)}'|"{re.escape(text)}")"""
        methods = "split|rsplit|partition|rpartition|startswith|endswith|find|rfind|index|rindex|replace"
        return re.search(rf"{quoted}\s+(?:not\s+)?in\b|\.(?:{methods})\(\s*{quoted}", self.source) is not None


def _shown(message: Message, change: Callable[[str], str]) -> dict[str, object]:
    """A message as templates know it, its texts changed: arguments are data, and what it lacks is not there."""
    plain = message.mapped(change)
    shown: dict[str, object] = {"role": plain.role, "content": plain.content}
    if plain.reasoning:
        shown["reasoning_content"] = plain.reasoning
    if plain.calls:
        shown["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _map_text(arguments_of(call), change, "arguments")},
            }
            for call in plain.calls
        ]
    if plain.call_id:
        shown["tool_call_id"] = plain.call_id
    if plain.name:
        shown["name"] = plain.name
    return shown


def _unchanged(text: str) -> str:
    return text


def _one_line(error: BaseException) -> str:
    return " ".join(sanitize(str(error)).split())[:200] or type(error).__name__


def _map_text(value: object, change: Callable[[str], str], where: str) -> object:
    """Copy plain data with every string changed; refuse other objects, on which a template could call methods."""
    if isinstance(value, str):
        return change(replace_surrogates(value))
    if value is None or isinstance(value, (bool, int, float)):
        return value
    try:
        if isinstance(value, Mapping):
            return {_map_text(k, change, where): _map_text(v, change, f"{where}.{k}") for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [_map_text(v, change, f"{where}[{i}]") for i, v in enumerate(value)]
    except RecursionError:
        raise BadRequestError(f"{where[:40]} is nested too deeply; make it flat") from None
    raise BadRequestError(f"{where} is a {type(value).__name__}; give text, numbers, lists and mappings")


class _Specials:
    """The special texts of a vocabulary that content must not become, indexed by their first character."""

    def __init__(self, texts: Mapping[str, int]) -> None:
        self._ids = {t: i for t, i in texts.items() if len(t) > 1 and not _MARKUP.fullmatch(t)}
        self._lengths: dict[str, list[int]] = {}
        for text in self._ids:
            lengths = self._lengths.setdefault(text[0], [])
            if len(text) not in lengths:
                lengths.append(len(text))
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        self._first = re.compile(f"[{re.escape(''.join(self._lengths))}]") if self._lengths else None
        self._last = {text[-1] for text in self._ids}
        self._longest = max(map(len, self._ids), default=0)

    def find(self, text: str) -> list[tuple[int, str]]:
        """Return (start, special text) wherever one begins in `text`, overlapping ones included, longest first."""
        found = []
        for match in self._first.finditer(text) if self._first else ():
            start = match.start()
            for length in self._lengths[text[start]]:
                if text[start : start + length] in self._ids:
                    found.append((start, text[start : start + length]))
        return found

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the ascending, disjoint spans that the special texts in `text` cover."""
        spans: list[tuple[int, int]] = []
        for start, special in self.find(text):
            if not spans or start >= spans[-1][1]:
                spans.append((start, start + len(special)))
            else:
                spans[-1] = (spans[-1][0], max(spans[-1][1], start + len(special)))
        return spans

    def mark(self, text: str, sentinel: str, spared: Callable[[str, int], bool]) -> str:
        """Put the sentinel after the first character of every special text in `text` that is not spared."""
        starts = {start for start, special in self.find(text) if not spared(special, self._ids[special])}
        edges = [0, *(start + 1 for start in sorted(starts)), len(text)]
        return sentinel.join(text[a:b] for a, b in pairwise(edges))

    def may_join(self, text: str) -> bool:
        """Tell whether `text` could be part of a special text that goes on before or after it."""
        text = text.strip()
        for n in range(1, min(self._longest, len(text) + 1)):
            if text[-n] in self._lengths and any(special.startswith(text[-n:]) for special in self._ids):
                return True
            if text[n - 1] in self._last and any(special.endswith(text[:n]) for special in self._ids):
                return True
        return 0 < len(text) < self._longest and any(text in special for special in self._ids)

    def markers(self, pieces: Iterable[str]) -> list[str]:
        """Return the special texts that a tokenizer finds in `pieces`, in order."""
        found = []
        for piece in pieces:
            end = 0
            for start, special in self.find(piece):
                if start >= end:
                    found.append(special)
                    end = start + len(special)
        return found


def encode_chat(
    vocab: ChatVocab,
    template: ChatTemplate,
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    add_generation_prompt: bool = True,
    **template_kwargs: object,
) -> tuple[int, ...]:
    """Return the ids of a conversation in the model's format, ready for its reply.

    Content never becomes a control token. There is exactly one BOS in front where the vocabulary wants one, whether or
    not the template writes it. Raises as parse_messages and ChatTemplate.render do.
    """
    parsed = parse_messages(messages)
    specials = _Specials(vocab.special_texts())
    template_kwargs["add_generation_prompt"] = add_generation_prompt
    pieces = _safe_pieces(vocab, template, parsed, template_kwargs, specials)
    return _with_bos(vocab, _tokenize(vocab, pieces, specials, special=True))


def encode_text(vocab: ChatVocab, text: str, *, raw: bool = True) -> tuple[int, ...]:
    """Return the ids of a plain text to complete, with BOS where the vocabulary wants one.

    raw: the text is ordinary text throughout; otherwise its special texts become control tokens (trusted prompts
    only). Raises BadRequestError where the text is empty.
    """
    if not text:
        raise BadRequestError("the prompt is empty; give some text")
    pieces = [replace_surrogates(text)]
    return _with_bos(vocab, _tokenize(vocab, pieces, _Specials(vocab.special_texts()), special=not raw))


def _safe_pieces(
    vocab: ChatVocab,
    template: ChatTemplate,
    messages: Sequence[Message],
    kwargs: Mapping[str, object],
    specials: _Specials,
) -> list[str]:
    """Render, and return the prompt in pieces whose special texts are all the template's own.

    Where a content's edge could be part of a special text (one message ends in "<|im_", the next is "start|>"), a
    second rendering with sentinels at all edges shows whether the first has special texts that span an edge. Only then
    is the second one used, since it splits words that meet the template's text.
    """
    texts = _texts(messages, kwargs)
    sentinel = _sentinel([*texts, template.source])

    def mark(text: str, edges: bool, role: str = "") -> str:
        def spared(special: str, token: int) -> bool:
            return role == "assistant" and not vocab.is_eog(token) and template.inspects(special)

        inner = text.strip()
        if not edges or not inner:
            return specials.mark(text, sentinel, spared)
        before, _, after = text.partition(inner)  # templates trim contents: the edges are those of the trimmed text
        return f"{before}{sentinel}{specials.mark(inner, sentinel, spared)}{sentinel}{after}"

    def render(edges: bool) -> list[str]:
        def of_a_variable(text: str) -> str:  # which templates compare with their own: "string", "function"
            return mark(text, edges and specials.may_join(text))

        marked = [_shown(m, lambda text, role=m.role: mark(text, edges, role)) for m in messages]  # type: ignore[misc]
        variables = {name: _map_text(value, of_a_variable, name) for name, value in kwargs.items()}
        return template.render(marked, **variables).split(sentinel)  # type: ignore[arg-type]

    pieces = render(edges=False)
    if any(specials.may_join(text) for text in texts):
        apart = render(edges=True)
        if "".join(apart) != "".join(pieces) or specials.markers(apart) != specials.markers(pieces):
            return apart
    return pieces


def _texts(messages: Sequence[Message], kwargs: Mapping[str, object]) -> list[str]:
    """Return every text that the caller, not the model's file, puts into the prompt."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    for message in messages:
        _shown(message, collect)
    for name, value in kwargs.items():
        _map_text(value, collect, name)
    return texts


def _tokenize(vocab: ChatVocab, pieces: Iterable[str], specials: _Specials, *, special: bool) -> list[int]:
    """Tokenize the pieces of one text: the ids of the whole text, but for merges across the borders."""
    ids: list[int] = []
    markers = set(vocab.special_texts().values())
    for piece in pieces:
        for part in split_long_runs(piece, specials.spans(piece) if len(piece) > RUN_LIMIT else ()):
            if not part:
                continue
            if vocab.add_space_prefix and ids and ids[-1] not in markers:
                ids += _without_space_prefix(vocab, part, special)
            else:  # such vocabularies begin a text, and what follows a control token, with a space
                ids += vocab.tokenize(part, special=special)
    return ids


def _without_space_prefix(vocab: ChatVocab, part: str, special: bool) -> list[int]:
    """Tokenize `part` as the middle of a text: behind an anchor, whose ids are then dropped unless they merged."""
    for anchor in "\n\t.0":
        head = vocab.tokenize(anchor, special=special)
        ids = vocab.tokenize(anchor + part, special=special)
        if ids[: len(head)] == head:
            return ids[len(head) :]
    return vocab.tokenize(part, special=special)


def _with_bos(vocab: ChatVocab, ids: list[int]) -> tuple[int, ...]:
    if not vocab.add_bos or vocab.bos is None:
        return tuple(ids)
    start = next((i for i, token in enumerate(ids) if token != vocab.bos), len(ids))
    return (vocab.bos, *ids[start:])


def _sentinel(texts: Iterable[str]) -> str:
    used = set().union(*texts)
    for sentinel in _SENTINELS:
        if sentinel not in used:
            return sentinel
    raise BadRequestError("the messages use all 32 noncharacters from U+FDD0; remove one, they mean nothing in text")
