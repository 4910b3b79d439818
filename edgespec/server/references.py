"""Schemas of several functions in one: what each refers to within itself gets a name of its own.

The converter to a grammar names a rule by the last part of a reference. Two functions that both define `kind` would
otherwise share one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BadRequestError


class References:
    """What was referred to so far. found: the definitions for all of it, to stand under "$defs"."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._names: dict[tuple[int, str], str] = {}

    def moved(self, schema: Any, whole: Mapping[str, Any]) -> Any:
        """A schema, part of `whole`, that refers to what was found instead.

        Raises BadRequestError for a reference that leads nowhere, or through too many others.
        """
        try:
            return self._moved(schema, whole)
        except RecursionError:
            raise BadRequestError(
                "tools: the JSON schema of a function is nested too deeply; make it flatter"
            ) from None

    def _moved(self, schema: Any, whole: Mapping[str, Any]) -> Any:
        if isinstance(schema, list):
            return [self._moved(one, whole) for one in schema]
        if not isinstance(schema, Mapping):
            return schema
        target = schema.get("$ref")
        if isinstance(target, str) and (target == "#" or target.startswith("#/")):
            return {"$ref": f"#/$defs/{self._name(target, whole)}"}
        return {name: self._moved(one, whole) for name, one in schema.items()}

    def _name(self, target: str, whole: Mapping[str, Any]) -> str:
        key = (id(whole), target)
        if key not in self._names:
            name = self._names[key] = f"call-part{len(self._names)}"
            self.found[name] = {}  # a schema may refer to itself
            self.found[name] = self._moved(_at(target, whole), whole)
        return self._names[key]


def _at(target: str, whole: Mapping[str, Any]) -> Any:
    """What a JSON pointer (RFC 6901) of a schema points at."""
    found: Any = whole
    for step in target.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, Mapping) and key in found:
            found = found[key]
        else:
            raise BadRequestError(f"tools: the JSON schema of a function has no {target[:60]}")
    return found
