"""docs/architecture.md lists the modules and the import direction there is; links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from documents import PAGES, ROOT, code, sections

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
