"""Drafts whose tokens take decodes of a draft model, made together: each decode has a row of all that go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import Cancelled, ContextFullError

if TYPE_CHECKING:
    from .drafting import Draft
    from .scoring import Rows, Scorer, ScoreRequest


@dataclass(frozen=True, slots=True)
class Step:
    """What a drafter asks its draft model for: one row. It is sent that row, which the next decode overwrites.

    planned, most: tokens that the whole draft is expected to have, and may have.
    """

    scorer: Scorer
    request: ScoreRequest
    planned: int
    most: int


Drafting = Generator[Step, "Rows", "Draft"]
Name = TypeVar("Name")


@dataclass(eq=False, slots=True)
class Begun(Generic[Name]):
    """A draft that waits for its step."""

    name: Name
    drafting: Drafting
    step: Step
    ms: float = 0.0  # its part of the decodes so far


def alone(drafting: Drafting) -> Draft:
    """Make one draft by itself."""
    try:
        step = next(drafting)
        while True:
            with step.scorer.turn:
                step = drafting.send(step.scorer.score([step.request])[0][0])
    except StopIteration as end:
        return _draft(end)


def begin(name: Name, drafting: Drafting) -> Begun[Name] | Draft:
    """A draft up to its first step; the draft itself where it takes none."""
    try:
        return Begun(name, drafting, next(drafting))
    except StopIteration as end:
        return _draft(end)


def finish(
    begun: Iterable[Begun[Name]],
    done: Callable[[Begun[Name], Draft], None],
    failed: Callable[[Begun[Name], Exception], None],
) -> None:
    """Make all drafts, in decodes that they share. done, failed: told of each draft once, with its time in `ms`.

    What fails in a decode for several is tried for each by itself.
    """
    left = list(begun)
    while left:
        first = left[0].step.scorer
        group = [one for one in left if one.step.scorer is first][: first.max_sequences]
        others = [one for one in left if all(one is not taken for taken in group)]
        left = [*others, *_decode(first, group, done, failed)]


def _decode(
    scorer: Scorer,
    group: list[Begun[Name]],
    done: Callable[[Begun[Name], Draft], None],
    failed: Callable[[Begun[Name], Exception], None],
) -> list[Begun[Name]]:
    """A step of these drafts; returns those that go on."""
    requests = [one.step.request for one in group]
    if len(group) > 1:
        if sum(len(r.tokens) for r in requests) > scorer.cells or len(group) > scorer.max_width:
            return [more for one in group for more in _decode(scorer, [one], done, failed)]
        # One that is cancelled meanwhile does not take the others' drafts with it.
        requests = [replace(r, cancel=None) for r in requests]
    left = []
    begin = time.perf_counter()
    with scorer.turn:
        try:
            scored = scorer.score(requests)
        except (Cancelled, ContextFullError) as error:
            if len(group) > 1:
                return [more for one in group for more in _decode(scorer, [one], done, failed)]
            failed(group[0], error)
            return []
        except Exception as error:
            for one in group:
                failed(one, error)
            return []
        ms = _ms(begin) / len(group)
        for one, rows in zip(group, scored, strict=True):
            begin = time.perf_counter()
            try:
                one.step = one.drafting.send(rows[0])
            except StopIteration as end:
                one.ms += ms + _ms(begin)
                done(one, _draft(end))
            except Exception as error:
                failed(one, error)
            else:
                one.ms += ms + _ms(begin)
                left.append(one)
    return left


def _draft(end: StopIteration) -> Draft:
    draft: Any = end.value
    return draft  # type: ignore[no-any-return]


def _ms(since: float) -> float:
    return 1000 * (time.perf_counter() - since)
