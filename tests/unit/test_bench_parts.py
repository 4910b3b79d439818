"""What a benchmark computes and reads: statistics of known cases, modes, files of prompts, peers, plots."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from edgespec.bench import statistics as stats
from edgespec.bench.costs import measure
from edgespec.bench.modes import AUTO, PLAIN, SWEEP, Mode, chosen_modes, parse_mode
from edgespec.bench.peers import parse_peer
from edgespec.bench.plot import check_plot, draw
from edgespec.bench.prompts import BUNDLED, load_workloads, read_file
from edgespec.bench.statistics import Cell, Pair, Run
from edgespec.drafters import DRAFTERS
from edgespec.errors import BadRequestError
from edgespec.planning import CostTable
from edgespec.table_model import TableModel

COSTS = CostTable((1, 2, 4), (10.0, 12.0, 16.0))


def run(tokens: int, seconds: float, **counts) -> Run:
    return Run(tokens=tokens, seconds=seconds, **counts)


# ---- statistics ---------------------------------------------------------------------------------------------


def test_a_ratio_is_paired_and_weighs_runs_by_time():
    pair = Pair("p", (run(10, 1), run(10, 3)), (run(10, 1), run(10, 1)))
    assert stats.rate(pair.base) == 5
    assert stats.rate(pair.mode) == 10
    assert pair.ratio == 2


def test_linear_drift_leaves_the_ratio_of_abba_alone():
    """A machine that slows by the same step each run: equal work gives the ratio 1."""
    a, b, c, d = (run(10, seconds) for seconds in (1.0, 1.1, 1.2, 1.3))
    assert Pair("p", (a, d), (b, c)).ratio == pytest.approx(1)


def test_a_prompt_without_a_second_token_has_no_ratio_and_no_say():
    empty = Pair("p", (run(0, 0), run(0, 0)), (run(5, 1), run(5, 1)))
    full = Pair("q", (run(5, 1), run(5, 1)), (run(10, 1), run(10, 1)))
    assert empty.ratio is None
    assert Cell("w", "m", 0.0, (empty, full)).ratios == [2]


def test_counts_are_pooled_over_runs():
    runs = [
        run(4, 1, rounds=2, produced=5, drafted=6, accepted=3, drafted_at=(2, 2, 2), accepted_at=(2, 1, 0)),
        run(1, 1, rounds=1, produced=1, drafted=1, accepted=0, drafted_at=(1,), accepted_at=(0,)),
    ]
    assert stats.tau(runs) == 2
    assert stats.acceptance(runs) == 3 / 7
    assert stats.per_position(runs) == [2 / 3, 1 / 2, 0]
    assert stats.round_ms(runs) == pytest.approx(2000 / 3)


def test_nothing_measured_is_none():
    assert [f([]) for f in (stats.rate, stats.tau, stats.acceptance, stats.median, stats.round_ms)] == [None] * 5
    assert stats.bootstrap_interval([1.5]) is None
    assert stats.predicted_ms([], COSTS, None) is None
    assert stats.calibrated_speedup([], COSTS, None) is None


def test_the_interval_holds_the_median_and_repeats():
    values = list(np.random.default_rng(3).normal(1.2, 0.1, 40))
    low, high = stats.bootstrap_interval(values, seed=5)
    assert min(values) < low < stats.median(values) < high < max(values)
    assert stats.bootstrap_interval(values, seed=5) == (low, high)
    assert stats.bootstrap_interval([1.1] * 9) == (1.1, 1.1)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(11)
    covered = 0
    for trial in range(200):
        low, high = stats.bootstrap_interval(list(rng.normal(1.0, 0.2, 21)), seed=trial)
        covered += low <= 1.0 <= high
    assert 180 <= covered <= 199


def test_predicted_times_and_calibrated_speedup():
    """Two rounds of four rows and one of one row, three draft steps of 2 ms: (16 + 16 + 10 + 6) / 3 = 16 ms."""
    mode = run(9, 1, rounds=3, produced=9, widths=((1, 1), (4, 2)), draft_steps=3)
    assert stats.table_ms([mode], COSTS, 2.0) == 16
    assert stats.calibrated_speedup([mode], COSTS, 2.0) == pytest.approx(3 * 10 / 16)
    # Plain rounds took 20 ms where the table says 10: everything is expected to take twice its time.
    plain = run(5, 0.1, rounds=5, produced=5, widths=((1, 5),))
    assert stats.predicted_ms([Pair("p", (plain,), (mode,))], COSTS, 2.0) == pytest.approx(32)


# ---- modes --------------------------------------------------------------------------------------------------


def test_modes_as_typed():
    assert parse_mode("auto", has_draft=False) == AUTO
    assert parse_mode("plain", has_draft=False) == PLAIN
    assert parse_mode("lookup:7", has_draft=False) == Mode("lookup:7", ("lookup",), 7)
    assert parse_mode("model,lookup:2", has_draft=True).sources == tuple(
        name for name in DRAFTERS if name in ("lookup", "model")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mode '' is not known"),
        ("fast", "mode 'fast' is not known"),
        (":3", "mode ':3' is not known"),
        ("lookup:", "K = ''"),
        ("lookup:0", "K = '0'"),
        ("lookup:-1", "K = '-1'"),
        ("lookup:32", "K = '32'"),
        ("lookup:two", "K = 'two'"),
        ("lookup:٣", "K = '٣'"),
        ("oracle:3", "drafter 'oracle' is not known"),
        ("auto:3", "names no source"),
        ("none:3", "names no source"),
        ("model:3", "needs a draft model"),
    ],
)
def test_a_bad_mode_is_refused(text, message):
    with pytest.raises(BadRequestError, match=message):
        parse_mode(text, has_draft=False)


def test_default_modes_and_the_sweep():
    def names(*given: str, sweep: bool = False) -> list[str]:
        return [m.name for m in chosen_modes(given, sweep=sweep, sources=("lookup",), has_draft=False)]

    assert names() == ["auto", "lookup:3"]
    assert names("lookup:5", "auto", "lookup:5") == ["lookup:5", "auto"]
    assert names(sweep=True) == ["auto", *(f"lookup:{k}" for k in SWEEP)]
    assert names("lookup:3", sweep=True)[0] == "lookup:3"
    assert len(names("lookup:3", sweep=True)) == len(SWEEP)


# ---- workloads ----------------------------------------------------------------------------------------------


def test_bundled_workloads():
    assert [w.name for w in load_workloads(["all"], 2)] == list(BUNDLED)
    edit, prose = load_workloads(["edit", "prose", "edit"], None)
    assert (len(edit.prompts), edit.temperature) == (12, 0)
    assert (len(prose.prompts), prose.temperature) == (12, 1)
    assert load_workloads(["chat", "all"], 1)[0].name == "chat"


def test_the_three_forms_of_a_line(tmp_path):
    path = tmp_path / "mine.jsonl"
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    lines = [{"prompt": "Go on", "id": 4}, {"messages": conversation}, {"turns": ["First", "Second"]}]
    path.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n", "utf-8")
    first, second, third = read_file(path)
    assert (first.plain, first.messages) == ("Go on", ({"role": "user", "content": "Go on"},))
    assert (second.plain, second.messages) == (None, tuple(conversation))
    assert (third.plain, third.messages) == ("First", ({"role": "user", "content": "First"},))
    assert len({p.name for p in (first, second, third)}) == 3
    (workload,) = load_workloads([str(path)], 2)
    assert (workload.name, len(workload.prompts), workload.temperature) == ("mine.jsonl", 2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no prompts"),
        ("hello", "line 1 is not JSON"),
        ('{"prompt": "a"}\n[1]', "line 2 is no object"),
        ("{}", "has no prompt"),
        ('{"prompt": "a", "turns": ["b"]}', "has prompt and turns"),
        ('{"prompt": 3}', "prompt has no text"),
        ('{"prompt": " "}', "prompt has no text"),
        ('{"turns": []}', "turns has no text"),
        ('{"turns": [{}]}', "turns has no text"),
        ('{"messages": "a"}', "messages is no list of objects"),
        ('{"messages": []}', "messages is no list of objects"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(BadRequestError, match=message) as refused:
        read_file(path)
    assert "\n" not in str(refused.value)


def test_a_workload_that_is_nowhere(tmp_path):
    with pytest.raises(BadRequestError, match="workload 'poetry' is not known; use code, chat, rag, edit, prose, all"):
        load_workloads(["poetry"], None)
    with pytest.raises(BadRequestError, match="No such file"):
        load_workloads([str(tmp_path / "none.jsonl")], None)
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(BadRequestError, match="not UTF-8"):
        load_workloads([str(tmp_path / "bytes.jsonl")], None)


# ---- costs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ctx", [8, 20, 300])
def test_the_cost_curve_has_the_widths_that_a_context_can_do(n_ctx):
    table = measure(TableModel(5, seed=1, order=1, n_ctx=n_ctx), (1, 2, 3))
    assert table.widths == tuple(w for w in (1, 2, 3, 4, 8, 12, 16) if w <= n_ctx - 3)
    assert all(ms > 0 for ms in table.ms)


# ---- peers and plots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ollama", "peer 'ollama' is not known; use llama-cpp-python or llama-server=PATH"),
        ("llama-server", "is not known"),
        ("llama-server= ", "is not known"),
        ("llama-server=/no/such/binary", "/no/such/binary is no program; give the path of a llama-server binary"),
    ],
)
def test_a_bad_peer_is_refused(text, message):
    with pytest.raises(BadRequestError, match=message):
        parse_peer(text)


RESULT = {
    "model": "m.gguf",
    "draft": "d.gguf",
    "regime": "native",
    "settings": {"threads": 2},
    "cost_table": {"1": 10.0, "4": 14.0},
    "draft_step_ms": 3.0,
    "workloads": [
        {"name": "code", "mode": "auto", "speedup": 1.2, "ci": (1.1, 1.3)},
        {"name": "code", "mode": "lookup:3", "speedup": 0.9, "ci": None},
        {"name": "chat", "mode": "auto", "speedup": None, "ci": None},
    ],
}


def test_a_plot_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    for name, head in (("a.png", b"\x89PNG"), ("b.SVG", b"<?xml")):
        check_plot(tmp_path / name)
        draw(RESULT, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(head)
    assert b"lookup:3" not in (tmp_path / "a.png").read_bytes()
    draw({**RESULT, "workloads": [], "draft_step_ms": None}, tmp_path / "c.png")


def test_a_plot_that_cannot_be_is_refused_before_anything_runs(tmp_path, monkeypatch):
    with pytest.raises(BadRequestError, match=r"neither .png nor .svg"):
        check_plot(tmp_path / "a.pdf")
    with pytest.raises(BadRequestError, match="no folder that exists"):
        check_plot(tmp_path / "none" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadRequestError, match=r"pip install 'edgespec\[bench\]'"):
        check_plot(tmp_path / "a.png")
