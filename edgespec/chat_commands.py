"""The slash commands of a chat: one table for the app, its palette and plain chat. Adding a command: one row.

A front end binds each of its commands to what it does. A message that begins with a slash is written with two.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from .errors import BadRequestError

APP, PLAIN = "app", "plain"
_BOTH = (APP, PLAIN)
_APP = (APP,)


@dataclass(frozen=True, slots=True)
class Command:
    """One row. name: typed after the slash.  argument: its form, [in brackets] if it may be left out, empty if there
    is none.  help: one line.  front_ends: who has it.  keys: of the app, separated by commas; config.toml may have
    others.  on_message: these keys work on a message that is selected, not everywhere."""

    name: str
    argument: str
    help: str
    front_ends: tuple[str, ...] = _BOTH
    keys: str = ""
    on_message: bool = False

    @property
    def usage(self) -> str:
        """As a person types it."""
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command as typed. argument: the rest of the text, without the blanks around it."""

    command: Command
    argument: str


COMMANDS = {
    row.name: row
    for row in (
        Command("help", "[COMMAND]", "Say what the commands do.", keys="f1"),
        Command("regenerate", "[SEED]", "Answer once more; the answer before stays beside the new one.", keys="ctrl+r"),
        Command("edit", "TEXT", "Put TEXT in place of your last message; what was there stays as a branch."),
        Command("branch", "[N]", "Show the branches at your last message and its answer, or go to one."),
        Command("continue", "", "Go on with an answer that was stopped."),
        Command("new", "[TITLE]", "Begin another conversation; this one stays in the history.", keys="ctrl+n"),
        Command("history", "[N]", "List the latest conversations, 10 or N."),
        Command("open", "ID", "Go on with a conversation of the history."),
        Command("search", "TEXT", "Find TEXT in all conversations.", keys="ctrl+f"),
        Command("save", "[TITLE]", "Keep this conversation in the history, under TITLE if given."),
        Command(
            "export",
            "[FILE]",
            "Write this conversation to FILE (.json, else Markdown); without FILE: to a new file here.",
        ),
        Command("model", "[NAME]", "Say which model answers, or use another.", keys="ctrl+o"),
        Command("draft", "[NAME]", "Say which draft model guesses, or use another; none, auto."),
        Command("drafter", "[LIST]", "Say which sources guess, or use others; none: plain decoding; auto: all."),
        Command(
            "set",
            "[NAME [VALUE]]",
            "Show the settings of this conversation, or change one; no VALUE: its default.",
            keys="f3",
        ),
        Command("system", "[TEXT]", "Show the system prompt, or set it; none: without one."),
        Command("stats", "", "Say what speculation did for the last answer."),
        Command("stop", "", "End the answer that is being written; its text stays.", _APP, keys="escape"),
        Command("chats", "", "Show or hide the list of conversations.", _APP, keys="ctrl+l"),
        Command("rename", "TITLE", "Give this conversation a title.", keys="f2"),
        Command("delete", "", "Delete this conversation; /undo brings it back."),
        Command("undo", "", "Bring back the conversation that was deleted last."),
        Command("attach", "FILE", "Put a text file before your next message."),
        Command("editor", "", "Write the message in your editor ($VISUAL, $EDITOR).", _APP, keys="ctrl+g"),
        Command("copy", "[N]", "Copy the last answer, or its block of code N.", _APP, keys="c", on_message=True),
        Command(
            "raw", "", "Show the last answer as the model wrote it, or as Markdown.", _APP, keys="v", on_message=True
        ),
        Command("theme", "[NAME]", "Use other colours; without NAME: choose from a list.", _APP),
        Command("quit", "", "End; nothing is lost.", keys="ctrl+q"),
    )
}


def parse(text: str, front_end: str) -> Invocation | None:
    """The command that `text` is, or None for a message.

    Raises BadRequestError for a command that the front end does not have, and for an argument too many or too few.
    """
    if not text.startswith("/") or text.startswith("//"):
        return None
    words = text[1:].split(maxsplit=1)
    name = words[0] if words and not text[1:2].isspace() else ""
    known = [row.name for row in COMMANDS.values() if front_end in row.front_ends]
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, 1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists the commands"
        raise BadRequestError(f"there is no command /{name[:40]}; {hint} To send it as a message, type //")
    command = COMMANDS[name]
    argument = words[1].strip() if len(words) > 1 else ""
    if argument and not command.argument:
        raise BadRequestError(f"/{name} takes nothing after it")
    if command.needs_argument and not argument:
        raise BadRequestError(f"/{name} needs more; type {command.usage}")
    return Invocation(command, argument)


def message(text: str) -> str:
    """What is sent to the model for a text that is no command: two slashes at its beginning are one."""
    return text[1:] if text.startswith("//") else text
