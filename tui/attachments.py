"""Text files that go with a message."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BadRequestError
from ..paths import user_path
from .labels import byte_size, line

LARGEST = 1_000_000  # bytes; no context holds more


@dataclass(frozen=True, slots=True)
class Attachment:
    """name: of the file.  text: all of it."""

    name: str
    text: str

    @property
    def label(self) -> str:
        """Name and size, for the screen."""
        return f"{line(self.name, 40)} ({byte_size(len(self.text.encode('utf-8', 'replace')))})"


def read_attachment(name: str) -> Attachment:
    """A file of this machine. Raises BadRequestError where it is none, is too large or no text."""
    path = user_path(name.strip().strip("\"'"))
    shown = line(str(path), 120)
    try:
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no such file"
            raise BadRequestError(f"{shown}: {what}; give the path of a text file")
        if path.stat().st_size > LARGEST:
            raise BadRequestError(f"{shown} is larger than {byte_size(LARGEST)}; attach the part that matters")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise BadRequestError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if b"\0" in data:
        raise BadRequestError(f"{shown} is no text; attach a text file")
    return Attachment(path.name, data.decode("utf-8", "replace"))


def with_attachments(text: str, attached: tuple[Attachment, ...]) -> str:
    """The message that is sent: each file in a fence of its own, then what was typed."""
    parts = []
    for one in attached:
        longest = max((len(run) for run in _runs(one.text)), default=2)
        fence = "`" * max(3, longest + 1)
        parts.append(f"{one.name}:\n{fence}\n{one.text.rstrip()}\n{fence}")
    return "\n\n".join([*parts, text] if text.strip() else parts)


def _runs(text: str) -> list[str]:
    """Runs of backticks."""
    runs, run = [], ""
    for char in text:
        if char == "`":
            run += char
        elif run:
            runs.append(run)
            run = ""
    return [*runs, run] if run else runs
