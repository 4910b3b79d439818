"""Events and totals of a generation: what --json, --jsonl, the Python API and the screens read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TopToken:
    """One of the tokens that the target held likeliest at some place. text: its own, so perhaps half a character."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One emitted token.

    text: what this token adds to the visible text (may be empty: half a character, or held back
    because it may begin a stop string).  id: token id.  source: who proposed it ("target", "bonus",
    "model", "lookup", ...).  logprob: log-softmax of the target's raw logits at `id`, natural log.
    round: 0 for the token from the prompt pass, then 1, 2, ...  top: the likeliest tokens at its place, by the same
    measure as logprob, likeliest first; as many as the request asked for.
    """

    text: str
    id: int
    source: str
    logprob: float
    round: int
    top: tuple[TopToken, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "token",
            "text": self.text,
            "id": self.id,
            "source": self.source,
            "logprob": self.logprob,
            "round": self.round,
        }


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """A drafted token. q: its probability under the proposal. p: under the target after the drafted
    prefix; None where no verifier looked (after a rejection)."""

    id: int
    text: str
    q: float
    p: float | None
    accepted: bool


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One verifying decode of the target. Times in milliseconds. beside: other requests that were in it."""

    round: int
    source: str
    k: int
    drafted: tuple[DraftedToken, ...]
    accepted: int
    produced: int  # tokens the verifier produced, before a stop or a limit cut them
    emitted: tuple[int, ...]  # ids after cutting
    draft_ms: float
    verify_ms: float
    other_ms: float
    beside: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "round",
            "round": self.round,
            "source": self.source,
            "k": self.k,
            "drafted": [{"id": d.id, "text": d.text, "q": d.q, "p": d.p, "accepted": d.accepted} for d in self.drafted],
            "accepted": self.accepted,
            "produced": self.produced,
            "emitted": list(self.emitted),
            "draft_ms": self.draft_ms,
            "verify_ms": self.verify_ms,
            "other_ms": self.other_ms,
        }


_ENOUGH_PLAIN = 3  # plain rounds before their mean time is called a measurement


@dataclass(slots=True)
class SourceStats:
    """Counts of one draft source."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class GenerationStats:
    """Totals of one generation, fed one RoundEvent at a time.

    rounds counts verifying target decodes; the prompt pass is not one.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    produced: int = 0
    prompt_ms: float = 0.0
    decode_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    shared_rounds: int = 0  # rounds with other requests in the same decode
    plain_rounds: int = 0
    plain_ms: float = 0.0
    mode: str = "plain"
    why: str = ""
    drafted_at: list[int] = field(default_factory=list)  # [i]: rounds that drafted more than i tokens
    accepted_at: list[int] = field(default_factory=list)  # [i]: rounds that accepted more than i tokens
    widths: dict[int, int] = field(default_factory=dict)  # rows verified -> rounds
    sources: dict[str, SourceStats] = field(default_factory=dict)

    def record(self, event: RoundEvent) -> None:
        """Add one round."""
        self.rounds += 1
        self.drafted += event.k
        self.accepted += event.accepted
        self.produced += event.produced
        self.shared_rounds += event.beside > 0
        self.draft_ms += event.draft_ms
        self.verify_ms += event.verify_ms
        self.decode_ms += event.draft_ms + event.verify_ms + event.other_ms
        self.widths[event.k + 1] = self.widths.get(event.k + 1, 0) + 1
        while len(self.drafted_at) < event.k:
            self.drafted_at.append(0)
            self.accepted_at.append(0)
        for i in range(event.k):
            self.drafted_at[i] += 1
            self.accepted_at[i] += i < event.accepted
        if not event.k:
            self.plain_rounds += 1
            self.plain_ms += event.verify_ms + event.other_ms
        else:
            self.mode = "speculative"
            source = self.sources.setdefault(event.source, SourceStats())
            source.rounds += 1
            source.drafted += event.k
            source.accepted += event.accepted

    @property
    def tau(self) -> float | None:
        """Tokens produced per verifying decode, before cutting; plain decoding has 1."""
        return self.produced / self.rounds if self.rounds else None

    @property
    def acceptance(self) -> float | None:
        """Accepted / drafted tokens."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def per_position(self) -> list[float]:
        """[i]: of the rounds that drafted at least i + 1 tokens, the share that accepted token i."""
        return [a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True)]

    @property
    def tokens_per_s(self) -> float | None:
        """Emitted tokens after the first, per second of rounds; None without any."""
        after = self.completion_tokens - 1
        return 1000 * after / self.decode_ms if after > 0 and self.decode_ms > 0 else None

    @property
    def speedup_vs_plain(self) -> float | None:
        """Speed of all rounds over that of the plain ones among them; None without drafts, or with too few plain ones.

        Rounds shared with other requests took the time of all: these say nothing about one.
        """
        if not self.drafted or self.shared_rounds or self.plain_rounds < _ENOUGH_PLAIN or not self.decode_ms:
            return None
        return self.produced / self.decode_ms * self.plain_ms / self.plain_rounds

    def to_json(self) -> dict[str, Any]:
        """The "stats" object of `run --json`."""
        return {
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tau": self.tau,
            "acceptance": self.acceptance,
            "per_position": self.per_position,
            "per_source": {
                name: {"rounds": s.rounds, "drafted": s.drafted, "accepted": s.accepted}
                for name, s in self.sources.items()
            },
            "prompt_ms": self.prompt_ms,
            "decode_ms": self.decode_ms,
            "draft_ms": self.draft_ms,
            "verify_ms": self.verify_ms,
            "tokens_per_s": self.tokens_per_s,
            "speedup_vs_plain": self.speedup_vs_plain,
            "plan": {"widths": {str(w): n for w, n in sorted(self.widths.items())}},
            "mode": self.mode,
            "why": self.why,
        }
