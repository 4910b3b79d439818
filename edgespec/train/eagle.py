"""An EAGLE head of our own form: one decoder layer over (token, feature), trained to go on with its own features.

After EAGLE-3 (arXiv 2503.01840): from every position of a text a draft of K tokens is unrolled. Its first step reads
the model's state as the feature, and each later one what the layer made the step before, with the attention that a
draft has. Each step is to give the model's own distribution; as so few texts do not say enough by that alone, it is
also to come near the model's next state (EAGLE, arXiv 2401.15077).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api import LLM
from ..drafters import EagleDrafter
from ..drafting import Drafter, Features
from ..errors import EdgeSpecError
from ..heads.eagle import SUFFIX, EagleHead, in_eight_bits, write_eagle
from ..heads.eagle_file import read_eagle
from ..heads.medusa import Facts
from ..heads.registry import EAGLE
from ..llama.following import open_eagle
from .attention import Rotation, Span
from .begin import POSITIONS
from .data import Pairs, Text, pairs
from .eagle_begin import begin, frame_for, shape_for
from .eagle_layer import Passed, back, root_of, step, weights_of
from .fit import EVALUATED, LATER, Score, Tally, Trainer, wanted, weight_of
from .form import Form, Material
from .network import Floats, Params, cross_entropy
from .output import embedding_rows
from .settings import TrainSettings

_RATE = 0.008  # of one step of a weight, relative to the root of a state's size
_NEAR = 1.0  # what the distance from the next state counts, beside the cross-entropy
_SPAN = 256  # positions of a piece of text: as far as the layer learns to look back
_KEPT = 40  # numbers of a position's step that its gradients need, in sizes of a state, about


@dataclass(frozen=True, slots=True)
class Pieces:
    """Positions as in Pairs, of which each is the pair that its state and its token make.

    tokens: (N,) int64, places in a table of embeddings.  last: (N,) int64, the last position of its text.  spans:
    (P, 2) int64: pieces that are learned from as one, each from its first position to before its end.
    """

    pairs: Pairs
    tokens: NDArray[np.int64]
    last: NDArray[np.int64]
    spans: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[Text], ids: NDArray[np.int64], heads: int, read: NDArray[np.int64]) -> Pieces:
        """ids: the draft vocabulary.  read: ids of the tokens that have embeddings, ascending; all of the texts' do."""
        ends = np.cumsum([len(text.tokens) for text in texts])
        starts = ends - [len(text.tokens) for text in texts]
        spans = [
            (first, min(first + _SPAN, end))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            for first in range(start, end, _SPAN)
        ]
        return cls(
            pairs(texts, ids, heads, 1),
            np.searchsorted(read, np.concatenate([text.tokens for text in texts])).astype(np.int64),
            np.repeat(ends - 1, ends - starts),
            np.array(spans, np.int64).reshape(-1, 2),
        )


class EagleTrainer(Trainer[Pieces]):
    """Of the layer. Its output matrix is the model's own and is not learned."""

    def __init__(
        self, pieces: Pieces, ids: NDArray[np.int64], rows: Floats, embeddings: Floats, passes: int, seed: int
    ) -> None:
        """ids: the draft vocabulary.  rows: (D, n), the model's own output matrix.  embeddings: the table, (U, n)."""
        self._pieces = pieces
        self.frame = frame_for(pieces.pairs.states)
        self._rows = in_eight_bits(rows)
        self._embedded = embeddings * root_of(embeddings, self.frame.shape.eps)
        usable = pieces.pairs.known[pieces.spans[:, 0], 0]
        self._usable = np.flatnonzero(usable)
        params = begin(
            pieces.pairs,
            self.frame,
            lambda positions: self._embedded[pieces.tokens[positions]],
            pieces.last == np.arange(len(pieces.last)),
            seed,
        )
        super().__init__(ids, params, _RATE / rows.shape[1] ** 0.5, passes, seed)

    def steps_of_a_pass(self, batch: int) -> int:
        sizes = np.diff(self._pieces.spans[self._usable], axis=1)
        return min(len(self._usable), -(-int(sizes.sum()) // batch))

    def _batches(self, batch: int, rng: np.random.Generator) -> Sequence[NDArray[np.int64]]:
        """Of whole pieces, as many in each."""
        count = self.steps_of_a_pass(batch)
        return np.array_split(rng.permutation(self._usable), count) if count else []

    def _gradients(self, chosen: NDArray[np.int64]) -> tuple[float, Params]:
        found, unit = self._pieces.pairs, self.frame.unit
        positions, spans, steps = self.unrolled(self._pieces, chosen)
        total, made_slopes, h_slopes = 0.0, [], []
        none = np.zeros(len(self.ids), np.float32)
        for k, passed in enumerate(steps):
            weight = weight_of(found.known[positions, k], k)
            loss, slope = cross_entropy(passed.made, self._rows, none, *wanted(found, positions, k), weight)
            total += loss / LATER**k
            made_slopes.append(slope)
            after = np.minimum(positions + k + 1, self._pieces.last[positions])
            away = (passed.h - found.states[after]) / unit
            h_slopes.append(away * weight[:, None] * (2 * _NEAR / len(unit) / unit).astype(np.float32))
        return total / len(steps), back(self.params, self.frame, steps, spans, made_slopes, h_slopes)

    def unrolled(self, pieces: Pieces, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Span], list[Passed]]:
        """(positions, where each piece is among them, a step for each guess) of some pieces."""
        bounds = pieces.spans[chosen]
        sizes = bounds[:, 1] - bounds[:, 0]
        ends = np.cumsum(sizes)
        places = np.arange(int(ends[-1])) - np.repeat(ends - sizes, sizes)
        positions = places + np.repeat(bounds[:, 0], sizes)
        spans = list(zip((ends - sizes).tolist(), ends.tolist(), strict=True))
        shape, steps = self.frame.shape, list[Passed]()
        feature: Floats = pieces.pairs.states[positions].astype(np.float32)
        for k in range(pieces.pairs.wanted.shape[1]):
            token = self._embedded[pieces.tokens[np.minimum(positions + k, pieces.last[positions])]]
            rotation = Rotation.of(places + k, shape.head_dim, shape.rope_base)
            steps.append(step(self.params, self.frame, token, feature, rotation, spans, steps))
            feature = steps[-1].h
        return positions, spans, steps

    def score(self, held: Pieces) -> Score:
        tally = Tally(held.pairs)
        sizes = np.diff(held.spans, axis=1)
        count = min(len(held.spans), -(-int(sizes.sum()) // EVALUATED))
        for chosen in np.array_split(np.arange(len(held.spans)), count):
            positions, _, steps = self.unrolled(held, chosen)
            for k, passed in enumerate(steps):
                tally.add(positions, k, passed.made @ self._rows.T)
        return tally.score()

    def head(self, facts: Facts) -> EagleHead:
        """The best head so far."""
        return EagleHead(facts, self.frame.shape, weights_of(self.best, self.frame, self._rows), self.ids)

    def write(self, facts: Facts, path: Path) -> None:
        write_eagle(self.head(facts), path, matrices="q8_0")


def _weights(n_embd: int, heads: int) -> int:
    s = shape_for(n_embd)
    return 7 * s.n_head * s.head_dim * n_embd + 3 * s.n_ff * n_embd  # however many guesses


def _working(n_embd: int, size: int, settings: TrainSettings) -> int:
    """Output matrix and embeddings; steps of a batch, or what the regression looks at in the beginning."""
    s, batch = shape_for(n_embd), max(settings.batch, 2 * _SPAN)
    steps = batch * settings.heads * (_KEPT * n_embd + 2 * s.n_head * _SPAN) + 3 * batch * size
    return 4 * (3 * size * n_embd + max(steps, 5 * POSITIONS * n_embd + 6 * (2 * n_embd) ** 2))


def _begin(material: Material, settings: TrainSettings) -> tuple[EagleTrainer, Pieces]:
    read = np.unique(np.concatenate([text.tokens for text in (*material.texts, *material.held)])).astype(np.int64)
    embeddings = embedding_rows(material.header, read)
    if embeddings is None or embeddings.shape[1] != material.rows.shape[1]:
        raise EdgeSpecError(
            f"{material.header.path.name} keeps its embeddings in a form that cannot be read here; "
            "train heads of another form"
        )
    own, held = (Pieces.of(texts, material.ids, settings.heads, read) for texts in (material.texts, material.held))
    return EagleTrainer(own, material.ids, material.rows, embeddings, settings.epochs, settings.seed), held


@contextmanager
def _drafters(llm: LLM, path: Path) -> Iterator[Callable[[], Drafter]]:
    head = open_eagle(read_eagle(path), llm.target)
    try:
        yield lambda: EagleDrafter(head, Features(), ends=llm.target.vocab.is_eog)
    finally:
        head.close()


FORM = Form(EAGLE, SUFFIX, _weights, _working, _begin, _drafters)
