"""`edgespec convert`: draft heads for a model out of a published Medusa checkpoint, or out of an EAGLE head's GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..errors import BadRequestError, EdgeSpecError, NoSpaceError
from ..text import sanitize
from .options import SETTINGS


@click.command(context_settings=SETTINGS)
@click.argument("path", metavar="PATH")
@click.option("-o", "--out", required=True, metavar="FILE", help="Where the heads go: .safetensors, or .gguf.")
@click.option("-m", "--model", metavar="NAME|PATH", help="The model they are for; they are then registered for it.")
@click.option("--float32", is_flag=True, help="Keep matrices in float32, not in float16.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def convert(path: str, out: str, model: str | None, float32: bool, as_json: bool) -> None:
    """Convert the Medusa checkpoint PATH, a file or its folder, to heads that EdgeSpec can draft with.

    PATH may also be the GGUF of an EAGLE head: with -m it is copied to FILE and registered.

    Checkpoints are those of FasterDecoding/medusa-*: medusa_lm_head.safetensors, or medusa_lm_head.pt, which needs
    torch. With -m the heads are checked against that GGUF file, bound to it and registered, so that it drafts with them
    from then on. Without it they can be given with --heads to any model of the same sizes: other quantizations, too.

    --json keys: path (of the heads), source, count (heads), vocabulary (tokens they can guess), n_embd, bytes, target
    (the model's path, null without -m).
    """
    from ..heads.registry import is_gguf
    from ..heads.storage import SOURCE, SUFFIX, write_heads

    target = Path(out)
    if is_gguf(Path(path)):
        _eagle(Path(path), target, model, as_json)
        return
    if target.suffix != SUFFIX:
        raise BadRequestError(f"--out is {out}; its name must end with {SUFFIX}")
    heads, header = _converted(Path(path), model)
    try:
        write_heads(heads, target, half=not float32)
        size = target.stat().st_size
        if header is not None:
            from ..heads.registry import register

            register(heads.facts.target, target)
    except OSError as error:
        raise _unwritten(target, error) from error
    if as_json:
        facts: dict[str, Any] = {
            "path": str(target),
            "source": SOURCE,
            "count": heads.count,
            "vocabulary": len(heads.ids),
            "n_embd": heads.facts.n_embd,
            "bytes": size,
            "target": None if header is None else str(header.path),
        }
        click.echo(json.dumps(facts))
        return
    click.echo(
        f"{sanitize(str(target))}: {heads.count} heads over {len(heads.ids):,} tokens for states of "
        f"{heads.facts.n_embd:,} numbers, {size:,} bytes"
    )
    if header is None:
        click.echo(f"use them with --heads {sanitize(str(target))}")
    else:
        click.echo(f"registered: {sanitize(header.path.name)} drafts with them from now on")


def _eagle(path: Path, out: Path, model: str | None, as_json: bool) -> None:
    from .convert_eagle import take_eagle

    try:
        facts = take_eagle(path, out, model)
    except OSError as error:
        raise _unwritten(out, error) from error
    if as_json:
        click.echo(json.dumps(facts))
        return
    size = f"{facts['vocabulary']:,} tokens, {facts['bytes']:,} bytes"
    click.echo(f"{sanitize(facts['path'])}: an EAGLE head over {size}")
    click.echo(f"registered: {sanitize(Path(facts['target']).name)} drafts with it from now on")


def _converted(path: Path, model: str | None) -> tuple[Any, Any]:
    """(heads, header of the model's file or None)."""
    from ..heads.published import read_published

    if model is None:
        return read_published(path), None
    from ..models.header import read_header
    from ..models.identity import file_identity
    from ..models.names import resolve

    header = read_header(resolve(model))
    identity = file_identity(header)
    heads = read_published(path, target=identity, target_name=header.path.name)
    if header.embedding_length is None:
        raise EdgeSpecError(f"{header.path.name} does not say how wide its states are; convert without -m")
    heads.check_target(
        vocab_size=header.tokenizer.vocab_size,
        n_embd=header.embedding_length,
        identities=(identity,),
        name=header.path.name,
    )
    return heads, header


def _unwritten(path: Path, error: OSError) -> EdgeSpecError:
    import errno

    if error.errno == errno.ENOSPC:
        return NoSpaceError(f"no room on the disk for {path}; free some, or choose another place with --out")
    return EdgeSpecError(f"cannot write {path}: {error.strerror or error}; choose another place with --out")
