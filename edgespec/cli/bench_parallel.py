"""`edgespec bench --parallel N`: how fast several requests at once are answered, here and by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, Cancelled, EdgeSpecError
from .bench_tables import print_throughput
from .json_text import json_text
from .options import load_model

if TYPE_CHECKING:
    from ..bench.peer_server import ServerPeer
    from ..bench.prompts import Workload
    from ..bench.runner import Settings

Bar = Callable[[int, Sequence[str]], AbstractContextManager[Callable[[str], None]]]


def bench_parallel(options: dict[str, Any], settings: Settings, workloads: Sequence[Workload], bar: Bar) -> int:
    """Measure, print, and return the exit code. bar: (timed runs, names of workloads) -> shows how far it is."""
    from ..bench.parallel import MOST, group_count, in_a_thread_that_ends, parallel_mode, run_parallel
    from ..bench.parallel_report import head, to_json
    from ..bench.peers import parse_servers

    count = options["parallel"]
    if not 1 <= count <= MOST:
        raise BadRequestError(f"{count} requests are to run at once; give 1 to {MOST}")
    if options["sweep"] or options["plot"] is not None:
        raise BadRequestError("--sweep and --plot are for one request at a time; leave them out, or --parallel")
    if settings.temperature:
        raise BadRequestError("requests at once are greedy, so that all answers are the same; leave out --temperature")
    mode = parallel_mode(options["modes"])
    if mode is None:
        raise BadRequestError("with --parallel give one --mode, auto or plain")
    starts = parse_servers(tuple(dict.fromkeys(options["peers"])), count)
    with ExitStack() as stack:
        several = {"parallel": count, "at_once": count, "split_cache": options["split_cache"]}
        # A first load measures, too.
        llm = stack.enter_context(in_a_thread_that_ends(lambda: load_model(options, **several)))
        peers: list[ServerPeer] = []
        for start in starts:
            peers.append(start(llm))
            stack.callback(peers[-1].close)
        about = head(llm, settings, count)
        total = 4 * group_count(workloads, count) * max(1, len(peers))
        with bar(total, [workload.name for workload in workloads]) as progress:
            outcome = run_parallel(llm, workloads, mode, settings, count, peers, progress)
    result = to_json(about, outcome, settings.seed)
    if options["as_json"]:
        click.echo(json_text(result))
    else:
        print_throughput(result)
    if isinstance(outcome.stopped, EdgeSpecError):
        raise outcome.stopped
    return 0 if outcome.stopped is None else Cancelled.exit_code
