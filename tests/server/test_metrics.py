"""The figures of /metrics, and the form that Prometheus reads."""

from __future__ import annotations

import re

from running_server import Running, running

SAMPLE = re.compile(r'edgespec_[a-z_]+(?:\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+')


def test_figures_count_what_was_done() -> None:
    with running("scripted:echo") as server:
        asked = [server.chat("abcabcabc" * 20).json for _ in range(3)]
        assert server.chat("x", n=2).status == 400
        assert server.ask("GET", "/nothing").status == 404
        figure = server.figure
        chat = "/v1/chat/completions"
        assert figure("requests_total", endpoint=chat, status="200") == 3
        assert figure("requests_total", endpoint=chat, status="400") == 1
        assert figure("requests_total", endpoint="other", status="404") == 1
        for name in ("prompt_tokens", "completion_tokens"):
            assert figure(f"{name}_total") == sum(answer["usage"][name] for answer in asked)
        cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in asked]
        assert cached[0] == 0 < cached[1]
        assert figure("prompt_tokens_cached_total") == sum(cached)
        sources = ("suffix", "lookup", "model")
        for name, field in (("drafted", "draft_n"), ("accepted", "draft_n_accepted")):
            told = sum(figure(f"{name}_tokens_total", source=source) for source in sources)
            assert told == sum(answer["timings"][field] for answer in asked)
        assert figure("first_token_seconds_count") == 3
        assert figure("resident_memory_bytes", process="engine") > 1e6
        assert figure("resident_memory_bytes", process="server") > 1e6


def test_the_form_is_prometheus_own(echo: Running) -> None:
    echo.chat("abcabcabc" * 20)
    answer = echo.ask("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    named: set[str] = set()
    for line in answer.body.decode().splitlines():
        if line.startswith("# TYPE "):
            named.add(line.split()[2])
        elif not line.startswith("# HELP "):
            assert SAMPLE.fullmatch(line), line
            assert re.split(r"[{ ]", line)[0] in named
