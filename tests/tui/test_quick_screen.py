"""How soon the app is on the terminal, however many chats are saved, and how soon a key shows while a model writes."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_terminal import Terminal, started  # noqa: F401  # a fixture

from edgespec.history import History
from edgespec.machine import physical_cores
from edgespec.tiny_gguf import CHATML_TEMPLATE
from measured import Record

KEYS = "абвгджзиклмнпрстуфцчшщэюяαβγδεζηθικλμνξπρσφψω"  # each is typed once: none is on the screen before
PROMPT = "Message, or / for commands"
Start = Callable[..., Terminal]


def _saved(home: Path, conversations: int) -> None:
    """Chats of three exchanges with long answers, in the history of this home."""
    with History(home / "history" / "history.db") as saved, saved.together():
        for number in range(conversations):
            talk, last = saved.new_conversation(title=f"About bird {number}"), None
            for turn in range(3):
                last = saved.add_message(talk, last, "user", f"What of bird {number}, part {turn}?")
                last = saved.add_message(talk, last, "assistant", f"Bird {number} has two wings. " * 12)


def _seconds(terminal: Terminal, shown: str, begin: float) -> float:
    """From a moment until that is on the terminal."""
    terminal.until(lambda: shown in terminal.text)
    return time.monotonic() - begin


@pytest.mark.parametrize(
    ("conversations", "tries", "within"),
    [(300, 1, None), pytest.param(2_000, 7, 1.0, marks=pytest.mark.soak)],
)
def test_the_first_paint(
    home: Path,
    started: Start,  # noqa: F811
    conversations: int,
    tries: int,
    within: float | None,
    record: Record,
) -> None:
    _saved(home, conversations)
    times: dict[str, list[float]] = {"chat": [], "list": []}
    for _ in range(tries):
        begin = time.monotonic()
        terminal = started("--conversation", str(conversations))
        times["chat"].append(_seconds(terminal, f"About bird {conversations - 1}", begin))
        times["list"].append(_seconds(terminal, f"About bird {conversations - 2}", begin))
        terminal.until(lambda terminal=terminal: "two wings" in terminal.text)
        terminal.press(b"\x11")  # Ctrl+Q
        assert terminal.wait() == 0
    figures = {f"{name}_s": statistics.median(seconds) for name, seconds in times.items()}
    record(conversations=conversations, tries=tries, **figures)
    if within is not None:
        assert statistics.median(times["list"]) <= within


def _echoes(terminal: Terminal, keys: str, chance: random.Random) -> Iterator[float]:
    """Seconds from each key until it shows; typed at no set pace."""
    for key in keys:
        calm = time.monotonic() + chance.uniform(0.05, 0.25)
        while (left := calm - time.monotonic()) > 0:
            terminal.read(left)
        terminal.written = terminal.written[-4096:]
        code, begin = key.encode(), time.monotonic()
        assert code not in terminal.written
        terminal.press(code)
        while code not in terminal.written:
            assert time.monotonic() < begin + 60, key
            terminal.read(0.5)
        yield time.monotonic() - begin


def _answering(home: Path) -> bool:
    """The latest answer is still being written."""
    with History(home / "history" / "history.db") as saved:
        latest = saved.latest()
        assert latest is not None
        return saved.path(latest.id)[-1].finish_reason is None


def _typed_meanwhile(terminal: Terminal, home: Path, keys: str) -> list[float]:
    """Ask, then type while the answer comes. The answer must outlast the keys."""
    terminal.until(lambda: PROMPT in terminal.text)
    terminal.press(b"Tell a long story of a mill by the river.\r")
    terminal.until(lambda: "Esc stops" in terminal.text)
    times = sorted(_echoes(terminal, keys, random.Random(1)))
    assert _answering(home)
    terminal.press(b"\x11")  # Ctrl+Q
    assert terminal.wait() == 0
    return times


def test_keys_show_while_an_answer_is_written(
    home: Path,
    started: Start,  # noqa: F811
    tiny: Callable[..., Path],
    record: Record,
) -> None:
    model = tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=32_768)  # its answer has no other end
    terminal = started("-m", str(model), "--ctx-size", "32768")
    times = _typed_meanwhile(terminal, home, KEYS[:8])
    record(keys=len(times), median_s=statistics.median(times), worst_s=times[-1])


@pytest.mark.soak
@pytest.mark.real
def test_keys_show_at_once_while_a_real_model_writes(
    home: Path,
    started: Start,  # noqa: F811
    starter: Path,
    record: Record,
) -> None:
    # Nothing but the context ends the answer.
    endless = ("--temperature", "0", "--logit-bias", "0=-inf", "--logit-bias", "2=-inf")
    terminal = started("-m", str(starter), "--draft", "none", "--threads", str(physical_cores()), *endless)
    times = _typed_meanwhile(terminal, home, KEYS)
    record(keys=len(times), median_s=statistics.median(times), worst_s=times[-1])
    assert statistics.median(times) <= 0.05
