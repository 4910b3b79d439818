"""Heads that follow the target: which features they read, what their cache holds, and mutants that the checks catch.

The witness compares each round's first guess with that of a fresh cache, fed with all features of the text as a
context of its own computes them. A fault there costs acceptance and not the law, so nothing else would show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.drafters import ChainDrafter, EagleDrafter, LookupDrafter, ModelDrafter, MtpDrafter
from edgespec.drafters.following import FollowingDrafter
from edgespec.drafting import FEATURES_KEPT, NO_DRAFT, Features, HeadSequence
from edgespec.errors import DecodeError
from edgespec.generation import GenerationRequest, generate, step
from edgespec.heads.eagle import write_eagle
from edgespec.heads.eagle_file import read_eagle
from edgespec.llama import Context, LoadSettings, Model
from edgespec.llama.following import open_eagle, open_mtp
from edgespec.llama.head import HeadContext
from edgespec.sampling import Sampler, SamplingParams
from edgespec.scoring import Rows, ScoreRequest
from edgespec.stats import RoundEvent
from edgespec.testing import TableModel
from tiny_heads import own_head, write_eagle3, write_mtp

FEW = dict.fromkeys(range(60, 64), 100.0)  # what both the target and the head then write
PARAMS = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias=FEW)
KINDS = ("eagle-3", "own", "mtp")


class Pair:
    """A target and its head, and the same again for comparison."""

    def __init__(self, kind: str, target: Path, head: Path | None, **settings: Any) -> None:
        self.kind = kind
        self.target, self.head = self._opened(target, head, settings)
        self.other, self.reference = self._opened(target, head, {})
        self.make = MtpDrafter if kind == "mtp" else EagleDrafter

    def _opened(self, target: Path, head: Path | None, settings: dict[str, Any]) -> tuple[Context, HeadContext]:
        chosen = {"n_ctx": 512, "threads": 1, "buffers": "none", "kv_type": "f32", "mtp": head is None, **settings}
        context = Context(Model(target, LoadSettings(**chosen)))
        return context, open_mtp(context) if head is None else open_eagle(read_eagle(head), context)

    def first_row(self, tokens: Sequence[int], start: int) -> Any:
        """What a head guesses of the token after a text, from the pairs from `start` on."""
        sequence, told = self.other.sequence(), []
        sequence.truncate(0)  # what the cache holds of an earlier text would not be computed again
        sequence.ear = lambda first, rows: told.append((first, rows.copy()))
        scored = 16  # so that every token is a row: the own kind has features of no others
        for end in (*range(scored, len(tokens) - 1, scored), len(tokens) - 1):
            first = len(sequence.cached)
            self.other.score([ScoreRequest(sequence, tokens[: first + 1], tuple(tokens[first + 1 : end]))])
        sequence.close()
        assert [first for first, _ in told] == [0, *np.cumsum([len(rows) for _, rows in told])[:-1]]
        features = self.reference.encode(np.concatenate([rows for _, rows in told]))
        share = self.reference.open()
        assert share is not None
        row = share.feed(start, tokens[start + 1 :], features[start:])[0].copy()
        share.close()
        return row

    def close(self) -> None:
        for head, context in ((self.head, self.target), (self.reference, self.other)):
            head.close()
            context.close()
            context.model.close()


def opened(kind: str, folder: Path, tiny: Callable[..., Path], **settings: Any) -> Pair:
    if kind == "mtp":
        return Pair(kind, write_mtp(folder / "mtp.gguf"), None, **settings)
    head = folder / f"{kind}.gguf"
    if kind == "own":
        write_eagle(own_head(), head, matrices="f32")
    else:
        write_eagle3(head)
    return Pair(kind, tiny(), head, **settings)


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny: Any) -> Iterator[Pair]:
    made = opened(request.param, tmp_path_factory.mktemp("heads"), tiny, n_batch=48, max_width=20)
    yield made
    made.close()


def witness(pair: Pair, base: type[FollowingDrafter]) -> type[FollowingDrafter]:
    """`base`, with every first row of a draft compared."""

    class Witness(base):  # type: ignore[misc, valid-type]
        compared = 0

        def _read(self, sequence: HeadSequence, tokens: Sequence[int]) -> tuple[Rows, Rows]:
            if self.features.start > self._known or not self._known:
                self.begin = self.features.start
            row, feature = super()._read(sequence, tokens)
            expected = pair.first_row(tokens, self.begin)
            assert np.allclose(row, expected, atol=5e-3), len(tokens)
            Witness.compared += 1
            return row, feature

    return Witness


def run(
    pair: Pair, drafter: Any, *, seed: int = 0, prompt: int = 30, tokens: int = 24, verify: str = "block"
) -> Counter[int]:
    """A generation that drafts; how often how many were accepted."""
    request = GenerationRequest(
        prompt=tuple(np.random.default_rng(prompt).integers(3, 500, prompt).tolist()),
        params=PARAMS.replace(seed=seed),
        max_tokens=tokens,
        draft_max=3,
        verify=verify,
    )
    events = list(generate(pair.target, request, drafter))
    return Counter(e.accepted for e in events if isinstance(e, RoundEvent) and e.source == drafter.name)


def test_each_round_reads_the_features_of_what_is_committed(pair: Pair) -> None:
    """After rejections, part and full acceptance; with prompts of less than a chunk, and of several."""
    accepted: Counter[int] = Counter()
    made = witness(pair, pair.make)
    for seed, prompt in enumerate((2, 30, 60, 160, 200)):
        accepted += run(pair, made(pair.head, Features()), seed=seed, prompt=prompt)
    assert made.compared > 40  # type: ignore[attr-defined]
    assert all(accepted[n] for n in (0, 1))
    assert accepted[2] + accepted[3]


def test_the_target_may_write_on_without_the_head(pair: Pair) -> None:
    """Rounds of another source, few and more than there are features of."""
    made = witness(pair, pair.make)

    class Sometimes(made):  # type: ignore[misc, valid-type]
        asked = 0

        def draft(self, *arguments: Any) -> Any:
            self.asked += 1
            wanted = self.asked < 4 or 8 < self.asked < 12 or self.asked > 12 + FEATURES_KEPT
            return super().draft(*arguments) if wanted else NO_DRAFT

    drafter = Sometimes(pair.head, Features())
    generation = generate(
        pair.target,
        GenerationRequest(prompt=tuple(range(40, 60)), params=PARAMS.replace(seed=1), max_tokens=190, draft_max=2),
        drafter,
    )
    list(generation)
    assert made.compared > 10  # type: ignore[attr-defined]
    assert drafter.features.start > 20
    assert drafter.begin > 20  # it began anew where features were


@pytest.mark.parametrize("verify", ["token", "block", "seed"])
def test_text_with_a_head_is_the_plain_text(pair: Pair, verify: str) -> None:
    for temperature in (0.0,) if verify != "seed" else (0.8,):
        texts = []
        for drafter in (None, pair.make(pair.head, Features())):
            request = GenerationRequest(
                prompt=tuple(range(40, 75)), params=PARAMS.replace(temperature=temperature, seed=4), max_tokens=60,
                draft_max=4, verify=verify,
            )  # fmt: skip
            generation = generate(pair.target, request, drafter)
            list(generation)
            texts.append(generation.tokens)
            assert drafter is None or generation.stats.accepted > 3
        assert texts[0] == texts[1]


def test_requests_in_one_decode_have_each_their_own(pair: Pair) -> None:
    together(pair)


@pytest.mark.parametrize("kind", KINDS)
def test_so_they_have_in_a_divided_cache(kind: str, tmp_path: Path, tiny: Callable[..., Path]) -> None:
    """Where llama.cpp reorders the rows of a decode."""
    divided = opened(kind, tmp_path, tiny, split=True)
    try:
        together(divided)
    finally:
        divided.close()


def together(pair: Pair) -> None:
    """Several requests; one of them without a head, one with a chain."""
    made = witness(pair, pair.make)
    drafters = [
        made(pair.head, Features()),
        None,
        ChainDrafter([LookupDrafter(), made(pair.head, Features())]),
        made(pair.head, Features()),
    ]
    running = [
        generate(
            pair.target,
            GenerationRequest(
                prompt=tuple(range(45, 45 + n)), params=PARAMS.replace(seed=n), max_tokens=12, draft_max=3
            ),
            drafter,
        )
        for n, drafter in zip((3, 9, 60, 20), drafters, strict=True)
    ]
    while any(g.finish_reason is None for g in running):
        step(pair.target, running)
    assert [g.error for g in running] == [None] * 4
    for generation in running:
        generation.close()
    assert made.compared > 12  # type: ignore[attr-defined]
    assert len(pair.head._free) == 4


def test_without_a_share_or_features_nothing_is_drafted(pair: Pair) -> None:
    shares = [pair.head.open() for _ in range(4)]
    drafter = pair.make(pair.head, Features())
    assert sum(run(pair, drafter, tokens=6).values()) == 0
    for share in shares:
        assert share is not None
        share.close()
    drafter = pair.make(pair.head, Features())
    assert drafter.reach([1, 2, 3]) == 0
    assert drafter.draft([1, 2, 3], 3, Sampler(PARAMS, 512), np.random.default_rng(0)) is NO_DRAFT
    assert drafter.step_ms > 0


def test_a_full_cache_ends_a_draft_and_no_request(pair: Pair) -> None:
    """Another request's pairs have all the room; once they are gone, it drafts again."""
    other = pair.head.open()
    assert other is not None
    room = pair.target.n_ctx + 64 * 4
    width = pair.head._width
    other.feed(0, [5] * room, np.zeros((room, width), np.float32))
    assert sum(run(pair, pair.make(pair.head, Features()), tokens=6).values()) == 0
    other.close()
    assert sum(run(pair, pair.make(pair.head, Features()), tokens=6).values()) > 0


def test_outside_the_draft_vocabulary_q_is_zero(pair: Pair) -> None:
    if pair.kind == "mtp":
        pytest.skip("MTP layers have the whole vocabulary")
    open_params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3)
    request = GenerationRequest(prompt=tuple(range(40, 60)), params=open_params, max_tokens=12, draft_max=3)
    seen = []

    class Kept(EagleDrafter):
        def draft(self, *arguments: Any) -> Any:
            draft = super().draft(*arguments)
            seen.extend(draft.proposals)
            return draft

    list(generate(pair.target, request, Kept(pair.head, Features())))
    assert len(seen) > 10
    for q in seen:
        assert set(q.ids.tolist()) <= set(range(40, 104))
        assert q.probs.sum() == pytest.approx(1)


def test_features_are_kept_for_the_latest_tokens() -> None:
    features = Features()
    rows = np.arange(400, dtype=np.float32).reshape(200, 2)
    features.put(3, rows[3:5])
    assert (features.start, features.end) == (3, 5)
    features.put(5, rows[5:9])
    features.put(7, rows[100:101])  # what was verified and rejected goes
    assert features.end == 8
    assert np.array_equal(features.rows(6, 8), rows[[6, 100]])
    features.put(9, rows[9:12])  # a gap
    assert (features.start, features.end) == (9, 12)
    features.put(12, rows[12:])
    assert (features.start, features.end) == (200 - FEATURES_KEPT, 200)
    view = rows[:1].copy()
    features.put(200, view)
    view[:] = 7
    assert np.array_equal(features.rows(200, 201), rows[:1])


def test_a_loop_without_such_a_drafter_listens_to_nothing() -> None:
    target = TableModel(seed=1)
    generation = generate(target, GenerationRequest(prompt=(0, 1), max_tokens=3), ModelDrafter(TableModel(seed=2)))
    assert generation.sequence.ear is None


# ---- mutants ------------------------------------------------------------------------------------------------------


class RejectedFeatures(Features):
    """Rows of rejected tokens stay, and those of the next decode go behind them."""

    def put(self, first: int, rows: Rows) -> None:
        super().put(max(first, self.end) if self._rows else first, rows)


class ShiftedFeatures(Features):
    """The row of the token before."""

    def rows(self, first: int, end: int) -> Any:
        return super().rows(max(self.start, first - 1), max(self.start, first - 1) + end - first)


def mutants(base: type[FollowingDrafter]) -> dict[str, Callable[[Pair], FollowingDrafter]]:
    class KeepsDraftedPairs(base):  # type: ignore[misc, valid-type]
        """The cache keeps the pairs of what was drafted and accepted, made of the head's own features."""

        def draft(self, tokens: Sequence[int], *rest: Any) -> Any:
            draft = super().draft(tokens, *rest)
            self._known = max(self._known, len(tokens) - 1 + max(0, len(draft.tokens) - 1))
            return draft

    class NeverCuts(base):  # type: ignore[misc, valid-type]
        """The cache is not cut back: rejected pairs stay where the new ones go."""

        def _read(self, sequence: HeadSequence, tokens: Sequence[int]) -> tuple[Rows, Rows]:
            class Uncut:
                feed = staticmethod(sequence.feed)
                cut = staticmethod(lambda first: None)

            return super()._read(Uncut, tokens)  # type: ignore[no-any-return]

    return {
        "features of a rejected token": lambda pair: witness(pair, base)(pair.head, RejectedFeatures()),
        "features of the token before": lambda pair: witness(pair, base)(pair.head, ShiftedFeatures()),
        "pairs of what was drafted": lambda pair: witness(pair, KeepsDraftedPairs)(pair.head, Features()),
        "a cache that is not cut back": lambda pair: witness(pair, NeverCuts)(pair.head, Features()),
    }


@pytest.mark.parametrize("mutant", list(mutants(EagleDrafter)))
def test_a_fault_in_following_is_caught(pair: Pair, mutant: str) -> None:
    drafter = mutants(pair.make)[mutant](pair)

    def rounds() -> None:
        for seed in range(3):
            run(pair, drafter, seed=seed)

    try:
        with pytest.raises((AssertionError, ValueError, DecodeError)):
            rounds()
    finally:
        drafter.close()
