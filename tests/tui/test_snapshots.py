"""What each screen looks like: 80 by 24 and 140 by 45, dark and light. Look at every one that changes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from chats import Chat
from textual.pilot import Pilot
from textual.widgets import OptionList

from edgespec.engine import scripted
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.history import History
from edgespec.stats import DraftedToken, RoundEvent, TokenEvent
from edgespec.tui import sidebar
from edgespec.tui.app import AppSettings, ChatApp

SIZES = {"small": (80, 24), "large": (140, 45), "narrow": (40, 20)}
THEMES = {"dark": "textual-dark", "light": "textual-light"}
LOOKS = [
    pytest.param("small", "dark"),
    pytest.param("large", "light", marks=pytest.mark.soak),
    pytest.param("small", "light", marks=pytest.mark.soak),
    pytest.param("large", "dark", marks=pytest.mark.soak),
]
ANSWER = """# Three birds

A **robin** is small, a `heron` is tall; 日本語の文章 and emoji 👍 and שלום stand in one line, and so does
averyverylongwordthatgoesonandonwithoutanyplaceatwhichitcouldbebrokenintopartsofasensiblelength.

1. first
2. second
   - with a part

| bird | wings |
|------|-------|
| robin | 2 |

```python
def wings(birds: int) -> int:
    return 2 * birds  # each has two
```

> Quoted, with a [link](https://birds.example/robin).
"""


def _events(text: str) -> list[TokenEvent | RoundEvent]:
    """Tokens of a reply as a draft model and the target would have made them, with fixed times."""
    events: list[TokenEvent | RoundEvent] = []
    words = re.findall(r"\s*\S+\s*$|\s*\S+", text)
    start = number = 0
    while start < len(words):
        number += 1
        plain = number % 5 == 0  # a step without a guess
        group = words[start : start + (1 if plain else 3)]
        for i, word in enumerate(group):
            source = "target" if plain else ("model", "model", "bonus")[i]
            events.append(TokenEvent(word, start + i, source, -0.1 * i, number))
        guesses = () if plain else tuple(DraftedToken(i, word, 0.8, 0.7, True) for i, word in enumerate(group[:2]))
        wrong = (DraftedToken(9, " wrong", 0.4, 0.01, False),) if number % 3 == 0 and not plain else ()
        drafted, ids = (*guesses, *wrong), tuple(range(start, start + len(group)))
        who = "target" if plain else "model"
        ms = 0.0 if plain else 2.0
        events.append(RoundEvent(number, who, len(drafted), drafted, len(guesses), len(group), ids, ms, 10.0, 0.5))
        start += len(group)
    return events


@pytest.fixture
def saved(history: Path) -> Path:
    """A conversation with an answer, and some others."""
    with History(history, now=lambda: 1_700_000_000_000) as conversations:
        for title in (
            "Старые письма",
            "短い話",
            "A title that is much too long for the list of conversations",
            "Birds",
        ):
            number = conversations.new_conversation(title=title, model="scripted:echo")
            question = conversations.add_message(number, None, "user", f"Tell me of {title}.")
            if title == "Birds":
                reply = conversations.begin_reply(number, question, model="small-model.gguf")
                for event in _events(ANSWER):
                    reply.append(event)
                usage = {"prompt_tokens": 20, "completion_tokens": 120}
                reply.finish("stop", text=ANSWER, result={"usage": usage, "stats": {"speedup_vs_plain": 1.62}})
    return history


async def _nothing(chat: Chat) -> None: ...


async def _tokens(chat: Chat) -> None:
    await chat.press("ctrl+t")
    await chat.until(lambda: chat.screen.query("TokenView"))
    await chat.press("shift+tab", "shift+tab")


async def _speculation(chat: Chat) -> None:
    if not chat.screen.panel.display:
        await chat.press("ctrl+s")


async def _settings(chat: Chat) -> None:
    await chat.press("f3")


async def _help(chat: Chat) -> None:
    await chat.press("f1")


async def _chats(chat: Chat) -> None:
    await chat.press("ctrl+l")
    chat.screen.sidebar.focus_list()


async def _command(chat: Chat) -> None:
    chat.composer.put("/dra")


async def _broken(chat: Chat) -> None:
    chat.screen.warn("SIGKILL: it was killed, perhaps because memory ran out. Your chat is saved. Ctrl+R asks again.")


STATES: dict[str, Callable[[Chat], Awaitable[None]]] = {
    "chat": _nothing,
    "tokens": _tokens,
    "speculation": _speculation,
    "settings": _settings,
    "help": _help,
    "chats": _chats,
    "command": _command,
    "broken": _broken,
}


@pytest.mark.parametrize(("size", "theme"), LOOKS)
@pytest.mark.parametrize("state", STATES)
def test_chat(saved: Path, snap_compare: Any, state: str, size: str, theme: str) -> None:
    _same(saved, snap_compare, state, size, theme)


NARROW = ("chat", "speculation")


def test_every_picture_belongs_to_a_test() -> None:
    looks = [f"{size}-{theme}" for size, theme in (look.values for look in LOOKS)]
    chats = {f"test_chat[{state}-{look}].svg" for state in STATES for look in looks}
    narrow = {f"test_forty_columns[{state}].svg" for state in NARROW}
    kept = {path.name for path in Path(__file__).with_name("__snapshots__").rglob("*.svg")}
    assert kept == chats | narrow | {f"test_welcome[{look}].svg" for look in looks}


@pytest.mark.parametrize("state", NARROW)
def test_forty_columns(saved: Path, snap_compare: Any, state: str) -> None:
    _same(saved, snap_compare, state, "narrow", "dark")


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long ago something was changes."""
    monkeypatch.setattr(sidebar, "when", lambda moment: "2 d")


def _same(saved: Path, snap_compare: Any, state: str, size: str, theme: str) -> None:
    engine = LocalEngine(scripted.load)
    conversations = History(saved, now=lambda: 1_700_000_000_000)
    settings = AppSettings(
        spec=LoadSpec(model="scripted:echo?decodes_per_s=50", draft="scripted"),
        conversation=4,
        theme=THEMES[theme],
    )

    async def before(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, ChatApp)
        chat = Chat(app, pilot, conversations)
        await chat.until(lambda: chat.app.screen.query("Composer") and chat.screen.session.loaded is not None)
        await chat.until(lambda: not chat.screen._loading)  # whose end clears the line of troubles
        await chat.until(lambda: "stands in one line" not in chat.shown and chat.screen.answer_view is not None)
        chat.composer.cursor_blink = False
        await STATES[state](chat)
        await pilot.pause(0.3)

    try:
        assert snap_compare(ChatApp(engine, conversations, settings), terminal_size=SIZES[size], run_before=before)
    finally:
        engine.close()
        conversations.close()


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_welcome(history: Path, monkeypatch: pytest.MonkeyPatch, snap_compare: Any, size: str, theme: str) -> None:
    from edgespec.tui import model_list

    class Memory:
        total = 16_000_000_000

    monkeypatch.setattr(model_list.psutil, "virtual_memory", Memory)
    engine = LocalEngine(scripted.load)
    conversations = History(history)

    async def before(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, ChatApp)
        chat = Chat(app, pilot, conversations)
        await chat.until(lambda: app.screen.query("#models"))
        await chat.until(lambda: app.screen.query_one("#models", OptionList).highlighted is not None)
        await pilot.pause(0.3)

    try:
        app = ChatApp(engine, conversations, AppSettings(theme=THEMES[theme]))
        assert snap_compare(app, terminal_size=SIZES[size], run_before=before)
    finally:
        engine.close()
        conversations.close()
