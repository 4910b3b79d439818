"""What the slash commands do in plain chat: one function and one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgespec.tui import export
from edgespec.tui.attachments import read_attachment
from edgespec.tui.labels import line, when, whole_number

from ..chat_commands import COMMANDS, PLAIN
from ..chat_settings import SETTINGS, UNSET
from ..chat_turn import Turn
from ..errors import BadRequestError
from ..history import Message

if TYPE_CHECKING:
    from .plain_chat import PlainChat

Handler = Callable[["PlainChat", str], Turn | None]


def _help(chat: PlainChat, argument: str) -> None:
    rows = [row for row in COMMANDS.values() if PLAIN in row.front_ends]
    wanted = argument.removeprefix("/")
    if wanted and wanted not in [row.name for row in rows]:
        raise BadRequestError(f"there is no command /{line(wanted, 40)}; /help lists them")
    for row in rows:
        if wanted in ("", row.name):
            chat.say(f"{row.usage:<24} {row.help}")
    if not wanted:
        chat.say("Anything else is a message; one that begins with / is written with //.")


# Questions and answers


def _regenerate(chat: PlainChat, argument: str) -> Turn:
    return chat.session.regenerate(whole_number(argument, "a seed") if argument else None)


def _edit(chat: PlainChat, argument: str) -> Turn:
    return chat.session.edit(argument)


def _continue(chat: PlainChat, argument: str) -> Turn:
    return chat.session.go_on()


def _branch(chat: PlainChat, argument: str) -> None:
    """The latest message that has others beside it, else the last one, stands for what is branched."""
    path = chat.session.messages
    if not path:
        raise BadRequestError("there is no message yet; write one first")
    at = next((m for m in reversed(path) if m.branches > 1), path[-1])
    beside = chat.session.branches(at.id)
    if not argument:
        for number, one in enumerate(beside, 1):
            mark = "*" if one.id == at.id else " "
            chat.say(f"{mark} {number}  {_speaker(one)}: {line(one.text, 80)}")
        return
    number = whole_number(argument, "the number of a branch")
    if not 1 <= number <= len(beside):
        raise BadRequestError(f"there is no branch {number}; there are 1 to {len(beside)}")
    chat.session.switch(beside[number - 1].id)
    _show(chat, chat.session.messages[-2:])


def _attach(chat: PlainChat, argument: str) -> None:
    file = read_attachment(argument)
    chat.attached = (*chat.attached, file)
    chat.note(f"{file.label} goes with your next message")


# Conversations


def _new(chat: PlainChat, argument: str) -> None:
    chat.session.new(argument)
    chat.note("a new conversation")


def _history(chat: PlainChat, argument: str) -> None:
    count = whole_number(argument, "how many") if argument else 10
    for one in chat.session.history.conversations(max(1, count)):
        mark = "*" if one.id == chat.session.id else " "
        chat.say(f"{mark} {one.id:>5}  {when(one.updated):>6}  {line(one.label, 60)}")


def _open(chat: PlainChat, argument: str) -> None:
    found = chat.session.open(whole_number(argument, "the number of a conversation"))
    chat.note(f"{line(found.label, 60)}: {found.messages} messages, the latest of them:")
    _show(chat, chat.session.messages[-2:])


def _search(chat: PlainChat, argument: str) -> None:
    hits = chat.session.history.search(argument)
    for hit in hits:
        chat.say(f"{hit.conversation:>5}  {line(hit.label, 30)}: {line(hit.before + hit.match + hit.after, 90)}")
    if not hits:
        chat.note("nothing was found")


def _save(chat: PlainChat, argument: str) -> None:
    if chat.session.saved:
        chat.session.rename(argument)
    else:
        chat.session.keep(chat.saving(), argument)
    chat.note("this conversation is kept in the history")


def _rename(chat: PlainChat, argument: str) -> None:
    chat.session.rename(argument)
    chat.note(f"title: {line(argument, 80)}")


def _delete(chat: PlainChat, argument: str) -> None:
    number = chat.session.id
    if number is None:
        raise BadRequestError("this conversation has no messages yet, so there is nothing to delete")
    chat.session.history.delete(number)
    chat.deleted.append(number)
    chat.session.new()
    chat.note("deleted; /undo brings it back")


def _undo(chat: PlainChat, argument: str) -> None:
    if not chat.deleted:
        raise BadRequestError("nothing was deleted since the program began")
    chat.session.history.restore(chat.deleted[-1])
    _open(chat, str(chat.deleted.pop()))


def _export(chat: PlainChat, argument: str) -> None:
    if chat.session.id is None:
        raise BadRequestError("there is nothing to export yet; write a message first")
    path = export.target(argument, chat.session.id)
    export.write(path, export.rendered(chat.session, path))
    chat.note(f"written: {line(str(path), 400)}")


# The model and how it is asked


def _model(chat: PlainChat, argument: str) -> None:
    _use(chat, "model", argument)


def _draft(chat: PlainChat, argument: str) -> None:
    _use(chat, "draft", argument)


def _drafter(chat: PlainChat, argument: str) -> None:
    _use(chat, "drafter", argument)


def _use(chat: PlainChat, field: str, value: str) -> None:
    if value:
        chat.loaded(chat.session.use(chat.loading, **{field: value}))
        return
    loaded = chat.session.loaded or chat.session.load(chat.loading)
    path = f"{loaded.name} at {loaded.server}" if loaded.server else loaded.path
    now = {"model": path, "draft": loaded.draft or "none", "drafter": loaded.drafter}
    chat.say(f"{field}: {now[field]}")


def _set(chat: PlainChat, argument: str) -> None:
    name, _, text = argument.partition(" ")
    if name and text.strip():
        known, value = chat.session.set(name, text.strip())
        chat.note(f"{known}: {'default' if value is None else value}")
        return
    if name:
        known, _ = chat.session.set(name, "")
        chat.note(f"{known}: default")
        return
    now = chat.session.options
    for known, row in SETTINGS.items():
        mark = "*" if known in chat.session.params else " "
        chat.say(f"{mark} {known:<18} {now.get(known, 'default')!s:<9} {row.help}")


def _system(chat: PlainChat, argument: str) -> None:
    if argument:
        chat.session.system = "" if argument.lower() in ("none", *UNSET) else argument
    chat.say(f"system prompt: {chat.session.system or 'none'}")


def _stats(chat: PlainChat, argument: str) -> None:
    from edgespec.tui.speculation_text import describe

    last = next((m for m in reversed(chat.session.messages) if m.role == "assistant"), None)
    if last is None:
        raise BadRequestError("there is no answer yet; write a message first")
    for text in describe(chat.session.history.details(last.id)):
        chat.say(text)


def _quit(chat: PlainChat, argument: str) -> None:
    chat.ended = True


HANDLERS: dict[str, Handler] = {
    "help": _help,
    "regenerate": _regenerate,
    "edit": _edit,
    "branch": _branch,
    "continue": _continue,
    "attach": _attach,
    "new": _new,
    "history": _history,
    "open": _open,
    "search": _search,
    "save": _save,
    "rename": _rename,
    "delete": _delete,
    "undo": _undo,
    "export": _export,
    "model": _model,
    "draft": _draft,
    "drafter": _drafter,
    "set": _set,
    "system": _system,
    "stats": _stats,
    "quit": _quit,
}


def _show(chat: PlainChat, path: tuple[Message, ...]) -> None:
    """Messages as they were said."""
    for message in path:
        chat.say(f"{_speaker(message)}: {message.text}")


def _speaker(message: Message) -> str:
    return "you" if message.role == "user" else message.role
