"""`edgespec bench --parallel` on tiny models and a made-up peer: what it runs, prints and refuses. Never how fast."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from edgespec_command import Cli, Models, Result
from fake_server import fake_server

from edgespec.bench.parallel import groups
from edgespec.llama import Context

QUICK = ("--workload", "chat", "--prompts", "4", "-n", "8", "--ctx-size", "2048", "--threads", "1")


def bench(cli: Cli, *arguments: Any) -> Result:
    return cli.here("bench", *QUICK, *map(str, arguments))


def test_against_plain_decoding(cli: Cli, models: Models) -> None:
    done = bench(cli, "-m", models.chat, "--draft", models.draft, "--parallel", "3", "--json")
    assert done.code == 0, done.err
    result = done.json
    assert (result["parallel"], result["complete"], result["draft"]) == (3, True, "draft.gguf")
    (row,) = result["throughput"]
    assert (row["workload"], row["mode"], row["against"], row["groups"]) == ("chat", "auto", "plain", 2)
    low, high = row["ci"]
    assert low <= row["ratio"] <= high
    names = [group["prompts"] for group in row["per_group"]]
    assert names == ["chat-01+chat-02+chat-03", "chat-04+chat-01+chat-02"]
    # Endless text: each of three answers has its eight tokens, in every run.
    assert all(group[name] == [24, 24] for group in row["per_group"] for name in ("tokens", "their_tokens"))
    assert all(s > 0 for group in row["per_group"] for name in ("seconds", "their_seconds") for s in group[name])


def test_against_a_peer(cli: Cli, models: Models, tmp_path: Path) -> None:
    server = fake_server(tmp_path)
    peer = ("--peer", f"llama-server={server.binary} --flag")
    done = bench(cli, "-m", models.chat, "--parallel", "2", "--mode", "plain", *peer, "--workload", "code", "--json")
    assert done.code == 0, done.err
    rows = done.json["throughput"]
    assert [(row["workload"], row["against"], row["mode"], row["groups"]) for row in rows] == [
        ("chat", "llama-server --flag", "plain", 2),
        ("code", "llama-server --flag", "plain", 2),
        ("all", "llama-server --flag", "plain", 4),
    ]
    assert rows[0]["per_group"][0]["their_tokens"] == [16, 16]
    (arguments,) = server.starts
    given = dict(zip(arguments[0:-1:2], arguments[1:-1:2], strict=False))
    assert (given["-np"], given["-c"], given["-t"]) == ("2", "2048", "1")
    # Both prompts are read before the clock starts; then the peer's runs are the first and the last of four.
    assert [asked["n_predict"] for asked in server.requests] == [1, 1, 8, 8, 8, 8] * 4
    assert all(asked["temperature"] == 0 for asked in server.requests)
    first = server.requests[:6]
    assert {tuple(asked["prompt"]) for asked in first} == {tuple(asked["prompt"]) for asked in first[:2]}
    assert len({tuple(asked["prompt"]) for asked in first}) == 2


def test_what_is_timed_decodes_in_one_thread(cli: Cli, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has decoded before slows down all others, as long as it lives."""
    threads: set[threading.Thread] = set()
    decode = Context._decode

    def noted(self: Context, *arguments: Any) -> None:
        threads.add(threading.current_thread())
        decode(self, *arguments)

    monkeypatch.setattr(Context, "_decode", noted)
    done = bench(cli, "-m", models.chat, "--draft", models.draft, "--parallel", "2")
    assert done.code == 0, done.err
    assert threading.main_thread() not in threads
    assert [thread.name for thread in threads if thread.name.startswith("edgespec-model")] == ["edgespec-model"]


def test_a_divided_context(cli: Cli, models: Models, tmp_path: Path) -> None:
    server = fake_server(tmp_path)
    peer = ("--peer", f"llama-server={server.binary}")
    done = bench(cli, "-m", models.chat, "--parallel", "2", "--split-cache", "--prompts", "2", *peer, "--json")
    assert done.code == 0, done.err
    assert (done.json["split_cache"], done.json["settings"]["ctx_size"]) == (True, 2048)
    assert done.json["throughput"][0]["per_group"][0]["tokens"] == [16, 16]
    (arguments,) = server.starts
    assert arguments[arguments.index("-c") + 1] == "2048"  # of all, as it divides it, too


def test_a_peer_that_remembers_is_started_anew(cli: Cli, models: Models, tmp_path: Path) -> None:
    server = fake_server(tmp_path)
    peer = ("--peer", f"llama-server={server.binary} --spec-type ngram-mod")
    done = bench(cli, "-m", models.chat, "--parallel", "4", *peer, "--json")
    assert done.code == 0, done.err
    assert [len(server.starts), len(server.requests)] == [2, 16]


def test_the_table(cli: Cli, models: Models, tmp_path: Path) -> None:
    server = fake_server(tmp_path)
    done = bench(cli, "-m", models.chat, "--parallel", "2", "--peer", f"llama-server={server.binary}")
    assert done.code == 0, done.err
    assert "2 at once, greedy" in done.out
    (line,) = [line.split() for line in done.out.splitlines() if line.startswith("chat ")]
    assert line[:4] == ["chat", "llama-server", "auto", "2"]
    assert "fewer than 20 groups" in done.out


def test_a_peer_that_dies_leaves_what_was_measured(cli: Cli, models: Models, tmp_path: Path) -> None:
    act = "if asked == 7: print('out of memory', file=sys.stderr, flush=True); os._exit(3)"
    server = fake_server(tmp_path, act=act)
    done = bench(cli, "-m", models.chat, "--parallel", "2", "--peer", f"llama-server={server.binary}", "--json", "-q")
    assert (done.code, done.err) == (1, "edgespec: llama-server has ended: out of memory\n")
    assert done.json["complete"] is False
    assert [row["groups"] for row in done.json["throughput"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--parallel", "0"], "give 1 to 32"),
        (["--parallel", "33"], "give 1 to 32"),
        (["--parallel", "2", "--sweep"], "--sweep and --plot"),
        (["--parallel", "2", "--plot", "x.svg"], "--sweep and --plot"),
        (["--parallel", "2", "--temperature", "0.5"], "are greedy"),
        (["--parallel", "2", "--mode", "lookup:3"], "auto or plain"),
        (["--parallel", "2", "--mode", "auto", "--mode", "plain"], "auto or plain"),
        (["--parallel", "2", "--peer", "llama-cpp-python"], "one request at a time"),
        (["--parallel", "2", "--peer", "magic"], "not known"),
    ],
)
def test_what_does_not_go_is_one_line(cli: Cli, models: Models, arguments: list[str], words: str) -> None:
    done = bench(cli, "-m", models.chat, *arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert words in done.err


def test_groups_are_filled_up_from_the_beginning() -> None:
    prompts = [(name, (1,)) for name in "abcde"]
    assert ["".join(name for name, _ in group) for group in groups(prompts, 2)] == ["ab", "cd", "ea"]
    assert ["".join(name for name, _ in group) for group in groups(prompts, 7)] == ["abcdeab"]
