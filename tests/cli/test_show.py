"""`edgespec show` and `edgespec pull`: what a person and a script read, and what never reaches the screen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner, Result

from edgespec.cli import pull, show
from edgespec.errors import ModelLoadError, ModelNotFoundError
from edgespec.tiny_gguf import finished, write_tiny

MODELS = Path(os.environ.get("EDGESPEC_TEST_MODELS", "~/.cache/edgespec-test-models")).expanduser()
JSON_KEYS = {
    "path", "file_size", "gguf_version", "architecture", "name", "license", "parameters", "quantization", "types",
    "context_length", "block_count", "embedding_length", "head_count", "head_count_kv", "tokenizer", "chat_template",
    "memory", "gpu", "profile", "tuned", "heads", "eagle", "mtp_layers", "split",
}  # fmt: skip


def run_show(*args: str) -> Result:
    return CliRunner().invoke(show.show, args, catch_exceptions=False)


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny.gguf", quant="q8_0", chat_template="{{ 'a' }}\nsecond", name="Tiny Model")


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write_hostile(path: Path) -> Path:
    """A valid file whose every text carries terminal escapes, markup and line breaks."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("\x1b]0;owned\x07[bold]N[/bold]\x1b[2J\nsecond line")
    writer.add_license("mit\x9b31m\r\nfake row")
    writer.add_chat_template("\n\n{{ '\x1b[31m' }}[red]\n{{ x }}")
    writer.add_tokenizer_model("gpt2\x1b[5m")
    writer.add_token_list([b"<s>\x1b[1m", b"\xff\xfe"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_tensor("odd.weight", np.zeros((2, 32), np.float32))
    return finished(writer, path)


def test_the_table_says_what_the_file_is(tiny):
    output = run_show(str(tiny)).stdout
    rows = {line[:15].strip(): line[15:].strip() for line in output.splitlines()}
    assert rows["model"] == "Tiny Model"
    assert rows["file"] == str(tiny)
    assert rows["size"].startswith(f"{tiny.stat().st_size:,} bytes")
    assert rows["architecture"] == "llama"
    assert rows["context"] == "512 tokens"
    assert rows["layers"] == "2"
    assert rows["embedding"] == "128"
    assert rows["chat template"] == "yes: {{ 'a' }}..."
    assert rows["license"] == "not given"
    assert "tokens" in rows["tokenizer"]
    assert "EOS" in rows["tokenizer"]
    assert any(line.startswith("Q8_0 ") and line.endswith("%") for line in output.splitlines())


def test_the_piped_table_has_no_escapes_no_padding_and_no_folded_lines(tmp_path):
    folder = tmp_path / ("deep " * 40).strip()
    folder.mkdir()
    path = write_tiny(folder / "model [red].gguf")
    output = run_show(str(path)).stdout
    assert f"  {path}\n" in output
    assert all(line == line.rstrip() for line in output.splitlines())
    assert "\x1b" not in output


def test_json_has_the_documented_keys_and_the_files_values(tiny):
    result = run_show(str(tiny), "--json")
    facts = json.loads(result.stdout)
    assert set(facts) == JSON_KEYS
    assert all(key in show.show.help for key in JSON_KEYS)
    assert facts["path"] == str(tiny)
    assert facts["file_size"] == tiny.stat().st_size
    assert (facts["name"], facts["architecture"], facts["context_length"]) == ("Tiny Model", "llama", 512)
    assert facts["chat_template"] == "{{ 'a' }}\nsecond"
    assert facts["split"] is None
    assert facts["gpu"] is None
    assert set(facts["types"][0]) == {"type", "tensors", "bytes", "share"}
    assert sum(usage["share"] for usage in facts["types"]) == pytest.approx(1)
    tokenizer = facts["tokenizer"]
    assert all(key in show.show.help for key in tokenizer)
    assert tokenizer["eos"] == "<|im_end|>"
    reader = gguf.GGUFReader(tiny)
    assert tokenizer["vocab_size"] == len(reader.get_field("tokenizer.ggml.tokens").contents())
    assert facts["parameters"] == sum(int(t.n_elements) for t in reader.tensors)


def test_text_of_the_file_reaches_the_terminal_as_plain_text(tmp_path):
    path = write_hostile(tmp_path / "hostile.gguf")
    output = run_show(str(path)).stdout
    assert all(c == "\n" or c.isprintable() for c in output)
    rows = {line[:15].strip(): line[15:].strip() for line in output.splitlines()}
    assert "[bold]N[/bold]" in rows["model"]  # markup is shown, not obeyed
    assert "second line" in rows["model"]  # and a line break does not make another row
    assert "fake row" in rows["license"]
    assert "[red]" in rows["chat template"]
    facts = json.loads(run_show(str(path), "--json").stdout)
    assert facts["name"] == "\x1b]0;owned\x07[bold]N[/bold]\x1b[2J\nsecond line"  # data stays exact
    assert facts["tokenizer"]["eos"] == "\N{REPLACEMENT CHARACTER}" * 2


def test_missing_wrong_and_cut_files_raise_the_documented_errors(tmp_path, tiny, empty_home):
    with pytest.raises(ModelNotFoundError, match="no such file"):
        run_show(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotFoundError, match="edgespec pull smollm2-135m"):
        run_show("smollm2-135m")
    with pytest.raises(ModelLoadError, match="is a directory"):
        run_show(str(tmp_path))
    (tmp_path / "page.gguf").write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(ModelLoadError, match="web page"):
        run_show(str(tmp_path / "page.gguf"))
    tiny.write_bytes(tiny.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match="truncated"):
        run_show(str(tiny))


def test_usage_errors_exit_2():
    for args in ([], ["a", "b"], ["a", "--no-such-option"]):
        assert CliRunner().invoke(show.show, args).exit_code == 2
        assert CliRunner().invoke(pull.pull, args).exit_code == 2


def test_show_and_pull_import_nothing_heavy():
    code = (
        "import sys, edgespec.cli.show, edgespec.cli.pull\n"
        "print([m for m in ('llama_cpp', 'numpy', 'gguf', 'jinja2', 'asyncio') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.real
def test_show_of_a_real_model_is_quick():
    path = MODELS / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is not in {MODELS}")
    seconds = []
    for _ in range(3):  # the best of three: other tests may be using the cores
        started = time.perf_counter()
        result = run_show(str(path))
        seconds.append(time.perf_counter() - started)
    assert "1,777,088,000 (1.78 billion)" in result.stdout
    assert "EOS 151645 <|im_end|>" in result.stdout
    assert min(seconds) <= 0.3
