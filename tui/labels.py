"""Short texts for the screen, made of texts that nobody vouches for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePath

from rich.cells import cell_len

from ..errors import BadRequestError, ContextFullError, EngineError, QueueFullError, ServerError
from ..history import Message
from ..text import sanitize

_ENDS = {
    "cancelled": "stopped",
    "length": "cut off: the limit of tokens or the context ended it",
    "error": "broke off",
    None: "interrupted",
}


def line(text: str, most: int = 200) -> str:
    """`text` on one line, at most so many characters, nothing in it that a terminal would act on."""
    flat = " ".join(sanitize(text[: 4 * most]).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def fitted(text: str, cells: int) -> str:
    """As `line`, no wider than so many cells of a terminal."""
    flat = line(text, cells)
    if cell_len(flat) <= cells:
        return flat
    while flat and cell_len(flat) >= cells:
        flat = flat[:-1]
    return f"{flat}…"


def model_name(model: str, most: int = 60) -> str:
    """A file's name without its folder and ending."""
    return line(PurePath(model).name.removesuffix(".gguf"), most)


def byte_size(count: int) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if unit == "GB" else f"{count / size:.0f} {unit}"
    return f"{count} bytes"


def ending(message: Message) -> str:
    """Why an answer ended, where that was not by itself."""
    return _ENDS.get(message.finish_reason, "") if message.role == "assistant" else ""


def when(moment: datetime, now: datetime | None = None) -> str:
    """How long ago, in a few characters."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for size, name in ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {name}"
    return "now"


def whole_number(text: str, what: str) -> int:
    """The whole number that was typed. Raises BadRequestError: it is not `what`."""
    try:
        return int(text)
    except ValueError:
        raise BadRequestError(f"{line(text, 40)!r} is not {what}; give a whole number") from None


def trouble(error: BaseException) -> str:
    """An error, and what to do now."""
    if isinstance(error, ContextFullError):
        return (
            f"The context is full: this chat needs {error.needed:,} tokens and there is room for {error.available:,}. "
            "Nothing was dropped. /new begins another chat; editing an earlier message goes on with a shorter one."
        )
    if isinstance(error, ServerError):
        return f"{str(error).rstrip('.')}. What came is kept, and your chat is saved. Ctrl+R asks again."
    if isinstance(error, EngineError) and not isinstance(error, QueueFullError):
        return f"{str(error).rstrip('.')}. Your chat is saved. Ctrl+R asks again, with a new engine."
    return str(error)
