"""Other programs on the same file: each run alternates with ours, and reads its prompt before the clock starts."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Protocol

from ..api import LLM
from ..errors import BadRequestError, DecodeError
from ..sampling import SamplingParams
from .statistics import Run

_START_S, _REPLY_S = 300.0, 1800.0  # longest wait for a model to load, and for one reply


class Peer(Protocol):
    """Another program that continues token ids."""

    @property
    def name(self) -> str: ...

    def run(self, ids: tuple[int, ...], params: SamplingParams, max_tokens: int) -> Run:
        """One generation, timed by the peer from its first token to its end. Raises DecodeError."""
        ...

    def close(self) -> None:
        """End the program."""
        ...


def parse_peer(text: str) -> Callable[[LLM], Peer]:
    """What starts the peer that --peer names, once our model is loaded. Raises BadRequestError."""
    if text == "llama-cpp-python":
        return LookupPeer
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
    return lambda llm: ServerPeer(llm, [binary, *words[1:]])


class LookupPeer:
    """llama-cpp-python's LlamaPromptLookupDecoding, in a child process (edgespec/llama/lookup_peer.py)."""

    name = "llama-cpp-python"

    def __init__(self, llm: LLM) -> None:
        model = llm.target.model
        settings = {
            "model_path": str(model.path),
            "n_ctx": min(llm.target.n_ctx, 4096),  # it keeps a row of logits for every token of the context
            "n_threads": llm.target.n_threads,
            "n_batch": llm.target.n_batch,
            "n_gpu_layers": model.settings.offload,
        }
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the child
        self._child = subprocess.Popen(
            [sys.executable, "-m", "edgespec.llama.lookup_peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self._ask(settings)
        except BaseException:
            self.close()
            raise

    def run(self, ids: tuple[int, ...], params: SamplingParams, max_tokens: int) -> Run:
        reply = self._ask(
            {
                "ids": ids,
                "max_tokens": max_tokens,
                "temp": params.temperature,
                "top_k": params.top_k,
                "top_p": params.top_p,
                "min_p": params.min_p,
            }
        )
        return Run(tokens=int(reply["tokens"]), seconds=float(reply["seconds"]))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._child.communicate(timeout=10)
        _end(self._child)
        self._log.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._child.stdin is None or self._child.stdout is None:
            raise DecodeError("peer llama-cpp-python has no pipes")
        line = ""
        with contextlib.suppress(OSError):
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        if not line:
            raise DecodeError(f"peer llama-cpp-python has ended: {_tail(self._log)}")
        reply = json.loads(line)
        if "error" in reply:
            raise DecodeError(f"peer llama-cpp-python: {reply['error']}")
        return dict(reply)


class ServerPeer:
    """A llama-server on a free port of this machine, with our file, threads and context; further words of the
    command, such as a draft model, are passed on."""

    def __init__(self, llm: LLM, command: list[str]) -> None:
        self.name = " ".join(["llama-server", *command[1:]])
        self._url = f"http://127.0.0.1:{_free_port()}"
        given = {
            "-m": llm.target.model.path,
            "-c": llm.target.n_ctx,
            "-t": llm.target.n_threads,
            "-np": 1,
            "--host": "127.0.0.1",
            "--port": self._url.rpartition(":")[2],
        }
        options = [str(word) for pair in given.items() for word in pair]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the child
        try:
            self._child = subprocess.Popen(
                [command[0], *options, *command[1:]], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
            )
        except OSError as error:
            raise BadRequestError(f"peer llama-server: cannot run {command[0]}: {error.strerror}") from error
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def run(self, ids: tuple[int, ...], params: SamplingParams, max_tokens: int) -> Run:
        reply = self._ask(
            "/completion",
            {
                "prompt": ids,
                "n_predict": max_tokens,
                "temperature": params.temperature,
                "top_k": params.top_k,
                "top_p": params.top_p,
                "min_p": params.min_p,
                "seed": params.seed or 0,
                "cache_prompt": True,
            },
            _REPLY_S,
        )
        try:
            timings = reply["timings"]
            # Its clock starts at the first token, as ours does, but it counts that token, and an end token too.
            extra = 1 + (reply.get("stop_type") == "eos")
            return Run(
                tokens=max(0, int(timings["predicted_n"]) - extra), seconds=float(timings["predicted_ms"]) / 1000
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"{self.name} sent no timings: {json.dumps(reply)[:200]}") from error

    def close(self) -> None:
        self._child.terminate()
        _end(self._child)
        self._log.close()

    def _wait(self) -> None:
        """Until the model is loaded: before, /health answers 503 or nothing."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._child.poll() is not None:
                raise DecodeError(f"{self.name} ended at its start: {_tail(self._log)}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self._url + "/health", timeout=5).close()
                return
            time.sleep(0.1)
        raise DecodeError(f"{self.name} was not ready after {_START_S:.0f} s: {_tail(self._log)}")

    def _ask(self, path: str, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        body = urllib.request.Request(
            self._url + path, json.dumps(request).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(body, timeout=timeout) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise DecodeError(f"{self.name} refused: {error.read(300).decode('utf-8', 'replace')}") from error
        except (OSError, ValueError) as error:
            raise DecodeError(f"{self.name} does not answer: {error}") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(child: subprocess.Popen[Any]) -> None:
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _tail(log: Any) -> str:
    """The last line that a child wrote."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - 2000))
    lines = log.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it gave no reason")
