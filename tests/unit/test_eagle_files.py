"""Heads that must be refused: each with one line, in a process that a crash of llama.cpp would end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import EdgeSpecError, ModelLoadError
from edgespec.heads.eagle import write_eagle
from edgespec.heads.eagle_file import read_eagle
from edgespec.llama.unstable import LAYER_INPUTS, SYMBOLS, Unstable, runs_mtp, unstable
from edgespec.models.header import read_header
from edgespec.tiny_gguf import ARCHS, TinyVocab, write_tiny
from tiny_heads import Random, own_head, write_eagle3, write_mtp

Tiny = Callable[..., Path]
Child = Callable[..., Any]


def drafts(target: Path, head: Path | None, mtp: bool = False) -> str:
    """What loading and a few drafted tokens say."""
    import edgespec

    try:
        with edgespec.load(
            target, draft=None, heads=head, drafter="mtp" if mtp else "eagle", ctx_size=256, threads=1, buffers="none"
        ) as llm:
            reply = llm.complete("The list of values is", max_tokens=12, temperature=0, draft_max=3)
            plain = llm.complete("The list of values is", max_tokens=12, temperature=0, draft_max=0)
            assert reply.tokens == plain.tokens
            return f"drafted {reply.stats.drafted}"
    except EdgeSpecError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_target_that_gives_no_layers_is_refused_before_llama_cpp_aborts(
    tiny: Tiny, child: Child, tmp_path: Path, arch: str
) -> None:
    said = child(drafts, tiny(arch, n_layer=4), write_eagle3(tmp_path / "head.gguf", layers=(1, 2, 3)))
    if arch in LAYER_INPUTS:
        assert said.startswith("drafted ")
        assert int(said.split()[1]) > 3
    elif arch in ("mamba", "jamba"):
        assert said.startswith("ModelLoadError: ")
    else:
        assert f"is of architecture '{arch}', of which llama.cpp gives no layer's input" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_layers": [1, 2, 2]}, "reads the layers 1, 2, 2 and"),
        ({"target_layers": [1, 2]}, "must name three layers"),
        ({"target_layers": None}, "must name three layers"),
        ({"block_count": 2}, "must have one layer"),
        ({"head_count": 3}, "attention heads that its key heads do not divide"),
        ({"value_length": 16}, "keys and values of different sizes"),
        ({"d2t": np.array([5, 512])}, "d2t that is no list of int64"),
        ({"d2t": np.arange(449, 513)}, "ids outside of 0 to 511"),
        ({"d2t": np.arange(-1, 63)}, "ids outside of 0 to 511"),
        ({"d2t": np.array([7] * 64)}, "one of them twice"),
        ({"d2t": np.arange(64, dtype=np.int32)}, "d2t that is no list of int64"),
        ({"d2t": None}, "output matrix of another vocabulary"),
        ({"fc.weight": None}, "lacks the tensor fc.weight"),
        ({"fc.weight": np.zeros((128, 128), np.float32)}, "matrix fc that does not fit"),
        ({"token_embd.weight": np.zeros((500, 128), np.float32)}, "embeddings for 512 tokens"),
        ({"target_size": 64}, "hidden states of 64 numbers"),
        ({"vocab": TinyVocab(swap=(300, 301))}, "token"),
        ({"vocab": TinyVocab(kind="spm"), "ids": range(40, 104)}, "the tokenizers differ"),
        ({"blk.0.attn_q.weight": None}, "llama.cpp cannot load the EAGLE head"),
        ({"blk.0.ffn_down.weight": np.zeros((64, 192), np.float32)}, "llama.cpp cannot load the EAGLE head"),
        ({"n_embd": 64}, "needs matrices of"),
        ({"ids": None, "vocab": TinyVocab(pad_to=540)}, "needs the output matrix of"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(
    tiny: Tiny, child: Child, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    said = child(drafts, tiny(), write_eagle3(tmp_path / "head.gguf", **change))
    assert said.startswith(("ModelLoadError: ", "VocabMismatchError: ")), said
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "options",
    [{"embedding": True}, {"ids": None}, {"norm_before_fc": True}, {"vocab": TinyVocab(pad_to=540), "ids": range(540)},
     {"n_embd": 64, "embedding": True}],
)  # fmt: skip
def test_other_forms_of_a_head_work(tiny: Tiny, child: Child, tmp_path: Path, options: dict[str, Any]) -> None:
    """With its own embeddings, with the target's output, smaller than the target, with a padded vocabulary."""
    said = child(drafts, tiny(), write_eagle3(tmp_path / "head.gguf", **options))
    assert said.startswith("drafted "), said
    assert int(said.split()[1]) > 5


def test_heads_of_our_own_are_checked_against_the_model(tiny: Tiny, child: Child, tmp_path: Path) -> None:
    path = tmp_path / "head.gguf"
    write_eagle(own_head(target="0" * 64), path)
    assert "made for another file (tiny) than" in child(drafts, tiny(), path)
    write_eagle(own_head(size=500), path)
    assert "made for a vocabulary of 500 tokens" in child(drafts, tiny(), path)
    write_eagle(own_head(), path)
    assert "its hidden states or its logits, not both" in child(drafts, tiny("lfm2"), path)
    assert child(drafts, tiny("gemma3"), path).startswith("drafted ")
    assert "is a model of architecture 'llama' and no EAGLE head" in child(drafts, tiny(), tiny(seed=2))
    assert "is an EAGLE head and no model; give it with --heads" in child(drafts, path, path)
    assert "drafter eagle needs an EAGLE head for this model" in child(drafts, tiny(), None)


def test_mtp_layers(tiny: Tiny, child: Child, tmp_path: Path) -> None:
    one, two, unnamed = (tmp_path / f"{name}.gguf" for name in ("one", "two", "unnamed"))
    write_mtp(one)
    write_mtp(two, mtp=2)
    write_mtp(unnamed, named=False)
    assert [read_header(path).mtp_layers for path in (one, two, tiny())] == [1, 2, 0]
    for path in (one, two):
        said = child(drafts, path, None, True)
        assert said.startswith("drafted ")
        assert int(said.split()[1]) > 5
    assert "needs a model file with MTP layers" in child(drafts, tiny(), None, True)
    assert [runs_mtp(read_header(path)) for path in (one, two, unnamed, tiny())] == [True, True, False, False]


def test_a_build_without_the_functions_is_refused() -> None:
    assert {name for name in SYMBOLS if hasattr(unstable(), name)} == set(SYMBOLS)
    with pytest.raises(ModelLoadError, match=r"has no function _Z30llama_set_embeddings_layer_inp.*--heads none"):
        Unstable(ctypes.CDLL(None))


def test_a_damaged_head_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """Bytes of the header changed, and files cut short."""
    whole = write_eagle3(tmp_path / "head.gguf").read_bytes()
    end = read_header(tmp_path / "head.gguf").data_start
    rng, path, refused = np.random.default_rng(0), tmp_path / "damaged.gguf", 0
    for i in range(300):
        damaged = bytearray(whole if i % 4 else whole[: int(rng.integers(0, len(whole)))])
        for _ in range(3):
            if damaged:
                damaged[int(rng.integers(0, min(end, len(damaged))))] = int(rng.integers(0, 256))
        path.write_bytes(damaged)
        try:
            read_eagle(path)
        except EdgeSpecError as error:
            refused += len(str(error).splitlines()) == 1
    assert refused > 75


def test_a_text_with_a_token_that_the_head_lacks_is_not_read(child: Child, tmp_path: Path) -> None:
    """A padded target: the head's embedding has no row for its last tokens."""
    target = write_tiny(tmp_path / "target.gguf", vocab=TinyVocab(pad_to=540), end_gain=0.0)
    head = write_eagle3(tmp_path / "head.gguf", embedding=True)
    assert child(writes_padding, target, head) == "no draft"


def writes_padding(target: Path, head: Path) -> str:
    import edgespec

    with edgespec.load(target, draft=None, heads=head, drafter="eagle", ctx_size=256, threads=1, buffers="none") as llm:
        reply = llm.complete([5, 530, 7], max_tokens=6, temperature=0, draft_max=3, logit_bias={531: 1000.0})
        assert reply.tokens == (531,) * 6
        return "no draft" if not reply.stats.drafted else "drafted"


def test_random_weights_that_overflow_draft_nothing(tiny: Tiny, child: Child, tmp_path: Path) -> None:
    huge = Random(1).matrix(64, 128, 1e38)
    said = child(drafts, tiny(), write_eagle3(tmp_path / "head.gguf", **{"output.weight": huge}))
    assert said.startswith("drafted ")
