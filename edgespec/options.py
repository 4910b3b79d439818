"""What one request may set beside its prompt; everything is checked before a model is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import BadRequestError
from .generation import GenerationRequest
from .sampling import SamplingParams
from .text import OutputText
from .verification import SEED

DEFAULT_VERIFY = "block"
PLANNED_DRAFT_MAX = 15  # where each round is planned: the most that a plan may draft


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What one request may set, beside its sampling parameters.

    max_tokens: None: to the end of the context.  stop: strings that end the text and are not shown.
    grammar: GBNF text.  json_schema: JSON text.  draft_max: K of every round; None: planned.  verify: "block",
    "token" or "seed" (the same text for a seed, whatever drafts); None: "seed" where the sampling parameters
    have a seed, else "block".  reproducible: means verify="seed"; without a seed, one is drawn and reported.
    draft_temperature: the draft model's own; None: the request's.  top_logprobs: how many of the likeliest tokens
    TokenEvent.top names, 0 to 20.  json_frame: (before, between, after): texts around the JSON of json_schema, which
    may then come several times; between None: once.  template_kwargs: further variables of the chat template, of plain
    data (tools, enable_thinking ...); a raw prompt has none.  Raises BadRequestError.
    """

    max_tokens: int | None = None
    stop: str | Sequence[str] = ()
    grammar: str | None = None
    json_schema: str | None = None
    draft_max: int | None = None
    verify: str | None = None
    reproducible: bool = False
    draft_temperature: float | None = None
    top_logprobs: int = 0
    json_frame: Sequence[str | None] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.stop, Sequence):
            raise BadRequestError(f"stop is a {type(self.stop).__name__}; give text or a list of texts")
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else self.stop)
        OutputText(self.stop)  # refuses what cannot be matched
        for name in ("grammar", "json_schema"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise BadRequestError(f"{name} is a {type(value).__name__}; give its text")
        if self.grammar is not None and self.json_schema is not None:
            raise BadRequestError("give a grammar or a JSON schema, not both")
        if self.json_frame is not None:
            _check_frame(self.json_frame, self.json_schema)
        if not isinstance(self.template_kwargs, Mapping) or not all(isinstance(k, str) for k in self.template_kwargs):
            raise BadRequestError("template_kwargs must map names of variables to plain data")
        if not isinstance(self.reproducible, bool):
            raise BadRequestError(f"reproducible is {self.reproducible!r}; it must be True or False")
        if self.reproducible and self.verify not in (None, SEED):
            raise BadRequestError(f"reproducible means verify={SEED!r}, not {self.verify!r}; give one of them")
        own = self.draft_temperature
        if own is not None and (isinstance(own, bool) or not isinstance(own, int | float) or not 0 <= own < math.inf):
            raise BadRequestError(f"draft_temperature is {own!r}; it must be a number 0 or more")


def _check_frame(frame: Sequence[str | None], schema: str | None) -> None:
    if schema is None:
        raise BadRequestError("json_frame goes around the JSON of json_schema; give that, too")
    if isinstance(frame, str) or not isinstance(frame, Sequence) or len(frame) != 3:
        raise BadRequestError("json_frame must be three texts: before, between, after")
    if not all(isinstance(text, str) or (text is None and i == 1) for i, text in enumerate(frame)):
        raise BadRequestError("json_frame must be three texts; only the one between may be None")


_OPTIONS = frozenset(Options.__dataclass_fields__)
_SAMPLING = frozenset(SamplingParams.__dataclass_fields__)


def split_options(options: Mapping[str, Any]) -> tuple[Options, SamplingParams]:
    """Keywords of a request as Options and SamplingParams. Raises BadRequestError, also for an unknown one."""
    unknown = sorted(set(options) - _OPTIONS - _SAMPLING)
    if unknown:
        raise BadRequestError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS | _SAMPLING))}")
    return (
        Options(**{k: v for k, v in options.items() if k in _OPTIONS}),
        SamplingParams(**{k: v for k, v in options.items() if k in _SAMPLING}),
    )


def generation_request(ids: tuple[int, ...], chosen: Options, params: SamplingParams) -> GenerationRequest:
    """The loop's request for these prompt ids. Raises BadRequestError."""
    verify = chosen.verify
    if verify is None:
        # A plan depends on timings, so of all rules only this one lets a seed repeat a text.
        verify = SEED if chosen.reproducible or params.seed is not None else DEFAULT_VERIFY
    return GenerationRequest(
        prompt=ids,
        params=params,
        max_tokens=chosen.max_tokens,
        stop=tuple(chosen.stop),
        draft_max=PLANNED_DRAFT_MAX if chosen.draft_max is None else chosen.draft_max,
        verify=verify,
        top_logprobs=chosen.top_logprobs,
    )


def check_options(**options: Any) -> None:
    """Raise BadRequestError if stream(), complete() or chat() would refuse these options; loads nothing."""
    chosen, params = split_options(options)
    generation_request((0,), chosen, params)
