"""ServerEngine: a front end gets through a server what it gets from an engine of its own; nothing is trusted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from attached_engine import attached, spec

from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import Finished, GenerateSpec, LoadSpec
from edgespec.engine.protocol import Reading as ReadingEvent
from edgespec.engine.scripted import load
from edgespec.engine.server_address import Address
from edgespec.engine.server_engine import ServerEngine
from edgespec.errors import (
    BadRequestError,
    ContextFullError,
    ServerError,
)
from edgespec.stats import RoundEvent, TokenEvent
from foreign_server import foreign, frames, said
from measured import Record
from running_server import MODEL, Running, running

ECHO = "scripted:echo?n_ctx=2048"
TEXT = "Good evening: 1, 2, 3. Naïve? 🦜 Yes. " * 3


@pytest.fixture(scope="module")
def echo() -> Iterator[Running]:
    with running(ECHO, parallel=2) as server:
        yield server


def counted(event: TokenEvent | RoundEvent) -> dict[str, Any]:
    """Without times, and as close as JSON and float32 are."""
    facts = {name: value for name, value in event.to_json().items() if not name.endswith("_ms")}
    return json.loads(json.dumps(facts), parse_float=lambda number: round(float(number), 5))  # type: ignore[no-any-return]


def test_events_are_those_of_an_engine_of_its_own(echo: Running) -> None:
    options = {"temperature": 0, "draft_max": 3, "max_tokens": 60}
    with attached(echo.base) as engine, closing(LocalEngine(load)) as local:
        local.load(LoadSpec(model=ECHO, draft="scripted"))
        (mine, own) = ([*one.generate(spec(TEXT, **options))] for one in (engine, local))
    found, wanted = (
        [counted(event) for event in events if isinstance(event, TokenEvent | RoundEvent)] for events in (mine, own)
    )
    assert found == wanted
    assert {event["type"] for event in found} == {"token", "round"}
    assert any(isinstance(event, ReadingEvent) for event in mine)
    (told_reply, own_reply) = (events[-1].reply for events in (mine, own))  # type: ignore[union-attr]
    assert (told_reply.text, told_reply.tokens, told_reply.finish_reason) == (
        own_reply.text,
        own_reply.tokens,
        "length",
    )
    for name in ("prompt_tokens", "completion_tokens", "rounds", "drafted", "accepted", "produced", "mode", "why"):
        assert getattr(told_reply.stats, name) == getattr(own_reply.stats, name), name
    assert told_reply.stats.tokens_per_s > 0
    assert told_reply.model == MODEL


def test_what_is_loaded_is_what_the_server_says(echo: Running) -> None:
    with attached(echo.base.removesuffix("/v1") + "/") as engine:
        loaded = engine.load(engine.spec)
        assert (loaded.name, loaded.n_ctx, loaded.draft, loaded.template) == (MODEL, 2048, "scripted-echo.gguf", True)
        assert loaded.server == engine.server == f"http://127.0.0.1:{echo.port}"
        assert len(loaded.widths) == len(loaded.ms) > 0
        assert loaded.draft_ms > 0
        with pytest.raises(BadRequestError, match="no other can be loaded"):
            engine.load(LoadSpec(model="another"))
        for refused in (lambda: engine.translate(spec("x")), lambda: engine.generate(GenerateSpec(prompt="raw"))):
            with pytest.raises(BadRequestError):
                refused()


def test_sampling_is_that_of_the_request(echo: Running) -> None:
    chosen = {
        "temperature": 1e6, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical": 1.0, "repeat_penalty": 1.0,
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "seed": 7, "max_tokens": 20, "verify": "seed",
        "stop": ("never",), "logit_bias": {65: -1.0}, "draft_max": 2,
    }  # fmt: skip
    with attached(echo.base) as engine:
        one, two, other = (list(engine.generate(spec("x", **{**chosen, "seed": seed})))[-1].reply for seed in (7, 7, 8))
        assert one.text == two.text != other.text
        assert one.seed == 7
        with pytest.raises(BadRequestError, match="json_frame"):
            engine.generate(spec("x", json_frame=("", None, "")))


def test_a_schema_and_a_bias_as_json_has_them() -> None:
    with foreign(stream=frames(said("{}", finish_reason="stop"))) as server, attached(server.url) as engine:
        list(engine.generate(spec("hi", json_schema='{"type": "object"}', logit_bias={7: -1.0}, stop="x")))
        with pytest.raises(BadRequestError, match="schema"):
            engine.generate(spec("hi", json_schema="{"))
    (body,) = server.asked
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (body["logit_bias"], body["stop"]) == ({"7": -1.0}, "x")


def test_a_stop_is_quick_and_frees_the_place(record: Record) -> None:
    with running("scripted:count?decodes_per_s=100", parallel=1) as server, attached(server.base) as engine:
        with engine.generate(spec("go")) as asked:
            tokens = [event for event in (next(asked) for _ in range(12)) if isinstance(event, TokenEvent)]
            begin = time.monotonic()
            asked.cancel()
            rest = list(asked)
            took = time.monotonic() - begin
        assert rest[-1].reply.finish_reason == "cancelled"
        assert rest[-1].reply.text.startswith("".join(event.text for event in tokens))
        record(stop_ms=1000 * took)
        assert took < 2  # 200 ms where nothing else runs; a busy machine may look away
        server.reaches("requests_running", 0, within_s=20)


def test_a_stop_while_nothing_comes_waits_for_nothing() -> None:
    with (
        foreign(hold=threading.Event(), stream=frames(said("a"), done=False)) as server,
        attached(server.url) as engine,
        engine.generate(spec("go")) as asked,
    ):
        assert next(asked).text == "a"
        asked.cancel()
        (last,) = asked
        assert (last.reply.finish_reason, last.reply.text) == ("cancelled", "a")


def test_closing_ends_what_runs() -> None:
    with foreign(hold=threading.Event()) as server:
        engine = ServerEngine(server.url)
        engine.load(engine.spec)
        asked = engine.generate(spec("go"))
        engine.close()
        assert [type(event) for event in asked] == [Finished]


def test_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(ECHO, api_key="a-long-enough-key") as server:
        with attached(server.base, key="a-long-enough-key") as engine:
            assert list(engine.generate(spec("hi")))[-1].reply.text == "hi"
        for key in (None, "another"):
            with pytest.raises(BadRequestError, match="--api-key or EDGESPEC_API_KEY"), attached(server.base, key=key):
                pass
    for wrong in ("two\nlines", "ümlaut", " "):
        with pytest.raises(BadRequestError, match="ASCII"):
            ServerEngine("http://127.0.0.1:1", key=wrong)


def test_errors_of_a_server_are_those_of_an_engine(echo: Running) -> None:
    with attached(echo.base) as engine:
        with pytest.raises(ContextFullError) as full:
            list(engine.generate(spec("x" * 3000)))
        assert (full.value.available, full.value.needed > 3000) == (2047, True)
        with pytest.raises(BadRequestError, match="temperature"):
            list(engine.generate(spec("x", temperature=-1)))
        with (
            pytest.raises(BadRequestError, match=f"has no model 'other'; it has {MODEL}"),
            attached(echo.base, model="other"),
        ):
            pass


def test_a_server_that_loads_is_waited_for() -> None:
    lines: list[str] = []
    with running(ECHO, wait=False) as server:
        engine = ServerEngine(server.base)
        assert engine.load(engine.spec, lambda event: lines.append(event.line)).name == MODEL
        engine.close()
    with foreign(models={}) as quiet:
        quiet.models = {"error": {"message": "loading the model; try again soon", "code": "loading"}}
        engine = ServerEngine(quiet.url)
        with pytest.raises(ServerError):  # that one answers 200
            engine.load(engine.spec)


def test_nobody_there() -> None:
    with foreign() as server:
        url = server.url
    for wrong, words in ((url, "no server answers at"), ("http://no.such.host.invalid", "there is no such host")):
        engine = ServerEngine(wrong)
        with pytest.raises(ServerError, match=words):
            engine.load(engine.spec)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "no address"),
        ("ftp://host", "no address"),
        ("http://host:99999", "no address"),
        ("http://host/?a=b", "no address"),
        ("http://me:secret@host", "user name"),
        ("http://host/a b", "characters"),
        ("http://höst", "characters"),
    ],
)
def test_addresses_that_are_none(url: str, words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        Address.parse(url)


def test_addresses() -> None:
    for url, shown, others in (
        ("http://localhost:8080/v1/", "http://localhost:8080", False),
        ("HTTP://127.0.0.1", "http://127.0.0.1", False),
        ("http://[::1]:80/v1", "http://[::1]", False),
        ("https://example.org/api/v1", "https://example.org/api", False),
        ("http://10.0.0.2:1", "http://10.0.0.2:1", True),
        ("http://box.lan", "http://box.lan", True),
    ):
        address = Address.parse(url)
        assert (address.shown, address.open_to_others) == (shown, others)
