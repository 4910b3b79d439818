"""What an EAGLE head's GGUF says of itself, checked before llama.cpp sees it: it aborts on much of what is wrong.

Two kinds: EdgeSpec's own (heads/eagle.py), and EAGLE-3 as llama.cpp's converter writes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from edgespec.models.compat import vocab_difference
from edgespec.models.header import Header, TensorInfo, read_header
from edgespec.models.quoting import one_line, quoted
from edgespec.models.vocabulary import FileVocabulary

from ..errors import ModelLoadError
from .eagle import ARCH, FORMAT, KIND, LAYERS_READ, VERSION
from .medusa import Facts

_MAX_TEXT = 4096  # characters of a text in the metadata
_MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class EagleFile:
    """A head's file. own: of EdgeSpec's own kind.  layers: of the target that it reads, empty where it is our own.

    vocabulary: tokens that it can guess.  n_embd: numbers of its features.  facts.n_embd: of the target's states.
    """

    header: Header
    own: bool
    layers: tuple[int, ...]
    vocabulary: int
    n_embd: int
    facts: Facts


def read_eagle(path: Path) -> EagleFile:
    """Of a file, from its header and its list of ids. Raises ModelNotFoundError, ModelLoadError."""
    header = read_header(path)
    if header.arch != ARCH:
        raise ModelLoadError(
            f"{quoted(path)} is a model of architecture {quoted(header.arch)} and no EAGLE head (eagle3); "
            "give a head, or give this file as a model"
        )
    return _Reader(header).file()


class _Reader:
    def __init__(self, header: Header) -> None:
        self._header = header
        self._tensors = {tensor.name: tensor for tensor in header.tensors}

    def file(self) -> EagleFile:
        header = self._header
        own = self._text("format") == FORMAT
        if own and (self._text("kind"), header.metadata.get("edgespec.version")) != (KIND, VERSION):
            self._fail(f"is a head of another form; this version of EdgeSpec reads {KIND} in form {VERSION}")
        n_embd, size = header.embedding_length, self._vocab_size()
        if header.block_count != 1 or not n_embd:
            self._fail("must have one layer")
        self._attention()
        layers = self._layers()
        read = self._number("target_hidden_size")
        if self._tensor("fc.weight").shape[:1] != (LAYERS_READ * read,):
            self._fail("has a matrix fc that does not fit target_hidden_size")
        embedding = self._tensors.get("token_embd.weight")
        if embedding is not None and embedding.shape != (n_embd, size):
            self._fail(f"has {list(embedding.shape)} embeddings for {size} tokens")
        facts = Facts(
            vocab_size=size,
            n_embd=n_embd if own else read,
            target=self._text("target") if own else "",
            target_name=self._text("target_name") if own else "",
            recipe=self._text("recipe") if own else f"EAGLE-3 over layers {', '.join(map(str, layers))}",
            scores=self._text("scores") if own else "",
        )
        return EagleFile(header, own, () if own else layers, self._ids(size, n_embd), n_embd, facts)

    def _attention(self) -> None:
        """What llama.cpp's graph asserts."""
        heads, keys = self._header.head_count, self._header.head_count_kv
        keys = heads if keys is None else keys
        if not isinstance(heads, int) or not isinstance(keys, int) or heads < 1 or keys < 1 or heads % keys:
            self._fail("has attention heads that its key heads do not divide")
        usual = (self._header.embedding_length or 0) // heads
        sizes = [self._number(f"attention.{what}_length", usual) for what in ("key", "value")]
        rotated = self._number("rope.dimension_count", sizes[0])
        if sizes[0] != sizes[1] or rotated > sizes[0] or rotated % 2:
            self._fail("has keys and values of different sizes, or rotates more than they have")

    def _layers(self) -> tuple[int, ...]:
        found = self._header.metadata.get(f"{ARCH}.target_layers")
        if not isinstance(found, tuple) or len(found) != LAYERS_READ or not all(isinstance(x, int) for x in found):
            self._fail("must name three layers of its target")
        return tuple(int(layer) for layer in found)

    def _ids(self, size: int, n_embd: int) -> int:
        """How many tokens can be guessed, after a look at which: llama.cpp would write to any place."""
        output = self._tensors.get("output.weight")
        d2t = self._tensors.get("d2t")
        if d2t is None:
            if output is not None and output.shape != (n_embd, size):
                self._fail("has an output matrix of another vocabulary and no d2t")
            return size
        count = math.prod(d2t.shape)
        if d2t.type != "I64" or len(d2t.shape) != 1 or output is None or output.shape != (n_embd, count):
            self._fail("has a d2t that is no list of int64, or that its output matrix does not fit")
        ids = np.fromfile(self._header.path, "<i8", count, offset=self._header.data_start + d2t.offset)
        if len(ids) != count or not count or ids.min() < 0 or ids.max() >= size or len(np.unique(ids)) != count:
            self._fail(f"has a d2t with ids outside of 0 to {size - 1}, or one of them twice")
        return count

    def _vocab_size(self) -> int:
        if self._header.tokenizer.model in ("no_vocab", "none"):
            return self._number("vocab_size")
        return self._header.tokenizer.vocab_size

    def _tensor(self, name: str) -> TensorInfo:
        return self._tensors[name] if name in self._tensors else self._fail(f"lacks the tensor {name}")

    def _number(self, key: str, usual: int = 0) -> int:
        found = self._header.metadata.get(f"{ARCH}.{key}", usual)
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= _MAX_SIZE:
            self._fail(f"has no usable {key}")
        return found

    def _text(self, key: str) -> str:
        found = self._header.metadata.get(f"edgespec.{key}", "")
        return found[:_MAX_TEXT] if isinstance(found, str) else ""

    def _fail(self, what: str) -> NoReturn:
        raise ModelLoadError(f"the EAGLE head {quoted(self._header.path)} {what}; make or fetch it again")


def check_fits(head: EagleFile, target: Header, *, identities: tuple[str, ...], n_embd: int, vocab_size: int) -> None:
    """Raise ModelLoadError unless a head was made for this model. identities: of its files (models.identity)."""
    facts, name = head.facts, quoted(target.path)
    if facts.n_embd != n_embd:
        raise ModelLoadError(
            f"this EAGLE head was made for hidden states of {facts.n_embd} numbers and {name} has {n_embd}; "
            "give a head that was made for it"
        )
    made = one_line(facts.target_name, 80) or "another model"
    if facts.target and facts.target not in identities:
        raise ModelLoadError(f"this EAGLE head was made for another file ({made}) than {name}; give one made for it")
    if head.own:
        if facts.vocab_size != vocab_size:
            raise ModelLoadError(
                f"this EAGLE head was made for a vocabulary of {facts.vocab_size} tokens and {name} has {vocab_size}; "
                "give a head that was made for it"
            )
    elif (difference := vocab_difference(FileVocabulary(target), FileVocabulary(head.header))) is not None:
        raise ModelLoadError(f"this EAGLE head cannot draft for {name}: {one_line(difference.reason)}")
    missing = {"token_embd.weight", "output.weight"} - {tensor.name for tensor in head.header.tensors}
    if missing and head.n_embd != n_embd:
        raise ModelLoadError(f"this EAGLE head needs matrices of {name} that do not fit it; give another head")
    if "output.weight" in missing and facts.vocab_size != vocab_size:
        raise ModelLoadError(f"this EAGLE head needs the output matrix of {name}, of another size; give another head")
