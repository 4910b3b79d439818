"""The tokens and rounds of one reply, running or old, and what is known of each token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..stats import DraftedToken, RoundEvent, TokenEvent

Event = TokenEvent | RoundEvent


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """A token and how it came about.

    number: from 0.  place: of the token in its round, from 0.  round: None where it is not complete, and for a token
    that came with the prompt.  pending: its round may still come.
    """

    token: TokenEvent
    number: int
    place: int
    round: RoundEvent | None
    pending: bool = False

    @property
    def rejected(self) -> tuple[DraftedToken, ...]:
        """The guesses of its round that were not taken: the first was refused, the others fell with it."""
        return tuple(d for d in self.round.drafted if not d.accepted) if self.round else ()

    @property
    def replaces(self) -> DraftedToken | None:
        """The refused guess in whose place this token stands."""
        r = self.round
        return r.drafted[r.accepted] if r and self.place == r.accepted < r.k else None


class ReplyTokens:
    """Events in the order they came; a round's tokens come before the round."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.tokens: list[TokenEvent] = []
        self.rounds: dict[int, RoundEvent] = {}
        self._start: dict[int, int] = {}  # by round: its first token
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        if isinstance(event, RoundEvent):
            self.rounds[event.round] = event
        else:
            self._start.setdefault(event.round, len(self.tokens))
            self.tokens.append(event)

    def facts(self, number: int) -> TokenFacts:
        """Of token `number`, from 0."""
        token = self.tokens[number]
        r = self.rounds.get(token.round)
        pending = r is None and 0 < token.round > max(self.rounds, default=0)
        return TokenFacts(token, number, number - self._start[token.round], r, pending)

    def refused(self, number: int) -> bool:
        """Did a guess have to give way to this token?"""
        return self.facts(number).replaces is not None
