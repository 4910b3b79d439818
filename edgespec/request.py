"""What a generation is asked for."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from .errors import BadRequestError
from .sampling import SamplingParams
from .verification import SEED, VERIFIERS

MAX_TOP_LOGPROBS = 20
_DRAWN_BITS = 32  # of a seed that we draw: short enough to type, and exact in any JSON reader


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """What to generate.

    prompt: token ids.  max_tokens: None: until the context is full.  stop: strings that end the text and
    are not shown.  draft_max: K, tokens drafted per round; 0: plain decoding.  verify: "block" (arXiv
    2403.10444), "token" (arXiv 2211.17192) or "seed": the text is a function of target, prompt and params
    alone; without a seed in params one is drawn.  top_logprobs: how many of the likeliest tokens each event names.
    """

    prompt: tuple[int, ...]
    params: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    draft_max: int = 3
    verify: str = "block"
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        if not self.prompt:
            raise BadRequestError("the prompt is empty; give some text")
        if self.max_tokens is not None:
            _check_whole("max tokens", self.max_tokens, 1)
        _check_whole("draft max", self.draft_max, 0)
        _check_whole("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)
        if not isinstance(self.verify, str) or self.verify not in (*VERIFIERS, SEED):
            raise BadRequestError(f"verify is {self.verify!r}; choose one of {', '.join((*VERIFIERS, SEED))}")
        if self.verify == SEED and self.params.seed is None:
            object.__setattr__(self, "params", self.params.replace(seed=secrets.randbits(_DRAWN_BITS)))


def _check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        most = "" if high is None else f" and at most {high}"
        raise BadRequestError(f"{name} is {value!r}; it must be a whole number of at least {low}{most}")
