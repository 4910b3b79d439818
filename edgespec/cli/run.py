"""edgespec run: one prompt in, one answer out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, Cancelled, EdgeSpecError
from .json_text import json_text
from .options import (
    SETTINGS,
    given,
    history_options,
    load_model,
    logit_bias,
    model_options,
    sampling_options,
    text_file,
)
from .saving import Saving
from .suggested import suggested_sampling

if TYPE_CHECKING:
    from ..api import LLM, Stream


@click.command(context_settings=SETTINGS)
@click.argument("prompt", required=False)
@model_options
@history_options
@click.option("--draft-max", type=int, metavar="K", help="Tokens drafted per round; 0: plain decoding.")
@click.option("-n", "--max-tokens", type=int, metavar="N", help="Default: until the answer or the context ends.")
@sampling_options
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End the answer before TEXT. Repeatable.")
@click.option("-c", "--continue", "continue_", is_flag=True, help="Go on with the latest conversation.")
@click.option("--conversation", type=int, metavar="ID", help="Go on with this one; `edgespec history ls` lists them.")
@click.option("--save/--no-save", default=True, help="Save question and answer; default: --save.")
@click.option("--raw", is_flag=True, help="Complete the text instead of answering it (no chat template).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@click.option("--jsonl", is_flag=True, help="Print token and round events as JSON lines, then the object of --json.")
@click.option("--sources", is_flag=True, help="Colour and mark each token by who proposed it.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no statistics on standard error.")
def run(prompt: str | None, **options: Any) -> int:
    """Answer PROMPT. Piped standard input is added after it; `-` or no PROMPT: standard input alone.

    Only the answer goes to standard output. Exit codes: 0 ok, 1 error, 2 usage, 3 model not found,
    4 model unusable, 5 context full, 130 interrupted.
    """
    if options["as_json"] and options["jsonl"]:
        raise BadRequestError("give --json or --jsonl, not both")
    from ..options import check_options

    text = _prompt(prompt)
    request = _request(options)
    check_options(**request)
    saving = Saving(options)
    try:
        return _answer(text, request, options, saving)
    finally:
        saving.close()


def _answer(text: str, request: dict[str, Any], options: dict[str, Any], saving: Saving) -> int:
    quiet = options["quiet"]
    with _load(options, quiet=quiet) as llm:
        request |= suggested_sampling(options)
        raw = _is_raw(llm, options, saving, quiet=quiet)
        stream = llm.stream(text if raw else _messages(text, options, saving), **request)
        saving.begin(llm, text, options, raw=raw)
        failed = False
        try:
            with stream, _interruptible(stream):
                _write(stream, options, saving)
        except EdgeSpecError:
            failed = True
            raise
        finally:
            saving.end(stream.reply, failed=failed)
        reply = stream.reply
        if options["as_json"] or options["jsonl"]:
            click.echo(json_text({**reply.to_json(), "conversation": saving.number}))
        if not quiet:
            from .summary import summary

            click.echo(summary(reply), err=True)
        if reply.finish_reason == "cancelled":
            return Cancelled.exit_code
    return 0


def _prompt(prompt: str | None) -> str:
    """Prompt argument, blank line, standard input; as in a pipe."""
    piped = ""
    if prompt == "-" or not sys.stdin.isatty():
        try:
            piped = sys.stdin.buffer.read().decode("utf-8", "replace")
        except OSError as error:
            raise BadRequestError(f"cannot read standard input: {error.strerror}") from error
    given = "" if prompt in (None, "-") else str(prompt)
    text = f"{given}\n\n{piped}" if given and piped.strip() else given or piped
    if not text.strip():
        raise BadRequestError("the prompt is empty; give it as an argument or on standard input")
    return text


def _request(options: dict[str, Any]) -> dict[str, Any]:
    """Request options as the API takes them."""
    same = (
        "max_tokens", "draft_max", "temperature", "top_k", "top_p", "min_p", "typical", "repeat_penalty",
        "frequency_penalty", "presence_penalty", "seed", "verify", "stop",
    )  # fmt: skip
    return {
        **{name: options[name] for name in same},
        "logit_bias": logit_bias(options["logit_bias"]),
        "grammar": text_file("--grammar", options["grammar"]),
        "json_schema": text_file("--json-schema", options["json_schema"]),
    }


def _load(options: dict[str, Any], *, quiet: bool) -> LLM:
    llm = load_model(options, suffix_history=_suffix_history(options))
    if options["model"] is None and not quiet:
        click.echo(f"no model given: using the starter model, {llm.name} (choose another with -m)", err=True)
    if not quiet and sys.stderr.isatty():
        click.echo(f"{llm.name}: {llm.memory}", err=True)
    return llm


def _suffix_history(options: dict[str, Any]) -> bool:
    """As asked for; where it is a mere default, not without the drafter that it serves."""
    wanted: bool = options["suffix_history"]
    if given("suffix_history") or options["drafter"] == "auto":
        return wanted
    return wanted and "suffix" in {name.strip() for name in options["drafter"].split(",")}


def _is_raw(llm: LLM, options: dict[str, Any], saving: Saving, *, quiet: bool) -> bool:
    """Whether the text is completed as it is, without a chat template."""
    if not options["raw"] and llm.template is not None:
        return False
    if saving.conversation is not None:
        raise BadRequestError(f"{llm.name} has no chat template, so it continues no conversation; give another with -m")
    if not options["raw"] and not quiet:
        click.echo(f"{llm.name} has no chat template: completing the text as it is", err=True)
    if options["system"] is not None and given("system"):
        raise BadRequestError("--system needs a chat template; leave it out, or put it into the prompt")
    return True


def _messages(text: str, options: dict[str, Any], saving: Saving) -> list[dict[str, str]]:
    """System prompt, the turns so far, the question."""
    system = [] if options["system"] is None else [{"role": "system", "content": options["system"]}]
    return [*system, *saving.earlier, {"role": "user", "content": text}]


@contextmanager
def _interruptible(stream: Stream) -> Iterator[None]:
    """The first Ctrl+C ends the answer and keeps its text; the second ends the program."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        stream.cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _write(stream: Stream, options: dict[str, Any], saving: Saving) -> None:
    from .output import writer

    show = writer(options)
    for event in stream.events():
        saving.event(event)
        show.event(event)
    show.end()
