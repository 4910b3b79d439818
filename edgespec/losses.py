"""What trying drafts may cost: accounts of time, one for each request, joined where requests share decodes.

A speculative round that does not pay costs time. What such rounds may cost in all is a start, then a share of the time
that has passed. The promise is 3%; the rest of it is for what is not planned.
"""

from __future__ import annotations

_START_STEPS = 6.0  # plain steps, at most
_START_SHARE, _LEAST_START_STEPS = 0.015, 1.5  # of the tokens expected; a narrow draft must fit in
_SHARE = 0.018
_MAX_SAVED_STEPS = 40.0  # gains that a loss may use up, in plain steps
_HOPE_SHARE = 0.005  # of the time that has passed, for plans that would win if they were better than they seem
_HOPE_AFTER = 150.0  # plain steps: where nothing has been gained, a short reply is not for trying things


class Ledger:
    """The accounts of requests that may share decodes: there, what a loss may cost is one account for all of them."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []


class Account:
    """Of one request. Times in milliseconds; a plain step is a decode without drafts."""

    def __init__(self, tokens: int, ledger: Ledger | None = None) -> None:
        """tokens: the request is expected to produce.  ledger: till close()."""
        self._start_steps = min(_START_STEPS, max(_LEAST_START_STEPS, _START_SHARE * tokens))
        self._debt_ms = self._spent_ms = self._hopes_ms = 0.0
        self._ledger = ledger
        if ledger is not None:
            ledger.accounts.append(self)

    def close(self) -> None:
        """The request has ended."""
        if self._ledger is not None:
            self._ledger.accounts.remove(self)
            self._ledger = None

    def left(self, plain_ms: float, others: int) -> float:
        """What may still be lost. others: requests in the same decode.

        Losses delay all requests that share the rounds: each brings its part of what may be lost, and any of them may
        lose it.
        """
        accounts = self._ledger.accounts if self._ledger is not None and others else [self]
        start_ms = plain_ms / (1 + others)
        return sum(a._start_steps * start_ms + _SHARE * a._spent_ms - a._debt_ms for a in accounts)

    def spend(self, ms: float) -> None:
        """A round has taken so long, or its part of a round that others share."""
        self._spent_ms += ms

    def lose(self, ms: float, plain_ms: float) -> None:
        """A round with drafts has cost so much more than plain ones for its tokens; less than 0: it has gained."""
        self._debt_ms = max(self._debt_ms + ms, -_MAX_SAVED_STEPS * plain_ms)

    def may_hope(self, plain_ms: float) -> bool:
        """Bad luck with a long draft must not rule long drafts out for ever: what would win if it were better than it
        seems is tried, the more often the less that is expected to lose.
        """
        waits = _HOPE_AFTER * plain_ms if self._debt_ms > 0 else 0.0
        return self._hopes_ms < _HOPE_SHARE * (self._spent_ms - waits)

    def hope(self, ms: float) -> None:
        """Such a plan was taken, and is expected to cost so much more than the best one."""
        self._hopes_ms += ms
