"""llama.cpp behind typed Python: the only package that imports the binding."""

from ..machine import physical_cores
from .binding import supports_gpu_offload
from .compatibility import check_vocab, vocab_difference
from .context import Context
from .grammar import LlamaGrammar, schema_to_gbnf
from .model import Model
from .quantize import requantize
from .sequence import Sequence
from .settings import LoadSettings
from .vocab import LlamaVocab

__all__ = [
    "Context",
    "LlamaGrammar",
    "LlamaVocab",
    "LoadSettings",
    "Model",
    "Sequence",
    "check_vocab",
    "physical_cores",
    "requantize",
    "schema_to_gbnf",
    "supports_gpu_offload",
    "vocab_difference",
]
