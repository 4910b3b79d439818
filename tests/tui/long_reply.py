"""A long reply for the scripted model, and a loader that writes its beginning fast and the rest at a set pace.

    WorkerEngine(loader="long_reply:load").load(LoadSpec(model="scripted:/path?decodes_per_s=30&n_ctx=32768"))

EDGESPEC_TEST_FAST, a number of tokens: so many come at once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

from edgespec.api import LLM
from edgespec.engine.loaded import Progress
from edgespec.engine.protocol import LoadSpec
from edgespec.engine.scripted import Script, ScriptedLLM, ScriptedModel, ScriptedVocab
from edgespec.scoring import Rows, ScoreRequest

FENCE_LINES = 300
FAST = "EDGESPEC_TEST_FAST"
LOADER = "long_reply:load"
_WORDS = (" the", " a", " of", " to", " and", " in", " is", " it", " that", " for", " you", " with", " one", " two")
_CODE = (
    "for one in two:",
    "    with one as two:",
    "    not the(one, two)",
    "    one = two and that",
    "    you = [one]",
)


def long_reply(tokens: int, seed: int = 1) -> str:
    """Paragraphs, a list and code of 300 lines by turns, mostly of words that are one token of the scripted model."""
    chance, vocab = random.Random(seed), ScriptedVocab()
    parts: list[str] = []
    count = 0
    while count < tokens:
        sentences = ["".join(chance.choices(_WORDS, k=chance.randint(6, 16))).strip() for _ in range(24)]
        text = ". ".join(sentences[:12]) + ".\n\n" + "".join(f"- {line}\n" for line in sentences[12:18])
        text += "\n" + ". ".join(sentences[18:]) + ".\n\n"
        code = "\n".join(chance.choices(_CODE, k=FENCE_LINES))
        for part in (f"## Part {len(parts)}\n\n{text}", f"```python\n{code}\n```\n\n"):
            parts.append(part)
            count += len(vocab.tokenize(part, special=False))
    ids = vocab.tokenize("".join(parts), special=False)[:tokens]
    return vocab.detokenize(ids).decode()


class PacedModel(ScriptedModel):
    """Writes as many tokens as `fast` at once."""

    def __init__(self, script: Script, fast: int) -> None:
        super().__init__(script)
        self._fast, self._pace_s = fast, self._decode_s

    def score(self, requests: Sequence[ScoreRequest]) -> list[Rows]:
        begun = self.last(requests[0].tokens, "assistant") if requests else None
        said = len(requests[0].tokens) - begun if begun is not None else 0
        self._decode_s = 0.0 if said < self._fast else self._pace_s
        return super().score(requests)


def load(spec: LoadSpec, progress: Progress) -> LLM:
    """A loader for engines."""
    progress(str(spec.model), 1.0)
    return ScriptedLLM(PacedModel(Script.parse(str(spec.model)), int(os.environ.get(FAST, "0"))), None, spec.drafter)
