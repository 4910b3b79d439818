"""What is known of the selected token, in a few lines."""

from __future__ import annotations

import math

from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.widgets import Static

from ..stats import DraftedToken
from .looks import rejected_style, style_of
from .reply_tokens import TokenFacts
from .sources import REJECTED, look
from .token_view import TokenView

_DIM = Style(dim=True)
_BOLD = Style(bold=True)
_LONG = 40  # characters of a token that are shown
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def literal(text: str) -> str:
    """A text in quotes, with everything that has no width, turns the direction or drives a terminal as an escape."""
    shown = "".join(_NAMED.get(c) or (c if c.isprintable() else c.encode("unicode_escape").decode()) for c in text)
    return f'"{shown[:_LONG]}…"' if len(shown) > _LONG else f'"{shown}"'


class TokenInspector(Static):
    """Shows TokenFacts: text, source, probability, round; the guesses that were rejected, and what came instead."""

    DEFAULT_CSS = """
    TokenInspector { height: auto; max-height: 6; padding: 0 1; background: $panel; color: $foreground; }
    TokenInspector:ansi { background: ansi_default; color: ansi_default; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(markup=False, id=id)
        self.facts: TokenFacts | None = None
        self._view: TokenView | None = None

    def on_mount(self) -> None:
        self.show(self.facts)

    def on_resize(self, event: Resize) -> None:
        if self._view is not None and self._view.is_attached:
            self._view.reveal()  # this may have grown over the token

    def show(self, facts: TokenFacts | None, view: TokenView | None = None) -> None:
        """The token to speak of, and where it is selected; None: none is."""
        self.facts = facts
        self._view = view or self._view
        if not self.is_attached:
            return
        if facts is None:
            self.update(Text("No token selected: arrow keys move, n goes to the next refused guess.", _DIM))
        else:
            self.update(Text("\n").join([self._token(facts), *self._guesses(facts)]))

    def notify_style_update(self) -> None:
        """The theme may be another one."""
        super().notify_style_update()
        if self.facts is not None and self.is_attached:
            self.show(self.facts)

    def _token(self, facts: TokenFacts) -> Text:
        """Text, source, probability."""
        token, row = facts.token, look(facts.token.source)
        name = row.label if row.label != "another source" else f"source {literal(token.source)}"
        where = "from the prompt" if token.round == 0 else f"round {token.round}"
        return Text.assemble(
            (literal(token.text), style_of(token.source, self.app) + _BOLD),
            f"  {row.glyph} {name}" if row.glyph else f"  {name}",
            f" · {_probability(token.logprob)}",
            f" · {where}, token {facts.number + 1}",
        )

    def _guesses(self, facts: TokenFacts) -> list[Text]:
        """What became of the guesses of its round."""
        r = facts.round
        if r is None:
            why = "Its round is not complete yet." if facts.pending else "It came with the prompt, unguessed."
            return [Text(why, _DIM)]
        if not r.k:
            return [Text("Nothing was guessed in this round.", _DIM)]
        guesses = f"{r.k} guess{'es' if r.k > 1 else ''}"
        if not facts.rejected:
            return [Text(f"All of {guesses} in this round accepted.", _DIM)]
        head = f"{r.accepted} of {guesses} accepted; rejected:"
        if (replaced := facts.replaces) is not None:
            head = f"In place of {literal(replaced.text)}. {head}"
        return [Text(head, _DIM), Text("   ").join(self._ghost(ghost) for ghost in facts.rejected)]

    def _ghost(self, ghost: DraftedToken) -> Text:
        target = f"target {percent(ghost.p)}" if ghost.p is not None else "not looked at"
        return Text.assemble(
            (f"{REJECTED.glyph} {literal(ghost.text)}", rejected_style(self.app)),
            f" draft {percent(ghost.q)}, {target}",
        )


def _probability(logprob: float) -> str:
    if logprob == -math.inf:
        return "probability not known"
    return f"p {percent(math.exp(min(logprob, 0.0)))} (logprob {logprob:.2f})"


def percent(share: float) -> str:
    """A probability for people: 0.5 is "50%"; small ones keep a digit."""
    value = 100 * share
    if 0 < value < 0.1:
        return "<0.1%"
    return f"{value:.1f}%" if 0 < value < 10 or 99 < value < 100 else f"{value:.0f}%"
