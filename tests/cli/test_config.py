"""`edgespec config`, and what its file and variables change for other commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from edgespec_command import EDGESPEC, Cli, Models, Result

from edgespec.config import KEYS

SHORT = ("--ctx-size", "512", "--json", "hi")


def configure(cli: Cli, *words: str | Path) -> Result:
    return cli.here("config", *words)


def with_variables(cli: Cli, **variables: str) -> Cli:
    return Cli({**cli.env, **variables}, cli.always)


def tokens(result: Result) -> int:
    assert result.code == 0, result.err
    count = result.json["usage"]["completion_tokens"]
    assert isinstance(count, int)
    return count


def test_command_line_before_variable_before_file(own: Cli, models: Models) -> None:
    assert configure(own, "set", "max_tokens", "3").out == "max_tokens = 3\n"
    assert configure(own, "set", "model", models.chat).code == 0
    in_shell = with_variables(own, EDGESPEC_MAX_TOKENS="4")
    assert tokens(own(*SHORT)) == 3
    assert tokens(in_shell(*SHORT)) == 4
    assert tokens(in_shell("-n", "5", *SHORT)) == 5
    assert configure(own, "unset", "max_tokens").out == "max_tokens is unset\n"
    assert configure(own, "unset", "max_tokens").out == "max_tokens was not set\n"
    assert "max_tokens" not in Path(own.env["EDGESPEC_HOME"], "config.toml").read_text("utf-8")


def test_the_model_and_its_draft(own: Cli, models: Models) -> None:
    configure(own, "set", "model", models.chat)
    configure(own, "set", "draft", models.draft)
    configure(own, "set", "max_tokens", "4")
    mine = own(*SHORT)
    assert mine.json["model"] == "chat.gguf"
    assert "model" in mine.json["drafter"]
    other = own("-m", models.mismatched, *SHORT)  # which that draft does not fit
    assert other.code == 0, other.err
    assert other.json["drafter"] == "suffix,lookup"
    assert other.err.startswith(f"draft {models.draft} is left out: it is set for another model\n")
    assert own("-m", models.mismatched, "-q", *SHORT).err == ""
    asked = own("-m", models.mismatched, "--draft", models.draft, *SHORT)
    assert asked.code == 4
    assert own("-m", models.chat, *SHORT).json["drafter"] == mine.json["drafter"]


def test_what_does_not_fit_a_run_gives_way(own: Cli, models: Models) -> None:
    configure(own, "set", "suffix_history", "true")
    configure(own, "set", "system", "Be brief.")
    configure(own, "set", "max_tokens", "2")
    kept = Path(own.env["EDGESPEC_HOME"]) / "suffix"
    assert tokens(own("-m", models.chat, "--drafter", "none", *SHORT)) == 2
    assert tokens(own("-m", models.raw, "--no-suffix-history", *SHORT)) == 2
    assert tokens(own("-m", models.chat, "--raw", "--no-suffix-history", *SHORT)) == 2
    assert not kept.exists()
    long = own("-m", models.chat, *SHORT)
    assert kept.is_dir()
    configure(own, "unset", "system")
    short = own("-m", models.chat, *SHORT)
    assert long.json["usage"]["prompt_tokens"] > short.json["usage"]["prompt_tokens"]
    refused = own("-m", models.raw, "--system", "x", *SHORT)
    assert refused.code == 2


def test_a_relative_path_is_made_absolute(own: Cli, models: Models) -> None:
    done = own.run([*EDGESPEC, "config", "set", "model", models.chat.name], cwd=models.chat.parent)
    assert done.out == f"model = {models.chat}\n"
    assert configure(own, "set", "model", "smollm2-135m").out == "model = smollm2-135m\n"


def test_values_that_look_like_options(own: Cli) -> None:
    assert configure(own, "set", "gpu-layers", "-1").out == "gpu_layers = -1\n"
    assert configure(own, "set", "frequency_penalty", "-0.5").out == "frequency_penalty = -0.5\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "temprature", "1"), "unknown key 'temprature'; did you mean temperature?"),
        (("set", "temperature", "warm"), "temperature is 'warm'; it must be a number 0 or more"),
        (("set", "kv_type", "q3"), "kv type is 'q3'; choose one of f32, "),
        (("set", "suffix_history", "maybe"), "suffix_history is 'maybe'; it must be true or false"),
        (("set", "top_k"), "Missing argument 'VALUE'"),
        (("unset", "temprature"), "no key 'temprature' in "),
        (("mend",), "No such command 'mend'"),
    ],
)
def test_a_wrong_change_is_refused(own: Cli, words: tuple[str, ...], message: str) -> None:
    done = configure(own, *words)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(rf"edgespec: {re.escape(message)}[^\n]*\n", done.err)
    assert not Path(own.env["EDGESPEC_HOME"], "config.toml").exists()


def test_help_lists_the_keys(own: Cli) -> None:
    done = configure(own, "set", "--help")
    assert {line.split()[0] for line in done.out.splitlines() if line.strip()} >= set(KEYS)


def test_show_says_where_each_value_comes_from(own: Cli) -> None:
    configure(own, "set", "top_k", "7")
    in_shell = with_variables(own, EDGESPEC_SYSTEM="a\x1b[31m\nb", EDGESPEC_TOPK="1")
    done = configure(in_shell, "show")
    rows = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert rows["top_k"].split() == ["7", str(Path(own.env["EDGESPEC_HOME"]) / "config.toml")]
    assert rows["system"].split() == ["a", "b", "EDGESPEC_SYSTEM"]
    assert rows["top_p"].split() == ["0.95", "default"]
    assert rows["threads"].split() == ["-", "default"]
    assert done.err == "edgespec: EDGESPEC_TOPK: no key has this name, so it does nothing\n"
    values = {row["key"]: row for row in configure(own, "show", "--json").json["values"]}
    assert values["top_k"] == {"key": "top_k", "value": 7, "source": "file"}
    assert values["threads"]["value"] is None


def test_a_broken_file_stops_all_but_who_mends_it(own: Cli, models: Models) -> None:
    file = Path(own.env["EDGESPEC_HOME"]) / "config.toml"
    file.write_text("# mine\ntempature = 3\ntop_k = -4\n", "utf-8")
    for command in (["run", "hi"], ["show", models.chat], ["bench"]):
        done = own.here(*command)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"edgespec: {file}: unknown key 'tempature'; did you mean temperature?")
        assert done.err.count("\n") == 1
    assert own.here("run", "--help").code == 0
    assert own.here("run", "--", "--help").code == 2  # that is a prompt
    assert configure(own, "path").out == f"{file}\n"
    shown = configure(own, "show")
    assert (shown.code, shown.err.count("\n")) == (0, 2)
    assert configure(own, "unset", "tempature").code == 0
    assert configure(own, "set", "top_k", "4").code == 0
    assert file.read_text("utf-8") == "# mine\ntop_k = 4\n"
    assert own.here("show", models.chat).code == 0


def test_a_file_that_is_no_toml(own: Cli) -> None:
    file = Path(own.env["EDGESPEC_HOME"]) / "config.toml"
    file.write_text("top_k = 1\ntop_k 2\n", "utf-8")
    done = configure(own, "set", "top_k", "4")
    assert done.code == 2
    assert "line 2" in done.err
    assert file.read_text("utf-8") == "top_k = 1\ntop_k 2\n"
    assert configure(own, "show").code == 0


def test_a_wrong_variable_is_named(own: Cli) -> None:
    done = with_variables(own, EDGESPEC_THREADS="many").run([*EDGESPEC, "ls"])
    assert done.code == 2
    assert done.err == "edgespec: EDGESPEC_THREADS: threads is 'many'; it must be a whole number from 1 to 1024\n"


@pytest.mark.parametrize(
    ("color", "variables", "coloured"),
    [
        ("always", {}, True),
        ("never", {"FORCE_COLOR": ""}, False),
        ("always", {"NO_COLOR": "1"}, False),
        ("never", {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours(own: Cli, models: Models, color: str, variables: dict[str, str], coloured: bool) -> None:
    clean = {"NO_COLOR": "", "FORCE_COLOR": "", "EDGESPEC_COLOR": color}
    done = with_variables(own, **clean | variables)("-m", models.chat, "-n", "3", "--sources", "-q", "hi")
    assert done.code == 0
    assert ("\x1b[" in done.out) is coloured
