"""Examples in the documents run, and do what their page says."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import pytest
from documents import PAGES, ROOT, blocks

from edgespec.generation import GenerationRequest, generate
from edgespec.sampling import SamplingParams
from edgespec.testing import DrafterContract, TableModel

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
