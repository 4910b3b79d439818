"""How a model speaks of tools and thinks: read off its chat template, which was written for what it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .chat import ChatTemplate, ChatVocab
from .errors import EdgeSpecError
from .messages import Message

CallForm = Literal["hermes", "llama", "mistral"]

CALL_MARKS: Mapping[CallForm, tuple[str, str]] = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama": ("<|python_tag|>", ""),
    "mistral": ("[TOOL_CALLS]", ""),
}
ARGUMENTS: Mapping[CallForm, str] = {"hermes": "arguments", "llama": "parameters", "mistral": "arguments"}
# (before the first call, between two, after the last) where nothing but calls may come.
CALL_FRAMES: Mapping[CallForm, tuple[str, str, str]] = {
    "hermes": ("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"),
    "llama": ("", "; ", ""),
    "mistral": ("[TOOL_CALLS][", ", ", "]"),
}
# Of other forms that share a mark with one of these.
_OTHER_FORMS = ("<function=", "<arg_key>", "[ARGS]")
_THOUGHTS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
_SWITCHES = ("enable_thinking", "thinking")  # variables of templates that turn it on and off


@dataclass(frozen=True, slots=True)
class Dialect:
    """variables: that the template looks up.  form: of its calls; None: it takes no tools, or writes calls in a form
    that is not known.  thought: the marks around what it thinks.  switch: the variable that turns thinking on and off.
    opens: the switches (None: left alone) with which the template itself writes the first of these marks, so that an
    answer begins within a thought.  markers: control tokens, whose text is otherwise not shown, that are such marks.
    """

    variables: tuple[str, ...] = ()
    form: CallForm | None = None
    thought: tuple[str, str] | None = None
    switch: str | None = None
    opens: tuple[bool | None, ...] = ()
    markers: Mapping[int, str] = field(default_factory=dict)

    @property
    def takes_tools(self) -> bool:
        """Whether its template writes tools into a prompt."""
        return "tools" in self.variables


def dialect_of(template: ChatTemplate, vocab: ChatVocab) -> Dialect:
    """What a template says of its model."""
    source = template.source
    form = _form(source) if "tools" in template.variables else None
    thought = next((marks for marks in _THOUGHTS if marks[1] in source), None)
    switch = next((name for name in _SWITCHES if name in template.variables), None)
    values: tuple[bool | None, ...] = (None,) if switch is None else (None, True, False)
    opens = () if thought is None else tuple(v for v in values if _opened(template, thought, switch, v))
    marks = {*(thought or ()), *(CALL_MARKS[form] if form else ())}
    markers = {id: text for text, id in vocab.special_texts().items() if text in marks and not vocab.piece(id)}
    return Dialect(tuple(sorted(template.variables)), form, thought, switch, opens, markers)


def _form(source: str) -> CallForm | None:
    if any(mark in source for mark in _OTHER_FORMS):
        return None
    for form in ("mistral", "hermes", "llama"):
        if CALL_MARKS[form][0] in source:
            return form
    return "llama" if "ipython" in source and "parameters" in source else None


def _opened(template: ChatTemplate, thought: tuple[str, str], switch: str | None, value: bool | None) -> bool:
    """Whether a prompt ends with the first mark."""
    more: dict[str, object] = {} if switch is None or value is None else {switch: value}
    try:
        text = template.render([Message("user", "?")], **more)  # type: ignore[arg-type]
    except EdgeSpecError:  # it wants another conversation than this one
        return False
    return text.rstrip().endswith(thought[0])
