"""The documents name the options that the commands have, with their values and defaults."""

from __future__ import annotations

import re

import pytest
from documents import CLI, NAMES, PAGES, code, context, documented, options, sections

from edgespec import drafters
from edgespec.llama import LoadSettings
from edgespec.llama.binding import KV_TYPES
from edgespec.verification import SEED, VERIFIERS

# Options of pip, of the probe and of llama-server.
FOREIGN = {"--no-cache-dir", "--force-reinstall", "--again", "--spec-type"}


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
    assert named <= known | FOREIGN | {"-inf"}


def test_values_that_the_code_knows_are_all_named() -> None:
    rows = documented("run")[1]
    assert set(code(rows["--drafter"][3])) >= set(drafters.DRAFTERS)
    assert set(re.findall(r"\b(?:q|f|bf)\d\w*", rows["--kv-type"][3])) == set(KV_TYPES)
    assert set(rows["--verify"][1].strip("`").split("|")) == {*VERIFIERS, SEED}
    assert rows["--draft-max"][2] == "planned"
    assert f"at most {LoadSettings().max_width - 1}," in rows["--draft-max"][3]


def test_options_named_in_other_pages_exist() -> None:
    known = {s for name in NAMES for s in options(name)}
    for page in PAGES:
        prose = re.sub(r"^( *)```.*?^\1```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        named = {word for span in code(prose) for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
        assert named <= known | FOREIGN, page.name
