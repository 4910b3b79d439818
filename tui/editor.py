"""A message written in the user's own editor."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from textual.app import App, SuspendNotSupported

from ..errors import BadRequestError

_USUAL = ("nano", "vi") if os.name != "nt" else ("notepad",)


def command() -> list[str]:
    """$VISUAL, else $EDITOR, else what most machines have."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if chosen.strip():
        return shlex.split(chosen, posix=os.name != "nt")
    import shutil

    return [next((name for name in _USUAL if shutil.which(name)), _USUAL[-1])]


async def edited(app: App[object], text: str) -> str | None:
    """`text` as it was saved; None where the editor failed. Raises BadRequestError where there is none to run."""
    handle, name = tempfile.mkstemp(prefix="edgespec-", suffix=".md", text=True)
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            with app.suspend():
                done = subprocess.run([*command(), name], check=False)  # the screen is the editor's meanwhile
        except SuspendNotSupported:
            raise BadRequestError("no editor can be opened here; write the message below") from None
        except (OSError, ValueError) as error:
            raise BadRequestError(f"the editor cannot be run: {error}; set $EDITOR to one that is installed") from error
        if done.returncode:
            raise BadRequestError(f"the editor ended with exit code {done.returncode}; the message stays as it was")
        return path.read_text("utf-8", "replace").removesuffix("\n")
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
