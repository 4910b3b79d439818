"""A conversation as a file: Markdown, or JSON by the file's ending."""

from __future__ import annotations

from errno import EISDIR
from pathlib import Path

from ..chat_session import ChatSession
from ..errors import BadRequestError
from ..paths import user_path, write_whole
from .labels import line


def target(name: str, conversation: int) -> Path:
    """Where to write; without a name, a new file in this folder."""
    path = user_path(name or f"chat-{conversation}.md").absolute()
    number = 1
    while not name and path.exists():
        number += 1
        path = path.with_name(f"chat-{conversation}-{number}.md")
    return path


def rendered(session: ChatSession, path: Path) -> str:
    """What is written. Raises BadRequestError where there is no conversation yet."""
    conversation = session.conversation
    if conversation is None:
        raise BadRequestError("there is nothing to export yet; write a message first")
    if path.suffix.lower() == ".json":
        return session.history.export_json([conversation.id])
    return session.history.export_markdown([conversation.id])


def write(path: Path, text: str) -> None:
    """Raises BadRequestError where there can be no such file: a folder, a name that is none, a disk that is full."""
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        write_whole(path, text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadRequestError(f"{line(str(path), 120)} cannot be written: {why}; give another name") from error
