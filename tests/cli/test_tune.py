"""`edgespec tune` on tiny models: what it prints, keeps, uses and takes back. Never how fast anything is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import zlib
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked
from edgespec_command import EDGESPEC, Cli, Models, Result

import edgespec
from edgespec.cli import tune as tune_command
from edgespec.costs import CostTable
from edgespec.errors import EdgeSpecError, ModelNotFoundError
from edgespec.models.header import read_header
from edgespec.tiny_gguf import CHATML_TEMPLATE, write_tiny
from edgespec.tuned import AS_IS, Finding, Record, folder_of, write_record
from edgespec.tuning import process
from model_places import make_places, put_in_hub

# Milliseconds of a plain step, where a test decides which form is the fastest.
Q8_IS_FASTEST = {"F16": 10.0, "Q8_0": 5.0}
NOTHING_IS_FASTER = {"F16": 10.0}
RUN = ("hi", "-n", "2", "--ctx-size", "256", "--json")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A target and a draft of their own: what is kept of them meets no other test's files."""
    seed = zlib.crc32(str(tmp_path).encode())
    endless: dict[str, Any] = {"end_gain": 0.0, "n_ctx_train": 1024, "quant": "f16", "seed": seed}
    return (
        write_tiny(tmp_path / "large.gguf", chat_template=CHATML_TEMPLATE, **endless),
        write_tiny(tmp_path / "small.gguf", noise=0.05, **endless),
    )


def tune(cli: Cli, *arguments: Any) -> Result:
    return cli.here("tune", "--threads", "1", *arguments)


Timed = Callable[..., Invoked]


@pytest.fixture
def timed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """timed(ms, *arguments): the command in this process, on a clock that gives each type its own time."""
    monkeypatch.setenv("EDGESPEC_HOME", cli.env["EDGESPEC_HOME"])
    whole = process.tune

    def invoke(ms: dict[str, float], *arguments: Any, typed: str = "") -> Invoked:
        def measure(llm: edgespec.LLM) -> CostTable:
            step = ms.get(str(llm.target.model.header.quant), 20.0)
            return CostTable((1, 16), (step, 2 * step))

        monkeypatch.setattr(process, "tune", partial(whole, measure=measure))
        command = ["--threads", "1", *map(str, arguments)]
        return CliRunner().invoke(tune_command.tune, command, input=typed, catch_exceptions=False)

    return invoke


def left(cli: Cli) -> list[str]:
    """Copies on trial that are still there."""
    return [str(p) for p in Path(cli.env["EDGESPEC_HOME"]).glob("tuned/.tune-*")]


def model_of(cli: Cli, *arguments: Any) -> tuple[str, str]:
    """Which file answers, and what is said on standard error."""
    done = cli("-m", *arguments, *RUN)
    assert done.code == 0, done.err
    return done.json["model"], done.err


def test_a_pair_is_measured_used_and_taken_back(cli: Cli, pair: tuple[Path, Path]) -> None:
    target, draft = pair
    before = target.read_bytes(), draft.read_bytes()
    done = tune(cli, target, "--draft", draft, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["model"], found["draft"]) == (str(target), str(draft))
    assert (found["target"]["used"], found["target"]["path"]) == ("as it is", str(target))
    for trials in (found["target"]["trials"], found["drafting"]["trials"]):
        types = [trial["type"] for trial in trials]
        assert types[:3] == ["as it is", "q4_0", "q8_0"]
        assert set(types[3:]) <= {"iq4_nl"}
        assert all(min(trial["ms"].values()) > 0 for trial in trials)
    first = found["target"]["trials"][0]
    assert first["bytes"] == target.stat().st_size
    assert (first["gain"], first["speed"]["8"], first["perplexity_change"]) == (1, 1, 0)
    assert all(t["perplexity"] > 1 and 0 < t["perplexity_error"] < 1 for t in found["target"]["trials"][1:])
    assert all(0 < t["overlap"] < 1 and 1 <= t["k"] <= 8 for t in found["drafting"]["trials"])
    assert before == (target.read_bytes(), draft.read_bytes())
    used = found["drafting"]
    shown = json.loads(cli.here("show", draft, "--json").out)["tuned"]
    assert shown["target"] is None
    assert (shown["draft"]["type"], shown["draft"]["target"]) == (used["used"], "large.gguf")
    assert (shown["draft"]["path"] or str(draft)) == used["path"]
    _, err = model_of(cli, target, "--draft", draft)
    assert ("copy of small.gguf that `edgespec tune` made" in err) == (used["used"] != "as it is")
    undone = tune(cli, target, "--draft", draft, "--undo")
    assert undone.code == 0
    assert [line.split(",")[0] for line in undone.out.splitlines()] == ["large.gguf: undone", "small.gguf: undone"]
    assert not Path(used["path"]).exists() or used["path"] == str(draft)
    again = tune(cli, target, "--draft", draft, "--undo")
    assert (again.code, again.out) == (0, "large.gguf: nothing to undo\nsmall.gguf: nothing to undo\n")


def test_the_tables_and_the_steps(cli: Cli, pair: tuple[Path, Path]) -> None:
    done = tune(cli, pair[0], "--draft", pair[1])
    assert done.code == 0, done.err
    rows = [line.split()[:2] for line in done.out.splitlines() if line.strip()]
    assert rows[0] == ["large.gguf", "as"]
    assert [row for row in rows if row[0] in ("q4_0", "q8_0")] == 2 * [["q4_0", "0.3"], ["q8_0", "0.5"]]
    assert done.out.splitlines()[-2].startswith("target: large.gguf is used as it is")
    assert done.out.splitlines()[-1].startswith("draft: small.gguf is ")
    steps = done.err.splitlines()
    assert steps[:3] == [
        "large.gguf: reading the texts",
        "large.gguf: measuring the file as it is",
        "large.gguf: making the q4_0 copy",
    ]
    assert "small.gguf: measuring the q8_0 copy" in steps
    quiet = tune(cli, pair[0], "-q", "--json")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.json["drafting"] is None


def test_yes_takes_the_recommended_target(cli: Cli, pair: tuple[Path, Path], timed: Timed) -> None:
    target, draft = pair
    done = timed(Q8_IS_FASTEST, target, "--draft", draft, "--yes")
    assert done.exit_code == 0
    assert "recommended" in done.stdout
    last = done.stdout.splitlines()[-2:]
    assert last[0].startswith("target: large.gguf is replaced by its q8_0 copy, ")
    assert last[1].startswith("draft: small.gguf is replaced by its q8_0 copy, ")
    assert left(cli) == []
    name, err = model_of(cli, target, "--draft", draft)
    assert name == "large-q8_0.gguf"
    assert [line.split(" that ")[0] for line in err.splitlines()[:2]] == [
        "using the q8_0 copy of large.gguf",
        "using the q8_0 copy of small.gguf",
    ]
    assert model_of(cli, target, "-q") == ("large-q8_0.gguf", "")
    assert model_of(cli, target, "-q", "--no-tuned") == ("large.gguf", "")
    copy = last[0].rpartition(", ")[2]
    assert model_of(cli, copy, "-q") == ("large-q8_0.gguf", "")  # as any other file
    with edgespec.load(target, draft=draft, ctx_size=256, threads=1) as llm:
        assert llm.draft is not None
        assert (llm.name, llm.draft.model.path.name) == ("large-q8_0.gguf", "small-q8_0.gguf")
        assert len(llm.notes) == 2
    with edgespec.load(target, draft=draft, ctx_size=256, threads=1, tuned=False) as llm:
        assert (llm.name, llm.notes) == ("large.gguf", ())
    table = cli.here("show", target).out
    (line,) = [line for line in table.splitlines() if line.startswith("tuned ")]
    assert "as the target, on " in line
    assert "its q8_0 copy, 0.5 MB, plain steps 2.00x as fast, perplexity" in line


def test_a_target_is_not_changed_without_a_word(cli: Cli, pair: tuple[Path, Path], timed: Timed) -> None:
    done = timed(Q8_IS_FASTEST, pair[0])
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-1] == (
        "the target is not changed: no terminal to ask on, and no --yes to take the q8_0 copy"
    )
    assert done.stdout.splitlines()[-1] == "target: large.gguf is used as it is"
    assert model_of(cli, pair[0], "-q") == ("large.gguf", "")
    assert "tuned          as the target, on " in cli.here("show", pair[0]).out


@pytest.mark.parametrize(("typed", "name"), [("y\n", "large-q8_0.gguf"), ("n\n", "large.gguf"), ("\n", "large.gguf")])
def test_the_question(
    cli: Cli, pair: tuple[Path, Path], timed: Timed, monkeypatch: pytest.MonkeyPatch, typed: str, name: str
) -> None:
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(tune_command, "sys", SimpleNamespace(stdin=terminal, stderr=terminal))
    done = timed(Q8_IS_FASTEST, pair[0], "--json", typed=typed)
    assert done.exit_code == 0
    question = done.stderr.splitlines()[-1]
    assert question.startswith("Use the q8_0 copy in place of large.gguf? It is another model: perplexity ")
    assert "Speed: plain 2.00x, 4 rows 2.00x, 8 rows 2.00x, 16 rows 2.00x. It takes 0.5 MB of disk [y/N]:" in question
    assert json.loads(done.stdout)["target"]["recommended"] == "q8_0"
    assert model_of(cli, pair[0], "-q")[0] == name


def test_nothing_is_asked_where_nothing_is_better(
    pair: tuple[Path, Path], timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(tune_command, "sys", SimpleNamespace(stdin=terminal, stderr=terminal))
    done = timed(NOTHING_IS_FASTER, *pair[:1], "--draft", pair[1])
    assert done.exit_code == 0
    assert "?" not in done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "target: large.gguf is used as it is",
        "draft: small.gguf is used as it is",
    ]


def test_a_target_in_use_outlives_a_run_that_cannot_ask(cli: Cli, pair: tuple[Path, Path], timed: Timed) -> None:
    timed(Q8_IS_FASTEST, pair[0], "--yes")
    for arguments in ([pair[0]], [pair[0], "--draft", pair[1], "--keep-target"]):
        done = timed(NOTHING_IS_FASTER, *arguments)
        assert "target: large.gguf is replaced by its q8_0 copy" in done.stdout
        assert model_of(cli, pair[0], "-q")[0] == "large-q8_0.gguf"
    timed(NOTHING_IS_FASTER, pair[0], "--yes")  # asked to take the best: it is the file
    assert model_of(cli, pair[0], "-q")[0] == "large.gguf"


def test_the_target_may_be_left_alone(cli: Cli, pair: tuple[Path, Path], timed: Timed) -> None:
    done = timed(Q8_IS_FASTEST, pair[0], "--draft", pair[1], "--keep-target", "--json")
    found = json.loads(done.stdout)
    assert [t["type"] for t in found["target"]["trials"]] == ["as it is"]
    assert found["target"]["trials"][0]["perplexity"] is None
    assert found["drafting"]["used"] == "q8_0"
    assert json.loads(cli.here("show", pair[0], "--json").out)["tuned"] is None


@pytest.mark.parametrize("damage", ["record", "copy"])
def test_what_is_damaged_is_not_used(cli: Cli, pair: tuple[Path, Path], timed: Timed, damage: str) -> None:
    done = timed(Q8_IS_FASTEST, pair[0], "--yes", "--json")
    copy = Path(json.loads(done.stdout)["target"]["path"])
    if damage == "copy":
        copy.unlink()
    else:
        copy.with_name("record.json").write_text('{"original": 3}', "utf-8")
    name, err = model_of(cli, pair[0])
    assert name == "large.gguf"
    (warning,) = [line for line in err.splitlines() if line.startswith("edgespec: ")]
    assert ("copy of large.gguf is gone" if damage == "copy" else "record.json' is damaged") in warning
    assert "edgespec tune" in warning
    assert tune(cli, pair[0], "--undo").out.startswith("large.gguf: undone, ")
    assert model_of(cli, pair[0], "-q") == ("large.gguf", "")


def test_a_model_that_is_gone_can_be_undone(cli: Cli, pair: tuple[Path, Path], timed: Timed) -> None:
    done = timed(Q8_IS_FASTEST, pair[0], "--yes", "--json")
    copy = Path(json.loads(done.stdout)["target"]["path"])
    pair[0].unlink()
    assert tune(cli, pair[0], "--undo").out.startswith("large.gguf: undone, 0.5 MB freed")
    assert not copy.parent.exists()


def test_a_full_disk_is_an_error_before_anything_is_loaded(
    pair: tuple[Path, Path], timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("usage", "free")(40_000_000))
    monkeypatch.setattr(process, "fixed_text", lambda _: pytest.fail("a model was loaded"))
    with pytest.raises(EdgeSpecError, match=r"tuning needs 51 MB free in .*tuned', which has 40 MB; free some space"):
        timed(Q8_IS_FASTEST, pair[0])


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("step", ["making the q8_0 copy", "measuring the q8_0 copy"])
def test_ctrl_c_leaves_everything_as_it_was(cli: Cli, pair: tuple[Path, Path], step: str) -> None:
    command = [*EDGESPEC, "tune", "--threads", "1", str(pair[0])]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=cli.env, bufsize=0, **pipes) as child:
        assert child.stderr is not None
        while step not in (line := child.stderr.readline().decode()):
            assert line, "it ended before"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err.strip()) == (130, b"", b"")
    assert left(cli) == []
    assert json.loads(cli.here("show", pair[0], "--json").out)["tuned"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--keep-target"], 2, "only a draft is tuned; name one with --draft"),
        (["--draft", "DRAFT", "--yes", "--keep-target"], 2, "give one of them"),
        (["--undo", "--yes"], 2, "--undo does not go with --yes"),
        (["--undo", "--json"], 2, "--undo does not go with --json"),
        (["--threads", "0"], 2, "threads is 0"),
        (["--buffers", "best"], 2, "buffers is 'best'"),
        (["--draft", "nowhere"], 3, "no model 'nowhere'"),
        (["--draft", "TEXT"], 4, "is not a GGUF"),
        (["--draft", "MISMATCHED"], 4, "cannot draft for this model: token 100"),
        (["--ctx-size", "100"], 2, "No such option"),
    ],
)
def test_what_is_refused_is_one_line(
    cli: Cli, models: Models, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("hello " * 100, "utf-8")
    files = {"DRAFT": models.draft, "MISMATCHED": models.mismatched, "TEXT": text}
    done = tune(cli, models.chat, *(files.get(word, word) for word in arguments), "-q")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("edgespec: ")
    assert done.err.count("\n") == 1
    assert message in done.err
    assert left(cli) == []


@pytest.mark.parametrize(("name", "code"), [("nowhere", 3), ("nowhere.gguf", 3), ("", 3)])
def test_a_model_that_is_not_there(cli: Cli, name: str, code: int) -> None:
    assert tune(cli, name).code == code


def test_nothing_to_undo_is_no_error(cli: Cli, tmp_path: Path) -> None:
    done = tune(cli, tmp_path / "never.gguf", "--undo")
    assert (done.code, done.out, done.err) == (0, "never.gguf: nothing to undo\n", "")


def test_names_of_the_hub_are_undone_like_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = make_places(tmp_path)
    for name, value in places.env.items():
        monkeypatch.setenv(name, value)
    made = write_tiny(tmp_path / "made.gguf", quant="q8_0").read_bytes()
    file = put_in_hub(places, "me/mine", {"file.gguf": made}) / "file.gguf"
    folder = folder_of(read_header(file))
    write_record(folder, Record(str(file), target=Finding(AS_IS, None, len(made), "2026-01-31", None, ())))

    def undone(name: str) -> str:
        return CliRunner().invoke(tune_command.tune, [name, "--undo"], catch_exceptions=False).stdout

    with pytest.raises(ModelNotFoundError, match=r"hf:me/other/file\.gguf is not here"):
        undone("hf:me/other/file.gguf")
    assert undone("hf:me/mine/file.gguf").startswith("file.gguf: undone, ")
    assert not folder.exists()
