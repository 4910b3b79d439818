"""Messages of the engine survive the wire; whatever else comes is refused with one error."""

from __future__ import annotations

import random

import msgspec
import pytest

from edgespec import errors
from edgespec.engine import protocol, wire
from edgespec.engine.protocol import GenerateSpec, LoadSpec, Totals
from edgespec.engine.wire import ProtocolError
from edgespec.errors import EdgeSpecError, EngineError
from edgespec.messages import Message
from edgespec.reply import Reply
from edgespec.stats import DraftedToken, GenerationStats, RoundEvent, SourceStats, TokenEvent

STATS = GenerationStats(
    rounds=2, widths={1: 1, 4: 1}, sources={"model": SourceStats(1, 3, 2)}, drafted_at=[1], why="no"
)
REPLY = Reply("a\x1b[31m", (1, 2), (-0.5, float("-inf")), "stop", "m.gguf", "model", STATS, 7)
ROUND = RoundEvent(
    1,
    "model",
    2,
    (DraftedToken(1, "a", 0.5, 0.25, True), DraftedToken(2, "", 0.1, None, False)),
    1,
    2,
    (1, 2),
    1.0,
    2.0,
    0.5,
)
LOADED = protocol.Loaded(
    name="m.gguf", path="/m.gguf", n_ctx=8, draft=None, drafter="none", sources=("lookup",), why="", notes=("n",),
    template=True, widths=(1, 2), ms=(1.0, 1.5), draft_ms=None, threads=2, weight_bytes=1, kv_bytes=2,
)  # fmt: skip
SPEC = GenerateSpec(
    messages=(Message("user", "x"),), options={"logit_bias": {3: float("-inf")}, "stop": ["a"]}, conversation="7"
)
ASKED = [
    wire.Load(1, LoadSpec(model="m", threads=2)),
    wire.Generate(2, LoadSpec(), SPEC),
    wire.Generate(2, LoadSpec(), GenerateSpec(prompt=(1, 2), deadline_s=2.0)),
    wire.Translate(3, LoadSpec(), GenerateSpec(prompt="text")),
    wire.Cancel(2),
    wire.Unload(4),
    wire.Forget(5, "7"),
    wire.Ask(6),
]
EVENTS = [
    protocol.Queued(2),
    protocol.Loading("m.gguf", 0.5),
    protocol.Reading(1, 2, 0),
    TokenEvent("a", 1, "target", -0.5, 0),
    ROUND,
    protocol.Finished(REPLY),
    LOADED,
    protocol.Failed("ContextFullError", "full", 9, 8),
    protocol.EngineState(
        pid=1,
        loaded=LOADED,
        loading=None,
        queued=0,
        busy=True,
        running=1,
        clients=2,
        rss_bytes=3,
        totals=Totals(requests=1),
    ),
    protocol.Done(),
    protocol.Texts((1, 2), "ab"),
]


def test_messages_survive_the_wire() -> None:
    assert wire.decode_to_engine(wire.encode(ASKED)) == ASKED
    told = [wire.Hello(1), wire.Beat(), wire.Dying("why"), *(wire.told(3, event) for event in EVENTS)]
    assert wire.decode_from_engine(wire.encode(told)) == told


VALUES = [None, 1, [[]], [{}], [{"type": "Cancel"}], {"type": "Ask", "id": 1}, [{"type": "Cancel", "id": "x"}]]
VALUES += [[{"type": "Cancel", "id": 1, "more": 2}], [{"type": "Generate", "id": 1, "load": {}, "spec": {}}]]


def test_garbage_is_refused_with_one_error() -> None:
    frames = [b"", b"\xc1", b"GET / HTTP/1.1\r\n\r\n", wire.encode([wire.Hello(1)]), b"\x91" * 5000]
    for frame in [*frames, *map(msgspec.msgpack.encode, VALUES)]:
        with pytest.raises(ProtocolError) as raised:
            wire.decode_to_engine(frame)
        assert "\n" not in str(raised.value)


def test_frames_with_flipped_bytes_are_messages_or_refused() -> None:
    rng = random.Random(5)
    whole = wire.encode(ASKED)
    refused = 0
    for _ in range(2000):
        frame = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        del frame[rng.randrange(len(frame)) if rng.random() < 0.3 else len(frame) :]
        try:
            wire.decode_to_engine(bytes(frame))
        except ProtocolError:
            refused += 1
    assert refused > 1000


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EdgeSpecError)]


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in (errors.ContextFullError, errors.CatalogError)])
def test_errors_are_the_same_on_the_other_side(kind: type[EdgeSpecError]) -> None:
    back = protocol.raised(protocol.failure(kind("what; how to fix")))
    assert type(back) is kind
    assert str(back) == "what; how to fix"


def test_errors_with_fields_and_foreign_ones_have_a_type_of_ours() -> None:
    full = protocol.raised(protocol.failure(errors.ContextFullError("full", needed=9, available=8)))
    assert isinstance(full, errors.ContextFullError)
    assert (full.needed, full.available) == (9, 8)
    foreign = protocol.raised(protocol.failure(ZeroDivisionError("by\nzero")))
    assert type(foreign) is EngineError
    assert "ZeroDivisionError: by zero" in str(foreign)
    assert type(protocol.raised(protocol.Failed("SystemExit", "x"))) is EngineError


def test_what_is_no_plain_data_is_refused_before_it_is_sent() -> None:
    with pytest.raises(errors.BadRequestError, match="plain data"):
        wire.encode([wire.Generate(1, LoadSpec(), GenerateSpec(prompt="x", options={"stop": object()}))])


def test_lone_surrogates_become_replacement_characters() -> None:
    clean = GenerateSpec(messages=(Message("user", "a\ud800b"),))
    assert clean.messages[0].content == "a�b"
    assert GenerateSpec(prompt="\udfff").prompt == "�"
