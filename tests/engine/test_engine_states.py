"""States of conversations on disk: read back where they are whole and of this model, and never where they are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked import spec

from edgespec.engine import core
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec, Reading
from edgespec.engine.states import States
from edgespec.loading import load_for_engine
from edgespec.reply import Reply
from edgespec.tiny_gguf import CHATML_TEMPLATE

TEXT = "The river runs past the mill. " * 20
Path_ = Callable[..., Path]


def load_spec(path: Path, **more: Any) -> LoadSpec:
    settings: dict[str, Any] = {"draft": "none", "ctx_size": 2048, "threads": 1, "buffers": "none", **more}
    return LoadSpec(model=str(path), **settings)


def turn(
    path: Path,
    folder: Path | None,
    *,
    conversation: str | None = "7",
    text: str = TEXT,
    cap_bytes: int = 1 << 30,
    **more: Any,
) -> tuple[Reply, Reading]:
    """One turn in an engine of its own, whose end is like that of a program."""
    engine = LocalEngine(load_for_engine, states=States(folder, cap_bytes))
    try:
        engine.load(load_spec(path, **more))
        generating = engine.generate(spec(text, conversation=conversation, max_tokens=8, seed=5))
        first = next(event for event in generating if isinstance(event, Reading))
        list(generating)
        assert generating.reply is not None
        return generating.reply, first
    finally:
        engine.close()


@pytest.fixture(scope="module")
def model(tiny: Path_) -> Path:
    return tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=16384)


@pytest.fixture(scope="module")
def expected(model: Path) -> Reply:
    """Without any states."""
    return turn(model, None)[0]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def test_after_a_restart_nothing_is_read_again_and_the_reply_is_the_same(
    model: Path, expected: Reply, tmp_path: Path
) -> None:
    folder = tmp_path / "states"
    first, cold = turn(model, folder)
    again, warm = turn(model, folder)
    assert cold.reused == 0
    assert warm.total == cold.total > 400
    assert warm.reused >= warm.total - 1
    assert first.tokens == again.tokens == expected.tokens
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files(folder)] == [0o600]
    assert TEXT[:10].encode() not in files(folder)[0].read_bytes()[:200]


def test_a_text_that_goes_another_way_uses_what_it_shares(model: Path, tmp_path: Path) -> None:
    turn(model, tmp_path)
    other = TEXT + "And then it turns."
    reply, reading = turn(model, tmp_path, text=other)
    assert 400 < reading.reused < reading.total
    assert reply.tokens == turn(model, None, text=other)[0].tokens


def test_nothing_is_written_without_a_conversation_and_forget_deletes(model: Path, tmp_path: Path) -> None:
    turn(model, tmp_path, conversation=None)
    assert files(tmp_path) == []
    turn(model, tmp_path, conversation="7")
    turn(model, tmp_path, conversation="8")
    assert len(files(tmp_path)) == 2
    States(tmp_path).forget("7")
    assert len(files(tmp_path)) == 1
    assert turn(model, tmp_path, conversation="9")[1].reused > 400  # conversation 8 begins alike


def test_the_least_recently_used_go_where_the_cap_is_reached(model: Path, tmp_path: Path) -> None:
    turn(model, tmp_path, conversation="1")
    size = files(tmp_path)[0].stat().st_size
    for conversation in ("2", "3"):
        turn(model, tmp_path, conversation=conversation, text=f"{conversation} {TEXT}", cap_bytes=int(2.5 * size))
    left = files(tmp_path)
    assert len(left) == 2
    assert turn(model, tmp_path, text=f"3 {TEXT}", cap_bytes=int(2.5 * size))[1].reused > 400
    assert turn(model, tmp_path, conversation="4", text=f"4 {TEXT}", cap_bytes=size // 2)[1].reused == 0


def test_damaged_and_foreign_files_are_passed_by(model: Path, expected: Reply, tmp_path: Path, tiny: Path_) -> None:
    turn(model, tmp_path)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    rng = random.Random(1)
    damaged = [b"", b"EdgeSpec", whole[: len(whole) // 2], whole[:-1], whole + b"\0", rng.randbytes(5000)]
    for _ in range(12):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(flipped))
    engine = LocalEngine(load_for_engine, states=States(tmp_path))
    try:
        for content in damaged:
            engine.load(load_spec(model))
            path.write_bytes(content)
            generating = engine.generate(spec(TEXT, max_tokens=8, seed=5))
            assert next(event for event in generating if isinstance(event, Reading)).reused == 0
            list(generating)
            assert generating.reply is not None
            assert generating.reply.tokens == expected.tokens
            engine.unload()
    finally:
        engine.close()
    path.write_bytes(whole)
    other = tiny(chat_template=CHATML_TEMPLATE, n_ctx_train=16384, seed=9)
    assert turn(other, tmp_path, conversation=None)[1].reused == 0  # another model
    assert turn(model, tmp_path, conversation=None, kv_type="f32")[1].reused == 0  # another layout
    assert turn(model, tmp_path, conversation=None)[1].reused > 400


def test_an_idle_engine_keeps_the_state_before_it_is_killed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_KEEP_AFTER_S", 0.0)
    engine = LocalEngine(load_for_engine, states=States(tmp_path))
    try:
        engine.load(load_spec(model))
        list(engine.generate(spec(TEXT, conversation="7", max_tokens=8, seed=5)))
        engine.translate(spec(TEXT))  # a later job: the one before has been seen to by then
        engine.unload()
        assert len(files(tmp_path)) == 1
    finally:
        engine.close()


@pytest.mark.parametrize("arch", ["mamba", "jamba", "lfm2", "gemma3"])
def test_models_that_cannot_forget_answer_the_same_with_states(tiny: Path_, tmp_path: Path, arch: str) -> None:
    path = tiny(arch, chat_template=CHATML_TEMPLATE, n_ctx_train=16384)
    plain = turn(path, None)[0]
    for _ in range(2):
        assert turn(path, tmp_path)[0].tokens == plain.tokens
