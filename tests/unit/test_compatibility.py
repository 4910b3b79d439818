"""A draft of another vocabulary is refused with the first difference named; padding is no difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.errors import VocabMismatchError
from edgespec.llama import LoadSettings, Model, check_vocab, vocab_difference
from edgespec.tiny_gguf import TinyVocab

PLAIN = LoadSettings(n_ctx=64, threads=1, buffers="none")
BASE = TinyVocab()
TEXTS = BASE.tokens()


@pytest.mark.parametrize(
    "other",
    [
        BASE,
        TinyVocab(pad_to=513),
        TinyVocab(pad_to=640),
        TinyVocab(swap=(1, 4)),  # ids below 5 are control tokens that families number differently
        TinyVocab(eos="<|endoftext|>"),
        TinyVocab(bos="<|im_start|>"),  # not added, so it does not matter
    ],
)
def test_what_may_draft(tiny: Callable[..., Path], other: TinyVocab) -> None:
    with Model(tiny(), PLAIN) as target, Model(tiny(vocab=other, seed=9), PLAIN) as draft:
        assert vocab_difference(target.vocab, draft.vocab) is None
        assert vocab_difference(draft.vocab, target.vocab) is None
        check_vocab(target.vocab, draft.vocab, draft_name="small")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (TinyVocab(swap=(40, 300)), ["token 40 ", repr(TEXTS[40]), repr(TEXTS[300])]),
        (TinyVocab(swap=(5, 6)), ["token 5 ", repr(TEXTS[5]), repr(TEXTS[6])]),
        (TinyVocab(swap=(400, 511)), ["token 400 ", repr(TEXTS[400]), repr(TEXTS[511])]),
        (TinyVocab(swap=(100, 520), pad_to=600), ["token 100 ", repr(TEXTS[100]), "[PAD520]"]),
        (TinyVocab(pad_to=641), ["512", "641", "[PAD512]", "padding"]),
        (TinyVocab(kind="spm"), ["bpe", "spm"]),
        (TinyVocab(add_bos=True), ["BOS"]),
    ],
)
def test_what_may_not_draft(tiny: Callable[..., Path], other: TinyVocab, named: list[str]) -> None:
    with Model(tiny(), PLAIN) as target, Model(tiny(vocab=other), PLAIN) as draft:
        with pytest.raises(VocabMismatchError) as caught:
            check_vocab(target.vocab, draft.vocab, draft_name="small.gguf")
        message = str(caught.value)
        assert "small.gguf" in message
        assert "\n" not in message
        assert all(word in message for word in named), message
        assert vocab_difference(draft.vocab, target.vocab) is not None


def test_two_models_that_add_different_bos(tiny: Callable[..., Path]) -> None:
    one, other = TinyVocab(add_bos=True), TinyVocab(add_bos=True, bos="<|im_start|>")
    with Model(tiny(vocab=one), PLAIN) as target, Model(tiny(vocab=other), PLAIN) as draft:
        reason = vocab_difference(target.vocab, draft.vocab)
        assert reason is not None
        assert str(one.id_of("<|endoftext|>")) in reason
        assert str(one.id_of("<|im_start|>")) in reason


@pytest.mark.real
def test_the_real_pair(qwen_target: Path, qwen_draft: Path, starter: Path) -> None:
    with Model(qwen_target, PLAIN) as target, Model(qwen_draft, PLAIN) as draft, Model(starter, PLAIN) as other:
        assert vocab_difference(target.vocab, draft.vocab) is None
        assert vocab_difference(target.vocab, other.vocab) is not None
