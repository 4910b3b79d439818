"""Loading: what a file says about itself, and a one-line error for every file that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import EdgeSpecError, ModelLoadError, ModelNotFoundError
from edgespec.llama import Context, LoadSettings, Model, requantize
from edgespec.scoring import ScoreRequest
from edgespec.tiny_gguf import CHATML_TEMPLATE

Tiny = Callable[..., Path]
PLAIN = LoadSettings(n_ctx=64, threads=1, buffers="none")


@pytest.mark.parametrize(
    ("arch", "recurrent"), [("llama", False), ("gemma3", False), ("mamba", True), ("jamba", True), ("lfm2", True)]
)
def test_facts(tiny: Tiny, arch: str, recurrent: bool) -> None:
    path = tiny(arch, n_ctx_train=96, chat_template=CHATML_TEMPLATE)
    with Model(path, PLAIN) as model:
        assert (model.n_ctx_train, model.recurrent, model.chat_template) == (96, recurrent, CHATML_TEMPLATE)
        assert 0.5 * path.stat().st_size < model.weight_bytes < path.stat().st_size
        assert model.header.arch == arch


def test_no_template(tiny: Tiny) -> None:
    with Model(tiny(), PLAIN) as model:
        assert model.chat_template is None


def test_progress_rises_to_one(tiny: Tiny) -> None:
    seen: list[float] = []
    Model(tiny(), PLAIN, progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1


class Stopped(BaseException):
    pass


def test_what_the_progress_callback_raises_comes_out(tiny: Tiny) -> None:
    def stop(_: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        Model(tiny(), PLAIN, progress=stop)
    with Model(tiny(), PLAIN) as model, Context(model) as context:
        context.score([ScoreRequest(context.sequence(), [5])])


@pytest.mark.parametrize("buffers", ["auto", "repack"])
@pytest.mark.parametrize("quant", ["q4_0", "q8_0", "f16"])
@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2"])
def test_buffers_do_not_change_the_answer(tiny: Tiny, open_context: Any, arch: str, quant: str, buffers: str) -> None:
    """Other kernels round differently, no more."""
    path = tiny(arch, quant=quant)
    text = list(range(5, 45))
    scored = []
    for choice in ("none", buffers):
        context = open_context(path, buffers=choice)
        assert context.model.buffers in (choice, "repack", "none")
        scored.append(context.score([ScoreRequest(context.sequence(), text, (3, 4, 5))])[0].copy())
    assert np.abs(scored[0] - scored[1]).max() < 0.3
    assert np.corrcoef(scored[0].ravel(), scored[1].ravel())[0, 1] > 0.999


def broken_files(tiny_path: Path, folder: Path) -> dict[str, Path]:
    whole = tiny_path.read_bytes()
    contents = {
        "truncated header": whole[:5000],
        "truncated weights": whole[:-5000],
        "four bytes": whole[:4],
        "empty": b"",
        "text": b"This is a shopping list, not a model.\n" * 50,
        "garbage behind the magic": whole[:4] + bytes(range(256)) * 40,
        "unknown architecture": whole.replace(b"llama", b"lxamx"),
        "missing tensor": whole.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"),
        "unknown tokenizer": whole.replace(b"gpt2", b"gptX"),
    }
    paths = {}
    for name, data in contents.items():
        paths[name] = folder / f"{name.replace(' ', '-')}.gguf"
        paths[name].write_bytes(data)
    return paths


def load_outcomes(paths: dict[str, Path]) -> dict[str, tuple[str, str]]:
    found = {}
    for name, path in paths.items():
        try:
            Model(path, PLAIN)
            found[name] = ("loaded", "")
        except EdgeSpecError as error:
            found[name] = (type(error).__name__, str(error))
    return found


def test_unusable_files(tiny: Tiny, tmp_path: Path, child: Callable[..., Any]) -> None:
    paths = broken_files(tiny(), tmp_path)
    for name, (kind, message) in child(load_outcomes, paths).items():
        assert kind == "ModelLoadError", (name, kind, message)
        assert paths[name].name in message
        assert "\n" not in message
        assert len(message) < 600


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        Model(tmp_path / "nowhere.gguf", PLAIN)
    with pytest.raises(EdgeSpecError) as caught:
        Model(tmp_path, PLAIN)
    assert "\n" not in str(caught.value)


def test_names_that_are_not_ascii(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "größe ü 模型.gguf"
    path.write_bytes(tiny().read_bytes())
    with Model(path, PLAIN) as model:
        assert model.vocab.size == 512


@pytest.mark.parametrize("file_type", ["q4_0", "q8_0", "f16"])
def test_requantize(tiny: Tiny, open_context: Any, tmp_path: Path, file_type: str) -> None:
    path = requantize(tiny(), tmp_path / "small.gguf", file_type)
    assert list(tmp_path.iterdir()) == [path]
    with Model(path, PLAIN) as model:
        types = {t.type for t in model.header.tensors if len(t.shape) == 2}
    assert types == {file_type.upper()}
    text, scored = list(range(5, 45)), []
    for file in (tiny(), path):
        context = open_context(file)
        scored.append(context.score([ScoreRequest(context.sequence(), text)])[0][0].copy())
    assert np.corrcoef(*scored)[0, 1] > (0.8 if file_type == "q4_0" else 0.99)


def test_requantize_refuses(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(EdgeSpecError, match="q9"):
        requantize(tiny(), tmp_path / "out.gguf", "q9")
    (tmp_path / "bad.gguf").write_bytes(tiny().read_bytes()[:5000])
    with pytest.raises(ModelLoadError):
        requantize(tmp_path / "bad.gguf", tmp_path / "out.gguf", "q4_0")
    with pytest.raises(EdgeSpecError) as caught:
        requantize(tiny(), tmp_path / "no" / "out.gguf", "q4_0")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.gguf"]
