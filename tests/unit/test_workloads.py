"""The benchmark texts are whole: counts, sizes, uniqueness, and code that compiles."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from edgespec.workloads import HERE, NAMES, edit_tasks, prompts

TASKS = edit_tasks()
EACH = 20  # fewer make an interval rough


def only_block(text: str) -> str:
    """The content of the one fenced block in the text."""
    (block,) = re.findall(r"^```[a-z]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return block


@pytest.mark.parametrize("name", NAMES)
def test_each_workload_has_enough_different_prompts(name):
    found = prompts(name)
    assert len(found) == EACH
    assert len({prompt.text for prompt in found}) == len(found)
    assert len({prompt.name for prompt in found}) == len(found)
    assert all(prompt.text.strip() for prompt in found)


def test_only_the_code_prompts_are_bare():
    assert {name for name in NAMES if not all(prompt.chat for prompt in prompts(name))} == {"code"}


def test_an_unknown_workload_is_refused_by_name():
    with pytest.raises(ValueError, match="no workload 'poetry'; use one of edit, code"):
        prompts("poetry")


def test_every_edit_file_has_exactly_one_task():
    files = sorted(path.name for path in (HERE / "edit").iterdir() if re.match(r"\d\d-", path.name))
    assert [task.name for task in TASKS] == files
    assert len({task.source for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_an_edit_task_holds_a_whole_file_of_40_to_120_lines(task):
    assert 40 <= len(task.source.splitlines()) <= 120
    assert task.source.endswith("\n")
    assert task.instruction.endswith("Reply with the whole updated file only, in one code block.")
    assert task.prompt.startswith(task.instruction)
    assert only_block(task.prompt) == task.source


def test_the_first_name_in_an_instruction_stands_in_its_file():
    for task in TASKS:
        identifiers = re.findall(r"`(\w+)`", task.instruction)
        assert not identifiers or identifiers[0] in task.source, task.name


def test_python_and_toml_sources_are_valid():
    suffixes = [Path(task.name).suffix for task in TASKS]
    assert suffixes.count(".py") == 7
    assert suffixes.count(".toml") == 2
    for task in TASKS:
        if task.name.endswith(".py"):
            compile(task.source, task.name, "exec")
        elif task.name.endswith(".toml"):
            assert tomllib.loads(task.source)


def test_each_code_prompt_is_one_function_with_a_docstring_and_no_body():
    for prompt in prompts("code"):
        (function,) = ast.parse(only_block(prompt.text)).body
        assert isinstance(function, ast.FunctionDef)
        assert ">>> " + function.name in (ast.get_docstring(function) or "")
        assert len(function.body) == 1


def test_the_texts_to_summarise_have_150_to_300_words():
    for prompt in prompts("summarise"):
        _, text = prompt.text.split("\n\n", 1)
        assert 150 <= len(text.split()) <= 300, prompt.name
