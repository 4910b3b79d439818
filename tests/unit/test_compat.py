"""What headers say of a pair is what the loaded models say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_bytes import BASE, TENSORS, gguf, string, strings, text

from edgespec.llama import LoadSettings, Model, vocab_difference
from edgespec.models.compat import Comparison, can_roll_back, compatible, keeps_state
from edgespec.models.header import read_header
from edgespec.models.vocabulary import FileVocabulary
from edgespec.tiny_gguf import ARCHS, TinyVocab

Tiny = Callable[..., Path]
PLAIN = LoadSettings(n_ctx=64, threads=1, buffers="none")
BASE_VOCAB = TinyVocab()
OTHERS = {
    "same": BASE_VOCAB,
    "padded": TinyVocab(pad_to=640),
    "padded too much": TinyVocab(pad_to=641),
    "control tokens differ": TinyVocab(swap=(1, 4)),
    "one token differs": TinyVocab(swap=(40, 300)),
    "another end token": TinyVocab(eos="<|endoftext|>"),
    "adds BOS": TinyVocab(add_bos=True),
    "adds EOS": TinyVocab(add_eos=True),
    "does not add EOS, and says so": TinyVocab(add_eos=False),
    "another kind": TinyVocab(kind="spm"),
    "llama3 adds BOS by itself": TinyVocab(pre="llama-bpe"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_headers_agree_with_loaded_models(tiny: Tiny, case: str) -> None:
    one, other = tiny(), tiny(vocab=OTHERS[case])
    with Model(one, PLAIN) as target, Model(other, PLAIN) as draft:
        for mine, theirs in ((target, draft), (draft, target)):
            verdict = compatible(mine.header, theirs.header)
            assert verdict.reason == (vocab_difference(mine.vocab, theirs.vocab) or "")
            assert verdict.ok is (verdict.reason == "")
        for model in (target, draft):
            vocabulary = FileVocabulary(model.header)
            assert list(vocabulary.texts) == model.vocab.texts
            for fact in ("type", "size", "bos", "add_bos", "eos", "add_eos"):
                assert getattr(vocabulary, fact) == getattr(model.vocab, fact)


def test_the_first_differing_token_is_named(tiny: Tiny) -> None:
    verdict = compatible(read_header(tiny()), read_header(tiny(vocab=TinyVocab(swap=(40, 300)))))
    assert (verdict.ok, verdict.first_difference) == (False, 40)
    texts = BASE_VOCAB.tokens()
    assert verdict.reason == f"token 40 is {texts[40]!r} in the target and {texts[300]!r} in the draft"
    ends = compatible(read_header(tiny()), read_header(tiny(vocab=TinyVocab(add_eos=True)))).reason
    assert ends == f"EOS differs: target adds none, draft adds token {texts.index('<|im_end|>')}"
    other_kind = compatible(read_header(tiny()), read_header(tiny(vocab=TinyVocab(kind="spm"))))
    assert other_kind.first_difference == 5
    assert "the tokenizers differ: target bpe, draft spm; token 5 is " in other_kind.reason


@pytest.mark.parametrize("arch", ARCHS)
def test_architectures_that_keep_a_state_are_those_of_llama_cpp(
    tiny: Tiny, open_context: Callable[..., object], arch: str
) -> None:
    header = read_header(tiny(arch))
    context = open_context(tiny(arch))
    assert keeps_state(header) is context.model.recurrent  # type: ignore[attr-defined]
    assert can_roll_back(header) is context.can_roll_back  # type: ignore[attr-defined]


def test_a_state_that_cannot_be_rolled_back_is_the_reason(tiny: Tiny) -> None:
    plain, hybrid, snapshots = (read_header(tiny(arch)) for arch in ("llama", "jamba", "lfm2"))
    assert "recurrent state" in compatible(plain, hybrid).reason
    assert "recurrent state" in compatible(plain, snapshots).reason  # a draft decodes too often for snapshots
    assert "nothing can be verified" in compatible(hybrid, plain).reason
    assert compatible(snapshots, plain).ok


def without(*keys: str) -> list[bytes]:
    return [part for part in BASE if not any(part.startswith(string(key)) for key in keys)]


def test_odd_tokens_are_read_as_llama_cpp_repairs_them(tmp_path: Path) -> None:
    tokens = [b"a", b"", b"b\0c", b"\0", b"\xff"]
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf([*without("tokenizer.ggml.tokens"), strings("tokenizer.ggml.tokens", tokens)], TENSORS))
    assert list(FileVocabulary(read_header(path)).texts) == [b"a", b"[EMPTY_1]", b"b", b"[EMPTY_3]", b"\xff"]


def test_files_that_are_no_text_models_are_told_so(tmp_path: Path) -> None:
    path, plain = tmp_path / "odd.gguf", tmp_path / "plain.gguf"
    plain.write_bytes(gguf())
    for content, reason in (
        (gguf([*without("general.architecture"), text("general.architecture", "clip")]), "left-to-right"),
        (gguf(without("tokenizer.ggml.tokens")), "no vocabulary"),
    ):
        path.write_bytes(content)
        assert reason in compatible(read_header(plain), read_header(path)).reason
        assert reason in compatible(read_header(path), read_header(plain)).reason


def test_a_vocabulary_is_compared_once(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgespec.models import compat

    calls = []
    real = compat.vocab_difference
    monkeypatch.setattr(compat, "vocab_difference", lambda *pair: calls.append(pair) or real(*pair))
    compare = Comparison()
    headers = [read_header(tiny(seed=seed)) for seed in (1, 2, 3)]
    assert all(compare(one, other).ok for one in headers for other in headers)
    assert len(calls) == 1


@pytest.mark.real
def test_real_models_against_each_other(starter: Path, qwen_target: Path, qwen_draft: Path, gemma: Path) -> None:
    paths = (starter, qwen_target, qwen_draft, gemma)
    loaded = [Model(path, PLAIN) for path in paths]
    try:
        for target in loaded:
            for draft in loaded:
                verdict = compatible(target.header, draft.header)
                assert verdict.reason == (vocab_difference(target.vocab, draft.vocab) or "")
                assert verdict.ok or verdict.first_difference is not None
    finally:
        for model in loaded:
            model.close()
