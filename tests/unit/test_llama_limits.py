"""What makes llama.cpp abort, or return a bare -1, is a typed error with one line. Each runs in a child process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgespec.errors import EdgeSpecError
from edgespec.scoring import ScoreRequest

Child = Callable[..., Any]
GOOD = [5, 6, 7, 8]


def outcome(action: Callable[[], object]) -> tuple[str, str]:
    """(name of the error's type or "fine", its message)."""
    try:
        action()
    except EdgeSpecError as error:
        return type(error).__name__, str(error)
    return "fine", ""


def settings_outcome(path: Path, options: dict[str, Any]) -> tuple[str, str]:
    from edgespec.llama import Context, LoadSettings, Model

    def load() -> None:
        with Model(path, LoadSettings(**{"n_ctx": 64, "threads": 1, "buffers": "none", **options})) as model:
            Context(model)

    return outcome(load)


def score_outcomes(path: Path) -> dict[str, tuple[str, str]]:
    """Bad requests on one context, which must go on working after each of them."""
    from edgespec.llama import Context, LoadSettings, Model

    found = {}
    settings = LoadSettings(n_ctx=64, n_batch=8, max_width=4, sequences=2, threads=1, buffers="none")
    with Model(path, settings) as model, Context(model) as context:
        sequences = [context.sequence() for _ in range(3)]
        want = context.score([ScoreRequest(sequences[0], GOOD)])[0].argmax()
        size = model.vocab.size
        one = sequences[0]
        bad: dict[str, list[ScoreRequest]] = {
            "negative id": [ScoreRequest(one, [5, -1, 6])],
            "id past the end": [ScoreRequest(one, [5, size])],
            "huge id": [ScoreRequest(one, [2**31])],
            "bad id where good ones are cached": [ScoreRequest(one, [5, size, 7, 8, 9])],
            "bad id behind a long prompt": [ScoreRequest(one, [*range(5, 35), size])],
            "drafted id past the end": [ScoreRequest(one, [5], (6, size))],
            "negative drafted id": [ScoreRequest(one, [5], (-1,))],
            "no tokens": [ScoreRequest(one, [])],
            "wider than max_width": [ScoreRequest(one, [5], (6, 7, 8, 9))],
            "wider than n_batch": [ScoreRequest(one, [5], tuple(range(5, 25)))],
            "too wide together": [ScoreRequest(s, [5], (6, 7)) for s in sequences[:2]],
            "too many sequences": [ScoreRequest(s, [5]) for s in sequences],
            "one sequence twice": [ScoreRequest(one, [5]), ScoreRequest(one, [6])],
            "longer than the context": [ScoreRequest(one, [5] * 65)],
            "draft past the context": [ScoreRequest(one, [5] * 63, (6, 7))],
        }
        for name, requests in bad.items():
            found[name] = outcome(lambda requests=requests: context.score(requests))  # type: ignore[misc]
            assert context.score([ScoreRequest(one, GOOD)])[0].argmax() == want, name
        found["sync past the context"] = outcome(lambda: one.sync([5] * 65))
        found["sync of a bad id"] = outcome(lambda: one.sync([5, size]))
        one.truncate(1000)
        one.truncate(0)
        assert context.score([ScoreRequest(one, GOOD)])[0].argmax() == want
    return found


def closed_outcomes(path: Path) -> dict[str, tuple[str, str]]:
    """Every door of a model that was closed while a conversation was open."""
    import numpy as np

    from edgespec.llama import Context, LlamaGrammar, LoadSettings, Model

    model = Model(path, LoadSettings(n_ctx=64, threads=1, buffers="none"))
    context = Context(model)
    sequence = context.sequence()
    context.score([ScoreRequest(sequence, GOOD)])
    state = sequence.save()
    grammar = LlamaGrammar(model.vocab, 'root ::= "a"')
    model.close()
    model.close()
    context.close()
    sequence.truncate(2)
    found = {
        "score": outcome(lambda: context.score([ScoreRequest(sequence, GOOD)])),
        "shorter score": outcome(lambda: context.score([ScoreRequest(sequence, [9])])),
        "sync": outcome(lambda: sequence.sync(GOOD)),
        "save": outcome(sequence.save),
        "restore": outcome(lambda: sequence.restore(state, GOOD)),
        "sequence": outcome(context.sequence),
        "context": outcome(lambda: Context(model)),
        "piece": outcome(lambda: model.vocab.piece(9)),
        "is_eog": outcome(lambda: model.vocab.is_eog(9)),
        "text": outcome(lambda: model.vocab.text(9)),
        "tokenize": outcome(lambda: model.vocab.tokenize("a", special=True)),
        "texts": outcome(lambda: model.vocab.texts),
        "special_texts": outcome(model.vocab.special_texts),
        "n_ctx_train": outcome(lambda: model.n_ctx_train),
        "recurrent": outcome(lambda: model.recurrent),
        "chat_template": outcome(lambda: model.chat_template),
        "weight_bytes": outcome(lambda: model.weight_bytes),
        "new grammar": outcome(lambda: LlamaGrammar(model.vocab, 'root ::= "a"')),
        "grammar mask": outcome(lambda: grammar.mask(np.array([5]))),
        "grammar advance": outcome(lambda: grammar.advance(5)),
    }
    sequence.close()
    return found


FULL = {"longer than the context", "draft past the context", "sync past the context"}


@pytest.mark.parametrize("arch", ["llama", "gemma3", "mamba", "lfm2"])
def test_bad_requests_are_typed_and_harmless(tiny: Callable[..., Path], child: Child, arch: str) -> None:
    found = child(score_outcomes, tiny(arch))
    for name, (kind, message) in found.items():
        assert kind == ("ContextFullError" if name in FULL else "BadRequestError"), name
        assert "\n" not in message
    assert "token id 512" in found["id past the end"][1]


def test_a_closed_model_says_so(tiny: Callable[..., Path], child: Child) -> None:
    for name, (kind, message) in child(closed_outcomes, tiny()).items():
        assert (kind, message) == ("DecodeError", "this model is closed"), name


NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"n_ctx": 1}, "context size"),
        ({"n_ctx": 0}, "context size"),
        ({"n_ctx": -5}, "context size"),
        ({"n_ctx": NAN}, "NaN"),
        ({"n_ctx": 64.0}, "context size"),
        ({"n_ctx": True}, "context size"),
        ({"n_ctx": "64"}, "context size"),
        ({"n_batch": 0}, "n_batch"),
        ({"n_batch": True}, "n_batch"),
        ({"threads": 0}, "threads"),
        ({"threads": NAN}, "NaN"),
        ({"sequences": 0}, "sequences"),
        ({"sequences": 257}, "sequences"),
        ({"max_width": 0}, "max width"),
        ({"gpu_layers": -2}, "gpu layers"),
        ({"gpu_layers": False}, "gpu layers"),
        ({"kv_type": "q9"}, "kv type"),
        ({"kv_type": None}, "kv type"),
        ({"kv_type": ["f16"]}, "kv type"),
        ({"kv_type": "q8_0", "flash_attn": "off"}, "flash attention"),
        ({"flash_attn": True}, "flash attention"),
        ({"buffers": "amx"}, "buffers"),
    ],
)
def test_bad_settings(tiny: Callable[..., Path], child: Child, options: dict[str, Any], named: str) -> None:
    kind, message = child(settings_outcome, tiny(), options)
    assert kind == "BadRequestError"
    assert named in message
    assert "\n" not in message


def test_gpu_layers_need_a_gpu_build(tiny: Callable[..., Path], child: Child) -> None:
    from edgespec.llama import supports_gpu_offload

    if supports_gpu_offload():
        pytest.skip("this build has a GPU backend")
    kind, message = child(settings_outcome, tiny(), {"gpu_layers": 3})
    assert (kind, "GPU" in message) == ("BadRequestError", True)


@pytest.mark.parametrize(
    "options",
    [
        {"n_batch": 1},
        {"n_ctx": 8, "n_batch": 65536},
        {"n_batch": 1, "sequences": 256, "max_width": 512},
        {"sequences": 1, "max_width": 1},
        {"max_width": 512, "n_batch": 600, "n_ctx": 600},
        {"kv_type": "f32"},
        {"kv_type": "bf16"},
        {"kv_type": "q8_0"},
        {"kv_type": "q4_0", "flash_attn": "on"},
        {"flash_attn": "on"},
        {"threads": 64},
        {"gpu_layers": 0},
        {"buffers": "auto"},
        {"buffers": "repack"},
    ],
)
@pytest.mark.parametrize("arch", ["llama", "gemma3", "jamba", "lfm2"])
def test_unusual_settings_work(tiny: Callable[..., Path], child: Child, arch: str, options: dict[str, Any]) -> None:
    assert child(settings_outcome, tiny(arch), options) == ("fine", "")
