"""The documents taken apart: sections, tables, fenced blocks; and the commands they describe."""

from __future__ import annotations

import re
from pathlib import Path

import click

from edgespec.cli import COMMANDS
from edgespec.cli import edgespec as program

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CLI = (ROOT / "docs" / "cli.md").read_text("utf-8")
NAMES = ["", *COMMANDS]
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
    """Every spelling of a command's options that are for people, --help too; of a group, also those of its commands."""
    whole = command(name)
    parts = [whole, *whole.commands.values()] if name and isinstance(whole, click.Group) else [whole]
    found = [
        p for part in parts for p in part.get_params(context(name)) if isinstance(p, click.Option) and not p.hidden
    ]
    return {spelling: option for option in found for spelling in (*option.opts, *option.secondary_opts)}


def documented(name: str) -> tuple[str, dict[str, list[str]]]:
    """A command's section of docs/cli.md, and its option rows by spelling."""
    section = sections(CLI, 2)[f"edgespec {name}".strip()]
    return section, {s: row for row in table_rows(section) for s in code(row[0]) if s.startswith("-")}
