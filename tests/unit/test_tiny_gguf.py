"""Tiny GGUFs load in llama.cpp, tokenize any text, and roll back (or refuse to) as their architectures should.

Everything that calls llama.cpp runs in one child process, because a wrong tensor or key there is an abort.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgespec.errors import BadRequestError
from edgespec.tiny_gguf import ARCHS, CHATML_TEMPLATE, QUANTS, TinyVocab, write_tiny

PREFIX = tuple(int(token) for token in np.random.default_rng(1).integers(3, 500, 20))
DRAFTED = (17, 301, 94, 211, 388)
WANTED = (45, 260, 131, 477, 59)
TEXTS = ("def add(a, b): return a + b", "雨のち晴れ、気温は二十度", "a 🦊 and a 👩‍🚀", "tabs\tand\nlines  ", "ÀÇß € µ")


@pytest.fixture(scope="module")
def child() -> Iterator[Callable[..., Any]]:
    """Call a function of this module in the child process and return its result."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, *args: pool.submit(function, *args).result(timeout=120)


class Loaded:
    """A model and a context, used in the child only."""

    log: Any = None

    def __init__(self, path: Path, *, swa_full: bool = True, n_rs_seq: int = 0, n_ubatch: int = 512) -> None:
        import llama_cpp.llama_cpp as lib

        if Loaded.log is None:  # kept: llama.cpp holds only a pointer to it
            Loaded.log = lib.llama_log_callback(lambda level, text, data: None)
            lib.llama_log_set(Loaded.log, None)
            lib.llama_backend_init()
        self.lib: Any = lib
        self.model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        assert self.model, "llama.cpp refused the file"
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_ubatch, params.n_threads, params.n_threads_batch = 1024, n_ubatch, 1, 1
        params.swa_full, params.n_rs_seq, params.flash_attn_type = swa_full, n_rs_seq, 0
        self.context = lib.llama_init_from_model(self.model, params)
        assert self.context, "no context"
        self.memory = lib.llama_get_memory(self.context)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.size = int(lib.llama_vocab_n_tokens(self.vocab))

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def decode(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        """Logits of every token, (len(tokens), vocabulary), of one llama_decode."""
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, 1
            batch.seq_id[i][0] = 0
        code = self.lib.llama_decode(self.context, batch)
        self.lib.llama_batch_free(batch)
        assert code == 0, f"llama_decode returned {code}"
        return np.ctypeslib.as_array(self.lib.llama_get_logits(self.context), (len(tokens), self.size)).copy()

    def remove(self, start: int) -> bool:
        return bool(self.lib.llama_memory_seq_rm(self.memory, 0, start, -1))

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        data = text.encode()
        out = (self.lib.llama_token * (2 * len(data) + 8))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), out, len(out), add_special, parse_special)
        assert n >= 0
        return list(out[:n])

    def text(self, tokens: Sequence[int]) -> str:
        import ctypes

        pieces, buffer = b"", ctypes.create_string_buffer(256)
        for token in tokens:
            n = self.lib.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, False)
            assert n >= 0
            pieces += buffer.raw[:n]
        return pieces.decode()


def prompt_logits(path: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    with Loaded(path) as loaded:
        return loaded.decode(tokens, 0)


def greedy(path: Path, tokens: Sequence[int], count: int) -> tuple[list[int], bool]:
    """(count greedy tokens, whether any of them ends a generation)."""
    with Loaded(path) as loaded:
        rows, out = loaded.decode(tokens, 0), []
        for _ in range(count):
            out.append(int(rows[-1].argmax()))
            rows = loaded.decode(out[-1:], len(tokens) + len(out) - 1)
        return out, any(loaded.lib.llama_vocab_is_eog(loaded.vocab, token) for token in out)


def replaced(path: Path, batches: Sequence[int], remove: int, options: dict[str, Any]) -> tuple[bool, float]:
    """Decode PREFIX + DRAFTED cut into `batches`, remove the last `remove` tokens, decode others there.

    Returns what seq_rm said and the largest logit difference to a context that never saw the removed tokens.
    """
    tokens = PREFIX + DRAFTED
    keep = len(tokens) - remove
    with Loaded(path, **options) as loaded, Loaded(path, **options) as fresh:
        start = 0
        for size in batches:
            loaded.decode(tokens[start : start + size], start)
            start += size
        assert start == len(tokens)
        fresh.decode(tokens[:keep], 0)
        if not loaded.remove(keep):
            return False, float("inf")
        return True, float(np.abs(loaded.decode(WANTED, keep) - fresh.decode(WANTED, keep)).max())


def continued_after_refusal(path: Path) -> tuple[bool, float, bool]:
    """(what a partial removal said, logit difference of going on to never having asked, what a full removal said)."""
    with Loaded(path) as loaded, Loaded(path) as fresh:
        loaded.decode(PREFIX, 0)
        fresh.decode(PREFIX, 0)
        partial = loaded.remove(len(PREFIX) - 1)
        rows = loaded.decode(WANTED, len(PREFIX)) - fresh.decode(WANTED, len(PREFIX))
        return partial, float(np.abs(rows).max()), loaded.remove(0)


def facts(path: Path) -> dict[str, Any]:
    with Loaded(path) as loaded:
        template = loaded.lib.llama_model_chat_template(loaded.model, None)
        special = "<|im_start|>user<|im_end|>"
        return {
            "round_trips": [loaded.text(loaded.tokenize(text)) for text in TEXTS],
            "counts": [len(loaded.tokenize(text)) for text in TEXTS],
            "with_special": loaded.tokenize("the", add_special=True),
            "parsed": loaded.tokenize(special, parse_special=True),
            "unparsed": loaded.tokenize(special),
            "special_text": loaded.text(loaded.tokenize(special, parse_special=True)),
            "user_defined": loaded.tokenize("<tool_call>"),
            "eog": [token for token in range(loaded.size) if loaded.lib.llama_vocab_is_eog(loaded.vocab, token)],
            "eos": loaded.lib.llama_vocab_eos(loaded.vocab),
            "size": loaded.size,
            "n_ctx_train": loaded.lib.llama_model_n_ctx_train(loaded.model),
            "template": None if template is None else template.decode(),
        }


@pytest.mark.parametrize("arch", ARCHS)
def test_file_is_a_function_of_its_arguments(tmp_path: Path, arch: Any) -> None:
    first = write_tiny(tmp_path / "a.gguf", arch=arch, seed=4).read_bytes()
    assert write_tiny(tmp_path / "b.gguf", arch=arch, seed=4).read_bytes() == first
    assert write_tiny(tmp_path / "c.gguf", arch=arch, seed=5).read_bytes() != first
    assert write_tiny(tmp_path / "d.gguf", arch=arch, seed=4, noise=0.05).read_bytes() != first


@pytest.mark.parametrize("arch", ARCHS)
def test_files_are_small_and_quick_to_write(tmp_path: Path, arch: Any) -> None:
    seconds = []
    for quant in QUANTS:
        started = time.perf_counter()
        path = write_tiny(tmp_path / f"{quant}.gguf", arch=arch, quant=quant)
        seconds.append(time.perf_counter() - started)
        assert path.stat().st_size < 3_000_000
    assert min(seconds) < 0.5


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
def test_logits_are_finite_and_spread(
    tmp_path: Path, child: Callable[..., Any], arch: Any, tied: bool, quant: Any
) -> None:
    path = write_tiny(tmp_path / "m.gguf", arch=arch, tied=tied, quant=quant)
    rows = child(prompt_logits, path, PREFIX)
    assert np.isfinite(rows).all()
    assert 2 < rows.std(axis=1).mean() < 4
    top = np.sort(rows, axis=1)
    assert np.median(top[:, -1] - top[:, -2]) > 0.2


@pytest.mark.parametrize("arch", ARCHS)
def test_logits_depend_on_more_than_the_last_token(tmp_path: Path, child: Callable[..., Any], arch: Any) -> None:
    path = write_tiny(tmp_path / "m.gguf", arch=arch)
    one = child(prompt_logits, path, (*PREFIX, 9))[-1]
    other = child(prompt_logits, path, (*PREFIX[::-1], 9))[-1]
    assert np.abs(one - other).max() > 1


@pytest.mark.parametrize("arch", ARCHS)
def test_greedy_text_is_varied_and_endless_without_end_tokens(
    tmp_path: Path, child: Callable[..., Any], arch: Any
) -> None:
    path = write_tiny(tmp_path / "m.gguf", arch=arch, end_gain=0.0)
    tokens, ended = child(greedy, path, PREFIX, 100)
    assert not ended
    assert len(set(tokens)) > 40


@pytest.mark.parametrize("arch", ARCHS)
def test_noise_makes_a_draft_that_often_agrees(tmp_path: Path, child: Callable[..., Any], arch: Any) -> None:
    tokens = [int(token) for token in np.random.default_rng(2).integers(3, 500, 400)]
    target = child(prompt_logits, write_tiny(tmp_path / "t.gguf", arch=arch), tokens).argmax(axis=1)
    draft = child(prompt_logits, write_tiny(tmp_path / "d.gguf", arch=arch, noise=0.05), tokens).argmax(axis=1)
    assert 0.3 < (target == draft).mean() < 0.95


def test_one_seed_shares_the_layers_that_both_files_have(tmp_path: Path) -> None:
    import gguf

    readers = [
        gguf.GGUFReader(write_tiny(tmp_path / f"{n}.gguf", n_layer=n, vocab=vocab))
        for n, vocab in ((1, TinyVocab(pad_to=640)), (3, TinyVocab()))
    ]
    small, large = ({tensor.name: tensor.data for tensor in reader.tensors} for reader in readers)
    assert np.array_equal(small["blk.0.ffn_up.weight"], large["blk.0.ffn_up.weight"])
    assert np.array_equal(small["output.weight"][:512], large["output.weight"])
    assert "blk.1.ffn_up.weight" not in small


@pytest.mark.parametrize(
    "vocab", [TinyVocab(), TinyVocab(pre="smollm"), TinyVocab(kind="spm")], ids=["bpe", "smollm", "spm"]
)
def test_any_text_survives_tokenization(tmp_path: Path, child: Callable[..., Any], vocab: TinyVocab) -> None:
    found = child(facts, write_tiny(tmp_path / "m.gguf", vocab=vocab, n_layer=1))
    lead = " " if vocab.kind == "spm" else ""  # SPM puts a space before the text
    assert found["round_trips"] == [lead + text for text in TEXTS]
    assert found["counts"][0] < len(TEXTS[0])  # words merge
    start, end = vocab.id_of("<|im_start|>"), vocab.id_of("<|im_end|>")
    assert start in found["parsed"]
    assert end in found["parsed"]
    assert not {start, end} & set(found["unparsed"])
    assert found["special_text"].strip() == "user"
    assert vocab.id_of("<tool_call>") in found["user_defined"]
    assert end in found["eog"]
    assert vocab.id_of("<|endoftext|>") in found["eog"]


@pytest.mark.parametrize(
    ("vocab", "bos"),
    [
        (TinyVocab(), None),
        (TinyVocab(add_bos=True), "<|endoftext|>"),
        (TinyVocab(kind="spm"), "<s>"),
        (TinyVocab(kind="spm", add_bos=False), None),
        (TinyVocab(kind="spm", bos="<|im_start|>"), "<|im_start|>"),
    ],
)
def test_bos_is_added_where_the_vocabulary_says(
    tmp_path: Path, child: Callable[..., Any], vocab: TinyVocab, bos: str | None
) -> None:
    tokens = child(facts, write_tiny(tmp_path / "m.gguf", vocab=vocab, n_layer=1))["with_special"]
    specials = {vocab.id_of(text) for text in vocab.tokens() if text.startswith("<|") or text in ("<s>", "</s>")}
    assert [token for token in tokens if token in specials] == ([] if bos is None else [vocab.id_of(bos)])


def test_space_prefix_can_be_switched_off(tmp_path: Path, child: Callable[..., Any]) -> None:
    vocab = TinyVocab(kind="spm", add_space_prefix=False)
    assert child(facts, write_tiny(tmp_path / "m.gguf", vocab=vocab))["round_trips"] == list(TEXTS)


def test_metadata_reaches_llama_cpp(tmp_path: Path, child: Callable[..., Any]) -> None:
    vocab = TinyVocab(pad_to=576, eos="<|endoftext|>", eot="<|im_end|>")
    path = write_tiny(tmp_path / "m.gguf", vocab=vocab, n_ctx_train=96, chat_template=CHATML_TEMPLATE)
    found = child(facts, path)
    assert (found["size"], found["n_ctx_train"], found["template"]) == (576, 96, CHATML_TEMPLATE)
    assert found["eos"] == vocab.id_of("<|endoftext|>")
    assert child(facts, write_tiny(tmp_path / "n.gguf"))["template"] is None


def test_padding_and_swap_change_only_their_tokens() -> None:
    plain = TinyVocab().tokens()
    assert len(set(plain)) == 512
    assert TinyVocab(pad_to=600).tokens()[:512] == plain
    assert TinyVocab(pad_to=600).tokens()[512:514] == ("[PAD512]", "[PAD513]")
    swapped = TinyVocab(swap=(40, 300)).tokens()
    assert [i for i in range(512) if swapped[i] != plain[i]] == [40, 300]
    assert (swapped[40], swapped[300]) == (plain[300], plain[40])


@pytest.mark.parametrize("remove", [1, 3, 5, 12])
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_attention_forgets_exactly(tmp_path: Path, child: Callable[..., Any], arch: Any, remove: int) -> None:
    done, difference = child(replaced, write_tiny(tmp_path / "m.gguf", arch=arch), [20, 5], remove, {})
    assert done
    assert difference < 1e-3


@pytest.mark.parametrize("arch", ["mamba", "jamba", "lfm2"])
def test_recurrent_memory_refuses_partial_removal_and_stays_intact(
    tmp_path: Path, child: Callable[..., Any], arch: Any
) -> None:
    partial, difference, full = child(continued_after_refusal, write_tiny(tmp_path / "m.gguf", arch=arch))
    assert not partial
    assert difference < 1e-3
    assert full


@pytest.mark.parametrize("arch", ["mamba", "jamba"])
def test_snapshots_are_not_available_on_every_recurrent_architecture(
    tmp_path: Path, child: Callable[..., Any], arch: Any
) -> None:
    done, _ = child(replaced, write_tiny(tmp_path / "m.gguf", arch=arch), [20, 5], 2, {"n_rs_seq": 8})
    assert not done


@pytest.mark.parametrize(
    ("batches", "remove", "options"),
    [
        ([25], 1, {}),
        ([25], 8, {}),
        ([20, 5], 4, {}),
        ([19, 6], 5, {}),
        ([10, 10, 1, 4], 3, {}),
        ([25], 5, {"n_ubatch": 10}),
    ],
)
def test_lfm2_rolls_back_within_its_last_decode(
    tmp_path: Path, child: Callable[..., Any], batches: list[int], remove: int, options: dict[str, int]
) -> None:
    done, difference = child(
        replaced, write_tiny(tmp_path / "m.gguf", arch="lfm2"), batches, remove, {"n_rs_seq": 8, **options}
    )
    assert done
    assert difference < 1e-3


def test_lfm2_refuses_to_roll_back_past_its_snapshots(tmp_path: Path, child: Callable[..., Any]) -> None:
    done, _ = child(replaced, write_tiny(tmp_path / "m.gguf", arch="lfm2"), [25], 9, {"n_rs_seq": 8})
    assert not done


@pytest.mark.parametrize("batches", [[20, 5], [20, 1, 1, 1, 1, 1], [20, 2, 3]])
def test_lfm2_removal_of_a_whole_decode_is_accepted_but_wrong(
    tmp_path: Path, child: Callable[..., Any], batches: list[int]
) -> None:
    """Why rollback must stop short of the last decode's first token: llama.cpp says True and reads a stale snapshot.

    When this fails, llama.cpp has learnt to refuse or to restore, and the engine's rule can be relaxed.
    """
    done, difference = child(replaced, write_tiny(tmp_path / "m.gguf", arch="lfm2"), batches, 5, {"n_rs_seq": 8})
    assert done
    assert difference > 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arch": "gpt9"}, "arch"),
        ({"quant": "q3_k"}, "quant"),
        ({"noise": 1.0}, "noise"),
        ({"noise": -0.1}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"seed": -1}, "seed"),
        ({"n_layer": 0}, "n_layer"),
        ({"arch": "lfm2", "n_layer": 1}, "n_layer"),
        ({"n_embd": 100}, "n_embd"),
        ({"n_ctx_train": 0}, "n_ctx_train"),
        ({"vocab": TinyVocab(bos="<nothing>")}, "<nothing>"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        write_tiny(tmp_path / "m.gguf", **options)
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "wpm"}, "kind"),
        ({"size": 100}, "size"),
        ({"kind": "spm", "size": 300}, "size"),
        ({"pad_to": 500}, "pad_to"),
        ({"swap": (1, 512)}, "swap"),
    ],
)
def test_wrong_vocabularies_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        TinyVocab(**options)
