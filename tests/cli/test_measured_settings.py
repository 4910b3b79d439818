"""Settings that are measured at the first load, as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgespec_command import EDGESPEC, Cli, Result

from edgespec.profile import SMALLEST
from edgespec.tiny_gguf import CHATML_TEMPLATE, TinyVocab, write_tiny


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a vocabulary so large that it is measured."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    write_tiny(path, vocab=TinyVocab(pad_to=70_000), quant="f16", end_gain=0.0, chat_template=CHATML_TEMPLATE)
    assert path.stat().st_size >= SMALLEST
    return path


def run(cli: Cli, path: Path, *options: str) -> Result:
    done = cli.run([*EDGESPEC, "run", "-m", path, "--ctx-size", "64", "-n", "2", "--draft-max", "0", *options, "hi"])
    assert done.code == 0, done.err
    return done


def shown(cli: Cli, path: Path) -> str:
    (line,) = [s for s in cli.run([*EDGESPEC, "show", path]).out.splitlines() if s.startswith("runs here")]
    return line.removeprefix("runs here").strip()


def test_measured_at_the_first_run_and_shown(own: Cli, large: Path) -> None:
    measuring = "measuring the best settings for large.gguf here (once)\n"
    assert shown(own, large) == "not measured yet: measured at the first run"
    assert own.run([*EDGESPEC, "show", large, "--json"]).json["profile"] is None
    first, second = run(own, large), run(own, large)
    assert first.err.startswith(measuring)
    assert measuring not in second.err
    profile = own.run([*EDGESPEC, "show", large, "--json"]).json["profile"]
    assert {"buffers", "flash_attn", "threads", "gpu_layers", "provisional", "defaults", "trials"} == set(profile)
    assert all(trial["short_ms"] > 0 for trial in profile["trials"] if not trial["error"])
    assert profile["defaults"]["long_ms"] > 0
    line = shown(own, large)
    assert line.startswith(f"with buffers {profile['buffers']}, flash attention {profile['flash_attn']}, ")
    assert f"{profile['threads']} thread" in line
    assert "ms a token behind 64 tokens" in line
    assert "the speed of llama.cpp's defaults" in line


def test_quiet_measures_too_and_says_nothing(own: Cli, large: Path) -> None:
    assert run(own, large, "-q", "--threads", "1", "--buffers", "none").err == ""
    folder = Path(own.env["EDGESPEC_HOME"]) / "cache" / "profiles"
    assert len(list(folder.iterdir())) == 1
    assert shown(own, large).startswith("not measured yet")  # that profile holds for these two options


def test_nothing_is_measured_where_all_is_given(own: Cli, large: Path) -> None:
    done = run(own, large, "--threads", "1", "--buffers", "none", "--flash-attn", "off", "--gpu-layers", "0")
    assert "measuring" not in done.err
    assert not (Path(own.env["EDGESPEC_HOME"]) / "cache" / "profiles").exists()


def test_a_small_file_runs_with_the_defaults(own: Cli, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "small.gguf", end_gain=0.0)
    assert "measuring" not in run(own, path).err
    assert shown(own, path) == "the defaults: files under 32.0 MB are not measured"


def test_bench_measures_what_is_left_open_and_says_what_it_ran_with(own: Cli, large: Path) -> None:
    options = ("--workload", "chat", "--prompts", "1", "-n", "4", "--mode", "lookup:2", "--json", "--threads", "1")
    done = own.run([*EDGESPEC, "bench", "-m", large, "--ctx-size", "512", "--buffers", "none", *options])
    assert done.code == 0, done.err
    assert done.err.startswith("measuring the best settings for large.gguf here (once)\n")
    settings = done.json["settings"]
    assert (settings["buffers"], settings["threads"]) == ("none", 1)
    assert settings["flash_attn"] in ("on", "off")
