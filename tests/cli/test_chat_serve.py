"""`edgespec chat --serve`: the app behind a page, spoken to as the page does; scripted models, real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from chat_site import CTRL_Q, ENTER, ESC, PATIENCE_S, PROGRAM, Page, Served, serving
from edgespec_command import Cli

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

COUNT = "scripted:count?decodes_per_s=60"
READY = "Write a message"
AGAIN = "Message, or / for commands"


@pytest.fixture(scope="module")
def env(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return {**cli.env, "EDGESPEC_HOME": str(tmp_path_factory.mktemp("site"))}


@pytest.fixture(scope="module")
def counting(env: Mapping[str, str]) -> Iterator[Served]:
    with serving(env, "-m", COUNT) as served:
        yield served
        left = [process for kind in served.processes().values() for process in kind]
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 0
        assert gone(left)


def run(work: Callable[[Callable[[], Page]], Coroutine[Any, Any, None]], served: Served) -> None:
    """work(page): page() is another page of it, closed at the end."""

    async def all_of_it() -> None:
        async with AsyncExitStack() as stack:

            def page() -> Page:
                made = Page(served)
                stack.push_async_callback(made.close)
                return made

            await work(page)

    asyncio.run(all_of_it())


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, PATIENCE_S)[1]


def test_type_stream_stop_reload(counting: Served) -> None:
    async def work(new: Callable[[], Page]) -> None:
        page = new()
        await page.open()
        await page.shows(READY)
        await page.type(f"count for me{ENTER}")
        await page.shows("count for me", "Esc stops")
        await page.until(lambda: counting.saved() and len(counting.saved()[0][-1].text) > 20, lambda: "an answer")
        await page.type(ESC)
        await page.until(lambda: counting.saved()[0][-1].finish_reason == "cancelled", lambda: "the end")
        (conversation,) = counting.saved()
        text = conversation[-1].text

        (before,) = counting.processes()["app"]
        await page.open()
        await page.shows("count for me", text[:20], AGAIN)
        assert gone([before])
        (after,) = counting.processes()["app"]
        assert before != after

        await page.type(f"and again{ENTER}")  # goes on in the same conversation; loaded again in the midst of an answer
        await page.until(lambda: len(counting.saved()[0]) == 4 and counting.saved()[0][-1].text, lambda: "an answer")
        await page.open()
        await page.shows("count for me", "and again")
        (conversation,) = counting.saved()
        assert [message.role for message in conversation] == ["user", "assistant"] * 2
        assert conversation[-1].finish_reason == "cancelled"
        assert conversation[-1].text.startswith("1 ")

        await page.type(CTRL_Q)
        await page.until(lambda: page.ended, lambda: "the end of the socket")
        assert gone([after, *counting.processes()["app"]])

    run(work, counting)


def test_two_visitors_see_their_own_answers_of_one_engine(counting: Served) -> None:
    async def work(new: Callable[[], Page]) -> None:
        first, second = pages = new(), new()
        for page in pages:
            await page.open()
            await page.shows(READY)
        assert first.address != second.address
        await first.type(f"visitor-one{ENTER}")
        await first.shows("visitor-one", "Esc stops")
        await second.type(f"visitor-two{ENTER}")
        await second.shows("visitor-two", "waiting: 1 before this one")
        await first.type(ESC)
        await second.shows("Esc stops")
        await second.until(lambda: answered("visitor-one") and answered("visitor-two"), lambda: "answers")
        await second.type(ESC)
        assert "visitor-two" not in first.text
        assert "visitor-one" not in second.text
        kinds = counting.processes()
        assert (len(kinds["engine"]), len(kinds["app"])) == (1, 2)

        # The page of one is opened a second time: the newest has it, no two write in one conversation.
        again = new()
        again.address = first.address
        await again.get(f"/?key={counting.key}")
        await again.open()
        await again.shows("visitor-one")
        await first.until(lambda: first.ended, lambda: "the end of the older page")
        assert len(counting.processes()["app"]) == 2

    def answered(question: str) -> bool:
        (path,) = (path for path in counting.saved() if path[0].text == question)
        return len(path) == 2 and bool(path[1].text)

    run(work, counting)


def test_who_may_not_come_in(counting: Served) -> None:
    async def work(new: Callable[[], Page]) -> None:
        stranger, page = new(), new()
        wrong = (f"/?key={counting.key}x", f"/chat/AAAAAAAAAAAA?key={counting.key}")
        for path in ("/", "/?key=", *wrong, "/own/page.js", "/static/js/textual.js"):
            assert (await stranger.get(path))[0] == 401, path
        assert await stranger.refused("/live/AAAAAAAAAAAA") == 401

        await page.open()
        live = page.address.replace("/chat/", "/live/")
        evil = {"Host": f"evil.example:{counting.port}"}
        for headers in (evil, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}):
            for path in (f"/?key={counting.key}", page.address, "/static/js/textual.js"):
                assert (await page.get(path, **headers))[0] == 403, (path, headers)
            assert await page.refused(live, **headers) == 403, headers
        local = f"localhost:{counting.port}"
        assert (await page.get(page.address, Host=local, Origin=f"http://{local}"))[0] == 200
        for path in ("/static/", "/static/../app_service.py", "/own/site.py", "/download/x", "/chat/short", "/nothing"):
            assert (await page.get(path))[0] in (403, 404), path

    run(work, counting)


def test_the_page_needs_no_network(counting: Served) -> None:
    async def work(new: Callable[[], Page]) -> None:
        page = new()
        await page.open()
        status, text, headers = await page.get(page.address)
        assert status == 200
        named = [*attributes(text)]
        assert len(named) == 4
        for name in named:
            status, content, _ = await page.get(name)
            assert status == 200, name
            for font in urls(content) if name.endswith("page.css") else ():
                assert (await page.get(font))[0] == 200, font
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy

    run(work, counting)


def attributes(html: str) -> Iterator[str]:
    """What a page fetches."""
    for part in html.split("<")[1:]:
        for name in ("href", "src"):
            _, found, rest = part.partition(f' {name}="')
            value = rest.partition('"')[0]
            if found and value and not value.startswith("data:"):
                yield value


def urls(css: str) -> list[str]:
    return [part.partition('"')[0] for part in css.split('url("')[1:]]


async def answering(new: Callable[[], Page], served: Served) -> Page:
    """A page of which a question and the beginning of its answer are saved."""
    page = new()
    await page.open()
    await page.shows(READY)
    await page.type(f"hello{ENTER}")
    await page.until(lambda: [c for c in served.saved() if len(c) == 2 and c[1].text], lambda: "an answer")
    return page


def test_ctrl_c_saves_all_and_leaves_nothing(env: Mapping[str, str], tmp_path: Path) -> None:
    """The file of the model goes once it is loaded: an app that had it loaded again would fail."""
    (script := tmp_path / "script.txt").write_text("All of it is a story without an end. " * 500)
    own = {**env, "EDGESPEC_HOME": str(tmp_path / "home")}
    with serving(own, "-m", f"scripted:{script}?decodes_per_s=60") as served:
        script.unlink()

        async def work(new: Callable[[], Page]) -> None:
            page = await answering(new, served)
            kinds = served.processes()
            assert (len(kinds["engine"]), len(kinds["app"])) == (1, 1)
            os.killpg(served.process.pid, signal.SIGINT)  # as a terminal does
            await page.until(lambda: page.ended, lambda: "the end of the page")
            assert gone([*kinds["engine"], *kinds["app"]])

        run(work, served)
        assert served.process.wait(PATIENCE_S) == 0
        assert served.process.stderr is not None
        assert served.process.stderr.read().splitlines()[-1] == "the chat has ended"
        (conversation,) = served.saved()
        assert conversation[0].text == "hello"
        assert conversation[1].finish_reason == "cancelled"
        assert "a story" in conversation[1].text


def test_a_server_that_is_killed_leaves_nothing(env: Mapping[str, str], tmp_path: Path) -> None:
    own = {**env, "EDGESPEC_HOME": str(tmp_path / "home")}
    with serving(own, "-m", COUNT) as served:

        async def work(new: Callable[[], Page]) -> None:
            page = await answering(new, served)
            (engine,) = served.processes()["engine"]
            engine.kill()
            await page.shows("the engine died")
            await page.type(f"and now{ENTER}")  # this page starts another engine, which ends with the pages, too
            await page.until(lambda: len(served.saved()[0]) == 4 and served.saved()[0][-1].text, lambda: "an answer")
            kinds = served.processes()
            assert (len(kinds["engine"]), len(kinds["app"])) == (1, 1)
            assert engine not in kinds["engine"]
            served.process.kill()
            assert gone([*kinds["app"], *kinds["engine"]])

        run(work, served)
        (conversation,) = served.saved()
        assert [message.finish_reason for message in conversation] == ["", "error", "", "cancelled"]
        assert all(message.text for message in conversation)


def test_a_port_that_is_taken(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = cli.here("chat", "--serve", "--port", str(taken.getsockname()[1]))
    assert result.code == 1
    assert "cannot listen" in result.err
    assert "(" not in result.err
    assert "--port" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--port", "8000"], 2, "goes with --serve"),
        (["--serve", "--port", "70000"], 2, "65535"),
        (["--serve", "--plain"], 2, "--plain"),
        (["--serve", "--inline"], 2, "--inline"),
        (["--serve", "--theme", "none-such"], 2, "no theme"),
        (["--serve", "--attach", "no-such-file"], 2, "no-such-file"),
        (["--serve", "--conversation", "99"], 2, "99"),
        (["--serve", "-m", "no-such-model"], 3, "no-such-model"),
        (["--serve", "--temperature", "nan"], 2, "temperature"),
    ],
)
def test_what_cannot_be_served_is_one_line(own: Cli, arguments: list[str], code: int, words: str) -> None:
    result = own.here("chat", *arguments)
    assert (result.code, len(result.err.splitlines())) == (code, 1), result.err
    assert words in result.err
    assert not result.out


def test_a_model_that_cannot_chat_ends_it(env: Mapping[str, str]) -> None:
    result = Cli(env).run([*PROGRAM, "-m", "scripted:echo?template=no"])
    assert (result.code, len(result.err.splitlines())) == (4, 1), result.err
    assert "no chat template" in result.err
    assert not result.out


def test_without_the_extra_it_says_what_to_install(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("edgespec.browser")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    result = own.here("chat", "--serve")
    assert result.code == 1
    assert result.err.splitlines() == [
        "edgespec: the chat in a browser needs the package textual_serve, which is not installed; run: "
        "pip install textual-serve"
    ]
