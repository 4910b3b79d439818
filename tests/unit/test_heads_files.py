"""Files of heads: what is written is read back, what is wrong with one is said in a line, published ones convert."""

from __future__ import annotations

import json
import sys
import tomllib
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from edgespec.errors import BadRequestError, EdgeSpecError, ModelLoadError, ModelNotFoundError
from edgespec.heads import registry
from edgespec.heads.medusa import Facts, MedusaHeads
from edgespec.heads.published import read_published
from edgespec.heads.registry import AUTO, NONE, heads_file, register, registered
from edgespec.heads.sequential import SequentialHeads
from edgespec.heads.storage import Heads, described, read_facts, read_heads, write_heads
from edgespec.models.header import read_header
from edgespec.models.identity import file_identity
from table_heads import random_heads, random_sequential

Change = Callable[[dict[str, Any], dict[str, str]], None]


def equal(a: MedusaHeads, b: MedusaHeads, tolerance: float = 0.0) -> bool:
    ours = [*a.projections, *(part for blocks in a.blocks for block in blocks for part in (block.weight, block.bias))]
    theirs = [*b.projections, *(part for blocks in b.blocks for block in blocks for part in (block.weight, block.bias))]
    return (
        a.facts == b.facts
        and np.array_equal(a.ids, b.ids)
        and len(ours) == len(theirs)
        and all(np.allclose(x, y, rtol=tolerance, atol=tolerance) for x, y in zip(ours, theirs, strict=True))
    )


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


# ---- which heads belong to which file -----------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_registered_heads_are_found_by_the_files_content(
    home: Path, tiny: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    header, other = read_header(tiny()), read_header(tiny(seed=3))
    path = tmp_path / "heads.safetensors"
    assert registered(header) is None
    register(file_identity(header), path)
    assert registered(header) is None  # named, but not there
    assert "are gone" in caplog.text
    write_heads(random_heads(), path)
    assert registered(header) == heads_file(AUTO, header) == path
    assert registered(other) is None
    assert heads_file(NONE, header) is None
    assert heads_file(str(path), other) == path
    with pytest.raises(ModelNotFoundError, match="no file nowhere with heads"):
        heads_file("nowhere", header)
    copy = tmp_path / "renamed.gguf"
    copy.write_bytes(tiny().read_bytes())
    assert registered(read_header(copy)) == path
    for record in (home / "heads").iterdir():
        for text in ("", "[]", '{"medusa": 5}', "\x00"):
            record.write_text(text)
            assert registered(header) is None
            assert "is damaged" in caplog.text


def test_shipped_heads_are_found_where_none_are_registered(
    home: Path, tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_SHIPPED", tmp_path)
    header = read_header(tiny())
    identity = file_identity(header)
    assert registered(header) is None
    write_heads(random_sequential(), tmp_path / f"{identity[:32]}.safetensors")
    assert registered(header) == heads_file(AUTO, header) == tmp_path / f"{identity[:32]}.safetensors"
    assert heads_file(NONE, header) is None
    assert registered(read_header(tiny(seed=3))) is None
    write_heads(random_heads(), tmp_path / "own.safetensors")
    register(identity, tmp_path / "own.safetensors")
    assert registered(header) == tmp_path / "own.safetensors"


def test_every_shipped_file_goes_into_the_package_and_is_whole() -> None:
    """Each is named after the file that it was made for, small, and with a line on the card beside it."""
    root = Path(__file__).parents[2]
    folder, build = root / "models" / "heads", tomllib.loads((root / "pyproject.toml").read_text())
    patterns = build["tool"]["setuptools"]["package-data"]["edgespec.models"]
    files = [path for path in folder.iterdir() if path.is_file()]
    assert all(any(path.match(pattern) for pattern in patterns) for path in files)
    found = [path for path in files if path.suffix == ".safetensors"]
    assert found
    for path in found:
        heads = read_heads(path)
        assert path.stem == heads.facts.target[:32]
        assert path.stat().st_size <= 12_000_000
        assert path.name in (folder / "README.md").read_text("utf-8")


# ---- published checkpoints ----------------------------------------------------------------------------------------


def published(heads: MedusaHeads, prefix: str = "") -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """The tensors of a checkpoint in Medusa's own naming."""
    tensors = {}
    for k, (blocks, projection) in enumerate(zip(heads.blocks, heads.projections, strict=True)):
        for j, block in enumerate(blocks):
            tensors[f"{prefix}{k}.{j}.linear.weight"] = block.weight
            tensors[f"{prefix}{k}.{j}.linear.bias"] = block.bias
        tensors[f"{prefix}{k}.{len(blocks)}.weight"] = projection
    return tensors


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_published_checkpoint_converts(tmp_path: Path, depth: int, kind: Any) -> None:
    heads = random_heads(20, 8, count=5, depth=depth)
    tensors = {name: value.astype(kind) for name, value in published(heads, "medusa_head.").items()}
    (tmp_path / "folder").mkdir()
    save_file({**tensors, "model.norm.weight": np.ones(8)}, tmp_path / "folder" / "medusa_lm_head.safetensors")
    for path in (tmp_path / "folder", tmp_path / "folder" / "medusa_lm_head.safetensors"):
        got = read_published(path, target="id", target_name="table")
        facts = Facts(20, 8, "id", "table", recipe="converted from medusa_lm_head.safetensors")
        expected = MedusaHeads(facts, heads.ids, heads.blocks, heads.projections)
        assert equal(got, expected, 2e-3 if kind == np.float16 else 0.0)


def test_bfloat16_is_read(tmp_path: Path) -> None:
    from safetensors import TensorSpec, serialize_file

    heads = random_heads(10, 8, count=1)
    data = {n: (v.view(np.uint32) >> 16).astype(np.uint16) for n, v in published(heads).items()}
    specs = {
        n: TensorSpec(dtype="bfloat16", shape=list(v.shape), data_ptr=v.ctypes.data, data_len=v.nbytes)
        for n, v in data.items()
    }
    serialize_file(specs, tmp_path / "a.safetensors")
    got = read_published(tmp_path / "a.safetensors")
    assert np.allclose(got.projections[0], heads.projections[0], rtol=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.clear(), "has no Medusa heads"),
        (lambda t: t.pop("1.0.linear.bias"), "lacks 1.0.linear.weight or .bias"),
        (lambda t: t.pop("1.1.weight"), "lacks the output matrix 1.0.weight"),
        (lambda t: [t.pop(n) for n in list(t) if n.startswith("0.")], r"heads \[1, 2\]; they must count from 0"),
        (lambda t: t.update({"2.1.weight": np.zeros((9, 8), np.float32)}), r"a projection has shape \(9, 8\)"),
        (lambda t: t.update({"2.1.weight": np.zeros((10, 8), np.int64)}), "is of type I64"),
        (lambda t: t.update({"2.1.weight": np.full((10, 8), np.nan, np.float32)}), "not finite"),
        (lambda t: t.update({"0.1.weight": np.zeros(8, np.float32)}), "lacks the output matrix 0.1.weight"),
    ],
)  # fmt: skip
def test_a_wrong_checkpoint_is_refused_in_one_line(tmp_path: Path, change: Any, message: str) -> None:
    tensors = published(random_heads(10, 8))
    change(tensors)
    save_file({**tensors, "other": np.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ModelLoadError, match=message) as raised:
        read_published(tmp_path / "a.safetensors")
    assert "\n" not in str(raised.value)


def test_places_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="has neither medusa_lm_head"):
        read_published(tmp_path)
    with pytest.raises(ModelNotFoundError, match="no file or folder"):
        read_published(tmp_path / "none")
    (tmp_path / "a.safetensors").write_bytes(b"no")
    with pytest.raises(ModelLoadError, match="no whole safetensors file"):
        read_published(tmp_path / "a.safetensors")


class _Tensor:
    """What is used of torch.Tensor."""

    def __init__(self, values: np.ndarray) -> None:  # type: ignore[type-arg]
        self.values = values

    def float(self) -> _Tensor:
        return _Tensor(self.values.astype(np.float32))

    def numpy(self) -> np.ndarray:  # type: ignore[type-arg]
        return self.values


def test_a_pt_file_needs_torch_and_is_read_as_tensors_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "medusa_lm_head.pt"
    file.write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadRequestError, match="install torch to read it, or give a"):
        read_published(tmp_path)
    heads = random_heads(10, 8)
    held: Any = {name: _Tensor(value) for name, value in published(heads).items()} | {"step": 3}
    asked: list[dict[str, Any]] = []
    torch = types.ModuleType("torch")
    torch.Tensor = _Tensor  # type: ignore[attr-defined]
    torch.load = lambda path, **options: (asked.append(options), held)[1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert np.array_equal(read_published(tmp_path).projections[2], heads.projections[2])
    assert asked == [{"map_location": "cpu", "weights_only": True}]
    held = [1]
    with pytest.raises(ModelLoadError, match="holds no tensors by name"):
        read_published(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Weights only load failed:\nsomething else was in it")

    torch.load = refuse  # type: ignore[attr-defined]
    with pytest.raises(ModelLoadError, match="as tensors alone") as raised:
        read_published(tmp_path)
    assert "\n" not in str(raised.value)


def test_recipes_are_objects_or_text() -> None:
    assert described(json.dumps({"tokens": 3})) == {"tokens": 3}
    assert described("by hand") == "by hand"
    assert described("[1]") == "[1]"
