"""`edgespec verify`: what it prints, that it fails on a broken loop, and that it says what it could not check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

import edgespec
from edgespec import LLM, generation
from edgespec.bench.prompts import read_file
from edgespec.checks import CheckOptions, Report, built_in, encoded, identity, law, report
from edgespec.checks import verify as run_checks
from edgespec.cli import verify as cli_verify
from edgespec.cli.verify import verify as command
from edgespec.distribution import Distribution
from edgespec.drafters import LookupDrafter
from edgespec.drafting import NO_DRAFT
from edgespec.errors import BadRequestError, ContextFullError, EdgeSpecError
from edgespec.forks import greedy_choice
from edgespec.generation import Generation
from edgespec.models.catalog import catalog
from edgespec.models.names import find_file
from edgespec.tiny_gguf import write_tiny
from edgespec.verification import VERIFIERS, Verdict

FOUND = find_file(catalog().starter)  # before any test changes where EdgeSpec looks
FEW = ("--prompts", "2", "-n", "16", "--samples", "100")
OPTIONS = CheckOptions(max_tokens=16, samples=150)


def silent(*_: object) -> None:
    """No progress."""


@pytest.fixture(scope="module")
def pair(models: Models) -> Iterator[LLM]:
    """The tiny chat model with its draft: all sources can work."""
    with edgespec.load(models.chat, draft=models.draft, ctx_size=512, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def check(cli: Cli, models: Models) -> Callable[..., Result]:
    """`edgespec verify` on that pair."""
    always = ("verify", "-m", models.chat, "--draft", models.draft, "--threads", "1", "--ctx-size", "512")
    return lambda *arguments: cli.here(*always, *arguments)


# ---- what it prints -----------------------------------------------------------------------------------------


def test_json_is_the_contract_and_alone_on_stdout(check):
    done = check(*FEW, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert set(found) == {"greedy", "distribution", "seed", "negative_control_caught", "ok"}
    assert set(found["greedy"]) == {"prompts", "identical", "explained", "unexplained", "max_delta"}
    assert set(found["seed"]) == {"prompts", "identical", "explained", "unexplained"}
    for kind in ("greedy", "seed"):
        counts = found[kind]
        assert counts["prompts"] == 2 == counts["identical"] + counts["explained"] + counts["unexplained"]
        assert counts["unexplained"] == 0
    assert [row["drafter"] for row in found["distribution"]] == ["suffix", "lookup", "model", "probe"]
    for row in found["distribution"]:
        assert set(row) == {"drafter", "samples", "tv", "bound", "ok"}
        assert row["samples"] == 100
        assert row["ok"] is True
        assert 0 <= row["tv"] <= row["bound"] < 0.5
    assert found["negative_control_caught"] is True
    assert found["ok"] is True
    assert done.err.splitlines() == [
        "checking: greedy text (2)",
        "checking: text of a seed (2)",
        *(f"checking: distribution, {name} (100)" for name in ("suffix", "lookup", "model", "probe")),
        "checking: negative control (100)",
    ]


def test_a_seed_repeats_the_samples(check):
    one, again, other = (
        check(*FEW, "--json", "-q", "--drafter", "model", "--seed", seed).json["distribution"] for seed in "113"
    )
    assert one == again
    assert one != other


def test_the_table_is_for_people(check):
    done = check(*FEW, "--drafter", "lookup", "-q")
    assert done.code == 0
    assert done.err == ""
    first, *lines = done.out.splitlines()
    assert first == "chat.gguf: all checks hold"
    results = {line[:22].strip(): line[22:].split()[0] for line in lines if line and not line.startswith("check")}
    assert results == {
        "greedy text": "ok",
        "text of a seed": "ok",
        "distribution, lookup": "ok",
        "distribution, probe": "ok",
        "negative control": "caught",
    }


# ---- a broken loop is reported ------------------------------------------------------------------------------


def in_process(models: Models, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The command in this process, where faults can be planted: exit code and the object of --json."""
    arguments = ["-m", str(models.chat), "--draft", str(models.draft), "--threads", "1", "--ctx-size", "512"]
    code = command.main([*arguments, *FEW, "--json", "-q"], standalone_mode=False)
    return code, json.loads(capsys.readouterr().out)


def accept_all(drafted: Any, proposals: Any, targets: Any, rng: Any) -> Verdict:
    """No test at all."""
    return Verdict((*drafted, targets[len(drafted)].sample(rng)), len(drafted))


def bonus_after_rejection(drafted: Any, proposals: Any, targets: Any, rng: Any) -> Verdict:
    """After a rejection it appends a token from a row that is conditioned on the rejected token."""
    verdict = VERIFIERS["token"](drafted, proposals, targets, rng)
    if verdict.accepted == len(drafted):
        return verdict
    return Verdict((*verdict.tokens, targets[verdict.accepted + 1].sample(rng)), verdict.accepted)


def no_residual(drafted: Any, proposals: Any, targets: Any, rng: Any) -> Verdict:
    """Corrections come from the target, not from what the proposal leaves of it."""
    verdict = VERIFIERS["token"](drafted, proposals, targets, rng)
    return Verdict((*drafted[: verdict.accepted], targets[verdict.accepted].sample(rng)), verdict.accepted)


def test_a_verifier_that_accepts_all_exits_1(models, monkeypatch, capsys):
    monkeypatch.setitem(VERIFIERS, "block", accept_all)
    code, found = in_process(models, capsys)
    assert code == 1
    assert found["ok"] is False
    assert not any(row["ok"] for row in found["distribution"])
    assert found["greedy"]["unexplained"] == found["seed"]["unexplained"] == 0  # they do not use that rule


@pytest.mark.parametrize("mutant", [bonus_after_rejection, no_residual])
def test_a_biased_verifier_fails_its_distribution(pair, monkeypatch, mutant):
    setting = law.choose_setting(pair, 3)
    assert law.check_source(pair, setting, law.PROBE, 1000, 3, 0, silent).ok
    monkeypatch.setitem(VERIFIERS, "block", mutant)
    assert not law.check_source(pair, setting, law.PROBE, 1000, 3, 0, silent).ok


def wrong_row(self: Generation, draft: Any, rows: Any, timing: Any) -> Any:
    """Reads the row before the right one."""
    return COMMIT(self, draft, np.roll(rows, 1, axis=0), timing)


def forgotten_bonus(drafted: Any, winners: Any) -> Verdict:
    """Where all was accepted, the last row's winner is dropped for the first one's."""
    verdict = generation_verify_greedy(drafted, winners)
    return verdict if verdict.accepted < len(drafted) else Verdict((*drafted, winners[0]), len(drafted))


COMMIT = Generation.commit
generation_verify_greedy = generation.verify_greedy


def test_a_loop_that_reads_a_wrong_row_exits_1(models, monkeypatch, capsys):
    monkeypatch.setattr(Generation, "commit", wrong_row)
    code, found = in_process(models, capsys)
    assert code == 1
    assert found["ok"] is False
    assert found["greedy"]["unexplained"] == found["seed"]["unexplained"] == 2


def test_a_greedy_rule_that_is_wrong_is_not_explained(pair, monkeypatch):
    prompts = built_in(pair, 2)
    monkeypatch.setattr(generation, "verify_greedy", forgotten_bonus)
    found = identity.check_greedy(pair, prompts, 16, 3, silent)
    assert found.unexplained > 0
    assert not found.ok
    assert found.max_delta < 0.1  # and it is no matter of arithmetic


def test_a_seed_rule_that_is_wrong_is_not_explained(pair, monkeypatch):
    prompts = built_in(pair, 2)
    monkeypatch.setattr(
        generation, "verify_seed", lambda drafted, targets, choose: Verdict((*drafted, choose(targets[0], 0)), 0)
    )
    assert not identity.check_seed(pair, prompts, 16, 3, 0, silent).ok


def test_a_control_that_is_not_caught_fails_the_whole(pair, monkeypatch):
    setting = law.choose_setting(pair, 3)
    assert not law.check_control(pair, setting, 100, 3, 0, silent).ok
    monkeypatch.setattr(law, "AcceptAll", Generation)  # a control without a fault
    missed = law.check_control(pair, setting, 100, 3, 0, silent)
    assert missed.ok
    whole = Report(nothing_forked(), (), missed, nothing_forked())
    assert not whole.negative_control_caught
    assert not whole.ok


def nothing_forked() -> report.IdentityResult:
    return report.IdentityResult(1, (), {})


def test_a_drafter_that_never_drafts_does_not_pass(models, monkeypatch, capsys):
    monkeypatch.setattr(LookupDrafter, "draft", lambda *_: NO_DRAFT)
    arguments = ["-m", str(models.chat), "--drafter", "lookup", "--threads", "1", "--ctx-size", "512", *FEW]
    assert command.main([*arguments, "--json"], standalone_mode=False) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["distribution"][0] == {
        "drafter": "lookup", "samples": 20, "tv": None, "bound": None, "ok": False,
    }  # fmt: skip
    assert "lookup never drafted: what is sampled with it was not checked" in shown.err
    assert command.main([*arguments, "-q"], standalone_mode=False) == 1
    assert "never drafted in 20 samples, so nothing was checked" in capsys.readouterr().out


# ---- how it counts ------------------------------------------------------------------------------------------


def test_a_text_that_ends_elsewhere_is_a_fork(pair):
    prompt = built_in(pair, 1)[0].ids
    plain = identity._complete(pair, built_in(pair, 1)[0], temperature=0.0, max_tokens=8, draft_max=0)
    ended = identity._Text(plain.tokens[:5], ((4, 4), (4, 4)), 3)
    for one, other in ((plain, ended), (ended, plain)):
        fork = identity._first_fork(pair.target, prompt, one, other, greedy_choice)
        assert fork is not None
        assert fork.position == 5
        assert not fork.explained
        assert {pair.target.vocab.is_eog(fork.plain), pair.target.vocab.is_eog(fork.other)} == {True, False}
    assert identity._first_fork(pair.target, prompt, plain, plain, greedy_choice) is None


def fork(explained: bool, delta: float) -> Any:
    return identity.Fork(position=0, width=4, plain=1, other=2, gap_at_one=delta, gap_at_width=0.0, explained=explained)


def test_a_prompt_counts_once_and_as_its_worst_fork():
    forks = (
        report.PromptFork("a", "lookup", fork(True, 0.25)),
        report.PromptFork("a", "model", fork(False, 0.5)),
        report.PromptFork("b", "lookup", fork(True, 0.125)),
    )
    found = report.IdentityResult(3, forks, {})
    assert (found.identical, found.explained, found.unexplained) == (1, 1, 1)
    assert found.max_delta == 0.5
    assert not found.ok


def test_sources_that_share_a_fork_share_its_line():
    same, other = fork(True, 0.25), fork(False, 0.5)
    forks = (
        report.PromptFork("a", "suffix", same),
        report.PromptFork("a", "lookup", same),
        report.PromptFork("a", "model", other),
    )
    one, two = cli_verify._forks("greedy", report.IdentityResult(1, forks, {}))
    assert one.startswith("greedy, a, suffix lookup: token 1 is 2, plain 1; ")
    assert one.endswith(": explained")
    assert two.startswith("greedy, a, model: ")
    assert two.endswith(": NOT EXPLAINED")


def test_outcomes_that_end_have_their_place_in_the_law(tmp_path):
    """A model whose text may end after any token: shorter outcomes are counted, and expected."""
    path = write_tiny(tmp_path / "ends.gguf", end_gain=6.0)
    with edgespec.load(path, ctx_size=256, threads=1) as llm:
        setting = law.choose_setting(llm, 3)
        assert sum(setting.law.values()) == pytest.approx(1)
        assert {len(outcome) for outcome in setting.law} > {law.LENGTH}
        for source in ("lookup", law.PROBE):
            assert law.check_source(llm, setting, source, 300, 3, 0, silent).ok


def test_the_probe_is_always_far_from_the_target():
    for probs in ([1 / 3] * 3, [0.98, 0.01, 0.01], [0.5, 0.5], [0.4, 0.35, 0.25]):
        target = Distribution(np.arange(len(probs)), np.array(probs))
        assert law._contrary(target).excess(target) >= 0.3 - 1e-12


# ---- prompts and bad input ----------------------------------------------------------------------------------


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_prompts_of_a_file(check, tmp_path):
    messages = '{"messages": [{"role": "user", "content": "And back"}]}'
    path = write(tmp_path / "mine.jsonl", '{"prompt": "Count to three"}', "", messages, '{"turns": ["One", "Two"]}')
    few = ("-n", "8", "--samples", "100", "--drafter", "lookup", "--json", "--prompts-file", path)
    assert check(*few).json["greedy"]["prompts"] == 3  # of turns the first
    assert check(*few, "--prompts", "1").json["seed"]["prompts"] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1"),
        ('{"text": "x"}', "no prompt"),
        ('{"prompt": "x", "messages": []}', "prompt and messages"),
        ('{"prompt": " "}', "line 1"),
        ('{"messages": [1]}', "line 1"),
        ('{"messages": [{"role": "king", "content": "x"}]}', "line 1: messages.*role must be one of"),
        ("", "no prompts"),
    ],
)
def test_a_bad_line_is_named(pair, tmp_path, line, message):
    with pytest.raises(BadRequestError, match=message):
        encoded(pair, read_file(write(tmp_path / "bad.jsonl", line)))


def test_a_prompt_that_is_too_long_is_named(pair, tmp_path):
    path = write(tmp_path / "long.jsonl", json.dumps({"prompt": "word " * 600}))
    with pytest.raises(ContextFullError, match=r"prompt long-1 has \d+ tokens, too many for the context of 512"):
        encoded(pair, read_file(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--samples", "99"), "samples is 99; it must be a whole number from 100"),
        (("--prompts", "0"), "prompts is 0; it must be a whole number from 1"),
        (("-n", "1"), "max tokens is 1; it must be a whole number from 2"),
        (("--draft-max", "0"), "draft max is 0; it must be a whole number from 1"),
        (("--draft-max", "32"), "draft max is 32; it must be a whole number from 1 to 31"),
        (("--seed", "-1"), "seed is -1"),
        (("--drafter", "none"), "nothing to verify: no drafter was asked for"),
        (("--prompts-file", "/no/such/file"), "cannot read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_options_are_refused(models, arguments, message):
    always = ["-m", str(models.chat), "--threads", "1", "--ctx-size", "512", "-q"]
    with pytest.raises(BadRequestError, match=message):
        command.main([*always, *arguments], standalone_mode=False)


def test_a_bad_prompts_file_exits_2_with_one_line(check, tmp_path):
    done = check("--prompts-file", tmp_path / "missing.jsonl", "-q")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("edgespec: cannot read ")
    assert done.err.count("\n") == 1


def test_a_model_that_cannot_roll_back_has_nothing_to_verify(tmp_path):
    path = write_tiny(tmp_path / "mamba.gguf", arch="mamba")
    with (
        edgespec.load(path, ctx_size=256, threads=1) as llm,
        pytest.raises(EdgeSpecError, match="nothing to verify: speculation is off"),
    ):
        run_checks(llm, built_in(llm, 1), OPTIONS, silent)


# ---- a real model -------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.skipif(FOUND is None, reason="no starter model; `edgespec pull starter`")
def test_the_starter_model_verifies(cli):
    fixed = ("--threads", "1", "--buffers", "auto", "--flash-attn", "off", "--gpu-layers", "0")  # nothing to measure
    command_line = [*EDGESPEC, "verify", "-m", str(FOUND), "--ctx-size", "1024", *fixed, "--json"]
    done = cli.run([*command_line, "--prompts", "2", "-n", "16", "--samples", "100", "--drafter", "lookup"])
    assert done.code == 0, done.out + done.err
    found = done.json
    assert found["ok"] is True
    assert found["greedy"]["prompts"] == found["seed"]["prompts"] == 2
    assert [row["drafter"] for row in found["distribution"]] == ["lookup", "probe"]
