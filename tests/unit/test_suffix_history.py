"""Past replies on disk: private, capped, whole whatever happens, off by default, one file per vocabulary."""

from __future__ import annotations

import logging
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgespec
from edgespec.drafters.suffix_history import MAX_TOKENS, SuffixHistory, clear_history, history_folder
from edgespec.errors import BadRequestError
from edgespec.llama import LoadSettings, Model
from edgespec.tiny_gguf import TinyVocab

GREEDY = {"temperature": 0, "max_tokens": 24, "draft_max": 3}
SMALL = {"ctx_size": 128, "threads": 1}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def after(history: SuffixHistory, *present: int) -> list[int]:
    """What followed these tokens in the kept replies, longest and latest first."""
    index = history.index()
    return [] if index is None else [match.text[match.next] for match in index.matches(present, 16)]


def bits(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


posix = pytest.mark.skipif(sys.platform == "win32", reason="permission bits")


def test_replies_are_kept_for_later_processes() -> None:
    SuffixHistory("v", 100).add([1, 2, 3])
    SuffixHistory("v", 100).add((1, 2, 4))
    assert after(SuffixHistory("v", 100), 1, 2) == [4, 3]


def test_nothing_kept_is_no_index_and_no_file() -> None:
    history = SuffixHistory("v", 100)
    history.add([])
    assert history.index() is None
    assert not history_folder().exists()


def test_what_another_process_adds_is_seen_and_an_unchanged_file_is_indexed_once() -> None:
    mine, other = SuffixHistory("v", 100), SuffixHistory("v", 100)
    mine.add([1, 2, 3])
    index = mine.index()
    assert index is not None
    assert mine.index() is index
    other.add([1, 2, 4])
    assert after(mine, 1, 2) == [4, 3]


def test_each_vocabulary_has_its_own_file() -> None:
    SuffixHistory("one", 100).add([1, 2, 3])
    assert after(SuffixHistory("two", 100), 1, 2) == []


@posix
def test_only_the_user_can_read_it() -> None:
    history_folder().mkdir(parents=True, mode=0o755)
    history = SuffixHistory("v", 100)
    for _ in range(2):
        history.add([1, 2, 3])
        assert bits(history.path) == 0o600
        assert bits(history.path.parent) == 0o700


def test_the_oldest_replies_make_room() -> None:
    history = SuffixHistory("v", 100, max_tokens=12)
    for i in range(10):
        history.add([1, 2, 10 + i])
        assert history.path.stat().st_size <= 4 * 12 + 64
    assert after(history, 1, 2) == [19, 18, 17]
    history.add([*range(50, 70)])  # longer than the cap: its end is kept
    assert after(history, 67, 68) == [69]
    assert after(history, 1, 2) == []
    assert after(history, 59, 60) == [61]
    assert after(history, 58, 59) == []
    assert 4 * MAX_TOKENS < 1 << 20


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0\0\0\0",
    "one bit": lambda data: data[:-3] + bytes([data[-3] ^ 4]) + data[-2:],
    "another program's": lambda data: b"SQLite format 3\0" + data,
    "much too long": lambda data: data + bytes(1000),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_ignored_said_and_rewritten(
    damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    history = SuffixHistory("v", 100, max_tokens=64)
    history.add([1, 2, 3])
    history.path.write_bytes(damage(history.path.read_bytes()))
    with caplog.at_level(logging.WARNING, "edgespec"):
        assert after(SuffixHistory("v", 100, max_tokens=64), 1, 2) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"suffix history {history.path} is damaged and starts anew"
    ]
    caplog.clear()
    history.add([1, 2, 7])
    assert after(history, 1, 2) == [7]


def test_ids_that_the_vocabulary_lacks_make_a_file_unusable(caplog: pytest.LogCaptureFixture) -> None:
    SuffixHistory("v", 100).add([1, 2, 99])
    assert after(SuffixHistory("v", 99), 1, 2) == []
    assert "damaged" in caplog.text


def test_what_cannot_be_written_or_read_is_said_and_stops_nothing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.write_text("a file where a folder should be")
    history = SuffixHistory("v", 100)
    history.add([1, 2, 3])
    assert history.index() is None
    assert "cannot keep the reply" in caplog.text
    home.unlink()
    history.path.mkdir(parents=True)
    assert after(history, 1, 2) == []
    assert "is not used: not a regular file" in caplog.text
    history.add([1, 2, 3])
    assert [path.suffix for path in history_folder().iterdir()] == [".bin"]  # nothing half-written is left


WRITER = """
import sys
from edgespec.drafters.suffix_history import SuffixHistory
history = SuffixHistory("v", 1000)
for i in range(40):
    history.add([1, 2, int(sys.argv[1]) + i])
    assert history.index() is not None
"""


def test_processes_that_write_at_once_leave_a_whole_file(caplog: pytest.LogCaptureFixture) -> None:
    writers = [subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, str(n)]) for n in (100, 200, 300)]
    history = SuffixHistory("v", 1000)
    while any(writer.poll() is None for writer in writers):
        history.index()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert after(history, 1, 2)[0] in {139, 239, 339}
    assert set(after(history, 1, 2)) <= {n + i for n in (100, 200, 300) for i in range(40)}
    assert caplog.text == ""
    assert [path.suffix for path in history_folder().iterdir()] == [".bin"]


def test_clearing_deletes_every_vocabularys_file_and_what_a_crash_left() -> None:
    assert clear_history() == 0
    first, second = SuffixHistory("one", 100), SuffixHistory("two", 100)
    first.add([1, 2, 3])
    second.add([1, 2, 3])
    (history_folder() / "abc.tmp").write_bytes(b"1")
    assert clear_history() == 2
    assert list(history_folder().iterdir()) == []
    assert after(first, 1, 2) == []
    first.add([1, 2, 4])
    assert after(first, 1, 2) == [4]


# ---- the door -----------------------------------------------------------------------------------------------


def kept(vocab_size: int) -> list[int]:
    (path,) = history_folder().iterdir()
    history = SuffixHistory(path.stem, vocab_size)
    return history._read().tolist()


def test_off_by_default(tiny: Callable[..., Path]) -> None:
    with edgespec.load(tiny(), **SMALL) as llm:
        llm.complete("and the", **GREEDY)
    assert not history_folder().exists()


def test_replies_are_kept_and_serve_later_ones(tiny: Callable[..., Path]) -> None:
    options = {"drafter": "suffix", **SMALL}
    with edgespec.load(tiny(), **options) as llm:
        alone = llm.complete("and the", **GREEDY)
    with edgespec.load(tiny(), suffix_history=True, **options) as llm:
        first = llm.complete("and the", **GREEDY)
        assert kept(llm.target.vocab.size) == [*first.tokens, -1]
        with llm.stream("and the", **GREEDY) as stream:  # closed early: what was said so far is kept, once
            next(stream)
        assert kept(llm.target.vocab.size) == [*first.tokens, -1, *stream.reply.tokens, -1]
    with edgespec.load(tiny(), suffix_history=True, **options) as llm:
        second = llm.complete("and the", **GREEDY)
    assert alone.tokens == first.tokens == second.tokens
    assert alone.stats.drafted == first.stats.drafted
    assert second.stats.accepted > first.stats.accepted
    assert second.stats.rounds < first.stats.rounds


def test_a_model_with_another_vocabulary_sees_nothing_of_it(tiny: Callable[..., Path]) -> None:
    other = tiny(vocab=TinyVocab(swap=(100, 101)))
    for path in (tiny(), other):
        with edgespec.load(path, suffix_history=True, **SMALL) as llm:
            assert llm.history is not None
            assert llm.history.index() is None
            llm.complete("and the", **GREEDY)
    assert len(list(history_folder().iterdir())) == 2


def test_identity_is_of_the_vocabulary_alone(tiny: Callable[..., Path]) -> None:
    def identity(path: Path) -> str:
        with Model(path, LoadSettings(n_ctx=64, threads=1, buffers="none")) as model:
            return model.vocab.identity

    names = [identity(tiny()), identity(tiny(n_layer=1)), identity(tiny(vocab=TinyVocab(swap=(100, 101))))]
    assert names[0] == names[1] != names[2]
    assert all(len(name) == 32 and name.isalnum() for name in names)


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_the_option_is_true_or_false(tiny: Callable[..., Path], value: object) -> None:
    with pytest.raises(BadRequestError, match=r"suffix_history is .*; it must be True or False"):
        edgespec.load(tiny(), suffix_history=value, **SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_without_the_suffix_drafter_it_is_refused(tiny: Callable[..., Path], drafter: str) -> None:
    with pytest.raises(BadRequestError, match="serves the suffix drafter; add suffix"):
        edgespec.load(tiny(), suffix_history=True, drafter=drafter, **SMALL)
