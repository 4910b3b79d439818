"""What each command and key of the app does. Adding one: a row in chat_commands or keys.MOVES, and one here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import on_answers, on_chats, on_model, on_screen

if TYPE_CHECKING:
    from .chat_screen import ChatScreen


@dataclass(frozen=True, slots=True)
class Action:
    """run: told the text after the command, without blanks around it.  idle: an answer that is being written is
    stopped first."""

    run: Callable[[ChatScreen, str], Awaitable[None]]
    idle: bool = False


ACTIONS = {
    "help": Action(on_screen.show_help),
    "regenerate": Action(on_answers.regenerate, idle=True),
    "edit": Action(on_answers.edit, idle=True),
    "branch": Action(on_answers.branch, idle=True),
    "continue": Action(on_answers.go_on, idle=True),
    "new": Action(on_chats.new, idle=True),
    "history": Action(on_chats.chats),
    "open": Action(on_chats.open_chat, idle=True),
    "search": Action(on_chats.search),
    "save": Action(on_chats.save, idle=True),
    "export": Action(on_chats.write_export),
    "model": Action(on_model.model),
    "draft": Action(on_model.draft),
    "drafter": Action(on_model.drafter),
    "set": Action(on_model.change_setting),
    "system": Action(on_model.system),
    "stats": Action(on_screen.stats),
    "stop": Action(on_answers.stop),
    "chats": Action(on_chats.chats),
    "rename": Action(on_chats.rename),
    "delete": Action(on_chats.delete, idle=True),
    "undo": Action(on_chats.undo, idle=True),
    "attach": Action(on_screen.attach),
    "editor": Action(on_screen.editor),
    "copy": Action(on_screen.copy),
    "raw": Action(on_screen.raw),
    "theme": Action(on_screen.theme),
    "quit": Action(on_screen.leave),
    "message-before": Action(on_screen.message_before),
    "message-after": Action(on_screen.message_after),
    "branch-before": Action(on_answers.branch_before, idle=True),
    "branch-after": Action(on_answers.branch_after, idle=True),
    "edit-message": Action(on_answers.edit_message),
    "write": Action(on_screen.write),
    "tokens": Action(on_screen.tokens),
    "speculation": Action(on_screen.speculation),
}
