"""A conversation over the in-process engine and a history, as both front ends use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.chat_commands import APP, COMMANDS, PLAIN, message, parse
from edgespec.chat_session import ChatSession
from edgespec.chat_settings import SETTINGS, parse_setting, stored_settings
from edgespec.chat_turn import Turn
from edgespec.engine import scripted
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import Finished, LoadSpec
from edgespec.errors import BadRequestError, ContextFullError, ModelLoadError, ModelNotFoundError
from edgespec.history import History
from edgespec.options import check_options
from edgespec.stats import TokenEvent

ECHO = LoadSpec(model="scripted:echo", draft="scripted")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db") as opened:
        yield opened


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    made = LocalEngine(scripted.load)
    yield made
    made.close()


@pytest.fixture
def chat(engine: LocalEngine, history: History) -> ChatSession:
    return ChatSession(engine, history, ECHO, options={"temperature": 0.0}, system="Be brief.")


def said(turn: Turn) -> str:
    """Run an answer to its end; its text."""
    text = "".join(event.text for event in turn if isinstance(event, TokenEvent))
    assert turn.reply is not None
    return text


def told(chat: ChatSession) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in chat.messages]


def test_a_conversation_begins_with_its_first_message(chat: ChatSession, history: History) -> None:
    assert chat.messages == ()
    assert chat.conversation is None
    turn = chat.ask("Name a bird.")
    assert turn.question is not None
    assert turn.question.text == "Name a bird."
    assert said(turn) == "Name a bird."
    assert said(chat.ask("And a fish?")) == "And a fish?"
    assert told(chat) == [
        ("user", "Name a bird."),
        ("assistant", "Name a bird."),
        ("user", "And a fish?"),
        ("assistant", "And a fish?"),
    ]
    assert chat.messages[1].id == turn.reply_id
    assert chat.conversation is not None
    assert (chat.conversation.system, chat.conversation.messages) == ("Be brief.", 4)


def test_what_an_answer_was_made_of_is_kept(chat: ChatSession, history: History) -> None:
    turn = chat.ask("round and round and round and round it goes, and round")
    events = list(turn)
    kept = history.details(turn.reply_id)
    assert isinstance(events[-1], Finished)
    assert kept.tokens == tuple(e for e in events if isinstance(e, TokenEvent))
    assert kept.rounds
    assert kept.result is not None
    assert kept.result["usage"] == turn.reply.to_json()["usage"]


def test_regenerate_and_edit_make_branches(chat: ChatSession) -> None:
    said(chat.ask("one"))
    said(chat.regenerate())
    assert [m.branches for m in chat.messages] == [1, 2]
    said(chat.edit("two"))
    assert told(chat) == [("user", "two"), ("assistant", "two")]
    assert [m.branches for m in chat.messages] == [2, 1]
    first = chat.branches(chat.messages[0].id)[0]
    chat.switch(first.id)
    assert told(chat) == [("user", "one"), ("assistant", "one")]
    answer = chat.messages[1]
    said(chat.regenerate(seed=7, message=answer.id))
    assert chat.messages[1].branches == 3


def test_regenerate_draws_anew_unless_a_seed_is_named(chat: ChatSession) -> None:
    chat.set("seed", "5")
    chat.set("temperature", "1")
    first = chat.ask("x")
    said(first)
    again, named = chat.regenerate(), None
    said(again)
    named = chat.regenerate(seed=9)
    said(named)
    seeds = [turn.reply.seed for turn in (first, again, named) if turn.reply]
    assert seeds[0] == 5
    assert seeds[1] != 5
    assert seeds[2] == 9


def test_a_stopped_answer_goes_on_where_it_stopped(engine: LocalEngine, history: History) -> None:
    chat = ChatSession(engine, history, LoadSpec(model="scripted:count"), options={"temperature": 0.0})
    chat.set("max_tokens", "40")
    first = said(chat.ask("count"))
    turn = chat.go_on()
    assert turn.text == first
    whole = first + said(turn)
    assert turn.text == whole == chat.messages[-1].text
    assert whole == "".join(f"{n} " for n in range(1, 99))[: len(whole)]
    assert len(whole) > 1.5 * len(first)
    assert chat.messages[-1].branches == 2
    kept = history.details(turn.reply_id)
    rounds = [t.round for t in kept.tokens]
    assert rounds == sorted(rounds)
    assert kept.result is not None
    assert kept.result["usage"]["completion_tokens"] == 80
    whole += said(chat.go_on())
    assert chat.messages[-1].text == whole


def test_cancel_keeps_what_was_said(engine: LocalEngine, history: History) -> None:
    chat = ChatSession(engine, history, LoadSpec(model="scripted:count"))
    turn = chat.ask("count")
    for event in turn:
        if isinstance(event, TokenEvent) and event.round > 3:
            turn.cancel()
    assert turn.reply is not None
    assert turn.reply.finish_reason == chat.messages[-1].finish_reason == "cancelled"
    assert chat.messages[-1].text == turn.reply.text == turn.text
    assert turn.text.startswith("1 2 ")


def test_a_turn_that_is_closed_is_saved(engine: LocalEngine, history: History) -> None:
    chat = ChatSession(engine, history, LoadSpec(model="scripted:count"))
    turn = chat.ask("count")
    seen = next(event for event in turn if isinstance(event, TokenEvent) and event.text)
    turn.close()
    assert chat.messages[-1].text == seen.text
    assert chat.messages[-1].finish_reason == "cancelled"


def test_an_error_keeps_the_question(engine: LocalEngine, history: History) -> None:
    chat = ChatSession(engine, history, LoadSpec(model="scripted:echo?n_ctx=64"))
    with pytest.raises(ContextFullError):
        list(chat.ask("long " * 100))
    assert [m.role for m in chat.messages] == ["user"]
    assert said(chat.edit("short")) == "short"


def test_settings_belong_to_the_conversation(chat: ChatSession, history: History) -> None:
    assert chat.set("max-tokens", "3") == ("max_tokens", 3)
    said(chat.ask("a b c d e f g h"))
    assert len(chat.messages[-1].text) < len("a b c d e f g h")
    assert chat.conversation is not None
    assert chat.conversation.params == {"max_tokens": 3}
    number = chat.id
    chat.set("max_tokens", "default")
    assert chat.options == {"temperature": 0.0}
    chat.set("top_k", "5")
    chat.system = "Be kind."
    chat.new()
    assert chat.system == "Be brief."
    assert number is not None
    chat.open(number)
    assert (chat.params, chat.system) == ({"top_k": 5}, "Be kind.")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("temprature", "1", "did you mean temperature?"),
        ("nonsense", "1", "there are temperature, "),
        ("top_k", "many", "must be a whole number"),
        ("top_p", "2", "top_p"),
        ("temperature", "nan", "temperature"),
        ("verify", "hope", "choose one of"),
    ],
)
def test_wrong_settings_are_refused(chat: ChatSession, name: str, text: str, what: str) -> None:
    with pytest.raises(BadRequestError, match=what.replace("?", r"\?")):
        chat.set(name, text)
    assert chat.params == {}


def test_every_setting_is_one_of_a_request() -> None:
    examples = {float: "0.5", int: "3", str: "token"}
    for name, row in SETTINGS.items():
        known, value = parse_setting(name, examples[row.kind])
        check_options(**{known: value})
        assert parse_setting(name, " default ") == (name, None)
    assert stored_settings({"top_k": 5, "top_p": 9.0, "stranger": 1, "seed": True}) == {"top_k": 5}


def test_a_model_that_cannot_chat_is_refused_and_the_one_before_stays(chat: ChatSession) -> None:
    said(chat.ask("hello"))
    with pytest.raises(ModelLoadError, match="no chat template"):
        chat.use(model="scripted:echo?template=no")
    with pytest.raises(ModelNotFoundError):
        chat.use(model="scripted:/no/such/file")
    assert said(chat.ask("still here")) == "still here"
    loaded = chat.use(drafter="lookup")
    assert loaded.drafter == "lookup"
    assert chat.use(drafter="none").drafter == "none"


def test_what_is_not_saved_can_be_kept(engine: LocalEngine, history: History, tmp_path: Path) -> None:
    with History(tmp_path / "other.db") as passing:
        chat = ChatSession(engine, passing, ECHO, saved=False)
        said(chat.ask("keep this"))
        said(chat.regenerate())
        chat.keep(history, "Kept")
        said(chat.ask("and this"))
        assert passing.conversations()[0].messages == 3
    assert chat.saved
    assert told(chat)[-1] == ("assistant", "and this")
    (kept,) = history.conversations()
    assert (kept.title, kept.messages) == ("Kept", 5)


@pytest.mark.parametrize("what", ["regenerate", "go_on", "edit"])
def test_without_a_message_there_is_nothing_to_do(chat: ChatSession, what: str) -> None:
    with pytest.raises(BadRequestError, match="write"):
        getattr(chat, what)(*["new text"] * (what == "edit"))
    with pytest.raises(BadRequestError, match="empty"):
        chat.ask(" \n")
    assert chat.messages == ()


def test_a_complete_answer_does_not_go_on(chat: ChatSession) -> None:
    said(chat.ask("all of it"))
    with pytest.raises(BadRequestError, match="complete"):
        chat.go_on()


@pytest.mark.parametrize("front_end", [APP, PLAIN])
def test_commands_are_told_from_messages(front_end: str) -> None:
    assert parse("hello /help", front_end) is None
    assert parse("//help", front_end) is None
    assert message("//help me") == "/help me"
    assert message("hello") == "hello"
    found = parse("/regenerate   12 ", front_end)
    assert found is not None
    assert (found.command.name, found.argument) == ("regenerate", "12")
    for text, what in (
        ("/regenrate", "did you mean /regenerate"),
        ("/zzz", "/help lists"),
        ("/", "/help lists"),
        ("/ help", "/help lists"),
        ("/quit now", "takes nothing"),
        ("/search", "/search TEXT"),
    ):
        with pytest.raises(BadRequestError, match=what):
            parse(text, front_end)


def test_commands_have_a_form_and_a_help() -> None:
    for name, row in COMMANDS.items():
        assert name == row.name
        assert row.usage.startswith(f"/{name}")
        assert row.help.endswith(".")
        assert set(row.front_ends) <= {APP, PLAIN}
