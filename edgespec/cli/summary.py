"""One line of statistics for people."""

from __future__ import annotations

from ..reply import Reply


def summary(reply: Reply) -> str:
    """Tokens, speed, and what speculation did: "84 tokens, 31.2 tokens/s, 1.84 tokens per target step, ..."."""
    stats = reply.stats
    parts = [f"{stats.completion_tokens} token{'' if stats.completion_tokens == 1 else 's'}"]
    if stats.tokens_per_s is not None:
        parts.append(f"{stats.tokens_per_s:.1f} tokens/s")
    if stats.mode == "speculative" and stats.tau is not None and stats.acceptance is not None:
        parts.append(f"{stats.tau:.2f} tokens per target step")
        for name, source in stats.sources.items():
            parts.append(f"{name}: {source.accepted} of {source.drafted} drafted tokens accepted")
    else:
        parts.append(f"plain: {stats.why}")
    if reply.seed is not None:
        parts.append(f"seed {reply.seed}")
    if reply.finish_reason == "length":
        parts.append("stopped at the length limit")
    elif reply.finish_reason == "cancelled":
        parts.append("interrupted")
    return f"[{reply.model}] " + ", ".join(parts)
