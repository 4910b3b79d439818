"""An engine that is a server: a running `edgespec serve`, or another that speaks OpenAI's API."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from ..errors import BadRequestError, Cancelled, EngineError, ServerError
from ..text import sanitize
from .exchange import Exchange, trusting
from .interface import Generating
from .protocol import EmbedSpec, EngineState, Event, Finished, GenerateSpec, Loaded, Loading, LoadSpec, Texts, failure
from .server_address import Address
from .server_answer import ServerAnswer
from .server_requests import chat_body, failed, refusal

_MOST_MODELS = 1 << 20  # bytes of the list of models
_MOST_ERROR = 1 << 16
_ASK_S = 30.0  # for the list of models
_BEGIN_S = 1800.0  # for the first byte of an answer: it may wait in line, and its prompt be read
_SILENT_S, _SILENT_ELSEWHERE_S = 60.0, 600.0  # our server says every 15 s that it lives
_AGAIN_S = 0.5  # between two looks at a server that loads its model

_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_Positive = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Costs(msgspec.Struct):
    widths: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=4096)]], msgspec.Meta(max_length=64)] = []
    ms: Annotated[list[_Positive], msgspec.Meta(max_length=64)] = []
    draft_ms: _Positive | None = None


class _About(msgspec.Struct):
    """What only our server tells."""

    n_ctx: _Number
    drafter: str
    draft: str | None = None
    chat: bool = True
    why: str = ""
    costs: _Costs = msgspec.field(default_factory=_Costs)


class _Model(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    owned_by: str = ""
    meta: msgspec.Raw = msgspec.Raw()


class _Models(msgspec.Struct):
    data: Annotated[list[_Model], msgspec.Meta(min_length=1, max_length=1000)]


class ServerEngine:
    """Implements Engine over HTTP. Its model is the server's: load() asks which one it is, and can choose no other."""

    def __init__(
        self, url: str, *, key: str | None = None, model: str | None = None, ca_file: str | None = None
    ) -> None:
        """key: the server's, if it wants one.  model: which, where it has several.  ca_file: certificates that are
        trusted beside the system's. Raises BadRequestError.
        """
        self._address = Address.parse(url)
        if ca_file is not None and not self._address.https:
            raise BadRequestError("certificates are for https://; leave --ca-file out, or give such an address")
        self._trust = trusting(ca_file) if self._address.https else None
        if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
            raise BadRequestError("the API key must be ASCII text on one line: it travels in a header")
        self._key, self._wanted = key, model
        self._loaded: Loaded | None = None
        self._edgespec = False
        self._closed = threading.Event()
        self._running: set[_Asking] = set()

    @property
    def server(self) -> str:
        return self._address.shown

    @property
    def spec(self) -> LoadSpec:
        """The only one that load() takes."""
        return LoadSpec(model=self.server)

    def load(self, spec: LoadSpec, on_loading: Callable[[Loading], None] | None = None) -> Loaded:
        if spec != self.spec:
            raise BadRequestError(f"the model is that of the server at {self.server}; no other can be loaded")
        model = self._model(self._models(on_loading))
        self._edgespec, self._loaded = self._about(model)
        return self._loaded

    def generate(self, spec: GenerateSpec) -> Generating:
        loaded = self._loaded
        if loaded is None:
            raise BadRequestError("the server's model is not known yet; call load() first")
        if self._closed.is_set():
            raise EngineError("the engine is closed; open another")
        if not spec.messages or spec.deadline_s is not None:
            raise BadRequestError("a server is asked with messages, and its deadline is its own")
        body = chat_body(loaded.name, spec.messages, spec.options, edgespec=self._edgespec)
        answer = ServerAnswer(loaded.name, self.server, edgespec=self._edgespec)
        silent_s = _SILENT_S if self._edgespec else _SILENT_ELSEWHERE_S
        exchange = Exchange(self._address, self._key, self._trust)
        asking = _Asking(exchange, body, answer, self._address.shown, silent_s, self._running.discard)
        self._running.add(asking)
        generating = Generating(asking.cancel, lambda: None)
        asking.start(generating.tell)
        return generating

    def translate(self, spec: GenerateSpec) -> Texts:
        raise BadRequestError("a server does not tell how its model reads a text")

    def embed(self, spec: EmbedSpec) -> Generating:
        raise BadRequestError("embeddings of a server are for its clients: /v1/embeddings")

    def state(self) -> EngineState | None:
        return None

    def unload(self) -> None:
        """The model is the server's."""

    def forget(self, conversation: str) -> None:
        """A server keeps nothing of a conversation on disk."""

    def close(self) -> None:
        self._closed.set()
        for asking in list(self._running):
            asking.cancel()

    # Which model

    def _models(self, on_loading: Callable[[Loading], None] | None) -> list[_Model]:
        """Those of the server, once it is ready."""
        while True:
            with contextlib.closing(Exchange(self._address, self._key, self._trust)) as exchange:
                status = exchange.send("GET", "/v1/models", patience_s=_ASK_S)
                elsewhere = exchange.header("Location")
                body = exchange.body(_MOST_MODELS)
            if status == 200:
                break
            error = refusal(status, body, self.server, elsewhere=elsewhere)
            if status != 503 or b'"loading"' not in body:
                raise error
            if on_loading is not None:
                on_loading(Loading(f"{self.server}: the server loads its model"))
            if self._closed.wait(_AGAIN_S):
                raise Cancelled("the program ends")
        try:
            return msgspec.json.decode(body, type=_Models).data
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise ServerError(
                f"what answers at {self.server} is no server of OpenAI's API, for it has no list of models; is the "
                "address right?"
            ) from None

    def _model(self, models: list[_Model]) -> _Model:
        if self._wanted is None:
            return models[0]
        found = next((one for one in models if one.id == self._wanted), None)
        if found is None:
            names = ", ".join(sanitize(one.id[:60]) for one in models[:8])
            raise BadRequestError(f"the server at {self.server} has no model {self._wanted[:60]!r}; it has {names}")
        return found

    def _about(self, model: _Model) -> tuple[bool, Loaded]:
        """(whether it is our server, what front ends show)."""
        notes: tuple[str, ...] = ()
        if self._key is not None and self._address.open_to_others:
            notes = (f"the key and the chat travel to {self.server} unencrypted",)
        about: _About | None = None
        if model.owned_by == "edgespec":
            with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
                about = msgspec.json.decode(model.meta, type=_About)
        facts: dict[str, Any] = {"name": model.id, "path": "", "notes": notes, "server": self.server}
        unknown: dict[str, Any] = {"sources": (), "threads": 0, "weight_bytes": 0, "kv_bytes": 0}
        if about is None:
            why = "whether the server speculates is not known: it is not EdgeSpec's"
            none: dict[str, Any] = {"n_ctx": 0, "draft": None, "drafter": "", "widths": (), "ms": (), "draft_ms": None}
            return False, Loaded(**facts, **unknown, **none, why=why, template=True)
        costs = about.costs if len(about.costs.widths) == len(about.costs.ms) else _Costs()
        return True, Loaded(
            **facts,
            **unknown,
            n_ctx=about.n_ctx,
            draft=None if about.draft is None else about.draft[:500],
            drafter=about.drafter[:500],
            why=about.why[:1000],
            template=about.chat,
            widths=tuple(costs.widths),
            ms=tuple(costs.ms),
            draft_ms=costs.draft_ms,
        )


class _Asking:
    """One request. A thread reads the server, another tells the events: so cancelling waits for no network."""

    def __init__(
        self,
        exchange: Exchange,
        body: bytes,
        answer: ServerAnswer,
        shown: str,
        silent_s: float,
        done: Callable[[_Asking], None],
    ) -> None:
        """shown: the server, as a person knows it."""
        self._exchange = exchange
        self._body, self._answer, self._silent_s = body, answer, silent_s
        self._shown = shown
        self._done = done
        # The only queue that a signal handler may put into.
        self._news: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()

    def start(self, tell: Callable[[Event], None]) -> None:
        threading.Thread(target=self._read, name="edgespec-server-read", daemon=True).start()
        threading.Thread(target=self._tell, args=(tell,), name="edgespec-server-tell", daemon=True).start()

    def cancel(self) -> None:
        self._news.put(None)
        self._exchange.end()

    def _read(self) -> None:
        exchange = self._exchange
        try:
            status = exchange.send("POST", "/v1/chat/completions", self._body, patience_s=_BEGIN_S)
            if status != 200:
                after, elsewhere = exchange.header("Retry-After"), exchange.header("Location")
                raise refusal(status, exchange.body(_MOST_ERROR), self._shown, after, elsewhere)
            if not exchange.header("Content-Type").lower().startswith("text/event-stream"):
                raise ServerError(f"the server at {self._shown} sends no stream; is it one of OpenAI's API?")
            for data in exchange.data(self._silent_s):
                self._news.put(data)
            self._news.put(ServerError(f"the server at {self._shown} broke off in the middle of the answer"))
        except Exception as error:
            self._news.put(error)
        finally:
            exchange.close()

    def _tell(self, tell: Callable[[Event], None]) -> None:
        answer = self._answer
        try:
            while not answer.ended:
                news = self._news.get()
                if news is None or isinstance(news, Cancelled):
                    tell(Finished(answer.reply("cancelled")))
                    return
                if isinstance(news, Exception):
                    if answer.whole:  # all but its last mark has come
                        break
                    raise news
                for event in answer.take(news):
                    tell(event)
                if answer.error:
                    raise failed(200, answer.error, self._shown)
            if not answer.whole:
                raise ServerError(f"the server at {self._shown} ended the answer without a reason")
            tell(Finished(answer.reply()))
        except Exception as error:
            tell(failure(error))
        finally:
            self._exchange.end()
            self._done(self)
