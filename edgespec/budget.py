"""Limits on what untrusted template code may build: a budget of work and time, and sizes checked as values appear.

The functions here spend from the Budget of the running `with budget():` block and raise TemplateLimitError.
"""

from __future__ import annotations

import time
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.runtime import LoopContext

MAX_TEXT = 8_000_000  # characters of any one string, and of the output
MAX_PARTS = 1_000_000  # characters of a string that is taken apart into a list
MAX_NODES = 200_000  # values in any one list or mapping, nested ones counted each time they appear
MAX_WORK = 128_000_000  # characters and values handled by one rendering
MAX_BITS = 10_000  # of an integer
MAX_SECONDS = 2.0


class TemplateLimitError(TemplateError):
    """The template wants more work, memory or time than a chat template may use."""


class Budget:
    """What one compilation or rendering may still spend."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self._work = MAX_WORK
        self._deadline = time.monotonic() + seconds

    def spend(self, cost: int) -> None:
        self._work -= cost
        if self._work < 0:
            raise TemplateLimitError("it handles too much data")
        if time.monotonic() > self._deadline:
            raise TemplateLimitError("it runs too long")


BUDGET: ContextVar[Budget] = ContextVar("BUDGET")


@contextmanager
def budget(seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Let the templates that this thread or task compiles or renders meanwhile spend from a new Budget."""
    token = BUDGET.set(Budget(seconds))
    try:
        yield
    finally:
        BUDGET.reset(token)


def spend(cost: int) -> None:
    BUDGET.get().spend(cost)


def fits(size: int, limit: int = MAX_TEXT) -> None:
    """Refuse a result of `size` characters or values before it is made."""
    if size > limit:
        raise TemplateLimitError("it builds something too large")


def weigh(value: object) -> int:
    """Return how many characters and values `value` holds, shared parts counted each time; refuse what is too large."""
    left, chars = MAX_NODES, 0
    stack = [value]
    while stack:
        item = stack.pop()
        left -= 1
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, Mapping):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        if left < len(stack) or chars > MAX_TEXT:
            raise TemplateLimitError("it builds something too large")
    spend(MAX_NODES - left)
    return chars + MAX_NODES - left


def text_of(value: object) -> str:
    """Return the text of `value`; its size is bounded because weigh is, and other objects print a few characters."""
    if isinstance(value, (list, tuple, Mapping)):
        weigh(value)
    return value if isinstance(value, str) else str(value)


def checked(value: Any) -> Any:
    """Spend what handling `value`, just built, costs; refuse it if too large; make iterators spend as they run."""
    spend(1)
    if isinstance(value, str):
        fits(len(value))
        spend(len(value))
    elif isinstance(value, (list, tuple, Mapping)):
        weigh(value)
    elif isinstance(value, int):
        fits(value.bit_length(), MAX_BITS)
    elif isinstance(value, (KeysView, ValuesView, ItemsView)):
        return checked(list(value))  # a view would hide what it holds from weigh
    elif isinstance(value, Iterator) and not isinstance(value, LoopContext):
        return each(value)
    return value


def each(values: Any, cost: int = 1) -> Iterator[Any]:
    """Iterate over `values`, spending `cost` each time."""
    for value in values:
        spend(cost)
        yield value
