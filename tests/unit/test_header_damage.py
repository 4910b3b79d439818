"""The GGUF header reader on damaged, hostile and other files: one clear line, at once, and nothing else."""

from __future__ import annotations

import os
import random
import struct
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from gguf_bytes import (
    ARRAY,
    BASE,
    STRING,
    TOKENS,
    U32,
    U64,
    entry,
    flag,
    gguf,
    mutate,
    number,
    numbers,
    string,
    strings,
    tensor,
    text,
)

from edgespec.errors import EdgeSpecError, ModelLoadError, ModelNotFoundError
from edgespec.models import layout
from edgespec.models.header import Header, read_header


@pytest.fixture
def write(tmp_path: Path):
    def write(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write


def test_cut_tensor_data_is_refused_with_both_numbers(write):
    content = gguf()
    with pytest.raises(ModelLoadError, match=f"truncated: .* need {len(content):,} bytes, the file has 1,") as caught:
        read_header(write(content[:-1]))
    assert f"{len(content) - 1:,}" in str(caught.value)


def test_every_cut_of_the_header_is_refused(write):
    content = gguf()
    for length in range(4, len(content), 3):
        with pytest.raises(ModelLoadError, match="truncated"):
            read_header(write(content[:length]))


def without(key: str) -> list[bytes]:
    return [part for part in BASE if not part.startswith(string(key))]


HUGE = 1 << 60
REFUSED = {
    "duplicate key": (gguf([*BASE, text("general.name", "twice")]), "'general.name' occurs twice"),
    "empty key": (gguf([*BASE, text("", "x")]), "key is empty"),
    "key not UTF-8": (gguf([*BASE, entry(b"\xff\xfe", U32, bytes(4))]), "not UTF-8"),
    "text not UTF-8": (gguf([text("general.architecture", b"\xc3\x28")]), "not UTF-8"),
    "unknown value type": (gguf([*BASE, entry("odd", 13, bytes(8))]), "unknown value type 13"),
    "unknown array type": (gguf([*BASE, entry("odd", ARRAY, struct.pack("<IQ", 99, 1))]), "unknown value type 99"),
    "bad bool": (gguf([*BASE, flag("odd", 2)]), "neither 0 nor 1"),
    "nested arrays": (gguf([*BASE, entry("odd", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "array of arrays"),
    "huge string": (gguf([*BASE, entry("odd", STRING, struct.pack("<Q", HUGE))]), "truncated"),
    "string of 2^64-1 bytes": (gguf([*BASE, entry("odd", STRING, b"\xff" * 8)]), "truncated"),
    "huge array": (gguf([*BASE, entry("odd", ARRAY, struct.pack("<IQ", U64, HUGE))]), "truncated"),
    "huge string array": (gguf([*BASE, entry("odd", ARRAY, struct.pack("<IQ", STRING, HUGE))]), "truncated"),
    "array of huge strings": (gguf([*BASE, entry("odd", ARRAY, struct.pack("<IQQ", STRING, 2, HUGE))]), "truncated"),
    "huge metadata count": (gguf(n_metadata=HUGE), "metadata entries"),
    "too large metadata count": (gguf(n_metadata=60_000), "truncated"),
    "huge tensor count": (gguf(n_tensors=HUGE), "tensors"),
    "too large tensor count": (gguf(n_tensors=60_000), "truncated"),
    "alignment 0": (gguf([*BASE, number("general.alignment", 0)]), "power of two"),
    "alignment 24": (gguf([*BASE, number("general.alignment", 24)]), "power of two"),
    "no architecture": (gguf(without("general.architecture")), "names no architecture"),
    "architecture a number": (gguf([*without("general.architecture"), number("general.architecture", 1)]), "a string"),
    "context a text": (gguf([*without("llama.context_length"), text("llama.context_length", "8k")]), "whole number"),
    "context a bool": (gguf([*without("llama.context_length"), flag("llama.context_length", 1)]), "whole number"),
    "heads of text": (
        gguf([*without("llama.attention.head_count"), strings("llama.attention.head_count", [b"4"])]),
        "whole numbers",
    ),
    "tokens of numbers": (gguf([*without("tokenizer.ggml.tokens"), numbers("tokenizer.ggml.tokens", [1])]), "strings"),
    "add_bos a number": (
        gguf([*without("tokenizer.ggml.add_bos_token"), number("tokenizer.ggml.add_bos_token", 1)]),
        "true or false",
    ),
    "duplicate tensor": (gguf(tensors=[tensor("a", (32,), 0, 0), tensor("a", (32,), 0, 128)]), "occurs twice"),
    "overlapping tensors": (gguf(tensors=[tensor("a", (64,), 0, 0), tensor("b", (64,), 0, 128)]), "overlaps"),
    "long tensor name": (gguf(tensors=[tensor("n" * 64, (32,), 0, 0)]), "64 bytes"),
    "five dimensions": (gguf(tensors=[tensor("a", (1, 1, 1, 1, 1), 0, 0)]), "5 dimensions"),
    "2^63 elements": (gguf(tensors=[tensor("a", (1 << 32, 1 << 31), 0, 0)]), "impossible shape"),
    "product over 2^64": (gguf(tensors=[tensor("a", (1 << 62, 1 << 62), 0, 0)]), "impossible shape"),
    "dimension over 2^63 beside a zero": (gguf(tensors=[tensor("a", (1 << 63, 0), 0, 0)]), "impossible shape"),
    "unknown tensor type": (gguf(tensors=[tensor("a", (32,), 77, 0)]), "unknown type 77"),
    "removed tensor type": (gguf(tensors=[tensor("a", (32,), 31, 0)]), "Q4_0_4_4"),
    "row not in blocks": (gguf(tensors=[tensor("a", (48, 2), 2, 0)]), "whole blocks of 32"),
    "scalar in blocks": (gguf(tensors=[tensor("a", (), 2, 0)]), "whole blocks of 32"),
    "unaligned tensor": (gguf(tensors=[tensor("a", (8,), 0, 4)]), "not aligned"),
    "tensor far beyond the end": (gguf(tensors=[tensor("a", (8,), 0, 1 << 62)]), "truncated"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "version 0": (gguf(version=0), "version 0"),
    "version 1": (gguf(version=1), "version 1"),
    "version 4": (gguf(version=4), "version 4"),
    "magic only": (b"GGUF", "truncated"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_damage_is_refused_with_one_line_that_names_it(write, case):
    content, message = REFUSED[case]
    with pytest.raises(ModelLoadError, match=message) as caught:
        read_header(write(content))
    assert "\n" not in str(caught.value)
    assert "model.gguf" in str(caught.value)


def test_limits_on_the_work_a_header_can_ask_for(write, monkeypatch):
    monkeypatch.setattr(layout, "MAX_STRINGS", len(BASE) + len(TOKENS))
    read_header(write(gguf()))
    with pytest.raises(ModelLoadError, match="strings"):
        read_header(write(gguf([*BASE, strings("more", [b""] * 100)])))


def test_many_small_arrays_do_not_add_up(write, monkeypatch):
    monkeypatch.setattr(layout, "MAX_VALUES", 100)
    monkeypatch.setattr(layout, "MAX_TEXT", 600)
    header = read_header(write(gguf([*BASE, *(numbers(f"n{i}", list(range(60))) for i in range(4))])))
    assert [isinstance(header.metadata[f"n{i}"], tuple) for i in range(4)] == [True, False, False, False]
    header = read_header(write(gguf([*BASE, *(text(f"t{i}", "x" * 150) for i in range(4))])))
    kept = [isinstance(header.metadata[f"t{i}"], str) for i in range(4)]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] is False


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "an empty file"),
        (b"\n  <!DOCTYPE html><html>404</html>", "web page"),
        (b"<html><body>log in</body></html>", "web page"),
        (struct.pack("<Q", 40) + b'{"__metadata__":{"format":"pt"}}' + bytes(40), "safetensors"),
        (b"PK\x03\x04" + bytes(40), "zip"),
        (b"\x1f\x8b\x08" + bytes(40), "gzip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b'{"error": "no access"}', "JSON"),
        (b"\x80\x02}q\x00.", "pickle"),
        (struct.pack("<I", 0x67676A74) + bytes(40), "before GGUF"),
        (b"\x7fELF" + bytes(60), "program"),
        (bytes(4096), "zero bytes"),
        (b"just a note\n", "a text file"),
        (b"\x01\x02\x03\xff" * 20, "another kind"),
        (b"GGU", "a text file"),
    ],
)
def test_other_files_are_called_what_they_look_like(write, content, kind):
    with pytest.raises(ModelLoadError, match=f"not a GGUF.*{kind}"):
        read_header(write(content))


def test_paths_that_are_no_file(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    for missing in (tmp_path / "none.gguf", tmp_path / "file" / "x.gguf", "bad\0name"):
        with pytest.raises(ModelNotFoundError, match="no model file"):
            read_header(missing)
    with pytest.raises(ModelLoadError, match="is a directory"):
        read_header(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no FIFOs and no such file names")
def test_pipes_and_odd_names_make_one_line_errors(tmp_path):
    fifo = tmp_path / "pipe\n\x1b[31m.gguf"
    os.mkfifo(fifo)
    with pytest.raises(ModelLoadError, match="not a regular file") as caught:
        read_header(fifo)
    assert str(caught.value).isprintable()


def fuzz(path: Path, count: int, seed: int) -> int:
    """Read `count` damaged files; return how many were still readable."""
    rng = random.Random(seed)
    content = gguf()
    readable = 0
    path.write_bytes(content)
    read_header(path)
    tracemalloc.start()
    try:
        for _ in range(count):
            path.write_bytes(mutate(content, rng))
            started = time.perf_counter()
            message = ""
            try:
                header = read_header(path)
                assert isinstance(header, Header)
                readable += 1
                list(header.token_texts())
            except EdgeSpecError as error:
                message = str(error)
            assert message.isprintable()
            assert time.perf_counter() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    return readable


def test_fuzz_finds_only_headers_and_errors(tmp_path):
    readable = fuzz(tmp_path / "fuzz.gguf", 500, seed=7)
    assert 0 < readable < 400  # the mutations neither all miss nor all hit


@pytest.mark.soak
def test_fuzz_full_count(tmp_path):
    for seed in range(4):
        fuzz(tmp_path / "fuzz.gguf", 2_000, seed=100 + seed)
