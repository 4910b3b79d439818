"""The speed that a request has reached against plain decoding: what the time of a round is weighed by."""

from __future__ import annotations

from collections.abc import Iterable

from .offers import Offer

_MEMORY = 0.97  # per round
_LAST = 17  # tokens: few rounds can use what is saved then
# Rounds in a row with a draft that is free, then without one: such text goes on so for a while. Where such drafts come
# now and then, the next one may come with the next round, and the fewer tokens are drafted otherwise the better.
_RUN, _GAP = 3, 5


class Pace:
    """Of the latest rounds of one request.

    A round is worth what the text behind it would take at that speed (planning.py). Where the next tokens are sure to
    be slower, the speed reached would make plain rounds seem cheap: then plain decoding is the measure.
    """

    def __init__(self) -> None:
        self.recent = (0.0, 0.0)  # milliseconds that plain rounds would have taken, and those that it took
        self._run, self._gap = 0, 0  # latest rounds with a draft that is free, and those without one since
        self._ends = False

    def see(self, offers: Iterable[Offer], room: int, remaining: int) -> None:
        """What sources offer in the round that begins. room: most tokens that may be drafted.  remaining: tokens that
        are expected to come; where no more than that may, a draft can end the text.
        """
        self._ends = 1 < remaining <= min(_LAST, room + 2)  # or one less: the first of all was chosen before any round
        if any(offer.features and not offer.step_ms for offer in offers):
            self._run = 1 if self._gap else self._run + 1
            self._gap = 0
        else:
            self._gap += 1

    def add(self, plain_ms: float, ms: float) -> None:
        """A round is over."""
        plain, spent = self.recent
        self.recent = (plain * _MEMORY + plain_ms, spent * _MEMORY + ms)

    @property
    def over_plain(self) -> float:
        """Times plain decoding's speed, at least 1."""
        plain, spent = self.recent
        over = self._run >= _RUN and self._gap >= _GAP
        return 1.0 if self._ends or over or not spent else max(1.0, plain / spent)
