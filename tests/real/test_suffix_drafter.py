"""The suffix drafter where text repeats: a real model's tokens, counts only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.drafters import LookupDrafter, SuffixDrafter
from edgespec.drafting import Drafter
from edgespec.forks import first_difference
from edgespec.generation import Generation, GenerationRequest
from edgespec.llama import Context, LoadSettings, Model
from edgespec.sampling import Sampler, SamplingParams
from edgespec.workloads import edit_tasks

pytestmark = pytest.mark.real

# The edit tasks done by hand: (old, new) replacements in the task's file.
EDITS = {
    "01-inventory.py": [("low_items", "items_to_reorder"), ("is_low()]", "is_low() and item.price_cents != 0]")],
    "02-tokenizer.py": [
        ("MAX_DEPTH = 50", "MAX_DEPTH = 20"),
        ("text: str) -> None:\n", 'text: str) -> None:\n        """Consume the next token, which must be text."""\n'),
    ],
    "03-ledger.py": [("_check_open", "_require_open")],
    "04-textwrap.py": [('title="")', 'title="", fill=" ")'), ("ljust(inner)", "ljust(inner, fill)")],
    "05-lru_cache.py": [("ttl=None):\n", 'ttl=None):\n        """Store a value; ttl: seconds until it expires."""\n')],
    "06-matrix.py": [
        ("                total = 0.0\n                for k in range(inner):\n", ""),
        ("                    total += self.rows[i][k] * other.rows[k][j]\n", ""),
        ("[j] = total", "[j] = sum(self.rows[i][k] * other.rows[k][j] for k in range(inner))"),
    ],
    "07-event_bus.js": [
        ("constructor() {\n", "constructor(maxLog = MAX_LOG) {\n    this.maxLog = maxLog;\n"),
        ("length > MAX_LOG", "length > this.maxLog"),
    ],
    "08-arguments.js": [("findOption", "lookUpOption"), ("option ${flag}`", "option ${flag}; see --help`")],
    "09-ring_buffer.c": [
        ("RING_MIN_SIZE 16", "RING_MIN_SIZE 32"),
        ("    ring_free(&r);", '    printf("dropped %lu bytes\\n", r.dropped);\n    ring_free(&r);'),
    ],
    "10-worker_pool.go": [
        ("DefaultRetries = 2", "DefaultRetries = 3"),
        ("	Elapsed  time.Duration\n", "	Elapsed  time.Duration\n	Started  time.Time\n"),
        ("Name: job.Name}", "Name: job.Name, Started: start}"),
    ],
    "11-library.sql": [
        ("    email       TEXT NOT NULL UNIQUE,\n", "    email       TEXT NOT NULL UNIQUE,\n    phone       TEXT,\n"),
        ("The ten members", "The twenty members"),
        ("LIMIT 10;", "LIMIT 20;"),
    ],
    "12-deployment.toml": [("staging", "production"), ("\nworkers = 4", "\nworkers = 8"), ("_size = 10", "_size = 20")],
    "13-thermostat.py": [
        ("HYSTERESIS = 0.5", "HYSTERESIS = 0.8"),
        ("return wanted\n", "return min(wanted, MAX_TARGET)\n"),
    ],
    "14-shopping_cart.js": [
        ("  get subtotal()", "  clear() {\n    this.lines.clear();\n    this.coupon = null;\n  }\n\n  get subtotal()")
    ],
    "15-string_list.c": [("list_find", "list_index_of"), ("INITIAL_CAPACITY 8", "INITIAL_CAPACITY 16")],
    "16-rate_limit.go": [("Forget", "Sweep"), ("bucket{tokens: l.burst", "bucket{tokens: l.burst / 2")],
    "17-shipments.sql": [
        ("    receiver   TEXT NOT NULL,\n", "    receiver   TEXT NOT NULL,\n    phone      TEXT,\n"),
        ("parcel_id, receiver, ", "parcel_id, receiver, phone, "),
        ("more than three days", "more than two days"),
        ("(received) > 3", "(received) > 2"),
    ],
    "18-linter.toml": [
        ("line_length = 100", "line_length = 120"),
        ("comments]\nenabled = false", "comments]\nenabled = true"),
        ("max_arguments = 6", "max_arguments = 8"),
    ],
    "19-stopwatch.rs": [
        ("LAPS: usize = 100", "LAPS: usize = 500"),
        ('"the stopwatch is running"', '"the stopwatch is already running"'),
    ],
    "20-backup.sh": [("keep=7", "keep=14"), ('"$1"\n', '"$1" >&2\n')],
}
GREEDY = SamplingParams(temperature=0.0)


def _copies(model: Model) -> list[tuple[list[int], list[int]]]:
    """Prompt and reply of each edit task, in token ids."""
    pairs = []
    for task in edit_tasks():
        edited = task.source
        for old, new in EDITS[task.name]:
            assert old in edited, (task.name, old)
            edited = edited.replace(old, new)
        fence = task.prompt.split("```")[1].split("\n")[0]
        prompt = f"<|im_start|>user\n{task.prompt}<|im_end|>\n<|im_start|>assistant\n"
        reply = f"```{fence}\n{edited}```<|im_end|>"
        pairs.append(tuple(model.vocab.tokenize(text, special=True) for text in (prompt, reply)))
    return pairs  # type: ignore[return-value]  # two lists each


def _counts(make: Callable[[], Drafter], k: int, pairs: list[tuple[list[int], list[int]]]) -> dict[str, float]:
    """What a target that writes exactly these replies would make of the drafts."""
    sampler, rng = Sampler(GREEDY, 1 << 20), np.random.default_rng(0)
    rounds = produced = drafted = accepted = 0
    for prompt, reply in pairs:
        drafter, done = make(), 1  # the prompt pass gives the first token
        while done < len(reply):
            room = min(k, len(reply) - done - 1)
            draft = drafter.draft([*prompt, *reply[:done]], room, sampler, rng).tokens
            agreed = first_difference(draft, reply[done : done + len(draft)])
            taken = len(draft) if agreed is None else agreed
            rounds, produced = rounds + 1, produced + taken + 1
            drafted, accepted = drafted + len(draft), accepted + taken
            done += taken + 1
    return {"tau": produced / rounds, "acceptance": accepted / drafted, "drafted": drafted / rounds}


def test_copying_a_file_with_edits_suffix_accepts_more_than_lookup(starter: Path, record) -> None:
    with Model(starter, LoadSettings(n_ctx=64)) as model:
        pairs = _copies(model)
    for k in (3, 7, 15):
        lookup, suffix = _counts(LookupDrafter, k, pairs), _counts(SuffixDrafter, k, pairs)
        record(
            k=k, **{f"{name} {key}": v for name, c in (("lookup", lookup), ("suffix", suffix)) for key, v in c.items()}
        )
        assert suffix["acceptance"] > lookup["acceptance"] + 0.02
        assert suffix["tau"] > 0.97 * lookup["tau"]  # at K = 15 it drafts fewer tokens, not as far


def _run(context: Context, prompt: tuple[int, ...], k: int, drafter: Drafter | None) -> Generation:
    request = GenerationRequest(prompt=prompt, params=GREEDY, max_tokens=60, draft_max=k)
    generation = Generation(context, request, drafter)
    list(generation)
    return generation


def test_suffix_follows_a_text_that_repeats(starter: Path, record) -> None:
    source = edit_tasks()[0].source
    with Model(starter, LoadSettings(n_ctx=4096)) as model, Context(model) as context:
        prompt = tuple(context.vocab.tokenize(source + "\n" + source[: len(source) // 3], special=False))
        plain = _run(context, prompt, 0, None)
        runs: dict[int, Any] = {k: _run(context, prompt, k, SuffixDrafter()) for k in (3, 7)}
    record(**{f"tau at K = {k}": run.stats.tau for k, run in runs.items()})
    for k, least in ((3, 2.5), (7, 3.5)):
        assert runs[k].stats.tau >= least
        assert first_difference(plain.completion, runs[k].completion) is None
