"""`edgespec bench` on tiny models: what it prints and refuses. Never how fast anything is."""

from __future__ import annotations

import json
import stat
import sys
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

KEYS = {"model", "draft", "regime", "settings", "cost_table", "draft_step_ms", "workloads", "peers"}
QUICK = ("--prompts", "2", "-n", "8", "--ctx-size", "1024", "--threads", "1")

# Answers as llama-server does: /health once ready, /completion with timings; keeps what it was asked.
SERVER = """#!{python}
import json, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

log = pathlib.Path({log!r})
log.write_text(json.dumps(sys.argv[1:]) + "\\n")

class Handler(BaseHTTPRequestHandler):
    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({{"status": "ok"}})

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with log.open("a") as file:
            file.write(asked + "\\n")
        n = json.loads(asked)["n_predict"]
        self.reply({{"timings": {{"predicted_n": n, "predicted_ms": 1000.0}}, "stop_type": "limit"}})

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def bench(cli: Cli, *arguments: Any) -> Result:
    return cli.run([*EDGESPEC, "bench", *QUICK, *arguments])


@pytest.fixture(scope="module")
def result(cli: Cli, models: Models) -> dict[str, Any]:
    """Two workloads in four modes, with a draft model."""
    modes = [f"--mode={mode}" for mode in ("auto", "plain", "lookup:2", "model:3")]
    done = bench(
        cli, "-m", models.chat, "--draft", models.draft, "--workload=chat", "--workload=prose", *modes, "--json"
    )
    assert done.code == 0, done.err
    return done.json


def test_json_is_the_contract(result):
    assert set(result) == KEYS
    assert (result["model"], result["draft"], result["peers"]) == ("chat.gguf", "draft.gguf", [])
    assert result["settings"]["max_tokens"] == 8
    assert list(result["cost_table"]) == ["1", "2", "3", "4", "8", "12", "16"]
    assert all(ms > 0 for ms in [*result["cost_table"].values(), result["draft_step_ms"]])


def test_every_workload_has_every_mode(result):
    rows = [(row["name"], row["mode"], row["temperature"]) for row in result["workloads"]]
    modes = ("auto", "plain", "lookup:2", "model:3")
    assert rows == [(name, mode, heat) for name, heat in (("chat", 0), ("prose", 1)) for mode in modes]
    for row in result["workloads"]:
        assert row["prompts"] == len(row["per_prompt"]) == 2
        low, high = row["ci"]
        assert low <= row["speedup"] <= high
        assert [p["prompt"] for p in row["per_prompt"]] == [f"{row['name']}-01", f"{row['name']}-02"]
        # Endless text: a run has its eight tokens, the first of which is not timed.
        assert all(p["tokens"] == [7, 7] for p in row["per_prompt"])
        assert row["plain_tokens_per_s"] > 0
        assert row["predicted_ms"] > 0
        assert row["measured_ms"] > 0


def test_modes_do_what_they_are_named(result):
    by_mode = {(row["name"], row["mode"]): row for row in result["workloads"]}
    plain, model = by_mode["chat", "plain"], by_mode["chat", "model:3"]
    assert (plain["tau"], plain["acceptance"], plain["per_position"]) == (1, None, [])
    assert plain["calibrated_speedup"] == 1
    assert len(model["per_position"]) == 3
    assert 0 < model["acceptance"] < 1
    assert model["tau"] > 1


def test_the_table(cli, models):
    done = bench(cli, "-m", models.chat, "--workload", "chat", "--mode", "lookup:3", "--buffers", "repack")
    assert done.code == 0, done.err
    head, curve, _, title, row, *_ = done.out.splitlines()
    assert head.startswith("chat.gguf: laptop regime (buffers repack), threads 1, ")
    assert curve.startswith("milliseconds of a decode by its rows: 1: ")
    assert title.split()[:3] == ["workload", "mode", "prompts"]
    assert row.split()[:3] == ["chat", "lookup:3", "2"]
    assert "rough" in done.out
    assert done.err == "workload 1 of 1: chat\n"


def test_files_of_prompts(cli, models, tmp_path):
    path = tmp_path / "mine.jsonl"
    lines = [{"prompt": "Go on"}, {"messages": [{"role": "user", "content": "Why?"}]}, {"turns": ["One", "Two"]}]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    common = ("--workload", path, "--mode", "lookup:3", "--json", "-q", "--prompts", "0")
    done = bench(cli, "-m", models.chat, *common)
    assert done.code == 0, done.err
    assert done.err == ""
    (row,) = done.json["workloads"]
    assert (row["name"], row["prompts"]) == ("mine.jsonl", 3)
    raw = bench(cli, "-m", models.raw, *common)  # without a template a conversation is no text
    assert (raw.code, raw.out) == (2, "")
    assert "prompt mine-2 is a conversation" in raw.err


def test_the_sweep(cli, models):
    done = bench(cli, "-m", models.chat, "--workload=chat", "--prompts=1", "--drafter=lookup", "--sweep", "--json")
    assert done.code == 0, done.err
    rows = done.json["workloads"]
    assert [row["mode"] for row in rows] == ["auto", *(f"lookup:{k}" for k in (1, 2, 3, 5, 7, 11, 15))]
    assert all(row["ci"] is None for row in rows)  # one prompt has no interval


def test_peers_run_the_same_file(cli, models, tmp_path):
    binary, log = tmp_path / "server", tmp_path / "log"
    binary.write_text(SERVER.format(python=sys.executable, log=str(log)), "utf-8")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    peers = ("--peer", f"llama-server={binary} --flag", "--peer", "llama-cpp-python")
    done = bench(cli, "-m", models.chat, "--workload", "chat", "--mode", "lookup:3", *peers, "--json")
    assert done.code == 0, done.err
    server, lookup = done.json["peers"]
    assert (server["name"], lookup["name"]) == ("llama-server --flag", "llama-cpp-python")
    for row in (server, lookup):
        assert (row["workload"], row["mode"], row["prompts"]) == ("chat", "lookup:3", 2)
        assert row["speedup_over_peer"] > 0
        assert len(row["ci"]) == 2
    assert server["peer_tokens_per_s"] == 7  # eight in a second, less the first
    arguments, *asked = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert arguments[:2] == ["-m", str(models.chat)]
    assert arguments[-1] == "--flag"
    assert [a["n_predict"] for a in asked] == [1, 8, 8] * 2
    assert all(a["temperature"] == 0 and a["prompt"] == asked[0]["prompt"] for a in asked[:3])


def test_a_peer_that_does_not_start_is_one_line(cli, models, tmp_path):
    binary = tmp_path / "server"
    binary.write_text("#!/bin/sh\necho 'unknown model type' >&2\nexit 1\n", "utf-8")
    binary.chmod(0o755)
    done = bench(cli, "-m", models.chat, "--workload", "chat", "--peer", f"llama-server={binary}")
    assert (done.code, done.out) == (1, "")
    assert done.err == "edgespec: llama-server ended at its start: unknown model type\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "turbo"), "mode 'turbo' is not known"),
        (("--mode", "lookup:99"), "K is a whole number from 1 to 31"),
        (("--mode", "model:3"), "needs a draft model"),
        (("--workload", "poetry"), "workload 'poetry' is not known"),
        (("--workload", "none.jsonl"), "cannot read workload none.jsonl"),
        (("--prompts", "-1"), "prompts is -1"),
        (("--prompts", "many"), "'--prompts'"),
        (("-n", "0"), "max tokens is 0"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--seed", "-1"), "seed is -1"),
        (("--buffers", "some"), "buffers is 'some'"),
        (("--peer", "ollama"), "peer 'ollama' is not known"),
        (("--peer", "llama-server=/no/such/binary"), "/no/such/binary is no program"),
        (("--peer", "llama-cpp-python", "--buffers", "repack"), "--buffers auto"),
        (("--plot", "a.pdf"), "neither .png nor .svg"),
    ],
)
def test_bad_usage_is_one_line(cli, models, arguments, message):
    done = bench(cli, "-m", models.chat, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("edgespec: ")
    assert done.err.count("\n") == 1
    assert message in done.err


def test_a_prompt_that_does_not_fit_ends_it_before_anything_is_timed(cli, models):
    done = cli.run([*EDGESPEC, "bench", "-m", models.chat, "--ctx-size", "32", "--workload", "edit"])
    assert (done.code, done.out) == (5, "")
    assert "prompt 01-inventory.py has" in done.err
