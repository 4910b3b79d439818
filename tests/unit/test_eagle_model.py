"""load() with EAGLE heads and MTP layers: how they are found, beside other sources, in a process of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import edgespec
from edgespec.costs import Costs, CostTable
from edgespec.drafters import PlannedDrafter, planned
from edgespec.engine.loaded import redrafted
from edgespec.generation import GenerationRequest, generate
from edgespec.heads.eagle import write_eagle
from edgespec.heads.registry import EAGLE, register
from edgespec.heads.storage import write_heads
from edgespec.llama.head import HeadContext
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from edgespec.sampling import SamplingParams
from table_heads import random_heads
from tiny_heads import own_head, write_eagle3, write_mtp

Tiny = Callable[..., Path]
SMALL: dict[str, Any] = {"ctx_size": 256, "threads": 1, "kv_type": "f32", "buffers": "none", "draft": None}
TEXT = "The list of values is"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heads") / "own.gguf"
    write_eagle(own_head(), path)
    return path


def test_a_registered_head_joins_in_auto_beside_medusa_heads(
    tiny: Tiny, head: Path, home: Path, tmp_path: Path
) -> None:
    medusa = tmp_path / "heads.safetensors"
    write_heads(random_heads(512, 128), medusa)
    identity = file_identity(read_header(tiny()))
    register(identity, medusa)
    register(identity, head, EAGLE)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert llm.drafter == "suffix,lookup,medusa,eagle"
        plain = llm.complete(TEXT, max_tokens=24, temperature=0, draft_max=0)
        for drafter in ("medusa,eagle", "eagle", "auto"):
            llm.use_drafter(drafter)
            for options in ({"draft_max": 3}, {}):
                assert llm.complete(TEXT, max_tokens=24, temperature=0, **options).tokens == plain.tokens
        assert llm.head_ms("eagle") > 0
        assert llm.head_ms("suffix") == 0
    for options in ({"heads": "none"}, {"drafter": "lookup"}):
        with edgespec.load(tiny(), **{**SMALL, **options}) as llm:
            assert llm.eagle is None
            assert "eagle" not in llm.drafter
    with edgespec.load(tiny(), heads=head, **SMALL) as llm:
        assert llm.drafter == "suffix,lookup,eagle"
    with edgespec.load(tiny(), drafter="lookup", **SMALL) as llm:
        assert not redrafted(llm, "eagle")


def test_a_registered_head_that_does_not_fit_is_a_line(tiny: Tiny, home: Path, tmp_path: Path) -> None:
    write_eagle3(tmp_path / "head.gguf", layers=(1, 2, 7))
    register(file_identity(read_header(tiny())), tmp_path / "head.gguf", EAGLE)
    with edgespec.load(tiny(), **SMALL) as llm:
        assert llm.drafter == "suffix,lookup"
        (note,) = (note for note in llm.notes if note.startswith("going on without heads: "))
        assert "reads the layers 1, 2, 7" in note


def test_mtp_layers_join_in_auto_and_give_way_to_a_head(tiny: Tiny, home: Path, tmp_path: Path) -> None:
    path = write_mtp(tmp_path / "mtp.gguf")
    with edgespec.load(path, **SMALL) as llm:
        assert llm.drafter == "suffix,lookup,mtp"
        plain = llm.complete(TEXT, max_tokens=24, seed=3, verify="seed", draft_max=0)
        llm.use_drafter("mtp")
        for options in ({"draft_max": 3}, {}):
            assert llm.complete(TEXT, max_tokens=24, seed=3, verify="seed", **options).tokens == plain.tokens
    head = tmp_path / "own.gguf"
    write_eagle(own_head(), head)
    with edgespec.load(path, heads=head, **SMALL) as llm:
        assert llm.drafter == "suffix,lookup,eagle"
        assert not redrafted(llm, "mtp")  # they are there, and a load brings them
        assert redrafted(llm, "auto")
        assert llm.drafter == "suffix,lookup,eagle"
    with edgespec.load(path, drafter="lookup", **SMALL) as llm:
        assert llm.mtp is None


def test_a_plan_takes_a_head_that_is_cheap(tiny: Tiny, head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stated times: nothing here depends on how fast this machine is."""

    class Stated(Costs):
        def observe(self, *_: object, **__: object) -> None:
            pass

    moments = itertools.count()
    for module in ("generation", "proposing", "rounds"):
        steady = SimpleNamespace(perf_counter=lambda: next(moments) / 1000)
        monkeypatch.setattr(f"edgespec.{module}.time", steady)
    monkeypatch.setattr(HeadContext, "step_ms", 0.1)
    few = dict.fromkeys(range(60, 62), 100.0)
    with edgespec.load(tiny(), heads=head, drafter="eagle", **SMALL) as llm:
        costs = Stated(CostTable((1, 2, 4, 16), (10.0, 10.1, 10.2, 10.4)))
        drafter: PlannedDrafter = planned(("eagle",), llm.resources(), costs, remaining=200)
        assert drafter.features is not None
        assert drafter.states is None
        request = GenerationRequest(
            prompt=llm.encode(TEXT), max_tokens=60, params=SamplingParams(temperature=1.0, seed=1, logit_bias=few)
        )
        generation = generate(llm.target, request, drafter)
        list(generation)
        assert generation.stats.sources["eagle"].drafted > 10
        assert generation.stats.sources["eagle"].accepted > 3


def test_a_head_in_a_process_of_its_own(tiny: Tiny, head: Path) -> None:
    with edgespec.load(tiny(), heads=head, drafter="eagle", isolated=True, **SMALL) as llm:
        reply = llm.complete(TEXT, max_tokens=12, temperature=0, draft_max=3)
        assert reply.drafter == "eagle"
        assert reply.stats.sources["eagle"].drafted > 5
