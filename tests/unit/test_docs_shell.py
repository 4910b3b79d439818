"""Shell commands in the documents and in the Makefile are ones that the program would take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from documents import PAGES, ROOT, blocks, command, context

from edgespec.cli import COMMANDS
from edgespec.cli import edgespec as program


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
    name, *rest = rest or ["chat"]  # as on a terminal
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
