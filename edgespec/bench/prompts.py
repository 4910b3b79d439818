"""Workloads by name or from a file, as prompts that a model's template may still wrap."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import workloads
from ..errors import BadRequestError
from ..message_fields import parse_messages

Turns = tuple[Mapping[str, Any], ...]

# Name of the bundled texts, by the name that people type.
BUNDLED = {"code": "code", "chat": "chat", "rag": "summarise", "edit": "edit", "prose": "prose"}
# Hostile to every source: free prose at full temperature. The other workloads run greedily.
TEMPERATURES = {"prose": 1.0}
_LINE = 'a line is {"prompt": TEXT}, {"messages": [...]} or {"turns": [TEXT, ...]}'


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """messages: a conversation that ends with the user's turn.  plain: its text, where it is one bare text.
    follows: the messages go on from the prompt before, after the model's reply to it."""

    name: str
    messages: Turns
    plain: str | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts under one name. temperature: what they run at unless it is given."""

    name: str
    prompts: tuple[BenchPrompt, ...]
    temperature: float = 0.0


def load_workloads(names: Sequence[str], limit: int | None) -> list[Workload]:
    """The named workloads, each once and at most `limit` prompts (lines of a file) of each. Raises BadRequestError."""
    wanted = dict.fromkeys(n for name in names for n in (BUNDLED if name == "all" else (name,)))
    files = Counter(Path(name).name for name in wanted)
    return [_load(name, Path(name).name if files[Path(name).name] == 1 else name, limit) for name in wanted]


def _load(name: str, shown: str, limit: int | None) -> Workload:
    if name in BUNDLED:
        found = [BenchPrompt(p.name, tuple(p.messages), p.text) for p in workloads.prompts(BUNDLED[name])]
        return Workload(name, tuple(found[:limit]), TEMPERATURES.get(name, 0.0))
    if not name.endswith(".jsonl"):
        raise BadRequestError(f"workload {name!r} is not known; use {', '.join(BUNDLED)}, all or a FILE.jsonl")
    prompts = read_file(Path(name))
    lines = [i for i, prompt in enumerate(prompts) if not prompt.follows]
    end = lines[limit] if limit is not None and limit < len(lines) else None
    return Workload(shown, tuple(prompts[:end]))


def read_file(path: Path) -> list[BenchPrompt]:
    """Prompts of a JSON-lines file: one a line, or of "turns" each. Raises BadRequestError with the line's number."""
    try:
        lines = path.read_text("utf-8-sig").split(
            "\n"
        )  # texts may hold other ends of lines, and a file begin with a mark
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadRequestError(f"cannot read workload {path}: {why}") from error
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    found = [prompt for number, line in numbered for prompt in _prompts(path, number, line)]
    if not found:
        raise BadRequestError(f"workload {path} has no prompts; {_LINE}")
    return found


def _prompts(path: Path, number: int, line: str) -> list[BenchPrompt]:
    where = f"{path}, line {number}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRequestError(f"{where} is not JSON; {_LINE}") from None
    if not isinstance(fields, dict):
        raise BadRequestError(f"{where} is no object; {_LINE}")
    name = f"{path.stem}-{number}"
    forms = [key for key in ("prompt", "messages", "turns") if key in fields]
    if len(forms) != 1:
        raise BadRequestError(f"{where} has {' and '.join(forms) or 'no prompt'}; {_LINE}")
    value = fields[forms[0]]
    if forms == ["messages"]:
        if not isinstance(value, list) or not value or not all(isinstance(m, dict) for m in value):
            raise BadRequestError(f"{where}: messages is no list of objects; {_LINE}")
        try:
            parse_messages(value)
        except BadRequestError as error:
            raise BadRequestError(f"{where}: {error}") from error
        return [BenchPrompt(name, tuple(value))]
    texts = value if forms == ["turns"] and isinstance(value, list) and value else [value]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise BadRequestError(f"{where}: {forms[0]} has no text; {_LINE}")
    first = BenchPrompt(name, (_said(texts[0]),), texts[0])
    later = [BenchPrompt(f"{name}.{i}", (_said(text),), follows=True) for i, text in enumerate(texts[1:], start=2)]
    return [first, *later]


def _said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
