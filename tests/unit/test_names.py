"""Names of models: every form that is understood, every trick that is not, and what is found on this disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import BadRequestError, EdgeSpecError, ModelNotFoundError
from edgespec.models.catalog import catalog, overlay_path
from edgespec.models.names import CatalogueName, HubName, PathName, parse, resolve
from edgespec.models.stored import place
from wheel_index import MODEL, entry_text

REPO = "Qwen/Qwen3-4B-GGUF"
FILE = "Qwen3-4B-Q4_K_M.gguf"
HUB = "https://huggingface.co"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No models, an empty Hub cache, and a catalogue whose starter is small."""
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    overlay_path().parent.mkdir()
    overlay_path().write_text(entry_text("smollm2-135m", MODEL, ["a==1"], aliases="['starter']"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        (f"hf:{REPO}", f"hf:{REPO}:Q4_K_M"),
        (f"hf:{REPO}:q8_0", f"hf:{REPO}:Q8_0"),
        (f"HF:{REPO}:Q8_0", f"hf:{REPO}:Q8_0"),
        (f"hf://{REPO}:iq4_xs", f"hf:{REPO}:IQ4_XS"),
        (f"{REPO}:ud-q4_k_xl", f"hf:{REPO}:UD-Q4_K_XL"),
        (f"hf.co/{REPO}", f"hf:{REPO}:Q4_K_M"),
        (f"hf.co/{REPO}:Q6_k", f"hf:{REPO}:Q6_K"),
        (f"huggingface.co/{REPO}:f16", f"hf:{REPO}:F16"),
        (f"hf:{REPO}@v1.0:Q8_0", f"hf:{REPO}@v1.0:Q8_0"),
        (f"hf:{REPO}@main", f"hf:{REPO}:Q4_K_M"),
        (f"hf:{REPO}@refs/pr/7:Q8_0", f"hf:{REPO}@refs/pr/7:Q8_0"),
        (f"hf:{REPO}/{FILE}", f"hf:{REPO}/{FILE}"),
        (f"hf:{REPO}/sub folder/{FILE}", f"hf:{REPO}/sub folder/{FILE}"),
        (f"{HUB}/{REPO}", f"hf:{REPO}:Q4_K_M"),
        (f"{HUB}/{REPO}/", f"hf:{REPO}:Q4_K_M"),
        (f"{HUB}/{REPO}/tree/main", f"hf:{REPO}:Q4_K_M"),
        (f"{HUB}/{REPO}/resolve/main", f"hf:{REPO}:Q4_K_M"),
        (f"{HUB}/{REPO}/resolve/main/{FILE}", f"hf:{REPO}/{FILE}"),
        (f"{HUB}/{REPO}/resolve/main/{FILE}?download=true#top", f"hf:{REPO}/{FILE}"),
        (f"http://www.hf.co/{REPO}/blob/v2/a%20b/{FILE}", f"hf:{REPO}@v2/a b/{FILE}"),
        (f"{HUB}/{REPO}/blob/refs%2Fpr%2F7/{FILE}", f"hf:{REPO}@refs/pr/7/{FILE}"),
    ],
)
def test_forms_of_a_hub_name_have_one_canonical_form(name: str, canonical: str) -> None:
    parsed = parse(name)
    assert isinstance(parsed, HubName)
    assert parsed.canonical == canonical
    assert parse(canonical).canonical == canonical
    assert parsed.repo_id == REPO


@pytest.mark.parametrize("name", ["qwen3-4b", "Qwen3-4B", "starter", "no-such-model"])
def test_a_word_is_a_name_of_the_catalogue(name: str) -> None:
    assert parse(name) == CatalogueName(name.lower())


@pytest.mark.parametrize(
    "name",
    ["m.gguf", "M.GGUF", "./qwen3-4b", "a/b", "user/repo", "/a/b.gguf", "C:\\m.gguf", "C:/m.gguf", "a b", ""],
)
def test_anything_else_is_a_path(name: str) -> None:
    assert parse(name) == PathName(Path(name))


def test_a_path_may_begin_in_the_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    assert parse("~/m.gguf") == PathName(home / "m.gguf")
    for nobody in ("~nobody-of-this-name/m.gguf", "~\ud8ad/m.gguf"):
        assert parse(nobody) == PathName(Path(nobody))


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:user",
        "hf:user/",
        "hf:/user/repo",
        "hf:user/repo:",
        "hf:user/repo:a:b",
        "hf:user/repo:Q4/../x",
        "hf:user/repo:Q4 K M",
        "hf:user/repo:..",
        "hf:../etc:Q4_K_M",
        "hf:user/..:Q4_K_M",
        "hf:user/.:Q4_K_M",
        "hf:us--er/repo",
        "hf:user/re..po",
        "hf:user/-repo",
        "hf:user/repo.git/../x:Q4_K_M",
        "hf:user/repo@../x:Q4_K_M",
        "hf:user/repo@a..b:Q4_K_M",
        "hf:user/repo/../../x.gguf",
        "hf:user/repo/a/./x.gguf",
        "hf:user/repo//etc/x.gguf",
        "hf:user/repo/..\\x.gguf",
        "hf:user/repo/C:\\x.gguf",
        "hf:user/repo/C:x.gguf",
        "hf:user/repo/x.gguf:stream",
        "hf:user/repo/nul.gguf",
        "hf:user/repo/COM1/x.gguf",
        "hf:user/repo/a./x.gguf",
        "hf:user/repo/a /x.gguf",
        "hf:user/repo/x.gguf\0",
        "hf:user/repo/x\n.gguf",
        "hf:user/repo/\u202ex.gguf",
        "hf:user/repo/" + "x" * 300 + ".gguf",
        "hf:user/repo/model.safetensors",
        "hf:user/repo/.gguf",
        f"{HUB}/user",
        f"{HUB}/user/repo/discussions/1",
        f"{HUB}/user/repo/resolve/main/%2e%2e/x.gguf",
        f"{HUB}/user/repo/resolve/main/..%2fx.gguf",
        f"{HUB}/user/repo/resolve/main/%5c%5chost%5cx.gguf",
        f"{HUB}/user%2f..%2f../repo",
        f"{HUB}/user/repo/resolve/..%2f../x.gguf",
        f"{HUB}/datasets/user/repo/resolve/main/x.gguf",
        "http://[::1/x",
    ],
)
def test_tricks_and_mistakes_are_refused_on_one_line(name: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


def test_addresses_elsewhere_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("models.example", "huggingface.co.evil.example", "evil.example@models.example"):
        with pytest.raises(ModelNotFoundError, match="is not on the Hub"):
            parse(f"https://{host}/{REPO}/resolve/main/{FILE}")
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hub")
    assert parse(f"https://mirror.example/{REPO}/resolve/main/{FILE}").canonical == f"hf:{REPO}/{FILE}"


@given(st.text(max_size=60), st.sampled_from(["", "hf:", "hf:a/b", "hf:a/b/", "hf.co/a/", f"{HUB}/a/b/resolve/main/"]))
def test_no_text_leads_out_of_a_repository_or_crashes(text: str, before: str) -> None:
    message, parsed = "", None
    try:
        parsed = parse(before + text)
    except EdgeSpecError as error:
        message = str(error)
    assert message.isprintable()
    if isinstance(parsed, HubName):
        assert parse(parsed.canonical).canonical == parsed.canonical
        parts = [parsed.user, parsed.repo, *parsed.revision.split("/"), *(parsed.file or "x").split("/")]
        assert all(part.strip(". ") and not set(part) & set('\\:*?"<>|\0') for part in parts)


def test_the_starter_and_catalogue_names_are_found_once_they_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (None, "starter", "smollm2-135m", "SmolLM2-135M"):
        with pytest.raises(ModelNotFoundError, match="`edgespec pull smollm2-135m`"):
            resolve(name)
    path = place(catalog().starter)
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    for name in (None, "starter", "smollm2-135m", "SmolLM2-135M"):
        assert resolve(name) == path
    with pytest.raises(ModelNotFoundError, match="`edgespec pull qwen3-4b`"):
        resolve("qwen3-4b")


def test_a_file_wins_over_a_name_and_a_folder_does_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    path = place(catalog().starter)
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    (home / "starter").mkdir()
    (home / "folder").mkdir()
    (home / "my model.gguf").write_bytes(MODEL)
    (home / "smollm2-135m").write_bytes(MODEL)
    assert resolve("starter") == path
    assert resolve("smollm2-135m") == Path("smollm2-135m")
    assert resolve("my model.gguf") == Path("my model.gguf")
    assert resolve("folder") == Path("folder")  # opening it says that it is a directory


def test_a_file_is_run_whatever_is_wrong_with_the_users_catalogue(home: Path) -> None:
    overlay_path().write_text("wrong")
    (home / "m.gguf").write_bytes(MODEL)
    assert resolve(str(home / "m.gguf")) == home / "m.gguf"
    with pytest.raises(BadRequestError, match=r"catalog\.toml"):
        resolve("starter")


def test_hub_and_catalogue_names_are_found_in_the_shared_cache(home: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = home / "hub" / "models--Qwen--Qwen3-4B-GGUF"
    for name in (f"hf:{REPO}", f"{HUB}/{REPO}/resolve/main/{FILE}"):
        with pytest.raises(ModelNotFoundError, match=f"`edgespec pull {parse(name).canonical}`"):
            resolve(name)
    file = repo / "snapshots" / commit / FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(MODEL)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    for name in ("qwen3-4b", f"hf:{REPO}", f"{REPO}:q4_k_m", f"{HUB}/{REPO}/resolve/main/{FILE}"):
        assert resolve(name) == file
    with pytest.raises(ModelNotFoundError):
        resolve(f"{REPO}:Q8_0")


@pytest.mark.parametrize("name", ["", "nope.gguf", "user/repo", "bad\0name", "x" * 5000, "line\nbreak", "qwen3-4c"])
def test_unknown_names_are_one_line(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file") as caught:
        resolve(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_an_unknown_name_is_told_its_neighbour() -> None:
    with pytest.raises(ModelNotFoundError, match="did you mean qwen3-4b"):
        resolve("qwen3-4bb")
