"""A jinja2 sandbox whose work is bounded, for the chat templates that come inside model files.

jinja2's own sandbox keeps a template away from Python's internals but lets it run for ever or fill the memory. Here:

- every loop iteration, call, filter, test, operator, comparison, literal and output spends from a Budget that counts
  work and looks at the clock (budget.py);
- operations whose result could be larger than what went in are refused *before* they run (_FILTERS and _METHODS),
  and filters, methods and globals not named here do not exist;
- lists and mappings are weighed in their expanded form when built, so a small object that prints as gigabytes
  ([a, a] of [a, a] of ...) is refused while it is small;
- nothing is folded at compile time, when no budget runs.

So no single step handles more than MAX_TEXT characters or MAX_NODES values, and the clock is read between steps.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from string import Formatter
from types import BuiltinMethodType, GeneratorType, MethodType
from typing import Any

from jinja2 import Template, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Cycler, Joiner, Namespace

from .budget import MAX_BITS, MAX_PARTS, TemplateLimitError, checked, each, fits, spend, text_of, weigh

MAX_SOURCE = 200_000  # characters of a template


class TemplateRaised(TemplateError):
    """The template called raise_exception."""


def render_bounded(template: Template, variables: Mapping[str, object]) -> str:
    """Return the rendered text, giving up once it is larger than MAX_TEXT."""
    parts, size = [], 0
    for part in template.generate(variables):
        parts.append(part)
        size += len(part)
        fits(size)
    return "".join(parts)


def concat_checked(parts: tuple[object, ...]) -> str:
    texts = [text_of(part) for part in parts]
    fits(sum(map(len, texts)))
    text = "".join(texts)
    spend(len(text))
    return text


@pass_context
def _finalize(context: Context, value: object) -> str:
    text = text_of(value)
    spend(len(text) + 1)
    return text


def variables_of(environment: TemplateEnvironment, source: str) -> frozenset[str]:
    """Names that a template looks up."""
    return frozenset(name.name for name in environment.parse(source).find_all(nodes.Name) if name.ctx == "load")


# What could grow: a check that runs first, by filter or method name -----------------------------------------------


def _width(value: Any, width: Any = 80, *_: Any, **__: Any) -> None:
    fits(int(width))


def _indent(value: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    text = text_of(value)
    fits(len(text), MAX_PARTS)
    fits((text.count("\n") + 2) * (len(width) if isinstance(width, str) else int(width)) + len(text))


def _replace(value: Any, old: Any, new: Any, *_: Any, **__: Any) -> None:
    text = text_of(value)
    fits(len(text) + text.count(text_of(old)) * len(text_of(new)))


def _join(value: Any, separator: Any = "", *_: Any, **__: Any) -> None:
    _parts(value)
    items = list(value)
    fits(weigh(items) + len(items) * len(text_of(separator)))


def _method_join(separator: str, items: Any) -> None:
    _join(items, separator)


def _parts(value: Any, *_: Any, **__: Any) -> None:
    if isinstance(value, str):
        fits(len(value), MAX_PARTS)


def _strip(value: Any, chars: Any = None, *_: Any) -> None:
    fits(len(chars or ""), 1000)  # str.strip looks for every character of one in the other


def _round(value: Any, precision: Any = 0, *_: Any, **__: Any) -> None:
    fits(abs(int(precision)), 15)


def _batch(value: Any, count: Any, *_: Any, **__: Any) -> None:
    _parts(value)
    fits(int(count), 10_000)


def _percent(value: Any, *args: Any, **kwargs: Any) -> None:
    """Refuse field widths that are huge or computed; the worst case prints all arguments in every field."""
    text = text_of(value)
    if re.search(r"%\([^()]*\(|%(?:\([^()]*\))?[#0\- +]*(?:\d{5}|\d*\*|\d*\.(?:\d{5}|\*))", text):
        raise TemplateLimitError("it formats a field that is too wide")
    fits(len(text) + text.count("%") * (9999 + weigh((args, kwargs))))


def _braces(text: str, args: object, kwargs: object) -> None:
    """Refuse computed or huge widths in str.format; the worst case prints the repr of all arguments in every field."""
    for _, _, spec, _ in Formatter().parse(text):
        if spec and ("{" in spec or re.search(r"\d{5}", spec)):
            raise TemplateLimitError("it formats a field that is too wide")
    fits(len(text) + text.count("{") * (9999 + 10 * weigh((args, kwargs))))


class _Format:
    """The str.format of a pattern in a template, as jinja2's sandbox runs it."""

    def __init__(self, pattern: str, safe: Callable[..., str]) -> None:
        self.pattern, self.safe = pattern, safe

    def __call__(self, *args: object, **kwargs: object) -> str:
        return self.safe(*args, **kwargs)


# Filters and methods that templates may use, with the check that runs first ---------------------------------------


def _allow(names: str, check: Callable[..., None] | None = None) -> dict[str, Callable[..., None] | None]:
    return dict.fromkeys(names.split(), check)


_FILTERS = (
    _allow("abs attr capitalize count d default first float int items last length lower reverse upper")
    | _allow("dictsort groupby list map max min reject rejectattr select selectattr sort sum title", _parts)
    | _allow("unique wordcount", _parts)
    | {"batch": _batch, "center": _width, "format": _percent, "indent": _indent, "join": _join, "replace": _replace}
    | {"round": _round, "slice": _batch, "trim": _strip, "truncate": _width}
)
_METHODS: dict[type, dict[str, Callable[..., None] | None]] = {
    str: _allow("capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower")
    | _allow("isnumeric isspace istitle isupper lower partition removeprefix removesuffix rfind rindex rpartition")
    | _allow("startswith swapcase title upper")
    | _allow("split rsplit splitlines", _parts)
    | _allow("strip lstrip rstrip", _strip)
    | _allow("center ljust rjust zfill", _width)
    | {"join": _method_join, "replace": _replace},
    dict: _allow("copy get items keys values"),
    list: _allow("copy count index"),
    tuple: _allow("count index"),
    LoopContext: _allow("changed cycle"),
    Cycler: _allow("next reset"),
}


def _materialized(value: Any) -> Any:
    """Return a generator's values as a list, since a check would use it up; anything else as it is."""
    return checked(list(each(value))) if isinstance(value, GeneratorType) else value


def _spending(function: Callable[..., Any], check: Callable[..., None] | None) -> Callable[..., Any]:
    """Wrap a filter or test: check sizes first, then run it and spend what it made."""
    context_args = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def spending(*args: Any, **kwargs: Any) -> Any:
        spend(1)
        args = tuple(_materialized(arg) for arg in args)
        if check is not None:
            check(*args[context_args:], **kwargs)
        return checked(function(*args, **kwargs))

    return spending


# Our filters and globals ------------------------------------------------------------------------------------------


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Dump as Hugging Face's templates expect: no HTML escapes, non-ASCII kept."""
    weight = weigh(value)
    if indent is not None:
        fits(weight * (len(indent) if isinstance(indent, str) else int(indent)))
    for separator in separators or ():
        fits(weight * len(separator))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _escape(value: Any) -> str:
    return html.escape(text_of(value))


def _raise_exception(message: object = "") -> None:
    raise TemplateRaised(text_of(message))


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 200 or re.search(r"%[^A-Za-z%-]", pattern):
        raise TemplateLimitError("it formats a date in an unusual way")
    return datetime.now().strftime(pattern)


class _Namespace(Namespace):
    """jinja2's namespace, which prints no contents: nested ones could print as gigabytes."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Generation(Extension):
    """{% generation %}...{% endgeneration %} marks the assistant's text for training: render its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Code(CodeGenerator):
    """Emit what jinja2 would, with checks around expressions that the environment cannot intercept."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat_checked((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def _checked(self, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write("environment.checked(")
        visit(node, frame)
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self._checked(super().visit_Compare, node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._checked(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._checked(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._checked(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self._checked(super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)


_EACH = "each iteration"  # the space keeps templates from naming it


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of chat templates: jinja2 as Hugging Face sets it up, with bounded work."""

    code_generator_class = _Code
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])
    checked = staticmethod(checked)
    concat_checked = staticmethod(concat_checked)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            optimized=False,
            finalize=_finalize,
            cache_size=0,
        )
        known: Mapping[str, Callable[..., Any]] = FILTERS
        self.filters = {name: _spending(known[name], check) for name, check in _FILTERS.items()}
        ours = {"tojson": _tojson, "e": _escape, "escape": _escape, "safe": text_of, "string": text_of}
        self.filters |= {name: _spending(function, None) for name, function in ours.items()}
        self.filters[_EACH] = each
        known_tests: Mapping[str, Any] = TESTS
        self.tests = {name: _spending(function, None) for name, function in known_tests.items()}
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now, "namespace": _Namespace}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse, and make every loop spend; an iteration costs at least the literal text that it can output."""
        template = super()._parse(source, name, filename)
        for loop in template.find_all(nodes.For):
            cost = 1 + sum(len(data.data) for data in loop.find_all(nodes.TemplateData))
            loop.iter = nodes.Filter(loop.iter, _EACH, [nodes.Const(cost)], [], None, None, lineno=loop.lineno)
        return template

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Run an arithmetic operator after checking how large its result can be."""
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, (str, list, tuple)) and isinstance(times, int):
                    fits((len(value) if isinstance(value, str) else weigh(value)) * times)
        elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            fits(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            _percent(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            fits(left.bit_length() * right, MAX_BITS)
        return checked(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, a global, or a method that is known to be harmless."""
        if isinstance(__obj, (BuiltinMethodType, MethodType)):
            owner, name = __obj.__self__, __obj.__name__
            methods = next((methods for kind, methods in _METHODS.items() if isinstance(owner, kind)), {})
            if name not in methods:
                raise SecurityError(f"the method {name} of {type(owner).__name__} is not available to chat templates")
            args = tuple(_materialized(arg) for arg in args)
            check = methods[name]
            if check is not None:
                check(owner, *args, **{k: v for k, v in kwargs.items() if k not in ("_loop_vars", "_block_vars")})
            if isinstance(owner, str):
                spend(len(owner))
        elif isinstance(__obj, _Format):
            _braces(__obj.pattern, args, kwargs)
        elif not isinstance(__obj, (Macro, BlockReference, LoopContext, Joiner)) and not any(
            __obj is known for known in __self.globals.values()
        ):
            raise SecurityError(f"{type(__obj).__name__} objects cannot be called in chat templates")
        return checked(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return jinja2's safe str.format, with a check of the widths and the size first."""
        safe = super().wrap_str_format(value)
        return None if safe is None else _Format(value.__self__, safe)
