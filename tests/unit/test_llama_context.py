"""Whatever happened to the caches before, score() gives the rows a fresh context gives."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgespec.errors import BadRequestError, ContextFullError, DecodeError
from edgespec.llama import Context
from edgespec.scoring import ScoreRequest

Tiny = Callable[..., Path]
Open = Callable[..., Context]
Array = NDArray[np.float32]

ARCHS = ("llama", "gemma3", "mamba", "jamba", "lfm2")


def some(n: int, seed: int = 0) -> list[int]:
    """n token ids."""
    return [random.Random(f"{seed} {i}").randrange(3, 500) for i in range(n)]


def rows(context: Context, tokens: list[int], drafted: tuple[int, ...] = (), sequence: Any = None) -> Array:
    """Rows of one request, copied, on a sequence of its own unless one is given."""
    own = sequence or context.sequence(tokens)
    scored = context.score([ScoreRequest(own, tokens, drafted)])[0].copy()
    if sequence is None:
        own.close()
    return scored


def fresh_rows(context: Context, tokens: list[int], drafted: tuple[int, ...] = ()) -> Array:
    """Rows from an emptied cache."""
    sequence = context.sequence()
    sequence.truncate(0)
    assert list(sequence.cached) == []
    result = rows(context, tokens, drafted, sequence)
    sequence.close()
    return result


def close_to(a: Array, b: Array) -> bool:
    worst = float(np.abs(a - b).max()) if a.shape == b.shape else float("inf")
    print(f"largest difference {worst:.2e}")
    return worst < 1e-2  # logits spread by 3; gemma3's kernels differ by 3e-3 between batch widths, bugs by 0.3


@pytest.mark.parametrize("n_batch", [1, 8, 64])
@pytest.mark.parametrize("arch", ARCHS)
def test_random_walk_gives_fresh_rows(tiny: Tiny, open_context: Open, arch: str, n_batch: int) -> None:
    random_walk(tiny(arch), open_context, n_batch, f"{arch} {n_batch}")


@pytest.mark.parametrize("n_batch", [8, 64])
@pytest.mark.parametrize("arch", ARCHS)
def test_random_walk_over_a_divided_context(tiny: Tiny, open_context: Open, arch: str, n_batch: int) -> None:
    random_walk(tiny(arch), open_context, n_batch, f"{arch} {n_batch} divided", split=True)


@pytest.mark.soak
@pytest.mark.parametrize("arch", ARCHS)
def test_many_random_walks(tiny: Tiny, open_context: Open, arch: str) -> None:
    for seed in range(60):
        random_walk(tiny(arch), open_context, (1, 8, 17, 64)[seed % 4], f"{arch} {seed}")


def random_walk(path: Path, open_context: Open, n_batch: int, seed: str, *, split: bool = False) -> None:
    """Six conversations over three slots: extended, cut, replaced, closed, scored and read alone and together."""
    context = open_context(path, sequences=3, n_batch=n_batch, max_width=12, split=split)
    reference = open_context(path, sequences=1, max_width=12)
    rng = random.Random(seed)
    texts = [some(rng.randrange(1, 30), i) for i in range(6)]
    sequences = [context.sequence(t) for t in texts]
    for _ in range(40):
        chosen = rng.sample(range(6), rng.randint(1, min(3, n_batch, context.max_sequences)))
        requests = []
        for i in chosen:
            text, action = texts[i], rng.random()
            if action < 0.2 and len(text) > 2:
                texts[i] = text[: rng.randrange(1, len(text))]
                sequences[i].truncate(rng.randrange(len(text)))
            elif action < 0.3:
                sequences[i].close()
                sequences[i] = context.sequence(text)
            elif action < 0.4:
                texts[i] = some(rng.randrange(1, 60), rng.randrange(100))
            else:
                texts[i] = [*text, *some(rng.randrange(4), rng.randrange(100))]
            most = max(0, n_batch // len(chosen) - 1)
            drafted = tuple(some(min(most, rng.choice((0, 0, 1, 2, 3))), rng.randrange(1000)))
            reads = rng.random() < 0.2
            requests.append(ScoreRequest(sequences[i], texts[i], () if reads else drafted, reads=reads))
        scored = [s.copy() for s in context.score(requests)]
        for i, request, got in zip(chosen, requests, scored, strict=True):
            assert list(sequences[i].cached) == [*request.tokens, *request.drafted]
            if request.reads:
                assert got.shape == (0, context.vocab.size)
            else:
                assert close_to(got, fresh_rows(reference, list(request.tokens), request.drafted))
            # As the loop does: keep some of the draft, forget the rest.
            kept = rng.randrange(len(request.drafted) + 1)
            texts[i] = [*request.tokens, *request.drafted[:kept]]
            sequences[i].truncate(len(texts[i]) - rng.randrange(2))
            texts[i].append(rng.randrange(3, 500))


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_rollback_over_many_tokens(tiny: Tiny, open_context: Open, arch: str) -> None:
    """For gemma3 the cut is longer than its window of 16."""
    context = open_context(tiny(arch))
    text = some(90)
    sequence = context.sequence()
    for length in (90, 30, 70, 29, 1, 90):
        got = rows(context, text[:length], (7, 8), sequence)
        assert close_to(got, fresh_rows(context, text[:length], (7, 8)))
        sequence.truncate(length)


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_only_what_is_missing_is_decoded(tiny: Tiny, open_context: Open, arch: str) -> None:
    context = open_context(tiny(arch))
    text = some(40)
    sequence = context.sequence()
    assert sequence.sync(text) == 40
    assert sequence.sync(text) == 0
    assert sequence.sync(text[:30]) == 0
    assert list(sequence.cached) == text[:30]
    assert sequence.sync([*text[:20], 5, 6]) == 2
    rows(context, text, (), sequence)
    assert sequence.sync([*text, 9]) == 1
    sequence.close()
    again = context.sequence([*text, 9, 10])
    assert again.sync([*text, 9, 10]) == 1


def test_a_new_sequence_takes_the_idle_cache_with_the_longest_prefix(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), sequences=3)
    sequences = [context.sequence() for _ in range(3)]
    for sequence, start, length in zip(sequences, (1, 2, 3), (10, 20, 30), strict=True):
        sequence.sync([start, *some(length)])
    for sequence in sequences:
        sequence.close()
    assert context.sequence([2, *some(40)]).sync([2, *some(40)]) == 20


@pytest.mark.parametrize("arch", [a for a in ARCHS if a != "lfm2"])
def test_sequences_in_one_decode_equal_single_ones(tiny: Tiny, open_context: Open, arch: str) -> None:
    context, alone = open_context(tiny(arch)), open_context(tiny(arch))
    assert context.max_sequences == 4
    texts = [some(n, n) for n in (1, 17, 40)]
    drafts = [(), (5, 6, 7), (8,)]
    opened = [context.sequence() for _ in texts]
    together = context.score([ScoreRequest(s, t, d) for s, t, d in zip(opened, texts, drafts, strict=True)])
    for got, text, draft in zip([t.copy() for t in together], texts, drafts, strict=True):
        assert close_to(got, fresh_rows(alone, text, draft))


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_full_cache_evicts_idle_conversations(tiny: Tiny, open_context: Open, arch: str) -> None:
    context = open_context(tiny(arch), n_ctx=256, sequences=4)
    texts = [some(200, i) for i in range(4)]
    sequences = [context.sequence() for _ in texts]
    for text, sequence in zip(texts, sequences, strict=True):
        got = rows(context, text, (1,), sequence)
        assert close_to(got, fresh_rows(open_context(tiny(arch)), text, (1,)))
    assert close_to(rows(context, texts[0], (), sequences[0]), fresh_rows(open_context(tiny(arch)), texts[0]))


def test_full_cache_without_anything_idle_is_an_error_and_leaves_all_usable(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), n_ctx=256, sequences=2)
    texts = [some(200, i) for i in range(2)]
    sequences = [context.sequence() for _ in texts]
    with pytest.raises(ContextFullError, match="256"):
        context.score([ScoreRequest(s, t) for s, t in zip(sequences, texts, strict=True)])
    reference = open_context(tiny())
    for text, sequence in zip(texts, sequences, strict=True):
        assert close_to(rows(context, text, (), sequence), fresh_rows(reference, text))


@pytest.mark.parametrize("n_ctx", [8, 64, 300])
def test_a_prompt_that_fills_the_context(tiny: Tiny, open_context: Open, n_ctx: int) -> None:
    context = open_context(tiny(), n_ctx=n_ctx)
    text = some(n_ctx)
    got = rows(context, text)
    assert close_to(got, fresh_rows(open_context(tiny(), n_ctx=512), text))
    assert close_to(rows(context, text[:-2], (text[-2], text[-1]))[-1:], got)
    with pytest.raises(ContextFullError) as caught:
        rows(context, text, (5,))
    assert (caught.value.needed, caught.value.available) == (n_ctx + 1, n_ctx)


@pytest.mark.parametrize("n_batch", [1, 7, 8, 64])
def test_long_prompts_are_chunked(tiny: Tiny, open_context: Open, n_batch: int) -> None:
    text = some(100)
    got = rows(open_context(tiny(), n_batch=n_batch), text)
    assert close_to(got, fresh_rows(open_context(tiny()), text))


@pytest.mark.parametrize("arch", ARCHS)
def test_saved_state_restores(tiny: Tiny, open_context: Open, arch: str) -> None:
    first, second = open_context(tiny(arch)), open_context(tiny(arch))
    text = some(33)
    sequence = first.sequence()
    sequence.sync(text)
    state = sequence.save()
    other = second.sequence()
    other.sync(some(50, 9))
    other.restore(state, text)
    assert list(other.cached) == text
    assert other.sync([*text, 5]) == 1
    assert close_to(rows(second, [*text, 5, 6], (), other), fresh_rows(first, [*text, 5, 6]))
    other.restore(state, text)
    other.truncate(30)  # a restored recurrent state has no snapshots: it must not roll back on stale ones
    assert close_to(rows(second, [*text[:30], 8], (), other), fresh_rows(first, [*text[:30], 8]))


def bad_restores(path: Path) -> list[str]:
    """Outcomes of restoring what cannot be restored, each followed by a good score."""
    from edgespec.llama import LoadSettings, Model

    outcomes = []
    settings = LoadSettings(n_ctx=64, threads=1, buffers="none", kv_type="f32")
    with Model(path, settings) as model, Context(model) as context:
        sequence = context.sequence()
        text = some(20)
        want = rows(context, text, (), sequence)
        good = sequence.save()
        noise = bytes(random.Random(1).randrange(256) for _ in range(500))
        bad = [b"", b"\0", noise, good[: len(good) // 2], good[:-1], b"\xff" * 64, good[:16] + noise]
        for state, tokens in [*((b, text) for b in bad), (good, text[:10]), (good, some(30))]:
            try:
                sequence.restore(state, tokens)
                outcomes.append("restored")
            except DecodeError:
                same = close_to(rows(context, text, (), sequence), want)
                outcomes.append("refused" if same else "wrong rows afterwards")
    return outcomes


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_garbage_is_not_restored(tiny: Tiny, child: Callable[..., Any], arch: str) -> None:
    assert set(child(bad_restores, tiny(arch))) == {"refused"}


def test_two_threads_on_one_context(tiny: Tiny, open_context: Open) -> None:
    context, reference = open_context(tiny(), sequences=2), open_context(tiny())
    texts = [some(40, i) for i in range(3)]
    wanted = [[fresh_rows(reference, t[:n], (3, 4)) for n in range(1, 40)] for t in texts]
    wrong: list[tuple[int, int]] = []

    def work(i: int) -> None:
        sequence = context.sequence(texts[i])
        for n in range(1, 40):
            with context.turn:
                got = context.score([ScoreRequest(sequence, texts[i][:n], (3, 4))])[0]
                if not close_to(got, wanted[i][n - 1]):
                    wrong.append((i, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(("arch", "able"), [(a, a not in ("mamba", "jamba")) for a in ARCHS])
def test_what_can_roll_back(tiny: Tiny, open_context: Open, arch: str, able: bool) -> None:
    assert open_context(tiny(arch)).can_roll_back is able


def test_snapshots_of_recurrent_states_serve_one_sequence_a_decode(tiny: Tiny, open_context: Open) -> None:
    """A decode of several would move the states apart from their snapshots."""
    context = open_context(tiny("lfm2"))
    assert context.max_sequences == 1
    requests = [ScoreRequest(context.sequence(), some(5)) for _ in range(2)]
    with pytest.raises(BadRequestError, match="2 sequences"):
        context.score(requests)


def test_a_divided_context_gives_each_sequence_its_share(tiny: Tiny, open_context: Open) -> None:
    context = open_context(tiny(), n_ctx=1024, sequences=4, split=True)
    assert (context.n_ctx, context.cells, context.splits, context.attends_to_all) == (256, 1024, True, False)
    sequences = [context.sequence() for _ in range(4)]
    for i, sequence in enumerate(sequences):
        sequence.sync(some(256, i))  # all of them are full, and nobody has lost anything
    assert [list(s.cached) for s in sequences] == [some(256, i) for i in range(4)]
    with pytest.raises(ContextFullError):
        sequences[0].sync(some(257))
    shared = open_context(tiny(), n_ctx=1024, sequences=4)
    assert (shared.n_ctx, shared.cells, shared.splits, shared.attends_to_all) == (1024, 1024, False, True)


def test_neighbours_are_preferred_in_a_divided_context(tiny: Tiny, open_context: Open) -> None:
    """Requests in slots that are not neighbours would be decoded one after another."""
    context = open_context(tiny(), n_ctx=1280, sequences=5, split=True)
    sequences = [context.sequence() for _ in range(5)]
    for sequence in sequences:
        sequence.sync([1, 2])
    ids = [s.slot.id for s in sequences if s.slot]
    for i in (0, 1, 3, 4):
        sequences[ids.index(i)].close()
    taken = [context.sequence([1, 2]) for _ in range(2)]
    slots = sorted(s.slot.id for s in (*taken, sequences[ids.index(2)]) if s.slot)
    assert slots == list(range(slots[0], slots[0] + 3))
