"""The models among the files of a repository, and the one that a name means. Pure: no disk, no network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ModelNotFoundError
from .hub_name import DEFAULT_QUANT, HubName
from .quoting import one_line, quoted

_LISTED = 30  # names in one message

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])(?P<ud>UD-)?"
    r"(?P<quant>I?Q[1-8](?:_(?:K|M|S|L|XL|XS|XXS|NL|[0-9]))*|TQ[12]_0|B?F16|F32|[FB]P16|FP32|MXFP4(?:_MOE)?|NVFP4)"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
# GGUFs that are parts of a model's tools, not models: image projectors and calibration data.
_NO_MODEL = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix)(?:[-._]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RepoFile:
    """path: inside the repository, with "/".  size: bytes, None where it is not known."""

    path: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class RepoModel:
    """A model: one file, or the parts of a split one in order. quant: as its name says it, None if it does not."""

    quant: str | None
    parts: tuple[RepoFile, ...]

    @property
    def size(self) -> int | None:
        """Bytes of all parts, None where one of them is not known."""
        sizes = [part.size for part in self.parts if part.size is not None]
        return sum(sizes) if len(sizes) == len(self.parts) else None


def models_of(files: Iterable[RepoFile]) -> tuple[RepoModel, ...]:
    """The whole models among the files, by path. A split model that lacks a part is none."""
    known = {file.path: file for file in files if file.path.lower().endswith(".gguf")}
    found: list[RepoModel] = []
    for path in sorted(known):
        names = part_paths(path)
        if path == names[0] and not _NO_MODEL.search(path) and all(name in known for name in names):
            found.append(RepoModel(quant_of(path), tuple(known[name] for name in names)))
    return tuple(found)


def part_paths(path: str) -> tuple[str, ...]:
    """The paths of all parts, of the model that the file at `path` is one part of; only itself if it is not split."""
    match = _SPLIT.fullmatch(path)
    count = int(match["count"]) if match else 1
    if match is None or not 1 <= int(match["no"]) <= count <= 1000:
        return (path,)
    end = path[match.end("no") :]
    return tuple(f"{match['stem']}-{no:05d}{end}" for no in range(1, count + 1))


def quant_of(path: str) -> str | None:
    """The quantization that a path names, in capitals, with Unsloth's UD- in front if it has that."""
    match = _SPLIT.fullmatch(path)
    stem = match["stem"] if match else path[: -len(".gguf")]
    found = list(_QUANT.finditer(stem))
    return (found[-1]["ud"] or "").upper() + found[-1]["quant"].upper() if found else None


def choose(models: tuple[RepoModel, ...], name: HubName) -> RepoModel:
    """The model that `name` means, of those there are. Raises ModelNotFoundError, which lists them."""
    if not models:
        raise ModelNotFoundError(
            f"{name.repo_id} has no GGUF model at revision {quoted(name.revision)};"
            " look for a repository whose name ends in -GGUF"
        )
    if name.file is not None:
        chosen = [model for model in models if name.file in [part.path for part in model.parts]]
    elif name.quant is not None:
        chosen = _of_quant(models, name.quant)
    else:
        chosen = _of_quant(models, DEFAULT_QUANT) or (list(models) if len(models) == 1 else [])
    if len(chosen) == 1:
        return chosen[0]
    asked = name.file or name.quant or DEFAULT_QUANT
    if chosen:
        files = _listed(model.parts[0].path for model in chosen)
        raise ModelNotFoundError(
            f"{name.repo_id} has several models that {quoted(asked)} fits: {files}; name one file, as in"
            f" hf:{name.repo_id}/{one_line(chosen[0].parts[0].path, 80)}"
        )
    there = _listed(model.quant or model.parts[0].path for model in models)
    raise ModelNotFoundError(f"{name.repo_id} has no {quoted(asked)}; it has {there}: name one of these")


def _of_quant(models: tuple[RepoModel, ...], quant: str) -> list[RepoModel]:
    """By the quantization, exactly; else without UD-; else by any word of the path."""
    wanted = quant.upper()
    exact = [model for model in models if model.quant == wanted]
    if exact:
        return exact
    alike = [model for model in models if model.quant == f"UD-{wanted}"]
    if alike:
        return alike
    word = re.compile(rf"(?<![A-Z0-9]){re.escape(wanted)}(?![A-Z0-9_])")
    return [model for model in models if word.search(model.parts[0].path.upper())]


def _listed(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    shown = ", ".join(one_line(name, 80) for name in every[:_LISTED])
    return shown + (f" and {len(every) - _LISTED} more" if len(every) > _LISTED else "")
