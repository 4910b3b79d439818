"""Seed-exact mode on real models: one text per seed, with speculation on or off; every fork explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgespec.drafters import LookupDrafter, ModelDrafter
from edgespec.drafting import Drafter
from edgespec.forks import Fork, explain_fork, rounds_of, seed_choice
from edgespec.generation import Event, Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import SamplingParams
from edgespec.stats import GenerationStats
from edgespec.workloads import Prompt, prompts

pytestmark = pytest.mark.real

K = 3


@dataclass(frozen=True, slots=True)
class Text:
    """A completion, its end token included (a text may fork by ending), and the events that made it."""

    tokens: list[int]
    events: list[Event]
    stats: GenerationStats


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt with its parameters, in a context of its own that has read the prompt."""

    context: Context
    ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int

    def answer(self, drafter: Drafter | None, verify: str = "seed") -> Text:
        generation = Generation(
            self.context,
            GenerationRequest(
                prompt=self.ids,
                params=self.params,
                max_tokens=self.max_tokens,
                draft_max=K if drafter else 0,
                verify=verify,
            ),
            drafter,
        )
        events = list(generation)
        end = [self.context.vocab.eos] if generation.finish_reason == "stop" else []
        return Text(generation.completion + end, events, generation.stats)

    def fork(self, plain: Text, other: Text) -> Fork | None:
        choose = seed_choice(self.params, self.context.vocab.size, len(self.ids))
        fork = explain_fork(self.context.model, self.ids, plain.tokens, other.tokens, rounds_of(other.events), choose)
        assert fork is not None or plain.tokens == other.tokens
        return fork


@contextmanager
def _ask(model: Model, prompt: Prompt, temperature: float, seed: int, max_tokens: int) -> Iterator[Asked]:
    """The prompt is in the cache from the start, so every text gets its first token from the same decode."""
    with Context(model) as context:
        text = f"<|im_start|>user\n{prompt.text}<|im_end|>\n<|im_start|>assistant\n"
        ids = tuple(context.vocab.tokenize(text, special=True))
        sequence = context.sequence()
        sequence.sync(ids[:-1])
        sequence.close()
        yield Asked(context, ids, SamplingParams(temperature=temperature, seed=seed), max_tokens)


def _shown(forks: list[Fork]) -> list[tuple[int, float, float, bool]]:
    return [(f.position, round(f.gap_at_one, 4), round(f.gap_at_width, 4), f.explained) for f in forks]


@pytest.mark.parametrize(
    ("temperature", "kv_type"),
    [pytest.param(0.7, "f16", marks=pytest.mark.soak), (1.0, "f16"), pytest.param(1.0, "f32", marks=pytest.mark.soak)],
)
def test_lookup_changes_no_word_of_a_seeded_text(starter: Path, temperature: float, kv_type: str, record) -> None:
    """Texts that repeat their prompt, so that guesses are both taken and refused."""
    forks, drafted, accepted = [], 0, 0
    with Model(starter, LoadSettings(n_ctx=2048, threads=1, kv_type=kv_type)) as model:
        for seed, prompt in enumerate([*prompts("code")[:4], *prompts("edit")[:2]]):
            with _ask(model, prompt, temperature, seed, 40) as asked:
                fast = asked.answer(LookupDrafter())
                drafted += fast.stats.drafted
                accepted += fast.stats.accepted
                if fork := asked.fork(asked.answer(None), fast):
                    forks.append(fork)
    record(
        temperature=temperature,
        kv_type=kv_type,
        prompts=6,
        identical=6 - len(forks),
        drafted=drafted,
        accepted=accepted,
        forks=_shown(forks),
    )
    assert 0 < accepted < drafted
    assert all(f.explained for f in forks)


@pytest.mark.soak
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_thirty_prompts_with_a_draft_model(
    qwen_q4_target: Path, qwen_q4_draft: Path, temperature: float, record
) -> None:
    """Identity, with forks explained; acceptance beside block verification and greedy match.

    Greedy match: the draft model proposes its likeliest token, kept where it is what the target samples.
    """
    settings = LoadSettings(n_ctx=2048)
    ways: dict[str, tuple[str, Callable[[Context], Drafter]]] = {
        "seed": ("seed", lambda draft: ModelDrafter(draft)),
        "block": ("block", lambda draft: ModelDrafter(draft)),
        "greedy match": ("seed", lambda draft: ModelDrafter(draft, temperature=0)),
    }
    counts = {name: [0, 0, 0, 0] for name in ways}  # rounds, produced, drafted, accepted
    identical, forks = 0, []
    with (
        Model(qwen_q4_target, settings) as target_model,
        Model(qwen_q4_draft, settings) as draft_model,
        Context(draft_model) as draft,
    ):
        for seed, prompt in enumerate(prompts("code")[:10] + prompts("chat")[:10] + prompts("summarise")[:10]):
            with _ask(target_model, prompt, temperature, seed, 48) as asked:
                plain = asked.answer(None)
                for name, (verify, make) in ways.items():
                    done = asked.answer(make(draft), verify)
                    stats = done.stats
                    for i, n in enumerate((stats.rounds, stats.produced, stats.drafted, stats.accepted)):
                        counts[name][i] += n
                    if verify == "seed":
                        fork = asked.fork(plain, done)
                        identical += fork is None
                        forks += [fork] if fork else []
    record(
        temperature=temperature,
        prompts=30,
        max_tokens=48,
        texts=60,
        identical=identical,
        explained=sum(f.explained for f in forks),
        unexplained=sum(not f.explained for f in forks),
        forks=_shown(forks),
        **{
            f"{name.replace(' ', '_')}_{what}": value
            for name, (rounds, produced, drafted, accepted) in counts.items()
            for what, value in (("acceptance", accepted / drafted), ("tau", produced / rounds))
        },
    )
    assert identical + len(forks) == 60
    assert all(f.explained for f in forks)
    assert counts["seed"][3] / counts["seed"][2] > counts["greedy match"][3] / counts["greedy match"][2]
