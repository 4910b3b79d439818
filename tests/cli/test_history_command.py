"""`edgespec run` saves and continues conversations; `edgespec history` has them."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

SHORT = ("--threads", "1", "--ctx-size", "512", "--temperature", "0", "-n", "8", "-q")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals, modes and terminals as POSIX has them")


@pytest.fixture
def run(own: Cli, models: Models) -> Cli:
    """`edgespec run` on the tiny chat model, in a home of its own."""
    return Cli(own.env, ("-m", models.chat, *SHORT))


def history(cli: Cli, *arguments: str, stdin: bytes = b"") -> Result:
    return cli.run([*EDGESPEC, "history", *arguments], stdin=stdin)


def good(result: Result) -> Any:
    """The JSON that a command printed, and that it had nothing to say beside."""
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def path(cli: Cli, conversation: int = 1) -> list[tuple[str, str]]:
    shown = good(history(cli, "show", str(conversation), "--json"))
    return [(message["role"], message["text"]) for message in shown["path"]]


def test_run_saves_and_continues(run: Cli, models: Models) -> None:
    first = good(run("Name a bird.", "--json", "--system", "Be brief."))
    assert first["conversation"] == 1
    (row,) = good(history(run, "ls", "--json"))
    assert (row["preview"], row["model"], row["messages"]) == ("Name a bird.", str(models.chat), 2)
    said = [("user", "Name a bird."), ("assistant", first["text"])]
    assert path(run) == said

    without_m = Cli(run.env, SHORT)  # the model is that of the conversation, and so is the system prompt
    second = good(without_m("--continue", "And a fish?", "--json"))
    assert second["model"] == models.chat.name
    assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"] + 8
    assert second["conversation"] == 1
    said += [("user", "And a fish?"), ("assistant", second["text"])]
    assert path(run) == said
    assert good(history(run, "show", "1", "--json"))["system"] == "Be brief."

    other = good(run("Something else", "--json"))
    assert other["conversation"] == 2
    back = good(run("--conversation", "1", "--json", "--no-save", "And a fish?"))
    assert back["conversation"] is None
    assert path(run) == said
    again = good(run("-c", "--json", "More of it"))  # the latest
    assert again["conversation"] == 2

    details = good(history(run, "export", "1", "--json"))["conversations"][0]["messages"][1]
    assert "".join(event["text"] for event in details["events"] if event["type"] == "token") == first["text"]
    assert details["result"] == {k: v for k, v in first.items() if k not in ("text", "conversation")}
    assert details["finish_reason"] == "length"


def test_what_cannot_be_continued(run: Cli, models: Models) -> None:
    for arguments, what in (
        (("--continue",), "there is no conversation to continue; leave out --continue to begin one"),
        (("--conversation", "7"), "there is no conversation 7; `edgespec history ls` lists them"),
        (("--continue", "--raw"), "a raw text continues no conversation; leave out --raw, or"),
        (("--continue", "--conversation", "1"), "give --continue or --conversation, not both"),
    ):
        refused = run("hello", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"edgespec: {what}")
    raw = Cli(run.env, ("-m", models.raw, *SHORT))
    assert good(raw("Once upon", "--json"))["conversation"] == 1
    assert good(history(run, "ls", "--json"))[0]["raw"] is True
    assert run("--continue", "hello").err.startswith("edgespec: there is no conversation to continue")
    assert run("--conversation", "1", "hello").err.startswith("edgespec: conversation 1 is a raw text and has no turns")
    assert run("hello").code == 0
    assert raw("--continue", "hello").err.startswith("edgespec: raw.gguf has no chat template, so it continues no")
    assert len(path(run, 2)) == 2


def test_a_model_that_went_away_is_told(run: Cli, models: Models) -> None:
    exported = {"id": 1}
    assert good(run("hello", "--json"))["conversation"] == exported["id"]
    whole = good(history(run, "export", "--json"))
    whole["conversations"][0]["model"] = "/gone/away.gguf"
    assert history(run, "import", "-", stdin=json.dumps(whole).encode()).out == "1 conversation imported\n"
    env = {**run.env, "EDGESPEC_MODEL": str(models.chat)}
    answer = Cli(env, tuple(argument for argument in SHORT if argument != "-q"))("--continue", "more", "--json")
    assert answer.code == 0
    assert "away.gguf, which answered before, is not here: using another model" in answer.err
    assert json.loads(answer.out)["conversation"] == 2


def test_no_save(run: Cli) -> None:
    assert good(run("hello", "--no-save", "--json"))["conversation"] is None
    off = Cli({**run.env, "EDGESPEC_SAVE": "false"}, run.always)
    assert good(off("hello", "--json"))["conversation"] is None
    assert not (Path(run.env["EDGESPEC_HOME"]) / "history").exists()
    assert good(off("hello", "--save", "--json"))["conversation"] == 1


def test_a_history_that_cannot_be_used_costs_no_answer(run: Cli) -> None:
    place = Path(run.env["EDGESPEC_HOME"]) / "history"
    place.write_text("in the way")
    answer = run("hello")
    assert answer.code == 0
    assert answer.out.strip()
    assert answer.err.startswith(f"edgespec: not saved: the history {place / 'history.db'} cannot be opened")
    assert run("--continue", "hello").code == 1
    place.unlink()
    place.mkdir()
    (place / "history.db").write_bytes(b"\0" * 9000)
    answer = run("hello")
    assert (answer.code, bool(answer.out.strip())) == (0, True)
    assert "edgespec: not saved: the history was damaged (file is not a database) and now lies aside as" in answer.err
    assert good(run("hello", "--json"))["conversation"] == 1


@POSIX
def test_what_was_interrupted_is_saved(run: Cli) -> None:
    with run.start("Tell me more", "-n", "400") as process:
        assert process.stdout is not None
        start = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        out = start + process.communicate(timeout=20)[0]
    assert process.returncode == 130
    shown = good(history(run, "show", "1", "--json"))["path"]
    assert (shown[1]["text"], shown[1]["finish_reason"]) == (out.decode().removesuffix("\n"), "cancelled")
    with run.start("Tell me more", "-n", "400") as process:  # its reader goes away
        assert process.stdout is not None
        start = os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        process.wait(timeout=20)
    shown = good(history(run, "show", "2", "--json"))["path"]
    assert shown[1]["text"].encode().startswith(start)
    assert shown[1]["finish_reason"] == "cancelled"


@POSIX
def test_the_files_are_for_the_user_alone(run: Cli, tmp_path: Path) -> None:
    assert good(run("hello", "--json"))["conversation"] == 1
    folder = Path(run.env["EDGESPEC_HOME"]) / "history"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert history(run, "export", "-o", str(tmp_path / "all.md")).code == 0
    assert stat.S_IMODE((tmp_path / "all.md").stat().st_mode) == 0o600
    assert "## You\n\nhello\n" in (tmp_path / "all.md").read_text("utf-8")


# The command itself, without a model ----------------------------------------------------------------------------------

HOSTILE = "\x1b]52;c;QUFB\x07\x9b31m\u202eevil\x1b[2J 鳥"


def chat(title: str, *texts: str) -> dict[str, Any]:
    """A conversation as ChatGPT exports it."""
    mapping: dict[str, Any] = {"root": {"parent": None, "children": ["0"] if texts else []}}
    for i, text in enumerate(texts):
        message = {
            "author": {"role": "assistant" if i % 2 else "user"},
            "content": {"content_type": "text", "parts": [text]},
        }
        children = [str(i + 1)] if i + 1 < len(texts) else []
        mapping[str(i)] = {"parent": str(i - 1) if i else "root", "children": children, "message": message}
    return {"title": title, "create_time": 1700000000, "mapping": mapping}


def imported(cli: Cli, *chats: dict[str, Any]) -> list[int]:
    added: list[int] = good(history(cli, "import", "-", "--json", stdin=json.dumps(chats).encode()))["added"]
    return added


def test_list_search_and_show(own: Cli) -> None:
    assert history(own, "ls").err == "no conversations yet\n"
    birds, fish = imported(own, chat("Birds", "A bird?", "A jay, *blue*."), chat("", "A fish? 鮭", "Carp."))
    listed = history(own, "ls").out.splitlines()
    assert listed[0].split() == ["id", "updated", "messages", "model", "title"]
    assert [line.split()[0] for line in listed[1:]] == [str(birds), str(fish)]
    assert [line.rpartition("  ")[2] for line in listed[1:]] == ["Birds", "A fish? 鮭"]
    assert len(history(own, "ls", "-n", "1").out.splitlines()) == 2
    assert history(own, "show", str(birds)).out.endswith("## You\n\nA bird?\n\n## Assistant\n\nA jay, *blue*.\n")
    assert history(own, "search", "JAY", "blue").out == f"{birds}  assistant: A jay, *blue*.\n"
    assert history(own, "search", "birds").out == f"{birds}  title: Birds\n"
    assert history(own, "search", "鮭").out == f"{fish}  user: A fish? 鮭\n"
    assert good(history(own, "search", "--json", "jay"))[0]["match"] == "jay"
    nothing = history(own, "search", '"blue jay"')
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "nothing found\n")


def test_delete_undo_and_purge(own: Cli) -> None:
    a, b, c = map(str, imported(own, chat("a"), chat("b"), chat("c")))
    refused = history(own, "rm", a, "99")
    assert (refused.code, refused.err) == (
        2,
        "edgespec: there is no conversation 99; `edgespec history ls` lists them\n",
    )
    assert len(good(history(own, "ls", "--json"))) == 3  # of several, none is deleted where one is wrong
    gone = history(own, "rm", a, b)
    assert gone.out == f"2 conversations deleted; `edgespec history rm --undo {a} {b}` brings them back\n"
    assert [row["title"] for row in good(history(own, "ls", "--json", "--deleted"))] == ["a", "b"]
    assert history(own, "show", a).code == 2
    assert history(own, "rm", "--undo", a).out == "1 conversation brought back\n"
    assert history(own, "rm", "--purge").err.startswith("edgespec: there is no terminal to ask on; give --yes")
    assert history(own, "rm", "--purge", "--yes", c).err.startswith(f"edgespec: conversation {c} is not deleted")
    assert good(history(own, "rm", "--purge", "--yes", "--json")) == {"deleted": [], "restored": [], "purged": 1}
    assert [row["title"] for row in good(history(own, "ls", "--json"))] == ["a", "c"]
    assert history(own, "rm").code == 2
    assert history(own, "rm", "--undo", "--purge", a).code == 2


def test_export_and_import(own: Cli, tmp_path: Path) -> None:
    imported(own, chat("Birds", "A bird?", HOSTILE), chat("Fish", "A fish?", "Carp."))
    file = tmp_path / "all.json"
    assert history(own, "export", "--json", "-o", str(file)).out == ""
    other = Cli({**own.env, "EDGESPEC_HOME": str(tmp_path / "other")})
    assert history(other, "import", str(file)).out == "2 conversations imported\n"
    assert history(other, "import", str(file)).out == "0 conversations imported, 2 skipped that were imported before\n"
    assert history(other, "export", "--json").out == file.read_text("utf-8")
    assert history(own, "export", "2").out.startswith("# Birds\n")
    assert HOSTILE in history(own, "export").out  # a file gets what was said
    for name, what in (
        ("nothing.json", "cannot read"),
        ("wrong.json", "the import cannot be read: the file is not JSON"),
    ):
        (tmp_path / "wrong.json").write_text("{")
        refused = history(own, "import", str(tmp_path / name))
        assert (refused.code, refused.err.startswith(f"edgespec: {what}")) == (2, True)


@POSIX
def test_a_terminal_gets_no_control_characters(own: Cli) -> None:
    (number,) = imported(own, chat(HOSTILE, HOSTILE, HOSTILE))
    for arguments in (("ls",), ("ls", "--json"), ("show", str(number)), ("search", "evil"), ("export",)):
        master, slave = pty.openpty()
        env = {**own.env, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"}
        command = [*EDGESPEC, "history", *arguments]
        with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env) as process:
            os.close(slave)
            seen = b""
            try:
                while chunk := os.read(master, 65536):
                    seen += chunk
            except OSError:  # the other end is closed
                pass
            finally:
                os.close(master)
        assert process.returncode == 0
        text = seen.decode()
        assert "evil" in text
        assert not set(text) & {chr(c) for c in (*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x202E)}
