"""`edgespec doctor`: what it says, and when it fails. That it opens no connection: test_network.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

from edgespec.doctor import CHECKS

DOCTOR = (*EDGESPEC, "doctor")
# In a process of its own, whose terminal is standard input.
IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)


@pytest.fixture
def own(own: Cli, tmp_path: Path) -> Cli:
    """With a Hub cache of its own as well: no models but those that a test brings."""
    return with_variables(own, HF_HOME=str(tmp_path / "hub"), XDG_CACHE_HOME=str(tmp_path / "cache"))


def with_variables(cli: Cli, **variables: str) -> Cli:
    return Cli({**cli.env, **variables})


def found(done: Result) -> dict[str, dict[str, Any]]:
    """The checks by name; all of them, each well formed."""
    checks = done.json["checks"]
    assert [check["name"] for check in checks] == list(CHECKS)
    for check in checks:
        assert set(check) == {"name", "status", "detail", "fix"}
        assert check["status"] in ("ok", "warn", "fail")
        assert check["detail"]
        assert (check["fix"] is None) is (check["status"] == "ok"), check
    assert done.code == int(any(check["status"] == "fail" for check in checks))
    return {check["name"]: check for check in checks}


def test_this_machine_is_fit(own: Cli) -> None:
    done = own.run([*DOCTOR, "--json"])
    checks = found(done)
    assert (done.code, done.err) == (0, "")
    assert checks["python"]["detail"].startswith(".".join(map(str, sys.version_info[:3])))
    assert checks["binding"]["status"] == "ok"
    assert "ggml" in checks["llama.cpp"]["detail"]
    assert "none" in checks["kernels"]["detail"]
    assert str(own.env["EDGESPEC_HOME"]) in checks["folders"]["detail"]
    assert checks["offline"]["status"] == "warn"
    assert "edgespec pull smollm2-135m" in checks["offline"]["fix"]


def test_for_people_each_check_is_a_line_with_its_fix_below(own: Cli) -> None:
    done = own.run(DOCTOR)
    assert done.code == 0
    lines = done.out.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [line[6:19].rstrip() for line in heads] == list(CHECKS)
    warned = [line for line in heads if not line.startswith("ok ")]
    assert sum(line.strip().startswith("fix: ") for line in lines) == len(warned) > 0
    assert "\x1b" not in done.out


def test_the_configured_model_is_what_must_be_here(own: Cli, models: Models) -> None:
    checks = found(with_variables(own, EDGESPEC_MODEL=str(models.chat)).run([*DOCTOR, "--json"]))
    assert checks["offline"]["detail"].startswith("ready: chat.gguf is here")
    assert "chat.gguf: too small to be measured" in checks["profiles"]["detail"]
    checks = found(with_variables(own, EDGESPEC_MODEL="qwen3-4b").run([*DOCTOR, "--json"]))
    assert checks["offline"]["status"] == "warn"
    assert "edgespec pull qwen3-4b" in checks["offline"]["fix"]


def test_a_configured_model_that_is_broken_or_does_not_fit_is_not_ready(
    own: Cli, models: Models, tmp_path: Path
) -> None:
    (cut := tmp_path / "cut.gguf").write_bytes(models.chat.read_bytes()[:5000])
    check = found(with_variables(own, EDGESPEC_MODEL=str(cut)).run([*DOCTOR, "--json"]))["offline"]
    assert (check["status"], check["fix"]) == ("warn", "download it again")
    assert "cut.gguf' is truncated or damaged" in check["detail"]
    long = with_variables(own, EDGESPEC_MODEL=str(models.chat), EDGESPEC_CTX_SIZE="16000000")
    check = found(long.run([*DOCTOR, "--json"]))["offline"]
    assert check["status"] == "warn"
    assert "chat.gguf is here, but at a context of 16,000,000 tokens it needs" in check["detail"]
    assert "--ctx-size" in check["fix"]


def test_a_broken_config_is_a_failure_and_not_the_end(own: Cli) -> None:
    Path(own.env["EDGESPEC_HOME"], "config.toml").write_text("topk = 3\n", "utf-8")
    checks = found(own.run([*DOCTOR, "--json"]))
    assert checks["config"]["status"] == "fail"
    assert "did you mean top_k?" in checks["config"]["detail"]
    assert [name for name, check in checks.items() if check["status"] == "fail"] == ["config"]


def test_variables_and_threads_that_make_no_sense_are_warned_of(own: Cli) -> None:
    checks = found(with_variables(own, EDGESPEC_TOPK="3", EDGESPEC_THREADS="1024").run([*DOCTOR, "--json"]))
    assert "EDGESPEC_TOPK" in checks["config"]["detail"]
    assert checks["config"]["status"] == checks["threads"]["status"] == "warn"
    assert "EDGESPEC_THREADS asks for 1024 threads" in checks["threads"]["detail"]


def test_a_home_that_cannot_be_written(own: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    checks = found(with_variables(own, EDGESPEC_HOME=str(tmp_path / "file")).run([*DOCTOR, "--json"]))
    assert checks["folders"]["status"] == "fail"
    assert "EDGESPEC_HOME" in checks["folders"]["fix"]


def test_a_library_that_does_not_load(own: Cli, tmp_path: Path) -> None:
    checks = found(with_variables(own, LLAMA_CPP_LIB_PATH=str(tmp_path)).run([*DOCTOR, "--json"]))
    assert checks["llama.cpp"]["status"] == "fail"
    assert "LLAMA_CPP_LIB_PATH" in checks["llama.cpp"]["fix"]
    assert checks["cpu features"]["status"] == "warn"
    assert checks["memory"]["status"] == "ok"


@pytest.mark.skipif(os.name != "posix", reason="a pseudo terminal")
@pytest.mark.parametrize(
    ("reply", "width", "clipboard"),
    [
        (b"\x1b[1;3R\x1b[1;3R\x1b[1;2R\x1b[?64;1;52c", "as wide as they should be", "ok"),
        (b"\x1b[1;3R\x1b[1;2R\x1b[1;3R\x1b[?1;2c", "emoji take 1, not 2, combining marks take 2, not 1", "warn"),
        (b"\x1b[?6c", "does not tell where its cursor is", "warn"),
    ],
)
def test_the_terminal_is_asked(own: Cli, reply: bytes, width: str, clipboard: str) -> None:
    import pty

    terminal, program = pty.openpty()
    theirs = ("TMUX", "TERM_PROGRAM", "VTE_VERSION", "WT_SESSION", "NO_COLOR", "FORCE_COLOR", "COLORTERM")
    env = {name: value for name, value in own.env.items() if name not in theirs} | {"TERM": "xterm-256color"}
    command = [sys.executable, "-c", IN_TERMINAL, *DOCTOR]
    with subprocess.Popen(command, stdin=program, stdout=program, env=env, start_new_session=True) as process:
        os.close(program)
        shown = b""
        while part := _read(terminal):
            if b"\x1b[c" in part + shown[-3:] and b"\x1b[c" not in shown:
                os.write(terminal, reply)
            shown += part
    os.close(terminal)
    assert process.returncode == 0
    assert b"\x1b[32mok" in shown
    text = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", shown.decode())
    lines = {name: (status, rest) for status, name, rest in re.findall(r"(ok|warn|fail) +(\w+) +(.*)", text)}
    assert width in lines["width"][1]
    assert lines["clipboard"][0] == clipboard
    assert lines["colours"][1].startswith("256")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
