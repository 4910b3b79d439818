"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. fix: what to do, where it is not ok."""

    status: Status
    detail: str
    fix: str | None = None


def ok(detail: str) -> Finding:
    """All is well, or there is nothing to be said against it."""
    return Finding("ok", detail)


def warn(detail: str, fix: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding("warn", detail, fix)


def fail(detail: str, fix: str) -> Finding:
    """Something will not work."""
    return Finding("fail", detail, fix)
