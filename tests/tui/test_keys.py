"""Keys of docs/tui.md that no other test presses: what they do, in the app and on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from chats import chatting, run

from app_terminal import app_terminal
from edgespec.history import History
from edgespec.tui.app import ChatApp

SLOW = "scripted:count?decodes_per_s=40"


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
def test_a_new_line_is_not_sent(history: Path, key: str) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.press("a", key, "b")
            assert chat.composer.text == "a\nb"
            assert not chat.texts
            await chat.press("enter")
            await chat.until(lambda: chat.texts == ["a\nb", "a\nb"] and not chat.screen.busy)

    run(test())


def test_on_a_terminal_alt_enter_is_a_new_line_and_ctrl_c_only_a_hint(tmp_path: Path) -> None:
    place = tmp_path / "h.db"
    terminal = app_terminal(place, model="scripted:echo", loader="edgespec.engine.scripted:load")
    try:
        terminal.until(lambda: "Message, or / for commands" in terminal.text)
        terminal.press(b"one\x1b\rtwo\x03")  # as terminals without the newer protocol send Alt+Enter
        terminal.until(lambda: "Ctrl+Q quits" in terminal.text)
        terminal.press(b"\r")
        terminal.until(lambda: _answered(place))
        assert terminal.process.poll() is None
        terminal.press(b"\x11")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    with History(place) as saved:
        (conversation,) = saved.conversations()
        assert [message.text for message in saved.path(conversation.id)] == ["one\ntwo", "one\ntwo"]


def _answered(place: Path) -> bool:
    with History(place) as saved:
        latest = saved.latest()
        return latest is not None and saved.path(latest.id)[-1].finish_reason == "stop"


def test_ctrl_c_copies_what_is_marked_and_never_ends_the_app(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr(ChatApp, "copy_to_clipboard", lambda app, text: copied.append(text))

    async def test() -> None:
        async with chatting(history) as chat:
            await chat.type("one two")
            await chat.press("shift+left", "shift+left", "shift+left", "ctrl+c")
            await chat.until(lambda: copied == ["two"])
            assert chat.composer.text == "one two"
            await chat.press("end", "enter")
            await chat.until(lambda: len(chat.texts) == 2 and not chat.screen.busy)
            answer = chat.screen.answer_view
            await chat.pilot.mouse_down(answer, offset=(2, 1))
            await chat.pilot.hover(answer, offset=(4, 1))
            await chat.pilot.mouse_up(answer, offset=(4, 1))
            await chat.press("ctrl+c")
            await chat.until(lambda: len(copied) == 2)
            assert copied[1] in "one two"
            assert copied[1]
            chat.screen.clear_selection()
            await chat.press("ctrl+c")
            await chat.until(lambda: "Ctrl+Q quits" in chat.said)
            assert chat.app.is_running

    run(test())


def test_ctrl_c_does_not_end_an_answer(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, model=SLOW) as chat:
            await chat.type("count")
            await chat.press("enter")
            await chat.until(lambda: chat.screen.busy)
            await chat.press("ctrl+c")
            await chat.until(lambda: "Esc stops an answer" in chat.said)
            assert chat.screen.busy
            await chat.press("escape")
            await chat.idle()

    run(test())


def test_page_keys_scroll_and_bring_older_messages(history: Path) -> None:
    with History(history) as saved:
        number, last = saved.new_conversation(), None
        for i in range(40):
            last = saved.add_message(number, last, "user", f"message number {i}")

    async def test() -> None:
        async with chatting(history, conversation=1) as chat:
            await chat.until(lambda: "message number 39" in chat.shown)
            pages = 0
            while "message number 0\n" not in "\n".join(line.rstrip(" ▁▂▃▄▅▆▇█") + "\n" for line in _lines(chat.shown)):
                await chat.press("pageup")
                await chat.pilot.pause()
                pages += 1
                assert pages < 40, chat.shown
            for _ in range(pages):
                await chat.press("pagedown")
            await chat.until(lambda: "message number 39" in chat.shown)

    run(test())


def _lines(shown: str) -> list[str]:
    """Without the list on the left and what frames the messages."""
    return [line[line.find("message number") :] for line in shown.split("\n") if "message number" in line]


def test_tab_completes_a_command_and_f2_gives_a_title(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.type("/reg")
            await chat.press("tab")
            await chat.until(lambda: chat.composer.text == "/regenerate ")
            chat.composer.text = ""
            await chat.ask("hello")
            await chat.press("f2")
            await chat.until(lambda: chat.composer.text.startswith("/rename "))
            chat.composer.put("/rename Birds")
            await chat.press("enter")
            await chat.until(lambda: chat.history.conversations()[0].title == "Birds")

    run(test())


def test_keys_of_a_message(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(100, 40)) as chat:
            await chat.ask("some **bold** words")
            await chat.press("shift+tab")
            last = chat.screen.answer_view
            await chat.until(lambda: chat.screen.selected is last)
            await chat.press("up")
            await chat.until(lambda: chat.screen.selected is not None and chat.screen.selected.role == "user")
            await chat.press("down")
            await chat.until(lambda: chat.screen.selected is last)
            raw = chat.shown.count("some **bold** words")  # as the question, and as a title
            await chat.press("v")
            await chat.until(lambda: chat.shown.count("some **bold** words") == raw + 1)
            await chat.press("v")
            await chat.until(lambda: chat.shown.count("some **bold** words") == raw)
            await chat.press("i")
            await chat.until(lambda: chat.composer.has_focus)

    run(test())


def test_escape_leaves_an_edit(history: Path) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            await chat.ask("first")
            await chat.press("shift+tab", "up", "e")
            await chat.until(lambda: chat.composer.text == "first")
            await chat.press("escape")
            await chat.until(lambda: chat.composer.text == "" and chat.screen.editing is None)
            await chat.ask("second")
            assert chat.texts == ["first", "first", "second", "second"]

    run(test())


def test_ctrl_s_shows_and_hides_the_figures(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(100, 40)) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.screen.panel.display)
            await chat.press("ctrl+s")
            await chat.until(lambda: not chat.screen.panel.display)

    run(test())
