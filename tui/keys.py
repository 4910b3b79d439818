"""All that keys do in the app: the commands that have a key, and moves that are no command."""

from __future__ import annotations

from collections.abc import Iterator

from textual.binding import Binding, BindingType

from ..chat_commands import APP, COMMANDS
from .keymap import Key

# name: (keys, what it does, whether it works on a selected message)
MOVES = {
    "message-before": ("up", "Select the message before", True),
    "message-after": ("down", "Select the message after", True),
    "branch-before": ("left", "Show the branch before", True),
    "branch-after": ("right", "Show the next branch", True),
    "edit-message": ("e", "Edit this message of yours, on a branch of its own", True),
    "write": ("i", "Back to the message that you write", True),
    "tokens": ("ctrl+t", "Show who proposed each token, or the text again", False),
    "speculation": ("ctrl+s", "Show or hide what speculation does", False),
}
# name: its word in the line at the bottom
_SHOWN = {
    "help": "Help", "new": "New", "chats": "Chats", "model": "Model", "tokens": "Tokens", "speculation": "Speed",
    "edit-message": "Edit", "copy": "Copy", "raw": "Raw", "write": "Write",
}  # fmt: skip


def key_table() -> tuple[Key, ...]:
    """Every key that can be changed in config.toml."""
    return (
        *(
            Key(row.name, row.keys, "message" if row.on_message else "chat")
            for row in COMMANDS.values()
            if APP in row.front_ends
        ),
        *(Key(name, keys, "message" if there else "chat") for name, (keys, _, there) in MOVES.items()),
    )


# What a key does where the command, with its argument, does more.
_KEY_HELP = {
    "help": "Show this.",
    "search": "Search all conversations.",
    "model": "Choose another model.",
    "set": "Change the system prompt and the settings of this conversation.",
    "rename": "Give this conversation a title.",
    "copy": "Copy it.",
    "raw": "Show an answer as the model wrote it, or as Markdown; all of a long message.",
    "stop": "End the answer that is being written; its text stays. Leave an edit.",
}


def help_of(name: str) -> str:
    """What a key of that name does, in a line."""
    if name in _KEY_HELP:
        return _KEY_HELP[name]
    return COMMANDS[name].help if name in COMMANDS else f"{MOVES[name][1]}."


def screen_bindings() -> list[BindingType]:
    """Keys that work everywhere in the chat."""
    return list(_bindings("chat"))


def message_bindings() -> list[BindingType]:
    """Keys that work on a selected message."""
    return list(_bindings("message"))


def _bindings(where: str) -> Iterator[Binding]:
    for key in key_table():
        if key.where == where:
            yield Binding(
                key.keys or f"unbound_{key.id}",
                f"command('{key.id}')",
                _SHOWN.get(key.id, help_of(key.id)),
                show=key.id in _SHOWN,
                priority=where == "chat" and key.id != "stop",  # Escape first closes what is open
                id=key.id,
            )
