"""Text from files, paths and other programs, made fit for a one-line message."""

from __future__ import annotations

import os


def quoted(text: str | bytes | os.PathLike[str], limit: int = 200) -> str:
    """`text` in quotes on one line: unprintable characters replaced, cut to `limit` characters in the middle."""
    return f"'{one_line(text, limit)}'"


def one_line(text: str | bytes | os.PathLike[str], limit: int = 200) -> str:
    """`text` on one line: blanks joined, unprintable characters replaced, cut to `limit` characters in the middle."""
    if isinstance(text, bytes):
        plain = text[: 4 * limit].decode("utf-8", "replace")
    elif isinstance(text, str):
        plain = text
    else:
        plain = os.fspath(text)
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(plain.split()))
    if len(plain) > limit:
        half = (limit - 3) // 2
        plain = plain[:half] + "..." + plain[-half:]
    return plain
