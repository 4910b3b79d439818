"""Everything around an answer: lists, search, settings, files, ways to look at it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chats import Chat, chatting, run
from textual.widgets import Input, OptionList, Select

from edgespec.chat_commands import APP, COMMANDS
from edgespec.errors import BadRequestError
from edgespec.history import History
from edgespec.tui.actions import ACTIONS
from edgespec.tui.help_screen import HelpScreen
from edgespec.tui.keymap import own_keys
from edgespec.tui.keys import MOVES, key_table
from edgespec.tui.settings_screen import SettingsScreen
from edgespec.tui.token_view import TokenView

DOCUMENT = (Path(__file__).parents[2] / "docs" / "tui.md").read_text("utf-8")


async def command(chat: Chat, text: str) -> None:
    """Send a slash command."""
    chat.composer.focus()
    chat.composer.text = text
    await chat.press("enter")
    await chat.pilot.pause()


def test_every_command_and_key_does_something() -> None:
    assert set(ACTIONS) == {row.name for row in COMMANDS.values() if APP in row.front_ends} | set(MOVES)


def test_the_document_names_every_key_and_command() -> None:
    for key in key_table():
        assert f"`{key.id}`" in DOCUMENT or f"`/{key.id}" in DOCUMENT, key.id


def test_conversations_are_listed_opened_renamed_deleted_and_brought_back(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(120, 40)) as chat:
            await chat.ask("about apples")
            await chat.press("ctrl+n")
            await chat.until(lambda: not chat.texts)
            await chat.ask("about pears")
            await command(chat, "/rename Fruit")
            await chat.until(lambda: "Fruit" in chat.shown)
            await chat.press("ctrl+l", "down", "enter")
            await chat.until(lambda: chat.texts[:1] == ["about apples"])
            await chat.press("ctrl+l", "delete")
            await chat.until(lambda: len(chat.history.conversations()) == 1)
            await command(chat, "/undo")
            await chat.until(lambda: len(chat.history.conversations()) == 2)
            await chat.until(lambda: chat.texts[:1] == ["about apples"])

    run(test())


def test_the_search_finds_messages_of_all_conversations(history: Path) -> None:
    with History(history) as saved:
        for i in range(300):
            number = saved.new_conversation(title=f"chat {i}")
            saved.add_message(number, None, "user", f"the word is needle{i}x")

    async def test() -> None:
        async with chatting(history, size=(120, 40)) as chat:
            await chat.press("ctrl+f")
            await chat.type("needle7x")
            assert chat.composer.text == ""
            options = chat.screen.sidebar.query_one(OptionList)
            await chat.until(lambda: options.option_count == 1)
            await chat.press("enter", "enter")
            await chat.until(lambda: chat.texts == ["the word is needle7x"])

    run(test())


def test_settings_are_checked_and_kept_with_the_conversation(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("hello")
            await chat.press("f3")
            await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
            field = chat.app.screen.query_one("#temperature", Input)
            await chat.type("-1")
            await chat.press("enter")
            assert "temperature" in chat.shown
            assert isinstance(chat.app.screen, SettingsScreen)
            field.value = "0.3"
            await chat.press("enter")
            await chat.until(lambda: not isinstance(chat.app.screen, SettingsScreen))
            assert chat.screen.session.params == {"temperature": 0.3}
            await command(chat, "/set top-k 7")
            await command(chat, "/system Be brief.")
            await chat.until(lambda: chat.screen.session.system == "Be brief.")

    run(test())
    with History(history) as saved:
        (conversation,) = saved.conversations()
        assert conversation.params == {"temperature": 0.3, "top_k": 7}
        assert conversation.system == "Be brief."


def test_files_go_with_the_message(history: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("line one\n```\ncode\n```\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")

    async def test() -> None:
        async with chatting(history) as chat:
            await command(chat, f"/attach {tmp_path / 'picture.png'}")
            await chat.until(lambda: "is no text" in chat.said)
            for name in ("~nobody-of-this-name/notes.txt", "~\ud8ad"):
                await command(chat, f"/attach {name}")
                await chat.until(lambda: "no such file" in chat.said)
                chat.app.clear_notifications()
            await command(chat, f"/attach {tmp_path / 'notes.txt'}")
            await chat.until(lambda: "attached: notes.txt" in chat.shown)
            await chat.ask("what is this?")
            assert chat.texts[0] == "notes.txt:\n````\nline one\n```\ncode\n```\n````\n\nwhat is this?"

    run(test())


def test_exports_are_markdown_or_json(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("hello")
            await command(chat, "/export")
            await command(chat, "/export all.json")
            await chat.until(lambda: (tmp_path / "all.json").exists())
            (tmp_path / "file").touch()
            for name in ("file/in-a-file.md", str(tmp_path), "y" * 300, "~\ud8ad.md"):
                await command(chat, f"/export {name}")
                await chat.until(lambda: "cannot be written" in chat.said)
                chat.app.clear_notifications()

    run(test())
    assert "hello" in (tmp_path / "chat-1.md").read_text("utf-8")
    exported = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert [m["text"] for m in exported["conversations"][0]["messages"]] == ["hello", "hello"]


def test_an_answer_and_its_code_can_be_copied(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(100, 40)) as chat:
            await chat.ask("see\n\n```python\nprint(1)\n```\n\nand\n\n~~~\nplain\n~~~\n")
            await command(chat, "/copy 1")
            assert chat.app.clipboard == "print(1)\n"
            await command(chat, "/copy 2")
            assert chat.app.clipboard == "plain\n"
            await command(chat, "/copy 3")
            await chat.until(lambda: "no block of code 3" in chat.said)
            await chat.press("shift+tab", "c")
            await chat.until(lambda: chat.app.clipboard == chat.texts[-1])

    run(test())


def test_an_answer_is_shown_as_markdown_literally_or_by_tokens(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("some **bold** words")
            assert "some bold words" in chat.shown
            await command(chat, "/raw")
            await chat.until(lambda: "some bold words" not in chat.shown)
            await command(chat, "/raw")
            await chat.until(lambda: "some bold words" in chat.shown)
            await chat.press("ctrl+t")
            await chat.until(lambda: bool(chat.screen.query(TokenView)))
            await chat.press("ctrl+t")
            await chat.until(lambda: not chat.screen.query(TokenView))

    run(test())


def test_tokens_of_an_old_answer_are_shown(history: Path) -> None:
    async def first() -> None:
        async with chatting(history, options={"draft_max": 2}) as chat:
            await chat.ask("some words")

    async def again() -> None:
        async with chatting(history, conversation=1) as chat:
            await chat.until(lambda: chat.texts == ["some words", "some words"] and chat.screen.answer_view is not None)
            await chat.press("ctrl+t")
            await chat.until(lambda: bool(chat.screen.query(TokenView)))
            await chat.until(lambda: "·" in chat.shown)

    run(first())
    run(again())


def test_help_lists_keys_and_commands_also_changed_ones(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(110, 90), keys=own_keys(key_table(), {"new": "f9"})) as chat:
            await chat.press("f1")
            await chat.until(lambda: isinstance(chat.app.screen, HelpScreen))
            await chat.pilot.pause()
            assert "/regenerate [SEED]" in chat.shown
            assert "f9" in chat.shown
            await chat.press("escape")
            await chat.ask("hello")
            await chat.press("ctrl+n")
            assert chat.texts
            await chat.press("f9")
            await chat.until(lambda: not chat.texts)

    run(test())


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"nwe": "f9"}, "did you mean new?"),
        ({"new": "contrl+n"}, "is no key"),
        ({"new": 3}, "give a text"),
        ({"new": "enter"}, "cannot be bound"),
        ({"new": "ctrl+l"}, "bound to"),
    ],
)
def test_wrong_keys_are_refused(section: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequestError, match=said.replace("?", r"\?")):
        own_keys(key_table(), section)


def test_an_unknown_command_names_the_nearest_and_keeps_what_was_typed(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await command(chat, "/regenrate")
            await chat.until(lambda: "did you mean /regenerate?" in chat.said)
            assert chat.composer.text == "/regenrate"

    run(test())


def test_newlines_paste_and_earlier_messages(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("first")
            await chat.type("a\nb")
            assert chat.composer.text == "a\nb"
            await chat.press("up", "up")
            assert chat.composer.text == "first"
            await chat.press("down", "down")
            assert chat.composer.text == "a\nb"
            chat.composer.text = ""
            from textual.events import Paste

            chat.app.post_message(Paste("one\ntwo\nthree\n"))
            await chat.until(lambda: chat.composer.text == "one\ntwo\nthree\n")
            assert len(chat.texts) == 2

    run(test())


def test_the_editor_gives_the_message(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        from contextlib import nullcontext

        async with chatting(history) as chat:
            monkeypatch.setattr(chat.app, "suspend", nullcontext)  # there is no terminal to give away
            script = tmp_path / "editor.sh"
            script.write_text('#!/bin/sh\necho "from the editor" > "$1"\n')
            script.chmod(0o755)
            monkeypatch.setenv("VISUAL", str(script))
            await chat.press("ctrl+g")
            await chat.until(lambda: chat.composer.text == "from the editor")
            monkeypatch.setenv("VISUAL", "false")
            await chat.press("ctrl+g")
            await chat.until(lambda: "exit code 1" in chat.said)
            assert chat.composer.text == "from the editor"

    run(test())


def test_the_palette_runs_commands(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("hello")
            await chat.press("ctrl+p")
            await chat.type("New")
            await chat.pilot.pause(0.3)
            await chat.press("enter")
            await chat.until(lambda: not chat.texts)

    run(test())


def test_themes_change_and_a_wrong_one_is_refused(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("```html\n<b class='x'>bold</b>\n```")
            for theme in ("ansi-dark", "ansi-light", "nord", "textual-light"):
                await command(chat, f"/theme {theme}")
                await chat.until(lambda theme=theme: chat.app.theme == theme)
            await command(chat, "/theme nonesuch")
            await chat.until(lambda: "there is no theme" in chat.said)

    run(test())


def test_another_drafter_loads_and_answers(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await command(chat, "/drafter none")
            await chat.until(lambda: chat.screen.session.loaded.drafter == "none")
            await chat.ask("hello")
            await command(chat, "/drafter nonsense")
            await chat.until(lambda: "nonsense" in chat.shown)
            assert chat.screen.panel.query_one("#switch", Select).value == "none"  # as before
            await chat.ask("again")

    run(test())
