"""Reads foreign JSON field by field: what is not as it should be is an error that names the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ..errors import BadRequestError
from ..text import sanitize
from .conversations import EPOCH

T = TypeVar("T")

_KINDS = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a JSON document, and where it stands there. Every reading raises BadRequestError."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: Any, where: str) -> Fields:
        if not isinstance(value, dict):
            raise wrong(where, "is not an object")
        return cls(value, where)

    def only(self, *names: str) -> Fields:
        """Itself; it must have no other fields."""
        for name in self.values:
            if name not in names:
                raise wrong(self.where, f"has the unknown field {sanitize(str(name))[:40]!r}")
        return self

    def get(self, name: str, kind: type[T]) -> T:
        value = self.values.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise wrong(f"{self.where}.{name}", f"is not {_KINDS[kind]}")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        return None if self.values.get(name) is None else self.get(name, kind)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.get(name, str)
        if value not in allowed:
            raise wrong(f"{self.where}.{name}", f"is none of {', '.join(a or repr(a) for a in allowed)}")
        return value

    def number(self, name: str) -> float:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"{self.where}.{name}", "is not a number")
        return float(value)

    def milliseconds(self, name: str) -> int:
        """A time in ISO form, with its zone."""
        try:
            return (datetime.fromisoformat(self.get(name, str)) - EPOCH) // timedelta(milliseconds=1)
        except (ValueError, TypeError, OverflowError):
            raise wrong(f"{self.where}.{name}", "is not a time such as 2026-01-31T12:00:00.000+00:00") from None

    def objects(self, name: str) -> list[Fields]:
        return [Fields.of(v, f"{self.where}.{name}[{i}]") for i, v in enumerate(self.get(name, list))]


def wrong(where: str, what: str) -> BadRequestError:
    """An error about a place in the file."""
    return BadRequestError(f"the import cannot be read: {where} {what}; nothing was imported")
