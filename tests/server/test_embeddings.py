"""Embeddings through the real client, against llama.cpp's own way to them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

import edgespec
from clients_page import examples, run_example
from edgespec.engine.local import LocalEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.errors import BadRequestError
from edgespec.loading import load_for_engine
from edgespec.tiny_gguf import TinyVocab, write_tiny
from running_server import MODEL, Running, running
from tiny_bert import write_bert

PATH = "/v1/embeddings"
TEXTS = ["the first of them", "a<|im_end|>b", "ü 🦜 " * 30, "x"]
ASKED: list[Any] = [{"role": "user", "content": "x"}]
SETTINGS: dict[str, Any] = {"drafter": "none", "draft": "none", "ctx_size": 512, "threads": 1}


@pytest.fixture(scope="module", params=["mean", "last", "cls"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    vocab = TinyVocab(add_bos=request.param != "cls", add_eos=request.param == "last")
    folder = tmp_path_factory.mktemp("embeddings")
    return write_tiny(folder / "tiny.gguf", vocab=vocab, pooling=request.param, n_ctx_train=256)


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[Running]:
    with running(LoadSpec(model=str(model), **SETTINGS), engine=LocalEngine(load_for_engine)) as server:
        yield server


@pytest.fixture(scope="module")
def peer(model: Path) -> Any:
    """Embeddings of the texts as the binding's own class makes them."""
    from llama_cpp import Llama

    llama = Llama(str(model), embedding=True, n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1, verbose=False)
    try:
        return np.array([llama.embed(text, normalize=True) for text in TEXTS])
    finally:
        llama.close()


def test_they_are_those_of_the_binding_alone_and_together(served: Running, peer: Any, model: Path) -> None:
    with served.client() as client:
        together = client.embeddings.create(model=MODEL, input=TEXTS)
        alone = [client.embeddings.create(model=MODEL, input=text) for text in TEXTS]
    found = np.array([one.embedding for one in together.data])
    assert [one.index for one in together.data] == list(range(len(TEXTS)))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found, peer, atol=1e-4)
    assert np.abs(found[0] - found[1]).max() > 0.01
    np.testing.assert_array_equal(found, [one.data[0].embedding for one in alone])
    assert together.usage.prompt_tokens == together.usage.total_tokens == sum(one.usage.total_tokens for one in alone)
    assert together.model == MODEL
    with edgespec.load(model, **SETTINGS) as llm:
        np.testing.assert_array_equal(found.astype(np.float32), llm.embed(TEXTS))
        ids = llm.embedder.ids(TEXTS[0])
    with served.client() as client:
        for given in (ids, [ids, ids]):
            vector = client.embeddings.create(model=MODEL, input=given).data[-1].embedding  # type: ignore[arg-type]
            np.testing.assert_array_equal(vector, found[0])


def test_the_example_of_the_clients_page(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples("embeddings.create")
    run_example(example, served)
    alike = [float(word) for word in capsys.readouterr().out.split()]
    assert len(alike) == 2
    assert all(-1.001 < one < 1.001 for one in alike)


def test_both_forms_on_the_wire(served: Running) -> None:
    plain = served.post({"input": "x", "encoding_format": "float"}, PATH).json["data"][0]["embedding"]
    packed = served.post({"input": "x", "encoding_format": "base64", "dimensions": len(plain)}, PATH).json
    assert packed["object"] == "list"
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4"), plain)


def test_wrong_requests(served: Running) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": {"a": 1}}, "input"),
        ({"input": [99999]}, "input"),
        ({"input": [1, -1]}, "input[1]"),
        ({"input": ["a"] * 1025}, "input"),
        ({"input": "a", "dimensions": 8}, "dimensions"),
        ({"input": "a", "dimensions": "8"}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "temperature": 1}, "temperature"),
        ({}, "input"),
    ]
    for body, param in wrong:
        answer = served.post(body, PATH)
        assert (answer.status, answer.error["param"]) == (400, param), (body, answer.body)
    with served.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=MODEL, input=["x", "x " * 300])
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    assert served.post({"input": "x", "model": "another"}, PATH).status == 404


def test_text_and_embeddings_take_turns(served: Running) -> None:
    """The same tokens before and after: embeddings leave the cache of the conversation alone."""
    body = {"prompt": "the first of", "max_tokens": 8, "temperature": 0}
    before = served.post(body, "/v1/completions").json
    assert served.post({"input": TEXTS}, PATH).status == 200
    after = served.post(body, "/v1/completions").json
    assert before["choices"] == after["choices"]
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_model_that_does_nothing_else(tmp_path: Path) -> None:
    path = write_bert(tmp_path / "bert.gguf")
    spec = LoadSpec(model=str(path), threads=1)
    with running(spec, engine=LocalEngine(load_for_engine)) as server:
        with server.client() as client:
            made = client.embeddings.create(model=MODEL, input=TEXTS[:2])
        for target, body in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", {"messages": ASKED})):
            answer = server.post(body, target)
            assert (answer.status, answer.error["code"]) == (400, "not_supported")
            assert PATH in answer.error["message"]
    from llama_cpp import Llama

    peer = Llama(str(path), embedding=True, n_ctx=128, n_batch=128, n_ubatch=128, n_threads=1, verbose=False)
    try:
        wanted = [peer.embed(text, normalize=True) for text in TEXTS[:2]]
    finally:
        peer.close()
    np.testing.assert_allclose([one.embedding for one in made.data], wanted, atol=1e-5)
    with edgespec.load(path) as llm:
        assert (llm.drafter, llm.why) == ("none", "it makes embeddings and generates no text")
        with pytest.raises(BadRequestError, match="generates no text"):
            llm.complete("x")


@pytest.mark.parametrize(("pooling", "why"), [(None, "names no pooling"), ("rank", "ranks texts")])
def test_models_that_make_none_say_why(tmp_path: Path, pooling: Any, why: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", pooling=pooling)
    with running(LoadSpec(model=str(path), **SETTINGS), engine=LocalEngine(load_for_engine)) as server:
        answer = server.post({"input": "x"}, PATH)
        assert (answer.status, answer.error["code"]) == (501, "not_supported")
        assert why in answer.error["message"]
        assert server.ask("GET", "/v1/models").json["data"][0]["meta"]["embeddings"] == 0
