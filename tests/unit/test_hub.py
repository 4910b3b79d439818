"""Models of the Hub: which file is fetched, where it lies, and what is asked of whom."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from hub_fixtures import FILE, NAME, QUICK, Cache, hub, model_bytes, store

from edgespec.errors import BadRequestError, DamagedDownloadError, ModelNotFoundError, OfflineError
from edgespec.models.hub import HubName, fetch, find_cached, list_files
from fake_hub import COMMIT, FakeHub, Fault, Repo

__all__ = ["hub", "model_bytes", "store"]


def named(**options: str) -> HubName:
    return HubName(NAME.user, NAME.repo, **options)


def test_the_file_lies_where_every_program_looks_for_it(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    path = fetch(NAME, patience=QUICK)
    assert path.read_bytes() == model_bytes
    assert path == Path(str(huggingface_hub.try_to_load_from_cache(NAME.repo_id, FILE, cache_dir=store.folder)))
    sha256 = hashlib.sha256(model_bytes).hexdigest()
    assert store.files == [
        f"models--maker--Tiny-GGUF/blobs/{sha256}",
        "models--maker--Tiny-GGUF/refs/main",
        f"models--maker--Tiny-GGUF/snapshots/{COMMIT}/{FILE}",
    ]
    assert path.is_symlink()
    assert not path.readlink().is_absolute()
    report = huggingface_hub.scan_cache_dir(store.folder)
    assert not report.warnings
    assert [(repo.repo_id, repo.size_on_disk) for repo in report.repos] == [(NAME.repo_id, len(model_bytes))]


def test_what_another_program_fetched_is_found_and_not_fetched_again(
    hub: FakeHub, store: Cache, model_bytes: bytes
) -> None:
    theirs = huggingface_hub.hf_hub_download(NAME.repo_id, FILE, cache_dir=store.folder, endpoint=hub.endpoint)
    hub.connections = 0
    huggingface_hub.close_session()
    for name in (NAME, named(quant="q4_k_m"), named(file=FILE), named(revision=COMMIT)):
        assert find_cached(name) == fetch(name, patience=QUICK) == Path(theirs)
    assert hub.connections == 0


def test_a_second_fetch_opens_no_connection(hub: FakeHub, store: Cache) -> None:
    path = fetch(NAME, patience=QUICK)
    huggingface_hub.close_session()
    hub.connections = 0
    assert fetch(NAME, patience=QUICK) == path == find_cached(HubName("Maker", "tiny-gguf"))
    assert hub.connections == 0


def test_the_token_goes_to_the_hub_and_nowhere_else(hub: FakeHub, store: Cache) -> None:
    fetch(NAME, patience=QUICK)
    sent = {(one.what, one.host, one.token) for one in hub.asked}
    assert sent == {
        ("list", "127.0.0.1", "Bearer hf_of_the_test"),
        ("describe", "127.0.0.1", "Bearer hf_of_the_test"),
        ("bytes", "localhost", None),
    }


def test_progress_reaches_the_size_and_never_falls(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    seen: list[tuple[str, int, int]] = []
    fetch(NAME, progress=lambda *step: seen.append(step), patience=QUICK)
    assert {total for _, _, total in seen} == {len(model_bytes)}
    for stage in ("download", "check"):
        done = [done for name, done, _ in seen if name == stage]
        assert done == sorted(done)
        assert done[-1] == len(model_bytes)


def test_a_repository_that_was_renamed_is_found(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.moved["maker/Old-GGUF"] = NAME.repo_id
    path = fetch(HubName("maker", "Old-GGUF", file=FILE), patience=QUICK)
    assert path.read_bytes() == model_bytes


def test_a_file_that_git_keeps_itself_is_checked_too(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.repos[NAME.repo_id].small = True
    assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes
    hub.repos["maker/Wrong-GGUF"] = Repo({FILE: model_bytes}, small=True, hashes={FILE: "0" * 40})
    with pytest.raises(DamagedDownloadError, match="hash"):
        fetch(HubName("maker", "Wrong-GGUF"), patience=QUICK)


def test_a_split_model_is_one_model(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    parts = {f"big/M-Q8_0-0000{n}-of-00003.gguf": model_bytes + bytes(n) for n in (1, 2, 3)}
    hub.repos[NAME.repo_id].files.update(parts)
    seen: list[tuple[str, int, int]] = []
    path = fetch(named(quant="q8_0"), progress=lambda *step: seen.append(step), patience=QUICK)
    assert path.name == "M-Q8_0-00001-of-00003.gguf"
    assert [path.with_name(Path(p).name).read_bytes() for p in sorted(parts)] == [parts[p] for p in sorted(parts)]
    assert seen[-1] == ("download", sum(map(len, parts.values())), sum(map(len, parts.values())))
    assert find_cached(named(quant="Q8_0")) == find_cached(named(file=sorted(parts)[2])) == path
    path.with_name("M-Q8_0-00002-of-00003.gguf").unlink()
    assert find_cached(named(quant="Q8_0")) is None
    before = len(hub.asked_for("bytes"))
    fetch(named(quant="Q8_0"), patience=QUICK)  # its blob is still there
    assert len(hub.asked_for("bytes")) == before
    assert find_cached(named(quant="Q8_0")) == path


@pytest.mark.parametrize("where", ["argument", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_connection(
    hub: FakeHub, store: Cache, monkeypatch: pytest.MonkeyPatch, where: str, model_bytes: bytes
) -> None:
    offline = where == "argument"
    if not offline:
        monkeypatch.setenv(where, "1")
    with pytest.raises(OfflineError, match="maker/Tiny-GGUF") as caught:
        fetch(NAME, offline=offline, patience=QUICK)
    assert caught.value.exit_code == 3
    with pytest.raises(OfflineError):
        list_files(NAME, offline=offline)
    snapshot = store.repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "Tiny-Q5_0.gguf").write_bytes(model_bytes)  # the only one here
    if offline:  # this time only: what the Hub means by the name is not known
        with pytest.raises(OfflineError):
            fetch(NAME, offline=True, patience=QUICK)
    else:
        assert fetch(NAME, patience=QUICK) == snapshot / "Tiny-Q5_0.gguf"
    assert fetch(named(quant="q5_0"), offline=offline, patience=QUICK) == snapshot / "Tiny-Q5_0.gguf"
    assert hub.connections == 0


def test_online_a_bare_name_is_the_hubs_choice(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.repos[NAME.repo_id].files["Tiny-Q5_0.gguf"] = model_bytes + b"5"
    other = fetch(named(quant="Q5_0"), patience=QUICK)
    assert find_cached(NAME) == other
    assert fetch(NAME, patience=QUICK).name == FILE
    assert find_cached(NAME) == fetch(NAME, patience=QUICK) != other


def test_no_server_is_offline(store: Cache, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused
    with pytest.raises(OfflineError, match=r"127\.0\.0\.1 cannot be reached"):
        fetch(NAME, patience=QUICK)
    monkeypatch.setenv("HF_ENDPOINT", "huggingface.co")
    with pytest.raises(BadRequestError, match="HF_ENDPOINT"):
        fetch(NAME, patience=QUICK)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repo": "Nothing"}, "there is no maker/Nothing on 127.0.0.1, or it is private"),
        ({"revision": "v9"}, "no revision 'v9'"),
        ({"file": "None.gguf"}, "no file 'None.gguf'"),
        ({"quant": "Q9_X"}, "no 'Q9_X'; it has Q4_K_M: name one"),
    ],
)
def test_what_is_not_there_is_said(hub: FakeHub, store: Cache, change: dict[str, str], words: str) -> None:
    with pytest.raises(ModelNotFoundError, match=words) as caught:
        fetch(HubName(**{"user": "maker", "repo": "Tiny-GGUF", **change}), patience=QUICK)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert store.files == []


def test_without_links_the_file_itself_is_there(
    hub: FakeHub, store: Cache, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_SYMLINKS", "1")
    path = fetch(NAME, patience=QUICK)
    assert path.read_bytes() == model_bytes
    assert not path.is_symlink()
    assert [file.split("/")[1] for file in store.files] == ["refs", "snapshots"]  # and not twice
    assert fetch(NAME, patience=QUICK) == path
    assert len(hub.asked_for("bytes")) == 1


def test_the_listed_hash_must_be_that_of_the_file(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    with pytest.raises(DamagedDownloadError, match="no longer the file that is listed"):
        fetch(NAME, sha256="0" * 64, patience=QUICK)
    assert store.files == []
    path = fetch(NAME, sha256=hashlib.sha256(model_bytes).hexdigest(), patience=QUICK)
    assert path.read_bytes() == model_bytes
    with pytest.raises(DamagedDownloadError):  # what is here is not it either
        fetch(NAME, sha256="0" * 64, patience=QUICK)


def test_a_cached_file_that_was_cut_off_is_fetched_anew(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    path = fetch(NAME, patience=QUICK)
    for damage in (model_bytes[: len(model_bytes) // 2], model_bytes[:-100]):
        path.write_bytes(damage)
        assert fetch(NAME, patience=QUICK).read_bytes() == model_bytes


def test_a_repository_cannot_name_files_outside_of_it(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.repos[NAME.repo_id].files.update({"../../../out-Q2_K.gguf": model_bytes, "a\\b-Q2_K.gguf": model_bytes})
    with pytest.raises(ModelNotFoundError, match="it has Q4_K_M: name one"):
        fetch(named(quant="Q2_K"), patience=QUICK)


def test_list_files_tells_models_and_sizes(hub: FakeHub, store: Cache, model_bytes: bytes) -> None:
    hub.faults["list"] = [Fault(status=503)]
    (model,) = list_files(NAME, patience=QUICK)
    assert (model.quant, model.size) == ("Q4_K_M", len(model_bytes))
    assert store.files == []


def test_finding_a_model_imports_no_http_client() -> None:
    code = """if True:
        import sys
        from edgespec.models.hub import HubName, find_cached
        from edgespec.models.names import resolve
        find_cached(HubName("maker", "Tiny-GGUF"))
        assert not {"huggingface_hub", "filelock", "httpx", "httpx2"} & set(sys.modules), "slow import"
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"HF_HOME": "/data/hf"},
        {"HF_HOME": "/data/hf", "HF_HUB_CACHE": "~/models"},
        {"XDG_CACHE_HOME": "/data/cache"},
        {"HUGGINGFACE_HUB_CACHE": "$HOME/old"},
    ],
)
def test_the_cache_lies_where_the_library_has_it(environment: dict[str, str]) -> None:
    code = "from huggingface_hub import constants; from edgespec.models.hub_cache import hub_cache; "
    code += "assert str(hub_cache()) == constants.HF_HUB_CACHE, (hub_cache(), constants.HF_HUB_CACHE)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={"HOME": "/home/someone", **environment})
