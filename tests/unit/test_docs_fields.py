"""The documents list what scripts rely on: JSON fields, exit codes, environment variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from documents import CLI, ROOT, code, sections, table_rows
from safetensors.numpy import save_file

import edgespec
from edgespec import errors
from edgespec.bench import parallel_report
from edgespec.bench.modes import AUTO, parse_mode
from edgespec.bench.parallel import run_parallel
from edgespec.bench.prompts import BenchPrompt, Workload
from edgespec.bench.report import to_json
from edgespec.bench.runner import Settings, run_bench
from edgespec.bench.statistics import Run
from edgespec.checks.report import IdentityResult, LawResult, Report
from edgespec.cli import convert, history, ls, pair, rm
from edgespec.cli.pull import plan_json, result_json
from edgespec.cli.pull_progress import progress_json
from edgespec.cli.show import describe
from edgespec.cli.show_gpu import OnGpu
from edgespec.cli.train import trained_json
from edgespec.config import KEYS, variable
from edgespec.costs import CostTable
from edgespec.doctor import CHECKS
from edgespec.history import History
from edgespec.models.catalog import catalog
from edgespec.models.header import read_header
from edgespec.models.memory import Fit, forecast
from edgespec.models.pulling import Wanted
from edgespec.profile import Choice, RuntimeProfile, Trial
from edgespec.reply import Reply
from edgespec.stats import DraftedToken, GenerationStats, RoundEvent, TokenEvent
from edgespec.tiny_gguf import write_tiny
from edgespec.train.fit import Score
from edgespec.train.measure import Measured as MeasuredHeads
from edgespec.train.process import Trained
from edgespec.tuned import Agreement, Finding, Perplexity, Record
from edgespec.tuned import Trial as Form
from edgespec.tuning.keeping import Kept, Used
from edgespec.tuning.loading import Models
from edgespec.tuning.loading import Settings as LoadedWith
from edgespec.tuning.process import Measured
from edgespec.tuning.report import to_json as tune_json
from edgespec.tuning.sweep import Sweep
from model_places import make_places


def error_types(base: type[errors.EdgeSpecError] = errors.EdgeSpecError) -> Iterator[type[errors.EdgeSpecError]]:
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from error_types(kind)


def test_exit_codes() -> None:
    rows = table_rows(sections(CLI, 2)["Rules for all commands"])
    stated = {(int(exit_code), name) for exit_code, names, _ in rows for name in code(names)}
    assert stated == {(kind.exit_code, kind.__name__) for kind in error_types()}


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Dotted paths of an object's leaves; `[]` stands for the items of a list of objects."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from paths(inner, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from paths(value[0], f"{at}[]")
    else:
        yield at


def stated_fields(text: str) -> list[set[str]]:
    """The fields of each table of a text."""
    tables = re.split(r"^\| Field .*$", text, flags=re.MULTILINE)[1:]
    return [{name for row in table_rows("| |\n|---|\n" + table) for name in code(row[0])} for table in tables]


DRAFTED = DraftedToken(id=1, text="a", q=0.5, p=None, accepted=True)

ROUND = RoundEvent(
    round=1,
    source="NAME",
    k=1,
    drafted=(DRAFTED,),
    accepted=1,
    produced=2,
    emitted=(1,),
    draft_ms=0.0,
    verify_ms=0.0,
    other_ms=0.0,
)


def test_json_fields() -> None:
    stats = GenerationStats()
    stats.record(ROUND)
    reply = Reply(text="", tokens=(), logprobs=(), finish_reason="stop", model="", drafter="", stats=stats)
    found = {**reply.to_json(), "conversation": None}
    fields = {p.replace("widths.2", "widths.ROWS") for p in paths(found)}
    assert stated_fields(sections(CLI, 3)["The --json object"]) == [fields]


def test_jsonl_fields() -> None:
    token = TokenEvent(text="", id=0, source="target", logprob=0.0, round=0)
    lines = [set(paths(token.to_json())), set(paths(ROUND.to_json()))]
    assert stated_fields(sections(CLI, 3)["The --jsonl lines"]) == lines


def test_show_json_fields(tmp_path: Path) -> None:
    choice = Choice(buffers="auto", flash_attn="off", threads=1, gpu_layers=0)
    trial = Trial(choice, 1.0, 2.0)
    finding = Finding("q4_0", None, 1, "2026-01-31", None, ())
    header, profile = read_header(write_tiny(tmp_path / "tiny.gguf")), RuntimeProfile(choice, trial, (trial,))
    there = OnGpu("GPU", -1, Fit(2, 1, ()))
    facts = describe(header, profile, Record("", finding, finding), forecast(header, None), there)
    fields = set(paths({**facts, "split": {"no": 0, "count": 2}}))
    assert stated_fields(sections(CLI, 3)["The object of show --json"]) == [fields]


def test_pull_json_fields(tmp_path: Path) -> None:
    (file := tmp_path / "model.gguf").touch()
    item = Wanted(catalog().starter)
    lines = [progress_json("", "check", 0, 1), result_json(item, file), plan_json(item)]
    assert stated_fields(sections(CLI, 3)["The lines of pull --json"]) == [set(line) for line in lines]


def test_ls_rm_and_pair_json_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = make_places(tmp_path)
    for name, value in places.env.items():
        monkeypatch.setenv(name, value)
    write_tiny(places.own / "a.gguf")
    for title, command, arguments in (
        ("The items of ls --json", ls.ls, ["--json"]),
        ("The items of pair --json", pair.pair, ["a", "--json"]),
        ("The object of rm --json", rm.rm, ["a", "--yes", "--json"]),
    ):
        found = json.loads(CliRunner().invoke(command, arguments, catch_exceptions=False).stdout)
        item = found[0] if isinstance(found, list) else found
        assert stated_fields(sections(CLI, 3)[title]) == [set(paths(item))]


def test_history_json_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    with History() as saved:
        question = saved.add_message(saved.new_conversation(), None, "user", "Name a bird.")
        reply = saved.begin_reply(1, question)
        reply.append(TokenEvent(text="A jay.", id=0, source="target", logprob=0.0, round=0))
        reply.finish("stop", result={"seed": None})

    def printed(*arguments: str) -> Any:
        return json.loads(CliRunner().invoke(history.history, [*arguments, "--json"], catch_exceptions=False).stdout)

    (row,) = printed("ls")
    shown = printed("show", "1")
    (tmp_path / "file.json").write_text(json.dumps(printed("export")), "utf-8")
    for title, found in (
        ("The items of history ls --json", row),
        ("The object of history show --json", {name: v for name, v in shown.items() if name not in row}),
        ("The items of history search --json", printed("search", "bird")[0]),
        ("The object of history rm --json", printed("rm", "1")),
        ("The object of history import --json", printed("import", str(tmp_path / "file.json"))),
    ):
        assert stated_fields(sections(CLI, 3)[title]) == [set(paths(found))], title
    exported = json.loads((tmp_path / "file.json").read_text("utf-8"))
    assert stated_fields(sections(CLI, 3)["The object of history export --json"]) == [set(paths(exported))]


@pytest.mark.usefixtures("tiny_load")
def test_bench_json_fields() -> None:
    class Rival:
        name = "rival"

        def run(self, *_: object) -> Run:
            return Run(tokens=3, seconds=1.0)

        def close(self) -> None:
            """Nothing was opened."""

    settings = Settings(max_tokens=4)
    with edgespec.load() as llm:
        prompts = tuple(BenchPrompt(name, ({"role": "user", "content": name},)) for name in ("one", "two"))
        modes = [parse_mode(mode, has_draft=False) for mode in ("auto", "lookup:2")]
        outcome = run_bench(llm, [Workload("mine", prompts)], modes, settings, [Rival()])
        result = to_json(llm, outcome, settings)
    fields = {re.sub(r"cost_table\.\d+", "cost_table.ROWS", p) for p in paths(result)}
    assert stated_fields(sections(CLI, 3)["The object of bench --json"]) == [fields]


@pytest.mark.usefixtures("tiny_load")
def test_bench_parallel_json_fields() -> None:
    settings = Settings(max_tokens=4)
    llm = edgespec.load()  # which the run closes
    prompts = tuple(BenchPrompt(name, ({"role": "user", "content": name},)) for name in ("one", "two"))
    about = parallel_report.head(llm, settings, 2)
    outcome = run_parallel(llm, [Workload("mine", prompts)], AUTO, settings, 2)
    fields = set(paths(parallel_report.to_json(about, outcome, 0)))
    assert stated_fields(sections(CLI, 3)["The object of bench --parallel --json"]) == [fields]


def test_verify_json_fields() -> None:
    found = IdentityResult(0, (), {})
    row = LawResult("probe", 100, None, None, 0, 0)
    fields = set(paths(Report(found, (row,), row, found).to_json()))
    assert stated_fields(sections(CLI, 3)["The object of verify --json"]) == [fields]


def test_tune_json_fields() -> None:
    trial = Form("as it is", 1, CostTable((1,), (1.0,)), Perplexity(1.0, 0.0, 0.0), Agreement(0.5, 0.5, 1))
    sweep, used = Sweep((trial,), {}, 0.0), Used("as it is", Path("model.gguf"))
    models = Models(Path("model.gguf"), Path("draft.gguf"), LoadedWith())
    result = tune_json(models, Measured(sweep, sweep, trial), Kept(used, used))
    fields = {re.sub(r"(ms|speed)\.\d+", r"\1.ROWS", p) for p in paths(result)}
    assert stated_fields(sections(CLI, 3)["The object of tune --json"]) == [fields]


def test_keys_of_the_config() -> None:
    rows = [row for row in table_rows(sections(CLI, 2)["edgespec config"]) if code(row[0])[0] in KEYS]
    commands = {code(row[0])[0]: set(code(row[3])) for row in rows}
    assert [(code(row[0]), code(row[1])) for row in rows] == [([name], [variable(name)]) for name in KEYS]
    for name, row in KEYS.items():
        assert commands[name] == (set(row.commands) - {"load", "stream"}) or name == "color"
    found = {"path": "", "values": [{"key": "", "value": "", "source": ""}], "problems": []}
    assert stated_fields(sections(CLI, 3)["The object of config show --json"]) == [set(paths(found))]


def test_checks_of_doctor() -> None:
    section = sections(CLI, 2)["edgespec doctor"]
    assert [name for row in table_rows(section) for name in code(row[0]) if name in CHECKS] == list(CHECKS)
    fields = {"checks": [{"name": "", "status": "", "detail": "", "fix": ""}]}
    assert stated_fields(sections(CLI, 3)["The object of doctor --json"]) == [set(paths(fields))]


def test_environment_variables() -> None:
    stated = {name for row in table_rows(sections(CLI, 2)["Environment variables"]) for name in code(row[0])}
    files = [p for folder in ("edgespec", "models", "tui") for p in (ROOT / folder).rglob("*.py")]
    source = "\n".join(p.read_text("utf-8") for p in [*files, ROOT / "tests" / "conftest.py"])
    read = re.findall(r'environ(?:\.\w+\(|\[)"(\w+)"', source) + re.findall(r'"(\w+)" (?:not )?in os\.environ', source)
    assert stated == set(read)


def test_train_and_convert_json_fields(tmp_path: Path) -> None:
    done = Trained(
        tmp_path, "medusa", 1, 1, 1, Score((0.5,), 1.5, 1.0, 1.0), (MeasuredHeads(0.0, 1.5, (0.5,), 9),) * 2, 1.0
    )
    assert stated_fields(sections(CLI, 3)["The object of train --json"]) == [set(trained_json(tmp_path, done))]
    block = np.eye(8, dtype=np.float32)
    save_file(
        {"0.0.linear.weight": block, "0.0.linear.bias": block[0], "0.1.weight": block}, tmp_path / "a.safetensors"
    )
    arguments = [str(tmp_path / "a.safetensors"), "-o", str(tmp_path / "b.safetensors"), "--json"]
    found = json.loads(CliRunner().invoke(convert.convert, arguments, catch_exceptions=False).stdout)
    assert stated_fields(sections(CLI, 3)["The object of convert --json"]) == [set(found)]
