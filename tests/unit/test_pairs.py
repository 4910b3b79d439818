"""A remembered draft is used while it is there and the same; the catalogue's partner where none is remembered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.models import pairs
from edgespec.models.header import Header, read_header
from edgespec.models.usage import Lease, last_used, users
from edgespec.tiny_gguf import TinyVocab, write_tiny
from model_places import Places, make_places


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    made = make_places(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def pair(places: Places) -> tuple[Header, Header]:
    return (
        read_header(write_tiny(places.own / "target.gguf")),
        read_header(write_tiny(places.own / "draft.gguf", seed=1)),
    )


def test_nothing_is_known_at_first(pair: tuple[Header, Header]) -> None:
    target, _ = pair
    assert pairs.remembered(target) is None
    assert pairs.partner(target) is None
    assert pairs.forget(target) is False


def test_what_is_remembered_is_the_partner_until_forgotten(pair: tuple[Header, Header]) -> None:
    target, draft = pair
    pairs.remember(target, draft, measured=True)
    assert pairs.remembered(target) == draft.path
    found = pairs.partner(target)
    assert found is not None
    assert found.path == draft.path
    assert "draft.gguf" in found.line
    assert "edgespec pair" in found.line
    assert pairs.draft_file("auto", target.path) == (found.path, found.line)
    assert pairs.forget(target) is True
    assert pairs.partner(target) is None


def test_that_no_draft_pays_is_remembered_too(pair: tuple[Header, Header]) -> None:
    target, _ = pair
    pairs.remember(target, None, measured=True)
    assert pairs.pairing(target) == pairs.Pairing(None, True)
    assert pairs.partner(target) is None


def test_a_draft_that_is_gone_or_changed_is_not_used_and_said(
    pair: tuple[Header, Header], caplog: pytest.LogCaptureFixture
) -> None:
    target, draft = pair
    pairs.remember(target, draft, measured=False)
    write_tiny(draft.path, seed=2)
    assert pairs.partner(target) is None
    assert "another file now" in caplog.text
    draft.path.unlink()
    assert pairs.partner(target) is None
    assert "not there any more" in caplog.text


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"draft": 1, "identity": 2, "measured": 3}', "\xff"])
def test_a_damaged_note_is_passed_over(places: Places, pair: tuple[Header, Header], damage: str) -> None:
    target, draft = pair
    pairs.remember(target, draft, measured=False)
    (note,) = (places.own.parent / "pairs").iterdir()
    note.write_text(damage, "latin-1")
    assert pairs.partner(target) is None


def test_the_catalogues_partner_is_used_where_it_fits(
    places: Places, pair: tuple[Header, Header], caplog: pytest.LogCaptureFixture
) -> None:
    target, draft = pair
    entry = (
        '[[model]]\nname = "{0}"\ntitle = "{0}"\nfamily = "f"\nrole = "both"\nfile = "{0}.gguf"\nquant = "F32"\n'
        'size = 1000000\ncontext = 512\nlicense = "mit"\nmin_ram_gb = 4\nsources = [{{ hub = "user/{0}" }}]\n'
    )
    text = entry.format("target") + 'draft = "draft"\n' + entry.format("draft")
    (places.own.parent / "catalog.toml").write_text(text)
    found = pairs.partner(target)
    assert found is not None
    assert found.path == draft.path
    assert "catalogue" in found.line
    write_tiny(draft.path, vocab=TinyVocab(swap=(40, 300)))
    assert pairs.partner(target) is None
    assert "cannot draft for target.gguf: token 40" in caplog.text


def test_a_lease_is_seen_by_others_until_it_ends(places: Places, pair: tuple[Header, Header]) -> None:
    target, draft = pair
    assert last_used(target.path) is None
    lease = Lease([target.path])
    assert users(target.path) == (os.getpid(),)
    assert users(draft.path) == ()
    assert last_used(target.path) is not None
    (places.own / "alias.gguf").symlink_to(target.path)
    assert users(places.own / "alias.gguf") == (os.getpid(),)
    lease.end()
    lease.end()
    assert users(target.path) == ()
    assert last_used(target.path) is not None


def test_the_lease_of_a_killed_program_counts_for_nothing(places: Places, pair: tuple[Header, Header]) -> None:
    target, _ = pair
    code = "import sys, os; from pathlib import Path; from edgespec.models.usage import Lease\n"
    code += "Lease([Path(sys.argv[1])]); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(target.path)], check=False)
    (note,) = (places.own.parent / "running").iterdir()
    assert users(target.path) == ()
    assert not note.exists()
    record = {"pid": os.getpid(), "started": 1.0, "files": [list(_number(target.path))]}  # the number was given again
    note.write_text(json.dumps(record))
    assert users(target.path) == ()


@pytest.mark.parametrize("damage", ["", "[]", '{"pid": "x"}', '{"pid": -5, "started": 0, "files": [[1, 2]]}'])
def test_damaged_notes_of_leases_are_passed_over(places: Places, pair: tuple[Header, Header], damage: str) -> None:
    target, _ = pair
    running = places.own.parent / "running"
    running.mkdir()
    (running / "1-0.json").write_text(damage)
    assert users(target.path) == ()


def test_files_outside_our_places_leave_no_trace(places: Places, tiny: Callable[..., Path]) -> None:
    Lease([tiny()]).end()
    assert last_used(tiny()) is None
    assert not (places.own.parent / "running").exists()


def _number(path: Path) -> tuple[int, int]:
    return path.stat().st_dev, path.stat().st_ino
