"""A conversation as a file: Markdown, or JSON by the file's ending."""

from __future__ import annotations

from pathlib import Path

from ..chat_session import ChatSession
from ..errors import BadRequestError
from ..paths import user_path


def target(name: str, conversation: int) -> Path:
    """Where to write; without a name, a new file in this folder. Raises BadRequestError where that is a folder."""
    path = user_path(name or f"chat-{conversation}.md").absolute()
    number = 1
    while not name and path.exists():
        number += 1
        path = path.with_name(f"chat-{conversation}-{number}.md")
    if path.is_dir():
        raise BadRequestError(f"{path} is a folder; give the name of a file")
    return path


def rendered(session: ChatSession, path: Path) -> str:
    """What is written. Raises BadRequestError where there is no conversation yet."""
    conversation = session.conversation
    if conversation is None:
        raise BadRequestError("there is nothing to export yet; write a message first")
    if path.suffix.lower() == ".json":
        return session.history.export_json([conversation.id])
    return session.history.export_markdown([conversation.id])
