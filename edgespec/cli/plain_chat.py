"""Chat line by line: for terminals that show no app, for screen readers, pipes and slow connections."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

import click

from edgespec.tui.attachments import Attachment, with_attachments

from .. import chat_commands
from ..chat_commands import COMMANDS, PLAIN
from ..chat_session import ChatSession
from ..chat_turn import Turn
from ..engine.protocol import Loaded, Loading, Queued
from ..errors import BadRequestError, Cancelled, EdgeSpecError, EngineDied, ServerError
from ..history import History
from ..reply import Reply
from ..stats import RoundEvent, TokenEvent
from ..text import sanitize
from .line_input import LineInput
from .output import Writer, writer
from .summary import summary

_PROMPT = "> "


class PlainChat:
    """Messages in, answers out, over one ChatSession. Answers and what is asked for go to standard output, the rest to
    standard error.

    writer: makes what shows one answer.  saving: opens the history that lasts, for /save.  attached: files that go with
    the next message.
    """

    def __init__(
        self,
        session: ChatSession,
        *,
        writer: Callable[[], Writer],
        saving: Callable[[], History],
        quiet: bool,
        attached: tuple[Attachment, ...] = (),
    ) -> None:
        self.session = session
        self.saving = saving
        self.quiet = quiet
        self.ended = False
        self.attached = attached
        self.deleted: list[int] = []
        self._writer = writer
        self._told = ""

    # Talking

    def converse(self) -> int:
        """Until the input ends. What goes wrong with one message is a line, and the chat goes on."""
        lines = LineInput([f"/{name}" for name, row in COMMANDS.items() if PLAIN in row.front_ends])
        self.note("/help lists the commands; Ctrl+C stops an answer, Ctrl+D ends.")
        recalled: int | None = -1
        while not self.ended:
            if recalled != self.session.id and recalled is not None:
                lines.recall(m.text for m in self.session.messages if m.role == "user")
            recalled = self.session.id
            try:
                self.take(lines.read(_PROMPT))
            except EOFError:
                click.echo(err=True)
                break
            except KeyboardInterrupt:
                click.echo("\n(Ctrl+D ends)", err=True)
            except EdgeSpecError as error:
                self.complain(error)
        return 0

    def answer_once(self, text: str) -> int:
        """One message, one answer; its errors are the program's."""
        reply = self._run(self._ask(text))
        return Cancelled.exit_code if reply is None or reply.finish_reason == "cancelled" else 0

    def take(self, text: str) -> None:
        """A message or a command, as typed."""
        if text.strip() or self.attached:
            self._run(self._act(text))

    def _act(self, text: str) -> Turn | None:
        from .plain_commands import HANDLERS

        invocation = chat_commands.parse(text.strip(), PLAIN)
        if invocation is not None:
            return HANDLERS[invocation.command.name](self, invocation.argument)
        return self._ask(chat_commands.message(text))

    def _ask(self, text: str) -> Turn:
        turn = self.session.ask(with_attachments(text, self.attached))
        self.attached = ()
        return turn

    def _run(self, turn: Turn | None) -> Reply | None:
        """Show an answer while it comes. Ctrl+C stops it; once more, and nothing is waited for."""
        if turn is None:
            return None
        show = self._writer()
        if turn.text:  # an answer that goes on: what there was is a part of it
            show.event(TokenEvent(turn.text, 0, "target", 0.0, 0))
        try:
            with _stopping(turn):
                for event in turn:
                    if isinstance(event, TokenEvent | RoundEvent):
                        show.event(event)
                    elif isinstance(event, Loading):
                        self.loading(event)
                    elif isinstance(event, Queued) and event.position:
                        self.note(f"waiting: {event.position} before this one")
        except KeyboardInterrupt:
            self.note("not waiting for it any longer; what was said is kept")
        finally:
            turn.close()
            show.end()
        if turn.reply is not None and not self.quiet:
            self.note(sanitize(summary(turn.reply)))
        return turn.reply

    # What is said beside

    def say(self, text: str) -> None:
        """What was asked for."""
        click.echo(sanitize(text))

    def note(self, text: str) -> None:
        """What is good to know."""
        if not self.quiet:
            click.echo(text, err=True)

    def complain(self, error: EdgeSpecError) -> None:
        """An error in one line."""
        line = " ".join(sanitize(str(error)).split())
        if isinstance(error, EngineDied):
            line += " The chat goes on: your next message starts it again, /regenerate asks once more."
        elif isinstance(error, ServerError):
            line += ". What came is kept, and the chat goes on: /regenerate asks once more."
        click.echo(f"edgespec: {line}", err=True)

    def loading(self, event: Loading) -> None:
        """A step of loading, once."""
        line = sanitize(event.line)
        if line != self._told:
            self._told = line
            self.note(line)

    def loaded(self, loaded: Loaded) -> None:
        """The model that answers from now on."""
        draft = f", with the draft {PurePath(loaded.draft).name}" if loaded.draft else ""
        where = f" at {loaded.server}" if loaded.server else ""
        self.note(sanitize(f"{loaded.name}{where} answers{draft}"))
        for line in (*loaded.notes, loaded.why):
            if line:
                self.note(sanitize(line))


@contextmanager
def _stopping(turn: Turn) -> Iterator[None]:
    """The first Ctrl+C stops the answer, another one raises KeyboardInterrupt."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        turn.cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def plain_chat(
    session: ChatSession,
    *,
    saving: Callable[[], History],
    quiet: bool,
    sources: bool = False,
    attached: tuple[Attachment, ...] = (),
) -> int:
    """Load the model, then converse; standard input that is no terminal is one message. Returns the exit code.

    saving, quiet, attached: as in PlainChat.  sources: mark each token by who proposed it. Raises as
    ChatSession.load() does; for a single message also as its answer does.
    """
    form = {"as_json": False, "jsonl": False, "sources": sources}
    chat = PlainChat(session, writer=lambda: writer(form), saving=saving, quiet=quiet, attached=attached)
    with _ending():
        text = None if sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf-8", "replace")
        if text is not None and not text.strip() and not attached:
            raise BadRequestError("standard input is empty; give a message, or run it on a terminal")
        if session.spec.model is None:
            chat.note("no model given: using the starter model (choose another with -m, or /model)")
        chat.loaded(session.load(chat.loading))
        return chat.converse() if text is None else chat.answer_once(text)


@contextmanager
def _ending() -> Iterator[None]:
    """A signal to end, or a closed terminal, ends as an error would: what was said so far is saved."""

    def end(number: int, *_: object) -> None:
        raise SystemExit(128 + number)

    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = [signal.signal(number, end) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
