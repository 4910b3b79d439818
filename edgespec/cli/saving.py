"""What `run` reads from the saved conversations, and adds to them.

Only --continue and --conversation need the history. Otherwise, where it cannot be used, a line says so, and the answer
comes all the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadRequestError, EdgeSpecError, HistoryError
from ..text import sanitize
from .options import given

if TYPE_CHECKING:
    from ..api import LLM
    from ..history import Conversation, History, ReplyWriter
    from ..reply import Reply
    from ..stats import RoundEvent, TokenEvent


class Saving:
    """The exchange of one `run`. conversation: the one that is continued, None: it is a new one.  earlier: its turns.

    Raises BadRequestError where options contradict each other or name no conversation; HistoryError where one is to be
    continued and the history cannot be read.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._wanted: bool = options["save"]
        self.conversation: Conversation | None = None
        self.earlier: list[dict[str, str]] = []
        self.number: int | None = None  # of the conversation, once the exchange is in it
        self._last: int | None = None  # message that the question follows
        self._history: History | None = None
        self._reply: ReplyWriter | None = None
        continued = options["continue_"] or options["conversation"] is not None
        if continued:
            self._find(options)
        elif self._wanted:
            try:
                self._open()
            except HistoryError as error:
                self._gave_up(error)

    def begin(self, llm: LLM, question: str, options: dict[str, Any], *, raw: bool) -> None:
        """Save the question, and be ready for events."""
        if self._history is None or not self._wanted:
            return
        from edgespec.models.names import resolve

        history, system = self._history, "" if raw else options["system"] or ""
        model = os.path.abspath(resolve(options["model"]))  # noqa: PTH100  # links are not followed
        try:
            with history.together():
                if self.conversation is None:
                    number = history.new_conversation(model=model, system=system, raw=raw)
                else:
                    number = self.conversation.id
                    history.update(number, model=model, system=system)
                asked = history.add_message(number, self._last, "user", question)
                reply = history.begin_reply(number, asked, model=llm.name)
            self.number, self._reply = number, reply
        except (HistoryError, BadRequestError) as error:  # the second: another program has deleted the conversation
            self._gave_up(error)

    def event(self, event: TokenEvent | RoundEvent) -> None:
        """Take one more event of the answer."""
        if self._reply is not None:
            self._reply.append(event)

    def end(self, reply: Reply, *, failed: bool) -> None:
        """Save the whole, and close. failed: it ended by an error."""
        try:
            if self._reply is not None:
                facts = {name: value for name, value in reply.to_json().items() if name != "text"}
                self._reply.finish("error" if failed else reply.finish_reason, text=reply.text, result=facts)
        except HistoryError as error:
            self._gave_up(error)
        finally:
            self._reply = None
            self.close()

    def close(self) -> None:
        """Close the history."""
        if self._history is not None:
            self._history.close()
            self._history = None

    def _open(self) -> History:
        from ..history import History

        self._history = History()
        return self._history

    def _find(self, options: dict[str, Any]) -> None:
        """The conversation to go on with; model and system prompt are its own unless others are given."""
        from ..history import turns

        if options["continue_"] and options["conversation"] is not None:
            raise BadRequestError("give --continue or --conversation, not both")
        if options["raw"]:
            raise BadRequestError(
                "a raw text continues no conversation; leave out --raw, or --continue and --conversation"
            )
        history = self._open()
        try:
            wanted = options["conversation"]
            found = history.latest() if wanted is None else history.conversation(wanted)
            if found is None:
                raise BadRequestError("there is no conversation to continue; leave out --continue to begin one")
            if found.raw:
                raise BadRequestError(f"conversation {found.id} is a raw text and has no turns; continue another one")
            path = history.path(found.id)
        except BaseException:
            self.close()
            raise
        self.conversation, self._last = found, path[-1].id if path else None
        if not given("system"):
            options["system"] = found.system or None
        if not given("model"):
            self._choose_model(found.model, options)
        self.earlier = turns("", path)

    def _choose_model(self, model: str, options: dict[str, Any]) -> None:
        """That of the conversation, where it is still here."""
        from edgespec.models.names import resolve

        if not model or model == options["model"]:
            return
        try:
            resolve(model)
        except EdgeSpecError:
            if not options["quiet"]:
                name = sanitize(os.path.basename(model))  # noqa: PTH119  # as it was written, on whichever system
                click.echo(f"{name}, which answered before, is not here: using another model", err=True)
            return
        options["model"] = model
        if not given("draft"):
            options["draft"] = "auto"

    def _gave_up(self, error: EdgeSpecError) -> None:
        self.close()
        click.echo(f"edgespec: not saved: {' '.join(sanitize(str(error)).split())}", err=True)
