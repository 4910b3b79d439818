"""Bad input to `edgespec run`: one line that says what is wrong, the documented exit code, never a traceback."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from edgespec_command import EDGESPEC, RUN, Models, Result

OPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("",), "the prompt is empty"),
    ((" \n ",), "the prompt is empty"),
    (("-",), "the prompt is empty"),
    (("hi", "--temperature", "-0.1"), "temperature is -0.1; it must be a number 0 or more"),
    (("hi", "--temperature", "nan"), "temperature is nan"),
    (("hi", "--temperature", "inf"), "temperature is inf"),
    (("hi", "--temperature", "warm"), "'--temperature'"),
    (("hi", "--top-k", "-1"), "top_k is -1"),
    (("hi", "--top-k", "1.5"), "'--top-k'"),
    (("hi", "--top-p", "0"), "top_p is 0"),
    (("hi", "--min-p", "1.5"), "min_p is 1.5"),
    (("hi", "--typical", "nan"), "typical is nan"),
    (("hi", "--repeat-penalty", "0"), "repeat_penalty is 0"),
    (("hi", "--seed", "-1"), "seed is -1; it must be a whole number from 0"),
    (("hi", "-n", "0"), "max tokens is 0"),
    (("hi", "-n", "-1"), "max tokens is -1"),
    (("hi", "--draft-max", "-1"), "draft max is -1"),
    (("hi", "--stop", ""), r"stop\[0\] is empty"),
    (("hi", "--verify", "magic"), "verify is 'magic'; choose one of "),
    (("hi", "--logit-bias", "4"), "--logit-bias '4' is not ID=BIAS"),
    (("hi", "--logit-bias", "a=1"), "--logit-bias 'a=1' is not ID=BIAS"),
    (("hi", "--logit-bias", "-1=1"), "token id -1"),
    (("hi", "--logit-bias", "1=nan"), "bias of token 1 is nan"),
    (("hi", "--json", "--jsonl"), "not both"),
    (("hi", "there"), r"unexpected extra argument \(there\)"),
    (("hi", "--colourful"), "No such option '--colourful'"),
    (("hi", "--drafter", "oracle"), "drafter 'oracle' is not known"),
    (("hi", "--drafter", ""), "drafter '' is not known"),
    (("hi", "--drafter", "model"), "drafter model needs a draft model"),
    (("hi", "--ctx-size", "1"), "context size is 1; it must be a whole number from"),
    (("hi", "--ctx-size", "0"), "context size is 0"),
    (("hi", "--ctx-size", "1000000000000"), "context size is 1000000000000"),
    (("hi", "--threads", "0"), "threads is 0"),
    (("hi", "--kv-type", "q5_9"), "kv type is 'q5_9'; choose one of"),
    (("hi", "--kv-type", "q8_0", "--flash-attn", "off"), "needs flash attention"),
    (("hi", "--buffers", "some"), "buffers is 'some'"),
    (("hi", "--flash-attn", "maybe"), "flash attention is 'maybe'"),
    (("hi", "--gpu-layers", "-2"), "gpu layers is -2"),
]
FILES = ("missing", "folder", "text", "empty", "stub", "header cut", "tensors cut")


@pytest.fixture(scope="module")
def files(models: Models, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bad")
    whole = models.chat.read_bytes()
    contents = {
        "text": b"not a model at all, just some text that somebody saved\n" * 9,
        "empty": b"",
        "stub": b"GGUF",
        "header cut": whole[:5000],
        "tensors cut": whole[:-70_000],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "broken.gbnf").write_text('root ::= "a" missing', "utf-8")
    (folder / "rootless.gbnf").write_text('start ::= "a"', "utf-8")
    (folder / "latin").write_bytes('root ::= "é"'.encode("latin-1"))
    (folder / "cut.json").write_text('{"type": ', "utf-8")
    (folder / "list.json").write_text("[1, 2]", "utf-8")
    (folder / "unknown.json").write_text('{"type": "colour"}', "utf-8")
    return {name: folder / name for name in (*FILES, *os.listdir(folder))}  # noqa: PTH208


def refused(result: Result, code: int, words: str) -> None:
    """Nothing on stdout; one line on stderr, with these words."""
    assert result.out == ""
    assert re.fullmatch(rf"edgespec: [^\n]*{words}[^\n]*\n", result.err), result.err
    assert result.code == code


@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        ("missing", 3, "no such file"),
        ("folder", 4, "is a directory"),
        ("text", 4, "not a GGUF"),
        ("empty", 4, "an empty file"),
        ("stub", 4, "truncated"),
        ("header cut", 4, "truncated"),
        ("tensors cut", 4, "truncated"),
    ],
)
def test_a_file_that_is_no_model(cli, models, files, file, code, words):
    refused(cli("-m", files[file], "hi"), code, words)
    if file in ("missing", "tensors cut"):
        refused(cli("-m", models.chat, "--ctx-size", "64", "--draft", files[file], "hi"), code, words)


def test_a_draft_of_another_vocabulary_names_the_first_difference(chat, models):
    words = "mismatched.gguf cannot draft for this model: token 100 is 'd' in the target and 'e' in the draft"
    refused(chat("hi", "--draft", models.mismatched), 4, words)


@pytest.mark.parametrize(("arguments", "words"), OPTIONS, ids=[" ".join(row[0]).replace("\n", "~") for row in OPTIONS])
def test_an_option_out_of_range(chat, arguments, words):
    refused(chat(*arguments), 2, words)


def test_an_unknown_command_exits_2(cli):
    refused(cli.run([*EDGESPEC, "dance"]), 2, "No such command 'dance'")


def test_a_process_exits_with_the_code(chat, files, models):
    refused(chat.process("hi", "--temperature", "nan"), 2, "temperature is nan")
    refused(chat.process("hi", "--draft", files["missing"]), 3, "no such file")
    refused(chat.process("hi", "--draft", models.mismatched), 4, "cannot draft for this model")
    refused(chat.process("k7" * 600), 5, "and the context of 512")


def test_a_biased_token_must_be_in_the_vocabulary(chat):
    refused(chat("hi", "--logit-bias", "512=1"), 2, "logit_bias names token 512; this model's token ids end at 511")


@pytest.mark.parametrize(
    ("option", "file", "words"),
    [
        ("--grammar", "missing", "cannot read --grammar .*: No such file"),
        ("--grammar", "folder", "cannot read --grammar .*: Is a directory"),
        ("--grammar", "latin", "cannot read --grammar .*: not UTF-8 text"),
        ("--grammar", "empty", "grammar must have"),
        ("--json-schema", "missing", "cannot read --json-schema .*: No such file"),
        ("--json-schema", "cut.json", "JSON schema is not valid JSON"),
        ("--json-schema", "list.json", "JSON schema must be a JSON object"),
        ("--json-schema", "unknown.json", "cannot be turned into a grammar"),
        ("--grammar", "rootless.gbnf", "grammar is not valid GBNF"),
    ],
)
def test_a_file_that_is_no_grammar(chat, files, option, file, words):
    refused(chat("hi", option, files[file]), 2, words)


def test_a_grammar_with_an_error_in_it_says_which(chat, files):
    result = chat("hi", "--grammar", files["broken.gbnf"])
    assert "Undefined rule identifier 'missing'" in result.err
    refused(result, 2, "grammar is not valid GBNF")


def test_a_prompt_longer_than_the_context_gives_both_counts(chat):
    prompt = "k7" * 50
    refused(
        chat(prompt, "--raw", "--ctx-size", "64"),
        5,
        "the prompt has 100 tokens and the context of 64 has room for 63",
    )
    fits = chat("k7" * 31 + "k", "--raw", "--ctx-size", "64", "--json")
    assert fits.code == 0
    assert fits.json["usage"] == {"prompt_tokens": 63, "completion_tokens": 1}


@pytest.mark.parametrize("character", ["a", " a", "🙂"])
def test_twenty_thousand_repetitions_are_a_clear_error(chat, character):
    refused(chat(stdin=(character * 20_000).encode()), 5, r"the prompt has \d+ tokens and the context of 512")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits address space")
def test_a_context_that_no_memory_holds_is_refused(cli, models):
    limited = ["/bin/sh", "-c", 'ulimit -v 6000000; exec "$@"', "sh"]
    result = cli.run([*limited, *RUN, "-m", models.chat, "--ctx-size", str(1 << 24), "hi"])
    note, error = result.err.splitlines(keepends=True)
    assert re.search(r"context of 16777216 tokens needs .* but .* are free: --ctx-size \d+ fits", note)
    refused(Result(result.code, result.out, error), 4, "no context of 16777216 tokens .* try a smaller --ctx-size")


@pytest.mark.parametrize("data", [b"caf\xe9 \xf0\x9f\x99", b"a\x00b\x00", b"\xed\xa0\x80 surrogate"], ids=repr)
def test_bytes_that_are_no_text_are_read_as_replacements(chat, llm, data):
    result = chat("-", "--temperature", "0", "-n", "8", "--json", stdin=data)
    assert result.code == 0, result.err
    messages = [{"role": "user", "content": data.decode("utf-8", "replace")}]
    assert result.json["text"] == llm.chat(messages, temperature=0, max_tokens=8).text


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes on POSIX")
def test_an_argument_that_is_no_text_is_read_as_replacements(chat):
    result = chat.process(b"caf\xe9", "--system", b"\xff", "-n", "2", "--json")
    assert result.code == 0, result.err
