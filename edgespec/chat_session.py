"""One open conversation over an engine and a history, without a screen: what the app and plain chat share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edgespec.models.catalog import catalog
from edgespec.models.names import resolve

from . import messages
from .chat_settings import Value, parse_setting, stored_settings
from .chat_turn import Begun, Turn
from .engine.interface import Engine, Generating
from .engine.protocol import GenerateSpec, Loaded, Loading, LoadSpec
from .errors import BadRequestError, EdgeSpecError, ModelLoadError
from .history import Conversation, History, Message, turns

_UNFINISHED = ("cancelled", "length", "error", None)


def check_chats(loaded: Loaded) -> None:
    """Raises ModelLoadError where a model cannot chat."""
    if not loaded.template:
        raise ModelLoadError(
            f"{loaded.name} has no chat template, so it cannot chat; choose another model, or complete plain text "
            "with `edgespec run --raw`"
        )


class ChatSession:
    """A conversation of the history, or a new one that begins with its first message.

    Properties may be read from any thread. Of all else, one thing is done at a time, and nothing while a Turn runs.

    history: where the conversation is kept.  spec: the model.  options: of requests, as given by the command line and
    the configuration; they come before what a model's makers suggest.  system: of new conversations.  saved: False for
    a history that ends with the program.
    """

    def __init__(
        self,
        engine: Engine,
        history: History,
        spec: LoadSpec,
        *,
        options: Mapping[str, Any] | None = None,
        system: str = "",
        saved: bool = True,
    ) -> None:
        self._engine = engine
        self.history, self.saved = history, saved
        self.spec = spec
        self.loaded: Loaded | None = None
        self._asked: LoadSpec | None = None  # what the engine was last told to load
        self._options, self._suggested = dict(options or {}), dict[str, Any]()
        self._first_system = self._system = system
        self._title = ""
        self._params: dict[str, Value] = {}
        self._id: int | None = None

    # The model

    def load(self, on_loading: Callable[[Loading], None] | None = None) -> Loaded:
        """Have the model loaded. Raises as edgespec.load() does, EngineDied; ModelLoadError where it cannot chat."""
        self._asked = None
        loaded = self._engine.load(self.spec, on_loading)
        check_chats(loaded)
        self._asked, self.loaded = self.spec, loaded
        self._suggested = {} if self.server else _suggested(self.spec)  # a server has its own
        if not self.server and self._id is not None and self.conversation and self.conversation.model != loaded.path:
            self.history.update(self._id, model=loaded.path)
        return loaded

    @property
    def server(self) -> str:
        """The address of the server whose model answers; empty where the model is chosen here."""
        return self._engine.server

    def use(self, on_loading: Callable[[Loading], None] | None = None, **fields: str) -> Loaded:
        """Another model, draft or drafter: fields of LoadSpec. Where it cannot be loaded, the one before stays.

        A model comes with the draft and the heads that go with it unless they are named.
        """
        before = self.spec
        if self.server and fields:
            raise BadRequestError(
                f"this chat is attached to {self.server}, which chooses model and drafts; begin one without --attach "
                "for others (/set draft_max 0: plain decoding)"
            )
        if "model" in fields:
            fields.setdefault("draft", "auto")
            fields.setdefault("heads", "auto")
        self.spec = msgspec.structs.replace(before, **fields)
        try:
            return self.load(on_loading)
        except BaseException:
            self.spec = before
            raise

    # The conversation

    @property
    def id(self) -> int | None:
        """Its number in the history; None before its first message."""
        return self._id

    @property
    def conversation(self) -> Conversation | None:
        """As the history has it."""
        return None if self._id is None else self.history.conversation(self._id)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The branch in use."""
        return () if self._id is None else self.history.path(self._id)

    @property
    def system(self) -> str:
        """The system prompt, or empty."""
        return self._system

    @system.setter
    def system(self, text: str) -> None:
        self._system = text
        if self._id is not None:
            self.history.update(self._id, system=text)

    @property
    def params(self) -> Mapping[str, Value]:
        """The settings of this conversation."""
        return dict(self._params)

    @property
    def options(self) -> dict[str, Any]:
        """What a request is asked with: settings before the command line's, these before the model's."""
        return {**self._suggested, **self._options, **self._params}

    def set(self, name: str, text: str) -> tuple[str, Value | None]:
        """Change a setting; an empty text takes it back. Returns its name and value. Raises BadRequestError."""
        known, value = parse_setting(name, text)
        params = {key: old for key, old in self._params.items() if key != known}
        self._params = params if value is None else {**params, known: value}
        if self._id is not None:
            self.history.update(self._id, params=self._params)
        return known, value

    def new(self, title: str = "") -> None:
        """Begin another conversation, with the same model and settings."""
        self._id, self._title, self._system = None, title, self._first_system

    def open(self, conversation: int) -> Conversation:
        """Go on with one of the history. Raises BadRequestError: there is none, or it is no chat."""
        found = self.history.conversation(conversation)
        if found.raw:
            raise BadRequestError(f"conversation {conversation} is a completed text, not a chat; choose another")
        self._id, self._system, self._params = found.id, found.system, stored_settings(found.params)
        return found

    def keep(self, history: History, title: str = "") -> None:
        """Keep the conversation in `history` from now on, under `title` if given."""
        if history is not self.history and self._id is not None:
            (self._id,) = history.import_(self.history.export_json([self._id]).encode()).added
        self.history, self.saved = history, True
        self.rename(title)

    def rename(self, title: str) -> None:
        """Give it a title; empty: the one that it has."""
        if title and self._id is not None:
            self.history.update(self._id, title=title)
        self._title = title or self._title

    # Questions and answers

    def ask(self, text: str) -> Turn:
        """Say something. Raises BadRequestError where there is nothing in it."""
        path = self.messages
        return self._answer(self._question(path[-1].id if path else None, text))

    def edit(self, text: str, message: int | None = None) -> Turn:
        """Say `text` in place of a message of the user, the last one by default, on a branch of its own."""
        before = self._last("user") if message is None else self.history.message(message)
        if before.role != "user":
            raise BadRequestError("only what you said can be edited; choose one of your messages")
        return self._answer(self._question(before.parent, text))

    def regenerate(self, seed: int | None = None, message: int | None = None) -> Turn:
        """Another answer, the last one by default, beside the one there is. seed: to draw with; None: a new one."""
        path = self.messages
        last = self.history.message(message) if message is not None else path[-1] if path else None
        if last is None or (last.role != "user" and last.parent is None):
            raise BadRequestError("there is nothing to answer yet; write a message first")
        question = last if last.role == "user" else self.history.message(last.parent or 0)
        return self._answer(question, seed=seed, again=True)

    def go_on(self) -> Turn:
        """Go on with the last answer where it was stopped. Raises BadRequestError where it was not."""
        if self.server:
            raise BadRequestError("an answer cannot go on through a server; /regenerate it")
        last = self._last("assistant")
        if last.finish_reason not in _UNFINISHED or last.parent is None:
            raise BadRequestError("the last answer is complete; ask for more, or /regenerate it")
        loaded = self._ready()
        begun = Begun(self.history.details(last.id))
        if min(begun.ids, default=-1) < 0:
            raise BadRequestError("of this answer only the text was kept, so it cannot go on; /regenerate it")
        if last.model != loaded.name:
            raise BadRequestError(f"the answer was begun by {last.model}; use that model, or /regenerate the answer")
        return self._answer(self.history.message(last.parent), begun=begun)

    def branches(self, message: int) -> tuple[Message, ...]:
        """A message and those beside it."""
        return self.history.branches(message)

    def switch(self, message: int) -> None:
        """Go to the branch of a message."""
        self.history.switch(message)

    def _last(self, role: str) -> Message:
        found = next((m for m in reversed(self.messages) if m.role == role), None)
        if found is None:
            raise BadRequestError("there is no message yet; write one first")
        return found

    def _question(self, parent: int | None, text: str) -> Message:
        if not text.strip():
            raise BadRequestError("the message is empty; write something")
        model = self.loaded.path if self.loaded else ""
        with self.history.together():
            conversation = self._id
            if conversation is None:
                conversation = self.history.new_conversation(
                    title=self._title, model=model, system=self._system, params=self._params
                )
            message = self.history.message(self.history.add_message(conversation, parent, "user", text))
        self._id = conversation
        return message

    def _answer(
        self, question: Message, *, seed: int | None = None, again: bool = False, begun: Begun | None = None
    ) -> Turn:
        loaded = self._ready()
        options = self.options
        if again:
            options = {name: value for name, value in options.items() if name != "seed"}
        if seed is not None:
            options["seed"] = seed
        writer = self.history.begin_reply(question.conversation, question.id, model=loaded.name)

        def start() -> Generating:
            said = turns(self._system, self.history.path(question.conversation))
            spec = GenerateSpec(
                messages=tuple(messages.Message(turn["role"], turn["content"]) for turn in said),
                options=options,
                conversation=str(question.conversation) if self.saved else None,
            )
            if begun is not None:
                ids = (*self._engine.translate(spec).ids, *begun.ids)
                spec = msgspec.structs.replace(spec, messages=(), prompt=ids)
            return self._engine.generate(spec)

        return Turn(start, writer, question, begun)

    def _ready(self) -> Loaded:
        """The model that answers; told to the engine where it is not what it had last."""
        if self.loaded is None or self._asked != self.spec:
            return self.load()
        return self.loaded


def _suggested(spec: LoadSpec) -> dict[str, float]:
    """Sampling that the catalogue has for a model."""
    try:
        entry = catalog().of_file(resolve(spec.model))
    except EdgeSpecError:  # the engine has loaded it from elsewhere
        return {}
    return {} if entry is None or entry.sampling is None else entry.sampling.given()
