"""Anonymous memory of a loaded pair: the weights once, the caches, and little else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is read from /proc"),
]

_CHILD = """
import json, re, sys
from pathlib import Path
import edgespec
given = {"buffers": sys.argv[3], "threads": 2, "flash_attn": "off"}
more = {} if sys.argv[4] == "planned" else {"draft_max": 3}
with edgespec.load(sys.argv[1], draft=sys.argv[2], ctx_size=4096, **given) as llm:
    llm.chat([{"role": "user", "content": "word " * 150}], max_tokens=12, temperature=0.0, **more)
    parts = [c.memory for c in (llm.target, llm.draft)]
    anon = int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps({"anon": anon, "weights": sum(m.weights for m in parts), "kv": sum(m.kv for m in parts)}))
"""


@pytest.mark.parametrize(
    ("buffers", "drafts"),
    [
        pytest.param("auto", "planned", marks=pytest.mark.soak),
        pytest.param("none", "planned", marks=pytest.mark.soak),
        ("auto", "3"),
        ("none", "3"),
    ],
)
def test_pair_at_context_4096(qwen_target: Path, qwen_draft: Path, buffers: str, drafts: str, record) -> None:
    """planned: decode times of both are measured first, which takes most of a minute."""
    command = [sys.executable, "-c", _CHILD, str(qwen_target), str(qwen_draft), buffers, drafts]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    weights = seen["weights"] if buffers != "none" else 0  # mapped from the file, not anonymous
    spare = seen["anon"] - weights - seen["kv"]
    record(buffers=buffers, anon_mb=seen["anon"] / 1e6, beyond_weights_and_kv_mb=spare / 1e6)
    assert spare <= 300e6


_FULL = """
import json, re, sys
from pathlib import Path
from edgespec.loading import load  # with all that a program has loaded
from edgespec.llama import Context, LoadSettings, Model
from edgespec.models.memory import default_context
from edgespec.scoring import ScoreRequest

path, n_ctx, flash = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with Model(path, LoadSettings(n_ctx=n_ctx or None, flash_attn=flash)) as model, Context(model) as context:
    tokens = [(7 * i + 1) % context.vocab.size for i in range(1200)]
    sequence = context.sequence()
    context.score([ScoreRequest(sequence, tokens[:64])])
    state, spare = sequence.save(), context.sequence()
    for _ in range((context.n_ctx - 700) // 64):  # fill the cache: reading so much would take minutes
        spare.restore(state, tokens[:64])
        context.share(spare, sequence)
    context.score([ScoreRequest(sequence, tokens[:564], tuple(tokens[:15]))])
    rss = int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps({"n_ctx": context.n_ctx, "rss": rss, "estimate": context.memory.total}))
"""

_ESTIMATED = [
    pytest.param("starter", 2048, "off"),
    pytest.param("starter", 8192, "on"),
    *(
        pytest.param(model, n_ctx, flash, marks=pytest.mark.soak)
        for model in ("starter", "qwen_draft", "qwen_target", "gemma")
        for n_ctx in (2048, 8192, 0)
        for flash in ("off", "on")
    ),
]


@pytest.mark.parametrize(("model", "n_ctx", "flash"), _ESTIMATED)
def test_the_estimate_is_what_a_full_context_takes(
    request: pytest.FixtureRequest, model: str, n_ctx: int, flash: str, record
) -> None:
    """n_ctx: 0 is the largest that fits, by default."""
    command = [sys.executable, "-c", _FULL, str(request.getfixturevalue(model)), str(n_ctx), flash]
    seen = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    off = seen["estimate"] / seen["rss"] - 1
    record(model=model, n_ctx=seen["n_ctx"], flash=flash, rss_mb=seen["rss"] / 1e6, estimate_off=off)
    assert abs(off) <= 0.1
