"""`edgespec show`: what a GGUF file is, from its header."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import profile_store
from ..heads.memory import usual_memory
from ..models.header import Header, read_header
from ..models.memory import Forecast, forecast
from ..models.names import resolve
from ..profile import ALL_LAYERS, LONG, SHORT, SMALLEST, Forced, RuntimeProfile
from ..tuned import Record, record_of
from .options import SETTINGS
from .show_gpu import OnGpu, gpu_json, on_gpu
from .show_heads import eagle_json, eagle_line, heads_json, heads_line
from .show_tuned import tuned_json, tuned_line
from .tables import PLAIN_WIDTH, clean, human_bytes


@click.command("show", context_settings=SETTINGS)
@click.argument("name")
@click.option("--ctx-size", type=int, metavar="N", help="Tell the memory of N tokens of context.")
@click.option("--kv-type", default="f16", show_default=True, metavar="TYPE", help="Tell the memory of such a KV cache.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(name: str, ctx_size: int | None, kv_type: str, as_json: bool) -> None:
    """Show what the model NAME is: a path to a GGUF file, or smollm2-135m.

    Architecture, size, quantization per type, context, tokenizer, template, license: read from the file's header
    alone, so this is quick for a model of any size.

    --json keys: path, file_size, gguf_version, architecture, name, license, parameters, quantization,
    types (a list of type, tensors, bytes, share), context_length, block_count, embedding_length, head_count and
    head_count_kv (a number, or a list with one per layer), tokenizer (model, pre, vocab_size, bos_id, bos, eos_id, eos,
    eot_id, eot, add_bos), chat_template (the text), memory (n_ctx: the context, by default the one it would have here;
    the bytes it takes: weights, kv, compute, vocabulary, program, heads (draft heads that are loaded with it); free:
    bytes that are free now; advice: what would help where that is too little), gpu (the same for the memory of a GPU,
    if the build of llama.cpp has one: name, layers that go there or -1 for all, needed, free, advice; else null),
    profile (the settings it is fastest with here, and the trials; null until it is first run), tuned (what `edgespec
    tune` found for the file as a target and as a draft, each with type, path, bytes, since and target), heads (draft
    heads registered for the file: path, source, count, vocabulary, recipe, scores; null without), eagle (an EAGLE head
    registered for it: path, source, vocabulary, recipe, scores; null without), mtp_layers (layers for multi-token
    prediction in the file), split (no, count; null for a whole file). What a file does not say is null.
    """
    header = read_header(resolve(name))
    profile = profile_store.remembered(header, Forced())
    record = record_of(header)
    flash = kv_type not in ("f32", "f16", "bf16") or (profile is not None and profile.choice.flash_attn == "on")
    heads = usual_memory(header)
    memory = forecast(header, ctx_size, kv_type=kv_type, flash=flash, heads=heads)
    layers = ALL_LAYERS if profile is None else profile.choice.gpu_layers
    there = on_gpu(header, memory.estimate.n_ctx, layers, kv_type=kv_type, flash=flash, heads=heads)
    facts = describe(header, profile, record, memory, there)
    if as_json:
        click.echo(json.dumps(facts))
        return
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    with console.capture() as capture:
        console.print(_overview(header, facts, profile, record, memory, there))
        if header.tensors:
            console.print()
            console.print(_types(facts))
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def describe(
    header: Header, profile: RuntimeProfile | None, record: Record | None, memory: Forecast, there: OnGpu | None
) -> dict[str, Any]:
    """The object that --json prints; its keys are in the command's help."""
    tokenizer = header.tokenizer
    total = sum(usage.nbytes for usage in header.quantization)
    return {
        "path": os.fsencode(header.path).decode("utf-8", "replace"),
        "file_size": header.file_size,
        "gguf_version": header.version,
        "architecture": header.arch,
        "name": header.name,
        "license": header.license,
        "parameters": header.parameters,
        "quantization": header.quant,
        "types": [
            {"type": u.type, "tensors": u.count, "bytes": u.nbytes, "share": u.nbytes / total if total else 0.0}
            for u in header.quantization
        ],
        "context_length": header.context_length,
        "block_count": header.block_count,
        "embedding_length": header.embedding_length,
        "head_count": header.head_count,
        "head_count_kv": header.head_count_kv,
        "tokenizer": {
            "model": tokenizer.model,
            "pre": tokenizer.pre,
            "vocab_size": tokenizer.vocab_size,
            "bos_id": tokenizer.bos_id,
            "bos": _token(header, tokenizer.bos_id),
            "eos_id": tokenizer.eos_id,
            "eos": _token(header, tokenizer.eos_id),
            "eot_id": tokenizer.eot_id,
            "eot": _token(header, tokenizer.eot_id),
            "add_bos": tokenizer.add_bos,
        },
        "chat_template": header.chat_template,
        "memory": asdict(memory.estimate) | {"free": memory.fit.free, "advice": list(memory.fit.advice)},
        "gpu": gpu_json(there),
        "profile": None if profile is None else profile_store.to_json(profile),
        "tuned": tuned_json(header, record),
        "heads": heads_json(header),
        "eagle": eagle_json(header),
        "mtp_layers": header.mtp_layers,
        "split": {"no": header.split_no, "count": header.split_count} if header.split_count > 1 else None,
    }


def _overview(
    header: Header,
    facts: dict[str, Any],
    profile: RuntimeProfile | None,
    record: Record | None,
    memory: Forecast,
    there: OnGpu | None,
) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    size = f"{header.file_size:,} bytes ({human_bytes(header.file_size)})"
    rows = {
        "model": header.name,
        "file": facts["path"],
        "size": size,
        "architecture": header.arch,
        "parameters": f"{header.parameters:,} ({_count(header.parameters)})",
        "quantization": header.quant,
        "context": None if header.context_length is None else f"{header.context_length:,} tokens",
        "layers": header.block_count,
        "embedding": header.embedding_length,
        "heads": _heads(header),
        "tokenizer": _tokenizer(header, facts["tokenizer"]),
        "chat template": _template(header.chat_template),
        "memory": f"{memory.estimate}, {'the default here' if memory.default else 'as asked for'}",
        "runs here": _runs_here(header, profile),
        "license": header.license,
        "format": f"GGUF version {header.version}, {len(header.tensors)} tensors",
    }
    if there is not None:
        rows["on the GPU" if there.fit.fits else "too large"] = str(there.fit)
    elif not memory.fit.fits:
        rows["too large"] = str(memory.fit)
    if record is not None:
        rows["tuned"] = tuned_line(record)
    if facts["heads"] is not None:
        rows["draft heads"] = heads_line(facts["heads"])
    if facts["eagle"] is not None:
        rows["EAGLE head"] = eagle_line(facts["eagle"])
    if facts["mtp_layers"]:
        rows["MTP layers"] = facts["mtp_layers"]
    if header.split_count > 1:
        rows["part"] = f"{header.split_no + 1} of {header.split_count} (the counts above are of this part)"
    for label, value in rows.items():
        table.add_row(Text(label), Text("not given" if value is None else clean(str(value))))
    return table


def _types(facts: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("type", no_wrap=True)
    for column in ("tensors", "bytes", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    for usage in facts["types"]:
        table.add_row(usage["type"], f"{usage['tensors']:,}", f"{usage['bytes']:,}", f"{usage['share']:.1%}")
    return table


def _runs_here(header: Header, profile: RuntimeProfile | None) -> str:
    if profile is None:
        if header.file_size < SMALLEST:
            return f"the defaults: files under {human_bytes(SMALLEST)} are not measured"
        return "not measured yet: measured at the first run"
    choice, best, library = profile.choice, profile.best, profile.library
    layers = {ALL_LAYERS: "all layers", 0: "no layers"}.get(choice.gpu_layers, f"{choice.gpu_layers} layers")
    text = (
        f"with buffers {choice.buffers}, flash attention {choice.flash_attn}, {_plural(choice.threads, 'thread')}, "
        f"{layers} on a GPU"
    )
    if best is None or best.short_ms is None:
        return text
    text += "; measured provisionally: " if profile.provisional else "; measured: "
    text += f"{best.short_ms:.1f} ms a token behind {SHORT:,} tokens"
    text += "" if best.long_ms is None else f", {best.long_ms:.1f} ms behind {LONG:,}"
    ratios = [] if library is None else [(library.short_ms, best.short_ms), (library.long_ms, best.long_ms)]
    faster = [f"{theirs / ours:.2f}x" for theirs, ours in ratios if theirs and ours]
    return f"{text}; {' and '.join(faster)} the speed of llama.cpp's defaults" if faster else text


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _heads(header: Header) -> str | None:
    if header.head_count is None:
        return None
    heads = _per_layer(header.head_count)
    return (
        heads if header.head_count_kv is None else f"{heads} ({_per_layer(header.head_count_kv)} for keys and values)"
    )


def _per_layer(count: int | tuple[int, ...]) -> str:
    if isinstance(count, int):
        return str(count)
    low, high = min(count, default=0), max(count, default=0)
    return str(low) if low == high else f"{low} to {high} by layer"


def _tokenizer(header: Header, facts: dict[str, Any]) -> str | None:
    if header.tokenizer.model is None:
        return None
    parts = [header.tokenizer.model + (f" ({header.tokenizer.pre})" if header.tokenizer.pre else "")]
    parts.append(f"{header.tokenizer.vocab_size:,} tokens")
    for kind in ("bos", "eos", "eot"):
        if facts[f"{kind}_id"] is not None:
            text = f" {facts[kind]}" if facts[kind] is not None else ""
            parts.append(f"{kind.upper()} {facts[f'{kind}_id']}{text}")
    if header.tokenizer.add_bos is not None:
        parts.append("BOS is added" if header.tokenizer.add_bos else "BOS is not added")
    return ", ".join(parts)


def _template(template: str | None) -> str:
    if template is None:
        return "no"
    first = next((line for line in template.splitlines() if line.strip()), "")
    return f"yes: {clean(first)[:72]}" + ("..." if len(first) > 72 or first != template else "")


def _token(header: Header, token: int | None) -> str | None:
    if token is None or "tokenizer.ggml.tokens" not in header.metadata:
        return None
    return header.token_text(token).decode("utf-8", "replace")


def _count(n: int) -> str:
    return f"{n / 1e9:.2f} billion" if n >= 1e9 else f"{n / 1e6:.1f} million" if n >= 1e6 else f"{n / 1e3:.1f} thousand"
