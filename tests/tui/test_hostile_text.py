"""What a model, a title or a file name says never drives the terminal, and is shown as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chats import Chat, chatting, run
from hostile_payloads import COUNT, MARK, laid, payloads

from app_terminal import app_terminal
from edgespec.chat_turn import Turn
from edgespec.history import History
from edgespec.stats import TokenEvent
from edgespec.text import sanitize
from edgespec.tui.message_view import MessageView
from edgespec.tui.reply_feed import ReplyFeed

PAYLOADS = payloads()
_FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LINK = "http://evil.example"


_WRITES = re.compile(  # all that Textual itself sends to a terminal
    r"\x1b\[(?:[\d;:]*m|\d*;?\d*H|[?>=<]?[\d;]*[hlutpJcKn]|\?\d+\$p|>\d*[uq])|\x1b[=>78]|\x1b\]22;[a-z]+\x07"
)


def _check(chat: Chat, payload: str) -> None:
    """Nothing of it drives the terminal or can be clicked."""
    assert not _FORBIDDEN.search(chat.shown.replace("\n", "")), repr(payload)
    for strip in chat.app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            assert style is None or style.link is None, repr(payload)
            assert style is None or "link(" not in str(style.meta.get("@click", "")), repr(payload)


async def _shown_safely(history: Path, payloads: list[str]) -> None:
    """Each as a message that the model repeats, as a title, the name of a file, and an error."""
    async with chatting(history, size=(90, 60)) as chat:
        for payload in payloads:
            await chat.press("ctrl+n")
            await chat.until(lambda: not chat.texts)
            await chat.ask(f"{payload}.")
            title = chat.history.new_conversation(title=payload)
            chat.history.add_message(title, None, "user", payload)
            chat.screen.session.rename(payload or "x")
            chat.screen.head()
            chat.screen.warn(payload)
            chat.screen.say(payload)
            chat.screen.command("attach", payload)
            chat.screen.sidebar.relist()
            await chat.pilot.pause()
            _check(chat, payload)
            assert sanitize(payload).strip()[:8].split("\n")[0].strip("#>-|`*[ ~\\") in chat.shown
            chat.app.clear_notifications()


async def _streamed_safely(history: Path, payloads: list[str]) -> None:
    """Each as an answer that comes character by character, so split at all of its borders."""
    async with chatting(history, size=(90, 60)) as chat:
        for payload in payloads:
            feed, view = _feed(), MessageView("assistant")
            await chat.screen.transcript.add(view)
            for number, char in enumerate(payload):
                feed._took(TokenEvent(char, number, "target", -0.1, number))
                update = feed.take()
                await view.write(update.text, update.events)
            await view.finish()
            await chat.pilot.pause()
            assert view.text == sanitize(payload)
            _check(chat, payload)
            await view.remove()


def _feed() -> ReplyFeed:
    def begin() -> Turn:
        raise AssertionError("no engine is asked")

    return ReplyFeed(begin)


def _fed(pieces: list[str]) -> str:
    """What the screen is given of an answer that comes so."""
    feed = _feed()
    for number, piece in enumerate(pieces):
        feed._took(TokenEvent(piece, number, "target", -0.1, number))
    return feed.take().text


def test_hostile_text_is_shown_and_does_nothing(history: Path) -> None:
    run(_shown_safely(history, PAYLOADS[::250]))


def test_hostile_text_in_single_characters_does_nothing(history: Path) -> None:
    run(_streamed_safely(history, PAYLOADS[::125]))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_all_hostile_texts(history: Path, part: int) -> None:
    run(_shown_safely(history, PAYLOADS[part::10]))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_all_hostile_texts_in_single_characters(history: Path, part: int) -> None:
    run(_streamed_safely(history, PAYLOADS[part::4]))


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.soak)])
def test_where_hostile_text_is_split_does_not_matter(step: int) -> None:
    assert len(PAYLOADS) == COUNT
    for payload in PAYLOADS[::step]:
        whole = _fed([payload])
        assert not _FORBIDDEN.search(whole.replace("\t", "")), repr(payload)
        drawn = laid([whole])
        for border in range(1, len(payload)):
            parts = [payload[:border], payload[border:]]
            assert _fed(parts) == whole, (payload, border)
            assert laid([_fed(parts[:1]), whole[len(_fed(parts[:1])) :]]) == drawn, (payload, border)


@pytest.mark.parametrize("step", [50, pytest.param(1, marks=pytest.mark.soak)])
def test_no_sequence_of_a_text_reaches_a_terminal(history: Path, step: int) -> None:
    chosen = PAYLOADS[::step]
    with History(history) as saved:
        for payload in chosen[::8]:
            number = saved.new_conversation(title=payload, model=payload)
            saved.add_message(number, None, "user", payload)
        number, last = saved.new_conversation(title=chosen[0], model="scripted:echo"), None
        last = saved.add_message(number, None, "user", "the first message")
        for i in range(0, len(chosen), 4):
            last = saved.add_message(number, last, "user", "\n".join(chosen[i : i + 2]))
            last = saved.add_message(number, last, "assistant", "\n\n".join(chosen[i + 2 : i + 4]), model=chosen[i])
    loader = "edgespec.engine.scripted:load"
    terminal = app_terminal(history, model="scripted:echo", loader=loader, conversation=number)
    try:
        terminal.until(lambda: "Message, or / for commands" in terminal.text)
        while b"the first message" not in terminal.written:
            terminal.press(b"\x1b[5~")  # Page Up
            terminal.read(0.2)
            while terminal.read(0.05):
                pass
        terminal.press(b"\x11")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    written = terminal.written.decode("utf-8")
    assert len(written) > 10_000
    rest = _WRITES.sub("", written)
    assert not _FORBIDDEN.search(rest.replace("\r", "")), ascii(_around(rest))
    assert not any(MARK in sequence for sequence in _WRITES.findall(written))


def _around(text: str) -> str:
    """Where the first thing is that may not be there."""
    found = _FORBIDDEN.search(text.replace("\r", ""))
    return "" if found is None else text[max(0, found.start() - 60) : found.end() + 60]


def test_links_are_text(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(160, 30)) as chat:
            chat.screen.panel.display = False
            await chat.ask(f"see [here]({_LINK}/a) and ![pic]({_LINK}/b.png) and <{_LINK}/c>")
            assert f"here ({_LINK}/a)" in chat.shown
            assert f"[image: pic] ({_LINK}/b.png)" in chat.shown
            assert f"{_LINK}/c" in chat.shown

    run(test())


def test_saved_conversations_are_not_trusted(history: Path) -> None:
    with History(history) as saved:
        number = saved.new_conversation(title="\x1b]0;x\x07title[/b]", model="\x1b[31m/evil[/].gguf")
        question = saved.add_message(number, None, "user", "\x1b[2Jasked [bold]")
        saved.add_message(number, question, "assistant", "\x9b5msaid [/INST]", model="\x1b[1mname")

    async def test() -> None:
        async with chatting(history, conversation=1, size=(120, 30)) as chat:
            await chat.until(lambda: "said [/INST]" in chat.shown)
            assert "asked [bold]" in chat.shown
            assert "title[/b]" in chat.shown
            assert not _FORBIDDEN.search(chat.shown.replace("\n", ""))

    run(test())
