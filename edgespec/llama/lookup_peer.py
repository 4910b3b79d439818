"""`python -m edgespec.llama.lookup_peer`: the binding's own prompt lookup, timed for `edgespec bench`.

One JSON object a line. In: first the arguments of llama_cpp.Llama; then {"ids", "max_tokens", "temp", "top_k",
"top_p", "min_p"}. Out: {} once loaded, then {"tokens", "seconds"} (after the first token) or {"error"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO

# What the binding's documents advise: fewer guesses where a row costs time.
_GUESSES_CPU, _GUESSES_GPU = 2, 10


def main(requests: TextIO, replies: TextIO) -> None:
    """Serve requests until the input ends."""
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    settings = json.loads(requests.readline())
    guesses = _GUESSES_GPU if settings["n_gpu_layers"] else _GUESSES_CPU
    draft = LlamaPromptLookupDecoding(num_pred_tokens=guesses)
    # logits_all: without it, looking up fails behind a prompt longer than n_batch.
    llama = Llama(**settings, n_threads_batch=settings["n_threads"], draft_model=draft, logits_all=True, verbose=False)
    _answer(replies, {})
    for line in requests:
        try:
            _answer(replies, _timed(llama, json.loads(line)))
        except (RuntimeError, ValueError) as error:
            _answer(replies, {"error": str(error)})


def _timed(llama: Any, request: dict[str, Any]) -> dict[str, Any]:
    import llama_cpp

    vocab = llama_cpp.llama_model_get_vocab(llama.model)
    ids, limit = request.pop("ids"), request.pop("max_tokens")
    count, first, start = 0, True, time.perf_counter()
    for token in llama.generate(ids, **request):
        count += not llama_cpp.llama_vocab_is_eog(vocab, token)  # an end token is not counted in our own runs either
        if count == 1 and first:
            first, start = False, time.perf_counter()
        if count >= limit or llama_cpp.llama_vocab_is_eog(vocab, token):
            break
    return {"tokens": max(0, count - 1), "seconds": time.perf_counter() - start}


def _answer(replies: TextIO, value: dict[str, Any]) -> None:
    replies.write(json.dumps(value) + "\n")
    replies.flush()


if __name__ == "__main__":
    # The library writes to standard output at times: replies go to a copy of it that only we know.
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.stdin, own)
