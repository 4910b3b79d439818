"""`edgespec ls`, `rm` and `pair` on tiny models in a person's folders."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

from edgespec.costs import CostTable
from edgespec.models import pairs
from edgespec.models.header import read_header
from edgespec.models.usage import Lease
from edgespec.tiny_gguf import TinyVocab, write_tiny
from edgespec.tuned import Finding, Record, Trial, folder_of, write_record
from model_places import Places, make_places, put_in_hub
from wheel_index import entry_text

LS_KEYS = {
    "name", "path", "origin", "size", "quantization", "context_length", "tokenizer_id", "drafts", "last_used", "error",
}  # fmt: skip
PAIR_KEYS = {
    "draft", "path", "compatible", "reason", "memory_mb", "cost_ratio", "predicted_speedup", "predicted_from",
    "measured_speedup", "best",
}  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return make_places(tmp_path)


@pytest.fixture
def person(places: Places) -> Cli:
    """The command of someone whose models lie in `places`."""
    return Cli({**os.environ, **places.env, "PYTHONIOENCODING": "utf-8"})


def edgespec(person: Cli, *arguments: str | Path) -> Result:
    return person.here(*arguments)


@pytest.fixture
def family(places: Places, models: Models) -> Places:
    """A target, a clearly smaller draft for it, and one of another vocabulary."""
    write_tiny(places.own / "large.gguf", n_layer=6, n_embd=256, end_gain=0.0, n_ctx_train=4096)
    write_tiny(places.own / "small.gguf", n_layer=1, n_embd=64, n_ctx_train=4096)
    write_tiny(places.own / "other.gguf", n_layer=1, n_embd=64, vocab=TinyVocab(swap=(100, 101)))
    return places


def by_name(items: list[dict[str, object]], key: str = "name") -> dict[object, dict[str, object]]:
    return {item[key]: item for item in items}


def test_ls_of_nothing(person: Cli) -> None:
    result = edgespec(person, "ls")
    assert (result.code, result.out) == (0, "")
    assert "edgespec pull" in result.err
    assert person.run([*EDGESPEC, "ls", "--json"]).out == "[]\n"


def test_ls_lists_models_with_their_drafts(person: Cli, family: Places) -> None:
    (family.studio / "damaged.gguf").write_bytes(b"GGUF and no more")
    result = edgespec(person, "ls", "--json")
    assert result.code == 0, result.err
    found = by_name(result.items)
    assert all(set(item) == LS_KEYS for item in found.values())
    assert set(found) == {"large", "small", "other", "damaged"}
    assert found["large"]["drafts"] == ["small"]
    assert found["small"]["drafts"] == []
    assert found["large"]["tokenizer_id"] == found["small"]["tokenizer_id"] != found["other"]["tokenizer_id"]
    assert found["large"]["size"] == (family.own / "large.gguf").stat().st_size
    assert found["large"]["quantization"] == "F32"
    assert found["large"]["context_length"] == 4096
    assert found["large"]["last_used"] is None
    assert found["damaged"]["origin"] == "lm studio"
    assert "damaged" in str(found["damaged"]["error"]) or "truncated" in str(found["damaged"]["error"])
    table = edgespec(person, "ls")
    assert [line.split()[0] for line in table.out.splitlines()] == ["name", "large", "other", "small", "damaged"]
    assert "damaged: " in table.err


def test_a_run_is_remembered_as_the_last_use(person: Cli, family: Places) -> None:
    run = person("-m", family.own / "small.gguf", "--raw", "-n", "2", "x")
    assert run.code == 0, run.err
    found = by_name(edgespec(person, "ls", "--json").items)
    assert found["small"]["last_used"] is not None
    assert found["large"]["last_used"] is None
    assert not list((family.own.parent / "running").iterdir())


def test_rm_says_what_it_frees(person: Cli, family: Places) -> None:
    path = family.own / "small.gguf"
    size = path.stat().st_size
    refused = edgespec(person, "rm", "small")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert path.exists()
    done = edgespec(person, "rm", "small", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json == {"name": "small", "freed_bytes": size, "deleted": [str(path)]}
    assert not path.exists()
    again = edgespec(person, "rm", "small", "--yes")
    assert again.code == 3
    text = edgespec(person, "rm", family.own / "other.gguf", "--yes")
    assert "bytes" in text.out
    assert (family.own / "large.gguf").exists()


def test_rm_takes_the_tuned_copies_and_the_pair_along(person: Cli, family: Places) -> None:
    target = read_header(family.own / "large.gguf")
    trial = Trial("q4_0", 3, CostTable((1,), (1.0,)), None, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGESPEC_HOME", family.env["EDGESPEC_HOME"])
        folder = folder_of(target)
        folder.mkdir(parents=True)
        (folder / "copy.gguf").write_bytes(b"123")
        write_record(folder, Record(str(target.path), Finding("q4_0", "copy.gguf", 3, "2026-01-31", None, (trial,))))
        pairs.remember(target, None, measured=True)
    kept = sum(path.stat().st_size for path in folder.iterdir())
    done = edgespec(person, "rm", "large", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["freed_bytes"] == target.file_size + kept
    assert not folder.exists()
    assert not list((family.own.parent / "pairs").iterdir())


def test_rm_of_a_damaged_file(person: Cli, places: Places) -> None:
    (places.own / "bad.gguf").write_bytes(b"junk")
    assert edgespec(person, "rm", "bad", "--yes", "--json").json["freed_bytes"] == 4


def test_rm_in_the_hub_cache_keeps_what_others_need(person: Cli, places: Places, models: Models) -> None:
    content = models.raw.read_bytes()
    first = put_in_hub(places, "user/repo", {"a-q8_0.gguf": content}, commit="a" * 40)
    second = put_in_hub(places, "user/repo", {"a-q8_0.gguf": content}, commit="b" * 40)
    done = edgespec(person, "rm", "hf:user/repo:Q8_0", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["freed_bytes"] == 0  # the other snapshot links to the same bytes
    assert [p.exists() for p in (first, second)].count(True) == 1
    done = edgespec(person, "rm", "hf:user/repo:Q8_0", "--yes", "--json")
    assert done.json["freed_bytes"] == len(content)
    assert not list((places.hub / "models--user--repo" / "blobs").iterdir())


def test_rm_leaves_other_programs_files_alone(person: Cli, places: Places, models: Models, tmp_path: Path) -> None:
    for folder, owner in ((places.studio, "LM Studio"), (places.llama_cpp, "llama.cpp")):
        path = Path(shutil.copy(models.raw, folder / "theirs.gguf"))
        result = edgespec(person, "rm", path, "--yes")
        assert result.code == 2
        assert owner in result.err
        assert path.exists()
        path.unlink()
    outside = Path(shutil.copy(models.raw, tmp_path / "outside.gguf"))
    result = edgespec(person, "rm", outside, "--yes")
    assert result.code == 2
    assert outside.exists()


def test_rm_of_a_link_takes_the_link_alone(person: Cli, places: Places, models: Models) -> None:
    link = places.own / "link.gguf"
    link.symlink_to(models.raw)
    done = edgespec(person, "rm", "link", "--yes", "--json")
    assert done.json["freed_bytes"] == 0
    assert not link.is_symlink()
    assert models.raw.exists()


def test_rm_refuses_what_is_loaded(person: Cli, family: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in family.env.items():
        monkeypatch.setenv(name, value)
    lease = Lease([family.own / "large.gguf"])
    try:
        result = person.run([*EDGESPEC, "rm", "large", "--yes"])  # another process
    finally:
        lease.end()
    assert result.code == 1
    assert f"process {os.getpid()}" in result.err
    assert (family.own / "large.gguf").exists()
    assert edgespec(person, "rm", "large", "--yes").code == 0


def test_pair_tells_every_candidate_and_why_not(person: Cli, family: Places) -> None:
    result = edgespec(person, "pair", "large", "--json")
    assert result.code == 0, result.err
    assert all(set(item) == PAIR_KEYS for item in result.items)
    found = by_name(result.items, "draft")
    assert "large" not in found
    small, other = found["small"], found["other"]
    assert small["compatible"] is True
    assert small["reason"] is None
    assert 0 < float(str(small["cost_ratio"])) < 0.2
    assert float(str(small["predicted_speedup"])) > 1
    assert small["predicted_from"] == "file sizes"
    assert small["best"] is True
    assert other["compatible"] is False
    assert str(other["reason"]).startswith("token 100 is ")
    assert other["cost_ratio"] is None
    elsewhere = found["qwen3-0.6b"]  # in the catalogue, and the target is in none
    assert (elsewhere["path"], elsewhere["compatible"]) == (None, None)
    assert "edgespec pull qwen3-0.6b" in str(elsewhere["reason"])


def test_the_best_draft_is_used_from_then_on_until_forgotten(person: Cli, family: Places) -> None:
    target = ("-m", family.own / "large.gguf", "--raw", "-n", "4", "--temperature", "0", "x")
    before = person(*target)
    assert "small.gguf" not in before.err
    paired = edgespec(person, "pair", "large")
    assert "from now on small drafts for large.gguf" in paired.out
    after = person(*target)
    assert "drafting with small.gguf" in after.err
    assert after.out == before.out
    assert "small.gguf" not in person(*target, "--draft", "none").err
    assert edgespec(person, "pair", "large", "--forget").out == "forgotten\n"
    assert "small.gguf" not in person(*target).err
    assert edgespec(person, "pair", "large", "--forget").out == "no draft was remembered\n"


def test_the_catalogues_partner_is_named_where_sizes_promise_nothing(
    person: Cli, places: Places, models: Models
) -> None:
    text = ""
    for name, model, more in (("big", models.chat, {"draft": "'small'"}), ("small", models.draft, {})):
        content = Path(shutil.copy(model, places.own / f"{name}.gguf")).read_bytes()
        text += entry_text(name, content, [], hub=f"maker/{name}", **more)
    (places.own.parent / "catalog.toml").write_text(text)
    paired = edgespec(person, "pair", "big")
    line = "drafting with small.gguf, the catalogue's partner (--draft none: without)"
    assert paired.out.splitlines()[-1] == f"{line}; --measure tells whether it pays here"
    assert line in person("-m", "big", "--raw", "-n", "2", "x").err


def test_pair_can_measure(person: Cli, family: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    # One thread, as everywhere here: two of them wait for each other where the machine has other work.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    result = edgespec(person, "pair", "large", "--measure", "--json")
    assert result.code == 0, result.err
    found = by_name(result.items, "draft")
    assert isinstance(found["small"]["measured_speedup"], float)
    assert found["other"]["measured_speedup"] is None
    best = [item["draft"] for item in result.items if item["best"]]
    assert best == (["small"] if found["small"]["measured_speedup"] >= 1.03 else [])
    again = by_name(edgespec(person, "pair", "large", "--json").items, "draft")
    assert again["small"]["best"] is bool(best)  # a prediction does not undo what was measured


def test_measuring_nothing_rules_nothing_out(person: Cli, family: Places) -> None:
    (family.own / "small.gguf").unlink()
    assert edgespec(person, "pair", "large", "--measure").code == 0
    assert not (family.own.parent / "pairs").exists()


def test_lists_need_neither_llama_cpp_nor_the_hubs_library(person: Cli) -> None:
    code = "import sys, edgespec.cli.ls, edgespec.cli.rm, edgespec.cli.pair, edgespec.pairing\n"
    code += "print([m for m in ('llama_cpp', 'huggingface_hub', 'httpx', 'requests') if m in sys.modules])"
    assert person.run([sys.executable, "-c", code]).out == "[]\n"


def test_hostile_names_reach_the_terminal_as_plain_text(person: Cli, family: Places) -> None:
    shutil.copy(family.own / "small.gguf", family.own / "bad\n\x1b[31m[bold]name.gguf")
    shutil.copy(family.own / "other.gguf", os.fsencode(family.own) + b"/\xff\xfe.gguf")
    for arguments in (("ls",), ("pair", "large")):
        result = edgespec(person, *arguments)
        assert result.code == 0, result.err
        assert all(c == "\n" or c.isprintable() for c in result.out + result.err)
        assert "[bold]name" in result.out
    assert len(edgespec(person, "ls", "--json").items) == 5


def test_wrong_usage(person: Cli, family: Places) -> None:
    for arguments in (("rm",), ("ls", "x"), ("pair",), ("pair", "large", "--forget", "--json")):
        assert edgespec(person, *arguments).code == 2
    assert edgespec(person, "pair", "nobody").code == 3
    assert edgespec(person, "rm", "nobody", "--yes").code == 3
    assert "Traceback" not in edgespec(person, "pair", "nobody").err
