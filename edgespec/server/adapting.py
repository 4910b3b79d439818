"""What a request asks of the model's chat template: tools, thinking, other variables. What it cannot do is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..dialect import Dialect
from .errors import ApiError
from .reading import ALL_TEXT, Reading
from .schema import Wanted
from .tools import forced_call

_OURS = ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")
_CONSTRAINTS = ("response_format", "json_schema", "grammar", "text")


def adapted(wanted: Wanted, dialect: Dialect) -> Wanted:
    """A request for messages with its template's variables, its grammar, and how its answer is read.

    Raises ApiError with the field.
    """
    if not wanted.messages:
        return wanted
    options, variables = dict(wanted.options), _variables(wanted, dialect)
    calls = wanted.choice.kind != "none"
    if any(message.calls for message in wanted.messages) and not dialect.takes_tools:
        field = "messages" if "messages" in wanted.given else "input"
        raise _refused(field, "this model's template takes no tools, so it cannot show these calls")
    if calls:
        _check_tools(wanted, dialect)
        variables["tools"] = [tool.described for tool in wanted.tools]
    constrained = "grammar" in options or "json_schema" in options or wanted.choice.forced
    if wanted.choice.forced:
        assert dialect.form is not None
        named = [tool for tool in wanted.tools if wanted.choice.name in ("", tool.name)]
        options |= forced_call(named, dialect.form, several=wanted.several)
    if constrained and dialect.switch is not None:  # a grammar leaves no room for thoughts
        variables.setdefault(dialect.switch, False)
    if variables:
        options["template_kwargs"] = variables
    value = variables.get(dialect.switch or "")
    switched = value if isinstance(value, bool) else None
    reading = Reading(
        form=dialect.form if calls else None,
        names=frozenset(tool.name for tool in wanted.tools),
        thought=dialect.thought if wanted.apart else None,
        opened=switched in dialect.opens and not constrained,
        markers=dialect.markers if calls or wanted.apart else {},
    )
    return replace(wanted, options=options, reading=reading if wanted.apart or calls else ALL_TEXT)


def _check_tools(wanted: Wanted, dialect: Dialect) -> None:
    if not dialect.takes_tools:
        raise _refused("tools", "this model's template takes no tools; leave them out, or use another model")
    if dialect.form is None:
        raise _refused("tools", "this model writes its tool calls in a form that this server does not know")
    for name in _CONSTRAINTS:
        if name in wanted.given and ("grammar" in wanted.options or "json_schema" in wanted.options):
            raise _refused(name, f"{name} leaves no room for tool calls; leave it out, or set tool_choice to none")


def _variables(wanted: Wanted, dialect: Dialect) -> dict[str, Any]:
    """Of the template, but for tools."""
    variables = dict(wanted.variables)
    for name in variables:
        if name in _OURS or name not in dialect.variables:
            known = [known for known in dialect.variables if known == dialect.switch or known == "reasoning_effort"]
            hint = f"; it has {', '.join(known)}" if known else ""
            raise _refused("chat_template_kwargs", f"this model's template has no variable {name[:60]!r} to set{hint}")
    if wanted.effort is None:
        return variables
    field = "reasoning" if "reasoning" in wanted.given else "reasoning_effort"
    if wanted.effort == "none":
        if dialect.switch is not None:
            variables.setdefault(dialect.switch, False)
        elif dialect.thought is not None:
            raise _refused(field, f"{field} cannot be none: this model's template cannot turn it off")
    elif "reasoning_effort" in dialect.variables:
        variables.setdefault("reasoning_effort", wanted.effort)
    else:
        raise _refused(field, f"this model's template knows no {field} but none; leave it out")
    return variables


def _refused(field: str, why: str) -> ApiError:
    return ApiError(400, why, param=field, code="invalid_value")
