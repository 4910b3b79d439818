"""What a model, a title or a file name says never drives the terminal, and is shown as it is."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from chats import chatting, run

from edgespec.history import History
from edgespec.text import sanitize

_STARTS = ("", "text ", "```\n", "# ", "- ", "> ", "| a | b |\n|---|---|\n| ", "[link](")
_CORES = (
    "\x1b]52;c;aGVsbG8=\x07", "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\", "\x1b[2J\x1b[H", "\x9b31mred",
    "\x1b]0;title", "\x1bP1$r", "\x1b_apc", "\x90dcs\x9c", "[/INST] [bold]x[/bold] [@click=app.exit]go[/]",
    "[red", "[/]", "\u200b\u200d\ufeff", "\u202eevil\u2066x", "\r\rhidden", "\x07\x08\x00", "javascript:alert(1)",
    "[x](javascript:alert(1))", "![i](http://evil.example/p.png)", "<script>alert(1)</script>", "&#27;[31m",
    "```\x1b[31m", "~~~~ \x1b]52;c;eA==\x07", "$error {css}", "\ud800", "`" * 50, "*" * 60, "[" * 60, "> " * 60,
)  # fmt: skip
_ENDS = ("", " end", "\n\n", "\x1b")
PAYLOADS = ["".join(parts) for parts in product(_STARTS, _CORES, _ENDS)]
_FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LINK = "http://evil.example"


async def _shown_safely(history: Path, payloads: list[str]) -> None:
    """Each as a message that the model repeats, and as a title."""
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
            chat.screen.sidebar.relist()
            await chat.pilot.pause()
            assert not _FORBIDDEN.search(chat.shown.replace("\n", "")), repr(payload)
            for strip in chat.app.screen._compositor.render_strips():
                for segment in strip:
                    style = segment.style
                    assert style is None or style.link is None, repr(payload)
                    assert style is None or "link(" not in str(style.meta.get("@click", "")), repr(payload)
            assert sanitize(payload).strip()[:8].split("\n")[0].strip("#>-|`*[ ~") in chat.shown


def test_hostile_text_is_shown_and_does_nothing(history: Path) -> None:
    run(_shown_safely(history, PAYLOADS[:: len(PAYLOADS) // 10 + 1]))


@pytest.mark.soak
def test_all_hostile_texts(history: Path) -> None:
    run(_shown_safely(history, PAYLOADS))


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
