"""What an engine does for a request of embeddings."""

from __future__ import annotations

from collections.abc import Callable

from ..api import LLM
from .jobs import Job
from .protocol import Embedded


def embedded(llm: LLM, job: Job, moved: Callable[[], None]) -> Embedded:
    """Embeddings of a job's inputs, in their order. moved: called after each. Raises as Embedder does."""
    assert job.embed is not None
    embedder = llm.embedder
    found = [embedder.ids(one) if isinstance(one, str) else one for one in job.embed.inputs]
    for ids in found:
        embedder.check(ids)
    vectors = []
    for ids in found:
        job.check()
        vectors.append(embedder.embed(ids, job.cancelled).tobytes())
        moved()
    return Embedded(tuple(vectors), sum(map(len, found)))
