"""The server with a real model, through the real client."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgespec
from clients_page import blocks, examples, here, run_example
from edgespec.engine.client import WorkerEngine
from edgespec.engine.protocol import LoadSpec
from measured import Record
from running_server import MODEL, Running, running

pytestmark = pytest.mark.real
LOADED: dict[str, Any] = {"ctx_size": 2048, "threads": 1, "buffers": "none", "flash_attn": "off"}
ASKED: list[Any] = [{"role": "user", "content": "Write a list of three fruits, one on each line."}]


@pytest.fixture(scope="module")
def served(starter: Path) -> Iterator[Running]:
    spec = LoadSpec(model=str(starter), **LOADED)
    with running(spec, engine=WorkerEngine(shared=False)) as server:
        yield server


@pytest.fixture(scope="module")
def llm(starter: Path) -> Iterator[edgespec.LLM]:
    with edgespec.load(starter, **LOADED) as loaded:
        yield loaded


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 0.8, "seed": 11}], ids=["greedy", "seed"])
def test_texts_and_logprobs_are_those_of_the_api(served: Running, llm: edgespec.LLM, fields: dict[str, Any]) -> None:
    with llm.stream(ASKED, max_tokens=24, top_logprobs=2, **fields) as running_here:
        tops = [[(top.text, top.logprob) for top in token.top] for token in running_here]
    reply = running_here.reply
    with served.client() as client:
        answer = client.chat.completions.create(
            model=MODEL, messages=ASKED, max_tokens=24, logprobs=True, top_logprobs=2, **fields
        )
        stream = client.chat.completions.create(
            model=MODEL, messages=ASKED, max_tokens=24, stream=True, stream_options={"include_usage": True}, **fields
        )
        chunks = list(stream)
    choice = answer.choices[0]
    assert choice.message.content == reply.text
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [entry.logprob for entry in choice.logprobs.content] == pytest.approx(reply.logprobs, abs=0.05)
    for entry, top in zip(choice.logprobs.content, tops, strict=False):
        assert {t.token for t in entry.top_logprobs} == {text for text, _ in top} or top[1][1] < -3
        assert entry.top_logprobs[0].logprob == pytest.approx(top[0][1], abs=0.05)
    assert "".join(entry.token for entry in choice.logprobs.content) == reply.text
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == reply.text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == reply.stats.prompt_tokens


def test_a_stop_string_ends_an_answer(served: Running) -> None:
    whole = served.post({"messages": ASKED, "temperature": 0, "max_tokens": 24}).json["choices"][0]["message"][
        "content"
    ]
    word = whole.split()[3]
    cut = served.post({"messages": ASKED, "temperature": 0, "max_tokens": 24, "stop": [word]}).json["choices"][0]
    assert cut["message"]["content"] == whole[: whole.index(word)]
    assert cut["finish_reason"] == "stop"


def test_a_grammar_and_a_schema_that_are_wrong(served: Running) -> None:
    for fields, param in (
        ({"grammar": "root ::= ("}, "grammar"),
        ({"json_schema": {"$ref": "#/nowhere"}}, "json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "poem"}}}}, "response_format"),
    ):
        answer = served.post({"messages": ASKED, "max_tokens": 4, **fields})
        assert (answer.status, answer.error["param"]) == (400, param), answer.body


def test_any_json_object(served: Running) -> None:
    body = {"messages": ASKED, "temperature": 0, "max_tokens": 60, "response_format": {"type": "json_object"}}
    choice = served.post(body).json["choices"][0]
    assert choice["message"]["content"].startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


def schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A random schema whose texts are bounded, so that a small model comes to an end."""
    kinds = ["boolean", "integer", "enum", "string", "null"] + ([] if depth > 1 else ["object", "object", "array"])
    kind = "object" if depth == 0 else rng.choice(kinds)
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", "blue", 1, 2.5, None, True, 'a "b"'], 3)}
    if kind == "string":
        return {"type": "string", "maxLength": rng.randint(1, 8)}
    if kind == "array":
        low = rng.randint(0, 1)
        return {"type": "array", "items": schema(rng, depth + 1), "minItems": low, "maxItems": low + 2}
    if kind == "object":
        names = rng.sample(["name", "age", "colours", "is ripe", "größe", "x"], rng.randint(1, 3))
        inner = {name: schema(rng, depth + 1) for name in names}
        return {"type": "object", "properties": inner, "required": names, "additionalProperties": False}
    return {"type": kind}


def fits(value: Any, wanted: dict[str, Any]) -> bool:
    """Whether a value is what such a schema asks for."""
    if "enum" in wanted:
        return any(type(value) is type(one) and value == one for one in wanted["enum"])
    kinds = {"boolean": bool, "integer": int, "string": str, "array": list, "object": dict, "null": type(None)}
    if type(value) is not kinds[wanted["type"]]:
        return False
    if wanted["type"] == "string":
        return len(value) <= wanted["maxLength"]
    if wanted["type"] == "array":
        right = wanted["minItems"] <= len(value) <= wanted["maxItems"]
        return right and all(fits(item, wanted["items"]) for item in value)
    if wanted["type"] == "object":
        right = set(value) == set(wanted["required"])
        return right and all(fits(value[name], inner) for name, inner in wanted["properties"].items())
    return True


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_answers_follow_random_schemas(served: Running, count: int, record: Record) -> None:
    """Every answer that ended by itself is valid, and nearly all do."""
    finished = 0
    with served.client(timeout=120) as client:
        for number in range(count):
            wanted = schema(random.Random(number))
            kind: Any = {"type": "json_schema", "json_schema": {"name": "wanted", "schema": wanted, "strict": True}}
            choice = client.chat.completions.create(
                model=MODEL, messages=ASKED, seed=number, max_tokens=250, response_format=kind
            ).choices[0]
            if choice.finish_reason == "stop":
                finished += 1
                assert fits(json.loads(choice.message.content or ""), wanted), (number, wanted, choice)
    record(schemas=count, finished=finished)
    assert finished >= 0.95 * count


# The examples of docs/clients.md: what runs there is what stands there, but for address and model.

# Tools and embeddings need other models than this one: test_server_tools.py, server/test_embeddings.py.


@pytest.mark.parametrize("number", range(len(examples())))
def test_python_examples_of_the_clients_page(served: Running, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    run_example(examples()[number], served)
    assert capsys.readouterr().out.strip()


def test_curl_examples_of_the_clients_page(served: Running) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl")]
    assert len(commands) == 2
    for command in commands:
        limited = command.replace('{"', '{"max_tokens": 10, "', 1)
        done = subprocess.run(shlex.split(here(limited, served)), capture_output=True, timeout=60, check=True)
        assert b'"finish_reason":' in done.stdout


def test_the_llm_example_of_the_clients_page(served: Running, tmp_path: Path) -> None:
    (example,) = (text for text in blocks("yaml") if "model_id" in text)
    (tmp_path / "extra-openai-models.yaml").write_text(here(example, served))
    command = [sys.executable, "-m", "llm", "-m", "edgespec", "Name a colour.", "-o", "max_tokens", "10"]
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
    for more in ([], ["--no-stream"]):
        done = subprocess.run([*command, *more], env=environment, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.strip()
