"""ServerEngine over servers that are not ours, and over what is no server at all: nothing that they send is trusted."""

from __future__ import annotations

from typing import Any

import pytest
from attached_engine import attached, spec

from edgespec.engine.protocol import Event, Finished
from edgespec.engine.server_engine import ServerEngine
from edgespec.errors import (
    BadRequestError,
    EdgeSpecError,
    ModelNotFoundError,
    QueueFullError,
    ServerError,
)
from foreign_server import END, MODELS, OURS, foreign, frames, said, token, told


def test_another_server_is_a_plain_chat() -> None:
    chunks = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        said("Hello"),
        said(" you", finish_reason="stop"),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}, "timings": {"predicted_ms": 300.0}},
    ]
    with foreign(stream=[b": comment\r\n\r\n", *frames(*chunks)]) as server, attached(server.url, key="k") as engine:
        events = list(engine.generate(spec("hi", temperature=0, draft_max=3, verify="block", top_k=5)))
    assert engine.server == server.url
    assert server.keys == ["Bearer k"]
    (body,) = server.asked
    assert body == {
        "model": "stranger",
        "messages": [{"role": "system", "content": "Repeat."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "top_k": 5,
    }
    *tokens, last = events
    assert [event.source for event in tokens] == ["target"] * 3
    reply = last.reply
    assert reply.text == "".join(event.text for event in tokens) == "<think>\nhm\n</think>\n\nHello you"
    assert (reply.stats.prompt_tokens, reply.stats.completion_tokens, reply.finish_reason) == (9, 4, "stop")
    assert reply.stats.tokens_per_s == pytest.approx(10)
    assert "does not say" in reply.stats.why


def test_a_server_that_dies_in_the_middle_keeps_what_came() -> None:
    for broken in ({"cut": True}, {}):
        with (
            foreign(stream=frames(said("Hel"), said("lo"), done=False), **broken) as server,
            attached(server.url) as engine,
            engine.generate(spec("hi")) as asked,
        ):
            came = [next(asked).text, next(asked).text]
            with pytest.raises(ServerError, match="in the middle of the answer"):
                next(asked)
        assert came == ["Hel", "lo"]


def test_an_answer_that_is_whole_but_for_its_last_mark_is_one() -> None:
    stream = frames(said("all", finish_reason="length"), done=False)
    with foreign(stream=stream) as server, attached(server.url) as engine:
        assert list(engine.generate(spec("hi")))[-1].reply.finish_reason == "length"


_DEEP = b"data: " + b'{"choices":' + b"[" * 100_000 + b"\n\n"


@pytest.mark.parametrize(
    ("ours", "stream"),
    [
        (False, [b"data: nonsense\n\n"]),
        (False, [_DEEP]),
        (False, [b"data: [1, 2]\n\n"]),
        (False, frames({"choices": [{"delta": {"content": 5}}]})),
        (False, frames()),
        (False, frames({"choices": []})),
        (False, [b"data: " + b"x" * (1 << 20) + b"y\n\n"]),
        (False, [b"data: x\n" * 200_000]),
        (False, [b"\n" * 5000]),
        (True, frames(told({"type": "spell"}))),
        (True, frames(told(token("x" * 70_000)))),
        (True, frames(told(token("a", id=-4)))),
        (True, frames(told(token("a", source="\x1b[31mred")))),
        (True, frames(told(token("a", round=2**40)))),
        (True, frames(told({**END, "usage": {"completion_tokens": 10**30}}))),
        (True, frames(told({**END, "finish_reason": "\x1b]0;x"}))),
        (
            True,
            frames(
                told(
                    {
                        "type": "round", "round": 1, "source": "model", "k": 10**9, "drafted": [], "accepted": 10**9,
                        "produced": 10**9, "emitted": [], "draft_ms": 0, "verify_ms": 0, "other_ms": 0,
                    }
                )
            ),
        ),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_one_error(ours: bool, stream: list[bytes]) -> None:
    with (
        foreign(models=OURS if ours else MODELS, stream=stream) as server,
        attached(server.url) as engine,
        pytest.raises(ServerError) as caught,
    ):
        list(engine.generate(spec("hi")))
    assert len(str(caught.value)) < 500
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (500, b"<html>oops", ServerError, "status 500"),
        (301, b"", ServerError, "status 301"),
        (404, b'{"error": {"message": "no \\u001b[31mmodel"}}', ModelNotFoundError, "no model"),
        (429, b'{"error": {"message": "busy", "code": "queue_full"}}', QueueFullError, "busy"),
        (400, b'{"error": "' + b"x" * 5000 + b'"}', BadRequestError, "status 400"),
        (400, b'{"error": {"message": "' + b"x " * 5000 + b'"}}', BadRequestError, "x x x"),
        (
            200,
            b'data: {"error": {"message": "the model\\ndied", "code": "engine_died"}}\n\n',
            ServerError,
            "model died",
        ),
        (200, b'data: {"error": "gone"}\n\n', ServerError, "no reason"),
    ],
)
def test_refusals(status: int, body: bytes, kind: type[EdgeSpecError], words: str) -> None:
    with (
        foreign(status=status, stream=[body]) as server,
        attached(server.url) as engine,
        pytest.raises(kind, match=words) as caught,
    ):
        list(engine.generate(spec("hi")))
    assert len(str(caught.value)) < 600
    assert "\x1b" not in str(caught.value)


_NAMELESS = {"data": [{"id": ""}]}
_LONG = {"data": [{"id": "x" * 501}]}


@pytest.mark.parametrize(
    "models",
    [b"", b"<html>", b"[]", b"{}", {"data": []}, _NAMELESS, _LONG, b"x" * (2 << 20), b"[" * 100_000],
)
def test_what_is_no_list_of_models(models: Any) -> None:
    with foreign(models=models) as server:
        engine = ServerEngine(server.url)
        with pytest.raises(ServerError, match=r"is no server of OpenAI's API|sends too much"):
            engine.load(engine.spec)


def test_a_server_that_only_says_it_is_ours() -> None:
    models = {"data": [{"id": "parrot", "owned_by": "edgespec", "meta": {"n_ctx": -1}}]}
    stream = frames(said("hi", finish_reason="stop"))
    with foreign(models=models, stream=stream) as server, attached(server.url) as engine:
        events: list[Event] = list(engine.generate(spec("hi")))
    assert isinstance(events[-1], Finished)
    assert "events" not in server.asked[0]
