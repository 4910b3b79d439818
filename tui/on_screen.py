"""Commands on what is shown, and on the message that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadRequestError
from .attachments import read_attachment
from .background import in_thread
from .editor import edited
from .help_screen import HelpScreen
from .labels import whole_number
from .message_view import MessageView

if TYPE_CHECKING:
    from .chat_screen import ChatScreen

_NO_ANSWER = "there is no answer yet; write a message first"


async def copy(chat: ChatScreen, argument: str) -> None:
    view = chat.selected or chat.answer_view
    if view is None:
        raise BadRequestError(_NO_ANSWER)
    text = view.text
    if argument:
        number, blocks = whole_number(argument, "the number of a block"), view.body.blocks if view.body else []
        if not 1 <= number <= len(blocks):
            have = f"there are 1 to {len(blocks)}" if blocks else "this answer has none"
            raise BadRequestError(f"there is no block of code {number}; {have}")
        text = blocks[number - 1].code
    chat.app.copy_to_clipboard(text)
    chat.say(f"copied: {len(text)} characters")


async def raw(chat: ChatScreen, argument: str) -> None:
    view = chat.selected or chat.answer_view
    if view is None:
        raise BadRequestError(_NO_ANSWER)
    if view.role == "user":
        await view.show_all()
    else:
        await view.show_as("raw" if view.view != "raw" else "markdown")


async def tokens(chat: ChatScreen, argument: str) -> None:
    view = _answer(chat)
    if view.view == "tokens":
        chat.inspector.display = False
        await view.show_as("markdown")
        return
    details = None
    if not view.events and view.message is not None:
        number = view.message.id
        details = await in_thread(lambda: chat.session.history.details(number))
        chat.panel.show_details(details)
    await view.show_as("tokens", details)


async def speculation(chat: ChatScreen, argument: str) -> None:
    if chat.panel.display:
        chat.panel.display = False
        return
    chat.beside(chat.panel)
    view = chat.answer_view
    if not chat.busy and view is not None and view.message is not None:
        number = view.message.id
        chat.panel.show_details(await in_thread(lambda: chat.session.history.details(number)))


async def stats(chat: ChatScreen, argument: str) -> None:
    if not chat.panel.display:
        await speculation(chat, argument)


async def message_before(chat: ChatScreen, argument: str) -> None:
    await _select(chat, -1)


async def message_after(chat: ChatScreen, argument: str) -> None:
    await _select(chat, 1)


async def _select(chat: ChatScreen, by: int) -> None:
    views, view = chat.transcript.views, chat.selected
    place = views.index(view) + by if view in views else len(views) - 1
    if place < 0 and await chat.transcript.earlier():
        await _select(chat, by)
    elif 0 <= place < len(views):
        views[place].focus()
    elif place >= len(views):
        chat.composer.focus()


async def write(chat: ChatScreen, argument: str) -> None:
    chat.composer.focus()


async def show_help(chat: ChatScreen, argument: str) -> None:
    chat.app.push_screen(HelpScreen(chat.app.own_keys))  # type: ignore[attr-defined]  # ChatApp has them


async def theme(chat: ChatScreen, argument: str) -> None:
    if not argument:
        chat.app.search_themes()
    elif argument in chat.app.available_themes:
        chat.app.theme = argument
    else:
        raise BadRequestError(f"there is no theme {argument[:40]!r}; there are {', '.join(chat.app.available_themes)}")


async def attach(chat: ChatScreen, argument: str) -> None:
    attached = await in_thread(lambda: read_attachment(argument))
    chat.attached = (*chat.attached, attached)
    chat.above()


async def editor(chat: ChatScreen, argument: str) -> None:
    text = await edited(chat.app, chat.composer.text)
    if text is not None:
        chat.composer.put(text)


async def leave(chat: ChatScreen, argument: str) -> None:
    await chat.app.run_action("quit")


def _answer(chat: ChatScreen) -> MessageView:
    view = chat.answer_view
    if view is None:
        raise BadRequestError(_NO_ANSWER)
    return view
