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
with edgespec.load(sys.argv[1], draft=sys.argv[2], ctx_size=4096, buffers=sys.argv[3]) as llm:
    llm.chat([{"role": "user", "content": "word " * 600}], max_tokens=12, temperature=0.0)
    parts = [c.memory for c in (llm.target, llm.draft)]
    anon = int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps({"anon": anon, "weights": sum(m.weights for m in parts), "kv": sum(m.kv for m in parts)}))
"""


@pytest.mark.parametrize("buffers", ["auto", "none"])
def test_pair_at_context_4096(qwen_target: Path, qwen_draft: Path, buffers: str, record) -> None:
    command = [sys.executable, "-c", _CHILD, str(qwen_target), str(qwen_draft), buffers]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    weights = seen["weights"] if buffers != "none" else 0  # mapped from the file, not anonymous
    spare = seen["anon"] - weights - seen["kv"]
    record(buffers=buffers, anon_mb=seen["anon"] / 1e6, beyond_weights_and_kv_mb=spare / 1e6)
    assert spare <= 300e6
