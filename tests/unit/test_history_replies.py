"""Replies on their way into the history: saved in time, whole at the end, with what the speculation view shows."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.errors import BadRequestError, HistoryError
from edgespec.history import FINISH_REASONS, History, Message
from edgespec.history.reply_writer import CHECKPOINT_S
from edgespec.stats import DraftedToken, RoundEvent, TokenEvent

NO_P = DraftedToken(9, "猫", 0.0, None, False)
ROUND = RoundEvent(3, "lookup", 2, (DraftedToken(8, " a", 1.0, 0.123456789, True), NO_P), 1, 2, (8, 4), 0.1, 12.5, 0.25)


def token(text: str, logprob: float = -0.5) -> TokenEvent:
    return TokenEvent(text, 7, "lookup", logprob, 3)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def ask(saved: History) -> tuple[int, int]:
    talk = saved.new_conversation()
    return talk, saved.add_message(talk, None, "user", "Name a bird.")


def other_view(saved: History, message: int) -> Message:
    """The message as another program sees it."""
    with History(saved.file) as other:
        return other.message(message)


def test_a_finished_reply_is_whole(tmp_path: Path) -> None:
    with History(tmp_path / "h.db") as saved:
        talk, question = ask(saved)
        reply = saved.begin_reply(talk, question, model="m.gguf")
        events = [token("A"), ROUND, token(" jay", -math.inf), token("."), token("")]
        for event in events:
            reply.append(event)
        assert reply.text == "A jay."
        result = {"seed": 3, "stats": {"tau": None, "per_position": [0.5]}}
        message = reply.finish("stop", result=result)
        assert message == saved.path(talk)[-1] == other_view(saved, reply.id)
        assert (message.text, message.finish_reason, message.model) == ("A jay.", "stop", "m.gguf")
        details = saved.details(reply.id)
        assert details.tokens == (events[0], *events[2:])
        (found,) = details.rounds
        assert found.drafted == (DraftedToken(8, " a", 1.0, 0.12346, True), NO_P)
        assert (found.emitted, found.verify_ms, found.k) == (ROUND.emitted, ROUND.verify_ms, 2)
        assert details.result == result
        assert saved.details(question).tokens == ()
        assert reply.finish("stop") is None
        with pytest.raises(BadRequestError, match="is finished; begin a new one"):
            reply.append(token("late"))


def test_what_is_new_is_due_before_a_second_has_passed(tmp_path: Path) -> None:
    now = [100.0]
    with History(tmp_path / "h.db", clock=lambda: now[0]) as saved:
        reply = saved.begin_reply(*ask(saved))
        assert reply.due_s() is None
        reply.append(token("a"))
        now[0] += 0.5
        reply.append(token("b"))  # does not put it off
        assert reply.due_s() == pytest.approx(CHECKPOINT_S - 0.5)
        assert CHECKPOINT_S < 1
        reply.checkpoint()
        assert reply.due_s() is None
        assert (other_view(saved, reply.id).text, other_view(saved, reply.id).finish_reason) == ("ab", None)
        reply.append(token("c"))
        reply.checkpoint()
        reply.checkpoint()
        reply.append(token("d"))
        assert reply.due_s() == pytest.approx(CHECKPOINT_S)
        assert other_view(saved, reply.id).text == "abc"
        assert [event.text for event in saved.details(reply.id).tokens] == ["a", "b", "c"]
        reply.finish("cancelled")
        assert other_view(saved, reply.id).text == "abcd"
        assert [event.text for event in saved.details(reply.id).tokens] == ["a", "b", "c", "d"]


def test_it_is_saved_while_nothing_more_comes(tmp_path: Path) -> None:
    with History(tmp_path / "h.db") as saved:
        reply = saved.begin_reply(*ask(saved))
        for text in ("one", " two"):
            reply.append(token(text))
            until(lambda: reply.due_s() is None)
        assert other_view(saved, reply.id).text == "one two"
        reply.finish("length")


def test_closing_saves_what_has_come(tmp_path: Path) -> None:
    with History(tmp_path / "h.db") as saved:
        reply = saved.begin_reply(*ask(saved))
        reply.append(token("half a"))
    with History(tmp_path / "h.db") as again:
        assert (again.message(reply.id).text, again.message(reply.id).finish_reason) == ("half a", None)


def test_a_temporary_history_is_in_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    with History.temporary() as saved:
        talk, question = ask(saved)
        reply = saved.begin_reply(talk, question)
        reply.append(token("Jay"))
        until(lambda: reply.due_s() is None)
        reply.finish("stop")
        assert [message.text for message in saved.path(talk)] == ["Name a bird.", "Jay"]
        assert [hit.match for hit in saved.search("jay")] == ["Jay"]
        saved.delete(talk)
        assert saved.purge() == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reason", FINISH_REASONS)
def test_a_reply_without_a_word(tmp_path: Path, reason: str) -> None:
    """Stopped while the prompt was read, it leaves nothing; the model's own empty answer is one."""
    with History(tmp_path / "h.db") as saved:
        talk, question = ask(saved)
        first = saved.add_message(talk, question, "assistant", "Jay.")
        reply = saved.begin_reply(talk, question)
        kept = reply.finish(reason)
        assert (kept is None) == (reason in ("cancelled", "error"))
        assert [m.id for m in saved.branches(first)] == ([first] if kept is None else [first, reply.id])
        assert saved.path(talk)[-1].id == (first if kept is None else reply.id)


def test_a_full_disk_loses_nothing_that_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "h.db") as saved:
        reply = saved.begin_reply(*ask(saved))
        with monkeypatch.context() as broken:
            broken.setattr("edgespec.history.tree.save_text", _full)
            reply.append(token("said"))
            until(lambda: reply.error is not None)
            assert str(reply.error).endswith("cannot grow: the disk is full; free some space")
        reply.append(token(" more"))
        until(lambda: reply.due_s() is None)
        assert reply.error is None
        message = reply.finish("stop")
        assert message is not None
        assert message.text == "said more"


def _full(*_: object) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


def test_a_reply_to_a_conversation_that_went_away(tmp_path: Path) -> None:
    with History(tmp_path / "h.db") as saved:
        talk, question = ask(saved)
        reply = saved.begin_reply(talk, question)
        reply.append(token("x"))
        saved.delete(talk)
        saved.purge()
        with pytest.raises(HistoryError, match="no longer in the history: its conversation was removed"):
            reply.finish("stop")


def test_threads_may_share_a_history(tmp_path: Path) -> None:
    errors: list[Exception] = []
    with History(tmp_path / "h.db") as saved:
        talk, question = ask(saved)

        def work(number: int) -> None:
            try:
                for i in range(10):
                    reply = saved.begin_reply(talk, question)
                    for k in range(20):
                        reply.append(token(f"{number}.{i}.{k} "))
                    reply.finish("stop")
                    saved.path(talk)
                    saved.search(f"{number}.{i}")
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        found = {m.text for m in saved.branches(saved.path(talk)[-1].id)}
    assert found == {"".join(f"{n}.{i}.{k} " for k in range(20)) for n in range(4) for i in range(10)}
