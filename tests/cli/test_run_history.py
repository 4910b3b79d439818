"""`edgespec run --suffix-history` keeps answers, --clear-suffix-history deletes them."""

from __future__ import annotations

from pathlib import Path

from edgespec_command import Cli

GREEDY = ("--temperature", "0", "-n", "24", "--draft-max", "3", "--drafter", "suffix", "--json", "-q")


def test_answers_are_kept_used_and_deleted(chat: Cli, tmp_path: Path) -> None:
    run = Cli({**chat.env, "EDGESPEC_HOME": str(tmp_path)}, chat.always)
    folder = tmp_path / "suffix"
    plain = run("Tell me more", *GREEDY)
    assert plain.code == 0, plain.err
    assert not folder.exists()
    first, second = (run("Tell me more", *GREEDY, "--suffix-history").json for _ in range(2))
    assert first["text"] == second["text"] == plain.json["text"]
    assert second["stats"]["rounds"] < first["stats"]["rounds"]
    assert len(list(folder.iterdir())) == 1
    cleared = run("--clear-suffix-history")
    assert (cleared.code, cleared.out, cleared.err) == (0, "", "suffix history: 1 file deleted\n")
    assert list(folder.iterdir()) == []
    assert run("--clear-suffix-history").err == "suffix history: 0 files deleted\n"


def test_it_is_refused_where_nothing_would_use_it(chat: Cli) -> None:
    refused = chat("Tell me more", "--drafter", "lookup", "--suffix-history")
    assert refused.code == 2
    assert refused.err.startswith("edgespec: the suffix history serves the suffix drafter; add suffix")
