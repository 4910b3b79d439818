"""The documents say what the code does: options, JSON fields, exit codes, modules, and examples that run."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import edgespec
from edgespec import drafters, errors
from edgespec.bench.modes import parse_mode
from edgespec.bench.prompts import BenchPrompt, Workload
from edgespec.bench.report import to_json
from edgespec.bench.runner import Settings, run_bench
from edgespec.bench.statistics import Run
from edgespec.checks.report import IdentityResult, LawResult, Report
from edgespec.cli import COMMANDS
from edgespec.cli import edgespec as program
from edgespec.cli.show import describe
from edgespec.generation import GenerationRequest, generate
from edgespec.llama import LoadSettings
from edgespec.llama.binding import KV_TYPES
from edgespec.models.header import read_header
from edgespec.reply import Reply
from edgespec.sampling import SamplingParams
from edgespec.stats import DraftedToken, GenerationStats, RoundEvent, TokenEvent
from edgespec.testing import DrafterContract, TableModel
from edgespec.tiny_gguf import CHATML_TEMPLATE, write_tiny
from edgespec.verification import SEED, VERIFIERS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CLI = (ROOT / "docs" / "cli.md").read_text("utf-8")

Rows = list[list[str]]


def sections(text: str, level: int) -> dict[str, str]:
    """Bodies by title of the headings of one level; a body holds its deeper headings."""
    parts = re.split(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)
    return {
        title: re.split(rf"^#{{1,{level}}} ", body, flags=re.MULTILINE)[0]
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def table_rows(text: str) -> Rows:
    """Cells of all table rows, headings and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {i for i, row in enumerate(rows) if set("".join(row)) <= set("-:")}
    return [row for i, row in enumerate(rows) if i not in rules and i + 1 not in rules]


def code(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", text)


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of one language, indented ones (in lists) too."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return ["".join(line[len(indent) :] for line in body.splitlines(True)) for indent, body in found]


# ---- options ------------------------------------------------------------------------------------------------


def command(name: str) -> click.Command:
    if not name:
        return program
    found = program.get_command(click.Context(program), name)
    assert found is not None, f"no command {name}"
    return found


def context(name: str) -> click.Context:
    parent = click.Context(program, info_name="edgespec", **program.context_settings)
    return click.Context(command(name), parent=parent, info_name=name) if name else parent


def options(name: str) -> dict[str, click.Option]:
    """Every spelling of a command's options, --help too."""
    found = [p for p in command(name).get_params(context(name)) if isinstance(p, click.Option)]
    return {spelling: option for option in found for spelling in (*option.opts, *option.secondary_opts)}


def documented(name: str) -> tuple[str, dict[str, list[str]]]:
    """A command's section of docs/cli.md, and its option rows by spelling."""
    section = sections(CLI, 2)[f"edgespec {name}".strip()]
    return section, {s: row for row in table_rows(section) for s in code(row[0]) if s.startswith("-")}


NAMES = ["", *COMMANDS]


def test_every_command_has_its_section() -> None:
    assert {title for title in sections(CLI, 2) if title.startswith("edgespec")} == {
        f"edgespec {name}".strip() for name in NAMES
    }


@pytest.mark.parametrize("name", NAMES)
def test_option_tables_list_the_commands_options(name: str) -> None:
    assert set(documented(name)[1]) == set(options(name))


@pytest.mark.parametrize("name", NAMES)
def test_spellings_of_one_option_share_a_row(name: str) -> None:
    for spelling, row in documented(name)[1].items():
        option = options(name)[spelling]
        assert set(code(row[0])) == {*option.opts, *option.secondary_opts}


@pytest.mark.parametrize("name", NAMES)
def test_values_and_defaults_are_the_commands(name: str) -> None:
    for spelling, (_, value, default, meaning) in documented(name)[1].items():
        option = options(name)[spelling]
        assert meaning, spelling
        if option.is_flag:
            assert (value, default) in (("", "off"), ("", "")), spelling
        else:
            assert value == f"`{option.make_metavar(context(name)).removesuffix('...')}`", spelling
            if option.show_default:
                assert default == f"`{option.default}`", spelling
            else:
                assert default, spelling


@pytest.mark.parametrize("name", NAMES)
def test_options_in_the_text_exist(name: str) -> None:
    section = documented(name)[0]
    known = {s for other in NAMES for s in options(other)}
    named = {word for span in code(section) for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", span)}
    assert named <= known | {"-inf"}


def test_values_that_the_code_knows_are_all_named() -> None:
    rows = documented("run")[1]
    assert set(code(rows["--drafter"][3])) >= set(drafters.DRAFTERS)
    assert set(re.findall(r"\b(?:q|f|bf)\d\w*", rows["--kv-type"][3])) == set(KV_TYPES)
    assert set(rows["--verify"][1].strip("`").split("|")) == {*VERIFIERS, SEED}
    assert rows["--draft-max"][2] == "planned"
    assert f"at most {LoadSettings().max_width - 1}," in rows["--draft-max"][3]


# ---- shell commands -----------------------------------------------------------------------------------------


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of one shell line, without pipes, redirections and variables set in front."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if set(word) <= set("|;&"):
            if words:
                yield words
            words = []
        elif set(word) <= set("<>"):
            skip = True
        elif skip or (not words and re.match(r"\w+=", word)):
            skip = False
        else:
            words.append(word)


def check_edgespec(arguments: list[str]) -> None:
    """Parse as the program would; click raises for an unknown command or option."""
    group = context("")
    rest = program.make_parser(group).parse_args(list(arguments))[1]
    name, *rest = rest
    assert name in COMMANDS, f"no command {name}"
    command(name).make_context(name, rest, parent=group)


def shell_lines() -> list[tuple[str, str]]:
    lines = [(page.name, line) for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(BIN)/", "")
    return lines + [("Makefile", line.strip().lstrip("@")) for line in makefile.splitlines() if line.startswith("\t")]


def test_shell_commands_of_the_documents_and_the_makefile_parse() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    seen = 0
    for where, line in shell_lines():
        for words in simple_commands(line):
            program_name = Path(words[0]).name
            if program_name == "edgespec":
                seen += 1
                try:
                    check_edgespec(words[1:])
                except click.ClickException as error:
                    pytest.fail(f"{where}: {line}: {error.format_message()}")
            elif program_name == "make":
                assert set(words[1:]) <= targets, f"{where}: {line}"
    assert seen > 10


def test_the_shell_check_catches_an_unknown_option() -> None:
    (_, words) = simple_commands("cat notes | CFLAGS=-O2 edgespec run --tempreature 0 'a | b' > out")
    assert words == ["edgespec", "run", "--tempreature", "0", "a | b"]
    with pytest.raises(click.NoSuchOption):
        check_edgespec(words[1:])


def test_options_named_in_other_pages_exist() -> None:
    known = {s for name in NAMES for s in options(name)}
    foreign = {"--no-cache-dir", "--force-reinstall", "--again"}  # of pip and of the probe
    for page in PAGES:
        prose = re.sub(r"^( *)```.*?^\1```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        named = {word for span in code(prose) for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
        assert named <= known | foreign, page.name


# ---- tables of facts ----------------------------------------------------------------------------------------


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
    fields = {p.replace("widths.2", "widths.ROWS") for p in paths(reply.to_json())}
    assert stated_fields(sections(CLI, 3)["The --json object"]) == [fields]


def test_jsonl_fields() -> None:
    token = TokenEvent(text="", id=0, source="target", logprob=0.0, round=0)
    lines = [set(paths(token.to_json())), set(paths(ROUND.to_json()))]
    assert stated_fields(sections(CLI, 3)["The --jsonl lines"]) == lines


def test_show_json_fields(tmp_path: Path) -> None:
    facts = describe(read_header(write_tiny(tmp_path / "tiny.gguf")))
    fields = set(paths({**facts, "split": {"no": 0, "count": 2}}))
    assert stated_fields(sections(CLI, 3)["The object of show --json"]) == [fields]


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
        prompt = BenchPrompt("one", ({"role": "user", "content": "one"},))
        outcome = run_bench(
            llm, [Workload("mine", (prompt,))], [parse_mode("lookup:2", has_draft=False)], settings, [Rival()]
        )
        result = to_json(llm, outcome, settings)
    fields = {re.sub(r"cost_table\.\d+", "cost_table.ROWS", p) for p in paths(result)}
    assert stated_fields(sections(CLI, 3)["The object of bench --json"]) == [fields]


def test_verify_json_fields() -> None:
    found = IdentityResult(0, (), {})
    row = LawResult("probe", 100, None, None, 0, 0)
    fields = set(paths(Report(found, (row,), row, found).to_json()))
    assert stated_fields(sections(CLI, 3)["The object of verify --json"]) == [fields]


def test_environment_variables() -> None:
    stated = {name for row in table_rows(sections(CLI, 2)["Environment variables"]) for name in code(row[0])}
    files = [p for folder in ("edgespec", "models", "tui") for p in (ROOT / folder).rglob("*.py")]
    source = "\n".join(p.read_text("utf-8") for p in [*files, ROOT / "tests" / "conftest.py"])
    read = re.findall(r'environ(?:\.\w+\(|\[)"(\w+)"', source) + re.findall(r'"(\w+)" (?:not )?in os\.environ', source)
    assert stated == set(read)


# ---- architecture -------------------------------------------------------------------------------------------

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_every_module_has_its_line() -> None:
    stated: dict[str, set[str]] = {}
    folder = ""
    for line in sections(ARCHITECTURE, 2)["Modules"].splitlines():
        if heading := re.match(r"\w.*`([\w/]+)/`", line):
            folder = heading[1]
        elif line.startswith("| `"):
            stated.setdefault(folder, set()).add(code(line)[0])
    folders = ["models", "tui", *(str(p.parent.relative_to(ROOT)) for p in (ROOT / "edgespec").rglob("__init__.py"))]
    assert stated == {f: {p.name for p in (ROOT / f).glob("*.py")} for f in folders}


def test_import_direction_is_the_one_that_is_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    stated = re.findall(r"^    (edgespec\..+)$", sections(ARCHITECTURE, 2)["Who may import whom"], re.MULTILINE)
    assert stated == layers


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif "://" not in target:
            assert (page.parent / target.partition("#")[0]).exists(), target


# ---- examples that run --------------------------------------------------------------------------------------


@pytest.fixture
def tiny_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """edgespec.load() of an example gives a tiny model, whatever it names."""
    path = write_tiny(tmp_path / "tiny.gguf", chat_template=CHATML_TEMPLATE)
    load: Callable[..., Any] = edgespec.load

    def load_tiny(*args: Any, **keywords: Any) -> Any:
        inspect.signature(load).bind(*args, **keywords)
        return load(path, ctx_size=512, threads=1, buffers="none")

    monkeypatch.setattr(edgespec, "load", load_tiny)


README_EXAMPLES = blocks(ROOT / "README.md", "python")


@pytest.mark.usefixtures("tiny_load")
@pytest.mark.parametrize("number", range(len(README_EXAMPLES)))
def test_python_examples_of_the_readme_run(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(README_EXAMPLES[number], f"README.md, example {number}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()


DRAFTER_EXAMPLES = blocks(ROOT / "docs" / "add-a-drafter.md", "python")


def drafter_page(count: int = 2) -> ModuleType:
    """The first examples of the page as one module: the drafter, its contract class, its use."""
    module = ModuleType("drafter_page")
    for number, text in enumerate(DRAFTER_EXAMPLES[:count]):
        exec(compile(text, f"docs/add-a-drafter.md, example {number}", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("law", sorted(name for name in dir(DrafterContract) if name.startswith("test_")))
def test_the_example_drafter_passes_the_contract(law: str) -> None:
    contract = drafter_page().TestBigramDrafter()
    assert isinstance(contract, DrafterContract)
    getattr(contract, law)()


def test_the_example_drafter_drafts_what_is_accepted() -> None:
    target = TableModel(3, seed=1, order=1)
    request = GenerationRequest(prompt=(0,), params=SamplingParams(temperature=0), max_tokens=60)
    generation = generate(target, request, drafter_page().BigramDrafter())
    for _ in generation:
        pass
    assert generation.stats.drafted > 30
    assert generation.stats.accepted > 0.8 * generation.stats.drafted


@pytest.mark.usefixtures("tiny_load")
def test_the_example_drafter_is_used_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    drafter_page(3)
    assert capsys.readouterr().out.strip()


def test_every_python_example_compiles_and_imports_what_exists() -> None:
    for page in PAGES:
        for number, text in enumerate(blocks(page, "python")):
            compile(text, f"{page.name}, example {number}", "exec")
            for module, names in re.findall(r"^from (edgespec[\w.]*) import ([\w, ]+)$", text, re.MULTILINE):
                for name in names.split(", "):
                    assert hasattr(importlib.import_module(module), name), f"{page.name}: {module}.{name}"
