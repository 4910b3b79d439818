"""The examples of docs/clients.md: what runs in tests is what stands there, but for address and model."""

from __future__ import annotations

import re
from pathlib import Path

from running_server import MODEL, Running

_PAGE = (Path(__file__).parents[1] / "docs" / "clients.md").read_text("utf-8")
_SPECIAL = ("tools=", "embeddings.create")  # of examples that need a certain model


def blocks(language: str) -> list[str]:
    """All in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)


def examples(having: str | None = None) -> list[str]:
    """Of Python: those that any model that chats can run, or those that need what is named."""
    if having is not None:
        return [text for text in blocks("python") if having in text]
    return [text for text in blocks("python") if not any(word in text for word in _SPECIAL)]


def here(text: str, served: Running) -> str:
    """An example for a server of the tests."""
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{served.port}").replace("qwen2.5-coder-1.5b", MODEL)


def run_example(text: str, served: Running) -> None:
    exec(compile(here(text, served), "docs/clients.md", "exec"), {"__name__": "example"})
