"""The loop of one request: propose, decode, commit. rounds.py runs a round, also of several requests at once.

Invariants: between rounds the cache holds exactly tokens[:-1]; every round commits at least one token;
a draft never exceeds the room left in the context, in max_tokens or in one decode.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from .beside import ALONE, Beside
from .distribution import Distribution
from .drafting import NO_DRAFT, Draft, Drafter, Explains, ReadsFeatures, ReadsStates, Shares, Steps
from .errors import Cancelled, ContextFullError, DecodeError
from .lazy import Lazy
from .noise import Noise
from .proposing import Drafting
from .request import GenerationRequest
from .rounds import Event, Timing, step
from .sampling import Grammar, Sampler, Walk
from .scoring import Rows, Scorer, common_prefix
from .sharing import Prospect
from .stages import largest
from .stats import DraftedToken, GenerationStats, RoundEvent, TokenEvent, TopToken
from .text import OutputText
from .verification import SEED, VERIFIERS, Verdict, verify_greedy, verify_seed

__all__ = ["NO_ROLLBACK", "Event", "Generation", "GenerationRequest", "Timing", "generate", "step"]

_LEAST_SUM = 1e-20  # of exponentials: below, those of float32 lose digits
NO_ROLLBACK = "speculation is off for this model: its recurrent state cannot be rolled back"


class Generation:
    """One running request: plain state, and an iterator over its events.

    tokens: prompt and committed tokens.  text: visible text so far.  finish_reason: None while running,
    then "stop", "length" or "cancelled".  error: what it failed with, where it shared its rounds with others.
    """

    def __init__(
        self,
        scorer: Scorer,
        request: GenerationRequest,
        drafter: Drafter | None = None,
        grammar: Grammar | None = None,
        *,
        why: str = "",
        cancelled: threading.Event | None = None,
    ) -> None:
        """why: one sentence on why nothing drafts, kept in stats.  cancelled: shared with the drafter."""
        if len(request.prompt) >= scorer.n_ctx:
            raise ContextFullError(
                f"the prompt has {len(request.prompt)} tokens and the context of {scorer.n_ctx} has room for "
                f"{scorer.n_ctx - 1}; shorten the prompt or raise --ctx-size",
                needed=len(request.prompt),
                available=scorer.n_ctx - 1,
            )
        self.scorer = scorer
        self.request = request
        self.drafter = drafter if scorer.can_roll_back and request.draft_max else None
        if drafter is not None and self.drafter is None:
            drafter.close()
        self._shares = self.drafter if isinstance(self.drafter, Shares) else None
        self._steps = self.drafter if isinstance(self.drafter, Steps) else None  # asked once: it takes a while
        self._states = self.drafter.states if isinstance(self.drafter, ReadsStates) else None
        self.tokens = list(request.prompt)
        self.prompt_len = len(request.prompt)
        seed = request.params.seed
        noise = Noise(seed, self.prompt_len) if request.verify == SEED and seed is not None else None
        self.sampler = Sampler(request.params, scorer.vocab.size, grammar, noise)
        self.rng = np.random.default_rng(seed)
        self.output = OutputText(request.stop)
        self.sequence = scorer.sequence(request.prompt)
        if isinstance(self.drafter, ReadsFeatures) and self.drafter.features is not None:
            self.sequence.ear = self.drafter.features.put
        self.cancelled = cancelled or threading.Event()
        self.finish_reason: str | None = None
        self.error: Exception | None = None
        self.stats = GenerationStats(prompt_tokens=self.prompt_len)
        self.stats.why = NO_ROLLBACK if drafter and not scorer.can_roll_back else why
        self.text = ""
        self._read_ms = 0.0
        self._learning_ms = 0.0  # that the drafter took after the latest round: a part of what drafts cost in the next
        self._closed = self._asked = False  # asked: a drafter, so far

    @property
    def completion(self) -> list[int]:
        """Committed tokens after the prompt; an end token is not among them."""
        return self.tokens[self.prompt_len :]

    def read(self, chunk: int) -> Iterator[int]:
        """Read the prompt ahead, yielding how many of its tokens the cache holds: at first, and after each chunk.

        chunk: tokens that one decode of the scorer reads. The last chunk is left to the decode that scores, so that
        the decodes are those of a prompt that was not read ahead.
        """
        try:
            while True:
                held = common_prefix(self.sequence.cached, self.request.prompt)
                yield held
                if not self.read_ahead(chunk):
                    return
        except Cancelled:
            self.finish("cancelled")

    def read_ahead(self, chunk: int) -> bool:
        """Read at most `chunk` tokens of the text that the cache lacks; False: the rest is for the decode that scores.

        Raises Cancelled.
        """
        held, last = common_prefix(self.sequence.cached, self.tokens), len(self.tokens) - chunk
        if held >= last:
            return False
        begin = time.perf_counter()
        self.sequence.sync(self.tokens[: min(held + chunk, last)], self.cancelled)
        self.has_read(_ms(begin))
        return True

    @property
    def unread(self) -> int:
        """Tokens that the cache lacks of its text, the newest, whose row is to be scored, not counted."""
        cached, length = self.sequence.cached, len(self.tokens) - 1
        if len(cached) == length and self.completion_started:
            return 0  # as after every round
        return length - min(length, common_prefix(cached, self.tokens))

    def has_read(self, ms: float) -> None:
        """A piece of its text has been read, in so many milliseconds."""
        self._read_ms += ms

    @property
    def wants_states(self) -> bool:
        """True where a drafter reads the target's hidden states."""
        return self._states is not None

    @property
    def expects(self) -> float:
        """Tokens that its latest draft was expected to give beyond the one of a plain round; 0: nobody plans it."""
        return 0.0 if self._shares is None else self._shares.expects

    def _room(self, width: int) -> int:
        """Tokens that a draft may have in a round of at most `width` rows."""
        if not self.completion_started:
            return 0
        left = self.request.max_tokens
        return min(
            self.request.draft_max,
            width - 1,
            self.scorer.n_ctx - len(self.tokens) - 1,
            self.scorer.n_ctx if left is None else left - (len(self.tokens) - self.prompt_len) - 1,
        )

    def prospect(self, width: int, beside: Beside) -> Prospect | None:
        """What a draft would give in a round that others share; None: nobody plans it, or there is no room for one.

        beside: what the others have in the decode if nobody drafts.
        """
        room = self._room(width)
        if self._shares is None or room <= 0:
            return None
        return self._shares.prospect(self.tokens, room, self.sampler, self.rng, beside)

    def drafting(self, width: int, beside: Beside = ALONE) -> Drafting:
        """This round's draft, at most `width` rows with the one that needs no draft. beside: others' share of it.

        The steps of a draft model are yielded, and its rows sent back.
        """
        room = self._room(width)
        if self.drafter is None or room <= 0:
            return NO_DRAFT
        self._asked = True
        if self._shares is not None:
            self._shares.share(beside)
        if self._steps is not None:
            draft = yield from self._steps.steps(self.tokens, room, self.sampler, self.rng)
        else:
            draft = self.drafter.draft(self.tokens, room, self.sampler, self.rng)
        return self._checked(draft, room)

    @property
    def completion_started(self) -> bool:
        """False until the prompt pass has given its token."""
        return len(self.tokens) > self.prompt_len or self.finish_reason is not None

    def _checked(self, draft: Draft, room: int) -> Draft:
        """Cut after an end token; refuse what no verifier may see."""
        size, vocab = self.scorer.vocab.size, self.scorer.vocab
        if len(draft.tokens) > room or len(draft.proposals) != len(draft.tokens):
            raise DecodeError(
                f"drafter {draft.source!r} gave {len(draft.tokens)} tokens and {len(draft.proposals)} proposals "
                f"where up to {room} of each were asked for"
            )
        for i, token in enumerate(draft.tokens):
            if not 0 <= token < size:
                raise DecodeError(f"drafter {draft.source!r} proposed token id {token}; ids run from 0 to {size - 1}")
            if vocab.is_eog(token):
                return draft.cut(i + 1)
        return draft

    def commit(self, draft: Draft, rows: Rows, timing: Timing) -> list[Event]:
        """Verify the draft on the target's rows, take the new tokens, and report them."""
        start = time.perf_counter()
        first = not self.completion_started
        number = self.stats.rounds + (0 if first else 1)
        walk = self.sampler.walk(self.tokens)
        targets: Lazy[Distribution] | None = None
        if self.sampler.greedy:
            winners = Lazy(walk, draft.tokens, rows, Walk.winner)
            verdict = verify_greedy(draft.tokens, winners)
            looked = [1.0 if w == t else 0.0 for w, t in zip(winners.known, draft.tokens, strict=False)]
        else:
            targets = Lazy(walk, draft.tokens, rows, Walk.distribution)
            verdict = self._verdict(draft, targets)
            looked = [float(p.prob(t)) for p, t in zip(targets.known, draft.tokens, strict=False)]
        before = len(self.tokens)
        events: list[Event] = list(self._take(verdict, draft, rows, number))
        new = len(self.tokens) - before
        if self._states is not None and new:
            # The row that chose the last token: the one after all the others.
            self._states.put(len(self.tokens) - 1, self.scorer.states(self.sequence)[new - 1])
        self.sequence.truncate(len(self.tokens) - 1)
        if first:
            self.stats.prompt_ms = self._read_ms + timing.verify_ms + timing.other_ms + _ms(start)
        else:
            event = RoundEvent(
                round=number,
                source=draft.source,
                k=len(draft.tokens),
                drafted=self._drafted(draft, verdict, looked),
                accepted=verdict.accepted,
                produced=len(verdict.tokens),
                emitted=tuple(self.tokens[before:]),
                draft_ms=timing.draft_ms + self._learning_ms,
                verify_ms=timing.verify_ms,
                other_ms=timing.other_ms + _ms(start),
                beside=timing.beside.requests,
            )
            self.stats.record(event)
            if self.drafter is not None:
                if self._shares is not None:
                    self._shares.share(timing.beside)
                begin = time.perf_counter()
                self.drafter.observe(event)
                self._learning_ms = _ms(begin)
            events.append(event)
        return events

    def _verdict(self, draft: Draft, targets: Sequence[Distribution]) -> Verdict:
        """What the request's rule makes of a draft; at temperature 0 it is not asked."""
        if self.request.verify == SEED:
            return verify_seed(draft.tokens, targets, self._chosen)
        return VERIFIERS[self.request.verify](draft.tokens, draft.proposals, targets, self.rng)

    def _chosen(self, target: Distribution, row: int) -> int:
        """The target's token at row `row` of this round, in seed-exact mode."""
        return self.sampler.choose(target, len(self.tokens) + row, self.rng)

    def _take(self, verdict: Verdict, draft: Draft, rows: Rows, number: int) -> Iterator[TokenEvent]:
        """Commit the verdict's tokens up to a stop, an end token or a limit."""
        vocab, limit = self.scorer.vocab, self.request.max_tokens
        for i, token in enumerate(verdict.tokens):
            if i < verdict.accepted:
                source = draft.source
            else:
                source = "bonus" if draft.tokens and verdict.accepted == len(draft.tokens) else "target"
            if vocab.is_eog(token):
                self.finish_reason = "stop"
                held = self.output.finish()
                if held:  # the end token is no part of the text, but what waited for it is
                    self.text += held
                    yield self._event(held, token, source, rows[i], number)
                return
            self.tokens.append(token)
            self.sampler.commit(token)
            self.stats.completion_tokens += 1
            text = self.output.push(vocab.piece(token))
            if self.output.stopped:
                self.finish_reason = "stop"
            elif self.stats.completion_tokens == limit or len(self.tokens) >= self.scorer.n_ctx:
                self.finish_reason = "length"
                text += self.output.finish()
            self.text += text
            yield self._event(text, token, source, rows[i], number)
            if self.finish_reason:
                return

    def _event(self, text: str, token: int, source: str, row: Rows, number: int) -> TokenEvent:
        logprob = log_probability(row, token)
        wanted = self.request.top_logprobs
        top = self._top(row, wanted, float(row[token]) - logprob) if wanted else ()
        return TokenEvent(text, token, source, logprob, number, top)

    def _top(self, row: Rows, wanted: int, log_sum: float) -> tuple[TopToken, ...]:
        """The likeliest tokens of raw logits `row`. log_sum: the logarithm of the sum of their exponentials."""
        piece = self.scorer.vocab.piece
        ids = largest(row[: self.scorer.vocab.size], wanted)
        ordered = ids[np.argsort(-row[ids], kind="stable")].tolist()
        return tuple(TopToken(i, piece(i).decode("utf-8", "replace"), float(row[i]) - log_sum) for i in ordered)

    def _drafted(self, draft: Draft, verdict: Verdict, looked: list[float]) -> tuple[DraftedToken, ...]:
        piece = self.scorer.vocab.piece
        return tuple(
            DraftedToken(
                id=token,
                text=piece(token).decode("utf-8", "replace"),
                q=float(q.prob(token)),
                p=looked[i] if i < len(looked) else None,
                accepted=i < verdict.accepted,
            )
            for i, (token, q) in enumerate(zip(draft.tokens, draft.proposals, strict=True))
        )

    def cancel(self) -> None:
        """Ask to stop, from any thread: before the next round, or within a long prompt."""
        self.cancelled.set()

    def finish(self, reason: str) -> str:
        """End now; returns text that was held back, which is part of self.text from here on."""
        held = ""
        if self.finish_reason is None:
            self.finish_reason = reason
            held = self.output.finish()
            self.text += held
        return held

    def fail(self, error: Exception) -> None:
        """End now, because of an error of its own."""
        self.error = error
        self.finish("cancelled")

    def end_cancelled(self) -> list[Event]:
        """End now; text that waited for a possible stop string comes out as a last event."""
        text = self.finish("cancelled")
        return [TokenEvent(text, self.tokens[-1], "target", 0.0, self.stats.rounds)] if text else []

    def __iter__(self) -> Iterator[Event]:
        """Run to the end, yielding events; closing the iterator cancels."""
        try:
            while self.finish_reason is None:
                yield from step(self.scorer, [self])[0]
        finally:
            self.finish("cancelled")
            self.close()

    def close(self) -> None:
        """Give back the cache, holding tokens[:-1], and the drafter."""
        if not self._closed:
            self._closed = True
            self.sequence.truncate(len(self.tokens) - 1)
            self.sequence.close()
            if self.drafter is not None:
                self.drafter.close()
                if not self.stats.why:
                    self.stats.why = self._why_plain(self.drafter)

    def _why_plain(self, drafter: Drafter) -> str:
        """Why nothing was guessed, or, where something was, why it is not worth it any more; else empty."""
        planned = drafter.why if isinstance(drafter, Explains) else ""
        if planned or self.stats.drafted:
            return planned
        return "no source had a draft" if self._asked else "the answer ended before anything could be guessed"


def generate(
    scorer: Scorer,
    request: GenerationRequest,
    drafter: Drafter | None = None,
    grammar: Grammar | None = None,
) -> Generation:
    """A generation to iterate over: `for event in generate(...)`."""
    return Generation(scorer, request, drafter, grammar)


def log_probability(row: Rows, token: int) -> float:
    """log-softmax of raw logits `row`, shape (V,), at `token`; natural log."""
    with np.errstate(over="ignore"):
        total = float(np.exp(row).sum())
    if _LEAST_SUM < total < math.inf:  # as a rule: shifting the row first would take as long again
        return min(0.0, float(row[token]) - math.log(total))
    top = row.max()
    return float(row[token] - top) - float(np.log(np.exp(row - top).sum()))


def _ms(since: float) -> float:
    return 1000 * (time.perf_counter() - since)
