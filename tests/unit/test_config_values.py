"""Defaults from file and environment: what counts, what is refused, and that a change keeps the rest of the file."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, command, context

from edgespec import config
from edgespec.cli.configured import defaults_of
from edgespec.config import KEYS, OTHERS, read, variable
from edgespec.config_file import config_file, put, read_file, remove
from edgespec.errors import BadRequestError, EdgeSpecError

# For each key: its value as TOML, as text and as Python, none of them the default; then TOML that is refused.
VALUES: dict[str, tuple[str, str, Any, tuple[str, ...]]] = {
    "model": ('"big.gguf"', "big.gguf", "big.gguf", ('""', "3", "true", '["a"]', '"a\\u0000b"')),
    "draft": ('"small.gguf"', "small.gguf", "small.gguf", ('" "', "0")),
    "drafter": ('"lookup"', "lookup", "lookup", ('"oracle"', '""', "1")),
    "ctx_size": ("512", "512", 512, ("0", "1.5", '"512"', "true", "99999999999")),
    "threads": ("3", "3", 3, ("0", "-1", "nan", "2000")),
    "gpu_layers": ("0", "0", 0, ("-2", '"all"')),
    "draft_gpu_layers": ("0", "0", 0, ("-2", '"all"')),
    "kv_type": ('"q8_0"', "q8_0", "q8_0", ('"q5_9"', "8")),
    "buffers": ('"none"', "none", "none", ('"some"', "false")),
    "flash_attn": ('"on"', "on", "on", ('"maybe"', "true")),
    "suffix_history": ("true", "true", True, ('"yes"', "1")),
    "draft_max": ("2", "2", 2, ("-1", "0.5")),
    "verify": ('"token"', "token", "token", ('"magic"', "0")),
    "max_tokens": ("7", "7", 7, ("0", '"many"')),
    "temperature": ("0.3", "0.3", 0.3, ("-0.1", "nan", "inf", '"warm"', "true", "2020-01-01")),
    "top_k": ("5", "5", 5, ("-1", "1.5")),
    "top_p": ("0.5", "0.5", 0.5, ("0.0", "1.1")),
    "min_p": ("0.1", "0.1", 0.1, ("-0.1", "2")),
    "typical": ("0.9", "0.9", 0.9, ("0", "nan")),
    "repeat_penalty": ("1.1", "1.1", 1.1, ("0.0", '"x"')),
    "frequency_penalty": ("-0.5", "-0.5", -0.5, ("200.0",)),
    "presence_penalty": ("0.5", "0.5", 0.5, ("-200.0",)),
    "save": ("false", "false", False, ('"no"', "0")),
    "system": ('"Be brief."', "Be brief.", "Be brief.", ('""', "3")),
    "theme": ('"nord"', "nord", "nord", ('""', "3")),
    "color": ('"never"', "never", "never", ('"red"', "true")),
}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file of a home of the test's own, and no variables."""
    for name in KEYS:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.setenv("EDGESPEC_HOME", str(tmp_path))
    return tmp_path / "config.toml"


def params(name: str, *arguments: str) -> dict[str, Any]:
    """What a command would run with, the config included."""
    parent = context("")
    parent.default_map = defaults_of(name, list(arguments))
    return command(name).make_context(name, list(arguments), parent=parent).params


def test_every_key_has_its_values_here() -> None:
    assert VALUES.keys() == KEYS.keys()


@pytest.mark.parametrize("name", KEYS)
def test_file_then_variable(name: str, file: Path) -> None:
    toml, text, value, _ = VALUES[name]
    file.write_text(f"{name} = {toml}\n", "utf-8")
    found = read({})
    assert not found.problems
    assert (found.settings[name].value, found.settings[name].source) == (value, "file")
    found = read({variable(name): text})
    assert (found.settings[name].value, found.settings[name].source) == (value, "environment")
    assert type(found.settings[name].value) is type(value)


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name in VALUES for bad in VALUES[name][3]])
def test_a_value_that_is_refused(name: str, bad: str, file: Path) -> None:
    file.write_text(f"{name} = {bad}\n", "utf-8")
    (problem,) = read({}).problems
    assert problem.startswith(f"{file}: ")
    assert "\n" not in problem
    with pytest.raises(BadRequestError):
        read({}).checked()


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if "run" in key.commands])
def test_every_key_reaches_run_and_the_command_line_wins(name: str, file: Path) -> None:
    toml, _, value, _ = VALUES[name]
    assert params("run", "hi")[name] != value
    file.write_text(f"{name} = {toml}\n", "utf-8")
    assert params("run", "hi")[name] == value
    option = next(p for p in command("run").params if p.name == name)
    if isinstance(value, bool):
        assert params("run", "hi", *(option.secondary_opts if value else option.opts))[name] is not value
    else:
        assert params("run", "hi", option.opts[-1], "1")[name] == type(value)(1)


def test_the_chat_takes_what_run_takes_and_its_theme(file: Path) -> None:
    file.write_text("".join(f"{key} = {VALUES[key][0]}\n" for key in KEYS if key != "color"), "utf-8")
    file.write_text(file.read_text("utf-8") + '[keys]\nnew = "f9"\n', "utf-8")
    found = params("chat")
    assert all(found[key] == VALUES[key][2] for key in KEYS if key != "color")
    assert not read({}).problems


@pytest.mark.parametrize("name", ["bench", "verify"])
def test_what_a_request_sets_is_not_for_bench_and_verify(name: str, file: Path) -> None:
    before = params(name)
    file.write_text("".join(f"{key} = {VALUES[key][0]}\n" for key in KEYS if key != "color"), "utf-8")
    after = params(name)
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {key for key in KEYS if name in KEYS[key].commands}
    assert changed >= {"model", "threads"}
    assert not changed & {"temperature", "max_tokens", "draft_max", "verify", "suffix_history"}


def test_load_and_stream_take_what_they_are_given(file: Path) -> None:
    from inspect import signature

    from edgespec.loading import load
    from edgespec.options import split_options

    file.write_text("".join(f"{key} = {VALUES[key][0]}\n" for key in KEYS), "utf-8")
    found = read({}).checked()
    signature(load).bind(**found.defaults("load"))
    split_options(found.defaults("stream"))
    assert len(found.defaults("load")) + len(found.defaults("stream")) == len(KEYS) - len(
        {"save", "system", "theme", "color"}
    )


@pytest.mark.parametrize(
    ("name", "hint"), [("temprature", "temperature"), ("top-k", "top_k"), ("Threads", "threads"), ("colour", "color")]
)
def test_an_unknown_key_names_the_nearest(name: str, hint: str, file: Path) -> None:
    file.write_text(f"{name} = 1\n", "utf-8")
    assert read({}).problems == (f"{file}: unknown key '{name}'; did you mean {hint}?",)


def test_a_key_like_no_other_gets_the_list(file: Path) -> None:
    file.write_text("[zzz]\n", "utf-8")
    assert read({}).problems == (f"{file}: unknown key 'zzz'; known keys: {', '.join(KEYS)}",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"top_k = \n", "not TOML: Invalid value (at line 1"),
        (b"top_k = 1\ntop_k = 2\n", "not TOML: Cannot overwrite"),
        (b"a = " + b"[" * 100_000, "not TOML: nested too deeply"),
        (b"\xff\xfe", "cannot be read: not UTF-8 text"),
        (b"#" * 1_000_001, "over 1 MB"),
    ],
)
def test_a_file_that_is_none(content: bytes, words: str, file: Path) -> None:
    file.write_bytes(content)
    (problem,) = read({}).problems
    assert words in problem
    with pytest.raises(BadRequestError, match=r"mend|remove"):
        put(file, "top_k", 3)
    assert file.read_bytes() == content


def test_a_folder_in_its_place(file: Path) -> None:
    file.mkdir()
    assert read({}).problems == (f"{file}: not a file; remove it",)


def test_no_file_and_an_empty_variable_are_nothing() -> None:
    found = read({"EDGESPEC_TOP_K": ""})
    assert (found.settings, found.problems, found.strangers) == ({}, (), ())


def test_variables_that_mean_nothing_are_told_and_no_error() -> None:
    found = read({"EDGESPEC_TOPK": "3", "EDGESPEC_HOME": "x", "OTHER": "y"}).checked()
    assert found.strangers == ("EDGESPEC_TOPK",)


def test_all_our_variables_are_known() -> None:
    files = [p for folder in ("edgespec", "models", "tui", "tests") for p in (ROOT / folder).rglob("*.py")]
    used = {name for p in files for name in re.findall(r'environ(?:\.get\(|\[)"(EDGESPEC_\w+)"', p.read_text("utf-8"))}
    assert used == set(OTHERS)


def test_several_problems_are_one_line(file: Path) -> None:
    file.write_text("top_k = -1\nspeed = 3\n", "utf-8")
    with pytest.raises(BadRequestError, match=r"top_k is -1; .* \(1 more: `edgespec config show`\)$"):
        read({}).checked()


@pytest.mark.parametrize(
    ("toml", "environ", "draft"),
    [
        ('model = "a"\ndraft = "b"', {}, "b"),
        ('model = "a"\ndraft = "b"', {"EDGESPEC_MODEL": "c"}, None),
        ('draft = "none"', {"EDGESPEC_MODEL": "c"}, "none"),
        ('model = "a"', {"EDGESPEC_DRAFT": "b"}, "b"),
        ('draft = "b"', {"EDGESPEC_MODEL": "c", "EDGESPEC_DRAFT": "d"}, "d"),
    ],
)
def test_a_draft_goes_with_its_model(toml: str, environ: dict[str, str], draft: str | None, file: Path) -> None:
    file.write_text(toml, "utf-8")
    assert read(environ).defaults("run").get("draft") == draft


def test_a_change_keeps_comments_order_and_the_rest(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf# mine\r\ntop_k = 20 # few\r\n\r\n# warm\r\ntemperature = 1.0\r\n")
    put(file, "top_k", 30)
    put(file, "system", 'Say "hi"\n')
    assert remove(file, "temperature")
    assert not remove(file, "temperature")
    assert file.read_text("utf-8").startswith("# mine\ntop_k = 30 # few\n\n# warm\n")
    assert read_file(file) == {"top_k": 30, "system": 'Say "hi"\n'}
    assert [p.name for p in file.parent.iterdir()] == ["config.toml"]


def test_a_link_stays_a_link_and_a_mode_stays(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "edgespec.toml"
    real.parent.mkdir()
    real.write_text("top_k = 1\n", "utf-8")
    real.chmod(0o600)
    file.symlink_to(real)
    put(file, "top_k", 2)
    assert file.is_symlink()
    assert read_file(real) == {"top_k": 2}
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a file where the folder should be")
    with pytest.raises(EdgeSpecError):
        put(tmp_path / "x" / "config.toml", "top_k", 2)


def test_without_a_home_it_lies_where_the_platform_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EDGESPEC_HOME")
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name, appauthor: str(tmp_path / name))
    assert config_file() == tmp_path / "edgespec" / "config.toml"


def test_damaged_files_are_problems_and_never_crash(file: Path) -> None:
    whole = "".join(f"{name} = {VALUES[name][0]}\n" for name in VALUES).encode()
    draw = random.Random(0)
    refused = 0
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 6)):
            content[draw.randrange(len(content))] = draw.choice(b'[]{}="\\\n#.,x0\x00\xff')
        file.write_bytes(content)
        found = read({})
        refused += bool(found.problems)
        assert all("\n" not in problem for problem in found.problems)
        assert found.settings.keys() <= config.KEYS.keys()
    assert refused > 200
