"""What a draft promises: from measured times where there are some, else from what a step reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgespec import pairing
from edgespec.costs import CostTable
from edgespec.llama import measure
from edgespec.models.header import read_header
from edgespec.pairing import USUAL, candidates, promise, step_bytes
from edgespec.tiny_gguf import write_tiny
from edgespec.tuning.choice import expected
from model_places import Places, make_places


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    made = make_places(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def test_a_step_reads_the_weights_but_one_row_of_input_embeddings(tiny: Callable[..., Path]) -> None:
    untied, tied = read_header(tiny()), read_header(tiny(tied=True))
    sizes = {t.name: t.nbytes for t in untied.tensors}
    assert step_bytes(untied) == sum(sizes.values()) - sizes["token_embd.weight"]
    assert step_bytes(tied) == sum(t.nbytes for t in tied.tensors)


def test_without_measured_times_the_bytes_decide(places: Places) -> None:
    target = read_header(write_tiny(places.own / "t.gguf", n_layer=6, n_embd=256))
    draft = read_header(write_tiny(places.own / "d.gguf", n_layer=1, n_embd=64))
    found = promise(target, draft)
    assert found.basis == "file sizes"
    assert found.cost_ratio == pytest.approx(step_bytes(draft) / step_bytes(target))
    table = CostTable((1,), (found.cost_ratio,))
    assert found.speedup == expected(USUAL, table, pairing._USUAL_AGREEMENT).speedup
    assert promise(draft, target).speedup < 1 < found.speedup


def test_measured_times_win(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    target = read_header(write_tiny(places.own / "t.gguf"))
    draft = read_header(write_tiny(places.own / "d.gguf", seed=1))
    times = {"t.gguf": CostTable((1, 2, 16), (10.0, 10.0, 10.0)), "d.gguf": CostTable((1,), (1.0,))}
    monkeypatch.setattr(pairing, "known_costs", lambda header: times[header.path.name])
    found = promise(target, draft)
    assert (found.basis, found.cost_ratio) == ("measured times", 0.1)
    assert found.speedup > 1.5


def test_a_table_that_a_run_has_measured_is_found_again(places: Places, open_context: Callable[..., Any]) -> None:
    path = write_tiny(places.own / "t.gguf")
    assert measure.known_costs(read_header(path)) is None
    import edgespec

    with edgespec.load(path, drafter="lookup") as llm:
        llm.measured()
    found = measure.known_costs(read_header(path))
    assert found is not None
    assert found.at(1) > 0


def test_what_tune_counted_is_used_for_its_pair(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgespec.tuned import AS_IS, Agreement, Finding, Record, Trial, folder_of, write_record

    target = read_header(write_tiny(places.own / "t.gguf", n_layer=6, n_embd=256))
    draft = read_header(write_tiny(places.own / "d.gguf", n_layer=1, n_embd=64))
    before = promise(target, draft).speedup
    for overlap, name in ((0.9, "t.gguf"), (0.1, "t.gguf"), (0.1, "another.gguf")):
        trial = Trial(AS_IS, 1, CostTable((1,), (1.0,), 0, (), 0), None, Agreement(overlap, overlap, 10))
        finding = Finding(AS_IS, None, 1, "2026-01-31", name, (trial,))
        write_record(folder_of(draft), Record(str(draft.path), None, finding))
        after = promise(target, draft).speedup
        if name == "another.gguf":
            assert after == before
        else:
            assert (after > before) is (overlap > pairing.ACCEPTANCE)


def test_candidates_are_ordered_by_what_they_promise(places: Places) -> None:
    target = read_header(write_tiny(places.own / "t.gguf", n_layer=6, n_embd=256))
    for name, layers in (("a", 4), ("b", 1), ("c", 2)):
        write_tiny(places.own / f"{name}.gguf", n_layer=layers, n_embd=64)
    write_tiny(places.own / "state.gguf", arch="mamba")
    found = candidates(target, 512)
    assert [c.name for c in found[:3]] == ["b", "c", "a"]
    speedups = [c.promise.speedup for c in found[:3] if c.promise]
    assert speedups == sorted(speedups, reverse=True)
    assert found[-1].compatible is False
    state = next(c for c in found if c.name == "state")
    assert "recurrent state" in state.reason


def test_the_catalogues_drafts_are_judged_by_family(places: Places) -> None:
    entry = (
        '[[model]]\nname = "{0}"\ntitle = "{0}"\nfamily = "{1}"\nrole = "both"\nfile = "{0}.gguf"\nquant = "F32"\n'
        'size = 1000000\ncontext = 512\nlicense = "mit"\nmin_ram_gb = 4\nsources = [{{ hub = "user/{0}" }}]\n'
    )
    text = "".join(entry.format(*names) for names in (("t", "f"), ("alike", "f"), ("unlike", "g")))
    (places.own.parent / "catalog.toml").write_text(text)
    found = {c.name: c for c in candidates(read_header(write_tiny(places.own / "t.gguf")), 512)}
    assert "t" not in found
    alike, unlike = found["alike"], found["unlike"]
    assert (alike.compatible, alike.path) == (True, None)
    assert "edgespec pull alike" in alike.reason
    assert alike.promise is not None
    assert unlike.compatible is False
    assert "another family: g, not f" in unlike.reason
    assert json.dumps([c.name for c in found.values()])
