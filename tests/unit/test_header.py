"""The GGUF header reader: what it reports of well-formed files, and what that costs."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_bytes import BASE, DATA, TOKENS, gguf, number, numbers, string, strings, text

from edgespec.errors import ModelLoadError
from edgespec.models import layout, reader
from edgespec.models.header import ArraySpan, TensorInfo, TypeUsage, read_header
from edgespec.tiny_gguf import ARCHS, write_tiny

MODELS = Path(os.environ.get("EDGESPEC_TEST_MODELS", "~/.cache/edgespec-test-models")).expanduser()


@pytest.fixture
def write(tmp_path: Path):
    def write(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("version", [2, 3])
def test_reports_what_the_file_says(write, version):
    content = gguf(version=version)
    header = read_header(write(content))
    assert (header.version, header.arch, header.name, header.license) == (version, "llama", "Small One", "mit")
    assert (header.context_length, header.block_count, header.embedding_length) == (2048, 3, 64)
    assert (header.head_count, header.head_count_kv) == ((4, 8, 4), 2)
    assert header.chat_template == "{% for m in messages %}{{ m }}{% endfor %}"
    assert header.metadata["general.tags"] == ("chat", "\u00e9")
    tok = header.tokenizer
    assert (tok.model, tok.pre, tok.vocab_size, tok.add_bos) == ("gpt2", "smollm", len(TOKENS), True)
    assert (tok.bos_id, tok.eos_id, tok.eot_id) == (0, 1, 2)
    assert header.tensors == (
        TensorInfo("token_embd.weight", "Q4_0", (64, 7), 0, 252),
        TensorInfo("norm.weight", "F32", (64,), 256, 256),
    )
    assert header.parameters == 64 * 7 + 64
    assert header.quantization == (TypeUsage("F32", 1, 256), TypeUsage("Q4_0", 1, 252))
    assert header.quant == "Q4_0"
    assert header.file_size == len(content) == header.needed_size
    assert header.data_start == len(content) - DATA
    assert (header.split_no, header.split_count) == (0, 1)


def test_token_texts_are_the_stored_bytes(write):
    header = read_header(write(gguf()))
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], ArraySpan)
    assert list(header.token_texts()) == TOKENS
    assert [header.token_text(i) for i in range(len(TOKENS))] == TOKENS
    for outside in (-1, len(TOKENS)):
        with pytest.raises(IndexError, match="token id"):
            header.token_text(outside)


def test_token_texts_notice_a_changed_file(write):
    header = read_header(write(gguf()))
    write(gguf() + b"x")
    with pytest.raises(ModelLoadError, match="has changed"):
        list(header.token_texts())


def test_strings_across_windows(write, monkeypatch):
    monkeypatch.setattr(reader, "WINDOW", 64)  # every border case of the window, with strings longer than it
    for extra in range(20):
        tokens = [bytes([65 + i % 26]) * ((i * 7 + extra) % 150) for i in range(60)]
        head = [*BASE[:12], text("pad", "p" * extra), strings("tokenizer.ggml.tokens", tokens)]
        header = read_header(write(gguf(head)))
        assert list(header.token_texts()) == tokens
        assert header.token_text(59) == tokens[59]
        assert header.tensors[1].name == "norm.weight"


def test_what_is_long_stays_in_the_file(write, monkeypatch):
    monkeypatch.setattr(layout, "LONG_TEXT", 100)
    long = [numbers("scores", list(range(2000))), text("tokenizer.huggingface.json", "x" * 101)]
    header = read_header(write(gguf([*BASE, *long])))
    scores = header.metadata["scores"]
    assert isinstance(scores, ArraySpan)
    assert (scores.type, scores.count, scores.nbytes) == ("uint32", 2000, 8000)
    raw = header.path.read_bytes()[scores.offset : scores.offset + scores.nbytes]
    assert struct.unpack("<2000I", raw) == tuple(range(2000))
    assert header.metadata["tokenizer.huggingface.json"] == ArraySpan(
        "string", 1, scores.offset + 8000 + len(string("tokenizer.huggingface.json")) + 4, 8 + 101
    )


def test_ids_outside_the_vocabulary_are_none(write):
    outside = number("tokenizer.ggml.eos_token_id", len(TOKENS))
    metadata = [outside if part.startswith(string("tokenizer.ggml.eos_token_id")) else part for part in BASE]
    assert read_header(write(gguf(metadata))).tokenizer.eos_id is None


def test_quantization_name_without_a_file_type(write):
    metadata = [part for part in BASE if not part.startswith(string("general.file_type"))]
    assert read_header(write(gguf(metadata))).quant == "F32"  # most bytes
    guessed = [*metadata, number("general.file_type", 1024 + 15)]
    assert read_header(write(gguf(guessed))).quant == "Q4_K_M"


def test_a_vocabulary_only_file_is_a_model_without_tensors(write):
    header = read_header(write(gguf(tensors=[], data=0)))
    assert (header.parameters, header.quantization, header.needed_size) == (0, (), 0)


def test_parts_of_a_split_model_say_so(write):
    header = read_header(write(gguf([*BASE, number("split.no", 1), number("split.count", 3)])))
    assert (header.split_no, header.split_count) == (1, 3)


@pytest.mark.parametrize("arch", ARCHS)
def test_agrees_with_the_gguf_package(tmp_path, arch):
    gguf_package = pytest.importorskip("gguf")
    path = write_tiny(tmp_path / "tiny.gguf", arch=arch, chat_template="{{ messages }}")
    header = read_header(path)
    theirs = gguf_package.GGUFReader(path)
    ours = [(t.name, t.type, t.shape, header.data_start + t.offset, t.nbytes) for t in header.tensors]
    assert ours == [
        (t.name, t.tensor_type.name, tuple(int(n) for n in t.shape), int(t.data_offset), int(t.n_bytes))
        for t in theirs.tensors
    ]
    assert header.arch == theirs.get_field("general.architecture").contents() == arch
    assert header.chat_template == "{{ messages }}"
    tokens = theirs.get_field("tokenizer.ggml.tokens").contents()
    assert [t.decode() for t in header.token_texts()] == tokens
    assert header.tokenizer.vocab_size == len(tokens)


def test_storage_sizes_agree_with_the_gguf_package():
    constants = pytest.importorskip("gguf.constants")
    from edgespec.models.ggml_types import GGML_TYPES

    theirs = {int(t): (t.name, *size) for t, size in constants.GGML_QUANT_SIZES.items() if t.name != "Q8_1"}
    ours = {n: (t.name, t.block, t.nbytes) for n, t in GGML_TYPES.items()}
    assert ours.items() >= theirs.items()
    assert ours[9] == ("Q8_1", 32, 36)  # block_q8_1: two halves and 32 bytes (the package counts two floats)


MEASURE = """
import sys, time
def peak():
    try:
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    except OSError:
        import resource
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return rss // 1024 if sys.platform == "darwin" else rss
before = peak()
started = time.perf_counter()
from edgespec.models.header import read_header
header = read_header(sys.argv[1])
print(time.perf_counter() - started, (peak() - before) / 1024, header.tokenizer.vocab_size)
"""


@pytest.mark.real
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is read from /proc or getrusage")
@pytest.mark.parametrize(
    ("file", "vocab_size"),
    [("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", 151_936), ("gemma-3-270m-q4_k_m.gguf", 262_144)],
)
def test_a_real_header_costs_little(file, vocab_size):
    path = MODELS / file
    if not path.exists():
        pytest.skip(f"{file} is not in {MODELS}")
    seconds, megabytes = [], []
    for _ in range(3):  # the best of three: other tests may be using the cores
        run = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
        s, mb, vocab = run.stdout.split()
        assert int(vocab) == vocab_size
        seconds.append(float(s))
        megabytes.append(float(mb))
    print(f"{file}: {min(seconds):.3f} s, {max(megabytes):.1f} MB")
    assert min(seconds) <= 0.3
    assert max(megabytes) <= 100


@pytest.mark.real
def test_real_files_are_complete_and_named():
    expected = {
        "SmolLM2-135M-Instruct.Q4_1.gguf": ("llama", "Q4_1", 134_515_008),
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": ("qwen2", "Q4_K_M", 630_167_424),
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf": ("qwen2", "Q4_K_M", 1_777_088_000),
        "gemma-3-270m-q4_k_m.gguf": ("gemma3", "Q4_K_M", 268_098_176),
    }
    present = {file: facts for file, facts in expected.items() if (MODELS / file).exists()}
    if not present:
        pytest.skip(f"no models in {MODELS}")
    for file, facts in present.items():
        header = read_header(MODELS / file)
        assert (header.arch, header.quant, header.parameters) == facts
        assert header.needed_size == header.file_size
        eos = header.tokenizer.eos_id
        assert eos is not None
        assert header.token_text(eos) in (b"<|im_end|>", b"<eos>")
        assert (header.chat_template is None) == file.startswith("gemma")
