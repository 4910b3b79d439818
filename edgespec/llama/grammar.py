"""GBNF grammars and JSON schemas by llama.cpp's grammar engine, behind sampling.Grammar."""

from __future__ import annotations

import ctypes
import functools
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRequestError
from . import binding
from .vocab import LlamaVocab

_ROOT = b"root"
# llama.cpp parses groups and follows rules by recursion, which overflows the stack, and never ends on {3,1}.
_MAX_GRAMMAR_BYTES = 1 << 18
_MAX_DEPTH = 64
_MAX_RULES = 2000
_PARTS = re.compile(
    r"""
    "(?:\\.|[^"\\])*"?      # a string, closed or not: parentheses and braces in it mean themselves
    | \[(?:\\.|[^\]\\])*\]?  # a class of characters
    | \#[^\n]*
    | (?P<group>[()])
    | (?P<rule>::=)
    | \{\s*(?P<least>\d+)\s*,\s*(?P<most>\d+)
    """,
    re.VERBOSE | re.DOTALL,
)


class LlamaGrammar:
    """The state of one grammar after the tokens it was advanced by. Implements sampling.Grammar."""

    def __init__(self, vocab: LlamaVocab, source: str) -> None:
        """Raises BadRequestError for a grammar that llama.cpp does not parse."""
        data = source.encode("utf-8", "replace")
        if not source.strip() or len(data) > _MAX_GRAMMAR_BYTES:
            raise BadRequestError(f"the grammar must have 1 to {_MAX_GRAMMAR_BYTES} bytes; it has {len(data)}")
        _check_structure(source)
        self._lib = binding.lib()
        self._vocab = vocab
        binding.take_errors()
        with binding.captured_stderr() as said:  # the parser prints its errors and the whole grammar there
            self._sampler: Any = self._lib.llama_sampler_init_grammar(vocab.handle, data, _ROOT)
            why = said()
        if not self._sampler:
            why = why or binding.take_errors() or "no reason given"
            raise BadRequestError(f"the grammar is not valid GBNF with a rule named root: {why}")

    def mask(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `ids` may come next. Shape (n,) to (n,)."""
        n = len(ids)
        candidates = np.zeros(n, dtype=_CANDIDATE)
        candidates["id"] = ids
        array = self._lib.llama_token_data_array(
            data=ctypes.cast(ctypes.c_void_p(candidates.ctypes.data), ctypes.POINTER(self._lib.llama_token_data)),
            size=n,
            selected=-1,
            sorted=False,
        )
        self._vocab.require_open()
        self._lib.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return np.asarray(candidates["logit"] != -np.inf)

    def advance(self, token: int) -> None:
        """Accept one token, which mask() must have allowed: llama.cpp terminates on another."""
        self._vocab.require_open()
        self._lib.llama_sampler_accept(self._sampler, token)

    def clone(self) -> LlamaGrammar:
        """An independent copy of the state."""
        copy = object.__new__(LlamaGrammar)
        copy._lib, copy._vocab = self._lib, self._vocab
        copy._sampler = self._lib.llama_sampler_clone(self._sampler)
        return copy

    def __del__(self) -> None:
        sampler = getattr(self, "_sampler", None)
        if sampler:
            self._lib.llama_sampler_free(sampler)
            self._sampler = None


_BINDING_CHAR, _JSON_CHAR = r'char ::= [^"\\] |', r'char ::= [^"\\\x7F\x00-\x1F] |'
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def _check_structure(source: str) -> None:
    """Refuse what would crash or hang llama.cpp's grammar parser."""
    depth = rules = 0
    for part in _PARTS.finditer(source):
        depth += {"(": 1, ")": -1}.get(part["group"] or "", 0)
        rules += part["rule"] is not None
        if depth > _MAX_DEPTH or rules > _MAX_RULES:
            raise BadRequestError(
                f"the grammar is too large; use at most {_MAX_RULES} rules and {_MAX_DEPTH} groups within each other"
            )
        least, most = part["least"], part["most"]
        if least and (len(least) > 9 or len(most) > 9 or int(least) > int(most)):
            raise BadRequestError(f"the grammar repeats {least[:12]} to {most[:12]} times; write {{least,most}}")


@functools.cache
def _converter() -> type[Any]:
    """The binding's converter, which forgets that a backslash in JSON text (a quote in a name, an umlaut) needs another
    one in a grammar, and everything beside a list of types. docs/clients.md says what it makes of each keyword."""
    from llama_cpp.llama_grammar import SchemaConverter

    class Converter(SchemaConverter):  # type: ignore[misc]  # the binding has no types
        def _format_literal(self, literal: str) -> Any:
            """literal: JSON text, or one character."""
            if len(literal) > 1 and literal[0] == '"':
                literal = json.dumps(json.loads(literal), ensure_ascii=False)
            return super()._format_literal(literal.replace("\\", "\\\\"))

        def visit(self, schema: Any, name: str) -> Any:
            types = schema.get("type")
            if isinstance(types, list) and not {"$ref", "anyOf", "oneOf"} & schema.keys():
                rest = {key: value for key, value in schema.items() if key != "type"}
                known = "const" in rest or "enum" in rest  # these say it all
                schema = rest if known else {"anyOf": [{**rest, "type": one} for one in types]}
            return super().visit(schema, name)

    return Converter


def schema_to_gbnf(schema: str, frame: Sequence[str | None] | None = None) -> str:
    """GBNF for a JSON schema given as JSON text. Raises BadRequestError for what is not a schema.

    frame: (before, between, after): texts around the JSON, which may then come several times; between None: once.
    """
    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the JSON schema is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise BadRequestError("the JSON schema must be a JSON object")
    try:
        converter = _converter()(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        inner = converter.visit(converter.resolve_refs(parsed, "schema"), "" if frame is None else "framed")
        # The binding's rule lets strings contain raw control characters, which JSON forbids.
        rules = str(converter.format_grammar()).replace(_BINDING_CHAR, _JSON_CHAR)
    except Exception as error:  # the converter raises whatever its parsing stumbles on
        raise BadRequestError(f"this JSON schema cannot be turned into a grammar: {error}") from error
    if frame is None:
        return rules
    if re.search(r"^root ::=", rules, re.MULTILINE):
        raise BadRequestError("this JSON schema has a definition named root; name it otherwise")
    before, between, after = (None if text is None else json.dumps(text, ensure_ascii=False) for text in frame)
    return f"{rules}\nroot ::= {before} {inner} {'' if between is None else f'({between} {inner})*'} {after}"
