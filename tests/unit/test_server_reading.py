"""What a model says, taken apart: however its text is cut into tokens, the parts are the same and nothing is lost."""

from __future__ import annotations

import json
import random

import pytest

from edgespec.server.reading import Called, Part, Reader, Reading, Said, Thought

NAMES = frozenset({"weather", "add"})
CALL = '{"name": "weather", "arguments": {"place": "Bern </tool_call> \\" x", "days": 2}}'
ARGUMENTS = {"place": 'Bern </tool_call> " x', "days": 2}
HERMES = Reading(form="hermes", names=NAMES)
LLAMA = Reading(form="llama", names=NAMES)
MISTRAL = Reading(form="mistral", names=NAMES)
THINK = Reading(thought=("<think>", "</think>"))
OPENED = Reading(thought=("<think>", "</think>"), opened=True, form="hermes", names=NAMES)


def told(reading: Reading, pieces: list[str]) -> tuple[str, str, list[tuple[str, object]], int]:
    """(text, thought, calls, tokens of the thought) of an answer that comes in these pieces."""
    reader = Reader(reading)
    parts: list[Part] = [part for piece in pieces for part in reader.push(piece)] + reader.finish()
    text = "".join(part.text for part in parts if isinstance(part, Said))
    thought = "".join(part.text for part in parts if isinstance(part, Thought))
    calls = [part.call for part in parts if isinstance(part, Called)]
    assert all(len(call.id) == 9 and call.id.isalnum() for call in calls)
    assert len({call.id for call in calls}) == len(calls) == reader.calls
    return text, thought, [(c.name, json.loads(c.arguments)) for c in calls], reader.thought_tokens


def cut(text: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    edges = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(0, 12))))
    return [text[a:b] for a, b in zip([0, *edges], [*edges, len(text)], strict=True)]


WEATHER = ("weather", ARGUMENTS)
ADD = ("add", {"a": 1})
CASES = {
    "hermes": (HERMES, f"<tool_call>\n{CALL}\n</tool_call>", "", "", [WEATHER]),
    "hermes after a text": (HERMES, f"Let me see.\n\n<tool_call>{CALL}</tool_call>\n", "Let me see.", "", [WEATHER]),
    "hermes twice": (
        HERMES,
        f'<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{{"name": "add", "arguments": {{"a": 1}}}}\n</tool_call>',
        "",
        "",
        [WEATHER, ADD],
    ),
    "hermes without its end": (HERMES, f"<tool_call>\n{CALL}", "", "", [WEATHER]),
    "hermes, no JSON": (HERMES, "a <tool_call>{oops}</tool_call> b", "a <tool_call>{oops}</tool_call> b", "", []),
    "hermes, cut off": (HERMES, '<tool_call>{"name": "wea', '<tool_call>{"name": "wea', "", []),
    "hermes, no such function": (
        HERMES,
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        "",
        [],
    ),
    "hermes, arguments that are a list": (
        HERMES,
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>!',
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>!',
        "",
        [],
    ),
    "hermes, a wrong call before a right one": (
        HERMES,
        f"<tool_call>x</tool_call> <tool_call>{CALL}</tool_call>",
        "<tool_call>x</tool_call>",
        "",
        [WEATHER],
    ),
    "hermes without marks": (HERMES, f"\n{CALL}\n", "", "", [WEATHER]),
    "hermes in a fence": (HERMES, f"```json\n{CALL}\n```", "", "", [WEATHER]),
    "hermes in a fence without marks, cut off": (HERMES, f"```\n{CALL[:-9]}", f"```\n{CALL[:-9]}", "", []),
    "hermes in a fence before a text": (HERMES, f"```\n{CALL}\n```\nDo so.", f"```\n{CALL}\n```\nDo so.", "", []),
    "JSON of something else": (
        HERMES,
        '```json\n{"name": "add", "x": 1}```',
        '```json\n{"name": "add", "x": 1}```',
        "",
        [],
    ),
    "a fence alone": (HERMES, "```js", "```js", "", []),
    "a text with a beginning of a mark": (HERMES, "1 <tool 2 <tool_cal", "1 <tool 2 <tool_cal", "", []),
    "a text with spaces": (HERMES, "  a  b \n ", "  a  b \n ", "", []),
    "llama": (LLAMA, '{"name": "add", "parameters": {"a": 1}}', "", "", [ADD]),
    "llama, marked and twice": (
        LLAMA,
        '<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 1}}',
        "",
        "",
        [ADD, ADD],
    ),
    "llama, another object": (LLAMA, ' {"colour": "red"} ', ' {"colour": "red"} ', "", []),
    "llama, an object in a text": (
        LLAMA,
        'so {"name": "add", "parameters": {}}',
        'so {"name": "add", "parameters": {}}',
        "",
        [],
    ),
    "mistral": (MISTRAL, '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}, "id": "x"}]', "", "", [ADD]),
    "mistral, no list": (MISTRAL, "[TOOL_CALLS]add", "[TOOL_CALLS]add", "", []),
    "mistral, one of two is wrong": (
        MISTRAL,
        '[TOOL_CALLS][{"name": "add", "arguments": {}}, {"name": "rm", "arguments": {}}]',
        '[TOOL_CALLS][{"name": "add", "arguments": {}}, {"name": "rm", "arguments": {}}]',
        "",
        [],
    ),
    "a thought": (THINK, "<think>\nlong <b>\n\nthought\n</think>\n\nThe end. ", "The end. ", "long <b>\n\nthought", []),
    "no thought": (THINK, "a <think>b</think>", "a <think>b</think>", "", []),
    "a thought without an end": (THINK, "<think>well</thin", "", "well</thin", []),
    "an empty thought": (THINK, "<think>\n\n</think>\n\nYes", "Yes", "", []),
    "an opened thought": (OPENED, f"hm\n</think>\nok <tool_call>{CALL}</tool_call>", "ok", "hm", [WEATHER]),
    "an opened thought that is opened again": (OPENED, "<think>\nhm</think>ok", "ok", "hm", []),
    "calls are not made in thoughts": (
        OPENED,
        f"<tool_call>{CALL.replace('</tool_call>', '')}</tool_call></think>",
        "",
        f"<tool_call>{CALL.replace('</tool_call>', '')}</tool_call>",
        [],
    ),
    "all of it is text": (Reading(), f"<think>x</think>{CALL}", f"<think>x</think>{CALL}", "", []),
}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_the_same_however_it_is_cut(name: str) -> None:
    reading, answer, text, thought, calls = CASES[name]
    for seed in range(40):
        pieces = list(answer) if seed == 0 else [answer] if seed == 1 else cut(answer, seed)
        assert told(reading, pieces)[:3] == (text, thought, calls), pieces


def test_tokens_of_thoughts_are_counted() -> None:
    assert told(THINK, ["<th", "ink>", "a", "b", "</think>", "c", "d"])[3] == 5
    assert told(THINK, ["<th", "e", "a"])[3] == 0
    assert told(OPENED, ["\n", "a", "b", "</think>", "c"])[3] == 4
    assert told(HERMES, ["<think>", "a", "</think>"])[3] == 0


def test_text_is_told_as_soon_as_it_is_known() -> None:
    reader = Reader(HERMES)
    assert reader.push("```j") == []
    assert reader.push("ava") == [Said("```java")]
    assert reader.push("one two") == [Said("one two")]
    assert reader.push(" <") == []
    assert reader.push("b>") == [Said(" <b>")]
