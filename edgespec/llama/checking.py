"""What may be scored in one decode: llama.cpp aborts, or returns a bare -1, on what is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import BadRequestError, ContextFullError
from ..scoring import ScoreRequest, common_prefix

if TYPE_CHECKING:
    from .context import Context


def check(requests: Sequence[ScoreRequest], context: Context) -> None:
    """Raises BadRequestError, ContextFullError."""
    size = context.vocab.size
    for r in requests:
        if not r.tokens:
            raise BadRequestError("nothing to score: a sequence needs at least one token")
        new = r.tokens[common_prefix(r.sequence.cached, r.tokens) :]  # what is cached was checked before
        for token in (*new, *r.drafted):
            if not 0 <= token < size:
                context.vocab.check(token)
        if len(r.tokens) + len(r.drafted) > context.n_ctx:
            raise ContextFullError(
                f"{len(r.tokens) + len(r.drafted)} tokens do not fit the context of {context.n_ctx}; "
                "shorten the text or raise --ctx-size",
                needed=len(r.tokens) + len(r.drafted),
                available=context.n_ctx,
            )
    width = sum(r.width for r in requests)
    if width > context.max_width:
        raise BadRequestError(f"{width} rows asked for in one decode; this context gives {context.max_width}")
    if len({id(r.sequence) for r in requests}) < len(requests):
        raise BadRequestError("one sequence is asked for twice in one decode; give each request its own")
    if len(requests) > context.max_sequences:
        raise BadRequestError(f"{len(requests)} sequences in one decode; this context takes {context.max_sequences}")
