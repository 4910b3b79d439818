"""Programs that write a history until they are killed, or until they are done."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from edgespec.history import History
from edgespec.stats import RoundEvent, TokenEvent

TOKEN_S = 0.004


def chat_until_killed(place: Path) -> None:
    """Exchange after exchange. Says on standard output what has been committed, and when a token was taken.

    m ID NUMBER: message ID holds question NUMBER.  b ID: reply ID has begun.  t SECONDS: its next token was appended.
    f TOKENS: it is finished.
    """
    with History(place) as saved:
        talk, last = saved.new_conversation(), None
        for number in range(1_000_000):
            asked = saved.add_message(talk, last, "user", question(number))
            _say(f"m {asked} {number}")
            reply = saved.begin_reply(talk, asked)
            _say(f"b {reply.id}")
            tokens = 500 if number % 3 == 2 else 10
            for k in range(tokens):
                reply.append(TokenEvent(word(k), k, "lookup", -0.5, k))
                _say(f"t {time.monotonic()}")
                if k % 4 == 3:
                    reply.append(RoundEvent(k, "lookup", 0, (), 0, 4, (k,), 0.0, 1.0, 0.1))
                time.sleep(TOKEN_S)
            reply.finish("stop", result={"number": number})
            _say(f"f {tokens}")
            last = reply.id


def write_messages(place: str, writer: int, count: int) -> int:
    """`count` writes, one transaction each, to a conversation of its own and to one that all share."""
    with History(Path(place)) as saved:
        own, last = saved.new_conversation(title=f"writer {writer}"), None
        for number in range(count):
            if number % 2:
                saved.add_message(1, None, "user", f"writer {writer} message {number}")
            else:
                last = saved.add_message(own, last, "user", f"writer {writer} message {number}")
    return count


def question(number: int) -> str:
    return f"question {number}: " + "what comes after this? " * (number % 5)


def word(k: int) -> str:
    return f"w{k} "


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    chat_until_killed(Path(sys.argv[1]))
