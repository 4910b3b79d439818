"""May one model draft for another? llama.cpp does not check: ids would just mean other words.

The vocabulary rule is llama.cpp's own (common/speculative.cpp): same vocabulary type, same handling of BOS and EOS,
sizes within 128 (padding), same text for every id from 5 up. It serves loaded models (edgespec.llama.compatibility)
and, here, files of which only the header is read. Which architectures keep a running state: src/llama-arch.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .header import Header
from .quoting import one_line
from .vocabulary import FileVocabulary, Vocabulary

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED_ID = 5

RECURRENT_DRAFT = "its recurrent state cannot be rolled back token by token"
_RECURRENT_TARGET = "this model's recurrent state cannot be rolled back, so nothing can be verified on it"

_RECURRENT = {
    "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "jamba", "falcon-h1", "plamo2", "granitehybrid",
    "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen3next", "kimi-linear", "bailingmoe3", "kimi-k3",
    "glm5-next", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "minimax-01",
}  # fmt: skip
_SNAPSHOTS = {  # of these, llama.cpp can take back the latest decode
    "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h", "nemotron_h_moe", "lfm2",
    "lfm2moe", "bailingmoe3",
}  # fmt: skip
_NOT_LEFT_TO_RIGHT = {"t5", "t5encoder", "eagle3", "dflash", "dream", "llada", "llada-moe", "rnd1", "clip"}


@dataclass(frozen=True, slots=True)
class Difference:
    """How two vocabularies differ. token: the first id with two meanings, or that only one has; None: not a token."""

    reason: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """reason: why not, empty where ok.  first_difference: the token id that shows it, where one does."""

    ok: bool
    reason: str = ""
    first_difference: int | None = None


class Comparison:
    """Judges many pairs of files: each vocabulary is read once, and equal ones are compared once."""

    def __init__(self) -> None:
        self._vocabularies: dict[Path, FileVocabulary] = {}
        self._found: dict[tuple[str, str], Difference | None] = {}

    def __call__(self, target: Header, draft: Header) -> Verdict:
        """May `draft` draft for `target`? Raises ModelLoadError."""
        if reason := next(_obstacles(target, draft), None):
            return Verdict(False, reason)
        mine, theirs = self.vocabulary(target), self.vocabulary(draft)
        key = (_key(mine), _key(theirs))
        if key not in self._found:
            self._found[key] = vocab_difference(mine, theirs)
        difference = self._found[key]
        return Verdict(True) if difference is None else Verdict(False, difference.reason, difference.token)

    def vocabulary(self, header: Header) -> FileVocabulary:
        """The vocabulary of a file."""
        return self._vocabularies.setdefault(header.path, FileVocabulary(header))


def compatible(target: Header, draft: Header) -> Verdict:
    """May `draft` draft for `target`? From the headers and vocabularies alone. Raises ModelLoadError."""
    return Comparison()(target, draft)


def _key(vocabulary: FileVocabulary) -> str:
    return f"{vocabulary.identity} {_bos(vocabulary)} {_eos(vocabulary)}"


def _obstacles(target: Header, draft: Header) -> Iterator[str]:
    for header, whose in ((target, "this model"), (draft, "the draft")):
        if header.arch in _NOT_LEFT_TO_RIGHT:
            yield f"{whose} ({one_line(header.arch, 40)}) is not a left-to-right text model"
        elif FileVocabulary(header).type == "none":
            yield f"{whose} has no vocabulary"
    if keeps_state(draft):
        yield RECURRENT_DRAFT
    if not can_roll_back(target):
        yield _RECURRENT_TARGET


def keeps_state(header: Header) -> bool:
    """True where some layers keep a running state instead of a KV cache."""
    return header.arch in _RECURRENT


def can_roll_back(header: Header) -> bool:
    """Can rejected tokens be forgotten? As far as the header says; loading a model tries it."""
    if not keeps_state(header):
        return True
    return header.arch in _SNAPSHOTS and not header.metadata.get(f"{header.arch}.attention.sliding_window")


def vocab_difference(target: Vocabulary, draft: Vocabulary) -> Difference | None:
    """Why the two vocabularies differ, naming the first differing token; None if they match."""
    if target.type != draft.type:
        return _with_token(f"the tokenizers differ: target {target.type}, draft {draft.type}", target, draft)
    for name, added in (("BOS", _bos), ("EOS", _eos)):
        if added(target) != added(draft):
            return _with_token(f"{name} differs: target {added(target)}, draft {added(draft)}", target, draft)
    if (difference := _token_difference(target, draft)) is not None:
        return difference
    if abs(target.size - draft.size) > MAX_SIZE_DIFFERENCE:
        shared = min(target.size, draft.size)
        larger, name = (target, "target") if target.size > draft.size else (draft, "draft")
        return Difference(
            f"the sizes differ by more than padding: target {target.size}, draft {draft.size}; "
            f"the first extra token is {shared}, {_show(larger.texts[shared])}, in the {name}",
            shared,
        )
    return None


def _with_token(reason: str, target: Vocabulary, draft: Vocabulary) -> Difference:
    """A difference of another kind, with the first token that shows it, if any does."""
    shown = _token_difference(target, draft)
    return Difference(reason) if shown is None else Difference(f"{reason}; {shown.reason}", shown.token)


def _token_difference(target: Vocabulary, draft: Vocabulary) -> Difference | None:
    shared = min(target.size, draft.size)
    mine, theirs = target.texts, draft.texts
    if mine[FIRST_COMPARED_ID:shared] == theirs[FIRST_COMPARED_ID:shared]:
        return None
    i = next(i for i in range(FIRST_COMPARED_ID, shared) if mine[i] != theirs[i])
    return Difference(f"token {i} is {_show(mine[i])} in the target and {_show(theirs[i])} in the draft", i)


def _bos(vocab: Vocabulary) -> str:
    return f"adds token {vocab.bos}" if vocab.add_bos else "adds none"


def _eos(vocab: Vocabulary) -> str:
    return f"adds token {vocab.eos}" if vocab.add_eos else "adds none"


def _show(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
