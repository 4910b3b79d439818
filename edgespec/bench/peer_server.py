"""A llama-server as a peer, on a free port of this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..api import LLM
from ..errors import DecodeError
from ..sampling import SamplingParams
from .peer_process import PeerProcess
from .statistics import Run

_START_S, _REPLY_S = 300.0, 1800.0  # longest wait for a model to load, and for one reply
_ALL_LAYERS = 999  # more than any model has; a word for "all" is not known to older servers
# Speculation types that keep n-grams of earlier requests: the second run of a prompt would copy the first one's reply.
_REMEMBERING = {"ngram-mod", "ngram-cache", "ngram-map-k", "ngram-map-k4v"}
_GREEDY = SamplingParams(temperature=0)


class ServerPeer:
    """It has our file, threads, context and GPU layers; further words of the command, such as a draft model, are
    passed on and win. Whether it uses flash attention, and which buffers, is its own choice unless they say so."""

    def __init__(self, llm: LLM, command: Sequence[str], name: str, slots: int = 1) -> None:
        """slots: requests that it answers at once."""
        layers = llm.target.model.settings.offload
        options = {
            "-m": llm.target.model.path,
            "-c": llm.target.cells,
            "-t": llm.target.n_threads,
            "-ngl": _ALL_LAYERS if layers < 0 else layers,
            "-np": slots,
            "--host": "127.0.0.1",
        }
        self.name = name
        self._command = [command[0], *(str(word) for pair in options.items() for word in pair), *command[1:]]
        self._remembers = remembers(command[1:])
        self._continued: tuple[int, ...] | None = None
        self._shared: Sequence[tuple[int, ...]] = ()
        self._start()

    def run(self, ids: tuple[int, ...], params: SamplingParams, max_tokens: int) -> Run:
        if self._remembers and ids == self._continued:
            self.close()
            self._start()
            self._complete(ids, params, 1)
        if max_tokens > 1:
            self._continued = ids
        return self._complete(ids, params, max_tokens)

    def together(self, prompts: Sequence[tuple[int, ...]], max_tokens: int) -> Run:
        """Greedy answers to all prompts at once: all their tokens, and the time until the last was there."""
        if self._remembers and prompts == self._shared:
            self.close()
            self._start()
            self._all(prompts, 1)
        if max_tokens > 1:
            self._shared = prompts
        return self._all(prompts, max_tokens)

    def _all(self, prompts: Sequence[tuple[int, ...]], max_tokens: int) -> Run:
        with ThreadPoolExecutor(len(prompts), thread_name_prefix="edgespec-peer") as pool:
            begin = time.perf_counter()
            tokens = sum(pool.map(lambda ids: self._complete(ids, _GREEDY, max_tokens).tokens + 1, prompts))
            return Run(tokens=tokens, seconds=time.perf_counter() - begin)

    def close(self) -> None:
        self._process.end()

    def _start(self) -> None:
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._process = PeerProcess("llama-server", [*self._command, "--port", str(port)], pipes=False)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        """Until the model is loaded: before, /health answers 503 or nothing."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process.ended():
                raise DecodeError(f"{self.name} ended at its start: {self._process.last_words()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(self._url + "/health", timeout=5).close()
                return
            time.sleep(0.1)
        raise DecodeError(f"{self.name} was not ready after {_START_S:.0f} s: {self._process.last_words()}")

    def _complete(self, ids: tuple[int, ...], params: SamplingParams, max_tokens: int) -> Run:
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

    def _ask(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        body = urllib.request.Request(
            self._url + path, json.dumps(request).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(body, timeout=_REPLY_S) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise DecodeError(f"{self.name} refused: {error.read(300).decode('utf-8', 'replace')}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            if self._process.ended(within=1.0):  # the connection breaks a little before
                raise DecodeError(f"{self.name} has ended: {self._process.last_words()}") from error
            raise DecodeError(f"{self.name} does not answer: {error}") from error


def remembers(options: Sequence[str]) -> bool:
    """Whether a server with these options drafts from replies of earlier requests."""
    words = {part for word in options for part in word.replace("=", ",").split(",")}
    return bool(words & {*_REMEMBERING, "--spec-default"})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
