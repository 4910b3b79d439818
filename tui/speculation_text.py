"""What speculation did, as lines of text: pure functions of counts and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..history import ReplyDetails
from ..stats import GenerationStats, RoundEvent
from .sources import SOURCES, look

_LEVELS = "▁▂▃▄▅▆▇█"
_PLAIN_ROUND = "·"
_PARTS = (("draft", "█"), ("verify", "▒"), ("other", "░"))  # of a round's time, and what the bar is made of


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals of a reply. speedup: measured, None where it was not.  why: why nothing is guessed, or empty."""

    stats: GenerationStats
    speedup: float | None = None
    why: str = ""


def figures_of(details: ReplyDetails) -> Figures:
    """Of an old reply, from its rounds and from what was kept of its totals."""
    totals = GenerationStats()
    for event in details.rounds:
        totals.record(event)
    kept = (details.result or {}).get("stats", {})
    return Figures(totals, kept.get("speedup_vs_plain", totals.speedup_vs_plain), kept.get("why", ""))


def describe(details: ReplyDetails, width: int = 60) -> list[str]:
    """All of it as lines of plain text."""
    figures, rounds = figures_of(details), details.rounds
    lines = [summary(figures), accepted_line(rounds, width), sparkline(rounds, width)]
    lines += ["Milliseconds per round", *time_bar(figures.stats, width)]
    lines += [f"{name:<14}{n:>7}{guesses:>9}{right:>7}" for name, n, guesses, right in source_table(figures.stats)]
    return [line for line in (*lines, speedup_line(figures), why_line(figures)) if line]


def seen_sources(rounds: Sequence[RoundEvent]) -> list[str]:
    """Names of the sources that tokens of these rounds came from, in the table's order."""
    found = {r.source for r in rounds} | {"target"}
    found |= {"bonus" for r in rounds if r.k and r.accepted == r.k}
    return [name for name in (*SOURCES, *sorted(found - set(SOURCES))) if name in found]


def summary(figures: Figures) -> str:
    """One line for people who do not care how it works."""
    stats = figures.stats
    why = _named(figures.why)
    if not stats.rounds:
        return f"{why[0].upper()}{why[1:]}." if why else "Nothing has been generated yet."
    if not stats.drafted:
        return f"Plain speed: {why or 'nothing was guessed so far'}."
    share = f"{100 * stats.accepted / stats.produced:.0f}% of tokens were guessed right"
    if figures.speedup is None:
        return f"{share}; speed-up not measured yet."
    if figures.speedup < 1:
        return f"{figures.speedup:.2f}x plain speed here, slower; {share}."
    return f"{figures.speedup:.1f}x faster than plain here; {share}."


def speedup_line(figures: Figures) -> str:
    """The measurement behind it."""
    plain = figures.stats.plain_rounds
    if figures.speedup is None:
        missing = "nothing was guessed" if not figures.stats.drafted else f"{plain} plain rounds to compare with so far"
        return f"Speed-up over plain: not measured yet ({missing})"
    return f"Speed-up over plain: {figures.speedup:.2f}x, measured on {plain} plain rounds of this reply"


def why_line(figures: Figures) -> str:
    """Why nothing was guessed, or not any more in the end; empty where there is no reason, or summary() says it."""
    why = _named(figures.why)
    if not why or not figures.stats.rounds:
        return ""
    if figures.stats.drafted:
        return f"In the end: {why}"
    return why if "off" in why else f"Nothing was guessed: {why}"


def _named(why: str) -> str:
    """The same with the source's name as it stands everywhere on the screen."""
    source, off, rest = why.partition(" off: ")
    return f"{SOURCES[source].name}{off}{rest}" if off and source in SOURCES else why


def sparkline(rounds: Sequence[RoundEvent], width: int) -> str:
    """Accepted guesses per round, the latest `width` rounds; a dot is a round without a guess."""
    latest = rounds[-max(1, width) :]
    most = max((r.accepted for r in latest), default=0)
    return "".join(
        _LEVELS[round(r.accepted / max(1, most) * (len(_LEVELS) - 1))] if r.k else _PLAIN_ROUND for r in latest
    )


def accepted_line(rounds: Sequence[RoundEvent], width: int) -> str:
    """What the sparkline shows, in numbers."""
    latest = [r for r in rounds[-max(1, width) :] if r.k]
    if not latest:
        return "Accepted a round: no guesses yet"
    mean, guessed = sum(r.accepted for r in latest) / len(latest), sum(r.k for r in latest) / len(latest)
    return f"Accepted a round: {mean:.1f} of {guessed:.1f}, top {max(r.accepted for r in latest)}"


def time_bar(stats: GenerationStats, width: int) -> tuple[str, str]:
    """(bar of `width` cells, its legend in ms per round): draft, verify, other."""
    other = stats.decode_ms - stats.draft_ms - stats.verify_ms
    times = (stats.draft_ms, stats.verify_ms, max(0.0, other))
    total = sum(times)
    if not stats.rounds or total <= 0:
        return "", "none yet"
    ends = [round(width * sum(times[: i + 1]) / total) for i in range(len(times))]
    bar = "".join(glyph * (end - start) for (_, glyph), start, end in zip(_PARTS, [0, *ends[:-1]], ends, strict=True))
    named = zip(_PARTS, times, strict=True)
    return bar, " ".join(f"{glyph} {name} {ms / stats.rounds:.1f}" for (name, glyph), ms in named)


def source_table(stats: GenerationStats) -> list[tuple[str, str, str, str]]:
    """Heading and a row by source: name, rounds, guesses, accepted; then the rounds without a guess."""
    rows = [("Source", "rounds", "guesses", "right")]
    for name, source in stats.sources.items():
        row = look(name)
        share = f"{100 * source.accepted / source.drafted:.0f}%" if source.drafted else "-"
        rows.append((f"{row.glyph or ' '} {row.name}", str(source.rounds), str(source.drafted), share))
    if stats.plain_rounds:
        rows.append(("  plain", str(stats.plain_rounds), "-", "-"))
    return rows
