"""A long prompt stops soon after it is asked to, and the cache is right afterwards."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import Cancelled
from edgespec.llama import Context, Model
from edgespec.scoring import ScoreRequest

LARGE = {"n_layer": 8, "n_embd": 256, "n_ctx_train": 4096}
PROMPT = [i * 7 % 480 + 5 for i in range(4000)]


def cancelled_after(context: Context, tokens: list[int], delay: float) -> tuple[Any, float]:
    """(the sequence, seconds from the request to stop until score() raised)."""
    stop, asked = threading.Event(), [0.0]

    def ask() -> None:
        asked[0] = time.perf_counter()
        stop.set()

    sequence = context.sequence(tokens)
    timer = threading.Timer(delay, ask)
    timer.start()
    with pytest.raises(Cancelled):
        context.score([ScoreRequest(sequence, tokens, (), stop)])
    late = time.perf_counter() - asked[0]
    timer.join()
    return sequence, late


@pytest.mark.parametrize("n_batch", [8, 64, 512])
@pytest.mark.parametrize("arch", ["llama", "lfm2"])
def test_a_long_prompt_is_cancelled(tiny: Callable[..., Path], open_context: Any, arch: str, n_batch: int) -> None:
    """At n_batch 8 no single decode is long enough to be watched."""
    context = open_context(tiny(arch, **LARGE), n_ctx=4096, n_batch=n_batch, sequences=1)
    sequence, late = cancelled_after(context, PROMPT, 0.1)
    assert late < 0.5
    assert len(sequence.cached) < len(PROMPT)
    short = [*PROMPT[:20], 9]
    got = context.score([ScoreRequest(sequence, short, (4,))])[0].copy()
    sequence.truncate(0)
    assert np.allclose(got, context.score([ScoreRequest(sequence, short, (4,))])[0], atol=2e-3)


def test_a_decode_of_snapshot_size_is_cancelled_cleanly(tiny: Callable[..., Path], open_context: Any) -> None:
    """llama.cpp itself rolls an aborted batch of lfm2 back, to a state that was never computed."""
    context = open_context(tiny("lfm2"), max_width=128)
    text = PROMPT[:60]
    sequence = context.sequence()
    want = context.score([ScoreRequest(sequence, [*text, 9])])[0].copy()
    for n in (17, 24, 31):
        sequence.sync(text)

        class Late(threading.Event):
            """Set from the second question on: within the decode."""

            asked = 0

            def is_set(self) -> bool:
                self.asked += 1
                return self.asked > 6

        with pytest.raises(Cancelled):
            context.score([ScoreRequest(sequence, [*text, *PROMPT[100 : 100 + n]], (), Late())])
        assert np.allclose(context.score([ScoreRequest(sequence, [*text, 9])])[0], want, atol=2e-3)


def test_cancelled_before_it_begins(tiny: Callable[..., Path], open_context: Any) -> None:
    context = open_context(tiny())
    stop = threading.Event()
    stop.set()
    sequence = context.sequence()
    with pytest.raises(Cancelled):
        context.score([ScoreRequest(sequence, [5, 6, 7], (), stop)])
    with pytest.raises(Cancelled):
        sequence.sync([5, 6, 7], stop)
    assert list(sequence.cached) == []


INTERRUPTED = """
import sys, time
from edgespec.llama import Context, LoadSettings, Model
from edgespec.scoring import ScoreRequest
prompt = [i * 7 % 480 + 5 for i in range(4000)]
with Model(sys.argv[1], LoadSettings(n_ctx=4096, n_batch=int(sys.argv[2]), threads=1, buffers="none")) as model:
    context = Context(model)
    sequence = context.sequence()
    want = context.score([ScoreRequest(sequence, prompt[:30])])[0].argmax()
    print("started", flush=True)
    try:
        while True:
            context.score([ScoreRequest(sequence, prompt)])
            sequence.truncate(0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(context.score([ScoreRequest(sequence, prompt[:30])])[0].argmax() == want, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a child work differently there")
@pytest.mark.parametrize("n_batch", [8, 512])
@pytest.mark.parametrize("arch", ["llama", "lfm2"])
def test_ctrl_c_in_a_long_prompt(tiny: Callable[..., Path], arch: str, n_batch: int) -> None:
    path = tiny(arch, **LARGE)
    command = [sys.executable, "-c", INTERRUPTED, str(path), str(n_batch)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(0.15)
        process.send_signal(signal.SIGINT)
        sent = time.perf_counter()
        assert process.stdout.readline() == "interrupted\n"
        late = time.perf_counter() - sent
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert (out, err, process.returncode) == ("True\n", "", 0)
    assert late < 0.5


class CtrlC(logging.Handler):
    """Presses Ctrl+C while llama.cpp logs its first line: C code is then waiting for Python."""

    def __init__(self) -> None:
        super().__init__()
        self.pressed = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("what", ["weights", "context"])
def test_ctrl_c_while_a_model_is_opened(tiny: Callable[..., Path], open_context: Any, what: str) -> None:
    log, handler = logging.getLogger("edgespec.llama"), CtrlC()
    path, model = tiny("llama"), open_context(tiny("llama")).model
    before = log.level, signal.getsignal(signal.SIGINT)
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Model(path, model.settings) if what == "weights" else Context(model)
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
    assert handler.pressed
    assert signal.getsignal(signal.SIGINT) is before[1]
    assert Context(model).n_ctx == 256  # nothing is left in a state that matters


def test_another_thread_opens_models_as_ever(tiny: Callable[..., Path], open_context: Any) -> None:
    found: list[Any] = []
    path = tiny("llama")
    thread = threading.Thread(target=lambda: found.append(open_context(path)))
    thread.start()
    thread.join()
    assert found[0].n_ctx == 256


@pytest.mark.real
def test_a_real_prompt_is_cancelled(starter: Path, open_context: Any) -> None:
    context = open_context(starter, n_ctx=2560, threads=os.cpu_count() or 1, kv_type="f16")
    tokens = context.vocab.tokenize("A line about the weather of the north coast. " * 200, special=False)[:2000]
    sequence, late = cancelled_after(context, tokens, 0.7)
    assert late < 0.5
    assert len(sequence.cached) < len(tokens)


class Logging:
    """llama.cpp's library, whose decodes call Python as a line of its log does; Ctrl+C is pressed there."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._line = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def llama_decode(self, *arguments: Any) -> int:
        self._line()
        return int(self._lib.llama_decode(*arguments))


@pytest.mark.parametrize("arch", ["llama", "lfm2"])
@pytest.mark.parametrize("length", [8, 60])
def test_ctrl_c_in_a_line_of_the_log_is_not_lost(
    tiny: Callable[..., Path], open_context: Any, arch: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = open_context(tiny(arch), sequences=1)
    sequence = context.sequence()
    want = context.score([ScoreRequest(sequence, PROMPT[:length])])[0].copy()
    sequence.truncate(0)
    with monkeypatch.context() as patched:
        patched.setattr(context._decodes, "_lib", Logging(context._lib))
        with pytest.raises(KeyboardInterrupt):
            context.score([ScoreRequest(sequence, PROMPT[:length])])
    assert np.allclose(context.score([ScoreRequest(sequence, PROMPT[:length])])[0], want, atol=2e-3)


class PressedAt(threading.Event):
    """Raises KeyboardInterrupt at the nth question."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.left = n

    def is_set(self) -> bool:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("arch", ["llama", "lfm2"])
def test_ctrl_c_is_never_lost_however_late_in_a_decode_it_comes(
    tiny: Callable[..., Path], open_context: Any, arch: str
) -> None:
    """After the last node there is nothing left to stop: the decode succeeds, and the interrupt counts all the same."""
    context = open_context(tiny(arch), sequences=1)
    text, longer = PROMPT[:20], [*PROMPT[:60], 9]
    sequence = context.sequence()
    want = context.score([ScoreRequest(sequence, longer)])[0].copy()
    for n in range(1, 400):
        sequence.sync(text)
        pressed = PressedAt(n)
        try:
            context.score([ScoreRequest(sequence, longer, (), pressed)])
        except KeyboardInterrupt:
            continue
        finally:
            sequence.truncate(0)
        assert pressed.left > 0, f"the interrupt at question {n} was lost"
        break
    else:
        pytest.fail("the decode asks more often than the test thinks")
    assert n > 20
    assert np.allclose(context.score([ScoreRequest(sequence, longer)])[0], want, atol=2e-3)


@pytest.mark.parametrize("arch", ["llama", "gemma3", "lfm2", "mamba"])
def test_ctrl_c_between_a_decode_and_its_bookkeeping(tiny: Callable[..., Path], open_context: Any, arch: str) -> None:
    """The slot then knows of fewer or of more tokens than llama.cpp's cache holds."""
    context = open_context(tiny(arch), sequences=1)
    text = PROMPT[:40]
    sequence = context.sequence()
    want = context.score([ScoreRequest(sequence, [*text, 9])])[0].copy()
    for damage in (lambda known: known.__delitem__(slice(30, None)), lambda known: known.extend(PROMPT[40:60])):
        sequence.sync(text)
        damage(sequence.slot.tokens)
        assert np.allclose(context.score([ScoreRequest(sequence, [*text, 9])])[0], want, atol=1e-2)
        sequence.sync(text)
        damage(sequence.slot.tokens)
        longer = [*text, *PROMPT[40:60], 9]
        got = context.score([ScoreRequest(sequence, longer)])[0].copy()
        sequence.truncate(0)
        assert np.allclose(got, context.score([ScoreRequest(sequence, longer)])[0], atol=1e-2)
