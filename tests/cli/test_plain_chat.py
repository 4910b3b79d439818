"""`edgespec chat --plain` on a terminal and in a pipe; scripted models in the real engine process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from edgespec_command import Cli
from terminal import Terminal

from edgespec.chat_commands import COMMANDS, PLAIN
from edgespec.cli.plain_commands import HANDLERS
from edgespec.history import History, Message

pytestmark = pytest.mark.skipif(os.name != "posix", reason="terminals as POSIX has them")

PROGRAM = (sys.executable, str(Path(__file__).with_name("scripted_program.py")), "chat", "--plain")
COUNT = "scripted:count?decodes_per_s=40"
PROMPT = "\x1b[?2004h> "  # readline asks for pastes to be marked


@pytest.fixture
def env(cli: Cli, tmp_path: Path) -> Mapping[str, str]:
    """A home of its own."""
    return {**cli.env, "EDGESPEC_HOME": str(tmp_path / "home")}


@pytest.fixture
def chat(env: Mapping[str, str], tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """chat(*arguments): the program on a terminal, at its first prompt."""
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        terminal = Terminal([*PROGRAM, *arguments], env)
        opened.append(terminal)
        terminal.expect(PROMPT)
        return terminal

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


def saved(env: Mapping[str, str]) -> tuple[Message, ...]:
    """The branch in use of the latest conversation."""
    with History(Path(env["EDGESPEC_HOME"]) / "history" / "history.db") as history:
        latest = history.latest()
        return () if latest is None else history.path(latest.id)


def engine_of(terminal: Terminal) -> psutil.Process:
    """The engine's process."""
    (found,) = psutil.Process(terminal.process.pid).children()
    return found


def test_every_command_is_bound() -> None:
    assert set(HANDLERS) == {name for name, row in COMMANDS.items() if PLAIN in row.front_ends}


def test_a_whole_conversation(chat: Callable[..., Terminal], env: Mapping[str, str], tmp_path: Path) -> None:
    talk = chat("-m", "scripted:echo", "--temperature", "0")

    def say(text: str, *expected: str) -> None:
        talk.type(f"{text}\r")
        talk.expect("\n")  # the echo of what was typed
        for one in expected:
            talk.expect(one)
        talk.expect(PROMPT)

    say("a robin", "a robin\r\n", "[scripted-echo.gguf]")
    say("/regenerate", "a robin\r\n")
    say("/branch", "  1  assistant: a robin", "* 2  assistant: a robin")
    say("/edit a wren", "a wren\r\n")
    say("/branch 1", "you: a robin", "assistant: a robin")
    say("//quit it", "/quit it\r\n")
    say("/set top-k 7", "top_k: 7")
    say("/set", "* top_k", "7")
    say("/set temprature 1", "edgespec: there is no setting 'temprature'; did you mean temperature?")
    say("/system Be brief.", "system prompt: Be brief.")
    say("/rename Birds", "title: Birds")
    say("/search wren", "Birds: a wren")
    say("/history", "Birds")
    say("/stats", "guessed")
    say("/drafter none", "scripted-echo.gguf answers", "speculation is off")
    say("/drafter", "drafter: none")
    say("/help edit", "/edit TEXT")
    say("/hlep", "did you mean /help?")
    say(f"/export {tmp_path / 'birds.md'}", "written: ")
    say(f"/export {tmp_path / 'birds.md' / 'more.md'}", "cannot be written")
    say("/delete", "deleted")
    say("/undo", "Birds")
    say("/model scripted:echo?template=no", "edgespec: scripted-echo.gguf has no chat template")
    say("and still", "and still\r\n")
    talk.type("\x1b[A")  # the up arrow
    talk.expect("and still")
    talk.type("\x15/quit\r")
    assert talk.end() == 0
    assert b"Aborted" not in talk.said
    assert b"Traceback" not in talk.said
    assert (tmp_path / "birds.md").read_text("utf-8").startswith("# Birds")
    assert [m.text for m in saved(env)] == ["a robin", "a robin", "/quit it", "/quit it", "and still", "and still"]


def test_ctrl_d_ends_cleanly_and_the_conversation_goes_on(
    chat: Callable[..., Terminal], env: Mapping[str, str]
) -> None:
    talk = chat("-m", "scripted:echo")
    talk.type("first\r")
    talk.expect("first\r\n")
    talk.expect("first\r\n")
    talk.expect(PROMPT)
    talk.type("half a thought")
    talk.expect("half a thought")  # a terminal drops what nobody has read when it sees Ctrl+C
    talk.interrupt("(Ctrl+D ends)")
    talk.expect(PROMPT)
    talk.type("\x1b[A")  # what Ctrl+C took away is one arrow away
    talk.expect("half a thought")
    talk.type("\x15\x04")
    assert talk.end() == 0
    again = chat("-m", "scripted:echo", "--continue")
    again.type("second\r")
    again.expect("second\r\n")
    again.expect("second\r\n")
    again.expect(PROMPT)
    again.type("\x04")
    assert again.end() == 0
    assert [m.text for m in saved(env)] == ["first", "first", "second", "second"]


def test_ctrl_c_stops_the_answer_and_keeps_the_chat(chat: Callable[..., Terminal], env: Mapping[str, str]) -> None:
    talk = chat("-m", COUNT)
    talk.type("count\r")
    talk.expect("3 4 5 ")
    talk.type("\x03")
    talk.expect("interrupted")
    talk.expect(PROMPT)
    talk.type("/continue\r")
    talk.expect("1 2 3 4 5 6 7 8 9 10 11 12 ")
    talk.type("\x03")
    talk.expect("interrupted")
    talk.expect(PROMPT)
    talk.type("\x04")
    assert talk.end() == 0
    question, answer = saved(env)
    assert (question.text, answer.finish_reason) == ("count", "cancelled")
    assert answer.text.startswith("1 2 3 4 5 6 7 8 9 10 11 12 ")


def test_a_paste_is_one_message(chat: Callable[..., Terminal], env: Mapping[str, str]) -> None:
    talk = chat("-m", "scripted:echo")
    talk.type("\x1b[200~one\rtwo\rthree\x1b[201~\r")
    talk.expect("[scripted-echo.gguf]")
    talk.expect(PROMPT)
    talk.type("by\x1b\rhand\r")
    talk.expect("[scripted-echo.gguf]")
    talk.expect(PROMPT)
    talk.type("\x04")
    assert talk.end() == 0
    assert [m.text for m in saved(env)][::2] == ["one\ntwo\nthree", "by\nhand"]


def test_a_dead_engine_is_one_line_and_the_chat_goes_on(chat: Callable[..., Terminal], env: Mapping[str, str]) -> None:
    talk = chat("-m", COUNT)
    talk.type("count\r")
    talk.expect("2 3 4 ")
    engine_of(talk).kill()
    talk.expect("edgespec: ")
    talk.expect("The chat goes on")
    talk.expect(PROMPT)
    talk.type("/regenerate\r")
    talk.expect("1 2 3 ")
    talk.type("\x03")
    talk.expect("interrupted")
    talk.expect(PROMPT)
    talk.type("\x04")
    assert talk.end() == 0
    with History(Path(env["EDGESPEC_HOME"]) / "history" / "history.db") as history:
        first, second = history.branches(saved(env)[1].id)
    assert first.finish_reason == "error"
    assert first.text.startswith("1 2 3 4")
    assert second.finish_reason == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_saves_what_was_said(
    number: signal.Signals, chat: Callable[..., Terminal], env: Mapping[str, str]
) -> None:
    talk = chat("-m", COUNT)
    talk.type("count\r")
    talk.expect("5 6 7 ")
    talk.process.send_signal(number)
    assert talk.end() == 128 + number
    assert b"Traceback" not in talk.said
    _, answer = saved(env)
    assert answer.finish_reason == "cancelled"
    assert answer.text.startswith("1 2 3 4 5 6 7")


def test_hostile_text_does_not_reach_the_terminal(
    chat: Callable[..., Terminal], env: Mapping[str, str], tmp_path: Path
) -> None:
    hostile = "A\x1b]52;c;eA==\x07B\x1b[31mC\x9b2JD\x1b]8;;http://x\x1b\\E\u202eF[/INST]G"
    (tmp_path / "hostile.txt").write_text(hostile, "utf-8")
    talk = chat("-m", f"scripted:{tmp_path / 'hostile.txt'}")
    talk.type("hello\r")
    talk.expect("ABCDEF[/INST]G")
    talk.expect(PROMPT)
    for command in ("/branch", "/history", "/search INST"):
        talk.type(f"{command}\r")
        talk.expect(PROMPT)
    talk.type("\x04")
    assert talk.end() == 0
    assert b"]52;" not in talk.said
    assert b"\xc2\x9b" not in talk.said
    assert "\u202e".encode() not in talk.said
    assert b"\x1b[31mC" not in talk.said
    assert saved(env)[1].text == hostile


def test_piped_input_is_one_message(cli: Cli, env: Mapping[str, str]) -> None:
    own = Cli(env)
    done = own.run([*PROGRAM, "-m", "scripted:echo"], stdin=b"two lines\nof it\n")
    assert (done.code, done.out) == (0, "two lines\nof it\n")
    assert "[scripted-echo.gguf]" in done.err
    assert saved(env)[0].text.strip() == "two lines\nof it"
    quiet = own.run([*PROGRAM, "-q", "--no-save", "-m", "scripted:echo"], stdin=b"/usr/bin is a folder")
    assert (quiet.code, quiet.out, quiet.err) == (0, "/usr/bin is a folder\n", "")
    assert saved(env)[0].text.strip() == "two lines\nof it"
    for stdin, arguments, code, what in (
        (b" \n", ("-m", "scripted:echo"), 2, "standard input is empty"),
        (b"x", ("-m", "scripted:echo?template=no"), 4, "no chat template"),
        (b"x", ("-m", "scripted:echo", "--temperature", "-1"), 2, "temperature"),
        (b"long " * 200, ("-m", "scripted:echo?n_ctx=64"), 5, "context"),
    ):
        wrong = own.run([*PROGRAM, *arguments], stdin=stdin)
        assert wrong.code == code, wrong.err
        assert what in wrong.err.splitlines()[-1]
        assert "Traceback" not in wrong.err


def test_what_is_not_saved_can_be_saved(chat: Callable[..., Terminal], env: Mapping[str, str]) -> None:
    talk = chat("-m", "scripted:echo", "--no-save")
    talk.type("keep me\r")
    talk.expect("[scripted-echo.gguf]")
    talk.expect(PROMPT)
    talk.type("/save Kept\r")
    talk.expect("is kept")
    talk.expect(PROMPT)
    talk.type("\x04")
    assert talk.end() == 0
    assert [m.text for m in saved(env)] == ["keep me", "keep me"]
    listed = Cli(env).run([*PROGRAM[:2], "history", "ls", "--json"])
    assert "Kept" in json.dumps(json.loads(listed.out))


def test_sources_are_marked(cli: Cli, env: Mapping[str, str]) -> None:
    own = Cli({**env, "NO_COLOR": "1"})
    text = b"one two one two one two one two one two one two"
    done = own.run([*PROGRAM, "-m", "scripted:echo", "--sources", "--no-save"], stdin=text)
    assert done.code == 0
    assert "=" in done.out or "~" in done.out
    assert "tokens by source" in done.err
