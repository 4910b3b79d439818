"""Commands on questions and answers: stop, ask again, edit, go on, and the branches that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadRequestError
from ..history import Message
from .labels import line, whole_number

if TYPE_CHECKING:
    from .chat_screen import ChatScreen


async def stop(chat: ChatScreen, argument: str) -> None:
    if chat.busy:
        chat.stop()
        return
    chat.warn("")
    if chat.editing is not None:
        chat.editing = None
        chat.composer.text = ""
        chat.above()
    elif chat.attached and chat.composer.has_focus and not chat.composer.text:
        chat.attached = ()
        chat.above()
    chat.composer.focus()


async def regenerate(chat: ChatScreen, argument: str) -> None:
    seed = whole_number(argument, "a seed") if argument else None
    path = chat.session.messages
    if not path:
        raise BadRequestError("there is no answer yet; write a message first")
    view = chat.answer_view if chat.selected is not None else None
    message = view.message if view is not None and view.message is not None else path[-1]
    cut = message if message.role == "assistant" else None
    await chat.answer(lambda: chat.session.regenerate(seed, message.id), cut=cut)


async def edit(chat: ChatScreen, argument: str) -> None:
    before = _last(chat, "user")
    if not argument:
        raise BadRequestError("type the new text after /edit, or select a message and press e")
    await chat.answer(lambda: chat.session.edit(argument, before.id), cut=before, question=argument)


async def edit_message(chat: ChatScreen, argument: str) -> None:
    view = chat.selected
    message = view.message if view is not None and view.role == "user" else None
    message = message or _last(chat, "user")
    chat.editing = message
    chat.composer.put(message.text)
    chat.above()
    chat.composer.focus()


async def go_on(chat: ChatScreen, argument: str) -> None:
    last = _last(chat, "assistant")
    await chat.answer(chat.session.go_on, cut=last)


async def branch(chat: ChatScreen, argument: str) -> None:
    message = _branching(chat)
    beside = chat.session.branches(message.id)
    if not argument:
        listed = "; ".join(f"{i}: {line(one.text, 40)}" for i, one in enumerate(beside, 1))
        chat.say(f"{len(beside)} branches here, {message.branch + 1} is shown. {listed}")
        return
    number = whole_number(argument, "a branch")
    if not 1 <= number <= len(beside):
        raise BadRequestError(f"there is no branch {number}; there are 1 to {len(beside)}")
    await _switch(chat, beside[number - 1])


async def branch_before(chat: ChatScreen, argument: str) -> None:
    await _step(chat, -1)


async def branch_after(chat: ChatScreen, argument: str) -> None:
    await _step(chat, 1)


async def _step(chat: ChatScreen, by: int) -> None:
    view = chat.selected
    if view is None or view.message is None:
        return
    beside = chat.session.branches(view.message.id)
    place = next(i for i, one in enumerate(beside) if one.id == view.message.id) + by
    if 0 <= place < len(beside):
        await _switch(chat, beside[place])


async def _switch(chat: ChatScreen, message: Message) -> None:
    chat.session.switch(message.id)
    await chat.transcript.show(chat.session.messages, empty="")
    await chat.measure()
    view = next((v for v in chat.transcript.views if v.message is not None and v.message.id == message.id), None)
    if view is not None:
        view.focus()


def _last(chat: ChatScreen, role: str) -> Message:
    found = next((message for message in reversed(chat.session.messages) if message.role == role), None)
    if found is None:
        raise BadRequestError("there is no message yet; write one first")
    return found


def _branching(chat: ChatScreen) -> Message:
    """The message that is selected, or the latest that has branches, or the last answer."""
    if chat.selected is not None and chat.selected.message is not None:
        return chat.selected.message
    found = next((message for message in reversed(chat.session.messages) if message.branches > 1), None)
    return found or _last(chat, "user")
