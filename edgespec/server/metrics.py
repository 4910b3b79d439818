"""GET /metrics: what the server has done, in Prometheus' text form."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

import psutil

from ..engine.protocol import EngineState
from ..reply import Reply
from ..stats import GenerationStats, SourceStats

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]


class Metrics:
    """Counts since the server began."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, int]] = Counter()
        self._firsts, self._first_s = 0, 0.0
        self._reused = 0
        self._all = GenerationStats()  # of all requests together
        self._alone = GenerationStats()  # of those that shared no round: what these took says how fast one is

    def answered(self, endpoint: str, status: int) -> None:
        """A request has had its answer; 499: its client was gone before."""
        self._answers[endpoint, status] += 1

    def first_token(self, begin: float) -> None:
        """A request that came at time.monotonic() `begin` has its first token now; 0: it had it before."""
        if begin:
            self._firsts += 1
            self._first_s += time.monotonic() - begin

    def generated(self, reply: Reply, reused: int) -> None:
        """Add a finished generation. reused: tokens of its prompt that were in the cache."""
        new, total = reply.stats, self._all
        self._reused += reused
        for sums in (total, self._alone)[: 1 if new.shared_rounds else 2]:
            for name in _SUMS:
                setattr(sums, name, getattr(sums, name) + getattr(new, name))
        for source, counts in new.sources.items():
            known = total.sources.setdefault(source, SourceStats())
            known.rounds += counts.rounds
            known.drafted += counts.drafted
            known.accepted += counts.accepted

    def text(self, state: EngineState | None, *, running: int, waiting: int) -> str:
        """All of it. running, waiting: requests now."""
        total, sources = self._all, self._all.sources
        rss: list[Sample] = [({"process": "server"}, psutil.Process().memory_info().rss)]
        if state is not None:
            rss.append(({"process": "engine"}, state.rss_bytes))
        speedup = self._alone.speedup_vs_plain
        answers = [({"endpoint": e, "status": str(s)}, n) for (e, s), n in sorted(self._answers.items())]
        rows: tuple[tuple[str, str, str, Iterable[Sample]], ...] = (
            ("requests_total", "counter", "Requests answered, by status; 499: the client left.", answers),
            ("requests_running", "gauge", "Requests given to the engine.", _one(running)),
            ("requests_waiting", "gauge", "Requests whose turn has not come.", _one(waiting)),
            ("prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.", _one(total.prompt_tokens)),
            ("prompt_tokens_cached_total", "counter", "Tokens of prompts found in the cache.", _one(self._reused)),
            ("completion_tokens_total", "counter", "Tokens generated.", _one(total.completion_tokens)),
            ("rounds_total", "counter", "Decodes of the target that verified a draft or made a token.",
             _one(total.rounds)),
            ("drafted_tokens_total", "counter", "Tokens drafted, by source.",
             [({"source": name}, counts.drafted) for name, counts in sorted(sources.items())]),
            ("accepted_tokens_total", "counter", "Drafted tokens accepted, by source.",
             [({"source": name}, counts.accepted) for name, counts in sorted(sources.items())]),
            ("acceptance", "gauge", "Accepted share of the drafted tokens, by source.",
             [({"source": name}, c.accepted / c.drafted) for name, c in sorted(sources.items()) if c.drafted]),
            ("speedup_vs_plain", "gauge", "Measured speed of rounds over that of the plain ones among them.",
             [] if speedup is None else _one(speedup)),
            ("prompt_seconds_total", "counter", "Time spent reading prompts.", _one(total.prompt_ms / 1000)),
            ("decode_seconds_total", "counter", "Time spent in rounds.", _one(total.decode_ms / 1000)),
            ("first_token_seconds_sum", "counter", "Time from a request to its first token, together.",
             _one(self._first_s)),
            ("first_token_seconds_count", "counter", "Requests that got a token.", _one(self._firsts)),
            ("resident_memory_bytes", "gauge", "Memory, by process.", rss),
        )  # fmt: skip
        return "".join(line for row in rows for line in _lines(*row))


_SUMS = (
    "prompt_tokens", "completion_tokens", "rounds", "drafted", "accepted", "produced", "prompt_ms", "decode_ms",
    "draft_ms", "verify_ms", "plain_rounds", "plain_ms",
)  # fmt: skip


def _one(value: float) -> list[Sample]:
    return [({}, value)]


def _lines(name: str, kind: str, help: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP edgespec_{name} {help}\n# TYPE edgespec_{name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"edgespec_{name}{'{' + inside + '}' if inside else ''} {value:.17g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
