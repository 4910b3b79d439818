"""What a model asks itself before a training: its own words after the beginning of a user's turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path

import pytest
from training import SETTINGS, load

from edgespec import LLM
from edgespec.tiny_gguf import CHATML_TEMPLATE
from edgespec.train import process, questions
from edgespec.train.collect import Writing, encoded
from edgespec.train.prompts import HELD_OUT, abouts, mixed, shipped


@pytest.fixture
def llm(tiny: Callable[..., Path]) -> Iterator[LLM]:
    with load(tiny(chat_template=CHATML_TEMPLATE), SETTINGS) as loaded:
        yield loaded


def test_it_begins_where_a_user_would(llm: LLM) -> None:
    begin = questions.opening(llm, "the list of words")
    assert llm.detokenize(begin).endswith("user\n")
    assert "the list of words" in llm.detokenize(begin)
    for word in ("Hello", "zebra", "7"):
        system = {"role": "system", "content": "the list of words"}
        whole = tuple(llm.encode([system, {"role": "user", "content": word}]))
        assert whole[: len(begin)] == begin
        assert len(whole) > len(begin)


def test_without_a_template_nothing_is_asked(tiny: Callable[..., Path]) -> None:
    with load(tiny(), SETTINGS) as llm:
        assert questions.opening(llm, "words") == ()
        assert questions.ask(llm, ["words"] * 4, SETTINGS, 4) == [""] * 4


def test_a_template_without_system_messages_is_used_without_one(tiny: Callable[..., Path]) -> None:
    refusing = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    with load(tiny(chat_template=refusing + "user: {{ m.content }}{% endfor %}"), SETTINGS) as llm:
        assert llm.detokenize(questions.opening(llm, "words")).endswith("user:")


def test_what_does_not_end_is_no_question(llm: LLM) -> None:
    """The tiny model's text has no end."""
    assert questions.ask(llm, ["words"] * 3, SETTINGS, 4) == [""] * 3


def test_each_is_drawn_by_itself_and_short_ones_are_none(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    end = next(token for token in range(llm.target.vocab.size) if llm.target.vocab.is_eog(token))
    said = [
        llm.tokenize(text)
        for text in ("what is the list of things", "why", "what is the list of things", "the words in a list")
    ]
    seeds: list[float] = []

    def write(llm: LLM, texts: Sequence[Writing], longest: int, width: int, over: Callable[[], bool]) -> None:
        assert (longest, width, over()) == (questions.LONGEST, 4, False)
        for text, tokens in zip(texts, cycle(said), strict=False):
            assert text._rng is not None
            seeds.append(text._rng.random())
            text.tokens += [*tokens, end]

    monkeypatch.setattr(questions, "write", write)
    asked = questions.ask(llm, ["words", "a list"] * 4, SETTINGS, 4)
    assert asked == ["what is the list of things", "", "what is the list of things", "the words in a list"] * 2
    assert len(set(seeds)) == 8
    assert questions.ask(llm, [], SETTINGS, 4) == []


def test_a_question_that_was_asked_twice_is_not_judged_by_too(llm: LLM) -> None:
    again, other = "what is the list of things", "the words in a list"
    asked = [again, *[""] * (HELD_OUT - 2), again, again, *[""] * (HELD_OUT - 2), other]
    found = process._Prompts.of(llm, SETTINGS, [], asked)
    ids = {question: encoded(llm, [question])[0] for question in (again, other)}
    assert found.learned.count(ids[again]) == 1
    assert ids[again] not in found.judged
    assert ids[other] in found.judged


def test_every_eighth_is_about_a_subject_that_is_held_out() -> None:
    every = abouts(800)
    held, learned = (
        set(every[HELD_OUT - 1 :: HELD_OUT]),
        {a for i, a in enumerate(every) if i % HELD_OUT != HELD_OUT - 1},
    )
    assert not held & learned
    texts = "\n".join(shipped()[0])
    assert len(learned) > 90
    for about in held:
        assert (
            about.rstrip(".")
            .removeprefix("You answer questions about ")
            .removeprefix("You help to write a program that ")
            not in texts
        )


@pytest.mark.parametrize(
    ("some", "others", "whole"),
    [([1, 2], [7, 8, 9], [1, 7, 2, 8, 9]), ([1, 2, 3], [7], [1, 7, 2, 3]), ([], [7], [7]), ([1], [], [1])],
)
def test_two_kinds_of_prompts_take_turns(some: list[int], others: list[int], whole: list[int]) -> None:
    assert mixed(some, others) == whole
