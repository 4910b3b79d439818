"""Test a drafter, a sampling stage or the loop against known distributions, without a model file.

`TableModel` is a fake model: a random table of next-token distributions behind the same interface as a
llama.cpp context, KV cache included. Its `law` is the exact distribution of its continuations, which
sampled output must match within `total_variation_bound`. `DrafterContract` has the checks that every
drafter passes; with pytest, for a drafter of your own:

    class TestMyDrafter(DrafterContract):
        def make_drafter(self, target: TableModel) -> Drafter:
            return MyDrafter()
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from .drafting import Draft, Drafter
from .errors import BadRequestError
from .generation import GenerationRequest, generate
from .sampling import Grammar, Sampler, SamplingParams
from .table_model import TableModel, TableSequence, TableVocab

__all__ = [
    "DrafterContract",
    "TableModel",
    "TableSequence",
    "TableVocab",
    "outcome_law",
    "sample_outcomes",
    "total_variation",
    "total_variation_bound",
]

Tokens = tuple[int, ...]


def total_variation(counts: Mapping[Tokens, int], law: Mapping[Tokens, float]) -> float:
    """1/2 sum |counts / N - law| over all outcomes: the distance of sampled outcomes from a distribution."""
    n = sum(counts.values())
    return sum(abs(counts.get(key, 0) / n - law.get(key, 0.0)) for key in counts.keys() | law.keys()) / 2


def total_variation_bound(outcomes: int, samples: int, alpha: float = 1e-6) -> float:
    """What the total variation of `samples` exact samples over `outcomes` outcomes exceeds with probability <= alpha.

    The mean is at most 1/2 sqrt((M - 1) / N); one sample moves it by at most 1 / N, so McDiarmid's
    inequality adds sqrt(ln(1 / alpha) / (2 N)).
    """
    if outcomes < 1 or samples < 1 or not 0 < alpha < 1:
        raise BadRequestError("outcomes and samples must be 1 or more, alpha between 0 and 1")
    return 0.5 * math.sqrt((outcomes - 1) / samples) + math.sqrt(math.log(1 / alpha) / (2 * samples))


def sample_outcomes(
    target: TableModel,
    make_drafter: Callable[[], Drafter | None],
    params: SamplingParams,
    prompt: Tokens,
    samples: int,
    *,
    length: int = 3,
    draft_max: int = 3,
    verify: str = "block",
    grammar: Callable[[], Grammar] | None = None,
) -> Counter[Tokens]:
    """Counts of `length`-token outcomes of seeded generations, to compare with `outcome_law`.

    The token of the prompt pass is left out: all the others come from rounds that may draft `draft_max` tokens.
    """
    counts: Counter[Tokens] = Counter()
    limit = max(length, draft_max) + 2
    for seed in range(samples):
        request = GenerationRequest(
            prompt=prompt, params=params.replace(seed=seed), max_tokens=limit, draft_max=draft_max, verify=verify
        )
        generation = generate(target, request, make_drafter(), grammar() if grammar else None)
        events = iter(generation)
        for _ in events:
            if len(generation.tokens) > len(prompt) + length:
                break
        events.close()  # type: ignore[attr-defined]  # a generator: closing it gives the cache back
        counts[tuple(generation.completion[1 : length + 1])] += 1
    return counts


def outcome_law(
    target: TableModel,
    params: SamplingParams,
    prompt: Tokens,
    length: int = 3,
    grammar: Callable[[], Grammar] | None = None,
) -> dict[Tokens, float]:
    """The exact distribution of what `sample_outcomes` counts."""
    law: dict[Tokens, float] = {}
    for tokens, weight in target.law(params, prompt, length + 1, grammar).items():
        law[tokens[1:]] = law.get(tokens[1:], 0.0) + weight
    return law


class DrafterContract:
    """What every drafter must satisfy, as test methods. Subclass it as `Test...` and write `make_drafter`.

    samples: generations per statistical check.  contexts: conversations to draft for, over 3 token ids.
    """

    samples = 2000
    contexts: tuple[Tokens, ...] = ((0,), (0, 1, 2), (2, 0, 1, 2, 0, 1, 2, 0), (1, 1, 1, 1, 1))
    params = SamplingParams(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0)

    def make_drafter(self, target: TableModel) -> Drafter:
        """A new drafter for one conversation, with all it needs, over `target`'s vocabulary."""
        raise NotImplementedError("write make_drafter in the subclass")

    def _draft(self, drafter: Drafter, tokens: Tokens, k: int = 3, seed: int = 0) -> Draft:
        """One draft, checked for form."""
        given = list(tokens)
        draft = drafter.draft(given, k, Sampler(self.params, 3), np.random.default_rng(seed))
        _require(given == list(tokens), "the drafter changed the tokens it was given")
        _require(len(draft.tokens) == len(draft.proposals), "one proposal for each drafted token")
        _require(len(draft.tokens) <= k, f"{len(draft.tokens)} tokens drafted where {k} were asked for")
        _require(bool(draft.source), "a draft names its source")
        for token, q in zip(draft.tokens, draft.proposals, strict=True):
            ids = q.ids.tolist()
            _require(type(token) is int and 0 <= token < 3, f"drafted id {token!r} is not in the vocabulary")
            _require(ids == sorted(set(ids)), "a proposal lists ids in ascending order, each once")
            _require(bool((q.probs >= 0).all()) and math.isclose(q.probs.sum(), 1), "a proposal sums to 1")
            _require(q.prob(token) > 0, "a drafted token has q > 0 under its own proposal")
        return draft

    def test_drafts_are_well_formed(self) -> None:
        drafter = self.make_drafter(TableModel(seed=1))
        for tokens, k, seed in itertools.product(self.contexts, range(5), range(8)):
            self._draft(drafter, tokens, k, seed)

    def test_equal_seeds_draw_equal_drafts(self) -> None:
        target = TableModel(seed=1)
        for tokens, seed in itertools.product(self.contexts, range(8)):
            drafts = [self._draft(self.make_drafter(target), tokens, seed=seed) for _ in range(2)]
            _require(_same(*drafts), "the same tokens, k and seed gave different drafts")

    def test_tokens_are_drawn_from_the_proposals_reported(self) -> None:
        """Catches q taken before or after truncation by mistake, and tokens dropped for their own value."""
        drafter = self.make_drafter(TableModel(seed=1))
        for tokens in self.contexts:
            drafts = [self._draft(drafter, tokens, seed=seed) for seed in range(self.samples)]
            reported = {
                d.tokens: math.prod(float(q.prob(t)) for t, q in zip(d.tokens, d.proposals, strict=True))
                for d in drafts
            }
            never = max(0.0, 1 - sum(reported.values()))  # mass of outcomes that did not come up
            distance = total_variation(Counter(d.tokens for d in drafts), reported) + never / 2
            _require(
                distance <= total_variation_bound(27, self.samples), f"drafts are {distance:.3f} off their proposals"
            )

    def test_a_rejected_draft_leaves_no_trace(self) -> None:
        target = TableModel(seed=1)
        for tokens, token in itertools.product(self.contexts, range(3)):
            drafter = self.make_drafter(target)
            self._draft(drafter, tokens)
            after = self._draft(drafter, (*tokens, token))
            _require(_same(after, self._draft(self.make_drafter(target), (*tokens, token))), "an earlier draft shows")

    def test_conversations_do_not_leak(self) -> None:
        target = TableModel(seed=1)
        alone = [self._draft(self.make_drafter(target), tokens) for tokens in self.contexts]
        others = [self.make_drafter(target) for _ in self.contexts]
        for _ in range(2):  # the second time every conversation has run beside the others
            together = [self._draft(d, tokens) for d, tokens in zip(others, self.contexts, strict=True)]
            _require(all(map(_same, alone, together)), "a conversation changed another's draft")
        for drafter in others:
            drafter.close()
        again = [self._draft(self.make_drafter(target), tokens) for tokens in self.contexts]
        _require(all(map(_same, alone, again)), "a closed conversation changed a later one's draft")

    def test_closing_an_unused_drafter(self) -> None:
        self.make_drafter(TableModel(seed=1)).close()

    def test_output_has_the_targets_law(self) -> None:
        target = TableModel(seed=1)
        bound = total_variation_bound(27, self.samples)
        for verify, prompt in (("token", self.contexts[1]), ("block", self.contexts[2])):
            counts = sample_outcomes(
                target, lambda: self.make_drafter(target), self.params, prompt, self.samples, verify=verify
            )
            distance = total_variation(counts, outcome_law(target, self.params, prompt))
            _require(distance <= bound, f"{verify}: output is {distance:.3f} off the target's law, bound {bound:.3f}")

    def test_greedy_output_is_the_targets(self) -> None:
        """Up to a full context, end token or not."""
        self._require_identity("greedy", SamplingParams(temperature=0), "block")

    def test_seed_exact_output_is_the_targets(self) -> None:
        """Up to a full context, end token or not."""
        for seed in range(4):
            self._require_identity("seed-exact", self.params.replace(seed=seed), "seed")

    def _require_identity(self, what: str, params: SamplingParams, verify: str) -> None:
        for seed, prompt in itertools.product(range(8), self.contexts):
            target = TableModel(seed=seed, n_ctx=24, eog=(2,) if seed % 2 else ())
            request = GenerationRequest(prompt=prompt, params=params, draft_max=4, verify=verify)
            plain, drafted = generate(target, request), generate(target, request, self.make_drafter(target))
            for generation in (plain, drafted):
                for _ in generation:
                    pass
            _require(drafted.tokens == plain.tokens, f"{what} output {drafted.tokens}, plain {plain.tokens}")
            _require(drafted.finish_reason == plain.finish_reason, "the finish reason differs from plain decoding's")


def _mass(draft: Draft) -> float:
    """The probability of a draft under the proposals it reports."""
    return math.prod(float(q.prob(t)) for t, q in zip(draft.tokens, draft.proposals, strict=True))


def _same(a: Draft, b: Draft) -> bool:
    return a.tokens == b.tokens and all(
        np.array_equal(p.ids, q.ids) and np.allclose(p.probs, q.probs)
        for p, q in zip(a.proposals, b.proposals, strict=True)
    )


def _require(law: bool, message: str) -> None:
    """An assert with its own message: pytest rewrites asserts in test files only."""
    if not law:
        raise AssertionError(message)
