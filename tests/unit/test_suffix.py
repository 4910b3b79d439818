"""The suffix drafter: places found against a search through everything, votes, lengths, cost and memory in counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.drafters import Resources, SuffixDrafter, build, select
from edgespec.drafters.suffix_index import LONGEST, FixedIndex, GrowingIndex, Match, common_suffix
from edgespec.drafting import Draft
from edgespec.errors import BadRequestError
from edgespec.generation import GenerationRequest, generate
from edgespec.sampling import Sampler, SamplingParams
from edgespec.testing import TableModel

SIZES = st.sampled_from([(8, 2), (3, 1), (4, 3, 2), (2,), (1,)])
# Few ids, and pieces that come again: texts in which long and short matches abound.
TEXTS = st.lists(
    st.lists(st.integers(0, 2), max_size=12) | st.sampled_from([[0, 1, 2, 0, 1, 1, 2] * 3, [1] * 20, [2, 0] * 9]),
    max_size=6,
).map(lambda parts: [token for part in parts for token in part])


def growing(tokens: Sequence[int], **options: Any) -> GrowingIndex:
    index = GrowingIndex(**options)
    for token in tokens:
        index.append(token)
    return index


def fixed(*texts: Sequence[int], **options: Any) -> FixedIndex:
    """Replies as the history keeps them: an end mark after each."""
    return FixedIndex(np.array([t for text in texts for t in (*text, -1)], dtype=np.int32), **options)


def searched(text: Sequence[int], present: Sequence[int], sizes: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """(place, length) by looking at every place: longest n-gram first, then the latest."""
    found = []
    for place, token in enumerate(text):
        length = common_suffix(text, place, present, len(present))
        level = next((size for size in sizes if size <= length), 0)
        if level and token >= 0:
            found.append((-level, -place, length))
    return [(-place, length) for _, place, length in sorted(found)[:limit]]


def places(matches: list[Match]) -> list[tuple[int, int]]:
    return [(match.next, match.length) for match in matches]


# ---- indexes ------------------------------------------------------------------------------------------------


@given(text=TEXTS, sizes=SIZES)
def test_a_growing_index_finds_what_a_search_finds(text: list[int], sizes: tuple[int, ...]) -> None:
    index = growing(text, sizes=sizes)
    assert places(index.matches(text, 200)) == searched(text, text, sizes, 200)


@given(texts=st.lists(TEXTS, max_size=4), present=TEXTS, sizes=SIZES, limit=st.integers(1, 40))
def test_a_fixed_index_finds_what_a_search_finds(
    texts: list[list[int]], present: list[int], sizes: tuple[int, ...], limit: int
) -> None:
    joined = [t for text in texts for t in (*text, -1)]
    found = fixed(*texts, sizes=sizes).matches(present, limit)
    longest = [place for place in searched(joined, present, sizes, 1000) if place[1] >= sizes[0]]
    assert places(fixed(*texts, sizes=sizes).matches(present, 1000)) == searched(joined, present, sizes, 1000)
    assert places(found)[: len(longest[:limit])] == longest[:limit]
    assert all(match.text[match.next] >= 0 for match in found)


@pytest.mark.parametrize("limit", [1, 3, 16])
def test_of_many_places_the_latest_are_found(limit: int) -> None:
    text = [7, 8, *([1, 2, 3, 9] * 40), 1, 2]
    expected = searched(text, text, (8, 2), limit)
    assert places(growing(text).matches(text, limit)) == expected
    assert places(fixed(text).matches(text, limit)) == searched([*text, -1], text, (8, 2), limit)


def test_a_long_match_far_back_is_found_among_many_recent_short_ones() -> None:
    once = [10, 11, 12, 13, 14, 15, 1, 2, 77]
    text = [*once, *([20, 1, 2, 99] * 200), *once[:-1]]
    matches = growing(text).matches(text, 16)
    assert len(matches) == 16
    assert (matches[0].next, matches[0].length) == (8, 8)


def test_a_match_does_not_reach_across_the_end_of_a_reply() -> None:
    index = fixed([5, 6], [7, 8, 9])
    assert index.matches([5, 6, 7], 9) == []
    assert places(index.matches([6, 7, 8], 9)) == [(5, 2)]
    assert index.matches([7, 8, 9], 9) == []  # nothing followed it


def test_matches_are_compared_to_the_longest_that_counts() -> None:
    text = list(range(100)) * 2
    assert places(growing(text).matches(text, 4)) == [(100, LONGEST)]


@pytest.mark.parametrize("text", [[1] * 3000, list(range(3000)), [1, 2, 3] * 1000], ids=["one", "new", "period"])
def test_cost_of_a_token_does_not_grow_with_the_text(text: list[int]) -> None:
    index = GrowingIndex()
    costs = []
    for token in text:
        before = index.operations
        index.append(token)
        index.matches(index.tokens, 16)
        costs.append(index.operations - before)
    assert max(costs) <= 2 + 2 * 2 * 16
    assert sum(costs[2000:]) <= 1.01 * sum(costs[1000:2000])


@pytest.mark.parametrize("capacity", [64, 1000])
def test_memory_is_capped_and_the_latest_text_still_known(capacity: int) -> None:
    index = GrowingIndex(capacity=capacity)
    rng = np.random.default_rng(0)
    for token in rng.integers(0, 50, 5000).tolist():
        index.append(token)
        assert len(index.tokens) <= capacity
        assert all(len(earlier) <= capacity for earlier in index._earlier)
        assert all(len(latest) <= capacity for latest in index._latest)
    for token in (101, 102, 103, 101, 102):
        index.append(token)
    assert index.tokens[index.matches(index.tokens, 1)[0].next] == 103
    assert index.operations <= 2 * 2 * 5100  # forgetting enters each token once more at most


# ---- drafts -------------------------------------------------------------------------------------------------


def drafted(drafter: SuffixDrafter, tokens: Sequence[int], k: int = 8, sampler: Sampler | None = None) -> Draft:
    return drafter.draft(list(tokens), k, sampler or Sampler(SamplingParams(), 1000), np.random.default_rng(0))


def test_the_usual_continuation_wins_over_the_latest() -> None:
    text = [1, 2, 3, 50, 1, 2, 3, 51, 1, 2, 3, 52, 1, 2, 4, 53, 1, 2]
    assert drafted(SuffixDrafter(), text, 1).tokens == (3,)


def test_a_long_match_outvotes_many_short_ones() -> None:
    text = [10, 11, 12, 13, 14, 1, 2, 77, *([20, 1, 2, 99] * 5), 10, 11, 12, 13, 14, 1, 2]
    assert drafted(SuffixDrafter(), text, 1).tokens == (77,)


def test_a_draft_is_as_long_as_its_match_allows() -> None:
    for matched in range(2, 12):
        source = [*range(100, 100 + matched), *range(200, 260)]
        draft = drafted(SuffixDrafter(), [*source, 9, *source[:matched]], 40)
        assert draft.tokens == tuple(range(200, 200 + matched + 1))
        assert len(drafted(SuffixDrafter(reach=3), [*source, 9, *source[:matched]], 40).tokens) == 1 + 3 * matched


def test_an_improbable_path_is_left() -> None:
    forks = [token for i in range(6) for token in (1, 2, 30 + i, 90 + i)]
    assert drafted(SuffixDrafter(min_probability=0.2), [*forks, 1, 2]).tokens == ()
    assert drafted(SuffixDrafter(min_probability=0.0), [*forks, 1, 2], 1).tokens == (35,)  # the latest among equals
    drafter = SuffixDrafter(min_probability=0.0)
    whole = drafted(drafter, [*forks, 1, 2], 3)
    reached = np.cumprod(drafter.last_confidence)
    for low in (0.05, 0.08, 0.12):
        kept = int((reached >= low).sum())
        assert drafted(SuffixDrafter(min_probability=low), [*forks, 1, 2], 3).tokens == whole.tokens[:kept]


def test_text_that_repeats_goes_on_repeating() -> None:
    assert drafted(SuffixDrafter(), [4, 5, 6] * 4, 8).tokens == (4, 5, 6, 4, 5, 6, 4, 5)
    assert drafted(SuffixDrafter(), [3] * 9, 5).tokens == (3,) * 5


def test_confidence_is_one_number_a_token_and_grows_with_the_evidence() -> None:
    def confidence(text: Sequence[int]) -> tuple[float, ...]:
        drafter = SuffixDrafter(min_probability=0)
        draft = drafted(drafter, text, 4)
        assert len(drafter.last_confidence) == len(draft.tokens)
        assert all(0 < c < 1 for c in drafter.last_confidence)
        assert draft.features == tuple(int(20 * c) for c in drafter.last_confidence)
        return drafter.last_confidence

    once = confidence([1, 2, 3, 4, 5, 1, 2])
    assert list(once) == sorted(once)  # each token drafted makes the match longer
    assert confidence([1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 8, 1, 2])[0] > once[0]  # seen twice
    assert confidence([7, 1, 2, 3, 4, 5, 7, 1, 2])[0] > once[0]  # a longer match
    assert confidence([1, 2, 6, 9, 1, 2, 3, 4, 5, 1, 2])[0] < once[0]  # something else followed as well
    assert confidence([1, 2, 3]) == ()


def test_confidence_is_the_share_of_the_votes() -> None:
    drafter = SuffixDrafter()
    text = [5, 1, 2, 3, 60, 1, 2, 4, 61, 5, 1, 2]  # a match of three tokens, then one of two
    assert drafted(drafter, text, 1).tokens == (3,)
    assert drafter.last_confidence == pytest.approx((0.99 * 27 / (27 + 8 + 8),))


class OnlyEven:
    """A grammar of even ids."""

    def mask(self, ids: np.ndarray) -> np.ndarray:
        return ids % 2 == 0

    def advance(self, token: int) -> None:
        assert token % 2 == 0

    def clone(self) -> OnlyEven:
        return OnlyEven()


def test_what_the_grammar_forbids_is_not_drafted() -> None:
    sampler = Sampler(SamplingParams(), 1000, OnlyEven())
    text = [2, 4, 7, 2, 4, 7, 2, 4, 6, 8, 9, 10, 2, 4]
    assert drafted(SuffixDrafter(min_probability=0), text, 5, sampler).tokens == (6, 8)
    assert drafted(SuffixDrafter(), [2, 4, 7, 2, 4], 5, sampler).tokens == ()


def test_ids_that_the_vocabulary_lacks_are_not_drafted() -> None:
    """A prompt may hold ids of a padded vocabulary."""
    assert drafted(SuffixDrafter(), [1, 2, 700, 1, 2], 5, Sampler(SamplingParams(), 500)).tokens == ()


def test_a_draft_of_none() -> None:
    drafter = SuffixDrafter()
    assert drafted(drafter, [1, 2, 3, 1, 2], 2).tokens
    assert drafted(drafter, [1, 2, 3, 1, 2], 0).tokens == drafter.last_confidence == ()


@given(parts=st.lists(TEXTS, min_size=1, max_size=4), k=st.integers(1, 6))
def test_drafts_do_not_depend_on_how_the_text_arrived(parts: list[list[int]], k: int) -> None:
    followed, tokens = SuffixDrafter(min_match=1), list[int]()
    for part in parts:
        tokens += part
        again = SuffixDrafter(min_match=1)
        assert drafted(followed, tokens, k).tokens == drafted(again, tokens, k).tokens
        assert followed.last_confidence == again.last_confidence


@pytest.mark.parametrize("other", [[1, 2], [9, 8, 7, 6, 5, 1, 2, 9, 9], []])
def test_another_text_starts_anew(other: list[int]) -> None:
    drafter = SuffixDrafter()
    drafted(drafter, [1, 2, 3, 4, 1, 2, 3])
    assert drafted(drafter, other).tokens == ()


# ---- past replies, and none ---------------------------------------------------------------------------------


def test_past_replies_are_drawn_on() -> None:
    past = fixed([1, 2, 3, 4, 5, 6], [8, 1, 2, 3, 9])
    drafter = SuffixDrafter(past=past)
    assert drafted(drafter, [40, 1, 2], 2).tokens == (3, 9)  # both say 3; the latest says 9
    assert drafted(drafter, [40, 41, 2, 3, 4], 9).tokens == (5, 6)  # nothing is drafted past a reply's end
    assert drafted(SuffixDrafter(past=past, min_match=4), [40, 1, 2], 2).tokens == ()


def test_this_conversation_and_the_past_vote_together() -> None:
    past = fixed([1, 2, 5], [1, 2, 5], [1, 2, 5])
    assert drafted(SuffixDrafter(past=past), [1, 2, 6, 40, 1, 2], 1).tokens == (5,)
    assert drafted(SuffixDrafter(), [1, 2, 6, 40, 1, 2], 1).tokens == (6,)
    assert drafted(SuffixDrafter(past=past), [3, 1, 2, 6, 40, 3, 1, 2, 6, 40, 3, 1, 2], 1).tokens == (6,)


def test_requests_share_nothing() -> None:
    """Two requests in turn and side by side, through the loop: the second knows nothing of the first."""
    target = TableModel(seed=1)
    params = SamplingParams(temperature=0)

    def run(prompt: tuple[int, ...]) -> tuple[list[int], int]:
        drafter = build(select("suffix", has_draft=False), Resources())
        generation = generate(target, GenerationRequest(prompt=prompt, params=params, max_tokens=12), drafter)
        for _ in generation:
            pass
        return generation.completion, generation.stats.drafted

    alone = run((0, 1))
    run((1, 0, 1, 2, 0, 1))
    assert run((0, 1)) == alone


def test_a_closed_drafter_knows_nothing() -> None:
    drafter = SuffixDrafter(past=fixed([1, 2, 3]))
    drafted(drafter, [1, 2, 3, 4, 1, 2])
    drafter.close()
    assert drafter._index.tokens == []
    assert drafter._past is None
    assert drafter.last_confidence == ()


@pytest.mark.parametrize(
    "options",
    [{"min_match": 0}, {"min_match": LONGEST + 1}, {"reach": 0}, {"min_probability": -0.1}, {"min_probability": 1}],
)
def test_bad_settings(options: dict[str, Any]) -> None:
    make: Callable[..., SuffixDrafter] = SuffixDrafter
    with pytest.raises(BadRequestError, match="suffix"):
        make(**options)
