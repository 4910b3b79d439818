"""The edgespec command, its models scripted ones in the real process: `python scripted_program.py chat -m echo ...`."""

from __future__ import annotations

from pathlib import Path

from edgespec.cli import main
from edgespec.engine import client
from edgespec.models import names

_resolve = names.resolve


def resolve(name: str | None) -> Path:
    """Names of scripted models are files that are there."""
    return Path(name) if name is not None and name.startswith("scripted:") else _resolve(name)


if __name__ == "__main__":
    names.resolve = resolve
    client.WorkerEngine.__init__.__kwdefaults__["loader"] = "edgespec.engine.scripted:load"  # type: ignore[index]
    main()
