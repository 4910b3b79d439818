"""`python -m edgespec.engine SETTINGS`: the engine's process. Front ends start it (spawning.py); people need not."""

from __future__ import annotations

import faulthandler
import logging
import sys

import msgspec

from .endpoint import Endpoint
from .spawning import WorkerSettings


def main() -> int:
    faulthandler.enable()  # a crash in C leaves its place in the log
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    endpoint = Endpoint(settings.key)
    listener = endpoint.listen()
    endpoint.note_process()
    from .worker import Worker  # takes a moment; whoever connects meanwhile is served after it

    Worker(settings, listener).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
