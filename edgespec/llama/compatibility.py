"""May this draft model draft for this target? The rule is in models/compat.py, for files and loaded models alike."""

from __future__ import annotations

from edgespec.models import compat

from ..errors import VocabMismatchError
from .vocab import LlamaVocab


def vocab_difference(target: LlamaVocab, draft: LlamaVocab) -> str | None:
    """Why the two vocabularies differ, naming the first differing token; None if they match."""
    found = compat.vocab_difference(target, draft)
    return None if found is None else found.reason


def check_vocab(target: LlamaVocab, draft: LlamaVocab, *, draft_name: str) -> None:
    """Raise VocabMismatchError unless `draft` may draft for `target`."""
    reason = vocab_difference(target, draft)
    if reason:
        raise VocabMismatchError(
            f"{draft_name} cannot draft for this model: {reason}; choose a draft of the same family, or --draft none"
        )
