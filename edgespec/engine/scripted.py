"""A model that says what it is told, at a set pace: real front ends and the real process, without a model file.

    WorkerEngine(loader="edgespec.engine.scripted:load").load(LoadSpec(model="scripted:echo?decodes_per_s=30"))

The name chooses what it says and how:

    scripted:echo             repeats the latest message of the user
    scripted:count            counts from one, without an end
    scripted:/path/to/file    the text of that file

    ?decodes_per_s=30         pace of decodes; left out: as fast as it goes
    &reads_per_s=500          pace of reading a prompt, in tokens
    &sure=0.8                 probability that its draft model (LoadSpec.draft "scripted") gives to the right token
    &n_ctx=32768              tokens of context
    &cells=65536              tokens that all requests together may hold; left out: as many as they like
    &template=no              a model that cannot chat
    &template=/path/to/file   its chat template, in place of the usual one
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from edgespec.models.memory import MemoryEstimate

from ..api import LLM
from ..costs import Costs, CostTable
from ..drafters import select
from ..errors import BadRequestError, Cancelled, ModelNotFoundError
from ..llama import Context
from ..messages import ROLES
from ..scoring import Rows, ScoreRequest
from ..table_model import TableModel, TableSequence
from .loaded import Progress
from .protocol import LoadSpec

_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_WORDS = (
    " the", " a", " of", " to", " and", " in", " is", " it", " that", " for", " you", " with", " one", " two", " not",
    " this", " be", " on", " as", " are", "ing", "ed", "er", "ly", "tion", "the", "and", "    ", "\n\n", "```",
    ". ", ", ",
)  # fmt: skip
_PIECES = [bytes([i]) for i in range(256)] + [word.encode() for word in _WORDS]
_SPECIALS = ("<|end|>", *(f"<|{role}|>" for role in ROLES))
_END = len(_PIECES)
_ROLE_IDS = {role: _END + 1 + i for i, role in enumerate(ROLES)}
_SIZE = len(_PIECES) + len(_SPECIALS)
_IMPOSSIBLE = -60.0
_WIDTHS = (1, 2, 4, 8, 16)
_FAST_MS = 0.05


class ScriptedVocab:
    """Bytes, some words, and a token for each role and for the end."""

    size = _SIZE
    bos = None
    eos = _END
    add_bos = False
    add_space_prefix = False
    identity = "scripted"

    def is_eog(self, token: int) -> bool:
        return token == _END

    def check(self, token: int) -> None:
        if not 0 <= token < _SIZE:
            raise BadRequestError(f"token id {token} is not in the vocabulary; ids run from 0 to {_SIZE - 1}")

    def piece(self, token: int) -> bytes:
        return _PIECES[token] if token < _END else b""

    def text(self, token: int) -> str:
        return self.piece(token).decode("utf-8", "replace") if token < _END else _SPECIALS[token - _END]

    def special_texts(self) -> Mapping[str, int]:
        return {text: _END + i for i, text in enumerate(_SPECIALS)}

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """The longest piece first."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        ids: list[int] = []
        i = 0
        while i < len(data):
            marker = next((s for s in _SPECIALS if special and data.startswith(s.encode(), i)), None)
            if marker is not None:
                ids.append(_END + _SPECIALS.index(marker))
                i += len(marker)
                continue
            token = next((256 + n for n, word in enumerate(_WORDS) if data.startswith(word.encode(), i)), data[i])
            ids.append(token)
            i += len(_PIECES[token])
        return ids

    def detokenize(self, tokens: Iterable[int]) -> bytes:
        return b"".join(map(self.piece, tokens))


@dataclass(frozen=True, slots=True)
class Script:
    """What a model's name asks for; see this module's docstring."""

    says: str
    decodes_per_s: float | None = None
    reads_per_s: float | None = None
    sure: float = 0.8
    n_ctx: int = 32768
    cells: int | None = None
    template: str = "yes"

    @staticmethod
    def parse(name: str) -> Script:
        """Raises BadRequestError, ModelNotFoundError."""
        kind, _, rest = name.partition(":")
        says, _, query = rest.partition("?")
        if kind != "scripted" or not says:
            raise ModelNotFoundError(f"{name!r} is no scripted model; give scripted:echo, scripted:count or a file")
        types = {
            "decodes_per_s": float,
            "reads_per_s": float,
            "sure": float,
            "n_ctx": int,
            "cells": int,
            "template": str,
        }
        options: dict[str, Any] = {}
        for key, value in parse_qsl(query, keep_blank_values=True):
            if key not in types:
                raise BadRequestError(f"a scripted model has no {key!r}; it has {', '.join(types)}")
            options[key] = types[key](value)
        template = options.get("template", "yes")
        if template not in ("yes", "no") and not Path(template).is_file():
            raise ModelNotFoundError(f"there is no chat template {template} for a scripted model")
        if says not in ("echo", "count") and not Path(says).is_file():
            raise ModelNotFoundError(f"there is no file {says} for a scripted model to read from")
        return Script(says, **options)


class ScriptedModel(TableModel):
    """A TableModel that puts all its probability on what the script says next; a draft of it, most."""

    def __init__(self, script: Script, *, sequences: int = 4, sure: float = 1.0, speed: float = 1.0) -> None:
        """sure: probability of the scripted token, the rest goes to its neighbours.  speed: times the script's."""
        super().__init__(
            _SIZE,
            order=script.n_ctx,
            eog=(_END,),
            n_ctx=script.n_ctx,
            max_width=32,
            n_seq_max=sequences,
            cells=script.cells,
        )
        self.vocab: Any = ScriptedVocab()
        self.model = _File(script)
        self.n_batch = 512
        self.n_threads = 1
        self.memory = MemoryEstimate(script.n_ctx, 0, 0, 0, 0)
        self._script, self._sure, self._speed = script, sure, speed
        self._decode_s = 0.0 if script.decodes_per_s is None else 1 / (script.decodes_per_s * speed)
        self._token_s = 0.0 if script.reads_per_s is None else 1 / (script.reads_per_s * speed)
        self._reply: tuple[tuple[int, ...], list[int]] = ((), [])
        self._file = [] if script.says in ("echo", "count") else self._ids(Path(script.says).read_bytes())

    @property
    def costs(self) -> CostTable:
        """What its decodes take."""
        ms = 1000 * self._decode_s or _FAST_MS
        return CostTable(_WIDTHS, tuple(ms * (1 + 0.01 * width) for width in _WIDTHS))

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        row = np.full(_SIZE, _IMPOSSIBLE, np.float32)
        token = self._next(tokens)
        if self._sure < 1 and token < 256:
            for other in (token ^ 1, token ^ 2, token ^ 3):
                row[other] = np.log((1 - self._sure) / 3)
        row[token] = np.log(self._sure)
        return row

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        begin = time.monotonic()
        for r in requests:
            self._pretend(len(r.before) - len(r.sequence.cached), r.cancel)
        rows = super().score(requests)
        time.sleep(max(0.0, self._decode_s - (time.monotonic() - begin)))
        return rows

    def sync(self, sequence: TableSequence, tokens: Sequence[int], cancel: threading.Event | None = None) -> int:
        self._pretend(len(tokens) - len(sequence.cached), cancel)
        return super().sync(sequence, tokens, cancel)

    def last(self, tokens: Sequence[int], role: str) -> int | None:
        """Index of the token that begins the latest turn of a role."""
        return _last(tokens, _ROLE_IDS[role])

    def close(self) -> None:
        """There is nothing to free."""

    def _pretend(self, tokens: int, cancel: threading.Event | None) -> None:
        """Take the time that reading so many tokens takes."""
        seconds = tokens * self._token_s
        if seconds > 0 and (cancel or threading.Event()).wait(seconds):
            raise Cancelled("cancelled")

    def _next(self, tokens: Sequence[int]) -> int:
        """The token that follows."""
        place = self.last(tokens, "assistant")
        if place is None:  # a raw text goes on in the alphabet
            return (tokens[-1] + 1) % 256 if tokens else 0
        said = len(tokens) - place - 1
        if self._script.says == "count":
            reply = self._counted(said)
        elif self._script.says == "echo":
            reply = self._asked(tokens, place)
        else:
            reply = self._file
        return reply[said] if said < len(reply) else _END

    def _counted(self, said: int) -> list[int]:
        ids = self._reply[1]
        while len(ids) <= said:
            ids += self._ids(b"".join(b"%d " % n for n in range(len(ids) + 1, len(ids) + 64)))
        return ids

    def _asked(self, tokens: Sequence[int], place: int) -> list[int]:
        """What the user said last."""
        user = self.last(tokens[:place], "user")
        asked = () if user is None else tuple(tokens[user + 1 : place])
        if self._reply[0] != asked:
            self._reply = (asked, [token for token in asked if token < _END])
        return self._reply[1]

    def _ids(self, data: bytes) -> list[int]:
        return cast(list[int], self.vocab.tokenize(data, special=False))


class _File:
    """What front ends ask about the file of a model."""

    def __init__(self, script: Script) -> None:
        self.path = Path(f"scripted-{Path(script.says).name}.gguf")
        usual = {"yes": _TEMPLATE, "no": None}
        self.chat_template = usual[script.template] if script.template in usual else Path(script.template).read_text()
        self.settings = _Settings()

    def close(self) -> None:
        """There is nothing to free."""


@dataclass(frozen=True, slots=True)
class _Settings:
    max_width: int = 32


class ScriptedLLM(LLM):
    """An LLM over such a model. Its decode times are known, and nothing about it is kept on disk."""

    def __init__(self, target: ScriptedModel, draft: ScriptedModel | None, drafter: str) -> None:
        sources = select(drafter, has_draft=draft is not None)
        super().__init__(cast(Context, target), cast(Context | None, draft), sources)
        self.costs = Costs(target.costs)
        self.draft_costs = None if draft is None else Costs(draft.costs)

    generates = True

    @property
    def why_not_embedding(self) -> str:
        return "a scripted model makes no embeddings"

    def close(self) -> None:
        """There is nothing to free, and nothing to measure again."""


def load(spec: LoadSpec, progress: Progress) -> LLM:
    """A loader for engines."""
    script = Script.parse(str(spec.model))
    progress(str(spec.model), 0.0)
    sequences = spec.parallel
    draft = ScriptedModel(script, sequences=sequences, sure=script.sure, speed=10) if spec.draft == "scripted" else None
    llm = ScriptedLLM(ScriptedModel(script, sequences=sequences), draft, spec.drafter)
    progress(str(spec.model), 1.0)
    return llm


def _last(tokens: Sequence[int], wanted: int) -> int | None:
    """Index of the latest `wanted`."""
    for i in range(len(tokens) - 1, -1, -1):
        if tokens[i] == wanted:
            return i
    return None
