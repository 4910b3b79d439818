"""Heads on a model of llama.cpp: the same text with and without, alone and beside others, and how they are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgespec
from edgespec.chat_session import ChatSession
from edgespec.drafters import MedusaDrafter
from edgespec.drafting import Draft, LatestState
from edgespec.engine.loaded import description, redrafted
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.errors import BadRequestError, ModelLoadError, ModelNotFoundError
from edgespec.generation import GenerationRequest, generate, step
from edgespec.heads.registry import register
from edgespec.heads.storage import write_heads
from edgespec.history import History
from edgespec.loading import load_for_engine
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from edgespec.sampling import Sampler, SamplingParams
from edgespec.scoring import ScoreRequest
from edgespec.tiny_gguf import CHATML_TEMPLATE
from table_heads import random_heads

Tiny = Callable[..., Path]
SMALL: dict[str, Any] = {"ctx_size": 256, "threads": 1, "kv_type": "f32", "buffers": "none", "draft": None}
TEXT = "The list of values is"


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random heads over half of the tiny vocabulary, for any tiny file."""
    path = tmp_path_factory.mktemp("heads") / "heads.safetensors"
    write_heads(random_heads(512, 128, count=4, ids=range(0, 512, 2), shared=True), path)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_text_with_heads_is_the_plain_text(tiny: Tiny, heads: Path, arch: str) -> None:
    with edgespec.load(tiny(arch), heads=heads, drafter="medusa", **SMALL) as llm:
        assert llm.drafter == "medusa"
        assert any("draft heads in heads.safetensors" in note for note in llm.notes)
        for options in ({"temperature": 0}, {"seed": 5, "verify": "seed"}, {"temperature": 0, "repeat_penalty": 1.3}):
            plain = llm.complete(TEXT, max_tokens=24, draft_max=0, **options)
            drafted = llm.complete(TEXT, max_tokens=24, draft_max=3, **options)
            assert drafted.tokens == plain.tokens
            assert drafted.stats.sources["medusa"].drafted > 20
            planned = llm.complete(TEXT, max_tokens=24, **options)
            assert planned.tokens == plain.tokens


class Witness(MedusaDrafter):
    """Compares each state with that of the same text in a context of its own."""

    reference: Any = None
    compared = 0

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        state = self.states.before(tokens)
        sequence = self.reference.sequence()
        self.reference.score([ScoreRequest(sequence, tokens[:-1], (), states=True)])
        assert np.allclose(state, self.reference.states(sequence)[0], atol=1e-3)
        sequence.close()
        Witness.compared += 1
        return super().draft(tokens, k, sampler, rng)


def test_requests_in_one_decode_have_each_their_own_state(tiny: Tiny, open_context: Callable[..., Any]) -> None:
    """One of them without heads, one with a prompt that takes several chunks."""
    context, Witness.reference = open_context(tiny(), n_batch=16, max_width=12), open_context(tiny())
    made = random_heads(512, 128)
    running = [
        generate(
            context,
            GenerationRequest(prompt=tuple(range(5, 5 + n)), params=SamplingParams(seed=n), max_tokens=14),
            Witness(made, LatestState()) if n != 9 else None,
        )
        for n in (3, 9, 60)
    ]
    while any(g.finish_reason is None for g in running):
        step(context, running)
    assert [g.error for g in running] == [None] * 3
    assert Witness.compared > 10


def test_registered_heads_join_in_auto(tiny: Tiny, heads: Path, home: Path) -> None:
    with edgespec.load(tiny(), **SMALL) as llm:
        assert llm.drafter == "suffix,lookup"
    register(file_identity(read_header(tiny())), heads)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert llm.drafter == "suffix,lookup,medusa"
        assert llm.complete(TEXT, max_tokens=24, temperature=0, draft_max=3).stats.mode == "speculative"
        llm.use_drafter("medusa")
        assert llm.drafter == "medusa"
    for options in ({"heads": None}, {"heads": "none"}, {"drafter": "lookup"}, {"drafter": "none"}):
        with edgespec.load(tiny(), **{**SMALL, **options}) as llm:
            assert llm.heads is None
            assert "medusa" not in llm.drafter


def test_another_drafter_reloads_only_where_heads_may_be_found(tiny: Tiny, heads: Path, home: Path) -> None:
    """What the engine asks before it loads a model again."""
    with edgespec.load(tiny(), drafter="lookup", **SMALL) as llm:
        assert redrafted(llm, "auto")
        assert llm.drafter == "suffix,lookup"
    register(file_identity(read_header(tiny())), heads)
    with edgespec.load(tiny(), drafter="lookup", **SMALL) as llm:
        assert not redrafted(llm, "auto")
        assert description(llm).more == ("medusa",)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert redrafted(llm, "medusa")
        assert llm.drafter == "medusa"
        assert description(llm).more == ()


def test_heads_that_come_with_edgespec_are_loaded_when_somebody_switches_to_them(
    tiny: Tiny, heads: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was loaded with "auto" leaves them alone, and that is no reason to say that there are none."""
    shipped = tmp_path / "shipped" / f"{file_identity(read_header(tiny()))[:32]}.safetensors"
    shipped.parent.mkdir()
    shipped.write_bytes(heads.read_bytes())
    monkeypatch.setattr("edgespec.heads.registry._SHIPPED", shipped.parent)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert (llm.drafter, llm.heads) == ("suffix,lookup", None)
        assert description(llm).more == ("medusa",)
        assert redrafted(llm, "lookup")
        assert redrafted(llm, "auto")
        assert not redrafted(llm, "medusa")
        assert not redrafted(llm, "lookup,medusa")
        with pytest.raises(BadRequestError, match="drafter eagle needs an EAGLE head"):
            redrafted(llm, "eagle")
    with edgespec.load(tiny(), drafter="medusa", **SMALL) as llm:
        assert llm.drafter == "medusa"
        assert redrafted(llm, "auto")
        assert llm.drafter == "suffix,lookup"  # as if it had been loaded so


def test_a_chat_that_began_without_them_goes_on_with_them(tiny: Tiny, heads: Path, home: Path, tmp_path: Path) -> None:
    """As both front ends switch sources."""
    path = tiny(chat_template=CHATML_TEMPLATE)
    register(file_identity(read_header(path)), heads)
    spec = LoadSpec(model=str(path), drafter="lookup", **{**SMALL, "draft": "auto"})
    with closing(LocalEngine(load_for_engine)) as engine, History(tmp_path / "history.db") as history:
        chat = ChatSession(engine, history, spec, options={"max_tokens": 12, "draft_max": 3})
        assert chat.load().more == ("medusa",)
        loaded = chat.use(drafter="medusa")
        assert (loaded.drafter, loaded.more) == ("medusa", ())
        turn = chat.ask("Count.")
        list(turn)
        assert turn.reply is not None
        assert turn.reply.stats.sources["medusa"].drafted > 5
        with pytest.raises(BadRequestError, match="needs an EAGLE head"):
            chat.use(drafter="eagle")
        assert chat.spec.drafter == "medusa"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"n_embd": 64}, "hidden states of 64 numbers"),
        ({"vocab_size": 500}, "a vocabulary of 500 tokens"),
        ({"target": "0" * 64}, r"for another file \(.*table"),
    ],
)
def test_heads_that_do_not_fit_are_an_error_if_asked_for_and_else_a_line(
    tiny: Tiny, home: Path, tmp_path: Path, made: dict[str, Any], message: str
) -> None:
    path = tmp_path / "wrong.safetensors"
    wrong = random_heads(**{"vocab_size": 512, "n_embd": 128, **made})
    write_heads(replace(wrong, facts=replace(wrong.facts, target_name="\x1b[31mtable\n")), path)
    with pytest.raises(ModelLoadError, match=message):
        edgespec.load(tiny(), heads=path, **SMALL)
    register(file_identity(read_header(tiny())), path)
    with pytest.raises(ModelLoadError, match=message):
        edgespec.load(tiny(), drafter="medusa", **SMALL)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert llm.drafter == "suffix,lookup"
        (note,) = (note for note in llm.notes if note.startswith("going on without heads: "))
        assert note.isprintable()  # the name in it comes from the file


def test_missing_heads_say_how_to_give_them(tiny: Tiny, home: Path) -> None:
    with pytest.raises(
        BadRequestError, match="drafter medusa needs heads for this model; give their file with --heads"
    ):
        edgespec.load(tiny(), drafter="medusa", **SMALL)
    with pytest.raises(ModelNotFoundError, match="there is no file nowhere"):
        edgespec.load(tiny(), heads="nowhere.safetensors", **SMALL)


def test_an_architecture_without_states_beside_logits_is_refused(tiny: Tiny, heads: Path) -> None:
    with pytest.raises(ModelLoadError, match="its hidden states or its logits, not both"):
        edgespec.load(tiny("lfm2"), heads=heads, **SMALL)


def test_heads_in_a_process_of_its_own(tiny: Tiny, heads: Path) -> None:
    with edgespec.load(tiny(), heads=heads, drafter="medusa", isolated=True, **SMALL) as llm:
        reply = llm.complete(TEXT, max_tokens=12, temperature=0, draft_max=3)
        assert reply.drafter == "medusa"
        assert reply.stats.sources["medusa"].drafted > 5
