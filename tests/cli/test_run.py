"""`edgespec run`: what goes where, what each option does, what the numbers mean.

What it should print is worked out with the Python API. Only where a process of its own could make a difference there
is one: it takes most of a second.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

from edgespec import LLM, Reply
from edgespec.tiny_gguf import TinyVocab, write_tiny

GREEDY = ("--temperature", "0", "-n", "24")
SAMPLED = ("--draft-max", "3", "--seed", "11", "-n", "60")
STATS = {
    "rounds", "drafted", "accepted", "tau", "acceptance", "per_position", "per_source", "prompt_ms", "decode_ms",
    "draft_ms", "verify_ms", "tokens_per_s", "speedup_vs_plain", "plan", "mode", "why",
}  # fmt: skip
TIMES = {"prompt_ms", "decode_ms", "draft_ms", "verify_ms", "tokens_per_s", "speedup_vs_plain"}


def untimed(reply: dict[str, Any]) -> dict[str, Any]:
    """A --json object without what the clock decides."""
    same = {k: v for k, v in reply.items() if k != "conversation"}
    return {**same, "stats": {k: v for k, v in reply["stats"].items() if k not in TIMES}}


def ok(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


@pytest.fixture(scope="module")
def greedy(llm: LLM) -> Reply:
    """The greedy answer to "Tell me more", 24 tokens."""
    return answer(llm, "Tell me more")


def answer(llm: LLM, prompt: str, **options: Any) -> Reply:
    return llm.chat([{"role": "user", "content": prompt}], **{"temperature": 0, "max_tokens": 24, **options})


@pytest.fixture(scope="module")
def events(chat: Cli, models: Models) -> list[dict[str, Any]]:
    """The lines of a sampled run with both sources."""
    return ok(chat("Tell me more", *SAMPLED, "--draft", models.draft, "--jsonl")).lines


def test_only_the_answer_goes_to_stdout(chat, greedy):
    shown = ok(chat.process("Tell me more", *GREEDY))
    assert shown.out == greedy.text.removesuffix("\n") + "\n"
    assert re.fullmatch(r"\[chat\.gguf\] 24 tokens, [\d.]+ tokens/s, .*stopped at the length limit\n", shown.err)
    quiet = ok(chat.process("Tell me more", *GREEDY, "-q"))
    assert quiet.out == shown.out
    assert quiet.err == ""


@pytest.mark.parametrize(
    ("arguments", "stdin", "same_as"),
    [
        (("Sum up:",), b"one\ntwo\n", "Sum up:\n\none\ntwo\n"),
        (("-",), b"one\ntwo\n", "one\ntwo\n"),
        ((), "Grüße 日本 🙂".encode(), "Grüße 日本 🙂"),
        (("Sum up:",), b" \n", "Sum up:"),
    ],
    ids=["argument and pipe", "dash", "pipe alone", "argument and an empty pipe"],
)
def test_argument_and_pipe_make_one_prompt(chat, llm, arguments, stdin, same_as):
    piped = ok(chat(*arguments, *GREEDY, "--draft-max", "3", "--json", stdin=stdin)).json
    assert untimed(piped) == untimed(answer(llm, same_as, draft_max=3).to_json())


def test_a_process_reads_its_pipe_and_prints_utf8(chat, llm):
    piped = ok(chat.process("-", *GREEDY, "--draft-max", "3", "--json", stdin="Grüße 日本 🙂".encode())).json
    assert untimed(piped) == untimed(answer(llm, "Grüße 日本 🙂", draft_max=3).to_json())


def test_json_has_the_documented_keys(events):
    reply = events[-1]
    assert set(reply) == {"text", "model", "drafter", "seed", "finish_reason", "usage", "stats", "conversation"}
    assert set(reply["usage"]) == {"prompt_tokens", "completion_tokens"}
    assert set(reply["stats"]) == STATS
    assert set(reply["stats"]["plan"]) == {"widths"}
    assert (reply["model"], reply["drafter"], reply["finish_reason"]) == ("chat.gguf", "suffix,lookup,model", "length")
    assert reply["stats"]["speedup_vs_plain"] is None
    assert all(set(s) == {"rounds", "drafted", "accepted"} for s in reply["stats"]["per_source"].values())


def test_token_events_are_the_reply(events):
    *lines, reply = events
    tokens = [e for e in lines if e["type"] == "token"]
    assert "".join(e["text"] for e in tokens) == reply["text"]
    assert reply["usage"]["completion_tokens"] == len(tokens) == 60
    for event in tokens:
        assert set(event) == {"type", "text", "id", "source", "logprob", "round"}
        assert event["source"] in {"target", "model", "suffix", "lookup", "bonus"}
        assert event["logprob"] <= 0
    assert {"model", "bonus", "target"} <= {e["source"] for e in tokens}
    assert (tokens[0]["source"], tokens[0]["round"]) == ("target", 0)  # the prompt pass


def test_round_events_follow_their_tokens_and_agree_with_them(events):
    pending: list[dict[str, Any]] = []
    number = 0
    for event in events[:-1]:
        if event["type"] == "token":
            pending.append(event)
            if event["round"] == 0:
                pending.clear()
            continue
        number += 1
        assert event["round"] == number
        assert [e["round"] for e in pending] == [number] * len(pending)
        assert [e["id"] for e in pending] == event["emitted"]
        assert len(event["drafted"]) == event["k"] <= 3
        assert event["produced"] == event["accepted"] + 1
        assert [d["accepted"] for d in event["drafted"]] == [i < event["accepted"] for i in range(event["k"])]
        last = "bonus" if event["accepted"] == event["k"] > 0 else "target"
        expected = [event["source"]] * event["accepted"] + [last]
        assert [e["source"] for e in pending] == expected[: len(pending)]
        kept = [d["id"] for d in event["drafted"] if d["accepted"]]
        assert event["emitted"][: len(kept)] == kept[: len(event["emitted"])]
        assert all(0 < d["q"] <= 1 for d in event["drafted"])
        assert all(d["p"] is None or 0 <= d["p"] <= 1 for d in event["drafted"])
        pending.clear()
    assert number > 5
    assert not pending


def test_the_totals_are_those_of_the_rounds(events):
    rounds = [e for e in events[:-1] if e["type"] == "round"]
    stats = events[-1]["stats"]
    assert stats["mode"] == "speculative"
    assert stats["rounds"] == len(rounds)
    assert stats["drafted"] == sum(r["k"] for r in rounds)
    assert stats["accepted"] == sum(r["accepted"] for r in rounds)
    assert stats["tau"] == pytest.approx(sum(r["produced"] for r in rounds) / len(rounds))
    assert stats["acceptance"] == pytest.approx(stats["accepted"] / stats["drafted"])
    for i, share in enumerate(stats["per_position"]):
        drafted = [r for r in rounds if r["k"] > i]
        assert share == pytest.approx(sum(r["drafted"][i]["accepted"] for r in drafted) / len(drafted))
    assert len(stats["per_position"]) == max(r["k"] for r in rounds)
    assert stats["plan"]["widths"] == Counter(str(r["k"] + 1) for r in rounds)
    for name, source in stats["per_source"].items():
        own = [r for r in rounds if r["source"] == name and r["k"]]
        assert source == {
            "rounds": len(own),
            "drafted": sum(r["k"] for r in own),
            "accepted": sum(r["accepted"] for r in own),
        }
    for name in ("draft_ms", "verify_ms"):
        assert stats[name] == pytest.approx(sum(r[name] for r in rounds))
    spent = sum(r["draft_ms"] + r["verify_ms"] + r["other_ms"] for r in rounds)
    assert stats["decode_ms"] == pytest.approx(spent)
    assert stats["tokens_per_s"] == pytest.approx(1000 * 59 / spent)


@pytest.mark.parametrize("how", [("--drafter", "none"), ("--draft-max", "0")], ids=" ".join)
def test_plain_decoding_has_tau_one_and_the_same_greedy_text(chat, greedy, how):
    plain = ok(chat("Tell me more", *GREEDY, *how, "--json")).json
    stats = plain["stats"]
    assert plain["text"] == greedy.text
    assert (stats["mode"], stats["tau"], stats["acceptance"], stats["per_position"]) == ("plain", 1.0, None, [])
    assert (stats["rounds"], stats["drafted"]) == (23, 0)  # the prompt pass gave the first token
    assert stats["why"].startswith("speculation is off")


def test_jsonl_ends_with_the_object_of_json(chat, models, events):
    same = ok(chat("Tell me more", *SAMPLED, "--draft", models.draft, "--json")).json
    assert untimed(same) == untimed(events[-1])


@pytest.mark.parametrize(
    "how", [("--draft-max", "3"), ("--drafter", "none"), ("--draft-max", "3", "--verify", "block")], ids=" ".join
)
def test_a_seed_repeats(chat, how):
    one, again = (ok(chat("Tell me more", *how, "-n", "40", "--seed", "7", "--json")).json for _ in range(2))
    assert untimed(one) == untimed(again)


def test_a_seed_gives_one_text_whatever_drafts(chat, models):
    """A seed without --verify means seed-exact mode."""
    draft = ("--draft", models.draft, "--draft-max", "3")
    ways = [("--drafter", "none"), (), draft, (*draft, "--drafter", "model", "--verify", "seed")]
    replies = [ok(chat("Tell me more", "-n", "60", "--seed", "7", *way, "--json")).json for way in ways]
    assert len({reply["text"] for reply in replies}) == 1
    assert {reply["seed"] for reply in replies} == {7}
    assert replies[0]["stats"]["mode"] == "plain"
    assert all(reply["stats"]["accepted"] > 0 for reply in replies[2:])


def test_a_seed_with_another_rule_keeps_that_rule(chat, llm):
    for verify in ("block", "token"):
        shown = ok(chat("Tell me more", *SAMPLED, "--verify", verify, "--json")).json
        same = answer(llm, "Tell me more", temperature=0.8, max_tokens=60, seed=11, draft_max=3, verify=verify)
        assert shown["text"] == same.text
        assert shown["text"] != answer(llm, "Tell me more", temperature=0.8, max_tokens=60, seed=11).text


def test_a_seed_that_was_made_up_is_told_and_repeats_the_text(chat):
    shown = ok(chat("Tell me more", "-n", "40", "--verify", "seed", "--json"))
    seed = shown.json["seed"]
    assert f", seed {seed}, " in shown.err
    assert (
        ok(chat("Tell me more", "-n", "40", "--seed", str(seed), "--drafter", "none", "--json")).json["text"]
        == (shown.json["text"])
    )
    assert ok(chat("Tell me more", *GREEDY, "--json")).json["seed"] is None


def test_another_seed_or_none_gives_another_answer(llm):
    seeded = [answer(llm, "Tell me more", temperature=0.8, seed=seed).text for seed in (7, 7, 8)]
    assert seeded[0] == seeded[1] != seeded[2]
    assert len({answer(llm, "Tell me more", temperature=0.8).text for _ in range(5)}) == 5


def test_nothing_of_a_stop_string_leaks(chat, greedy):
    text = greedy.text
    later, sooner = text[14:17], text[8:12]
    cut = text[: min(text.index(later), text.index(sooner))]
    stops = ("--stop", later, "--stop", sooner, "--stop", "never there")
    *lines, reply = ok(chat("Tell me more", *GREEDY, *stops, "--jsonl")).lines
    assert reply["text"] == cut
    assert reply["finish_reason"] == "stop"
    assert "".join(e["text"] for e in lines if e["type"] == "token") == cut
    assert ok(chat("Tell me more", *GREEDY, *stops)).out == cut.removesuffix("\n") + "\n"


def test_max_tokens_counts_tokens(chat, greedy):
    one = ok(chat("Tell me more", "--temperature", "0", "-n", "1", "--json")).json
    assert one["usage"]["completion_tokens"] == 1
    assert greedy.text.startswith(one["text"].rstrip("\N{REPLACEMENT CHARACTER}"))
    assert (one["stats"]["rounds"], one["stats"]["tau"], one["stats"]["tokens_per_s"]) == (0, None, None)
    for tokens in ("1", "2"):  # the second one comes alone, too: there is no room for a guess before the end
        done = ok(chat("Tell me more", "--temperature", "0", "-n", tokens, "--json"))
        assert done.json["stats"]["why"] == "the answer ended before anything could be guessed"
    assert "] 1 token, plain: the answer ended" in ok(chat("Tell me more", "--temperature", "0", "-n", "1")).err


def test_raw_completes_the_bare_text(chat, llm):
    raw = ok(chat("and the", *GREEDY, "--raw", "--json")).json
    assert untimed(raw) == untimed(llm.complete("and the", temperature=0, max_tokens=24).to_json())
    assert raw["usage"]["prompt_tokens"] == len(llm.tokenize("and the"))


def test_a_model_without_a_template_completes_raw_and_says_so(cli, models, llm):
    bare = ok(cli("-m", models.raw, "--ctx-size", "512", "and the", *GREEDY))
    assert bare.out.rstrip("\n") == llm.complete("and the", temperature=0, max_tokens=24).text.rstrip("\n")
    assert bare.err.startswith("raw.gguf has no chat template")
    assert ok(cli("-m", models.raw, "and the", *GREEDY, "-q")).err == ""


def test_a_broken_template_leaves_raw_completion(cli, tmp_path):
    path = write_tiny(tmp_path / "broken.gguf", chat_template="{{ nothing(", end_gain=0.0)
    refused = cli("-m", path, "--ctx-size", "64", "hi")
    assert (refused.code, refused.out) == (4, "")
    assert re.fullmatch(
        r"edgespec: the chat template cannot be compiled: .*; complete plain text with --raw.*\n", refused.err
    )
    ok(cli("-m", path, "--ctx-size", "64", "hi", "-n", "2", "--raw"))


def test_a_system_prompt_needs_a_template(chat, cli, models, llm):
    told = ok(chat("and the", *GREEDY, "--json", "--system", "Be brief.")).json
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "and the"}]
    assert untimed(told) == untimed(llm.chat(messages, temperature=0, max_tokens=24).to_json())
    refused = cli("-m", models.raw, "-q", "and the", "--system", "Be brief.")
    assert refused.code == 2
    assert refused.err.startswith("edgespec: --system needs a chat template")


def test_the_output_follows_a_grammar(chat, models, tmp_path):
    (tmp_path / "g.gbnf").write_text('root ::= ("on" | "off" | "maybe")("," ("on" | "off")){3}', "utf-8")
    common = ("Choose", "--seed", "1", "--draft", models.draft, "--draft-max", "3", "-n", "60")
    reply = ok(chat(*common, "--grammar", tmp_path / "g.gbnf", "--json")).json
    assert re.fullmatch("(on|off|maybe)(,(on|off)){3}", reply["text"])
    assert reply["finish_reason"] == "stop"


def test_the_output_follows_a_json_schema(chat, models, tmp_path):
    schema = {
        "type": "object",
        "properties": {"fine": {"type": "boolean"}, "colour": {"enum": ["red", "blue"]}},
        "required": ["fine", "colour"],
        "additionalProperties": False,
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema), "utf-8")
    reply = ok(chat("Choose", "--json-schema", tmp_path / "schema.json", "--draft", models.draft, "--json")).json
    value = json.loads(reply["text"])
    assert set(value) == {"fine", "colour"}
    assert value["fine"] in (True, False)
    assert value["colour"] in ("red", "blue")


def test_logit_bias_forces_and_bans(chat):
    k = TinyVocab().id_of("k")
    bias = ("--logit-bias", f"{k}=1000", "--logit-bias", f"{k + 1}=900")
    assert ok(chat("Tell me more", *GREEDY, *bias, "--json")).json["text"] == "k" * 24
    bias = ("--logit-bias", f"{k}=-inf", "--logit-bias", f"{k + 1}=900")
    assert ok(chat("Tell me more", *GREEDY, *bias, "--json")).json["text"] == "l" * 24


@pytest.mark.parametrize("verify", ["token", "block", "seed"])
def test_all_verifiers_answer(chat, models, verify):
    reply = ok(chat("Tell me more", *SAMPLED, "--draft", models.draft, "--verify", verify, "--json")).json
    assert reply["usage"]["completion_tokens"] == 60
    assert 0 < reply["stats"]["acceptance"] <= 1


def test_a_draft_model_alone_keeps_the_greedy_text(chat, models, greedy):
    alone = ("--draft", models.draft, "--drafter", "model", "--draft-max", "3", "--json")
    drafted = ok(chat("Tell me more", *GREEDY, *alone)).json
    assert drafted["text"] == greedy.text
    assert drafted["drafter"] == "model"
    assert set(drafted["stats"]["per_source"]) == {"model"}
    assert 0 < drafted["stats"]["acceptance"] < 1


def test_no_command_prints_help_and_help_lists_every_command(cli: Cli):
    shown = cli.run([*EDGESPEC, "--help"])
    assert shown.code == 0
    assert all(re.search(rf"^  {name} ", shown.out, re.MULTILINE) for name in ("run", "show", "pull"))
    assert re.fullmatch(r"edgespec, version \d+\.\d+\.\d+\n", cli.run([*EDGESPEC, "--version"]).out)


def test_the_model_may_have_any_name(cli, models, tmp_path):
    path = tmp_path / "b é 日 [red].gguf"
    path.write_bytes(models.chat.read_bytes())
    reply = ok(cli("-m", path, "--ctx-size", "64", "hi", "-n", "2", "--json")).json
    assert reply["model"] == path.name


def test_an_answer_may_fill_the_context(chat, models):
    reply = ok(chat("Tell me more", "--ctx-size", "64", "--draft", models.draft, "--json")).json
    assert reply["finish_reason"] == "length"
    assert sum(reply["usage"].values()) == 64
