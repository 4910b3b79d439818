"""Commands on conversations: new, open, find, name, delete, bring back, keep, write to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadRequestError
from . import export
from .background import in_thread
from .labels import line, whole_number

if TYPE_CHECKING:
    from .chat_screen import ChatScreen


async def new(chat: ChatScreen, argument: str) -> None:
    chat.session.new(argument)
    await chat.reopen()
    chat.composer.focus()


async def open_chat(chat: ChatScreen, argument: str) -> None:
    number, _, message = argument.partition(" ")
    chat.session.open(whole_number(number, "the number of a conversation"))
    if message:
        chat.session.switch(whole_number(message, "the number of a message"))
    chat.make_room()
    await chat.reopen()
    if message:
        found = next((v for v in chat.transcript.views if v.message and v.message.id == int(message)), None)
        if found is not None:
            found.focus()
            return
    chat.composer.focus()


async def chats(chat: ChatScreen, argument: str) -> None:
    sidebar = chat.sidebar
    if sidebar.display and sidebar.has_focus_within:
        sidebar.display = False
        chat.composer.focus()
        return
    chat.beside(sidebar)
    sidebar.relist()
    sidebar.focus_list()


async def search(chat: ChatScreen, argument: str) -> None:
    chat.beside(chat.sidebar)
    chat.sidebar.relist()
    chat.sidebar.focus_search(argument)


async def rename(chat: ChatScreen, argument: str) -> None:
    if not argument:
        chat.composer.put(f"/rename {chat.session.conversation.title if chat.session.conversation else ''}")
        chat.composer.focus()
        return
    chat.session.rename(argument)
    chat.head()
    chat.sidebar.relist()


async def delete(chat: ChatScreen, argument: str) -> None:
    number = whole_number(argument, "the number of a conversation") if argument else chat.session.id
    if number is None:
        raise BadRequestError("this conversation has no messages yet, so there is nothing to delete")
    label = line(chat.session.history.conversation(number).label, 40)
    chat.session.history.delete(number)
    chat.deleted.append(number)
    if number == chat.session.id:
        chat.session.new()
        await chat.reopen()
    chat.sidebar.relist()
    chat.say(f"deleted: {label}. /undo brings it back")


async def undo(chat: ChatScreen, argument: str) -> None:
    if not chat.deleted:
        raise BadRequestError("nothing was deleted since the program began; `edgespec history rm --undo` has more")
    number = chat.deleted.pop()
    chat.session.history.restore(number)
    chat.session.open(number)
    await chat.reopen()


async def save(chat: ChatScreen, argument: str) -> None:
    if chat.session.saved:
        chat.session.rename(argument)
    else:
        history = await in_thread(chat.app.saving_history)  # type: ignore[attr-defined]  # ChatApp has it
        chat.session.keep(history, argument)
    chat.head()
    chat.sidebar.relist()
    chat.say("this conversation is kept in the history")


async def write_export(chat: ChatScreen, argument: str) -> None:
    if chat.session.id is None:
        raise BadRequestError("there is nothing to export yet; write a message first")
    path = export.target(argument, chat.session.id)
    text = export.rendered(chat.session, path)
    await in_thread(lambda: export.write(path, text))
    chat.say(f"written: {path}")
