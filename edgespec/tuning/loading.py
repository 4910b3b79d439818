"""Loads the models that are tuned: the files themselves, one request at a time, a short context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgespec.models.header import read_header

from ..api import LLM
from ..llama import supports_gpu_offload
from ..loading import load
from ..tuned import Role

_CONTEXT = 2048  # tokens: more than the texts need; times behind a short text do not depend on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """As in load(): what is left out is what is fastest for the form at hand."""

    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    kv_type: str = "f16"
    buffers: Literal["auto", "repack", "none"] | None = None
    flash_attn: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, slots=True)
class Models:
    """What is tuned. draft: None without one."""

    target: Path
    draft: Path | None
    settings: Settings

    def together(self, announce: Callable[[str], None]) -> LLM:
        """The target with its draft, if any: raises as load() does where they do not fit."""
        return self._load(self.target, self.draft, "target", announce)

    def alone(self, path: Path, role: Role, announce: Callable[[str], None]) -> LLM:
        """One file, as it would be loaded for a role; it is the target of what is returned."""
        return self._load(path, None, role, announce)

    def on_gpu(self, role: Role) -> bool:
        """Do layers of this role go to a GPU?"""
        return supports_gpu_offload() and self._layers(role) != 0

    def _layers(self, role: Role) -> int | None:
        own = self.settings.draft_gpu_layers if role == "draft" else None
        return self.settings.gpu_layers if own is None else own

    def _load(self, path: Path, draft: Path | None, role: Role, announce: Callable[[str], None]) -> LLM:
        trained = read_header(path).context_length or _CONTEXT
        return load(
            path,
            draft=draft,
            drafter="none" if draft is None else "model",
            ctx_size=min(trained, _CONTEXT),
            threads=self.settings.threads,
            gpu_layers=self._layers(role),
            draft_gpu_layers=self._layers("draft"),
            kv_type=self.settings.kv_type,
            buffers=self.settings.buffers,
            flash_attn=self.settings.flash_attn,
            parallel=1,
            tuned=False,
            announce=announce,
        )
