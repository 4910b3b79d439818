"""Options that several commands share, as decorators, and what they load."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..config import NO_DRAFT
from ..errors import BadRequestError
from ..text import sanitize

if TYPE_CHECKING:
    from ..api import LLM
    from ..engine.protocol import LoadSpec

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}  # of every command

F = TypeVar("F", bound=Callable[..., Any])


def given(name: str) -> bool:
    """True for an option of the running command that stood on the command line: others are mere defaults."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _fitting_draft(command: F) -> F:
    """With another model than the configured one, the configured draft gives way: it was chosen for that one."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        usual = click.get_current_context().lookup_default("model")
        other = given("model") and options["model"] != usual
        if other and not given("draft") and options["draft"] not in NO_DRAFT:
            if not options["quiet"]:
                click.echo(f"draft {sanitize(options['draft'])} is left out: it is set for another model", err=True)
            options["draft"] = "auto"
        return command(*arguments, **options)

    return cast(F, run)


def _stack(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _clear_suffix_history(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from ..drafters.suffix_history import clear_history

        files = clear_history()
        click.echo(f"suffix history: {files} file{'' if files == 1 else 's'} deleted", err=True)
        ctx.exit()


_SETTINGS = {
    "threads": click.option(
        "--threads", type=int, metavar="N", help="Default: as many as are fastest here, measured once."
    ),
    "gpu_layers": click.option("--gpu-layers", type=int, metavar="N", help="Layers of the target on the GPU; -1: all."),
    "draft_gpu_layers": click.option(
        "--draft-gpu-layers", type=int, metavar="N", help="Layers of the draft on the GPU."
    ),
    "kv_type": click.option(
        "--kv-type", default="f16", show_default=True, metavar="TYPE", help="f32, f16, bf16, q8_0, q4_0, ..."
    ),
    "buffers": click.option("--buffers", metavar="auto|repack|none", help="Weight layout; default: the fastest here."),
    "flash_attn": click.option(
        "--flash-attn", default="auto", show_default=True, metavar="auto|on|off", help="auto: the faster."
    ),
}
SETTINGS_NAMES = tuple(_SETTINGS)
ALONE_NAMES = tuple(name for name in _SETTINGS if name != "draft_gpu_layers")  # of a model without a draft

# How models are loaded, whichever they are.
settings_options = _stack(*_SETTINGS.values())
alone_options = _stack(*(_SETTINGS[name] for name in ALONE_NAMES))

model_options = _stack(
    click.option("-m", "--model", metavar="NAME|PATH", help="The model; default: the starter model."),
    click.option("--draft", default="auto", show_default=True, metavar="NAME|PATH|none|auto", help="The draft model."),
    click.option(
        "--drafter",
        default="auto",
        show_default=True,
        metavar="auto|none|LIST",
        help="Draft sources; a comma list such as suffix,lookup.",
    ),
    click.option(
        "--heads",
        default="auto",
        show_default=True,
        metavar="PATH|auto|none",
        help="Draft heads of the model; auto: those registered for it.",
    ),
    click.option("--no-tuned", is_flag=True, help="Use the files themselves, not copies that `edgespec tune` made."),
    click.option("--ctx-size", type=int, metavar="N", help="Tokens of context; default: what model and memory allow."),
    settings_options,
    _fitting_draft,
)

# Apart: a command that measures or checks must neither read nor keep a user's replies.
history_options = _stack(
    click.option(
        "--suffix-history/--no-suffix-history",
        help="Keep replies on disk, for the suffix drafter to draw on.",
    ),
    click.option(
        "--clear-suffix-history",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_clear_suffix_history,
        help="Delete what --suffix-history kept, and exit.",
    ),
)

sampling_options = _stack(
    click.option("--temperature", type=float, default=0.8, show_default=True, help="0: greedy."),
    click.option("--top-k", type=int, default=40, show_default=True, help="0: off."),
    click.option("--top-p", type=float, default=0.95, show_default=True, help="1: off."),
    click.option("--min-p", type=float, default=0.05, show_default=True, help="0: off."),
    click.option("--typical", type=float, default=1.0, show_default=True, help="Locally typical mass; 1: off."),
    click.option("--repeat-penalty", type=float, default=1.0, show_default=True, help="1: off."),
    click.option("--frequency-penalty", type=float, default=0.0, show_default=True, help="0: off."),
    click.option("--presence-penalty", type=float, default=0.0, show_default=True, help="0: off."),
    click.option("--logit-bias", multiple=True, metavar="ID=BIAS", help="Add BIAS to a token's logit; -inf bans it."),
    click.option("--grammar", metavar="FILE", help="GBNF grammar that the output follows."),
    click.option("--json-schema", metavar="FILE", help="JSON schema that the output follows."),
    click.option("--seed", type=int, metavar="N", help="Repeat a text, whatever drafts; means --verify seed."),
    click.option(
        "--verify", metavar="block|token|seed", help="Acceptance rule; default: seed if --seed is given, else block."
    ),
)


def load_model(options: Mapping[str, Any], **more: Any) -> LLM:
    """The models that `model_options` chose, with a progress bar where someone sees it. more: for edgespec.load.

    Unless quiet, a line on standard error comes before anything slow.
    """
    from ..loading import load
    from .progress import loading

    same = ("draft", "drafter", "heads", "ctx_size", *SETTINGS_NAMES)
    announce = None if options["quiet"] else lambda line: click.echo(line, err=True)
    with loading(show=not options["quiet"] and sys.stderr.isatty()) as progress:
        chosen = {name: options[name] for name in same} | {"tuned": not options["no_tuned"]} | more
        llm = load(options["model"], progress=progress, announce=announce, **chosen)
    if announce is not None:
        for note in llm.notes:
            announce(note)
    return llm


def load_spec(options: Mapping[str, Any], **more: Any) -> LoadSpec:
    """The models that `model_options` chose, for an engine. more: further fields of it.

    Raises as models.names.resolve, and BadRequestError: here rather than in the engine's process.
    """
    from ..config import KEYS
    from ..engine.protocol import LoadSpec
    from ..models.names import resolve

    same = ("draft", "drafter", "ctx_size", *SETTINGS_NAMES)
    for name in same:
        if options[name] is not None:
            KEYS[name].check(options[name])
    model = None if options["model"] is None else str(resolve(options["model"]))
    chosen = {name: options[name] for name in (*same, "heads")}
    return LoadSpec(model=model, tuned=not options["no_tuned"], **chosen, **more)


def logit_bias(pairs: tuple[str, ...]) -> dict[int, float]:
    """{id: bias} from ID=BIAS texts."""
    bias = {}
    for pair in pairs:
        token, _, value = pair.partition("=")
        try:
            bias[int(token)] = float(value)
        except ValueError:
            raise BadRequestError(f"--logit-bias {pair!r} is not ID=BIAS, such as 42=-5 or 42=-inf") from None
    return bias


def text_file(option: str, path: str | None) -> str | None:
    """The text of a file that an option names."""
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadRequestError(f"cannot read {option} {path}: {why}") from error
