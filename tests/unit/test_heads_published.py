"""Published checkpoints of Medusa heads: safetensors or PyTorch's, converted or refused in a line."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgespec.errors import BadRequestError, ModelLoadError, ModelNotFoundError
from edgespec.heads.medusa import Facts, MedusaHeads
from edgespec.heads.published import read_published
from table_heads import equal, random_heads


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
