"""The chat app as a program of its own: python app_program.py JSON. It can say what it has saved.

history: the database.  spec: of the model.  loader: of the engine's process.  options: of requests.
conversation: the one to go on with.  log: a file for lines of JSON, each [what, message, ...]:
    ["asked", id, text]            a question is committed
    ["begun", id]                  a reply is
    ["token", id, text, seconds]   the history was given a token, at a monotonic time
    ["ended", id, text, reason]    the whole reply is committed
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from edgespec.engine.client import WorkerEngine
from edgespec.engine.protocol import LoadSpec
from edgespec.history import History, Message, ReplyWriter
from edgespec.stats import RoundEvent, TokenEvent
from edgespec.tui.app import AppSettings, ChatApp


def observe(log: Path) -> None:
    """Have the history say what it has done, after it is done. A line is whole even where the program is killed."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begin, append, finish = History.begin_reply, ReplyWriter.append, ReplyWriter.finish

    def say(*what: object) -> None:
        os.write(file, json.dumps(what).encode() + b"\n")

    def begun(self: History, conversation: int, question: int, **more: Any) -> ReplyWriter:
        say("asked", question, self.message(question).text)
        writer = begin(self, conversation, question, **more)
        say("begun", writer.id)
        return writer

    def appended(self: ReplyWriter, event: TokenEvent | RoundEvent) -> None:
        append(self, event)
        if isinstance(event, TokenEvent):
            say("token", self.id, event.text, time.monotonic())

    def finished(self: ReplyWriter, reason: str, **more: Any) -> Message | None:
        message = finish(self, reason, **more)
        if message is not None:
            say("ended", self.id, message.text, reason)
        return message

    History.begin_reply = begun  # type: ignore[method-assign]
    ReplyWriter.append = appended  # type: ignore[method-assign]
    ReplyWriter.finish = finished  # type: ignore[method-assign]


def main(told: dict[str, Any]) -> None:
    if "log" in told:
        observe(Path(told["log"]))
    given = {"loader": told["loader"]} if "loader" in told else {}
    options = dict(told.get("options", {}))
    if "logit_bias" in options:  # JSON has no whole numbers for keys
        options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
    settings = AppSettings(spec=LoadSpec(**told["spec"]), options=options, conversation=told.get("conversation"))
    with History(Path(told["history"])) as history, contextlib.closing(WorkerEngine(shared=False, **given)) as engine:
        ChatApp(engine, history, settings).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
