"""What is wrong with heads of any kind is one line, with the code of its kind of error."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgespec_command import Cli, Models

from tiny_heads import write_eagle3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "--drafter", "medusa", "hi"), 2, "drafter medusa needs heads for this model"),
        (("run", "--heads", "nowhere", "hi"), 3, "there is no file nowhere with heads"),
        (("bench", "--heads", "none", "--mode", "medusa:2"), 2, "drafter medusa needs heads"),
        (("convert", "nowhere", "-o", "a.safetensors"), 3, "there is no file or folder nowhere"),
        (("convert", "CHECKPOINT", "-o", "a.bin"), 2, "its name must end with .safetensors"),
        (("convert", "CHECKPOINT", "-o", "/proc/a/b.safetensors"), 1, "cannot write /proc/a/b.safetensors"),
        (("convert", "MODEL", "-o", "a.safetensors"), 4, "and no EAGLE head"),
        (("run", "--drafter", "eagle", "hi"), 2, "drafter eagle needs an EAGLE head for this model"),
        (("run", "--drafter", "mtp", "hi"), 2, "drafter mtp needs a model file with MTP layers"),
        (("run", "--drafter", "mtp,eagle", "--heads", "HEAD", "hi"), 2, "choose one as the drafter"),
        (("run", "--draft", "HEAD", "hi"), 4, "EAGLE head"),
        (("run", "--heads", "MODEL", "--drafter", "eagle", "hi"), 4, "and no EAGLE head"),
        (("convert", "HEAD", "-o", "a.gguf"), 2, "name its model with -m"),
        (("convert", "HEAD", "-o", "a.safetensors", "-m", "MODEL"), 2, "must end with .gguf"),
        (("convert", "MODEL", "-o", "a.gguf", "-m", "MODEL"), 4, "and no EAGLE head"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    own: Cli, models: Models, checkpoint: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    head = write_eagle3(tmp_path / "head.gguf")
    places = {"CHECKPOINT": checkpoint, "MODEL": models.chat, "HEAD": head}
    given = [places.get(a, a) for a in arguments]
    done = own.here(*given, *(() if arguments[0] == "convert" else ("-m", models.chat)))
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
