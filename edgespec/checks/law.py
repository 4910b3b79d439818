"""Does sampled text have the target's law? A few outcomes that the target's own rows make exact, and many samples.

After one fixed text, sampling with top-k 3 leaves nine continuations of two tokens. Their probabilities
come from the target's rows; the loop, with drafter, cache and verifier, draws samples; the total
variation of the two must stay within a bound. A deliberately biased rule must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..api import LLM
from ..distribution import Distribution
from ..drafters import LookupDrafter, build
from ..drafting import NO_DRAFT, Draft, Drafter
from ..generation import Event, Generation, GenerationRequest, Timing, step
from ..llama import Context
from ..sampling import Sampler, SamplingParams
from ..scoring import Rows, ScoreRequest
from ..stats import RoundEvent
from ..testing import total_variation, total_variation_bound
from .report import LawResult

Tokens = tuple[int, ...]
Tell = Callable[[int], None]

PARAMS = SamplingParams(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0)
LENGTH = 2  # tokens of an outcome, all of them drafted
LEAST_SAMPLES = 100  # the bound is then 0.40, and the negative control is still sure to exceed it
CONTROL_SAMPLES = 300
PROBE = "probe"
_PATIENCE = 20  # samples without a draft after which a drafter counts as one that never drafts

# Each text ends inside a phrase that it had before, so that lookup has something to propose, and where the
# words that it had are not sure to come.
TEXTS = (
    "For breakfast Anna had tea and toast. For breakfast Ben had tea and eggs. For breakfast Carla had tea and",
    "The red bus was late. The blue bus was early. The green bus was late. The white bus was",
    "Monday was cold and wet. Tuesday was cold and dry. Wednesday was cold and",
    "yes no no yes no yes yes no yes no no yes yes no",
    "The coin fell: heads, tails, tails, heads, tails, heads, heads, tails, heads,",
)
_SMALL_SHIFT = 0.02


@dataclass(frozen=True, slots=True)
class Setting:
    """Where outcomes are drawn. tokens: the fixed text.  nodes: the target's distribution after each beginning of
    an outcome.  law: of outcomes; a shorter one ended.  shift: how far the width of a decode alone moves the law."""

    tokens: Tokens
    nodes: Mapping[Tokens, Distribution]
    law: Mapping[Tokens, float]
    shift: float


def choose_setting(llm: LLM, draft_max: int) -> Setting:
    """Of the fixed texts, the one where a copied token is most likely both taken and refused.

    Before that come texts whose law hardly depends on the width of a decode, after it a law that is spread wide.
    """
    settings = [_setting(llm.target, llm.tokenize(text), draft_max + 1) for text in TEXTS]
    return max(
        settings, key=lambda s: (s.shift <= _SMALL_SHIFT, round(_contested(s, llm.target.vocab.size), 2), _spread(s))
    )


def _contested(setting: Setting, vocab_size: int) -> float:
    """p (1 - p) for the first token that prompt lookup proposes."""
    draft = LookupDrafter().draft(setting.tokens, 1, Sampler(PARAMS, vocab_size), np.random.default_rng(0))
    p = float(setting.nodes[()].prob(draft.tokens[0])) if draft.tokens else 0.0
    return p * (1 - p)


def _spread(setting: Setting) -> float:
    """The probability that two outcomes differ."""
    return 1 - sum(p * p for p in setting.law.values())


def _setting(target: Context, tokens: Tokens, width: int) -> Setting:
    nodes = _nodes(target, tokens, width)
    law = _law(target, nodes)
    at_one = _law(target, _nodes(target, tokens, 1))
    shift = sum(abs(law.get(key, 0.0) - at_one.get(key, 0.0)) for key in law.keys() | at_one.keys()) / 2
    return Setting(tokens, nodes, law, shift)


def _nodes(target: Context, tokens: Tokens, width: int) -> dict[Tokens, Distribution]:
    """The target's distributions at the beginnings of outcomes, from decodes of `width` rows."""
    sampler = Sampler(PARAMS, target.vocab.size)
    sequence = target.sequence(tokens)
    nodes: dict[Tokens, Distribution] = {}

    def visit(prefix: Tokens) -> None:
        if len(prefix) == LENGTH or (prefix and target.vocab.is_eog(prefix[-1])):
            return
        text = (*tokens, *prefix)
        split = len(tokens) if width > len(prefix) else len(text)
        drafted = text[split:]
        filler = (tokens[-1],) * (width - 1 - len(drafted))  # rows before it do not see it
        with target.turn:
            rows = target.score([ScoreRequest(sequence, text[:split], drafted + filler)])[0]
            nodes[prefix] = sampler.walk(text).distribution(rows[len(drafted)])
        for token in nodes[prefix].ids.tolist():
            visit((*prefix, token))

    visit(())
    sequence.close()
    return nodes


def _law(target: Context, nodes: Mapping[Tokens, Distribution]) -> dict[Tokens, float]:
    """Probabilities of outcomes; an end token is no part of one."""
    law: Counter[Tokens] = Counter()

    def extend(prefix: Tokens, weight: float) -> None:
        if prefix not in nodes:
            law[prefix[:-1] if target.vocab.is_eog(prefix[-1]) else prefix] += weight  # type: ignore[assignment]
            return
        row = nodes[prefix]
        for token, p in zip(row.ids.tolist(), row.probs.tolist(), strict=True):
            extend((*prefix, token), weight * p)

    extend((), 1.0)
    return dict(law)


class Probe:
    """A drafter that knows the target and is wrong on purpose: eight times in ten it draws the least likely candidate.

    It reports what it draws from, so it is exact under any exact rule, and mostly rejected: corrections are
    tested however good the user's own drafters are.
    """

    name = PROBE

    def __init__(self, setting: Setting) -> None:
        self._start = len(setting.tokens)
        self._nodes = setting.nodes

    def draft(self, tokens: Sequence[int], k: int, sampler: Sampler, rng: np.random.Generator) -> Draft:
        """Up to k tokens, as far as the outcomes go."""
        prefix = tuple(tokens[self._start :])
        drafted: list[int] = []
        proposals: list[Distribution] = []
        while len(drafted) < k and (node := self._nodes.get((*prefix, *drafted))) is not None:
            proposals.append(_contrary(node))
            drafted.append(proposals[-1].sample(rng))
        return Draft(tuple(drafted), tuple(proposals), self.name) if drafted else NO_DRAFT

    def observe(self, event: RoundEvent) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to give back."""


def _contrary(target: Distribution) -> Distribution:
    """0.8 on the least likely candidate, the rest shared by the others: at least 0.3 away from any target."""
    others = len(target.ids) - 1
    if not others:
        return target
    probs = np.full(others + 1, 0.2 / others)
    probs[int(np.argmin(target.probs))] = 0.8
    return Distribution(target.ids, probs)


class AcceptAll(Generation):
    """The negative control: a loop whose rule takes every guess that the target could have made."""

    def commit(self, draft: Draft, rows: Rows, timing: Timing) -> list[Event]:
        # With q(x) next to nothing every test u < p(x) / q(x) passes.
        understated = tuple(
            Distribution(np.array(sorted((t, t ^ 1)), dtype=np.int64), np.array([1.0, 1e-9] if t % 2 else [1e-9, 1.0]))
            for t in draft.tokens
        )
        return super().commit(replace(draft, proposals=understated), rows, timing)


def check_source(
    llm: LLM, setting: Setting, source: str, samples: int, draft_max: int, seed: int, tell: Tell
) -> LawResult:
    """Sample with one source, or with the probe. tell: called with the number of samples drawn."""

    def make() -> Drafter | None:
        return Probe(setting) if source == PROBE else build((source,), llm.resources())

    drawn = _Drawn(llm.target, setting, draft_max)
    for done in range(1, samples + 1):
        drawn.draw(Generation, make(), seed + done - 1)
        tell(done)
        if done == _PATIENCE and not drawn.drafted:
            break
    return drawn.result(source)


def check_control(llm: LLM, setting: Setting, samples: int, draft_max: int, seed: int, tell: Tell) -> LawResult:
    """Sample with the probe and the biased rule, at most CONTROL_SAMPLES times: the result must not be ok."""
    drawn = _Drawn(llm.target, setting, draft_max)
    for done in range(1, min(samples, CONTROL_SAMPLES) + 1):
        drawn.draw(AcceptAll, Probe(setting), seed + done - 1)
        tell(done)
    return drawn.result("negative control")


class _Drawn:
    """Outcomes counted so far."""

    def __init__(self, target: Context, setting: Setting, draft_max: int) -> None:
        self._target, self._setting, self._draft_max = target, setting, draft_max
        self._counts: Counter[Tokens] = Counter()
        self.drafted = self._accepted = 0

    def draw(self, loop: type[Generation], drafter: Drafter | None, seed: int) -> None:
        """One outcome."""
        *prompt, last = self._setting.tokens
        request = GenerationRequest(
            prompt=tuple(prompt), params=PARAMS.replace(seed=seed), draft_max=self._draft_max, verify="block"
        )
        generation = loop(self._target, request, drafter)
        # The fixed text's last token counts as the first one generated, which no round drafts: this saves a decode,
        # and every token of the outcome comes from a round that may draft.
        generation.tokens.append(last)
        generation.sampler.commit(last)
        try:
            while generation.finish_reason is None and len(generation.completion) <= LENGTH:
                step(self._target, [generation])
        finally:
            generation.close()
        self._counts[tuple(generation.completion[1 : LENGTH + 1])] += 1
        self.drafted += generation.stats.drafted
        self._accepted += generation.stats.accepted

    def result(self, name: str) -> LawResult:
        law, samples = self._setting.law, self._counts.total()
        tv = bound = None
        if self.drafted:
            tv = total_variation(self._counts, law)
            # The rows that samples come from differ from the law's by what the width of a decode does.
            bound = total_variation_bound(len(law), samples) + self._setting.shift
        return LawResult(name, samples, tv, bound, self.drafted, self._accepted)
