"""GGUF headers written byte by byte, so that any part of one can be wrong."""

from __future__ import annotations

import random
import struct

U32, BOOL, STRING, ARRAY, U64 = 4, 7, 8, 9, 10  # GGUF value types


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def text(key: str, value: str | bytes) -> bytes:
    return entry(key, STRING, string(value))


def number(key: str, value: int) -> bytes:
    return entry(key, U32, struct.pack("<I", value))


def flag(key: str, value: int) -> bytes:
    return entry(key, BOOL, struct.pack("<B", value))


def strings(key: str, values: list[bytes]) -> bytes:
    return entry(key, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(string, values)))


def numbers(key: str, values: list[int]) -> bytes:
    return entry(key, ARRAY, struct.pack(f"<IQ{len(values)}I", U32, len(values), *values))


def tensor(name: str | bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


TOKENS = [b"<s>", b"</s>", b"<end>", b"a", b"\xff\xfe", "\u0120wor".encode(), b""]
BASE = [
    text("general.architecture", "llama"),
    text("general.name", "Small One"),
    text("general.license", "mit"),
    number("general.file_type", 2),
    strings("general.tags", [b"chat", "\u00e9".encode()]),
    number("llama.context_length", 2048),
    number("llama.block_count", 3),
    number("llama.embedding_length", 64),
    numbers("llama.attention.head_count", [4, 8, 4]),
    number("llama.attention.head_count_kv", 2),
    text("tokenizer.ggml.model", "gpt2"),
    text("tokenizer.ggml.pre", "smollm"),
    strings("tokenizer.ggml.tokens", TOKENS),
    number("tokenizer.ggml.bos_token_id", 0),
    number("tokenizer.ggml.eos_token_id", 1),
    number("tokenizer.ggml.eot_token_id", 2),
    number("tokenizer.ggml.padding_token_id", 0xFFFFFFFF),
    flag("tokenizer.ggml.add_bos_token", 1),
    text("tokenizer.chat_template", "{% for m in messages %}{{ m }}{% endfor %}"),
]
TENSORS = [tensor("token_embd.weight", (64, 7), 2, 0), tensor("norm.weight", (64,), 0, 256)]
DATA = 256 + 256  # 7 rows of 36 bytes, padded; 64 floats


def gguf(
    metadata: list[bytes] = BASE,
    tensors: list[bytes] = TENSORS,
    data: int = DATA,
    version: int = 3,
    n_metadata: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    counts = (len(tensors) if n_tensors is None else n_tensors, len(metadata) if n_metadata is None else n_metadata)
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(metadata) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Damage a valid file: bytes, lengths, cuts, holes, repeats."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data))
        kind = rng.randrange(6)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            extreme = rng.choice((0, 1, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1))
            data[at : at + 8] = struct.pack("<Q", extreme)
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at : at + rng.randrange(1, 40)]
        else:
            data[at:at] = data[at : at + rng.randrange(1, 200)] or b"\0"
        if not data:
            break
    return bytes(data)
