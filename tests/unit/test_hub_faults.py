"""Downloads that go wrong: the right file comes of it in the end, or none and the reason."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hub_fixtures import FILE, NAME, ONCE, QUICK, Cache, hub, model_bytes, store

from edgespec.errors import (
    DamagedDownloadError,
    DownloadError,
    EdgeSpecError,
    GatedError,
    ModelNotFoundError,
    NoSpaceError,
)
from edgespec.models import hub as hub_module
from edgespec.models.hub import HubName, fetch, find_cached
from fake_hub import FakeHub, Fault, Repo

__all__ = ["hub", "model_bytes", "store"]

FETCH = "from edgespec.models.hub import *; print(fetch(HubName('maker', 'Tiny-GGUF')))"


def partial(store: Cache) -> Path:
    (path,) = (store.repo / "blobs").iterdir()
    assert path.name.endswith(".edgespec.incomplete")
    return path


def leave(hub: FakeHub, name: HubName, size: int) -> None:
    """A fetch that ends with an error once so many bytes have arrived."""
    hub.faults["bytes"] = [Fault(cut=size), Fault(status=500)]
    with pytest.raises(DownloadError) as caught:
        fetch(name, patience=ONCE)
    assert caught.value.exit_code == 1
    hub.faults["bytes"] = []


def test_cut_at_100_places_it_is_kept_and_gone_on_from(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    places = random.Random(4).sample(range(1, len(model_bytes)), 97)
    for place in (*places, 1, 3, len(model_bytes) - 1):
        name = HubName("maker", f"Cut-{place}-GGUF")
        hub.repos[name.repo_id] = Repo({FILE: model_bytes})
        leave(hub, name, place)
        assert find_cached(name) is None
        assert fetch(name, patience=ONCE).read_bytes() == model_bytes
        assert hub.asked[-1].start == place
        left = store.folder / f"models--maker--Cut-{place}-GGUF" / "blobs"
        assert [path.stat().st_size for path in left.iterdir()] == [len(model_bytes)]


def test_one_fetch_outlasts_many_cuts(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    """Each try that gets on a good way is a new beginning: only failures in a row are counted."""
    step = 1 << 16
    big = model_bytes + bytes(10 * step)
    hub.repos[NAME.repo_id].files[FILE] = big
    hub.faults["bytes"] = [Fault(cut=step)] * 8
    assert fetch(NAME, patience=QUICK).read_bytes() == big
    assert [one.start or 0 for one in hub.asked_for("bytes")] == [step * n for n in range(9)]


def test_a_killed_process_leaves_what_it_had(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.faults["bytes"] = [Fault(stall=150_000)]
    process = subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not any(path.stat().st_size > 100_000 for path in store.repo.glob("blobs/*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    size = partial(store).stat().st_size
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes
    assert hub.asked[-1].start == size > 100_000


def test_two_processes_download_once(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.pace.clear()
    processes = [subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        deadline = time.monotonic() + 30
        while len(hub.asked_for("describe")) < 2 or not hub.asked_for("bytes"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)  # the second comes to the lock, or would ask for the bytes too if there were none
        hub.pace.set()
        paths = {Path(process.communicate(timeout=30)[0].decode().strip()) for process in processes}
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0]
    (path,) = paths
    assert path.read_bytes() == model_bytes
    assert len(hub.asked_for("bytes")) == 1


def test_other_bytes_are_not_kept(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    changed = bytearray(model_bytes)
    changed[-1] ^= 1
    cases = {
        "hash": Fault(body=bytes(changed)),
        "bytes of it": Fault(body=model_bytes[:-1]),
        "bytes of it, not": Fault(body=model_bytes + b"more"),
        "a web page": Fault(page=True),
        "what came is a web page": Fault(body=b"<html>" + bytes(len(model_bytes) - 6)),
        "what came is a Git LFS pointer": Fault(body=b"version https://git-lfs".ljust(len(model_bytes))),
    }
    for words, fault in cases.items():
        hub.faults["bytes"] = [fault]
        with pytest.raises(DamagedDownloadError, match=words) as caught:
            fetch(NAME, patience=QUICK)
        assert caught.value.exit_code == 4
        assert "\n" not in str(caught.value)
        assert store.files == []


@pytest.mark.parametrize("what", ["list", "describe"])
def test_a_login_page_in_place_of_the_hub_is_named(hub: FakeHub, store: Cache, what: str) -> None:
    hub.faults[what] = [Fault(page=True)]
    with pytest.raises(DamagedDownloadError, match="login page or a proxy") as caught:
        fetch(NAME, patience=QUICK)
    assert caught.value.exit_code == 4
    assert store.files == []


def test_a_login_page_on_the_way_does_not_cost_what_had_come(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.faults["bytes"] = [Fault(cut=1000), Fault(page=True)]
    with pytest.raises(DamagedDownloadError, match="login page"):
        fetch(NAME, patience=QUICK)
    assert partial(store).stat().st_size == 1000
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes
    assert hub.asked[-1].start == 1000


@pytest.mark.parametrize("beginning", [b"GGUF of another file", b"GGUF" * 100_000])
def test_a_spoilt_beginning_is_thrown_away(hub: FakeHub, store: Cache, model_bytes: bytes, beginning: bytes) -> None:
    leave(hub, NAME, 1)
    partial(store).write_bytes(beginning)
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes


@pytest.mark.parametrize("fault", [Fault(whole=True), Fault(status=416), Fault(status=403), Fault(status=503)])
def test_a_server_that_does_not_go_on_from_the_middle(
    hub: FakeHub, store: Cache, model_bytes: bytes, fault: Fault
) -> None:
    """It sends all of it, or refuses the range, or the signed address has expired, or it is busy."""
    hub.faults["bytes"] = [Fault(cut=1000), fault]
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes
    assert [one.start for one in hub.asked_for("bytes")][:2] == [None, 1000]


def test_a_silent_connection_is_given_up(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.faults["bytes"] = [Fault(stall=70_000)]
    assert fetch(NAME, patience=replace(QUICK, silence_s=0.2)).read_bytes() == model_bytes
    assert [one.start for one in hub.asked_for("bytes")] == [None, 70_000]


@pytest.mark.parametrize("what", ["list", "describe", "bytes"])
def test_a_failing_server_is_asked_a_bounded_number_of_times(
    hub: FakeHub, store: Cache, model_bytes: bytes, what: str
) -> None:
    hub.faults[what] = [Fault(status=status) for status in (500, 429)]
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes
    name = HubName("maker", "Other-GGUF")
    hub.repos[name.repo_id] = Repo({FILE: model_bytes})
    hub.faults[what] = [Fault(status=502)] * 10
    with pytest.raises(DownloadError, match="failed 3 times in a row: HTTP status 502") as caught:
        fetch(name, patience=QUICK)
    assert caught.value.exit_code == 1
    assert len(hub.faults[what]) == 7
    assert find_cached(name) is None


def test_a_server_says_when_to_come_back(hub: FakeHub, store: Cache) -> None:
    """And is believed up to a limit: an hour in its answer does not hold a user up."""
    hub.faults["describe"] = [Fault(status=429, headers=(("Retry-After", "3600"),))]
    fetch(NAME, patience=QUICK)
    assert len(hub.asked_for("describe")) == 2


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        ((401, "GatedRepo"), GatedError, "is gated: accept its terms at http://.*/maker/Tiny-GGUF"),
        ((403, "GatedRepo"), GatedError, "is gated"),
        ((403, ""), GatedError, "is gated"),
        ((401, "RepoNotFound"), ModelNotFoundError, "or it is private"),
    ],
)
def test_a_model_that_is_not_for_everyone(
    hub: FakeHub, store: Cache, refusal: tuple[int, str], kind: type[EdgeSpecError], words: str
) -> None:
    hub.repos[NAME.repo_id].refusal = refusal
    with pytest.raises(kind, match=words) as caught:
        fetch(NAME, patience=QUICK)
    assert caught.value.exit_code == 3
    assert "hf_of_the_test" not in str(caught.value)
    assert store.files == []


def test_a_hub_that_tells_no_hash_is_refused(hub: FakeHub, store: Cache) -> None:
    hub.repos[NAME.repo_id].hashes[FILE] = "no-hash"
    with pytest.raises(DownloadError, match="does not say size and hash"):
        fetch(NAME, patience=QUICK)
    assert store.files == []


def test_too_large_for_the_disk_is_said_before_anything_is_sent(hub: FakeHub, store: Cache) -> None:
    hub.repos[NAME.repo_id].sizes[FILE] = 10**18
    with pytest.raises(NoSpaceError, match="needs 1,000,000,000,050 MB free") as caught:
        fetch(NAME, patience=QUICK)
    assert caught.value.exit_code == 1
    assert hub.asked_for("bytes") == []
    assert store.files == []


def test_what_has_arrived_needs_no_room_again(
    hub: FakeHub, store: Cache, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(hub, NAME, len(model_bytes) - 10)
    usage = hub_module.shutil.disk_usage(store.folder)
    monkeypatch.setattr(hub_module.shutil, "disk_usage", lambda path: usage._replace(free=hub_module.SPARE + 9))
    with pytest.raises(NoSpaceError):
        fetch(NAME, patience=QUICK)
    monkeypatch.setattr(hub_module.shutil, "disk_usage", lambda path: usage._replace(free=hub_module.SPARE + 10))
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_fills_up_keeps_nothing(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    leave(hub, NAME, 1)
    path = partial(store)
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(NoSpaceError, match="the disk is full"):
        fetch(NAME, patience=QUICK)
    assert store.files == []
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes


def test_a_cache_that_cannot_be_written_is_said(hub: FakeHub, store: Cache) -> None:
    store.folder.write_text("a file in the place of the folder")
    with pytest.raises(EdgeSpecError, match=r"cannot write .*HF_HUB_CACHE"):
        fetch(NAME, patience=QUICK)


def test_old_beginnings_are_removed(hub: FakeHub, store: Cache) -> None:
    leave(hub, NAME, 1000)
    left = partial(store)
    other = left.with_name("0" * 64 + ".edgespec.incomplete")
    other.write_bytes(b"GGUF")
    long_ago = time.time() - 30 * 86_400
    os.utime(other, (long_ago, long_ago))
    fetch(NAME, patience=QUICK)
    assert not other.exists()
    assert hub.asked[-1].start == 1000
