"""llama-cpp-python's own prompt lookup as a peer, in a child process (edgespec/llama/lookup_peer.py)."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from ..api import LLM
from ..errors import DecodeError
from ..sampling import SamplingParams
from .peer_process import PeerProcess
from .statistics import Run

_LARGEST_CONTEXT = 4096  # it keeps a row of logits for every token of the context


class LookupPeer:
    """LlamaPromptLookupDecoding on our file, with our threads. It looks up in the text of the run only."""

    name = "llama-cpp-python"

    def __init__(self, llm: LLM) -> None:
        model = llm.target.model
        settings = {
            "model_path": str(model.path),
            "n_ctx": min(llm.target.n_ctx, _LARGEST_CONTEXT),
            "n_threads": llm.target.n_threads,
            "n_batch": llm.target.n_batch,
            "n_gpu_layers": model.settings.offload,
        }
        self._process = PeerProcess(self.name, [sys.executable, "-m", "edgespec.llama.lookup_peer"], pipes=True)
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
        self._process.end()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        requests, replies = self._process.pipes
        line = ""
        with contextlib.suppress(OSError):
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            line = replies.readline()
        if not line:
            raise DecodeError(f"peer {self.name} has ended: {self._process.last_words()}")
        reply = json.loads(line)
        if "error" in reply:
            raise DecodeError(f"peer {self.name}: {reply['error']}")
        return dict(reply)
