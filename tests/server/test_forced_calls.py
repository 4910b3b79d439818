"""Calls that a request insists on: whatever a model of random weights would say, it is a call that fits the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import template_files
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.errors import BadRequestError
from edgespec.llama import schema_to_gbnf
from edgespec.loading import load_for_engine
from edgespec.server.tools import forced_call, read_tools
from edgespec.tiny_gguf import ENDOFTEXT, IM_END, TinyVocab, write_tiny
from running_server import MODEL, Running, running

PAINT: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"$ref": "#/$defs/colour"}, "coats": {"enum": [1, 2, 3]}},
    "required": ["colour", "coats"],
    "additionalProperties": False,
    "$defs": {"colour": {"enum": ["red", "green", 'a "b"']}},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "paint", "parameters": PAINT}},
    {"type": "function", "function": {"name": "stop"}},
]
ASKED: list[Any] = [{"role": "user", "content": "Paint the wall."}]
TEMPLATES = {
    "hermes": template_files.HERMES,
    "llama": template_files.LLAMA,
    "mistral": template_files.MISTRAL,
    "opened": template_files.SWITCHED,
}


@pytest.fixture(scope="module", params=TEMPLATES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("forced") / "tiny.gguf"
    write_tiny(path, chat_template=TEMPLATES[request.param], n_ctx_train=4096)
    spec = LoadSpec(model=str(path), draft="none", drafter="lookup", ctx_size=4096, threads=1)
    with running(spec, engine=LocalEngine(load_for_engine)) as server:
        yield server


def fits(call: Any) -> bool:
    """Whether it is a call of one of the tools."""
    given = json.loads(call.function.arguments)
    if call.function.name == "stop":
        return bool(given == {})
    return (
        set(given) == {"colour", "coats"}
        and given["colour"] in PAINT["$defs"]["colour"]["enum"]
        and given["coats"] in (1, 2, 3)
    )


def test_forced_calls_fit_the_schema(served: Running) -> None:
    names = set()
    with served.client() as client:
        for seed in range(4):
            choice = client.chat.completions.create(
                model=MODEL, messages=ASKED, tools=TOOLS, tool_choice="required", seed=seed, max_tokens=400
            ).choices[0]
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", None), choice
            (call,) = choice.message.tool_calls or ()
            assert fits(call)
            names.add(call.function.name)  # type: ignore[union-attr]
        named = client.chat.completions.create(
            model=MODEL,
            messages=ASKED,
            tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "paint"}},
            max_tokens=400,
            stream=True,
        )
        deltas = [chunk.choices[0].delta for chunk in named]
    (told,) = [call for delta in deltas for call in delta.tool_calls or ()]
    assert told.function is not None
    assert told.function.name == "paint"
    assert fits(told)
    assert names <= {"paint", "stop"}


def test_several_calls_where_they_are_asked_for(served: Running) -> None:
    """The end is made less likely until a second call comes before it."""
    most = 0
    for seed in range(8):
        bias = {str(TinyVocab().id_of(text)): -1.5 * seed for text in (ENDOFTEXT, IM_END)}
        body = {"messages": ASKED, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": True}
        answer = served.post({**body, "seed": seed, "max_tokens": 600, "logit_bias": bias}).json["choices"][0]
        if answer["finish_reason"] == "tool_calls":
            most = max(most, len(answer["message"]["tool_calls"]))
        if most > 1:
            return
    pytest.fail("there was never more than one call")


def test_a_schema_that_is_none(served: Running) -> None:
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "poem"}}}
    answer = served.post({"messages": ASKED, "tools": [bad], "tool_choice": "required"})
    assert (answer.status, answer.error["param"]) == (400, "tools")


def test_json_is_no_thought(served: Running) -> None:
    """Also where the template would have the answer begin with one."""
    kind = {"type": "json_schema", "json_schema": {"name": "x", "schema": PAINT}}
    message = served.post({"messages": ASKED, "response_format": kind, "max_tokens": 400}).json["choices"][0]["message"]
    assert set(json.loads(message["content"])) == {"colour", "coats"}
    assert "reasoning_content" not in message


def schema_of(kind: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"$ref": "#/$defs/kind"}}, "$defs": {"kind": kind}}


def forced(*schemas: dict[str, Any]) -> str:
    """Grammar of a call of functions with these parameters."""
    given = [{"type": "function", "function": {"name": f"f{i}", "parameters": p}} for i, p in enumerate(schemas)]
    options = forced_call(read_tools("tools", given), "hermes", several=False)
    return schema_to_gbnf(options["json_schema"], options["json_frame"])


def test_functions_whose_schemas_use_the_same_names() -> None:
    grammar = forced(schema_of({"const": "one"}), schema_of({"const": "two"}))
    assert '"\\"one\\""' in grammar
    assert '"\\"two\\""' in grammar


def test_a_schema_that_refers_to_itself() -> None:
    assert "call-part0" in forced(schema_of({"type": "array", "items": {"$ref": "#/$defs/kind"}}))


@pytest.mark.parametrize("many", [0, 3000])
def test_references_that_lead_nowhere_or_too_far(many: int) -> None:
    chain = {f"k{i}": {"$ref": f"#/$defs/k{i + 1}"} for i in range(many)}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/k0"}}, "$defs": chain}
    with pytest.raises(BadRequestError, match="k0" if not many else "too deep"):
        forced(schema)
