"""Conversations in and out of the history: all of a tree survives, and a wrong file changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgespec.errors import BadRequestError
from edgespec.history import FINISH_REASONS, History

# Round trip -----------------------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", "\x1b]52;c;AAAA\x07", "\0", "\u202e\u2066", "[/INST]", "'; DROP TABLE message; --", "鳥\r\n\t", "\u0085"]
    ),
)
WHOLE = st.integers(0, 2**40)
FLOATS = st.floats(-1e6, 1e6).map(lambda x: round(x, 5))
TIMES = st.datetimes().map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000).isoformat("T", "milliseconds") + "+00:00"
)
TOKENS = st.fixed_dictionaries(
    {
        "type": st.just("token"),
        "text": TEXTS,
        "id": WHOLE,
        "source": TEXTS,
        "logprob": st.none() | FLOATS,
        "round": WHOLE,
    }
)
DRAFTED = st.fixed_dictionaries(
    {"id": WHOLE, "text": TEXTS, "q": FLOATS, "p": st.none() | FLOATS, "accepted": st.booleans()}
)
ROUNDS = st.fixed_dictionaries(
    {
        "type": st.just("round"),
        "round": WHOLE,
        "source": TEXTS,
        "drafted": st.lists(DRAFTED, max_size=3),
        "accepted": WHOLE,
        "produced": WHOLE,
        "emitted": st.lists(WHOLE, max_size=3),
        **dict.fromkeys(("draft_ms", "verify_ms", "other_ms"), FLOATS),
    }
).map(lambda found: {**found, "k": len(found["drafted"])})
PLAIN = st.none() | st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False, allow_infinity=False)
RESULTS = st.none() | st.dictionaries(TEXTS, st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3)), max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A tree: every message follows an earlier one, or none; at every fork one branch is in use."""
    found: list[dict[str, Any]] = []
    for place in range(draw(st.integers(0, 8))):
        role = draw(st.sampled_from(["user", "assistant", "system", "tool"]))
        reply = role == "assistant"
        found.append(
            {
                "parent": draw(st.none() | st.integers(0, place - 1)) if place else None,
                "role": role,
                "text": draw(TEXTS),
                "model": draw(TEXTS),
                "created": draw(TIMES),
                "finish_reason": draw(st.sampled_from([None, *FINISH_REASONS])) if reply else "",
                "active": None,
                "events": draw(st.lists(TOKENS | ROUNDS, max_size=4)) if reply else [],
                "result": draw(RESULTS) if reply else None,
            }
        )
    for place, message in enumerate(found):
        children = [i for i, m in enumerate(found) if m["parent"] == place]
        message["active"] = draw(st.sampled_from(children)) if children else None
    return found


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    tree = draw(messages())
    firsts = [i for i, m in enumerate(tree) if m["parent"] is None]
    return {
        **{name: draw(TEXTS) for name in ("title", "model", "system")},
        "params": draw(st.dictionaries(TEXTS, PLAIN, max_size=3)),
        "raw": draw(st.booleans()),
        "created": draw(TIMES),
        "updated": draw(TIMES),
        "active": draw(st.sampled_from(firsts)) if firsts else None,
        "messages": tree,
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with History(tmp_path_factory.mktemp("documents") / "h.db") as history:
        yield history


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(conversations(), max_size=2))
def test_what_is_exported_is_what_was_imported(shared: History, found: list[dict[str, Any]]) -> None:
    file = json.dumps({"format": "edgespec-history", "version": 1, "conversations": found}).encode()
    for one in shared.conversations():
        shared.delete(one.id)
    done = shared.import_(file)
    marks = [json.dumps(one, sort_keys=True) for one in found]
    unique = [one for i, one in enumerate(found) if marks[i] not in marks[i + 1 :]]
    assert len(done.added) == len(unique)
    exported = json.loads(shared.export_json(done.added))
    assert exported["conversations"] == unique
    assert [one.id for one in shared.conversations()] == list(done.added)  # the first of the file is the latest
    again = shared.import_(shared.export_json(done.added).encode())
    assert (again.added, again.skipped) == ((), len(unique))
    for conversation in done.added:
        shared.path(conversation)
    shared.export_markdown()


def test_an_import_that_was_deleted_comes_again(shared: History) -> None:
    talk = shared.new_conversation(title="once")
    file = shared.export_json([talk]).encode()
    (copy,) = shared.import_(file).added
    assert shared.import_(file).skipped == 1
    shared.delete(copy)
    assert len(shared.import_(file).added) == 1


# Refusals -------------------------------------------------------------------------------------------------------------

MESSAGE = {
    "parent": None,
    "role": "user",
    "text": "hi",
    "model": "",
    "created": "2026-01-31T12:00:00.000+00:00",
    "finish_reason": "",
    "active": None,
    "events": [],
    "result": None,
}
CONVERSATION = {
    "title": "",
    "model": "",
    "system": "",
    "params": {},
    "raw": False,
    "created": MESSAGE["created"],
    "updated": MESSAGE["created"],
    "active": None,
    "messages": [MESSAGE],
}
TOKEN = {"type": "token", "text": "", "id": 1, "source": "", "logprob": 0.0, "round": 1}


def file_of(conversation: Any = CONVERSATION, **changed: Any) -> bytes:
    whole = {"format": "edgespec-history", "version": 1, "conversations": [conversation], **changed}
    return json.dumps(whole).encode()


def with_message(**changed: Any) -> bytes:
    return file_of({**CONVERSATION, "messages": [MESSAGE, {**MESSAGE, "parent": 0, **changed}]})


def with_event(**changed: Any) -> bytes:
    return with_message(role="assistant", finish_reason="stop", events=[{**TOKEN, **changed}])


@pytest.mark.parametrize(
    ("file", "what"),
    [
        (b"", "the file is not JSON"),
        (b"\xff\xfe", "the file is not JSON"),
        (b'{"format": NaN}', "the file is not JSON"),
        (b"[" * 100_000, "the file is nested too deeply"),
        (b"3", "the file is not an object"),
        (b"{}", "the file is neither an export of EdgeSpec nor the conversations.json of a ChatGPT export"),
        (file_of(version=2), "the file is of version 2, from a newer EdgeSpec"),
        (file_of(version="1"), "the file.version is not a whole number"),
        (file_of(extra=1), "the file has the unknown field 'extra'"),
        (file_of(3), r"the file.conversations[0] is not an object"),
        (file_of({**CONVERSATION, "title": 3}), "conversations[0].title is not text"),
        (file_of({**CONVERSATION, "raw": 1}), "conversations[0].raw is not true or false"),
        (file_of({**CONVERSATION, "params": {"a": []}}), "conversations[0].params has 'a', which is no plain value"),
        (file_of({**CONVERSATION, "created": "yesterday"}), "conversations[0].created is not a time such as"),
        (file_of({**CONVERSATION, "created": "2026-01-31"}), "conversations[0].created is not a time such as"),
        (file_of({**CONVERSATION, "active": 1}), "conversations[0].active is not the place of a message"),
        (file_of({**CONVERSATION, "active": True}), "conversations[0].active is not a whole number"),
        (with_message(parent=1), "messages[1].parent is not the place of a message before it"),
        (with_message(parent=-1), "messages[1].parent is not the place of a message before it"),
        (with_message(active=0), "messages[1].active is not the place of a message that follows"),
        (with_message(role="oracle"), "messages[1].role is none of system, user, assistant, tool"),
        (with_message(finish_reason="stop"), "messages[1].finish_reason is none of ''"),
        (with_message(result=[]), "messages[1].result is not an object"),
        (with_message(more=[]), "messages[1] has the unknown field 'more'"),
        (with_event(type="word"), "messages[1].events[0].type is none of token, round"),
        (with_event(logprob="low"), "messages[1].events[0].logprob is not a number"),
        (with_event(type="round", emitted=["a"]), "messages[1].events[0].emitted is not a list of token ids"),
        (b"[3]", "conversation 0 is not an object"),
        (b"[{}]", "conversation 0.mapping is not an object"),
        (b'[{"mapping": {"a": 3}}]', "conversation 0.mapping.a is not an object"),
        (
            b'[{"mapping": {"a": {"parent": "b"}, "b": {"parent": "a"}}}]',
            "conversation 0.mapping.a follows no first message",
        ),
        (b'[{"mapping": {"a": {"children": ["a"]}}}]', "conversation 0.mapping.a follows two other messages"),
    ],
)
def test_a_wrong_file_names_the_place_and_changes_nothing(tmp_path: Path, file: bytes, what: str) -> None:
    with History(tmp_path / "h.db") as saved:
        with pytest.raises(BadRequestError) as error:
            saved.import_(file)
        assert what in str(error.value)
        assert str(error.value).endswith("nothing was imported")
        assert saved.conversations() == ()


# Markdown -------------------------------------------------------------------------------------------------------------


def test_markdown_has_the_branch_in_use_and_tells_of_others(shared: History) -> None:
    talk = shared.new_conversation(title="Of\nbirds", system="Be brief.")
    asked = shared.add_message(talk, None, "user", "A bird?")
    shared.add_message(talk, asked, "assistant", "Jay.")
    shared.add_message(talk, asked, "assistant", "*Owl.*", model="/models/owl.gguf")
    lines = shared.export_markdown([talk]).splitlines()
    assert lines[0] == "# Of birds"
    assert [line for line in lines[3:] if line] == [
        "## System",
        "Be brief.",
        "## You",
        "A bird?",
        "## Assistant (owl.gguf)",
        "*Owl.*",
        "*(1 message on other branches; the JSON export has them)*",
    ]
    raw = shared.new_conversation(raw=True)
    shared.add_message(raw, shared.add_message(raw, None, "user", "Once"), "assistant", " upon a time")
    assert "Once upon a time" in shared.export_markdown([raw])


# ChatGPT --------------------------------------------------------------------------------------------------------------


def node(
    name: str, parent: str | None, children: list[str], role: str = "", *parts: Any, **more: Any
) -> dict[str, Any]:
    metadata = more.pop("metadata", {})
    content = more.pop("content", {"content_type": "text", "parts": list(parts)})
    message = {"id": name, "author": {"role": role}, "content": content, "metadata": metadata, **more} if role else None
    return {name: {"id": name, "message": message, "parent": parent, "children": children}}


SAMPLE = [
    {
        "title": "Birds of the river",
        "create_time": 1700000000.25,
        "update_time": 1700000500.5,
        "current_node": "a2",
        "conversation_id": "0000",
        "mapping": {
            **node("root", None, ["hidden"]),
            **node("hidden", "root", ["s"], "system", "", metadata={"is_visually_hidden_from_conversation": True}),
            **node("s", "hidden", ["q"], "system", "Answer in one word."),
            **node("q", "s", ["a1", "a2", "a3"], "user", "Which bird is blue?", create_time=1700000001),
            **node("a1", "q", [], "assistant", "A jay.", metadata={"model_slug": "model-4"}),
            **node(
                "a2", "q", ["think"], "assistant", "A kingfisher.", metadata={"finish_details": {"type": "max_tokens"}}
            ),
            **node("a3", "q", [], "assistant", "A tit.", metadata={"finish_details": {"type": "interrupted"}}),
            **node("think", "a2", ["run"], "assistant", content={"content_type": "thoughts", "thoughts": []}),
            **node(
                "run",
                "think",
                ["out"],
                "assistant",
                content={"content_type": "code", "language": "python", "text": "1+1"},
            ),
            **node("out", "run", ["seen"], "tool", content={"content_type": "execution_output", "text": "2"}),
            **node(
                "seen",
                "out",
                ["gone"],
                "user",
                content={
                    "content_type": "multimodal_text",
                    "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "x"}, "Is it this one?"],
                },
                create_time="soon",
            ),
        },
    },
    {"title": None, "mapping": {}, "create_time": None},
]


def test_a_chatgpt_export(tmp_path: Path) -> None:
    file = json.dumps(SAMPLE).encode()
    with History(tmp_path / "h.db") as saved:
        talk, empty = saved.import_(file).added
        found = saved.conversation(talk)
        assert (found.title, found.system, found.raw) == ("Birds of the river", "Answer in one word.", False)
        assert (found.created.isoformat(), found.updated.timestamp()) == (
            "2023-11-14T22:13:20.250000+00:00",
            1700000500.5,
        )
        path = saved.path(talk)
        assert [(m.role, m.text, m.finish_reason) for m in path] == [
            ("user", "Which bird is blue?", ""),
            ("assistant", "A kingfisher.", "length"),
            ("assistant", "```python\n1+1\n```", "stop"),
            ("tool", "```\n2\n```", ""),
            ("user", "[image]\nIs it this one?", ""),
        ]
        assert [m.created.timestamp() for m in path[:2]] == [1700000001, 1700000000.25]
        others = saved.branches(path[1].id)
        assert [(m.text, m.model, m.finish_reason) for m in others] == [
            ("A jay.", "model-4", "stop"),
            ("A kingfisher.", "", "length"),
            ("A tit.", "", "cancelled"),
        ]
        assert saved.conversation(empty).label == "(empty)"
        assert [one.id for one in saved.conversations()] == [talk, empty]
        assert saved.search("kingfisher")[0].conversation == talk
        assert saved.import_(file).skipped == 2
        (saved.file.parent / "own.json").write_text(saved.export_json(), "utf-8")
    with History(tmp_path / "other.db") as other:
        copied = other.import_((tmp_path / "own.json").read_bytes()).added
        assert [m.text for m in other.path(copied[0])] == [m.text for m in path]
