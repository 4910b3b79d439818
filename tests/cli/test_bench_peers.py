"""`edgespec bench --peer`: other programs on the same file, told apart and asked fairly."""

from __future__ import annotations

import os
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Result
from fake_server import fake_server

QUICK = (
    "--workload",
    "chat",
    "--mode",
    "lookup:3",
    "--prompts",
    "2",
    "-n",
    "8",
    "--ctx-size",
    "1024",
    "--threads",
    "1",
)


def bench(cli: Cli, *arguments: Any) -> Result:
    return cli.run([*EDGESPEC, "bench", *QUICK, *arguments])


def test_peers_run_the_same_file(cli, models, tmp_path):
    server = fake_server(tmp_path)
    peers = ("--peer", f"llama-server={server.binary} --flag", "--peer", "llama-cpp-python")
    done = bench(cli, "-m", models.chat, *peers, "--json")
    assert done.code == 0, done.err
    theirs, lookup = done.json["peers"]
    assert (theirs["name"], lookup["name"]) == ("llama-server --flag", "llama-cpp-python")
    for row in (theirs, lookup):
        assert (row["workload"], row["mode"], row["prompts"]) == ("chat", "lookup:3", 2)
        assert row["speedup_over_peer"] > 0
        assert len(row["ci"]) == 2
    assert theirs["peer_tokens_per_s"] == 7  # eight in a second, less the first
    (arguments,) = server.starts
    assert arguments[:2] == ["-m", str(models.chat)]
    given = dict(zip(arguments[0:-1:2], arguments[1:-1:2], strict=False))
    assert (given["-c"], given["-t"], given["-ngl"], given["-np"]) == ("1024", "1", "0", "1")
    assert "--flag" in arguments
    assert [a["n_predict"] for a in server.requests] == [1, 8, 8] * 2
    first = server.requests[0]
    assert all(a["temperature"] == 0 and a["prompt"] == first["prompt"] for a in server.requests[:3])


def test_an_end_token_is_not_counted(cli, models, tmp_path):
    server = fake_server(tmp_path, stop_type="eos")
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={server.binary}", "--json")
    assert done.json["peers"][0]["peer_tokens_per_s"] == 6


def test_a_server_that_remembers_replies_runs_a_prompt_again_as_a_new_one(cli, models, tmp_path):
    """Else the second run of each prompt would copy the first one's reply."""
    server = fake_server(tmp_path)
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={server.binary} --spec-type ngram-mod", "--json")
    assert done.code == 0, done.err
    assert len(server.starts) == 3  # the second run of one prompt and the first of the next share a process
    assert [a["n_predict"] for a in server.requests] == [1, 8, 1, 8] * 2


def test_peers_are_told_apart(cli, models, tmp_path):
    one, two = fake_server(tmp_path / "one"), fake_server(tmp_path / "two")
    commands = [f"{one.binary}", f"{one.binary} --spec-type ngram-simple", f"{two.binary} --spec-type ngram-simple"]
    done = bench(
        cli, "-m", models.chat, *(word for c in commands for word in ("--peer", f"llama-server={c}")), "--json"
    )
    assert done.code == 0, done.err
    assert [row["name"] for row in done.json["peers"]] == ["llama-server", *commands[1:]]
    assert all(row["prompts"] == 2 for row in done.json["peers"])


def test_a_peer_that_met_several_workloads_has_a_row_for_all_of_them(cli, models):
    done = bench(cli, "-m", models.chat, "--workload", "prose", "--peer", "llama-cpp-python", "--json")
    assert done.code == 0, done.err
    assert [(row["workload"], row["prompts"]) for row in done.json["peers"]] == [("chat", 2), ("prose", 2), ("all", 4)]


def test_a_long_command_does_not_push_the_figures_out_of_the_table(cli, models, tmp_path):
    server = fake_server(tmp_path)
    options = " ".join(f"--option-number-{i} value-{i}" for i in range(9))
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={server.binary} {options}")
    assert done.code == 0, done.err
    assert "7.0" in done.out
    assert "value-8" in "".join(done.out.split())


def test_a_peer_that_does_not_start_is_one_line(cli, models, tmp_path):
    binary = tmp_path / "server"
    binary.write_text("#!/bin/sh\necho 'unknown model type' >&2\nexit 1\n", "utf-8")
    binary.chmod(0o755)
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={binary}")
    assert (done.code, done.out) == (1, "")
    assert done.err == "edgespec: llama-server ended at its start: unknown model type\n"


# ---- ends before its time -----------------------------------------------------------------------------------

# Each prompt asks a peer three times; at the fourth the first prompt is finished, the second under way.
DIES = "if asked == 4: print('out of memory', file=sys.stderr, flush=True); os._exit(3)"
INTERRUPTS = "if asked == 4: os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"


def test_a_peer_that_dies_leaves_what_was_measured(cli, models, tmp_path):
    server = fake_server(tmp_path, act=DIES)
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={server.binary}", "--json", "-q")
    assert done.code == 1
    assert done.err == "edgespec: llama-server has ended: out of memory\n"
    assert done.json["complete"] is False
    assert [row["prompts"] for row in done.json["peers"]] == [1]
    assert [row["prompts"] for row in done.json["workloads"]] == [2]  # its own part of the second prompt was finished


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_ctrl_c_leaves_what_was_measured(cli, models, tmp_path):
    server = fake_server(tmp_path, act=INTERRUPTS)
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={server.binary}", "--json", "-q")
    assert (done.code, done.err) == (130, "")
    assert done.json["complete"] is False
    assert [row["prompts"] for row in done.json["peers"]] == [1]


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_ctrl_c_leaves_a_table_that_says_so(cli, models, tmp_path):
    server = fake_server(tmp_path, act=INTERRUPTS)
    done = bench(cli, "-m", models.chat, "--peer", f"llama-server={server.binary}", "--plot", tmp_path / "plot.svg")
    assert done.code == 130
    assert [line.split()[:3] for line in done.out.splitlines() if line.startswith("chat ")] == [
        ["chat", "lookup:3", "2"],
        ["chat", "llama-server", "lookup:3"],
    ]
    assert "Not complete" in done.out
    assert (tmp_path / "plot.svg").exists()
