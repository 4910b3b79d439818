"""Tiny random-weight GGUF files: every path of the engine runs on them in milliseconds.

The tokenizers are real (any UTF-8 text round-trips), the weights are random but scaled so that logits are finite,
spread over several units and depend on the context. A file is a pure function of its arguments: a tensor's values come
from (seed, tensor name), so two files of one seed share every tensor they both have.

Tests use them as targets and drafts; the program itself decodes one in a child process to learn whether the CPU kernels
of this llama.cpp build survive on this machine. Tensor and key names: llama.cpp, src/llama-arch.cpp and src/models/.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .errors import BadRequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Arch = Literal["llama", "gemma3", "mamba", "jamba", "lfm2"]
Quant = Literal["f32", "f16", "q4_0", "q8_0"]

ARCHS: tuple[Arch, ...] = ("llama", "gemma3", "mamba", "jamba", "lfm2")
QUANTS: tuple[Quant, ...] = ("f32", "f16", "q4_0", "q8_0")
HYBRIDS: tuple[str, ...] = ("jamba", "lfm2")

ENDOFTEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
USER_DEFINED = "<tool_call>"

CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Every prefix of a word becomes a token, so that merges build the word from left to right in both tokenizers.
_WORDS = """
the and of to in that is was for it with as his on be at by had not are but from or have an they which one you were her
all she there would their we him been has when who will more if out so said what up its about into than them can only
other new some could time these two may then do first any my now such like our over even most me return def self import
class print while for else true false none value index list range
"""

# Spread of the logits, in logit units. Three keeps the winner of 512 tokens about one unit ahead of the next.
_LOGIT_STD = 3.0
_HEAD_DIM = 32
_D_STATE = 16
_D_CONV = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyVocab:
    """A small real tokenizer: byte-level BPE (as in Qwen and SmolLM) or SPM with byte fallback (as in Llama and Gemma).

    size: tokens before padding.  pad_to: size with dummy [PADn] tokens appended.  swap: two ids whose tokens trade
    places, to make a vocabulary that does not match.  bos, eos, eot: texts of tokens in the vocabulary (None: the
    kind's usual one; eot None: not written).  add_bos, add_eos, add_space_prefix: None: the kind's usual behaviour.
    Raises BadRequestError for a size that cannot hold the fixed tokens and for unknown kinds or token texts.
    """

    size: int = 512
    kind: Literal["bpe", "spm"] = "bpe"
    pre: str = "qwen2"
    pad_to: int | None = None
    swap: tuple[int, int] | None = None
    bos: str | None = None
    eos: str | None = None
    eot: str | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("bpe", "spm"):
            raise BadRequestError(f"vocabulary kind is {self.kind!r}; use 'bpe' or 'spm'")
        fixed = sum(map(len, _fixed_tokens(self.kind)))
        if self.size < fixed:
            raise BadRequestError(f"vocabulary size is {self.size}; a {self.kind} vocabulary needs at least {fixed}")
        if self.pad_to is not None and self.pad_to < self.size:
            raise BadRequestError(f"pad_to is {self.pad_to}; it must be at least the size, {self.size}")
        if self.swap is not None and not all(0 <= token < self.total for token in self.swap):
            raise BadRequestError(f"swap is {self.swap}; both ids must lie between 0 and {self.total - 1}")

    @property
    def total(self) -> int:
        """Tokens in the file, padding included."""
        return self.size if self.pad_to is None else self.pad_to

    def tokens(self) -> tuple[str, ...]:
        """Token texts as stored in the file, by id."""
        return tuple(text for text, _ in self._entries()[0])

    def id_of(self, text: str) -> int:
        """The id of a stored token text; raises BadRequestError when there is none."""
        texts = self.tokens()
        if text not in texts:
            raise BadRequestError(f"the vocabulary has no token {text!r}; use one of its control tokens")
        return texts.index(text)

    def _entries(self) -> tuple[list[tuple[str, int]], list[str]]:
        """((text, token type) by id, BPE merges in order)."""
        head, tail = _fixed_tokens(self.kind)
        room = self.size - len(head) - len(tail)
        taken = {text for text, _ in head}
        words: list[tuple[str, int]] = []
        merges: list[str] = []
        space = "Ġ" if self.kind == "bpe" else "▁"
        for word in (prefix + word for prefix in (space, "") for word in _WORDS.split()):
            for end in range(2, len(word) + 1):
                if word[:end] not in taken and len(words) < room:
                    taken.add(word[:end])
                    words.append((word[:end], _NORMAL))
                    merges.append(f"{word[: end - 1]} {word[end - 1]}")
        # Real models pad in the same way: unused ids up to a round number, before or after the control tokens.
        words += [(f"[UNUSED{token}]", _UNUSED) for token in range(room - len(words))]
        entries = head + words + tail
        entries += [(f"[PAD{token}]", _UNUSED) for token in range(self.size, self.total)]
        if self.swap is not None:
            first, second = self.swap
            entries[first], entries[second] = entries[second], entries[first]
        return entries, merges

    def _write(self, writer: Any) -> None:
        """Add the tokenizer's keys to a GGUF writer."""
        spm = self.kind == "spm"
        entries, merges = self._entries()
        writer.add_tokenizer_model("llama" if spm else "gpt2")
        writer.add_tokenizer_pre("default" if spm else self.pre)
        writer.add_token_list([text for text, _ in entries])
        writer.add_token_types([kind for _, kind in entries])
        if spm:
            # SPM joins the neighbours whose token has the highest score: earlier words first, as with BPE ranks.
            writer.add_token_scores([-float(i) if kind == _NORMAL else 0.0 for i, (_, kind) in enumerate(entries)])
            writer.add_unk_token_id(self.id_of("<unk>"))
        else:
            writer.add_token_merges(merges)
        writer.add_bos_token_id(self.id_of(self.bos or ("<s>" if spm else ENDOFTEXT)))
        writer.add_eos_token_id(self.id_of(self.eos or ("</s>" if spm else IM_END)))
        if self.eot is not None:
            writer.add_eot_token_id(self.id_of(self.eot))
        writer.add_add_bos_token(spm if self.add_bos is None else self.add_bos)
        if self.add_eos is not None:
            writer.add_add_eos_token(self.add_eos)
        writer.add_add_space_prefix(spm if self.add_space_prefix is None else self.add_space_prefix)


# gguf's token types, repeated here so that reading a TinyVocab does not import gguf.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6


def _fixed_tokens(kind: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """(text, type) of the tokens every vocabulary of this kind has, before and after its words."""
    if kind == "bpe":
        head = [(char, _NORMAL) for char in _byte_alphabet()]
    else:
        head = [("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL)]
        head += [(f"<0x{byte:02X}>", _BYTE) for byte in range(256)]
        head += [("▁", _NORMAL), *((chr(code), _NORMAL) for code in range(0x21, 0x7F))]
    tail = [(ENDOFTEXT, _CONTROL), (IM_START, _CONTROL), (IM_END, _CONTROL), (USER_DEFINED, _USER_DEFINED)]
    return head, tail


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each byte value (Radford et al. 2019, released encoder)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


class _Weights:
    """Draws tensors by name and hands them to the writer in the wanted type."""

    def __init__(self, writer: Any, seed: int, quant: str, noise: float) -> None:
        self.writer, self.seed, self.quant, self.noise = writer, seed, quant, noise

    def normal(self, name: str, shape: tuple[int, ...], std: float) -> NDArray[np.float32]:
        """Gaussian values of this name and seed; with noise, mixed with others so that the variance stays."""
        import numpy as np

        key = zlib.crc32(name.encode())
        values = np.random.default_rng((self.seed, key)).standard_normal(shape, dtype=np.float32)
        if self.noise:
            other = np.random.default_rng((self.seed, key, 1)).standard_normal(shape, dtype=np.float32)
            values = np.float32((1 - self.noise**2) ** 0.5) * values + np.float32(self.noise) * other
        return values * np.float32(std)

    def matrix(self, name: str, rows: int, cols: int, gain: float = 1.0) -> None:
        """A weight matrix whose outputs have `gain` times the scale of its inputs."""
        self.store(name, self.normal(name, (rows, cols), gain / cols**0.5))

    def store(self, name: str, values: NDArray[np.float32]) -> None:
        """Write a matrix in the file's type; rows that do not fill quantization blocks stay float32."""
        import gguf

        kind = gguf.GGMLQuantizationType[self.quant.upper()]
        block = gguf.GGML_QUANT_SIZES[kind][0]
        if kind == gguf.GGMLQuantizationType.F32 or values.shape[-1] % block:
            self.plain(name, values)
        else:
            self.writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    def plain(self, name: str, values: NDArray[np.float32]) -> None:
        """Write a tensor that llama.cpp wants in float32."""
        self.writer.add_tensor(name, values)

    def filled(self, name: str, size: int, value: float = 1.0) -> None:
        """Write a vector of one value: norms and biases."""
        import numpy as np

        self.plain(name, np.full(size, value, dtype=np.float32))


def write_tiny(
    path: str | Path,
    *,
    arch: Arch = "llama",
    vocab: TinyVocab | None = None,
    seed: int = 0,
    noise: float = 0.0,
    quant: Quant = "f32",
    n_layer: int = 2,
    n_embd: int = 128,
    n_ctx_train: int = 512,
    sliding_window: int = 16,
    end_gain: float = 1.0,
    tied: bool = False,
    chat_template: str | None = None,
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None,
    name: str = "tiny",
) -> Path:
    """Write a random-weight GGUF to `path` and return the path.

    arch: llama (grouped-query attention), gemma3 (every second layer sees `sliding_window` tokens), mamba (recurrent),
    jamba (hybrid whose memory refuses partial removal), lfm2 (hybrid that can roll back with n_rs_seq snapshots).
    noise: 0 to below 1; mixes this share of independent noise into every weight, which makes a draft model for the file
    of the same seed and noise 0: greedy winners agree on 75-90% of tokens at 0.02, 50-75% at 0.05, 25-50% at 0.1.
    end_gain: factor on the output rows of the end tokens; 0 makes greedy text endless (their logits are then 0).
    tied: no output matrix; the embedding is used.  pooling: for embeddings.  quant: type of the matrices whose rows
    fill its blocks of 32.
    Raises BadRequestError for arguments out of range and OSError when the file cannot be written.
    """
    import gguf

    vocab = TinyVocab() if vocab is None else vocab
    _check(arch, quant, seed=seed, noise=noise, n_layer=n_layer, n_embd=n_embd, n_ctx_train=n_ctx_train)
    writer = gguf.GGUFWriter(str(path), arch)
    weights = _Weights(writer, seed, quant, noise)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[quant]])
    writer.add_vocab_size(vocab.total)
    writer.add_block_count(n_layer)
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(n_embd)
    writer.add_layer_norm_rms_eps(1e-6)
    vocab._write(writer)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType[pooling.upper()])
    # A tied model would mostly repeat its input: let the layers outweigh the embedding in the residual stream.
    embd_rms = _LOGIT_STD / n_embd**0.5 if tied else 1.0
    if arch == "gemma3":
        embd_rms, embd_std = (_LOGIT_STD, embd_rms) if tied else (1.0, n_embd**-0.5)
    else:
        embd_std = embd_rms
    final_norm = "token_embd_norm" if arch == "lfm2" else "output_norm"
    weights.filled(f"{final_norm}.weight", n_embd)
    _embeddings(weights, vocab, n_embd, embd_std, end_gain, tied)
    _layers(weights, arch, n_layer, n_embd, sliding_window, gain=5 * embd_rms if tied else 1.0)
    return finished(writer, Path(path))


def finished(writer: Any, path: Path) -> Path:
    """Write what a gguf.GGUFWriter was given, and close it."""
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    return path


_FILE_TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "q4_0": "MOSTLY_Q4_0", "q8_0": "MOSTLY_Q8_0"}


def _check(arch: str, quant: str, *, seed: int, noise: float, n_layer: int, n_embd: int, n_ctx_train: int) -> None:
    if arch not in ARCHS:
        raise BadRequestError(f"arch is {arch!r}; use one of {', '.join(ARCHS)}")
    if quant not in QUANTS:
        raise BadRequestError(f"quant is {quant!r}; use one of {', '.join(QUANTS)}")
    if seed < 0:
        raise BadRequestError(f"seed is {seed}; it must be at least 0")
    if not 0 <= noise < 1:
        raise BadRequestError(f"noise is {noise}; it must be at least 0 and below 1")
    if n_layer < (2 if arch in HYBRIDS else 1):
        raise BadRequestError(f"n_layer is {n_layer}; {arch} needs at least {2 if arch in HYBRIDS else 1}")
    if n_embd < 64 or n_embd % 64:
        raise BadRequestError(f"n_embd is {n_embd}; it must be a multiple of 64")
    if n_ctx_train < 1:
        raise BadRequestError(f"n_ctx_train is {n_ctx_train}; it must be at least 1")


def _embeddings(w: _Weights, vocab: TinyVocab, n_embd: int, std: float, end_gain: float, tied: bool) -> None:
    """Input embedding and (unless tied) output matrix."""
    texts = vocab.tokens()
    ends = [texts.index(text) for text in {vocab.eos, vocab.eot, ENDOFTEXT, IM_END, "</s>"} if text in texts]
    embedding = w.normal("token_embd.weight", (vocab.total, n_embd), std)
    output = embedding if tied else w.normal("output.weight", (vocab.total, n_embd), _LOGIT_STD / n_embd**0.5)
    output[ends] *= end_gain
    w.store("token_embd.weight", embedding)
    if not tied:
        w.store("output.weight", output)


def _layers(w: _Weights, arch: str, n_layer: int, n_embd: int, sliding_window: int, gain: float) -> None:
    """The keys and tensors of all layers; `gain` is the scale of what each block adds to the residual stream."""
    n_head, n_ff = n_embd // _HEAD_DIM, 2 * n_embd
    n_head_kv = n_head // 2
    recurrent = [arch == "mamba" or (arch in HYBRIDS and layer % 2 == 0) for layer in range(n_layer)]
    if arch == "mamba":
        w.writer.add_feed_forward_length(0)
        w.writer.add_head_count(0)
    else:
        w.writer.add_feed_forward_length(n_ff)
        w.writer.add_head_count(n_head)
        kv_heads = [0 if recurrent[layer] else n_head_kv for layer in range(n_layer)]
        w.writer.add_head_count_kv(kv_heads if arch in HYBRIDS else n_head_kv)
        w.writer.add_key_length(_HEAD_DIM)
        w.writer.add_value_length(_HEAD_DIM)
        w.writer.add_rope_dimension_count(_HEAD_DIM)
        w.writer.add_rope_freq_base(10000.0)
    if arch in ("mamba", "jamba"):
        w.writer.add_ssm_conv_kernel(_D_CONV)
        w.writer.add_ssm_inner_size(2 * n_embd)
        w.writer.add_ssm_state_size(_D_STATE)
        w.writer.add_ssm_time_step_rank(n_embd // 16)
    if arch == "lfm2":
        w.writer.add_shortconv_l_cache(_D_CONV - 1)
    if arch == "gemma3":
        w.writer.add_sliding_window(sliding_window)
        w.writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(n_layer)])
    for layer in range(n_layer):
        block = f"blk.{layer}"
        w.filled(f"{block}.attn_norm.weight", n_embd)
        if not recurrent[layer]:
            _attention(w, block, n_embd, n_head_kv, gain, qk_norm=arch in ("gemma3", "lfm2"))
        elif arch == "lfm2":
            _short_conv(w, block, n_embd, gain)
        else:
            _ssm(w, block, n_embd, gain, norms=arch == "jamba")
        if arch == "gemma3":
            w.filled(f"{block}.post_attention_norm.weight", n_embd, gain)
            w.filled(f"{block}.post_ffw_norm.weight", n_embd, gain)
        if arch != "mamba":
            w.filled(f"{block}.ffn_norm.weight", n_embd)
            w.matrix(f"{block}.ffn_gate.weight", n_ff, n_embd)
            w.matrix(f"{block}.ffn_up.weight", n_ff, n_embd)
            w.matrix(f"{block}.ffn_down.weight", n_embd, n_ff, 1.5 * gain)


def _attention(w: _Weights, block: str, n_embd: int, n_head_kv: int, gain: float, *, qk_norm: bool) -> None:
    """Grouped-query attention; scores spread by about two units, so that it looks at few tokens and matters."""
    for part, rows, scale in (("q", n_embd, 1.5), ("k", n_head_kv * _HEAD_DIM, 1.5), ("v", n_head_kv * _HEAD_DIM, 1.0)):
        w.matrix(f"{block}.attn_{part}.weight", rows, n_embd, scale)
    w.matrix(f"{block}.attn_output.weight", n_embd, n_embd, 1.5 * gain)
    if qk_norm:
        w.filled(f"{block}.attn_q_norm.weight", _HEAD_DIM, 1.5)
        w.filled(f"{block}.attn_k_norm.weight", _HEAD_DIM, 1.5)


def _ssm(w: _Weights, block: str, n_embd: int, gain: float, *, norms: bool) -> None:
    """A Mamba-1 mixer (Gu & Dao 2023); with `norms`, Jamba's norms on the time step, B and C."""
    import numpy as np

    d_inner, dt_rank = 2 * n_embd, n_embd // 16
    w.matrix(f"{block}.ssm_in.weight", 2 * d_inner, n_embd)
    w.plain(f"{block}.ssm_conv1d.weight", w.normal(f"{block}.ssm_conv1d.weight", (d_inner, _D_CONV), 0.6))
    w.filled(f"{block}.ssm_conv1d.bias", d_inner, 0.0)
    w.matrix(f"{block}.ssm_x.weight", dt_rank + 2 * _D_STATE, d_inner, 2.0)
    w.matrix(f"{block}.ssm_dt.weight", d_inner, dt_rank)
    # Time steps from 0.05 to 1 over the channels: some forget within a token or two, some remember dozens.
    steps = np.geomspace(0.05, 1.0, d_inner)
    w.plain(f"{block}.ssm_dt.bias", np.log(np.expm1(steps)).astype(np.float32))
    w.plain(f"{block}.ssm_a", np.tile(-np.arange(1, _D_STATE + 1, dtype=np.float32) / 4, (d_inner, 1)))
    w.filled(f"{block}.ssm_d", d_inner)
    w.matrix(f"{block}.ssm_out.weight", n_embd, d_inner, 1.5 * gain)
    if norms:
        for part, size in (("dt", dt_rank), ("b", _D_STATE), ("c", _D_STATE)):
            w.filled(f"{block}.ssm_{part}_norm.weight", size)


def _short_conv(w: _Weights, block: str, n_embd: int, gain: float) -> None:
    """LFM2's gated short convolution."""
    w.matrix(f"{block}.shortconv.in_proj.weight", 3 * n_embd, n_embd)
    w.plain(f"{block}.shortconv.conv.weight", w.normal(f"{block}.shortconv.conv.weight", (n_embd, _D_CONV - 1), 0.6))
    w.matrix(f"{block}.shortconv.out_proj.weight", n_embd, n_embd, gain)
