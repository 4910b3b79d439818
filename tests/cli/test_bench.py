"""`edgespec bench` on tiny models: what it prints and refuses. Never how fast anything is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

KEYS = {"model", "draft", "regime", "settings", "cost_table", "draft_step_ms", "workloads", "auto_over_fixed", "peers"}
QUICK = ("--prompts", "2", "-n", "8", "--ctx-size", "1024", "--threads", "1")


def bench(cli: Cli, *arguments: Any) -> Result:
    return cli.here("bench", *QUICK, *arguments)


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
    assert set(result) == {*KEYS, "complete"}
    assert result["complete"] is True
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


def test_auto_is_compared_with_the_best_fixed_mode(result):
    """Chosen on the first prompt of each workload, compared on the second."""
    rows = {row["workload"]: row for row in result["auto_over_fixed"]}
    assert list(rows) == ["chat", "prose", "all"]
    assert {row["mode"] for row in rows.values()} <= {"lookup:2", "model:3"}
    assert [row["prompts"] for row in rows.values()] == [1, 1, 2]
    chat = {row["mode"]: row["per_prompt"][1]["speedup"] for row in result["workloads"] if row["name"] == "chat"}
    assert rows["chat"]["speedup_over_it"] == pytest.approx(chat["auto"] / chat[rows["chat"]["mode"]])
    assert (rows["chat"]["ci"], len(rows["all"]["ci"])) == (None, 2)


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
    assert "Not complete" not in done.out
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
    assert row["name"] == "mine.jsonl"
    assert [p["prompt"] for p in row["per_prompt"]] == ["mine-1", "mine-2", "mine-3", "mine-3.2"]
    few = bench(cli, "-m", models.chat, *common[:-1], "1")
    assert few.json["workloads"][0]["prompts"] == 1
    raw = bench(cli, "-m", models.raw, *common)  # without a template a conversation is no text
    assert (raw.code, raw.out) == (2, "")
    assert "prompt mine-2 is a conversation" in raw.err


def test_the_sweep(cli, models):
    done = bench(cli, "-m", models.chat, "--workload=chat", "--prompts=1", "--drafter=lookup", "--sweep", "--json")
    assert done.code == 0, done.err
    rows = done.json["workloads"]
    assert [row["mode"] for row in rows] == ["auto", *(f"lookup:{k}" for k in (1, 2, 3, 5, 7, 11, 15))]
    assert all(row["ci"] is None for row in rows)  # one prompt has no interval


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
        (("--split-cache",), "--split-cache goes with --parallel"),
    ],
)
def test_bad_usage_is_one_line(cli, models, arguments, message):
    done = bench(cli, "-m", models.chat, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("edgespec: ")
    assert done.err.count("\n") == 1
    assert message in done.err


def test_a_prompt_that_does_not_fit_ends_it_before_anything_is_timed(cli, models):
    done = cli.here("bench", "-m", models.chat, "--ctx-size", "32", "--workload", "edit")
    assert (done.code, done.out) == (5, "")
    assert "prompt 01-inventory.py has" in done.err


def test_a_later_turn_that_does_not_fit_leaves_what_was_measured(cli, models, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"turns": ["Go on", "x" * 2000, "never"]}), "utf-8")
    done = bench(cli, "-m", models.chat, "--workload", path, "--mode", "lookup:3", "--json", "-q")
    assert done.code == 5
    assert "prompt mine-1.2 has" in done.err
    assert done.err.count("\n") == 1
    (row,) = done.json["workloads"]
    assert [p["prompt"] for p in row["per_prompt"]] == ["mine-1"]
    assert done.json["complete"] is False


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_ctrl_c_leaves_what_was_measured(cli, models, tmp_path):
    path = tmp_path / "short.jsonl"
    path.write_text('{"prompt": "Go on"}', "utf-8")
    # The second workload is announced when the first one is done, and takes twenty times as long.
    given = ("--workload", path, "--workload", "prose", "--mode", "lookup:3", "--prompts", "0", "-n", "200", "--json")
    command = [*EDGESPEC, "bench", "-m", models.chat, *QUICK, *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.env) as process:
        while process.stderr.readline() != b"workload 2 of 2: prose\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    found = json.loads(out)
    assert found["complete"] is False
    row = found["workloads"][0]
    assert (row["name"], row["prompts"]) == ("short.jsonl", 1)
    assert sum(r["prompts"] for r in found["workloads"][1:]) < 20
