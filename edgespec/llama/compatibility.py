"""May this draft model draft for this target? llama.cpp does not check: ids would just mean other words.

The rule is llama.cpp's own (common/speculative.cpp): same vocabulary type, same BOS handling, sizes within 128
(padding), same text for every id from 5 up.
"""

from __future__ import annotations

from ..errors import VocabMismatchError
from .vocab import LlamaVocab

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED_ID = 5


def vocab_difference(target: LlamaVocab, draft: LlamaVocab) -> str | None:
    """Why the two vocabularies differ, naming the first differing token; None if they match."""
    if target.type != draft.type:
        return f"the tokenizers differ: target {target.type}, draft {draft.type}"
    if target.add_bos != draft.add_bos or (target.add_bos and target.bos != draft.bos):
        return f"BOS differs: target {_bos(target)}, draft {_bos(draft)}"
    shared = min(target.size, draft.size)
    mine, theirs = target.texts, draft.texts
    if mine[FIRST_COMPARED_ID:shared] != theirs[FIRST_COMPARED_ID:shared]:
        i = next(i for i in range(FIRST_COMPARED_ID, shared) if mine[i] != theirs[i])
        return f"token {i} is {_show(mine[i])} in the target and {_show(theirs[i])} in the draft"
    if abs(target.size - draft.size) > MAX_SIZE_DIFFERENCE:
        larger, name = (target, "target") if target.size > draft.size else (draft, "draft")
        return (
            f"the sizes differ by more than padding: target {target.size}, draft {draft.size}; "
            f"the first extra token is {shared}, {_show(larger.texts[shared])}, in the {name}"
        )
    return None


def check_vocab(target: LlamaVocab, draft: LlamaVocab, *, draft_name: str) -> None:
    """Raise VocabMismatchError unless `draft` may draft for `target`."""
    reason = vocab_difference(target, draft)
    if reason:
        raise VocabMismatchError(
            f"{draft_name} cannot draft for this model: {reason}; choose a draft of the same family, or --draft none"
        )


def _bos(vocab: LlamaVocab) -> str:
    return f"adds token {vocab.bos}" if vocab.add_bos else "adds none"


def _show(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
