"""Records of tuning: what is kept, what is used, and what a damaged or stale one does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from edgespec import tuned
from edgespec.costs import CostTable
from edgespec.models.header import read_header
from edgespec.tiny_gguf import write_tiny
from edgespec.tuned import AS_IS, Agreement, Finding, Perplexity, Record, Trial, tuned_copy

COSTS = CostTable((1, 4), (10.0, 12.5), 64, (), 0)
TRIALS = (
    Trial(AS_IS, 1000, COSTS, perplexity=Perplexity(12.5, 0.0, 0.0)),
    Trial("q4_0", 700, COSTS, agreement=Agreement(0.75, 0.8, 900)),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model.gguf", quant="q8_0")


def keep(model: Path, **findings: str | None) -> tuple[Path, Record]:
    """A record of `model` with findings by role: the type of its copy, which is made, or None for the file itself."""
    folder = tuned.folder_of(read_header(model))
    found: dict[str, Any] = {}
    for role, kind in findings.items():
        name = None if kind is None else f"{model.stem}-{kind}.gguf"
        if name is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"x" * 700)
        target = "large.gguf" if role == "draft" else None
        found[role] = Finding(kind or AS_IS, name, 700 if name else 1000, "2026-01-31", target, TRIALS)
    record = Record(str(model), **found)
    tuned.write_record(folder, record)
    return folder, record


def test_what_was_written_is_read(model: Path) -> None:
    folder, record = keep(model, target="q4_0", draft="q8_0")
    assert tuned.read_record(folder) == tuned.record_of(read_header(model)) == record
    assert record.files == {"model-q4_0.gguf", "model-q8_0.gguf"}


def test_each_role_has_its_own_copy(model: Path) -> None:
    folder, _ = keep(model, draft="q4_0")
    assert tuned_copy(model, "target") == (model, None)
    copy, note = tuned_copy(model, "draft")
    assert copy == folder / "model-q4_0.gguf"
    assert note is not None
    assert "q4_0 copy of model.gguf" in note
    assert "2026-01-31" in note


def test_the_file_itself_is_a_finding_too(model: Path) -> None:
    keep(model, target=None)
    assert tuned_copy(model, "target") == (model, None)


def test_without_any_record_a_file_is_not_even_opened(tmp_path: Path) -> None:
    assert tuned_copy(tmp_path / "no such file", "target") == (tmp_path / "no such file", None)


def test_another_name_for_the_file_is_the_same_file(model: Path, tmp_path: Path) -> None:
    folder, _ = keep(model, target="q4_0")
    assert tuned_copy(model.rename(tmp_path / "renamed.gguf"), "target")[0] == folder / "model-q4_0.gguf"


def test_a_file_that_changed_is_not_the_one_that_was_tuned(model: Path) -> None:
    keep(model, target="q4_0")
    write_tiny(model, quant="q8_0", seed=1)
    assert tuned_copy(model, "target") == (model, None)


@pytest.mark.parametrize(("damage", "word"), [(Path.unlink, "gone"), (lambda p: p.write_bytes(b"x"), "damaged")])
def test_a_copy_that_is_gone_or_cut_off_is_not_used(
    model: Path, caplog: pytest.LogCaptureFixture, damage: Any, word: str
) -> None:
    folder, _ = keep(model, target="q4_0")
    damage(folder / "model-q4_0.gguf")
    assert tuned_copy(model, "target") == (model, None)
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert f"copy of model.gguf is {word}" in line.getMessage()


def damaged(record: dict[str, Any], at: str, value: Any) -> str:
    place: Any = record
    *way, last = at.split(".")
    for key in way:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        ("original", 7),
        ("target", []),
        ("target.file", "../../elsewhere.gguf"),
        ("target.file", "/etc/passwd"),
        ("target.nbytes", -1),
        ("target.nbytes", "700"),
        ("target.since", None),
        ("target.trials.0.costs.ms", ["a", "b"]),
        ("target.trials.0.costs.ms", [1e999, 1]),
        ("target.trials.0.costs.widths", None),
        ("target.trials.0.perplexity", {"value": 1}),
        ("target.trials.1.agreement.positions", 0.5),
    ],
)
def test_a_damaged_record_is_none(model: Path, caplog: pytest.LogCaptureFixture, at: str, value: Any) -> None:
    folder, _ = keep(model, target="q4_0")
    path = folder / "record.json"
    path.write_text(damaged(json.loads(path.read_text("utf-8")), at, value), "utf-8")
    assert tuned_copy(model, "target") == (model, None)
    assert "record.json' is damaged" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_a_record_that_is_no_json_object_is_none(model: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    folder, _ = keep(model, target="q4_0")
    (folder / "record.json").write_bytes(content)
    assert tuned_copy(model, "target") == (model, None)
    assert len(caplog.records) == 1


def test_copies_that_a_new_record_does_not_name_are_deleted(model: Path) -> None:
    folder, _ = keep(model, target="q4_0", draft="q8_0")
    keep(model, draft="iq4_nl")
    assert {p.name for p in folder.iterdir()} == {"record.json", "model-iq4_nl.gguf"}


def test_undo_deletes_copies_and_record_and_nothing_else(model: Path, tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other.gguf", seed=1)
    keep(model, target="q4_0", draft="q8_0")
    kept, _ = keep(other, draft="q4_0")
    content = model.read_bytes()
    freed = tuned.undo(model)
    assert freed is not None
    assert freed > 1400
    assert [p.name for p in tuned.tuned_dir().iterdir()] == [kept.name]
    assert model.read_bytes() == content
    assert tuned.undo(model) is None
    assert tuned.record_of(read_header(other)) is not None


@pytest.mark.parametrize("change", ["gone", "another", "damaged record"])
def test_undo_of_what_is_not_used_any_more(model: Path, change: str) -> None:
    folder, _ = keep(model, target="q4_0")
    if change == "gone":
        model.unlink()
    elif change == "another":
        write_tiny(model, seed=5)
    else:
        (folder / "record.json").write_text("{", "utf-8")
    assert tuned.undo(model) is not None
    assert not folder.exists()
