"""Heads compute in one thread: numpy's others would spin on for a while, on the cores that llama.cpp decodes on."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

import threadpoolctl


@functools.cache
def _pools() -> Any:
    """Looked for once: it takes milliseconds."""
    return threadpoolctl.ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Inside, matrix products of numpy stay in the thread that asks for them."""
    limit: AbstractContextManager[Any] = _pools().limit(limits=1, user_api="blas")
    return limit
