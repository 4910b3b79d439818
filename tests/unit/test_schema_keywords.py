"""What becomes of each keyword of a JSON schema: kept, ignored or refused, and docs/clients.md says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from documents import ROOT, code, sections, table_rows

from edgespec.errors import BadRequestError
from edgespec.llama import schema_to_gbnf

_NUMBER, _TEXT, _ANY = {"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "null"}}
_OBJECT = {"type": "object", "properties": {"a": _TEXT}, "required": ["a"]}
# Keyword -> (a schema without it, its value).
KEPT: dict[str, tuple[dict[str, Any], Any]] = {
    "type": ({}, "integer"),
    "const": (_TEXT, "x"),
    "enum": (_TEXT, ["x", 1]),
    "properties": ({"type": "object"}, {"a": _TEXT}),
    "required": ({"type": "object", "properties": {"a": _TEXT}}, ["a"]),
    "additionalProperties": (_OBJECT, _NUMBER),
    "items": ({"type": "array"}, _TEXT),
    "prefixItems": ({"type": "array"}, [_TEXT, _NUMBER]),
    "minItems": (_ANY, 2),
    "maxItems": (_ANY, 2),
    "minLength": (_TEXT, 2),
    "maxLength": (_TEXT, 2),
    "pattern": (_TEXT, "^ab+$"),
    "format": (_TEXT, "date"),
    "anyOf": (_TEXT, [{"const": 1}, _TEXT]),
    "oneOf": (_TEXT, [{"const": 1}, _TEXT]),
    "allOf": ({"type": "object"}, [_OBJECT]),
    "$ref": ({"$defs": {"b": _NUMBER}}, "#/$defs/b"),
}
IGNORED: dict[str, tuple[dict[str, Any], Any]] = {
    "minimum": (_NUMBER, 1),
    "maximum": (_NUMBER, 9),
    "exclusiveMinimum": (_NUMBER, 1),
    "exclusiveMaximum": (_NUMBER, 9),
    "multipleOf": (_NUMBER, 2),
    "uniqueItems": (_ANY, True),
    "contains": (_ANY, _TEXT),
    "minContains": (_ANY, 1),
    "maxContains": (_ANY, 1),
    "unevaluatedItems": (_ANY, False),
    "minProperties": (_OBJECT, 1),
    "maxProperties": (_OBJECT, 1),
    "patternProperties": (_OBJECT, {"^x$": _NUMBER}),
    "propertyNames": (_OBJECT, {"pattern": "^x$"}),
    "dependentRequired": (_OBJECT, {"a": ["b"]}),
    "dependentSchemas": (_OBJECT, {"a": _OBJECT}),
    "unevaluatedProperties": (_OBJECT, False),
    "not": (_TEXT, {"const": "x"}),
    "if": (_OBJECT, _OBJECT),
    "then": (_OBJECT, _OBJECT),
    "else": (_OBJECT, _OBJECT),
    "title": (_TEXT, "x"),
    "description": (_TEXT, "x"),
    "default": (_TEXT, "x"),
    "examples": (_TEXT, ["x"]),
    "deprecated": (_TEXT, True),
    "readOnly": (_TEXT, True),
    "writeOnly": (_TEXT, True),
    "contentEncoding": (_TEXT, "base64"),
    "contentMediaType": (_TEXT, "text/plain"),
    "$schema": (_TEXT, "https://json-schema.org/draft/2020-12/schema"),
    "$id": (_TEXT, "x"),
    "$anchor": (_TEXT, "x"),
    "$comment": (_TEXT, "x"),
    "$defs": (_TEXT, {"b": _NUMBER}),
    "definitions": (_TEXT, {"b": _NUMBER}),
}
FORMATS = ("date", "time", "date-time", "uuid")
# What it is called in the document -> a schema.
REFUSED: dict[str, Any] = {
    "true": {"type": "array", "items": True},
    "{}": {"type": "array", "items": {}},
    "https://": {"$ref": "https://example.invalid/a.json"},
    "#": {"$ref": "#"},
    "(?": {"type": "string", "pattern": "^(?=a)b$"},
    "^": {"type": "string", "pattern": "ab"},
    "elephant": {"type": "elephant"},
    "title": {"title": "anything"},
}


def grammar(schema: dict[str, Any]) -> str:
    """Within an object, so that the whole schema is nobody's special case."""
    rest = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in rest}
    return schema_to_gbnf(json.dumps({"type": "object", "properties": {"x": inner}, **rest}))


@pytest.mark.parametrize("keyword", KEPT)
def test_what_is_kept_changes_the_grammar(keyword: str) -> None:
    base, value = KEPT[keyword]
    plain = {key: inner for key, inner in base.items() if key != "$defs"}
    assert grammar({**base, keyword: value}) != grammar(plain or {})


@pytest.mark.parametrize("keyword", IGNORED)
def test_what_is_ignored_does_not(keyword: str) -> None:
    base, value = IGNORED[keyword]
    assert grammar({**base, keyword: value}) == grammar(base)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with pytest.raises(BadRequestError, match="cannot be turned into a grammar"):
        grammar(REFUSED[name])


def test_formats() -> None:
    plain = grammar(_TEXT)
    assert len({plain, *(grammar({**_TEXT, "format": name}) for name in FORMATS)}) == len(FORMATS) + 1
    assert all(grammar({**_TEXT, "format": name}) == plain for name in ("email", "uri", "ipv4", "regex", "x"))


def test_what_stands_beside_others_is_ignored() -> None:
    for first in ({"$ref": "#/$defs/b"}, {"anyOf": [_TEXT]}, {"oneOf": [_TEXT]}, {"const": 1}, {"enum": [1]}):
        rest = {"$defs": {"b": _NUMBER}} if "$ref" in first else {}
        assert grammar({**first, **rest, "maxLength": 3, "properties": {"a": _TEXT}}) == grammar({**first, **rest})
    for first in ({"pattern": "^a$"}, {"format": "date"}):
        assert grammar({**_TEXT, **first, "maxLength": 1}) == grammar({**_TEXT, **first})


def test_a_list_of_types_keeps_what_stands_beside_it() -> None:
    both = {"type": ["string", "null"], "maxLength": 3}
    assert grammar(both) == grammar({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null", "maxLength": 3}]})
    assert grammar({"type": ["string", "null"], "enum": ["a", None]}) == grammar({"enum": ["a", None]})


def test_objects_are_closed_unless_they_are_open() -> None:
    shut, open_ = (
        grammar({**_OBJECT, "additionalProperties": False}),
        grammar({**_OBJECT, "additionalProperties": True}),
    )
    assert grammar(_OBJECT) == shut != open_


def test_the_document_says_so() -> None:
    page = (ROOT / "docs" / "clients.md").read_text("utf-8")
    rows = {row[0]: row for row in table_rows(sections(page, 2)["JSON schemas"])}
    assert set(code(rows["kept"][1])) == set(KEPT) - {"format"} | {"format"}
    assert set(code(rows["ignored"][1])) == set(IGNORED)
    assert set(code(rows["refused"][1])) >= set(REFUSED) - {"elephant", "title"}
    assert {name for name in FORMATS if f"`{name}`" in page} == set(FORMATS)
