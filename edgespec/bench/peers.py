"""Other programs on the same file: each run alternates with ours, and reads its prompt before the clock starts."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ..api import LLM
from ..errors import BadRequestError
from ..sampling import SamplingParams
from .peer_lookup import LookupPeer
from .peer_server import ServerPeer
from .statistics import Run


class Peer(Protocol):
    """Another program that continues token ids."""

    @property
    def name(self) -> str: ...

    def run(self, ids: tuple[int, ...], params: SamplingParams, max_tokens: int) -> Run:
        """One generation, timed by the peer from its first token to its end. Raises DecodeError.

        Nothing that it drafts with may come from an earlier run of the same ids.
        """
        ...

    def close(self) -> None:
        """End the program."""
        ...


def parse_peers(texts: Sequence[str]) -> list[Callable[[LLM], Peer]]:
    """What starts each peer that --peer names, once our model is loaded. Raises BadRequestError."""
    return [_starter(command, name) for command, name in _commands(texts)]


def parse_servers(texts: Sequence[str], slots: int) -> list[Callable[[LLM], ServerPeer]]:
    """As parse_peers(), of peers that answer so many requests at once. Raises BadRequestError."""
    found: list[Callable[[LLM], ServerPeer]] = []
    for command, name in _commands(texts):
        if command is None:
            raise BadRequestError("peer llama-cpp-python answers one request at a time; leave it out, or --parallel")
        found.append(partial(ServerPeer, command=command, name=name, slots=slots))
    return found


def _commands(texts: Sequence[str]) -> list[tuple[list[str] | None, str]]:
    """Of each peer: its command, None for the binding; and its name."""
    commands = {text: _command(text) for text in texts}
    short = {text: " ".join(["llama-server", *command[1:]]) for text, command in commands.items() if command}
    seen = Counter(short.values())
    # Two programs with the same options are told apart by their paths.
    names = {text: name if seen[name] == 1 else text.partition("=")[2].strip() for text, name in short.items()}
    return [(command, names.get(text, "")) for text, command in commands.items()]


def _starter(command: list[str] | None, name: str) -> Callable[[LLM], Peer]:
    if command is None:
        return LookupPeer
    return lambda llm: ServerPeer(llm, command, name)


def _command(text: str) -> list[str] | None:
    """Program and options of a llama-server; None for the binding."""
    if text == "llama-cpp-python":
        return None
    kind, _, command = text.partition("=")
    if kind != "llama-server" or not command.strip():
        raise BadRequestError(f"peer {text!r} is not known; use llama-cpp-python or llama-server=PATH")
    try:
        words = shlex.split(command, posix=os.name == "posix")
    except ValueError as error:
        raise BadRequestError(f"peer {text!r} cannot be read: {error}") from error
    binary = shutil.which(words[0])
    if binary is None:
        raise BadRequestError(f"peer llama-server: {words[0]} is no program; give the path of a llama-server binary")
    return [binary, *words[1:]]
