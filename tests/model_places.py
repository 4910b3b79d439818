"""A person's folders of models, empty, for one test: ours, the Hub cache, LM Studio's and llama.cpp's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """own: EdgeSpec's models.  hub: the Hub cache.  studio, llama_cpp: other programs' models.  env: what says so."""

    own: Path
    hub: Path
    studio: Path
    llama_cpp: Path
    env: dict[str, str]


def make_places(root: Path) -> Places:
    """All four below `root`, made."""
    home, cache = root / "home", root / "cache"
    env = {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "EDGESPEC_HOME": str(root / "edgespec"),
        "HF_HUB_CACHE": str(root / "hub"),
        "LLAMA_CACHE": str(cache),
        "XDG_CACHE_HOME": str(root / "xdg"),
    }
    places = Places(root / "edgespec" / "models", root / "hub", home / ".lmstudio" / "models", cache, env)
    for folder in (places.own, places.hub, places.studio, places.llama_cpp):
        folder.mkdir(parents=True)
    return places


def put_in_hub(places: Places, repo: str, files: dict[str, bytes], commit: str = "a" * 40) -> Path:
    """Files of a repository as other programs store them: bytes in blobs, links in a snapshot. Returns the snapshot."""
    folder = places.hub / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    for name, content in files.items():
        blob = folder / "blobs" / f"{hash(content) & 0xFFFFFFFF:08x}"
        blob.write_bytes(content)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(*[".."] * (len(link.relative_to(folder).parts) - 1), "blobs", blob.name))
    return snapshot
