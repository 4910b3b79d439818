"""The real command: in a process of its own, or, where that is not what is tested, in this one."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from edgespec import cli as edgespec_cli

EDGESPEC = (sys.executable, "-m", "edgespec")
# One thread: two of them spin at every barrier while the machine has other work, and cost seconds.
RUN = (*EDGESPEC, "run", "--threads", "1")
Argument = str | bytes | Path


@dataclass(frozen=True, slots=True)
class Models:
    """chat: llama with a template, endless.  draft: agrees with chat on about half of the tokens.
    raw: chat without a template.  mismatched: tokens 100 and 101 of its vocabulary trade places."""

    chat: Path
    draft: Path
    raw: Path
    mismatched: Path


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def items(self) -> list[dict[str, Any]]:
        value = json.loads(self.out)
        assert isinstance(value, list)
        return value

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True, slots=True)
class Cli:
    """Runs the command with an environment; calling it runs `edgespec run` with `always` and the arguments here."""

    env: Mapping[str, str]
    always: tuple[Argument, ...] = ()

    def __call__(self, *arguments: Argument, stdin: bytes = b"") -> Result:
        return self.here("run", "--threads", "1", *self.always, *arguments, stdin=stdin)

    def process(self, *arguments: Argument, stdin: bytes = b"") -> Result:
        """As a call, but as a shell does it: starting a process takes most of a second."""
        return self.run([*RUN, *self.always, *arguments], stdin=stdin)

    def here(self, *arguments: Argument, stdin: bytes = b"") -> Result:
        """`edgespec` with these arguments, from its entry point on, in this process."""
        out, err = io.BytesIO(), io.BytesIO()
        streams = {
            "stdin": io.TextIOWrapper(io.BytesIO(stdin), "utf-8"),
            "stdout": io.TextIOWrapper(out, "utf-8", write_through=True),
            "stderr": io.TextIOWrapper(err, "utf-8", write_through=True),
            "argv": ["edgespec", *map(os.fsdecode, arguments)],
        }
        log = logging.getLogger("edgespec")
        handlers = log.handlers[:]
        try:
            with mock.patch.dict(os.environ, self.env, clear=True), mock.patch.multiple(sys, **streams):
                code = edgespec_cli._run()
        finally:
            log.handlers[:] = handlers
        return Result(code, out.getvalue().decode(), err.getvalue().decode())

    def run(self, command: Sequence[Argument], *, stdin: bytes = b"", **options: Any) -> Result:
        """Any command line, to its end."""
        done = subprocess.run(
            command, input=stdin, capture_output=True, env=self.env, timeout=120, check=False, **options
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: Argument, **options: Any) -> subprocess.Popen[bytes]:
        """`edgespec run` in the background, with pipes for its outputs and no input."""
        # Unbuffered: a line read ahead of communicate() would be lost to it.
        pipes = {
            "bufsize": 0,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        return subprocess.Popen([*RUN, *self.always, *arguments], env=self.env, **pipes)
