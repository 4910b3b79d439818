"""Commands on the model, its drafts and the settings of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..chat_settings import UNSET
from .labels import line
from .settings_screen import SettingsScreen

if TYPE_CHECKING:
    from .chat_screen import ChatScreen


async def model(chat: ChatScreen, argument: str) -> None:
    name = argument or chat.session.server or await chat.choose_model()
    if name:
        await chat.load(model=name)


async def draft(chat: ChatScreen, argument: str) -> None:
    if argument:
        await chat.load(draft=argument)
    else:
        loaded = chat.session.loaded
        chat.say(f"draft model: {loaded.draft if loaded and loaded.draft else 'none'}")


async def drafter(chat: ChatScreen, argument: str) -> None:
    if argument:
        await chat.load(drafter=argument)
    else:
        chat.beside(chat.panel)


async def change_setting(chat: ChatScreen, argument: str) -> None:
    if argument:
        name, _, text = argument.partition(" ")
        known, value = chat.session.set(name, text.strip())
        chat.say(f"{known}: {'default' if value is None else value}")
        return
    await chat.app.push_screen_wait(SettingsScreen(chat.session))


async def system(chat: ChatScreen, argument: str) -> None:
    if not argument:
        await chat.app.push_screen_wait(SettingsScreen(chat.session, system=True))
        return
    chat.session.system = "" if argument.lower() in ("none", *UNSET) else argument
    chat.say("system prompt: " + (line(chat.session.system, 100) or "none"))
