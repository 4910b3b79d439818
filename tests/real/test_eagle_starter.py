"""An EAGLE head on the starter model: exact output, with guesses that a regression over a few hundred tokens makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from starter_heads import guessed_exactly, states_of

import edgespec
from edgespec import LLM
from edgespec.heads.eagle import EagleHead, EagleWeights, Shape, write_eagle
from edgespec.heads.medusa import Facts

pytestmark = pytest.mark.real

Record = Callable[..., None]
TEXT = (
    "The mill stands by the river. Every spring the miller opens the gate, and the water turns the wheel. The wheel "
    "turns the stone, and the stone grinds the corn. In autumn the miller closes the gate, and the wheel stands still. "
    "Then he sweeps the floor, oils the axle and waits for the winter. In winter the river freezes, and children of "
    "the village walk over the ice to the mill. The miller opens the door and gives them bread. "
)


@pytest.fixture(scope="module")
def head(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attention and feed-forward layer add nothing: the output matrix guesses from the feature alone."""
    with edgespec.load(starter, draft=None, drafter="none", ctx_size=1024, tuned=False) as llm:
        tokens = llm.tokenize(TEXT * 2)
        rows = states_of(llm, tokens)
        n, size, name = llm.target.state_size, llm.target.vocab.size, llm.name
    rows /= np.sqrt((rows**2).mean(axis=1, keepdims=True))
    ids = np.unique(tokens).astype(np.int64)
    wanted = np.zeros((len(rows) - 2, len(ids)))
    wanted[np.arange(len(wanted)), np.searchsorted(ids, tokens[2 : 2 + len(wanted)])] = 1
    known = rows[: len(wanted)]
    output = 20 * np.linalg.solve(known.T @ known + 10 * np.eye(n), known.T @ wanted).T
    shape = Shape(n_embd=n, n_head=2, n_head_kv=1, head_dim=32, n_ff=32)

    def none(*sizes: int) -> np.ndarray:  # type: ignore[type-arg]
        return np.zeros(sizes, np.float32)

    ones = np.ones(n, np.float32)
    weights = EagleWeights(
        ones, ones, none(64, 2 * n), none(32, 2 * n), none(32, 2 * n), none(n, 64), ones, none(32, n), none(32, n),
        none(n, 32), ones, output.astype(np.float32),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("heads") / "eagle.gguf"
    write_eagle(EagleHead(Facts(size, n, target_name=name), shape, weights, ids), path)
    return path


@pytest.fixture(scope="module", params=[pytest.param("off", marks=pytest.mark.soak), "on"])
def llm(request: pytest.FixtureRequest, starter: Path, head: Path) -> Iterator[LLM]:
    # With flash attention the numbers of a prompt differ most by how it was read: at once, or all but its last token.
    kernels = {"threads": 2, "buffers": "auto", "flash_attn": request.param}
    with edgespec.load(
        starter, draft=None, drafter="eagle", heads=head, ctx_size=1024, parallel=1, tuned=False, **kernels
    ) as loaded:
        yield loaded


def test_text_with_a_head_is_the_plain_text_or_the_models_own_fork(llm: LLM, record: Record) -> None:
    reply = guessed_exactly(llm, "eagle", TEXT + "The mill stands by", draft_max=2)
    record(
        tau=reply.stats.tau,
        accepted=reply.stats.accepted,
        drafted=reply.stats.drafted,
        head_ms=llm.head_ms("eagle"),
        step_ms=llm.measured().at(1),
    )
    assert reply.stats.accepted > 3
