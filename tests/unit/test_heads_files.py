"""Files of heads: what is written is read back, and what is wrong with one is said in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from edgespec.errors import BadRequestError, EdgeSpecError, ModelLoadError, ModelNotFoundError
from edgespec.heads.medusa import MedusaHeads
from edgespec.heads.sequential import SequentialHeads
from edgespec.heads.storage import Heads, described, read_facts, read_heads, write_heads
from table_heads import equal, random_heads, random_sequential

Change = Callable[[dict[str, Any], dict[str, str]], None]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_is_written_is_read(tmp_path: Path, shared: bool, depth: int) -> None:
    heads = random_heads(40, 8, count=3, depth=depth, ids=range(3, 30, 2), shared=shared, target="ab" * 32)
    write_heads(heads, tmp_path / "new" / "exact.safetensors", half=False)
    write_heads(heads, tmp_path / "half.safetensors")
    assert equal(read_heads(tmp_path / "new" / "exact.safetensors"), heads)
    assert equal(read_heads(tmp_path / "half.safetensors"), heads, 2e-3)
    assert read_facts(tmp_path / "half.safetensors") == (heads.facts, 3, 14)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["half.safetensors"]  # no temporary file stays


def same_sequential(a: SequentialHeads, b: SequentialHeads, tolerance: float = 0.0) -> bool:
    """tolerance: of matrices; 8 bits keep a hundredth of a row's largest number."""
    parts = ("mix", "mix_bias", "inner", "inner_bias", "outer")
    arrays = [(getattr(x, part), getattr(y, part)) for x, y in zip(a.steps, b.steps, strict=True) for part in parts]
    exact = [
        (a.ids, b.ids),
        (a.unit, b.unit),
        (a.centre, b.centre),
        (a.bias, b.bias),
        (a.basis, b.basis),
        (a.rows.codes, b.rows.codes),
    ]
    return (
        (a.facts, a.window) == (b.facts, b.window)
        and all(np.array_equal(x, y) for x, y in exact)
        and all(np.allclose(x, y, rtol=0, atol=tolerance * np.abs(y).max()) for x, y in arrays)
    )


def test_sequential_heads_are_kept_in_eight_bits(tmp_path: Path) -> None:
    heads = random_sequential(40, 24, count=3, ids=range(3, 30, 2), seen=8, window=3, target="ab" * 32)
    write_heads(heads, tmp_path / "a.safetensors")
    found = read_heads(tmp_path / "a.safetensors")
    assert isinstance(found, SequentialHeads)
    assert same_sequential(found, heads, 0.01)
    write_heads(found, tmp_path / "b.safetensors")
    again = read_heads(tmp_path / "b.safetensors")
    assert isinstance(again, SequentialHeads)
    assert same_sequential(again, found, 1e-6)  # nothing more is lost
    assert read_facts(tmp_path / "a.safetensors") == (heads.facts, 3, 14)


def test_a_number_that_float16_does_not_have_is_refused(tmp_path: Path) -> None:
    heads = random_heads()
    large = tuple(p * np.float32(1e6) for p in heads.projections)
    large = MedusaHeads(heads.facts, heads.ids, heads.blocks, large)  # type: ignore[assignment]
    with pytest.raises(BadRequestError, match="too large for float16"):
        write_heads(large, tmp_path / "a.safetensors")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def _lack(name: str) -> Change:
    return lambda tensors, _: tensors.pop(name)


def _put(name: str, value: Any) -> Change:
    return lambda tensors, _: tensors.update({name: value})


def _say(**facts: str) -> Change:
    return lambda _, metadata: metadata.update(facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_lack("vocabulary"), "lacks the tensor vocabulary"),
        (_lack("heads.1.blocks.0.bias"), "lacks the tensor heads.1.blocks.0.bias"),
        (_lack("heads.2.projection"), "lacks the tensor heads.2.projection"),
        (_put("heads.0.blocks.0.weight", np.zeros((6, 5), np.float32)), r"F32 \[6, 5\], and F32 or F16 \[6, 6\]"),
        (_put("heads.0.projection", np.zeros((3, 6), np.int32)), r"I32 \[3, 6\], and F32 or F16"),
        (_put("vocabulary", np.array([0, 1, 7], np.int32)), "ids from 0 to 2"),
        (_put("vocabulary", np.array([1, 0, 2], np.int32)), "ascending"),
        (_put("vocabulary", np.zeros((3, 1), np.int32)), "must be a list"),
        (_put("vocabulary", np.arange(9, dtype=np.int32)), "must be a list"),
        (_put("heads.0.projection", np.full((3, 6), np.inf, np.float32)), "not finite"),
        (_say(format="other"), "no heads in EdgeSpec's form; make it with `edgespec convert`"),
        (_say(version="2"), "in form '2'; this version of EdgeSpec reads medusa and sequential in form 1"),
        (_say(kind="hydra"), "heads of kind 'hydra'"),
        (_say(heads="0"), "heads is '0'; it must be a whole number from 1 to 16"),
        (_say(heads="4"), "lacks the tensor heads.3.blocks.0.weight"),
        (_say(n_embd="999999999999"), "n_embd is '999999999999'"),
        (_say(vocab_size="-3"), "vocab_size is '-3'"),
        (_say(blocks="99"), "blocks is '99'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, change: Change, message: str) -> None:
    refused(tmp_path, random_heads(), change, message)


def refused(tmp_path: Path, heads: Heads, change: Change, message: str) -> None:
    from safetensors import safe_open

    path = tmp_path / "heads.safetensors"
    write_heads(heads, path)
    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    change(tensors, metadata)
    save_file(tensors, path, metadata)
    with pytest.raises(ModelLoadError, match=message) as raised:
        read_heads(path)
    assert "\n" not in str(raised.value)
    assert "heads.safetensors" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_lack("unit"), "lacks the tensor unit"),
        (_lack("centre"), "lacks the tensor centre"),
        (_lack("rows.factors"), "lacks the tensor rows.factors"),
        (_lack("heads.1.outer"), "lacks the tensor heads.1.outer"),
        (_put("rows", np.zeros((3, 6), np.float32)), r"F32 \[3, 6\], and I8 \[3, 6\]"),
        (_put("unit", np.zeros(6, np.float32)), "not above 0"),
        (_put("rows.factors", np.full(3, np.nan, np.float32)), "not finite"),
        (_put("heads.0.mix", np.zeros((6, 13), np.int8)), r"I8 \[6, 13\], and I8 \[6, 14\]"),
        (_put("heads.2.outer", np.zeros(6, np.int8)), r"heads.2.outer has shape \[6\]"),
        (_put("basis", np.zeros((5, 4), np.float16)), r"F16 \[5, 4\], and F32 or F16 \[6, 4\]"),
        (_say(window="0"), "window is '0'"),
        (_say(window="3"), r"and I8 \[6, 18\]"),
        (_say(kind="medusa"), "blocks is ''"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_sequential_heads_is_refused_in_one_line(tmp_path: Path, change: Change, message: str) -> None:
    refused(tmp_path, random_sequential(), change, message)


def test_a_truncated_or_foreign_file_is_refused_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "heads.safetensors"
    write_heads(random_heads(), path)
    whole = path.read_bytes()
    for length in [*range(40), *range(40, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelLoadError, match="no whole safetensors file"):
            read_heads(path)
    for data in (b"GGUF" + whole[4:], b"\xff" * 64, b"\x00" * 64, whole + b"more"):
        path.write_bytes(data)
        with pytest.raises(ModelLoadError, match="no whole safetensors file"):
            read_facts(path)
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        read_heads(tmp_path / "none.safetensors")
    with pytest.raises(ModelNotFoundError):
        read_heads(tmp_path)


@pytest.mark.parametrize("heads", [random_heads(), random_sequential()])
def test_a_flipped_byte_is_an_error_of_ours_or_harmless(tmp_path: Path, heads: Heads) -> None:
    path = tmp_path / "heads.safetensors"
    write_heads(heads, path)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 300).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with suppress(EdgeSpecError):
            assert read_heads(path).count == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_embd": 7}, "hidden states of 6 numbers and tiny.gguf has hidden states of 7 numbers"),
        ({"vocab_size": 4}, "a vocabulary of 3 tokens and tiny.gguf has a vocabulary of 4 tokens"),
        ({"identities": ("x",)}, r"made for another file \(table\) than tiny.gguf"),
    ],
)
def test_heads_of_another_model_are_refused(change: dict[str, Any], message: str) -> None:
    mine = {"vocab_size": 3, "n_embd": 6, "identities": ("y", "z"), "name": "tiny.gguf"}
    random_heads(target="z").check_target(**mine)  # type: ignore[arg-type]
    random_heads(target="").check_target(**{**mine, "identities": ()})  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match=message):
        random_heads(target="z").check_target(**{**mine, **change})  # type: ignore[arg-type]


def test_recipes_are_objects_or_text() -> None:
    assert described(json.dumps({"tokens": 3})) == {"tokens": 3}
    assert described("by hand") == "by hand"
    assert described("[1]") == "[1]"
