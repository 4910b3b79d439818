"""What a benchmark reads: modes, files of prompts, peers, plots; and the cost curve."""

from __future__ import annotations

import json
import sys

import pytest

from edgespec.bench.costs import measure
from edgespec.bench.modes import AUTO, PLAIN, SWEEP, Mode, chosen_modes, parse_mode
from edgespec.bench.peer_server import remembers
from edgespec.bench.peers import parse_peers
from edgespec.bench.plot import check_plot, draw
from edgespec.bench.prompts import BUNDLED, load_workloads, read_file
from edgespec.drafters import DRAFTERS
from edgespec.errors import BadRequestError
from edgespec.table_model import TableModel

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
    assert (len(edit.prompts), edit.temperature) == (20, 0)
    assert (len(prose.prompts), prose.temperature) == (20, 1)
    assert load_workloads(["chat", "all"], 1)[0].name == "chat"


def test_the_three_forms_of_a_line(tmp_path):
    path = tmp_path / "mine.jsonl"
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    lines = [{"prompt": "Go on", "id": 4}, {"messages": conversation}, {"turns": ["First", "Second"]}]
    path.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n", "utf-8")
    first, second, third, fourth = read_file(path)
    assert (first.plain, first.messages) == ("Go on", ({"role": "user", "content": "Go on"},))
    assert (second.plain, second.messages) == (None, tuple(conversation))
    assert (third.plain, third.messages) == ("First", ({"role": "user", "content": "First"},))
    assert (fourth.plain, fourth.messages) == (None, ({"role": "user", "content": "Second"},))
    assert [p.follows for p in (first, second, third, fourth)] == [False, False, False, True]
    assert [p.name for p in (first, second, third, fourth)] == ["mine-1", "mine-3", "mine-5", "mine-5.2"]
    (workload,) = load_workloads([str(path)], 2)
    assert (workload.name, len(workload.prompts), workload.temperature) == ("mine.jsonl", 2, 0)


def test_a_limit_counts_lines_and_keeps_all_turns_of_a_line(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"turns": ["a", "b", "c"][:n]}) for n in (3, 1, 2)), "utf-8")

    def names(limit: int | None) -> list[str]:
        return [p.name for p in load_workloads([str(path)], limit)[0].prompts]

    assert names(1) == ["mine-1", "mine-1.2", "mine-1.3"]
    assert names(2) == [*names(1), "mine-2"]
    assert names(3) == names(None) == names(9) == [*names(2), "mine-3", "mine-3.2"]


def test_files_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / folder / "mine.jsonl" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text('{"prompt": "Go on"}', "utf-8")
    names = [w.name for w in load_workloads([str(paths[0]), "chat", str(paths[1])], 1)]
    assert names == [str(paths[0]), "chat", str(paths[1])]


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
        ('{"turns": ["a", " "]}', "turns has no text"),
        ('{"messages": "a"}', "messages is no list of objects"),
        ('{"messages": []}', "messages is no list of objects"),
        ('{"messages": [{"role": "user"}]}', r"bad.jsonl, line 1: messages\[0\]\.content must be text"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(BadRequestError, match=message) as refused:
        read_file(path)
    assert "\n" not in str(refused.value)


def test_a_line_ends_where_json_lines_end(tmp_path):
    """Texts may hold other ends of lines as they are, and editors put a mark before the first line."""
    path = tmp_path / "texts.jsonl"
    texts = ["one\u2028two", "one\x85two\x1cthree", "last"]
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\n\n")
    assert [(prompt.name, prompt.plain) for prompt in read_file(path)] == [
        (f"texts-{number}", text) for number, text in enumerate(texts, start=1)
    ]


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
        parse_peers((text,))


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ("", False),
        ("--spec-type ngram-simple", False),
        ("--spec-type draft-simple -md ngram-mod.gguf", False),
        ("--spec-type ngram-mod", True),
        ("--spec-type draft-simple,ngram-cache", True),
        ("--spec-type=ngram-map-k4v", True),
        ("--spec-default --flash-attn off", True),
    ],
)
def test_servers_that_draft_from_earlier_replies_are_known(options, known):
    assert remembers(options.split()) is known


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
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadRequestError, match=r"folder.png cannot be written; name another file"):
        check_plot(tmp_path / "folder.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadRequestError, match=r"pip install 'edgespec\[bench\]'"):
        check_plot(tmp_path / "a.png")
