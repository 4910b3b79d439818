"""Models are found in every folder that people keep them in, once each; nothing hostile in there stops the search."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gguf_bytes import gguf

from edgespec.errors import BadRequestError, ModelNotFoundError
from edgespec.models import local
from edgespec.models.local import listed, local_models, origin_of
from edgespec.models.names import resolve
from model_places import Places, make_places, put_in_hub

FILE = gguf()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    made = make_places(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def put(path: Path, content: bytes = FILE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names() -> list[tuple[str, str]]:
    return [(model.origin, model.name) for model in local_models()]


def test_every_place_is_looked_in(places: Places) -> None:
    put(places.own / "mine.gguf")
    put(places.studio / "maker" / "Repo-GGUF" / "theirs.Q8_0.gguf", FILE + b"1")
    put(places.llama_cpp / "cached.gguf", FILE + b"2")
    put_in_hub(places, "user/repo", {"model-q4_k_m.gguf": FILE + b"3"})
    assert names() == [
        ("edgespec", "mine"),
        ("hub cache", "hf:user/repo:Q4_K_M"),
        ("lm studio", "theirs.Q8_0"),
        ("llama.cpp", "cached"),
    ]
    for model in local_models():
        assert model.size == model.path.stat().st_size
        assert resolve(model.name) == model.path  # what the list calls it is a name that every command takes
        assert origin_of(model.path) == model.origin
    assert origin_of(places.own.parent / "elsewhere.gguf") is None


def test_a_file_of_the_catalogue_has_its_name_there(places: Places) -> None:
    (places.own.parent / "catalog.toml").write_text(
        f'[[model]]\nname = "small"\ntitle = "Small"\nfamily = "f"\nrole = "both"\nfile = "s.gguf"\nquant = "Q4_0"\n'
        f'size = {len(FILE)}\ncontext = 2048\nlicense = "mit"\nmin_ram_gb = 4\n'
        'sources = [{ hub = "user/small" }]\n'
    )
    put(places.own / "s.gguf")
    assert names() == [("edgespec", "small")]


def test_two_files_of_one_quantization_are_named_by_their_files(places: Places) -> None:
    put_in_hub(places, "user/repo", {"a-q8_0.gguf": FILE + b"1", "sub/b-q8_0.gguf": FILE + b"2", "c.gguf": FILE})
    assert [name for _, name in names()] == [
        "hf:user/repo/a-q8_0.gguf",
        "hf:user/repo/c.gguf",
        "hf:user/repo/sub/b-q8_0.gguf",
    ]


def test_an_older_revision_is_named_by_its_commit(places: Places) -> None:
    old = put_in_hub(places, "user/repo", {"m-q8_0.gguf": FILE + b"1"}, commit="a" * 40)
    new = put_in_hub(places, "user/repo", {"m-q8_0.gguf": FILE + b"2"}, commit="b" * 40)
    assert {model.name: model.path.parent for model in local_models()} == {
        "hf:user/repo:Q8_0": new,
        f"hf:user/repo@{'a' * 40}:Q8_0": old,
    }
    for model in local_models():
        assert resolve(model.name) == model.path


def test_one_file_under_many_names_is_listed_once(places: Places) -> None:
    put_in_hub(places, "user/repo", {"m.gguf": FILE}, commit="a" * 40)
    put_in_hub(places, "user/repo", {"m.gguf": FILE}, commit="b" * 40)
    first = put(places.own / "one.gguf", FILE + b"1")
    os.link(first, places.llama_cpp / "two.gguf")
    (places.own / "three.gguf").symlink_to(first)
    assert len(local_models()) == 2


def test_a_split_model_is_one_whole_model_or_none(places: Places) -> None:
    for i in (1, 2, 3):
        put(places.own / f"big-{i:05}-of-00003.gguf", FILE + bytes(i))
    put(places.own / "cut-00001-of-00002.gguf")
    (model,) = local_models()
    assert model.size == 3 * len(FILE) + 6
    assert [part.name for part in model.parts] == [f"big-{i:05}-of-00003.gguf" for i in (1, 2, 3)]


def test_what_is_no_model_is_passed_over(places: Places, tmp_path: Path) -> None:
    put(places.own / "readme.md")
    put(places.own / "mmproj-model-f16.gguf")
    put(places.own / "half.gguf.part")
    (places.own / "folder.gguf").mkdir()
    (places.own / "gone.gguf").symlink_to(tmp_path / "nothing")
    (places.own / "self.gguf").symlink_to("self.gguf")
    (places.own / "loop").symlink_to(places.own)
    (places.own / "device.gguf").symlink_to("/dev/zero")
    os.mkfifo(places.own / "pipe.gguf")
    (places.hub / "models--odd").mkdir()
    (places.hub / "datasets--user--repo" / "snapshots" / "x").mkdir(parents=True)
    assert local_models() == ()


def test_folders_are_followed_down_but_not_for_ever(places: Places) -> None:
    deep = places.own
    for _ in range(30):
        deep = deep / "d"
    put(deep / "lost.gguf")
    put(places.own / "a" / "b" / "found.gguf", FILE + b"1")
    assert [name for _, name in names()] == ["found"]


def test_a_flood_of_files_is_cut_off_and_said(
    places: Places, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "MOST_ENTRIES", 5)
    for i in range(9):
        put(places.own / f"m{i}.gguf", FILE + bytes(i))
    assert len(local_models()) == 5
    assert "more than 5 files" in caplog.text


def test_lm_studios_folder_may_have_been_moved(places: Places, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    put(moved / "models" / "m.gguf")
    Path(places.env["HOME"], ".lmstudio-home-pointer").write_text(f"{moved}\n")
    assert names() == [("lm studio", "m")]


def test_a_name_that_two_files_have_is_refused(places: Places) -> None:
    put(places.studio / "a" / "twin.gguf", FILE + b"1")
    put(places.llama_cpp / "twin.gguf", FILE + b"2")
    with pytest.raises(BadRequestError, match=r"could be .*twin\.gguf.*twin\.gguf.*; give the path"):
        listed("TWIN")
    with pytest.raises(ModelNotFoundError):
        resolve("nobody")


def test_hostile_names_stay_on_one_line(places: Places) -> None:
    put(places.own / "bad\n\x1b[31mname.gguf")
    put(Path(os.fsdecode(os.fsencode(places.own) + b"/\xff\xfe.gguf")), FILE + b"1")
    assert all(name.isprintable() for _, name in names())
    assert len(names()) == 2


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read_is_passed_over(places: Places) -> None:
    put(places.own / "shut" / "a.gguf")
    put(places.own / "open.gguf", FILE + b"1")
    (places.own / "shut").chmod(0)
    try:
        assert [name for _, name in names()] == ["open"]
    finally:
        (places.own / "shut").chmod(0o700)
