"""The history through its front door: a tree of messages, deletion with undo, and a file that is safe to have."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.errors import BadRequestError, HistoryDamagedError, HistoryError
from edgespec.history import History, Message, history_file, schema, turns

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="file modes of POSIX")


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db") as history:
        yield history


def texts(path: tuple[Message, ...]) -> list[str]:
    return [message.text for message in path]


def exchange(saved: History, conversation: int, parent: int | None, question: str, answer: str) -> tuple[int, int]:
    asked = saved.add_message(conversation, parent, "user", question)
    return asked, saved.add_message(conversation, asked, "assistant", answer, model="m.gguf")


def test_an_edit_and_a_second_answer_are_branches(saved: History) -> None:
    talk = saved.new_conversation(model="m.gguf")
    first, one = exchange(saved, talk, None, "A bird?", "Jay.")
    _, second = exchange(saved, talk, one, "A fish?", "Carp.")
    other = saved.add_message(talk, first, "assistant", "Owl.")  # regenerated
    assert texts(saved.path(talk)) == ["A bird?", "Owl."]
    edited, heron = exchange(saved, talk, None, "A large bird?", "Heron.")  # the first question, edited
    assert texts(saved.path(talk)) == ["A large bird?", "Heron."]
    assert [(m.id, m.branch, m.branches) for m in saved.branches(first)] == [(first, 0, 2), (edited, 1, 2)]

    saved.switch(first)
    assert texts(saved.path(talk)) == ["A bird?", "Owl."]  # as it was last used
    saved.switch(one)
    assert texts(saved.path(talk)) == ["A bird?", "Jay.", "A fish?", "Carp."]
    assert [m.branch for m in saved.path(talk)] == [0, 0, 0, 0]
    saved.switch(heron)
    saved.switch(second)  # deep in another branch: all of the way there is in use
    assert texts(saved.path(talk)) == ["A bird?", "Jay.", "A fish?", "Carp."]
    assert saved.branches(other) == tuple(map(saved.message, (one, other)))
    assert saved.conversation(talk).messages == 7


def test_the_list_is_in_the_order_of_changes_and_not_of_clocks(tmp_path: Path) -> None:
    clock = iter(range(10_000_000, 0, -1000))  # set back before every call
    with History(tmp_path / "h.db", now=lambda: next(clock)) as saved:
        a, b, c = (saved.new_conversation(title=title) for title in "abc")
        assert [one.id for one in saved.conversations()] == [c, b, a]
        exchange(saved, a, None, "again", "yes")
        assert [one.id for one in saved.conversations()] == [a, c, b]
        assert [one.id for one in saved.conversations(1, 1)] == [c]
        saved.update(b, title="renamed")
        assert [one.title for one in saved.conversations()] == ["a", "c", "renamed"]
        latest = saved.latest()
        assert latest is not None
        assert latest.id == a  # the others have no messages
        raw = saved.new_conversation(raw=True)
        exchange(saved, raw, None, "Once", " upon")
        assert saved.latest() == latest


def test_what_was_kept_with_a_conversation(saved: History) -> None:
    params = {"temperature": 0.3, "stop": "x", "seed": None, "top_k": 4, "raw": True}
    talk = saved.new_conversation(title="t", model="m", system="Be brief.", params=params)
    found = saved.conversation(talk)
    assert (found.title, found.model, found.system, dict(found.params)) == ("t", "m", "Be brief.", params)
    saved.update(talk, model="n", params={})
    saved.add_message(talk, None, "user", " A\nlong\tline ")
    found = saved.conversation(talk)
    assert (found.title, found.label, found.preview, found.model, found.params) == ("t", "t", "A long line", "n", {})
    for bad in ({"a": [1]}, {"a": float("nan")}):
        with pytest.raises(BadRequestError, match=r"parameter 'a' of a conversation is .*; give text, a number"):
            saved.update(talk, params=bad)  # type: ignore[arg-type]


def test_delete_can_be_undone_until_it_is_purged(saved: History) -> None:
    a, b = saved.new_conversation(), saved.new_conversation()
    exchange(saved, a, None, "alpha", "beta")
    exchange(saved, b, None, "gamma", "delta")
    saved.delete(a)
    assert [one.id for one in saved.conversations()] == [b]
    assert [one.id for one in saved.conversations(deleted=True)] == [a]
    with pytest.raises(BadRequestError, match=rf"conversation {a} is deleted; .* --undo {a}` brings it back"):
        saved.path(a)
    with pytest.raises(BadRequestError, match="is deleted"):
        saved.delete(a)
    saved.restore(a)
    assert texts(saved.path(a)) == ["alpha", "beta"]
    with pytest.raises(BadRequestError, match="is not deleted"):
        saved.purge(a)
    saved.delete(a)
    assert saved.purge(a) == 1
    assert saved.purge() == 0
    with pytest.raises(BadRequestError, match="there is no conversation"):
        saved.restore(a)
    saved.close()
    folder = saved.file.parent
    left = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"gamma" in left
    assert b"alpha" not in left  # off the disk, not just out of the list


@pytest.mark.parametrize("number", [0, -1, 99, 2**63, 2**200])
def test_numbers_that_mean_nothing(saved: History, number: int) -> None:
    talk = saved.new_conversation()
    for call in (saved.conversation, saved.path, saved.delete, saved.restore, saved.purge, saved.export_markdown):
        with pytest.raises(BadRequestError, match="there is no conversation"):
            call((number,) if call == saved.export_markdown else number)  # type: ignore[operator]
    for call in (saved.message, saved.switch, saved.branches, saved.details):
        with pytest.raises(BadRequestError, match=r"there is no .*message"):
            call(number)
    for call in (lambda: saved.add_message(talk, number, "user", ""), lambda: saved.begin_reply(talk, number)):
        with pytest.raises(BadRequestError, match=r"there is no .*message"):
            call()


def test_messages_that_are_refused(saved: History) -> None:
    a, b = saved.new_conversation(), saved.new_conversation()
    mine = saved.add_message(a, None, "user", "hello")
    with pytest.raises(BadRequestError, match="the role of a message is 'oracle'; choose one of"):
        saved.add_message(a, mine, "oracle", "")
    with pytest.raises(BadRequestError, match=f"message {mine} is not one of conversation {b}"):
        saved.add_message(b, mine, "user", "")
    assert saved.conversation(a).messages == 1


def test_together_is_all_or_nothing(saved: History) -> None:
    with saved.together():
        talk = saved.new_conversation()
        saved.add_message(talk, None, "user", "kept")
        assert texts(saved.path(talk)) == ["kept"]  # its own changes are seen inside

    def fails() -> None:
        with saved.together():
            saved.update(talk, title="dropped")
            saved.add_message(talk, None, "oracle", "refused")

    with pytest.raises(BadRequestError):
        fails()
    assert (texts(saved.path(talk)), saved.conversation(talk).title) == (["kept"], "")


def test_turns_for_a_model(saved: History) -> None:
    talk = saved.new_conversation()
    last = None
    for role, text in (("user", "a"), ("user", "b"), ("tool", "c"), ("assistant", ""), ("assistant", "d")):
        last = saved.add_message(talk, last, role, text)
    expected = [{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "d"}]
    assert turns("", saved.path(talk)) == expected
    assert turns("s", saved.path(talk)) == [{"role": "system", "content": "s"}, *expected]


def test_hostile_texts_are_data(saved: History) -> None:
    texts_ = ["\x1b]52;c;AAAA\x07\0 [/INST] '); DROP TABLE message; --", "\u202e\ufeff\U000e0001", "鳥" * 3, "\ud800x"]
    talk = saved.new_conversation(title=texts_[0], system=texts_[1])
    last = None
    for text in texts_:
        last = saved.add_message(talk, last, "user", text, model=text)
    assert texts(saved.path(talk)) == [*texts_[:3], "\ufffdx"]  # a lone surrogate has no UTF-8 form
    assert (saved.conversation(talk).title, saved.conversation(talk).system) == tuple(texts_[:2])


# The file -------------------------------------------------------------------------------------------------------------


@POSIX
def test_the_file_is_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    place = history_file()
    place.parent.mkdir(parents=True)
    place.touch()
    place.chmod(0o644)
    place.parent.chmod(0o755)
    before = os.umask(0)
    try:
        with History() as saved:
            saved.new_conversation()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.parent.iterdir()}
            assert modes == {"history.db": 0o600, "history.db-wal": 0o600, "history.db-shm": 0o600}
            assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "h.db"
    History(place).close()
    with sqlite3.connect(place) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    before = place.read_bytes()
    with pytest.raises(HistoryError, match=r"of version 99, written by a newer EdgeSpec; .*update EdgeSpec"):
        History(place)
    assert place.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["h.db"]


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "h.db"
    with sqlite3.connect(place) as raw:
        raw.execute("CREATE TABLE theirs (a)")
    raw.close()
    before = place.read_bytes()
    with pytest.raises(HistoryError, match="is a database of another program; move it away"):
        History(place)
    assert place.read_bytes() == before


def fill(place: Path) -> int:
    with History(place) as saved:
        talk = saved.new_conversation()
        for i in range(200):
            saved.add_message(talk, None, "user", f"message {i} " * 50)
    return place.stat().st_size


def damage_all(place: Path) -> None:
    place.write_bytes(bytes(fill(place)))  # what a power cut leaves on some disks


def damage_header(place: Path) -> None:
    fill(place)
    place.write_bytes(b"no database at all" + place.read_bytes()[18:])


def damage_schema(place: Path) -> None:
    fill(place)
    data = bytearray(place.read_bytes())
    data[100:4096] = b"\xff" * 3996
    place.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_all, damage_header, damage_schema])
def test_a_damaged_file_is_put_aside_and_a_new_one_begins(tmp_path: Path, damage: object) -> None:
    place = tmp_path / "h.db"
    assert callable(damage)
    for n in (1, 2):
        damage(place)
        before = place.read_bytes()
        with pytest.raises(HistoryDamagedError, match=rf"lies aside as .*h.db.damaged-{n}; a new one begins"):
            History(place)
        assert Path(f"{place}.damaged-{n}").read_bytes() == before
        with History(place) as saved:
            assert saved.conversations() == ()


def test_damage_found_later_is_told_as_well(tmp_path: Path) -> None:
    place = tmp_path / "h.db"
    fill(place)
    data = bytearray(place.read_bytes())
    for page in range(4096 * 30, len(data), 4096):
        data[page : page + 64] = b"\xff" * 64
    place.write_bytes(data)
    with History(place) as saved:
        with pytest.raises(HistoryDamagedError, match="lies aside as"):
            saved.export_json()
        with pytest.raises(HistoryError, match="is closed; open it again"):
            saved.conversations()
    assert Path(f"{place}.damaged-1").stat().st_size == len(data)


def test_a_damaged_index_is_built_anew(saved: History) -> None:
    talk = saved.new_conversation()
    exchange(saved, talk, None, "a kingfisher", "yes")
    with sqlite3.connect(saved.file) as raw:
        raw.execute("UPDATE search_data SET block = x'00ff00ff' WHERE id > 10")
    raw.close()
    with pytest.raises(HistoryError, match=r"index of .* was damaged and has been built anew; try again"):
        saved.search("kingfisher")
    assert [hit.match for hit in saved.search("kingfisher")] == ["kingfisher"]


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir(mode=0o500)
    with pytest.raises(HistoryError, match=r"cannot be opened: Permission denied"):
        History(tmp_path / "h" / "h.db")


def test_a_place_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match=r"the history .* cannot be opened"):
        History(tmp_path / "file" / "h.db")
    with pytest.raises(HistoryError, match=r"the history .* cannot be used"):
        History(tmp_path)


# Versions -------------------------------------------------------------------------------------------------------------


def test_an_older_file_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "h.db"
    with History(place) as saved:
        exchange(saved, saved.new_conversation(), None, "kept", "yes")
    added = ("ALTER TABLE conversation ADD COLUMN colour TEXT", "UPDATE conversation SET colour = 'red'")
    broken = ("CREATE TABLE half (a)", "SELECT no_such_function()")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, added, broken))
    monkeypatch.setattr("edgespec.history.database.MIGRATIONS", schema.MIGRATIONS)
    with pytest.raises(HistoryError, match="cannot be used: no such function"):
        History(place)
    with sqlite3.connect(place) as raw:  # the version that works is in, of the other one nothing is
        assert raw.execute("SELECT colour FROM conversation").fetchall() == [("red",)]
        assert raw.execute("PRAGMA user_version").fetchone() == (2,)
        assert not raw.execute("SELECT * FROM sqlite_master WHERE name = 'half'").fetchall()
    raw.close()
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-1])
    with History(place) as saved:
        assert texts(saved.path(1)) == ["kept", "yes"]


def test_an_old_sqlite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    with pytest.raises(HistoryError, match=r"has SQLite .*, and the history needs 3\.35\.0 or newer"):
        History(tmp_path / "h.db")
