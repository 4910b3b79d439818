"""The Python API of a loaded model: complete(), chat() or stream() (loading.py makes one)."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgespec.models.identity import file_identity
from edgespec.models.memory import MemoryEstimate
from edgespec.models.usage import Lease

from . import profile_store
from .asking import Asking, Messages, Prompt
from .chat import ChatTemplate, encode_chat, encode_text
from .costs import Costs
from .drafters import Knowledge, Resources, build, select
from .drafters import planned as plan_over
from .drafters.knowledge import circumstance
from .drafters.suffix_history import SuffixHistory
from .drafting import Drafter
from .errors import BadRequestError
from .generation import NO_ROLLBACK, Event, Generation, GenerationRequest
from .heads.memory import NO_HEADS
from .heads.storage import Heads
from .llama import Context, LlamaGrammar, schema_to_gbnf
from .llama.embedding import Embedder, no_embeddings, only_embeds
from .llama.head import HeadContext
from .llama.measure import cost_table, forget, steps
from .losses import Ledger
from .message_fields import parse_messages
from .messages import Message
from .options import Options, generation_request, split_options
from .paths import cache_dir
from .reply import Reply
from .stats import GenerationStats, TokenEvent
from .verification import SEED

_TYPICAL_REPLY = 256  # tokens expected of a reply without a limit
_NONE_ASKED_FOR = "speculation is off: no drafter was asked for"
_ENOUGH_ROUNDS = 200  # before drifting decode times count as a trend
_PROMPTS = "give text, a list of token ids (whole numbers), or a list of messages"


class Stream(Iterator[TokenEvent]):
    """TokenEvents of a running request; closing it cancels. After the end, `reply` holds the whole."""

    def __init__(self, llm: LLM, generation: Generation) -> None:
        self._llm, self._generation = llm, generation
        self._events = iter(generation)
        self._turn = threading.RLock()  # a generator may not be closed while another thread runs it
        self._logprobs: list[float] = []
        self._ended = False

    @property
    def generation(self) -> Generation:
        """The loop's state of this request."""
        return self._generation

    def read(self) -> Iterator[int]:
        """Read a long prompt ahead, yielding how many of its tokens the cache holds; then use events() or iteration."""
        return self._generation.read(self._llm.target.n_batch)

    def events(self) -> Iterator[Event]:
        """Token and round events in the order they happen. Use either this or iteration."""
        while True:
            with self._turn:
                event = next(self._events, None)
                if event is not None:
                    self.note(event)
            if event is None:
                self._end()
                return
            yield event

    def note(self, event: Event) -> None:
        """Take an event into the reply: for whoever runs the generation's rounds in place of this iterator."""
        if isinstance(event, TokenEvent) and len(self._logprobs) < len(self._generation.completion):
            self._logprobs.append(event.logprob)

    def __next__(self) -> TokenEvent:
        for event in self.events():
            if isinstance(event, TokenEvent):
                return event
        raise StopIteration

    def cancel(self) -> None:
        """Stop soon, from any thread or a signal handler; the iteration ends by itself."""
        self._generation.cancel()

    def close(self) -> None:
        """Stop now. The text so far stays in `reply`."""
        self._generation.cancel()
        with self._turn:
            self._events.close()  # type: ignore[attr-defined]  # a generator, typed as the iterator it is used as
            self._generation.finish("cancelled")
            self._generation.close()
        self._end()

    def _end(self) -> None:
        self._llm.stats = self._generation.stats
        if not self._ended and self._llm.history is not None:
            self._llm.history.add(self._generation.completion)
        self._ended = True

    @property
    def reply(self) -> Reply:
        """The reply so far; finish_reason is "cancelled" until the request has ended by itself."""
        g = self._generation
        return Reply(
            text=g.text,
            tokens=tuple(g.completion),
            logprobs=tuple(self._logprobs),
            finish_reason=g.finish_reason or "cancelled",
            model=self._llm.name,
            drafter=self._llm.drafter,
            stats=g.stats,
            seed=g.request.params.seed,
        )

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LLM(Asking):
    """A loaded target, with its draft if any. Safe to use from several threads: rounds are serialised.

    Sampling parameters are the fields of SamplingParams, other options those of Options, both given as
    keywords; an unknown one raises BadRequestError.
    """

    def __init__(self, target: Context, draft: Context | None, sources: tuple[str, ...]) -> None:
        self.target, self.draft = target, draft
        self.sources = sources
        self.stats: GenerationStats | None = None  # of the latest request that ended
        self.costs: Costs | None = None  # measured when a request is first planned
        self.draft_costs: Costs | None = None  # of the draft model's own decodes
        self._knowledge = Knowledge()
        self._ledger = Ledger()  # of the requests that run
        self.announce: Callable[[str], None] | None = None  # told one line before something slow
        self.heads: Heads | None = None  # on the target's hidden states
        self.eagle: HeadContext | None = None  # a head that follows the target
        self.mtp: HeadContext | None = None  # layers of the target's own file that do
        self.head_memory = NO_HEADS  # what heads take
        self.history: SuffixHistory | None = None  # where replies are kept for the suffix drafter
        self.left_out: dict[str, bool] = {}  # as `has`: what there is, or may be, and was not loaded
        self.spared: dict[str, bool] = {}  # as `has`: what the drafters "auto" leave alone
        self.notes: tuple[str, ...] = ()  # lines for the user about what was loaded
        self.lease: Lease | None = None  # on the files, so that `edgespec rm` leaves them alone

    @property
    def why(self) -> str:
        """One sentence on why nothing can draft, or nothing."""
        if not self.generates:
            return "it makes embeddings and generates no text"
        if not self.sources:
            return _NONE_ASKED_FOR
        return "" if self.target.can_roll_back else NO_ROLLBACK

    @property
    def usable(self) -> tuple[str, ...]:
        """Sources that can be used as it is loaded."""
        return select("auto", **self.has)

    @property
    def has(self) -> dict[str, bool]:
        """What sources may need, and whether it is loaded: arguments for drafters.select."""
        return {
            "has_draft": self.draft is not None,
            "has_heads": self.heads is not None,
            "has_eagle": self.eagle is not None,
            "has_mtp": self.mtp is not None,
        }

    def use_drafter(self, drafter: str) -> None:
        """Draft with these sources from the next request on, named as for load(). Raises BadRequestError."""
        has = self.has | (self.spared if drafter == "auto" else {})
        there = {name: loaded or self.left_out.get(name, False) for name, loaded in has.items()}
        if drafter != "auto" and (more := set(select(drafter, **there)) - set(self.usable)):
            raise BadRequestError(
                f"{self.name} was loaded without what drafter {', '.join(sorted(more))} needs; load it with drafter "
                f"{drafter}"
            )
        self.sources = select(drafter, **has)

    def resources(self, **more: Any) -> Resources:
        """What it offers the drafters of a request. more: further fields."""
        ends = self.target.vocab.is_eog
        return Resources(self.draft, heads=self.heads, eagle=self.eagle, mtp=self.mtp, ends=ends, **more)

    def head_ms(self, source: str) -> float:
        """Milliseconds that heads take for one drafted token; 0 for other sources."""
        heads: dict[str, Heads | HeadContext | None] = {
            "medusa": self.heads,
            "eagle": self.eagle,
            "mtp": self.mtp,
        }
        head = heads.get(source)
        return 0.0 if head is None else head.step_ms

    @functools.cached_property
    def template(self) -> ChatTemplate | None:
        """The model's chat template, if it has one. Raises ModelLoadError where it is unusable."""
        source, vocab = self.target.model.chat_template, self.target.vocab
        if source is None:
            return None
        return ChatTemplate(source, bos_token=_text(self.target, vocab.bos), eos_token=_text(self.target, vocab.eos))

    @functools.cached_property
    def generates(self) -> bool:
        """Whether it can generate text: some models only make embeddings."""
        return not only_embeds(self.target.model.header)

    @functools.cached_property
    def embedder(self) -> Embedder:
        """Makes embeddings, with memory of its own. Raises BadRequestError where this model makes none."""
        return Embedder(self.target.model, self.target.n_threads)

    @property
    def why_not_embedding(self) -> str:
        """Why this model makes no embeddings; empty where it does."""
        return no_embeddings(self.target.model.header)

    def embed(self, texts: Sequence[str | Sequence[int]]) -> NDArray[np.float32]:
        """Embeddings of texts or token ids: shape (len(texts), size), float32, each of length 1.

        Raises BadRequestError: the model makes none, an id is not one of its own, a text is empty or too long.
        """
        found = [self.embedder.ids(text) if isinstance(text, str) else tuple(text) for text in texts]
        return np.array([self.embedder.embed(ids) for ids in found], np.float32).reshape(-1, self.embedder.size)

    @property
    def name(self) -> str:
        """The target's file name."""
        return self.target.model.path.name

    @property
    def memory(self) -> MemoryEstimate:
        """What the model takes with its context and its heads; a draft model is not in it."""
        taken, settings = self.target.memory, self.target.settings
        return replace(taken, heads=self.head_memory(taken.n_ctx, settings.kv_type, settings.flash_attention != 0))

    @property
    def drafter(self) -> str:
        """The sources in use, comma-separated, or "none"."""
        return ",".join(self.sources) if self.sources and self.target.can_roll_back else "none"

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Ids of a raw text, with BOS where the model wants one. Raises BadRequestError where it is empty."""
        return encode_text(self.target.vocab, text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Visible text of ids."""
        return self.target.vocab.detokenize(list(tokens)).decode("utf-8", "replace")

    def encode(self, prompt: Prompt | Messages, **template_kwargs: object) -> tuple[int, ...]:
        """Ids of a prompt: a raw text, ids, or chat messages (through the model's template).

        template_kwargs: further variables of the template.  Raises BadRequestError; ModelLoadError where the template
        is unusable.
        """
        if isinstance(prompt, str):
            return encode_text(self.target.vocab, prompt)
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
            raise BadRequestError(f"the prompt is a {type(prompt).__name__}; {_PROMPTS}")
        if not prompt:
            raise BadRequestError("the prompt is empty; give some text")
        if not any(isinstance(item, Mapping | Message) for item in prompt):
            for token in prompt:
                if isinstance(token, bool) or not isinstance(token, int):
                    raise BadRequestError(f"the prompt has a {type(token).__name__} in it; {_PROMPTS}")
                self.target.vocab.check(token)
            return tuple(prompt)  # type: ignore[arg-type]  # whole numbers, as checked
        if self.template is None:
            raise BadRequestError(
                f"{self.name} has no chat template, so it cannot chat; use complete(), or run --raw, with plain text"
            )
        messages = parse_messages(prompt)  # type: ignore[arg-type]  # checked there
        return encode_chat(self.target.vocab, self.template, messages, **template_kwargs)  # type: ignore[arg-type]

    def stream(self, prompt: Prompt | Messages, *, cancelled: threading.Event | None = None, **options: Any) -> Stream:
        """Start a request. prompt: raw text, ids, or a list of {"role", "content"} messages.

        options, errors: as for Asking.stream().  cancelled: an event of the caller's that ends the request once it is
        set, as Stream.cancel() does.
        """
        if not self.generates:
            raise BadRequestError(f"{self.name} makes embeddings and generates no text; use embed(), or another model")
        chosen, params = split_options(options)
        request = generation_request(self.encode(prompt, **chosen.template_kwargs), chosen, params)
        widest = self.target.model.settings.max_width - 1
        if chosen.draft_max is not None and chosen.draft_max > widest:
            raise BadRequestError(
                f"draft max is {chosen.draft_max}; one decode verifies at most {widest} drafted tokens"
            )
        grammar = self._grammar(chosen)
        cancelled = cancelled or threading.Event()
        past = None if self.history is None else self.history.index()
        own = chosen.draft_temperature
        resources = self.resources(draft_temperature=own, cancelled=cancelled, past=past)
        drafter = self._drafter(request, resources, planned=chosen.draft_max is None)
        why = self.why if request.draft_max else "speculation is off: draft max is 0"
        return Stream(self, Generation(self.target, request, drafter, grammar, why=why, cancelled=cancelled))

    def _drafter(self, request: GenerationRequest, resources: Resources, *, planned: bool) -> Drafter | None:
        """A chain of fixed length, or sources and lengths planned round by round."""
        if not self.sources or not request.draft_max:
            return None
        if not planned or not self.target.can_roll_back or self.target.max_width < 2:
            return build(self.sources, resources)
        costs = self.measured()
        room = self.target.n_ctx - len(request.prompt)
        return plan_over(
            self.sources,
            resources,
            costs,
            draft_costs=self.draft_costs,
            remaining=min(request.max_tokens or _TYPICAL_REPLY, room),
            coupled=request.params.temperature == 0 or request.verify == SEED,
            knowledge=self._knowledge,
            circumstance=circumstance(request.params.temperature, seed_exact=request.verify == SEED),
            ledger=self._ledger,
        )

    def measured(self) -> Costs:
        """Decode times of the target by rows: from disk, or measured now. A first planned request asks for them."""
        if self.costs is None:
            self.costs = Costs(cost_table(self.target, announce=self.announce))
            measured = [(self.costs, self.target)]
            if self.draft is not None:
                self.draft_costs = Costs(cost_table(self.draft, announce=self.announce))
                measured.append((self.draft_costs, self.draft))
            for (costs, _), ms in zip(measured, steps([context for _, context in measured]), strict=True):
                costs.anchor(ms)
            self._knowledge = Knowledge(_knowledge_file(self.target, self.draft))
        return self.costs

    def close(self) -> None:
        """Free the models. Running streams fail with DecodeError."""
        if self.costs is not None and self.costs.rounds > _ENOUGH_ROUNDS and not 0.6 < self.costs.drift < 1.7:
            forget(self.target)  # this machine is not what it was: measure again next time
            profile_store.forget(self.target.model.header)
        self._knowledge.save()
        for head in (self.eagle, self.mtp):  # they use the target's weights
            if head is not None:
                head.close()
        for context in (self.draft, self.target):
            if context is not None:
                context.close()
                context.model.close()
        if self.lease is not None:
            self.lease.end()

    def _grammar(self, chosen: Options) -> LlamaGrammar | None:
        source = chosen.grammar
        if chosen.json_schema is not None:
            source = schema_to_gbnf(chosen.json_schema, chosen.json_frame)
        return None if source is None else LlamaGrammar(self.target.vocab, source)


def _knowledge_file(target: Context, draft: Context | None) -> Path:
    """Where acceptance of this pair is kept."""
    files = (file_identity(context.model.header) for context in (target, draft) if context is not None)
    return cache_dir() / "acceptance" / f"{hashlib.sha256(' '.join(files).encode()).hexdigest()[:32]}.json"


def _text(context: Context, token: int | None) -> str:
    return "" if token is None else context.vocab.text(token)
