"""How `edgespec run` ends when it is interrupted, when nobody reads any more, and when the disk is full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from edgespec_command import RUN

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and devices as POSIX has them")

ENDLESS = ("Tell me more", "-n", "16000")


def interrupt(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Ctrl+C, and what is left of the outputs; the command must end soon."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    return out.decode(), err.decode()


def test_ctrl_c_keeps_the_text_so_far(cli, models):
    with cli.start("-m", models.chat, *ENDLESS) as process:
        start = os.read(process.stdout.fileno(), 100)
        out, err = interrupt(process)
    text = start.decode("utf-8", "replace") + out
    assert text.strip()
    assert text.endswith("\n")
    assert err.startswith("[chat.gguf] ")
    assert err.endswith(", interrupted\n")
    assert err.count("\n") == 1


def test_ctrl_c_ends_json_lines_with_the_whole_object(cli, models):
    with cli.start("-m", models.chat, *ENDLESS, "--jsonl") as process:
        first = process.stdout.readline().decode()
        out, _ = interrupt(process)
    *lines, reply = [json.loads(line) for line in (first + out).splitlines()]
    assert reply["finish_reason"] == "cancelled"
    assert reply["text"] == "".join(e["text"] for e in lines if e["type"] == "token")
    assert 0 < reply["usage"]["completion_tokens"] < 16000


def test_ctrl_c_in_a_long_answer_gives_json(cli, models):
    with cli.start("-m", models.raw, *ENDLESS, "--json") as process:
        assert b"no chat template" in process.stderr.readline()  # said when everything is loaded
        time.sleep(1.5)
        out, _ = interrupt(process)
    reply = json.loads(out)
    assert reply["finish_reason"] == "cancelled"
    assert reply["text"]
    assert 0 < reply["usage"]["completion_tokens"] < 16000


def test_ctrl_c_in_a_long_prompt_gives_json_without_text(cli, models, tmp_path):
    (tmp_path / "prompt").write_text("k7" * 8000, "utf-8")
    with (tmp_path / "prompt").open("rb") as prompt, cli.start("-m", models.raw, "--json", stdin=prompt) as process:
        assert b"no chat template" in process.stderr.readline()
        time.sleep(1.5)
        out, err = interrupt(process)
    reply = json.loads(out)
    assert (reply["finish_reason"], reply["text"]) == ("cancelled", "")
    assert reply["usage"] == {"prompt_tokens": 16000, "completion_tokens": 0}
    assert err.startswith("[raw.gguf] 0 tokens")


@pytest.mark.parametrize("form", [(), ("--jsonl",)], ids=["text", "jsonl"])
def test_a_reader_that_has_had_enough_ends_it_quietly(cli, models, form):
    with cli.start("-m", models.chat, *ENDLESS, *form) as process:
        assert os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_json_for_a_reader_that_has_gone_ends_quietly(chat):
    with chat.start("Tell me more", "-n", "4", "--json") as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)], ids=["text", "json", "jsonl"])
def test_a_full_disk_is_one_line_and_exit_1(chat, form):
    with Path("/dev/full").open("wb") as full, chat.start("Tell me more", "-n", "4", *form, stdout=full) as process:
        assert process.stderr.read() == b"edgespec: cannot write the output: No space left on device\n"
        assert process.wait(20) == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_standard_streams_may_be_closed(chat, closed):
    shell = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh"]
    result = chat.run([*shell, *RUN, *chat.always, "Tell me more", "-n", "4", "--json"])
    assert result.code == 0
    assert (result.out == "") == (closed == ">&-")
    assert "Traceback" not in result.err
    assert (result.err == "") == (closed == "2>&-")


def test_the_installed_command_is_the_same(cli, models):
    script = Path(sys.executable).with_name("edgespec")
    if not script.exists():
        pytest.skip("edgespec is not installed beside this Python")
    arguments = ("run", "-m", models.chat, "--threads", "1", "--ctx-size", "64", "hi", "-n", "2", "--temperature", "0")
    command = [sys.executable, "-m", "edgespec"]
    results = [cli.run([*start, *arguments]) for start in ([script], command)]
    assert results[0].code == results[1].code == 0
    assert results[0].out == results[1].out
