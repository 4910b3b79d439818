"""Saved conversations: a tree of messages each, in one SQLite file that survives a kill and is found through.

history = History()
conversation = history.new_conversation(model="smollm2-135m.gguf")
question = history.add_message(conversation, None, "user", "Name a bird.")
reply = history.begin_reply(conversation, question)
reply.append(event)  # for every TokenEvent and RoundEvent
reply.finish("stop")
"""

from __future__ import annotations

from .database import history_file
from .history import History
from .records import FINISH_REASONS, Conversation, Hit, Imported, Message, ReplyDetails, turns
from .reply_writer import ReplyWriter

__all__ = [
    "FINISH_REASONS",
    "Conversation",
    "History",
    "Hit",
    "Imported",
    "Message",
    "ReplyDetails",
    "ReplyWriter",
    "history_file",
    "turns",
]
